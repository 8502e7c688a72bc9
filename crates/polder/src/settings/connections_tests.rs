//! Settings of connections: the PROXY protocol, the access log, ids and traces.

use super::tests::{GOOD, good, one_problem};
use super::*;
use edge::{LogFormat, LogTarget, ProxyVersion, Upstream};

/// The good file with these lines in some of its tables.
fn with(http: &str, edge: &str, site: &str, log: &str) -> Settings {
    let text = GOOD
        .replacen(
            "[[edges]]",
            &format!("[http]\n{http}\n[access_log]\n{log}\n[[edges]]\n{edge}"),
            1,
        )
        .replacen("[[sites]]", &format!("[[sites]]\n{site}"), 1);
    parse("x", &text, &[]).unwrap_or_else(|problems| panic!("{problems}\n{text}")).settings
}

#[test]
fn what_is_said_is_read_and_shown_again() {
    let settings = with(
        "upstream = \"hyper\"\nrequest_id = false\ntrace = false\nupgrades = false\n\
         upgraded_max = 7\nupgrade_idle_ms = 8",
        "proxy_protocol = [\"10.0.0.0/8\", \"::1\"]",
        "proxy_protocol_out = \"v2\"",
        "path = \"/var/log/polder.log\"\nformat = \"json\"\nqueue_max = 7",
    );
    let (http, log) = (&settings.http, &settings.access_log);
    assert_eq!((http.upstream, http.request_id, http.trace), (Upstream::Hyper, false, false));
    assert_eq!((http.upgrades, http.upgraded_max, http.upgrade_idle_ms), (false, 7, 8));
    let networks: Vec<_> =
        settings.edges[0].proxy_protocol.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "::1/128"]);
    let told: Vec<_> = settings.sites.iter().map(|site| site.proxy_protocol_out).collect();
    assert_eq!(told, [Some(ProxyVersion::V2), None]);
    let file = LogTarget::File("/var/log/polder.log".into());
    assert_eq!((log.target.as_ref(), log.format, log.queue_max), (Some(&file), LogFormat::Json, 7));
    let again = parse("x", &settings.to_toml(), &[]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again.settings, settings);
    let stdout = with("", "", "", "path = \"-\"");
    assert_eq!(stdout.access_log.target, Some(LogTarget::Stdout));
}

#[test]
fn nothing_is_logged_or_announced_unless_it_is_said() {
    let settings = good();
    assert_eq!((settings.http.upstream, settings.access_log.target), (Upstream::Own, None));
    assert!(settings.http.request_id && settings.http.trace && settings.http.upgrades);
    assert!(settings.edges[0].proxy_protocol.is_empty());
}

#[test]
fn mistakes_are_named() {
    let edges = "[[edges]]";
    let given = |list: &str| format!("[[edges]]\nproxy_protocol = [{list}]");
    one_problem(edges, &given("\"10.0.0.1/8\""), "\"10.", "not a network", "`10.0.0.0/8`");
    one_problem(edges, &given("\"lan\""), "\"lan", "not a network", "one address");
    let log = "[access_log]\npath = \"access.log\"\n[[edges]]";
    one_problem(edges, log, "\"access.log", "not an absolute path", "`-` for standard output");
    one_problem(edges, "[http]\nupstream = \"ours\"\n[[edges]]", "\"ours", "not known", "own");
}
