//! Rule 5 of the design: which requests are sent a second time, and which never are.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::dispatcher::Fixed;
use common::origin::{Conn, Origin};
use common::{edge, eventually, options};
use edge::{Edge, Options, Verdict};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads a request, then closes without a word.
fn breaking() -> Origin {
    Origin::new(|mut conn, _| {
        conn.request();
    })
}

fn post(body: &str) -> String {
    request("POST", body)
}

fn request(method: &str, body: &str) -> String {
    let length = body.len();
    format!("{method} / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n{body}")
}

/// Asks until the first server was asked first: turns go round.
fn ask_first(edge: &Edge, fixed: &Fixed, bytes: &str) -> (u16, Option<String>) {
    while fixed.next_turn() != 0 {
        fixed.skip_turn();
    }
    let reply = Client::new(edge.addresses()[0]).ask(bytes);
    (reply.status, reply.reason().map(str::to_owned))
}

#[test]
fn any_request_goes_elsewhere_when_there_was_no_connection() {
    let good = Origin::echo();
    let (edge, fixed) = edge(options(), &[Origin::refusing(), good.address]);
    for method in ["GET", "POST", "PATCH"] {
        let (status, _) = ask_first(&edge, &fixed, &request(method, "hello"));
        assert_eq!(status, 200, "{method}");
    }
    assert_eq!(good.seen().len(), 3);
    assert!(good.seen().iter().all(|seen| seen.body == b"hello"));
    let failed = fixed.verdicts().into_iter().filter(|v| *v == (0, Verdict::ConnectFailed));
    assert_eq!(failed.count(), 3);
    let counted = &edge.metrics().sites[0];
    assert_eq!((counted.retries, counted.connect_failures), (3, 3));
}

#[test]
fn a_large_upload_survives_a_dead_node_too() {
    let good = Origin::echo();
    let (edge, fixed) = edge(options(), &[Origin::refusing(), good.address]);
    let body = "x".repeat(2_000_000);
    assert_eq!(ask_first(&edge, &fixed, &post(&body)).0, 200);
    assert_eq!(good.seen()[0].body.len(), body.len());
}

#[test]
fn idempotent_requests_go_elsewhere_when_the_server_broke() {
    let (bad, good) = (breaking(), Origin::echo());
    let (edge, fixed) = edge(options(), &[bad.address, good.address]);
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"] {
        let asked = request(method, "").replace("Content-Length: 0\r\n", "");
        let mut client = Client::new(edge.addresses()[0]);
        while fixed.next_turn() != 0 {
            fixed.skip_turn();
        }
        client.send(asked);
        assert_eq!(client.head().unwrap().status, 200, "{method}");
    }
    assert_eq!((bad.seen().len(), good.seen().len()), (6, 6));
    assert_eq!(ask_first(&edge, &fixed, &request("PUT", "hello")).0, 200);
    assert_eq!((&bad.seen()[6].body[..], &good.seen()[6].body[..]), (&b"hello"[..], &b"hello"[..]));
    let broke = fixed.verdicts().into_iter().filter(|v| *v == (0, Verdict::Broke)).count();
    assert_eq!(broke, 7);
    eventually("permits are back", || fixed.in_flight() == 0);
}

#[test]
fn other_requests_are_never_sent_twice() {
    let (bad, good) = (breaking(), Origin::echo());
    let (edge, fixed) = edge(options(), &[bad.address, good.address]);
    for method in ["POST", "PATCH", "BREW", "get"] {
        let (status, reason) = ask_first(&edge, &fixed, &request(method, "hello"));
        assert_eq!((status, reason.as_deref()), (502, Some("server-broke")), "{method}");
    }
    // Idempotent, but longer than what is kept.
    let long = "x".repeat(options().retry_body_max_bytes + 1);
    assert_eq!(ask_first(&edge, &fixed, &request("PUT", &long)).0, 502);
    assert_eq!((bad.seen().len(), good.seen().len()), (5, 0));
    let kept = "x".repeat(options().retry_body_max_bytes);
    assert_eq!(ask_first(&edge, &fixed, &request("PUT", &kept)).0, 200);
}

#[test]
fn chunked_bodies_are_kept_up_to_the_limit() {
    let (bad, good) = (breaking(), Origin::echo());
    let (edge, fixed) = edge(options(), &[bad.address, good.address]);
    let chunked = |count: usize| {
        let head = "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1_000));
        format!("{head}{}0\r\n\r\n", chunk.repeat(count))
    };
    assert_eq!(ask_first(&edge, &fixed, &chunked(20)).0, 200);
    assert_eq!(good.seen()[0].body.len(), 20_000);
    assert_eq!(ask_first(&edge, &fixed, &chunked(100)).0, 502);
    assert_eq!((bad.seen().len(), good.seen().len()), (2, 1));
}

