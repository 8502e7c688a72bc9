//! Settings: values, keys, and the places of what is wrong with them.

use super::schema::{Kind, Missing, SECTIONS};
use super::*;
use pool_model::SiteId;

pub(super) const GOOD: &str = r#"
[pool]
hold_ms = 5
[[edges]]
listen = ["127.0.0.1:8080"]
[[sites]]
name = "shop"
hosts = ["shop.localhost", "*.shop.localhost"]
nodes = 2
max = 4
command = ["serve", "--listen", "{host}:{port}", "{node}-{site}"]
[[sites]]
name = "blog"
hosts = ["blog.localhost"]
command = ["serve", "{port}"]
check = { path = "/healthz" }
[[nodes]]
name = "n"
count = 4
"#;

pub(super) fn good() -> Settings {
    parse("polder.toml", GOOD, &[]).map(|checked| checked.settings).unwrap()
}

/// What is wrong with a text, as `line:column message`.
pub(super) fn wrong(text: &str) -> Vec<String> {
    let problems = match parse("polder.toml", text, &[]) {
        Ok(checked) => checked.warnings,
        Err(problems) => problems,
    };
    let line = |problem: &Problem| {
        let Place { line, column, .. } = &problem.place;
        let help = problem.help.as_deref().unwrap_or("");
        format!("{line}:{column} {} [{help}]", problem.message)
    };
    problems.0.iter().map(line).collect()
}

/// Replaces a part of the good file, and expects one problem, at the place where `here` stands.
pub(super) fn one_problem(old: &str, new: &str, here: &str, message: &str, help: &str) {
    assert!(GOOD.contains(old), "the good file has no `{old}`");
    let text = GOOD.replacen(old, new, 1);
    let problems = wrong(&text);
    let [problem] = &problems[..] else { panic!("for `{new}`: {problems:#?}") };
    let from = GOOD.find(old).unwrap();
    let at = from + text[from..].find(here).unwrap();
    let line = text[..at].matches('\n').count() + 1;
    let column = at - text[..at].rfind('\n').map_or(0, |newline| newline + 1) + 1;
    let expected = format!("{line}:{column} ");
    assert!(problem.starts_with(&expected), "for `{new}`: at {expected}? {problem}");
    assert!(problem.contains(message), "for `{new}`: `{message}`? {problem}");
    assert!(problem.contains(help), "for `{new}`: `{help}`? {problem}");
}

#[test]
fn a_file_becomes_typed_settings_with_defaults() {
    let settings = good();
    assert_eq!((settings.pool.hold_ms, settings.pool.look_every_ms), (5, 1));
    assert_eq!(settings.pool.metrics.unwrap().to_string(), "127.0.0.1:0");
    assert_eq!(settings.edges[0].listen[0].to_string(), "127.0.0.1:8080");
    let (id, shop) = settings.site("shop").unwrap();
    assert_eq!((id.get(), shop.terms.guarantee.hard, shop.terms.guarantee.max), (1, 1, 4));
    assert_eq!(settings.sites[1].check, Check::Path("/healthz".into()));
    assert_eq!(settings.sites[1].terms.guarantee.max, u16::MAX);
    let names: Vec<&str> = settings.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4"]);
    let site = |number| Some(SiteId::new(number).unwrap());
    assert_eq!(settings.first_assignment(), [site(1), site(1), site(2), None]);
    assert_eq!(shop.command.last().unwrap(), "{node}-{site}");
}

#[test]
fn without_edges_one_listens_on_loopback() {
    let text = GOOD.replace("[[edges]]\nlisten = [\"127.0.0.1:8080\"]\n", "");
    let settings = parse("x", &text, &[]).unwrap().settings;
    assert_eq!(settings.edges.len(), 1);
    assert_eq!(settings.edges[0].listen[0].to_string(), "127.0.0.1:8080");
}

