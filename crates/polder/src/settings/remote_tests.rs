//! Settings of roles on several machines.

use super::{Servers, parse};
use remote_memory::tcp::Security;

const SITES: &str = "[[sites]]\nname = \"shop\"\nhosts = [\"shop.test\"]\ncommand = [\"x\"]\n";

/// A pool of nodes n0, n1, ... with these lines each, and these lines in `[pool]` and `[remote]`.
fn text(pool: &str, remote: &str, nodes: &[&str]) -> String {
    let node =
        |(index, lines): (usize, &&str)| format!("[[nodes]]\nname = \"n{index}\"\n{lines}\n");
    let nodes: String = nodes.iter().enumerate().map(node).collect();
    format!("[pool]\n{pool}\n[remote]\n{remote}\n{SITES}{nodes}")
}

const KEY: &str = "key_file = \"/etc/polder/pool.key\"";
const TWO: [&str; 2] = ["address = \"10.0.0.5:7100\"", "address = \"10.0.0.6:7100\""];

#[test]
fn nodes_have_addresses_and_servers_listen_there() {
    let settings = parse("x", &text("", KEY, &TWO), &[]).unwrap().settings;
    let address = settings.nodes[1].address.unwrap();
    assert_eq!(address.to_string(), "10.0.0.6:7100");
    let Servers::Agent { host } = settings.nodes[1].servers else { panic!("an agent's") };
    assert_eq!(host.to_string(), "10.0.0.6");
    assert_eq!(settings.home().unwrap().get(), 0, "the first one");
    assert!(settings.remote.realtime && !settings.remote.plain_on_loopback);
    let other = parse("x", &text("home = \"n1\"", KEY, &TWO), &[]).unwrap().settings;
    assert_eq!(other.home().unwrap().get(), 1);
    assert_ne!(other.pool_hash(), settings.pool_hash(), "edges must agree on the home");
    let shown = parse("x", &other.to_toml(), &[]).unwrap().settings;
    assert_eq!(shown, other);
}

#[test]
fn plain_text_is_for_loopback_addresses_that_are_set_so() {
    let nodes = ["address = \"127.0.0.1:7100\"", "address = \"127.0.0.2:7100\""];
    assert!(parse("x", &text("", "", &nodes), &[]).is_err());
    let plain = text("", "plain_on_loopback = true", &nodes);
    let settings = parse("x", &plain, &[]).unwrap().settings;
    let address = settings.nodes[0].address.unwrap();
    assert!(matches!(settings.remote.security(address), Ok(Security::PlainLoopback)));
    let far = "10.0.0.5:1".parse().unwrap();
    assert!(settings.remote.security(far).is_err(), "no key, no way");
    assert!(parse("x", &text("", "plain_on_loopback = true", &TWO), &[]).is_err());
}

#[test]
fn what_cannot_work_is_said() {
    let v6 = "address = \"[2001:db8::1]:7100\"";
    let cases = [
        (text("", "", &TWO), "there is no `key_file`, and 10.0.0.5:7100 must be protected"),
        (text("", KEY, &[TWO[0], ""]), "node `n1` has no `address`, others have"),
        (text("", KEY, &[TWO[0], TWO[0]]), "is the address of node `n0` already"),
        (text("", KEY, &["address = \"0.0.0.0:7100\""]), "no edge can connect to 0.0.0.0:7100"),
        (text("", KEY, &["address = \"10.0.0.5:0\""]), "no edge can connect"),
        (text("", KEY, &["address = \"10.0.0.5\""]), "is not an address"),
        (text("", KEY, &[v6]), "has an IPv6 address and no `host`"),
        (text("", KEY, &["address = \"10.0.0.5:1\"\ncount = 2"]), "both `address` and `count`"),
        (text("", KEY, &["host = \"10.0.0.5\""]), "can be reached from other machines"),
        (text("", "key_file = \"pool.key\"", &TWO), "`key_file` is not an absolute path"),
        (text("home = \"n7\"", KEY, &TWO), "no node `n7`"),
        (text("home = \"n0\"", "", &["", ""]), "the home, has no `address`"),
        (text("", &format!("{KEY}\ndeadline_ms = 26"), &TWO), "`slot_lease_ms` only 100"),
    ];
    for (text, message) in cases {
        let problems = parse("x", &text, &[]).unwrap_err();
        let found = problems.0.iter().any(|problem| problem.to_string().contains(message));
        assert!(found, "{message}: {problems}\n{text}");
    }
    let host = format!("{v6}\nhost = \"10.0.0.5\"");
    assert!(parse("x", &text("", KEY, &[host.as_str()]), &[]).is_ok());
}
