//! Settings: what holds across keys and tables.

use super::tests::{GOOD, one_problem, wrong};
use super::*;

#[test]
fn times_and_loads_fit_each_other() {
    one_problem("hold_ms = 5", "hold_ms = 5\nlook_every_ms = 9", "5", "", "9 or more");
    one_problem("hold_ms = 5", "light_load = 1.0", "1.0", "not below `high_load`", "to and fro");
    one_problem("hold_ms = 5", "slot_lease_ms = 99", "99", "less than twice", "100 or more");
}

#[test]
fn names_hosts_and_listeners_are_unique() {
    one_problem("name = \"blog\"", "name = \"shop\"", "\"shop\"", "two sites `shop`", "");
    let hosts = "hosts = [\"a\", \"SHOP.localhost\"]";
    one_problem("hosts = [\"blog.localhost\"]", hosts, "\"SHOP", "already means site `shop`", "");
    let two = "count = 4\n[[nodes]]\nname = \"n3\"";
    one_problem("count = 4", two, "\"n3\"", "two nodes `n3`", "adds a number");
    let twice = "127.0.0.1:8080\",\n\"127.0.0.1:8080";
    one_problem("127.0.0.1:8080", twice, "\"127.0.0.1:8080\"]", "listens on", "remove one");
    // Two edges may share an address, and port 0 is never taken.
    let two = "[\"127.0.0.1:0\", \"127.0.0.1:0\"]\n[[edges]]\nlisten = [\"127.0.0.1:0\"]";
    assert_eq!(wrong(&GOOD.replace("[\"127.0.0.1:8080\"]", two)), Vec::<String>::new());
}

#[test]
fn guarantees_fit_the_pool() {
    one_problem("max = 4", "max = 2\nhard = 3", "3", "`hard` 3 above `max` 2", "at most 2");
    one_problem("nodes = 2", "nodes = 0", "0", "starts with 0 nodes", "allow 1 to 4");
    let blog = "name = \"blog\"\n";
    let with = |line: &str| format!("{blog}{line}\n");
    one_problem(blog, &with("hard = 4"), "4", "`hard` sums up to 5", "there are 4 nodes");
    one_problem(blog, &with("nodes = 3"), "3", "start with 5 nodes", "there are 4 nodes");
}

#[test]
fn what_is_odd_gives_a_warning_and_settings() {
    let text = GOOD.replace("hold_ms = 5", "policy = \"rigid\"");
    let warnings = parse("x", &text, &[]).unwrap().warnings;
    assert_eq!(warnings.0.len(), 1);
    assert_eq!(warnings.0[0].severity, Severity::Warning);
    assert!(warnings.0[0].message.contains("1 of 4 nodes start free"), "{warnings}");
    let text = GOOD.replace("nodes = 2", "nodes = 1").replace("count = 4", "count = 2");
    let warnings = parse("x", &text, &[]).unwrap().warnings;
    assert!(warnings.0[0].message.contains("bind every node"), "{warnings}");
    let text = GOOD.replace("\"{port}\"", "\"now\"");
    let warnings = parse("x", &text, &[]).unwrap().warnings;
    assert!(warnings.0[0].message.contains("site `blog` does not mention `{port}`"), "{warnings}");
}

/// The good file's nodes replaced by two with addresses.
fn with_addresses(first: &str, second: &str) -> String {
    let nodes = "[[nodes]]\nname = \"n\"\ncount = 4\n";
    let new = format!(
        "[[nodes]]\nname = \"a\"\nservers = {{ shop = \"10.0.0.1:1\", blog = \"10.0.0.1:2\" }}\n\
         [[nodes]]\n{first}\nname = \"b\"\nservers = {{ {second} }}\n"
    );
    GOOD.replace(nodes, &new).replace("nodes = 2\n", "")
}