#[test]
fn unknown_keys_and_tables_are_refused_with_a_suggestion() {
    one_problem("hold_ms", "hold_sm", "hold_sm", "unknown key `hold_sm`", "mean `hold_ms`?");
    one_problem("max = 4", "queue_mx = 4", "queue_mx", "in site `shop`", "mean `queue_max`?");
    one_problem("nodes = 2", "nodes = 2\nhold_ms = 2", "hold_ms", "unknown", "in `[pool]`");
    one_problem("hold_ms = 5", "colour = 5", "colour", "in [pool]", "known here: `name`");
    one_problem("[pool]", "[http]\n[polo]\n[pool]", "polo", "unknown table `polo`", "`pool`?");
    one_problem("[pool]", "hold_ms = 2\n[pool]", "hold_ms", "unknown key", "in `[pool]`");
}

#[test]
fn values_of_the_wrong_kind_are_named() {
    one_problem("hold_ms = 5", "hold_ms = \"5\"", "\"5\"", "is a string, not a whole", "");
    one_problem("hold_ms = 5", "hold_ms = 5.0", "5.0", "is a number, not a whole", "");
    one_problem("hold_ms = 5", "high_load = true", "true", "not a number", "");
    one_problem("name = \"shop\"", "name = 7", "7", "not a string", "");
    one_problem("hosts = [\"blog.localhost\"]", "hosts = \"b\"", "\"b\"", "not a list", "[\"");
    one_problem("hosts = [\"blog.localhost\"]", "hosts = [1, \"a\"]", "1", "not a string", "");
    one_problem("hosts = [\"blog.localhost\"]", "hosts = []", "[]", "empty", "Host names");
    one_problem("hold_ms = 5", "mode = 1979-05-27", "1979", "is a date", "");
    one_problem("{ path = \"/healthz\" }", "{ tcp = 1 }", "1", "`true` or", "");
}

#[test]
fn numbers_keep_their_ranges() {
    one_problem("hold_ms = 5", "hold_ms = 0", "0", "out of range", "1 to 60_000");
    one_problem("hold_ms = 5", "hold_ms = -3", "-3", "is -3", "1 to 60_000");
    let huge = "hold_ms = 99999999999999999999999999";
    one_problem("hold_ms = 5", huge, "999", "out of range", "60_000");
    one_problem("hold_ms = 5", "high_load = nan", "nan", "out of range", "0.01 to 1000");
    one_problem("count = 4", "count = 16383", "16383", "out of range", "1 to 16_382");
    assert_eq!(parse("x", &GOOD.replace("= 5", "= 0x1_0"), &[]).unwrap().settings.pool.hold_ms, 16);
}

#[test]
fn words_are_chosen_from_a_list() {
    one_problem("hold_ms = 5", "policy = \"recnf\"", "\"recnf", "not known", "mean `reconf`?");
    one_problem("hold_ms = 5", "mode = \"off\"", "\"off", "not known", "`move` or `observe`");
}

#[test]
fn what_is_required_is_missed() {
    let site = "[[sites]]\nhosts = [\"a\"]\ncommand = [\"{port}\"]\n";
    let text = format!("{site}[[nodes]]\nname = \"n\"");
    assert_eq!(
        wrong(&text),
        ["1:1 [[sites]] has no `name` [add `name`: Names the site; lower case.]"]
    );
    let text = GOOD.replace("hosts = [\"blog.localhost\"]\n", "");
    let [problem] = &wrong(&text)[..] else { panic!("one of {:#?}", wrong(&text)) };
    assert!(problem.starts_with("12:1 site `blog` has no `hosts`"), "{problem}");
    let text = GOOD.replace("listen = [\"127.0.0.1:8080\"]\n", "");
    let [problem] = &wrong(&text)[..] else { panic!("one of {:#?}", wrong(&text)) };
    assert!(problem.starts_with("4:1 [[edges]] has no `listen`"), "{problem}");
    let problems = wrong("");
    assert!(problems[0].starts_with("1:1 there are no sites [add `[[sites]]`"), "{problems:?}");
    assert!(problems[1].starts_with("1:1 there are no nodes [add `[[nodes]]`"), "{problems:?}");
}

