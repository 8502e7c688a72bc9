//! The PROXY protocol through two pools: the first one is told of the client and tells its
//! servers, which are the edges of the second one.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::eventually;
use common::pool::{PROGRAM, Pool, Recipe};
use std::io::Write as _;
use std::path::Path;

/// A pool of one edge, whose clients must say for whom they come; with more of `--set`.
fn behind_a_proxy(mut recipe: Recipe, set: &[String], log: &Path) -> Pool {
    recipe.edges = 1;
    recipe.http = format!("[access_log]\npath = \"{}\"\nformat = \"json\"", log.display());
    let proxies = "edges.0.proxy_protocol=[\"127.0.0.0/8\"]".to_owned();
    let set = std::iter::once(&proxies).chain(set);
    let set = set.flat_map(|set| ["--set".to_owned(), set.clone()]);
    let up = [PROGRAM, "up"].map(str::to_owned).into_iter();
    recipe.command = Some(up.chain(set).collect());
    recipe.start()
}

fn ask(front: &Pool, header: &str, path: &str) -> u16 {
    let mut connection = Connection::open(front.edges[0]).unwrap();
    connection.stream().write_all(header.as_bytes()).unwrap();
    connection.request("GET", "red.test", path).unwrap().status
}

#[test]
fn the_client_is_known_behind_two_pools() {
    let logs = tempfile::tempdir().unwrap();
    let (log_of_front, log_of_back) = (logs.path().join("front"), logs.path().join("back"));
    let back = behind_a_proxy(Recipe::new(&[("red", "")], 1), &[], &log_of_back);
    for version in ["v1", "v2"] {
        let server = format!("nodes.n1.servers.red=\"{}\"", back.edges[0]);
        let out = format!("sites.red.proxy_protocol_out={version}");
        let recipe = Recipe::new(&[("red", "")], 1);
        let front = behind_a_proxy(recipe, &[server, out], &log_of_front);
        let clients = [
            ("PROXY TCP4 192.0.2.7 10.0.0.1 40000 80\r\n", "192.0.2.7"),
            ("PROXY TCP6 2001:db8::7 ::1 40001 80\r\n", "2001:db8::7"),
            ("PROXY UNKNOWN\r\n", "127.0.0.1"),
        ];
        for (number, (header, client)) in clients.into_iter().enumerate() {
            let path = format!("/{version}/{number}");
            assert_eq!(ask(&front, header, &path), 200, "{header}");
            for log in [&log_of_front, &log_of_back] {
                eventually("the line is there", || {
                    let text = std::fs::read_to_string(log).unwrap_or_default();
                    let Some(line) = text.lines().find(|line| line.contains(&path)) else {
                        return false;
                    };
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    assert_eq!(line["client"], client, "{line}");
                    true
                });
            }
        }
        // Without a header nobody is served, and it is told.
        let refused = front.edge(0).proxy_headers_refused;
        let mut silent = Connection::open(front.edges[0]).unwrap();
        silent.request("GET", "red.test", "/").unwrap_err();
        eventually("it is counted", || front.edge(0).proxy_headers_refused == refused + 1);
        front.finish();
    }
    back.finish();
}