#[test]
fn attempts_are_bounded() {
    let bad: Vec<_> = (0..5).map(|_| breaking()).collect();
    let addresses: Vec<_> = bad.iter().map(|origin| origin.address).collect();
    for retries_max in [0, 1, 3] {
        let (edge, fixed) = edge(Options { retries_max, ..options() }, &addresses);
        let before: usize = bad.iter().map(|origin| origin.seen().len()).sum();
        let reply = Client::new(edge.addresses()[0]).get("/");
        assert_eq!((reply.status, reply.reason()), (502, Some("server-broke")));
        let after: usize = bad.iter().map(|origin| origin.seen().len()).sum();
        assert_eq!(after - before, retries_max + 1);
        let mut nodes: Vec<_> = fixed.verdicts().into_iter().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), retries_max + 1, "each attempt went to another node");
    }
}

#[test]
fn a_slow_server_is_left_for_another_only_by_idempotent_requests() {
    let slow = Origin::new(|mut conn, _| {
        conn.request();
        conn.wait_closed();
    });
    let good = Origin::echo();
    // The good server needs less on the busiest machine.
    let limits = Options { response_header_timeout_ms: 2_000, ..options() };
    let (edge, fixed) = edge(limits, &[slow.address, good.address]);
    assert_eq!(ask_first(&edge, &fixed, &request("PUT", "a")).0, 200);
    let (status, reason) = ask_first(&edge, &fixed, &post("a"));
    assert_eq!((status, reason.as_deref()), (504, Some("server-timeout")));
    assert_eq!((slow.seen().len(), good.seen().len()), (2, 1));
    assert_eq!(fixed.verdicts().iter().filter(|v| v.1 == Verdict::TimedOut).count(), 2);
}

/// Serves this many requests on each connection, then reads one more and closes.
fn closing_after(served: usize, close: fn(Conn)) -> Origin {
    Origin::new(move |mut conn, _| {
        for _ in 0..served {
            if conn.request().is_none() {
                return;
            }
            conn.answer("200 OK", b"");
        }
        if conn.request().is_some() {
            close(conn);
        }
    })
}

/// The server closed a kept connection just as the next request went over it. That says nothing
/// about its health, and the request may go to the same server once more.
#[test]
fn a_stale_connection_is_replaced_by_a_fresh_one() {
    for close in [drop as fn(Conn), Conn::reset] {
        let origin = closing_after(1, close);
        let (edge, fixed) = edge(Options { retries_max: 0, ..options() }, &[origin.address]);
        let mut client = Client::new(edge.addresses()[0]);
        for number in 0..10 {
            assert_eq!(client.ask(request("PUT", "hello")).status, 200, "request {number}");
        }
        assert_eq!(fixed.verdicts(), vec![(0, Verdict::Answered); 10]);
        // One that is not idempotent may have had its effect.
        let (edge, fixed) = common::edge(options(), &[origin.address]);
        let mut client = Client::new(edge.addresses()[0]);
        assert_eq!(client.ask(post("a")).status, 200);
        let reply = client.ask(post("b"));
        assert_eq!((reply.status, reply.reason()), (502, Some("server-broke")));
        assert_eq!(fixed.verdicts(), [(0, Verdict::Answered)], "nor is the server to blame");
        assert_eq!(origin.seen().iter().filter(|seen| seen.body == b"b").count(), 1);
    }
}

/// Connections that the server closed while they were idle are noticed before they are used: even
/// requests that may not be repeated succeed.
#[test]
fn idle_connections_that_were_closed_are_not_used() {
    let origin = Origin::echo();
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..8 {
        assert_eq!(client.ask(post("a")).status, 200);
        origin.close_connections();
        // The edge needs a moment to hear of it, as any proxy does.
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(origin.connections(), 8);
}

/// A node that dies under load: every request that may survive does.
#[test]
fn all_idempotent_requests_survive_the_loss_of_a_node() {
    let origins: Vec<_> = (0..3).map(|_| Origin::echo()).collect();
    let addresses: Vec<_> = origins.iter().map(|origin| origin.address).collect();
    let (edge, _) = edge(Options { threads: 2, ..options() }, &addresses);
    let address = edge.addresses()[0];
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = Client::new(address);
                for _ in 0..300 {
                    let reply = client.ask(request("PUT", "hello"));
                    assert_eq!((reply.status, reply.text()), (200, "hello".to_owned()));
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut origins = origins.into_iter();
        for share in [400, 1_200] {
            eventually("it is time", || answered.load(Ordering::SeqCst) >= share);
            drop(origins.next());
        }
        eventually("all are answered", || answered.load(Ordering::SeqCst) == 2_400);
    });
    assert!(edge.metrics().sites[0].retries > 0, "the losses were felt");
}
