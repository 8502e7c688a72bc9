//! The conformance suite for HTTP/2, h2spec, without and with TLS. It is no Debian package: the
//! test runs where `h2spec` is on PATH, or where `$H2SPEC` names it, and else says that it did not.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::dispatcher::Fixed;
use common::options;
use common::origin::Origin;
use common::tls::Authority;
use edge::{Edge, Options};
use std::net::SocketAddr;
use std::process::Command;

/// What h2spec waits for an answer, in seconds; it waits in vain where none must come.
const TIMEOUT_SECONDS: &str = "3";

/// The case that an address fails where HTTP/1.1 is served too: what is no preface is a request
/// there, and is told so by an answer before the connection ends.
const NO_PREFACE: &str = "2: Sends invalid connection preface";

/// Runs h2spec, whose only failures may be these. False where there is no h2spec.
fn h2spec(address: SocketAddr, arguments: &[&str], allowed: &[&str]) -> bool {
    let program = std::env::var_os("H2SPEC").unwrap_or_else(|| "h2spec".into());
    let output = Command::new(program)
        .args(["--host", &address.ip().to_string(), "--port", &address.port().to_string()])
        .args(["--timeout", TIMEOUT_SECONDS])
        .args(arguments)
        .output();
    match output {
        Ok(output) => {
            let report = String::from_utf8_lossy(&output.stdout).into_owned();
            let sum = report.lines().rfind(|line| line.contains("passed"));
            let sum = sum.unwrap_or_else(|| panic!("no sum in {report}")).trim().to_owned();
            println!("h2spec {}: {sum}", arguments.join(" "));
            // Failed cases stand once more in a list at the end.
            let failures = report.split("Failures:").nth(1).unwrap_or_default();
            let failed: Vec<_> =
                failures.lines().filter_map(|line| line.trim().strip_prefix("× ")).collect();
            assert_eq!(failed, allowed, "{report}");
            assert!(sum.contains(&format!(" {} failed", allowed.len())), "{report}");
            true
        }
        Err(error) => {
            println!("skipped: no h2spec on PATH nor in $H2SPEC ({error})");
            false
        }
    }
}

#[test]
fn the_edge_conforms() {
    let authority = Authority::new("ca");
    let pair = authority.certify("one", &["a.example"]);
    let origin = Origin::serving(|conn, _| conn.answer("200 OK", &[b'x'; 2_000]));
    let mut sites = options().sites;
    sites[0].tls = Some(pair.site());
    let default_site = Some(sites[0].id);
    let tls_listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let front = Options { sites, default_site, tls_listen, http2_plain: true, ..options() };
    let edge = Edge::start(front, &Fixed::new(&[origin.address], 64)).unwrap();
    if h2spec(edge.addresses()[0], &["--strict"], &[NO_PREFACE]) {
        h2spec(edge.tls_addresses()[0], &["--strict", "--tls", "--insecure"], &[]);
    }
}
