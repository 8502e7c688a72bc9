//! `polder site set`: keys of one site change while the pool runs, at once or not at all.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Sends;
use common::pool::{PROGRAM, Pool, Recipe};
use common::wave::Wave;
use common::{eventually, process};
use polder::control::{
    AskError, Code, ReloadArguments, Request, Response, SetSiteArguments, SiteSet, SiteSettings,
    SitesArguments, UpgradeArguments,
};
use std::process::{Command, Stdio};

fn set_request(site: &str, keys: &[&str]) -> Request {
    let keys = keys.iter().map(|&key| key.to_owned()).collect();
    Request::SetSite(SetSiteArguments { site: site.to_owned(), keys, ..Default::default() })
}

fn set(pool: &Pool, site: &str, keys: &[&str]) -> SiteSet {
    match pool.ask(&set_request(site, keys)) {
        Response::SiteSet(set) => set,
        other => panic!("{other:?}"),
    }
}

fn refused(pool: &Pool, request: &Request) -> (Code, String) {
    match pool.try_ask(request) {
        Err(AskError::Refused(refusal)) => (refusal.code, refusal.text),
        other => panic!("not refused: {other:?}"),
    }
}

fn shown(pool: &Pool, site: &str) -> SiteSettings {
    match pool.ask(&Request::Sites(SitesArguments { site: Some(site.to_owned()) })) {
        Response::Sites(mut sites) => sites.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Runs the program against the pool: exit code, standard output, standard error.
fn run(pool: &Pool, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(["--runtime-dir".as_ref(), pool.folder.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn a_raised_guarantee_is_reached_under_load_and_told() {
    let sites = [("red", "nodes = 3\n"), ("blue", "nodes = 1\n")];
    let pool = Recipe::new(&sites, 4).start();
    let clients = Sends::gets(8, &pool.edges, &Wave::still("red")).start();
    let before = pool.status().pool.settings_hash;
    // The stubs of "blue" are idle: only its guarantee can bring it a node.
    let done = set(&pool, "blue", &["hard=3"]);
    assert!(done.holds, "{}", done.text);
    assert!(done.text.contains("blue has 3 nodes: its guarantee of 3 holds"), "{}", done.text);
    assert!(done.text.contains("until the next reload"), "{}", done.text);
    let keys: Vec<_> = done.changes.iter().map(|change| change.key.as_str()).collect();
    assert!(keys.contains(&"hard"), "{keys:?}");
    let status = pool.status();
    assert_eq!(status.sites[1].hard, 3);
    assert_ne!(status.pool.settings_hash, before);
    assert!(status.edges.iter().all(|edge| edge.settings_hash == status.pool.settings_hash));
    let differs: Vec<_> = status.pool.differs.iter().map(ToString::to_string).collect();
    assert!(differs.contains(&"sites.blue.hard: 1 -> 3".to_owned()), "{differs:?}");
    // No move takes one of them, not even a person's.
    let taken = (1..=4).filter(|number| {
        let node = format!("n{number}");
        let serves_blue =
            status.nodes.iter().any(|one| one.name == node && one.site.as_deref() == Some("blue"));
        let (code, _, _) = match serves_blue {
            true => run(&pool, &["move", &node, "red"]),
            false => return false,
        };
        code == 0
    });
    assert_eq!(taken.count(), 0);
    clients.wait_served(200);
    clients.finish().assert_all_served("clients while guarantees change");
    pool.finish();
}

#[test]
fn what_is_wrong_is_refused_whole_and_explained() {
    let pool = Recipe::new(&[("red", ""), ("blue", "max = 1\n")], 2).start();
    let before = (pool.status().pool.settings_hash, shown(&pool, "red"));
    let cases: [(&str, &[&str], Code, &str); 9] = [
        ("rde", &["max=1"], Code::NotFound, "did you mean `red`?"),
        ("0", &["max=1"], Code::NotFound, "the sites are `red` or `blue`"),
        ("red", &["max=1", "queue_max=x"], Code::Settings, "`queue_max` is a string"),
        ("red", &["queue_max=5", "mx=1"], Code::Settings, "did you mean `max`?"),
        ("red", &["hard=2"], Code::Settings, "`hard` sums up to 3"),
        ("blue", &["hard=2"], Code::Settings, "above `max` 1"),
        ("red", &["name=green"], Code::Settings, "can't get another name"),
        ("red", &["max"], Code::Settings, "write `KEY=VALUE`"),
        ("red", &["max=3\n[pool]\nhold_ms=9"], Code::Settings, "control characters"),
    ];
    for (site, keys, code, words) in cases {
        let (given, text) = refused(&pool, &set_request(site, keys));
        assert_eq!(given, code, "{keys:?}: {text}");
        assert!(text.contains(words), "{keys:?}: {text}");
        assert_eq!((pool.status().pool.settings_hash, shown(&pool, "red")), before, "{keys:?}");
    }
    assert_eq!(pool.status().pool.differs, []);
    // The same by the program: where it is wrong, and an exit code for a script.
    let (code, out, err) = run(&pool, &["site", "set", "red", "queue_max=-1"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("--set sites.red.queue_max=-1:1:"), "{err}");
    assert_eq!(run(&pool, &["site", "show", "rde"]).0, 5);
    pool.finish();
}

#[test]
fn a_reload_forgets_what_was_set_and_an_edit_of_the_file_takes_no_part_before() {
    let pool = Recipe::new(&[("red", "queue_max = 5\n")], 1).start();
    let text = std::fs::read_to_string(&pool.file).unwrap();
    // Somebody is in the middle of an edit.
    std::fs::write(&pool.file, format!("{text}\n[[sites")).unwrap();
    let dry = ["site", "set", "red", "queue_max=7", "--dry-run"];
    let (code, out, err) = run(&pool, &dry);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("sites.red.queue_max: 5 -> 7"), "{out}");
    assert_eq!(shown(&pool, "red").keys["queue_max"], 5);
    let (code, out, _) =
        run(&pool, &["site", "set", "red", "queue_max=7", "balance=round-robin", "--json"]);
    assert_eq!(code, 0);
    let done: SiteSet = serde_json::from_str(&out).unwrap();
    assert_eq!((done.changes.len(), done.holds, done.saved), (2, true, None));
    let (_, list, _) = run(&pool, &["site", "list"]);
    let line: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(line, ["red", "1", "-", "2", "red.test"]);
    let (_, told, _) = run(&pool, &["site", "show", "red"]);
    assert!(told.contains("= 7   # until the next reload; the file says 5"), "{told}");
    let (_, status, _) = run(&pool, &["status"]);
    assert!(status.contains("sites.red.queue_max is 7, the file says 5"), "{status}");
    assert!(status.contains("Last site set: 2 settings differ"), "{status}");
    // An empty value takes back one of them.
    set(&pool, "red", &["balance="]);
    assert_eq!(pool.status().pool.differs.len(), 1);
    // Another program goes on with it.
    let upgrade = Request::Upgrade(UpgradeArguments { program: Some(PROGRAM.into()) });
    assert!(matches!(pool.try_ask(&upgrade), Err(AskError::Broken { .. })));
    eventually("the upgrade ends", || {
        let change = pool.try_status().ok().and_then(|status| status.pool.change);
        change.is_some_and(|change| change.what == "upgrade" && change.succeeded == Some(true))
    });
    assert_eq!(shown(&pool, "red").keys["queue_max"], 7);
    assert_eq!(pool.status().pool.differs.len(), 1);
    // A file that can't be read changes nothing; the whole one holds again.
    let reload = Request::Reload(ReloadArguments::default());
    assert_eq!(refused(&pool, &reload).0, Code::Settings);
    assert_eq!(shown(&pool, "red").keys["queue_max"], 7);
    std::fs::write(&pool.file, text).unwrap();
    let Response::Done(done) = pool.ask(&reload) else { panic!("not done") };
    assert!(done.text.contains("sites.red.queue_max: 7 -> 5"), "{}", done.text);
    assert_eq!(pool.status().pool.differs, []);
    pool.wait_ready();
    pool.finish();
}

#[test]
fn what_is_saved_stands_in_the_file_with_its_comments() {
    let pool = Recipe::new(&[("red", "queue_max = 5 # a few\n")], 1).start();
    let before = std::fs::read_to_string(&pool.file).unwrap();
    let (code, out, err) = run(
        &pool,
        &["site", "set", "red", "queue_max=9", "hosts=[\"red.test\", \"r.test\"]", "--save"],
    );
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("says so now"), "{out}");
    let after = std::fs::read_to_string(&pool.file).unwrap();
    let expected = before
        .replace("queue_max = 5 # a few", "queue_max = 9 # a few")
        .replace("[\"red.test\"]", "[\"red.test\", \"r.test\"]");
    assert_eq!(after, expected);
    assert_eq!(pool.status().pool.differs, []);
    let Response::Done(done) = pool.ask(&Request::Reload(ReloadArguments::default())) else {
        panic!("not done")
    };
    assert_eq!(done.text, "the settings are the same");
    // Nothing in force is lost where the file can't be written.
    std::fs::write(&pool.file, "[[").unwrap();
    let (code, _, err) = run(&pool, &["site", "set", "red", "queue_max=3", "--save"]);
    assert_eq!(code, 3);
    assert!(err.contains("the file stays as it is: it is not TOML"), "{err}");
    assert_eq!(std::fs::read_to_string(&pool.file).unwrap(), "[[");
    assert_eq!(shown(&pool, "red").keys["queue_max"], 3);
    pool.finish();
}

#[test]
fn sets_at_the_same_time_come_one_after_the_other_and_none_is_lost() {
    let sites = [("red", ""), ("blue", ""), ("green", "")];
    let pool = Recipe::new(&sites, 3).start();
    let clients = Sends::gets(8, &pool.edges, &Wave::still("red")).start();
    let keys = ["queue_max=11", "queue_timeout_ms=1234", "slow_start_ms=7", "balance=two-choices"];
    std::thread::scope(|scope| {
        for (site, _) in sites {
            for key in keys {
                let pool = &pool;
                scope.spawn(move || set(pool, site, &[key]));
            }
        }
    });
    for (site, _) in sites {
        let now = shown(&pool, site);
        assert_eq!(now.keys["queue_max"], 11, "{site}");
        assert_eq!(now.keys["queue_timeout_ms"], 1_234, "{site}");
        assert_eq!(now.keys["slow_start_ms"], 7, "{site}");
        assert_eq!(now.keys["balance"], "two-choices", "{site}");
        assert_eq!(now.differs.len(), 4, "{site}");
    }
    let status = pool.status();
    assert!(status.edges.iter().all(|edge| edge.settings_hash == status.pool.settings_hash));
    assert!(process::is_alive(pool.pid()));
    clients.wait_served(100);
    clients.finish().assert_all_served("clients under sets");
    pool.finish();
}