#[test]
fn servers_may_be_addresses() {
    let text = with_addresses("", "blog = \"10.0.0.2:2\", shop = \"10.0.0.2:1\"");
    let settings = parse("x", &text, &[]).unwrap().settings;
    let addresses = ["10.0.0.2:1", "10.0.0.2:2"].map(|address| address.parse().unwrap());
    // In the order of the sites, whatever the order in the file.
    assert_eq!(settings.nodes[1].servers, Servers::Addresses(addresses.to_vec()));
}

#[test]
fn addresses_of_servers_are_checked() {
    let both = "shop = \"10.0.0.2:1\", blog = \"10.0.0.2:2\"";
    let cases = [
        ("", "shop = \"10.0.0.2:1\"", "no address for `blog`", "one server for each"),
        ("count = 2", both, "both `servers` and `count`", "`[[nodes]]` for each"),
        ("host = \"127.0.0.1\"", both, "both `host` and `servers`", "remove `host`"),
        ("", "shop = \"10.0.0.2:0\", blog = \"10.0.0.2:2\"", "nobody can connect", "own address"),
        ("", "shop = \"[::1]:1\", blog = \"10.0.0.2:2\"", "IPv6", "for now"),
        ("", "shop = 1, blog = \"10.0.0.2:2\"", "is no string", "IP:PORT"),
        ("", "shop = \"10.0.0.1:2\", blog = \"10.0.0.2:2\"", "another node already", "twice"),
        ("", "shop = \"127.0.0.1:8080\", blog = \"10.0.0.2:2\"", "an edge listens", "own address"),
    ];
    for (first, second, message, help) in cases {
        let problems = wrong(&with_addresses(first, second));
        let found = problems.iter().any(|p| p.contains(message) && p.contains(help));
        assert!(found, "{message}: {problems:?}");
    }
    let text = with_addresses("", "shop = \"127.0.0.2:8080\", blog = \"10.0.0.2:2\"");
    assert!(parse("x", &text, &[]).is_ok(), "another address is another server");
    let problems = wrong(&text.replace("127.0.0.1:8080", "0.0.0.0:8080"));
    assert!(problems[0].contains("an edge listens on 127.0.0.2:8080 itself"), "{problems:?}");
    let text = with_addresses("", &format!("{both}, blogg = \"10.0.0.2:3\""));
    let [problem] = &wrong(&text)[..] else { panic!("one of {:#?}", wrong(&text)) };
    assert!(problem.contains("no site `blogg` [did you mean `blog`?]"), "{problem}");
}

#[test]
fn a_default_site_exists() {
    let text = format!("http.default_site = \"shpo\"\n{GOOD}");
    assert_eq!(wrong(&text), ["1:21 no site `shpo` [did you mean `shop`?]"]);
}

#[test]
fn there_are_limits_to_everything() {
    let many = |what: &str, rest: &dyn Fn(usize) -> String, count: usize| -> String {
        (0..count).map(|number| format!("[[{what}]]\n{}\n", rest(number))).collect()
    };
    let edges = many("edges", &|_| "listen = [\"127.0.0.1:0\"]".into(), 64);
    let problems = wrong(&format!("{GOOD}{edges}"));
    assert!(problems.iter().any(|p| p.contains("more than 64 edges")), "{problems:?}");
    let site = |n| format!("name = \"s{n}\"\nhosts = [\"s{n}\"]\nhard = 0\ncommand = [\"PORT\"]");
    let sites = many("sites", &site, 1_022);
    let problems = wrong(&format!("{GOOD}{sites}"));
    assert!(problems.iter().any(|p| p.contains("more than 1023 sites")), "{problems:?}");
    assert!(parse("x", &format!("{GOOD}{}", many("sites", &site, 1_021)), &[]).is_ok());
    let nodes = "[[nodes]]\nname = \"m\"\ncount = 16_379\n";
    let problems = wrong(&format!("{GOOD}{nodes}"));
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("more than 16382 nodes"), "{problems:?}");
    assert!(parse("x", &format!("{GOOD}{}", nodes.replace("379", "378")), &[]).is_ok());
}