#[test]
fn one_table_and_many_are_told_apart() {
    let problems = wrong(&GOOD.replace("[[nodes]]", "[nodes]"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("write it with two brackets: `[[nodes]]`"), "{problems:?}");
    let problems = wrong(&GOOD.replace("[pool]", "[[pool]]"));
    assert!(problems[0].starts_with("2:1 `pool` is a list, not a table"), "{problems:?}");
    let problems = wrong(&format!("http = 3\n{GOOD}"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("1:8 `http` is a whole number, not a table"), "{problems:?}");
}

#[test]
fn names_hosts_and_addresses_are_checked() {
    one_problem("\"shop\"", "\"Shop!\"", "\"Shop!\"", "cannot name a site", "a-z");
    let long = format!("\"{}\"", "n".repeat(32));
    one_problem("\"n\"", &long, "\"nnn", "longer than 32", "shorten");
    one_problem("\"n\"", "\"-n\"", "\"-n\"", "cannot name a node", "letter or digit first");
    one_problem("\"blog.localhost\"", "\"http://b/\"", "\"http", "not a host name", "scheme");
    one_problem(
        "\"127.0.0.1:8080",
        "\"localhost:8080",
        "\"local",
        "not an address",
        "127.0.0.1:80",
    );
}

#[test]
fn only_edges_may_be_reached_from_elsewhere() {
    assert!(parse("x", &GOOD.replace("127.0.0.1:8080", "0.0.0.0:8080"), &[]).is_ok());
    let metrics = "metrics = \"0.0.0.0:9100\"";
    one_problem("hold_ms = 5", metrics, "\"0.0", "other machines", "only edges");
    one_problem(
        "count = 4",
        "count = 4\nhost = \"10.0.0.1\"",
        "\"10.",
        "other machines",
        "servers",
    );
}

#[test]
fn programs_and_placeholders_are_checked() {
    let text = GOOD.replace("{node}-{site}", "{nod}");
    let [problem] = &wrong(&text)[..] else { panic!("one of {:#?}", wrong(&text)) };
    // The argument starts in column 50, behind `"{host}:{port}", `.
    assert!(problem.starts_with("11:50 unknown placeholder `{nod}`"), "{problem}");
    assert!(problem.contains("did you mean `node`?"), "{problem}");
    one_problem("\"serve\", \"{port}\"", "\"\", \"{port}\"", "\"\"", "names no program", "path");
    one_problem("[\"serve\", \"{port}\"]", "[]", "[]", "`command` is empty", "");
    let text = GOOD.replace("command = [\"serve\", \"{port}\"]\n", "");
    let [problem] = &wrong(&text)[..] else { panic!("one of {:#?}", wrong(&text)) };
    assert!(problem.starts_with("12:1 site `blog` has no `command`, and node `n1`"), "{problem}");
}

#[test]
fn checks_are_one_of_two() {
    let check = "{ path = \"/healthz\" }";
    one_problem(check, "{ path = \"/\", tcp = true }", "{", "both `path` and `tcp`", "tcp = true");
    one_problem(check, "{ tcp = false }", "{", "neither `path` nor", "healthz");
    one_problem(check, "{ path = \"healthz\" }", "\"h", "no path of a URL", "`/`");
    one_problem(check, "7", "7", "not a table", "");
    let problems = wrong(&GOOD.replace(check, "{ paht = \"/\" }"));
    assert!(problems.iter().any(|p| p.contains("did you mean `path`?")), "{problems:?}");
}

#[test]
fn stickiness_is_by_cookie_or_by_hash() {
    let check = "check = { path = \"/healthz\" }";
    let with = |line: &str| format!("{check}\nsticky = {line}");
    let bad = |new: &str, here: &str, message: &str, help: &str| {
        one_problem(check, &with(new), here, message, help);
    };
    bad("{ cookie = \"S\", hash = \"address\" }", "\"address", "both `cookie` and", "NAME");
    bad("{ wait_ms = 5 }", "{ wait", "neither `cookie` nor `hash`", "address");
    bad("{ cookie = \"a b\" }", "\"a", "no name of a cookie", "letters");
    bad("{ hash = \"url\" }", "\"url", "which is not known", "header:NAME");
    bad("{ hash = \"header:\" }", "\"header", "which is not known", "header:NAME");
    bad("{ cookie = \"S\", key_file = \"k\" }", "\"k\"", "not an absolute path", "`/`");
    bad("{ hash = \"address\", key_file = \"/k\" }", "\"/k", "without `cookie`", "remove it");
    bad("7", "7", "not a table", "braces");
    let good = GOOD.replace(check, &with("{ hash = \"header:X-User\", wait_ms = 5 }"));
    let sticky = parse("x", &good, &[]).unwrap().settings.sites[1].sticky.clone().unwrap();
    let StickyBy::Hash(by) = sticky.by else { panic!("{sticky:?}") };
    assert_eq!((by.to_string().as_str(), sticky.wait_ms), ("header:x-user", 5));
}

#[test]
fn a_burst_needs_a_rate() {
    let check = "check = { path = \"/healthz\" }";
    let with = |line: &str| format!("{check}\nrate = {line}");
    let burst = with("{ client_burst = 5 }");
    one_problem(check, &burst, "5 }", "`client_burst` without `client_per_s`", "add");
    one_problem(check, &with("{ site_per_s = 0 }"), "0", "out of range", "1 to 1_000_000");
    let good = GOOD.replace(check, &with("{ client_per_s = 5, client_burst = 9, site_per_s = 7 }"));
    let rate = parse("x", &good, &[]).unwrap().settings.sites[1].rate;
    let of = |rate: edge::Rate| (rate.per_s, rate.burst);
    assert_eq!((rate.client.map(of), rate.site.map(of)), (Some((5, 9)), Some((7, 7))));
}

#[test]
fn a_runtime_folder_leaves_room_for_sockets() {
    one_problem("hold_ms = 5", "runtime_dir = \"run\"", "\"run\"", "not an absolute path", "`/`");
    let long = format!("runtime_dir = \"/{}\"", "a".repeat(64));
    one_problem("hold_ms = 5", &long, "\"/a", "longer than 64 bytes", "107 bytes");
}

#[test]
fn all_problems_come_at_once_and_in_order() {
    let text = GOOD
        .replace("hold_ms = 5", "hold_sm = 5\nmode = \"x\"")
        .replace("count = 4", "count = 0")
        .replace("\"shop.localhost\"", "\"shop:80\"");
    let lines: Vec<usize> = match parse("x", &text, &[]) {
        Ok(_) => panic!("this is wrong"),
        Err(problems) => problems.0.iter().map(|problem| problem.place.line).collect(),
    };
    assert!(lines.len() >= 4, "{lines:?}");
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_is_not_toml_is_shown_where_it_stops() {
    // One line, one problem: what follows a slip in it makes no sense either.
    let text = "[pool]\nhold_ms = = 5\n";
    let [problem] = &wrong(text)[..] else { panic!("one of {:#?}", wrong(text)) };
    assert!(problem.starts_with("2:1"), "{problem}");
    assert!(problem.contains("this is not TOML"), "{problem}");
    let problems = wrong("{\"pool\": {}}");
    assert!(problems[0].contains("looks like JSON"), "{problems:?}");
    let problems = wrong("[pool]\nhold_ms = 1\nhold_ms = 2\n");
    assert!(problems[0].starts_with("3:1"), "{problems:?}");
}

#[test]
fn the_command_line_wins_over_the_file() {
    let set = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        parse("polder.toml", GOOD, &arguments)
    };
    let arguments =
        ["pool.hold_ms=7", "sites.blog.max=2", "edges.0.threads=3", "http.headers_max=9"];
    let settings = set(&arguments).unwrap().settings;
    assert_eq!((settings.pool.hold_ms, settings.sites[1].terms.guarantee.max), (7, 2));
    assert_eq!((settings.edges[0].threads, settings.http.headers_max), (Some(3), 9));
    assert_eq!(set(&["pool.mode=observe"]).unwrap().settings.pool.mode, Mode::Observe);
    let text = set(&["pool.hold_ms=many"]).unwrap_err().to_string();
    assert!(text.contains("--> --set pool.hold_ms=many:1:14\n"), "{text}");
    assert!(text.contains("1 | pool.hold_ms=\"many\"\n  |              ^^^^^^"), "{text}");
    let text = set(&["sites.blgo.max=2"]).unwrap_err().to_string();
    assert!(text.contains("`sites` has no `blgo`") && text.contains("mean `blog`"), "{text}");
    assert!(text.contains("sites.blgo.max=2:1:7"), "{text}");
    assert!(set(&["sites.blog=2"]).unwrap_err().to_string().contains("as a whole"));
    assert!(set(&["hold_ms"]).is_err());
    let no_edges = GOOD.replace("[[edges]]\nlisten = [\"127.0.0.1:8080\"]\n", "");
    let problems = parse("x", &no_edges, &["edges.0.threads=2".into()]).unwrap_err();
    assert_eq!(problems.0.len(), 1, "{problems}");
    assert!(problems.to_string().contains("no `[[edges]]` to set"), "{problems}");
    assert!(set(&["pool.hold_ms=[1"]).is_err());
}

#[test]
fn the_hash_covers_the_pool_and_nothing_else() {
    let hash = |old: &str, new: &str| {
        parse("x", &GOOD.replace(old, new), &[]).unwrap().settings.pool_hash()
    };
    let good = good().pool_hash();
    assert_eq!(hash("8080", "8081"), good);
    assert_eq!(hash("nodes = 2", "queue_max = 7"), good);
    assert_eq!(hash("hold_ms = 5", "hold_ms = 5\nmode = \"observe\""), good);
    assert_eq!(hash("\"shop.localhost\", \"*.shop", "\"*.x\", \"*.shop"), good);
    let changes = [
        ("hold_ms = 5", "hold_ms = 6"),
        ("max = 4", "max = 3"),
        ("count = 4", "count = 5"),
        ("count = 4", "count = 4\nmax_in_flight = 9"),
        ("\"shop\"", "\"chop\""),
        ("hold_ms = 5", "hold_ms = 5\nhigh_load = 1.5"),
    ];
    let mut seen = vec![good];
    for (old, new) in changes {
        let changed = hash(old, new);
        assert!(!seen.contains(&changed), "{new}");
        seen.push(changed);
    }
}

#[test]
fn the_schema_is_sound() {
    for section in SECTIONS {
        for key in section.keys {
            match (key.kind, key.missing) {
                (Kind::Integer { min, max }, Missing::Integer(default)) => {
                    assert!((min..=max).contains(&default), "{}", key.name);
                }
                (Kind::Number { min, max }, Missing::Number(default)) => {
                    assert!((min..=max).contains(&default), "{}", key.name);
                }
                (Kind::Choice(words), Missing::Text(default)) => {
                    assert_eq!(words[0], default, "{}", key.name);
                }
                (Kind::Text, Missing::Text(_)) | (_, Missing::Required | Missing::Means(_)) => {}
                odd => panic!("{}: {odd:?}", key.name),
            }
            assert!(key.help.ends_with('.'), "{}", key.name);
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no.toml");
    let words = load(&missing, &[]).unwrap_err().to_string();
    assert!(words.contains("no.toml") && words.contains("No such file"), "{words}");
    let binary = folder.path().join("binary.toml");
    std::fs::write(&binary, b"[pool]\nname = \"\xff\"\n").unwrap();
    let words = load(&binary, &[]).unwrap_err().to_string();
    assert!(words.contains("binary.toml:2:9") && words.contains("UTF-8"), "{words}");
    let long = folder.path().join("long.toml");
    std::fs::write(&long, vec![b'#'; FILE_MAX_BYTES as usize + 1]).unwrap();
    assert!(matches!(load(&long, &[]), Err(SettingsError::TooLong { .. })));
    let file = folder.path().join("good.toml");
    std::fs::write(&file, GOOD).unwrap();
    assert_eq!(load(&file, &[]).unwrap().settings, good());
}
