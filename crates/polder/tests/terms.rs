//! What sites are promised, in a running pool: changed by a reload, kept, measured and told.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Sends;
use common::eventually;
use common::pool::{Pool, Recipe};
use common::watch::site_record;
use common::wave::Wave;
use polder::control::{
    AskError, Code, MoveArguments, MovesArguments, ReloadArguments, Request, Response,
};
use polder::rig::{MoveLog, NodeHistory};
use polder::status::SiteStatus;
use pool_model::SiteId;
use shared_state::words::Floor;
use std::sync::atomic::Ordering;
use std::time::Duration;

const RELOAD: Request = Request::Reload(ReloadArguments { dry_run: false, file: None });

/// Puts other lines in the place of a site's, in the pool's settings file.
fn rewrite(pool: &Pool, site: usize, lines: &'static str) {
    let mut recipe = pool.recipe.clone();
    recipe.sites[site].1 = lines;
    let text = recipe.text(&pool.folder, &pool.edges, pool.stubs.as_ref());
    std::fs::write(&pool.file, text).unwrap();
}

fn told(response: Response) -> String {
    match response {
        Response::Done(done) => done.text,
        other => panic!("{other:?}"),
    }
}

fn refused(pool: &Pool) -> String {
    match pool.try_ask(&RELOAD) {
        Err(AskError::Refused(refusal)) => {
            assert_eq!(refusal.code, Code::Settings);
            refusal.text
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn site(pool: &Pool, place: usize) -> SiteStatus {
    pool.status().sites[place].clone()
}

#[test]
fn a_reload_changes_terms_in_place_and_a_wrong_one_changes_nothing() {
    let sites = [("red", "nodes = 2\nhard = 2\npriority = 1\n"), ("blue", "nodes = 1\n")];
    let pool = Recipe::new(&sites, 4).start();
    let pids: Vec<u32> = pool.status().edges.iter().map(|edge| edge.pid).collect();
    let before = site(&pool, 0);
    assert_eq!((before.terms.priority, before.hard, before.terms.soft), (1, 2, 2));
    assert!(before.terms.hard_met && before.terms.soft_met);

    rewrite(&pool, 0, "nodes = 2\nhard = 1\nsoft = 3\nmax = 3\npriority = 9\np99_ms = 70\n");
    let text = told(pool.ask(&RELOAD));
    for line in [
        "sites.red.hard: 2 -> 1",
        "sites.red.max: not set -> 3",
        "sites.red.p99_ms: not set -> 70",
        "sites.red.priority: 1 -> 9",
        "sites.red.soft: 2 -> 3",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let after = site(&pool, 0);
    assert_eq!((after.terms.priority, after.hard, after.terms.soft), (9, 1, 3));
    assert_eq!((after.max, after.terms.p99_ms), (Some(3), Some(70)));
    assert!(after.terms.hard_met && !after.terms.soft_met, "{after:?}");
    let status = pool.status();
    let hash = status.pool.settings_hash;
    assert!(status.edges.iter().all(|edge| edge.settings_hash == hash && pids.contains(&edge.pid)));
    // The words that every departure respects follow, under a version of their own.
    let home = site_record(&pool.folder);
    let floor = || {
        let word = home.floor_word(SiteId::MIN).unwrap().load(Ordering::SeqCst);
        Floor::unpack(word)
    };
    eventually("the guarantee is written", || (floor().hard, floor().max) == (1, 3));
    assert!(floor().settings_version > 1, "{:?}", floor());

    let wrong = [
        ("nodes = 3\nhard = 4\n", "`hard` sums up to 5"),
        ("nodes = 2\nhard = 2\nsoft = 1\n", "`soft` 1 below `hard` 2"),
        ("soft = 3\nmax = 2\n", "`soft` 3 above `max` 2"),
        ("classes = [\"gpu\"]\n", "no node has the classes for it"),
    ];
    for (lines, words) in wrong {
        rewrite(&pool, 0, lines);
        let text = refused(&pool);
        assert!(text.contains(words) && text.contains("nothing has changed"), "{text}");
        assert!(text.contains("polder.toml:"), "it names the place: {text}");
    }
    assert_eq!(pool.status().pool.settings_hash, hash);
    assert_eq!((site(&pool, 0).hard, site(&pool, 0).terms), (1, after.terms));
    // It is alive and well: a node still moves.
    pool.ask_move("n4", "red");
    eventually("the soft guarantee is met", || site(&pool, 0).terms.soft_met);
    pool.finish();
}

#[test]
fn classes_come_with_a_reload_and_bind_persons_too() {
    let pool = Recipe::new(&[("red", ""), ("blue", "")], 4).start();
    // The second node serves the second site.
    let mut text = std::fs::read_to_string(&pool.file).unwrap();
    for (node, lines) in [("n2", "classes = [\"gpu\"]"), ("n3", "classes = [\"ssd\", \"gpu\"]")] {
        let name = format!("name = \"{node}\"\n");
        text = text.replace(&name, &format!("{name}{lines}\ncapacity_pct = 150\n"));
    }
    let text = text.replace("name = \"blue\"\n", "name = \"blue\"\nclasses = [\"gpu\"]\n");
    std::fs::write(&pool.file, text).unwrap();
    let told = told(pool.ask(&RELOAD));
    assert!(told.contains("nodes.n3.capacity_pct: 100 -> 150"), "{told}");
    assert!(told.contains("sites.blue.classes: not set -> [\"gpu\"]"), "{told}");
    let status = pool.status();
    let classes: Vec<usize> = status.nodes.iter().map(|node| node.traits.classes.len()).collect();
    assert_eq!(classes, [0, 1, 2, 0]);
    assert_eq!(status.nodes[1].traits.capacity_pct, 150);
    assert_eq!(status.sites[1].terms.classes, ["gpu"]);
    let (node, site) = ("n4".to_owned(), "blue".to_owned());
    match pool.try_ask(&Request::Move(MoveArguments { node, site })) {
        Err(AskError::Refused(refusal)) => {
            assert!(
                refusal.text.contains("n4 can't serve blue, which needs classes gpu"),
                "{}",
                refusal.text
            );
        }
        other => panic!("not refused: {other:?}"),
    }
    pool.ask_move("n3", "blue");
    pool.ask_move("n4", "red");
    pool.finish();
}

#[test]
fn service_times_and_slow_requests_are_measured_over_all_edges() {
    let service = Duration::from_millis(10);
    let sites = [("red", "nodes = 2\np99_ms = 5\n"), ("blue", "p99_ms = 60000\n")];
    let pool = Recipe::new(&sites, 3).service(service).start();
    assert_eq!(site(&pool, 0).terms.service_ms, None, "nothing was measured yet");
    // Four clients on two nodes of four workers: no request waits for another.
    let clients = Sends::gets(4, &pool.edges, &Wave::still("red")).start();
    clients.wait_served(200);
    eventually("it is measured", || site(&pool, 0).terms.service_ms.is_some());
    let measured = site(&pool, 0).terms.service_ms.unwrap();
    // At least what the servers sleep; the rest is a busy machine.
    assert!((9.9..200.0).contains(&measured), "{measured} ms");
    let status = pool.status();
    let (red, blue) = (&status.sites[0], &status.sites[1]);
    // Each took longer than 5 ms. Those in flight now are counted when they end.
    assert!(red.terms.slower >= 200 && red.terms.slower <= red.requests, "{red:?}");
    assert_eq!((blue.terms.slower, blue.terms.service_ms), (0, None));
    clients.finish().assert_all_served("clients");
    // What was measured is remembered.
    std::thread::sleep(Duration::from_millis(100));
    assert!(site(&pool, 0).terms.service_ms.is_some());
    pool.finish();
}

#[test]
fn the_history_of_a_pool_is_replayed_from_its_moves() {
    let sites = [("red", "nodes = 2\nhard = 1\n"), ("blue", "nodes = 2\n")];
    let pool = Recipe::new(&sites, 5).start();
    let before = pool.status();
    let moves = [("n2", "blue"), ("n5", "red"), ("n1", "blue"), ("n3", "red"), ("n2", "red")];
    for (node, to) in moves {
        pool.ask_move(node, to);
    }
    let after = pool.status();
    let mut log = MoveLog::default();
    match pool.ask(&Request::Moves(MovesArguments { limit: 1_000 })) {
        Response::Moves(moves) => log.add(moves),
        other => panic!("{other:?}"),
    }
    assert_eq!(log.len(), moves.len());
    for one in log.iter() {
        let (from, to) = one.swapped_ns.unwrap_or_else(|| panic!("{one:?}"));
        assert!(one.version.is_some() && from <= to, "{one:?}");
    }
    let history = NodeHistory::replay(&before, &log, &after).unwrap();
    assert_eq!(history.moves(), moves.len());
    let counts = |site: &str| -> Vec<u32> {
        history.nodes_of(site).into_iter().map(|(_, nodes)| nodes).collect()
    };
    assert_eq!(counts("red"), [2, 1, 2, 1, 2, 3]);
    assert_eq!(counts("blue"), [2, 3, 4, 3, 2]);
    let always = (0, u64::MAX);
    assert_eq!(history.below("red", 1, always).possible_ns, 0);
    assert_eq!(history.below("red", 2, always).fewest, 1);
    assert!(history.below("red", 2, always).certain_ns > 0);
    let told = &after.sites[0].terms.below_hard;
    assert_eq!((told.now.as_deref(), told.move_s), (None, 0.0));
    pool.finish();
}
