//! Clients that are slow, leave, or send too much.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, End};
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Options, Reason};
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn half_a_head_is_given_up() {
    let limits = Options { header_timeout_ms: 200, keep_alive_idle_ms: 60_000, ..options() };
    let origin = Origin::echo();
    let (edge, _) = edge(limits, &[origin.address]);
    for already_served in [false, true] {
        let mut client = Client::new(edge.addresses()[0]);
        if already_served {
            assert_eq!(client.get("/").status, 200);
        }
        let start = Instant::now();
        client.send("GET / HTTP/1.1\r\nHost: a.exa");
        // Trickling on does not help.
        let mut trickle = client.stream.try_clone().unwrap();
        let trickling = std::thread::spawn(move || {
            while trickle.write_all(b"x").is_ok() && start.elapsed() < common::PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let reply = client.reply().unwrap();
        assert_eq!((reply.status, reply.field("connection")), (408, Some("close")));
        assert!(start.elapsed() >= Duration::from_millis(190));
        drop(client);
        trickling.join().unwrap();
    }
    // So is one that says nothing at all.
    let mut silent = Client::new(edge.addresses()[0]);
    assert_eq!(silent.reply().unwrap().status, 408);
    eventually("all connections are closed", || edge.metrics().connections_open == 0);
}

#[test]
fn idle_connections_are_closed_without_a_word() {
    let limits = Options { header_timeout_ms: 60_000, keep_alive_idle_ms: 500, ..options() };
    let origin = Origin::echo();
    let (edge, _) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..4 {
        assert_eq!(client.get("/").status, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    let start = Instant::now();
    assert_eq!(client.until_end(), (Vec::new(), End::Closed));
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// A request that waits for its server is not idle, however long it takes.
#[test]
fn a_slow_server_is_not_the_clients_fault() {
    let origin = Origin::serving(|conn, _| {
        std::thread::sleep(Duration::from_millis(900));
        conn.answer("200 OK", b"slow");
    });
    let limits = Options { header_timeout_ms: 300, keep_alive_idle_ms: 300, ..options() };
    let (edge, _) = edge(limits, &[origin.address]);
    assert_eq!(Client::new(edge.addresses()[0]).get("/").text(), "slow");
}

#[test]
fn a_body_that_stops_is_given_up() {
    let origin = Origin::echo();
    let limits = Options { body_idle_timeout_ms: 150, ..options() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    for framing in
        ["Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf"]
    {
        let mut client = Client::new(edge.addresses()[0]);
        let reply = client.ask(format!("PUT / HTTP/1.1\r\nHost: a.example\r\n{framing}"));
        assert_eq!((reply.status, reply.reason()), (408, Some("client-timeout")));
        assert!(client.reply().is_none());
    }
    eventually("permits are back", || fixed.in_flight() == 0);
    assert_eq!(fixed.verdicts(), [], "the server is not to blame");
    assert_eq!(origin.seen().len(), 0, "the server saw no whole request");
    assert_eq!(edge.metrics().sites[0].refused(Reason::ClientTimeout), 2);
}

#[test]
fn a_body_that_trickles_comes_through() {
    let origin = Origin::echo();
    let limits =
        Options { body_idle_timeout_ms: 5_000, response_header_timeout_ms: 300, ..options() };
    let (edge, _) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\n");
    for byte in b"hello" {
        std::thread::sleep(Duration::from_millis(100));
        client.send([*byte]);
    }
    assert_eq!(client.reply().unwrap().text(), "hello");
}

#[test]
fn bodies_beyond_the_limit_are_refused() {
    let origin = Origin::echo();
    let mut limits = options();
    limits.sites[0].body_bytes_max = 10_000;
    let (edge, fixed) = edge(limits, &[origin.address]);
    let mut sized = Client::new(edge.addresses()[0]);
    let head = "PUT / HTTP/1.1\r\nHost: a.example\r\n";
    let reply = sized.ask(format!("{head}Content-Length: 10001\r\n\r\n{}", "x".repeat(10_001)));
    assert_eq!((reply.status, reply.reason()), (413, Some("body-too-large")));
    assert!(sized.reply().is_none());
    assert_eq!(fixed.verdicts(), [], "it never went to a server");
    let mut chunked = Client::new(edge.addresses()[0]);
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1_000));
    let chunks = chunk.repeat(11);
    let reply = chunked.ask(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n"));
    assert_eq!((reply.status, reply.reason()), (413, Some("body-too-large")));
    let mut fitting = Client::new(edge.addresses()[0]);
    let reply = fitting.ask(format!("{head}Content-Length: 10000\r\n\r\n{}", "x".repeat(10_000)));
    assert_eq!(reply.body.len(), 10_000);
    assert_eq!(origin.seen().len(), 1);
    eventually("permits are back", || fixed.in_flight() == 0);
}

/// The refusal arrives although the client has sent a lot that nobody reads: a close with unread
/// bytes would be a reset, which may destroy the answer on its way.
#[test]
fn a_refusal_outlives_what_the_client_still_sends() {
    let (edge, _) = edge(options(), &[]);
    for _ in 0..20 {
        let mut client = Client::new(edge.addresses()[0]);
        let head = "PUT / HTTP/1.1\r\nHost: b.example\r\nContent-Length: 500000\r\n\r\n";
        client.send([head.as_bytes(), &vec![b'x'; 500_000]].concat());
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(client.reply().unwrap().status, 421);
        assert_eq!(client.until_end().1, End::Closed);
    }
}

#[test]
fn a_client_that_leaves_frees_its_server() {
    let origin = Origin::serving(|conn, seen| {
        if seen.line().contains("/body") {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        }
        conn.wait_closed();
        conn.saw("GET /closed HTTP/1.1\r\n\r\n");
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    for (number, path) in ["/head", "/body"].into_iter().enumerate() {
        let mut client = Client::new(edge.addresses()[0]);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        eventually("it is at the server", || origin.seen().len() == 2 * number + 1);
        if path == "/body" {
            client.head().unwrap();
        }
        assert_eq!(fixed.in_flight(), 1);
        drop(client);
        eventually("the permit is back", || fixed.in_flight() == 0);
        eventually("the server's connection is closed", || origin.seen().len() == 2 * number + 2);
    }
    let counted = edge.metrics().sites[0].clone();
    assert_eq!((counted.requests[0], counted.requests[2]), (1, 1), "one left before its status");
}

#[test]
fn a_client_that_leaves_within_its_body_never_completes_it() {
    let origin = Origin::echo();
    let (edge, fixed) = edge(options(), &[origin.address]);
    for framing in
        ["Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"]
    {
        for reset in [false, true] {
            let mut client = Client::new(edge.addresses()[0]);
            client.send(format!("POST / HTTP/1.1\r\nHost: a.example\r\n{framing}"));
            eventually("it is at the server", || fixed.in_flight() == 1);
            if reset {
                client.reset();
            } else {
                drop(client);
            }
            eventually("the permit is back", || fixed.in_flight() == 0);
        }
    }
    assert_eq!((origin.seen().len(), fixed.verdicts().len()), (0, 0));
}

#[test]
fn a_client_that_stops_reading_is_cut_off() {
    let origin = Origin::serving(|conn, _| {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
        conn.send(vec![b'x'; 100_000_000]);
    });
    let limits = Options { body_idle_timeout_ms: 200, ..options() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    client.head().unwrap();
    eventually("the permit is back", || fixed.in_flight() == 0);
    eventually("the connection is closed", || edge.metrics().connections_open == 0);
}

#[test]
fn a_server_that_stops_reading_is_cut_off() {
    let origin = Origin::new(|mut conn, _| {
        conn.head();
        std::thread::sleep(Duration::from_secs(2));
    });
    let limits = Options { body_idle_timeout_ms: 200, ..options() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000000\r\n\r\n");
    let mut upload = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let piece = vec![b'x'; 1_000_000];
        (0..100).take_while(|_| upload.write_all(&piece).is_ok()).count()
    });
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.reason()), (502, Some("server-broke")));
    assert!(sending.join().unwrap() < 100);
    eventually("the permit is back", || fixed.in_flight() == 0);
}

/// After a moment of silence the edge keeps no more of a connection than its socket.
#[test]
fn a_client_that_comes_back_after_a_while_is_served_as_before() {
    let origin = Origin::echo();
    let limits = Options { keep_alive_idle_ms: 3_000, ..options() };
    let (edge, _) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for pause in [Duration::ZERO, Duration::from_millis(1_500), Duration::from_millis(1_200)] {
        std::thread::sleep(pause);
        let body = "x".repeat(100_000);
        let head = format!("PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {}", body.len());
        assert_eq!(client.ask(format!("{head}\r\n\r\n{body}")).text(), body);
    }
    // The beginning of a request that came with the one before is part of the next.
    client.send("GET /one HTTP/1.1\r\nHost: a.example\r\n\r\nGET /two HT");
    assert_eq!(client.reply().unwrap().status, 200);
    std::thread::sleep(Duration::from_millis(1_500));
    client.send("TP/1.1\r\nHost: a.example\r\n\r\n");
    assert_eq!(client.reply().unwrap().status, 200);
    assert_eq!(origin.seen().last().unwrap().line(), "GET /two HTTP/1.1");
    let start = Instant::now();
    assert_eq!(client.until_end(), (Vec::new(), End::Closed));
    assert!(start.elapsed() >= Duration::from_millis(2_500), "it may wait as long as before");
    // One that leaves meanwhile is noticed.
    let mut leaver = Client::new(edge.addresses()[0]);
    assert_eq!(leaver.get("/").status, 200);
    std::thread::sleep(Duration::from_millis(1_500));
    drop(leaver);
    eventually("it is gone", || edge.metrics().connections_open == 0);
}
