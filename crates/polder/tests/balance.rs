//! What the settings say of stickiness, rates, slow start and ejections holds at the edges of a
//! whole pool, and `status` and `/metrics` tell of it.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::eventually;
use common::pool::{Pool, Recipe};
use polder::status::TrafficStatus;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One response, as text.
fn ask(edge: SocketAddr, host: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(edge).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn field<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = response.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn traffic(pool: &Pool, site: &str) -> TrafficStatus {
    let sites = pool.status().sites;
    sites.into_iter().find(|known| known.name == site).unwrap().traffic
}

/// The pool's metrics, as text.
fn metrics(pool: &Pool) -> String {
    let address = pool.status().pool.metrics.unwrap().parse().unwrap();
    let mut stream = TcpStream::connect::<SocketAddr>(address).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn settings_reach_the_edges_and_what_they_do_is_told() {
    let sticky = "nodes = 3\nhard = 2\nsticky = { cookie = \"SRV\", wait_ms = 500 }";
    let limited = "nodes = 1\nslow_start_ms = 3600000\n\
                   rate = { client_per_s = 1, client_burst = 5 }";
    let recipe = Recipe::new(&[("shop", sticky), ("blog", limited)], 4);
    let pool = recipe.agents(Duration::from_millis(1)).start();

    // A cookie that one edge set is known to the other, and the server stays the same.
    let first = ask(pool.edges[0], "shop.test", "");
    let cookie = field(&first, "set-cookie").unwrap_or_else(|| panic!("{first}"));
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax");
    let token = pair.strip_prefix("SRV=").unwrap();
    assert!(token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit()), "{token}");
    for turn in 0..20 {
        let response = ask(pool.edges[turn % 2], "shop.test", &format!("Cookie: {pair}\r\n"));
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
        assert_eq!(field(&response, "set-cookie"), None, "{response}");
    }

    // Its node moves to the other site, so that it has to take another server.
    for node in ["n1", "n2", "n3"] {
        pool.ask_move(node, "blog");
        let response = ask(pool.edges[1], "shop.test", &format!("Cookie: {pair}\r\n"));
        let set = field(&response, "set-cookie");
        pool.ask_move(node, "shop");
        if let Some(again) = set {
            assert!(!again.starts_with(pair), "{again}");
            break;
        }
        assert_ne!(node, "n3", "none of them was its server");
    }
    assert!(traffic(&pool, "shop").sticky_kept >= 20);
    assert!(traffic(&pool, "shop").sticky_anew >= 1);

    // The other site lets one client in five times at once.
    let answers: Vec<String> = (0..30).map(|_| ask(pool.edges[0], "blog.test", "")).collect();
    let refused = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 429")).count();
    assert!(answers[..5].iter().all(|answer| answer.starts_with("HTTP/1.1 200")), "{answers:?}");
    let last = answers.iter().rfind(|answer| answer.starts_with("HTTP/1.1 429")).unwrap();
    assert_eq!((field(last, "retry-after"), refused > 0), (Some("1"), true));
    eventually("refusals are counted", || traffic(&pool, "blog").client_limited == refused as u64);

    // A node that comes to it starts slowly; the others of the pool do not.
    let slow = traffic(&pool, "blog").slow;
    pool.ask_move("n1", "blog");
    eventually("a slow start is told", || traffic(&pool, "blog").slow == slow + 1);
    assert_eq!(traffic(&pool, "shop").slow, 0);
    let text = metrics(&pool);
    for line in [
        &format!("polder_site_client_limited_requests_total{{site=\"blog\"}} {refused}.0"),
        &format!("polder_site_slow_starting_servers{{site=\"blog\"}} {}.0", slow + 1),
        "polder_site_ejected_servers{site=\"shop\"} 0.0",
    ] {
        assert!(text.lines().any(|given| given == line), "{line}:\n{text}");
    }
    pool.finish();
}
