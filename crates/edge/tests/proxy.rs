//! The plain life of requests: bodies both ways, heads, sites, queues, drain.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, End};
use common::dispatcher::Fixed;
use common::origin::Origin;
use common::{edge, eventually, options, site};
use edge::{Edge, ForwardedTrust, Options, Reason, SiteOptions, StartError, Verdict};
use pool_model::SiteId;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn a_get_is_answered_over_connections_that_are_kept() {
    let origin = Origin::serving(|conn, seen| conn.answer("200 OK", seen.line().as_bytes()));
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for number in 0..50 {
        let reply = client.get(&format!("/{number}?q"));
        assert_eq!((reply.status, reply.text()), (200, format!("GET /{number}?q HTTP/1.1")));
        assert!(reply.field("date").is_some());
    }
    assert_eq!(origin.connections(), 1, "one connection serves all");
    assert_eq!(fixed.in_flight(), 0);
    assert_eq!(fixed.verdicts(), vec![(0, Verdict::Answered); 50]);
    eventually("the last request is counted", || edge.metrics().sites[0].in_flight == 0);
    let counted = edge.metrics();
    assert_eq!((counted.sites[0].requests[2], counted.connections_open), (50, 1));
    assert_eq!((counted.upstream_opened, counted.upstream_reused), (1, 49));
    assert_eq!(counted.sites[0].latency.count(), 50);
    edge.join();
}

#[test]
fn bodies_of_all_kinds_come_through() {
    let origin = Origin::serving(|conn, seen| match seen.line().contains("/chunked") {
        false => conn.answer("201 Created", &seen.body),
        true => {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in seen.body.chunks(7_000) {
                conn.send(format!("{:x}\r\n", piece.len()));
                conn.send(piece);
                conn.send("\r\n");
            }
            conn.send("0\r\nX-Trailer: 1\r\n\r\n");
        }
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for length in [0, 1, 1_000, 70_000, 3_000_000] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let head =
            format!("POST /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
        let reply = client.ask([head.as_bytes(), &body].concat());
        assert_eq!((reply.status, reply.body == body), (201, true), "{length} bytes");
        let mut request =
            b"PUT /chunked HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        for piece in body.chunks(100_000) {
            request.extend(format!("{:X};ext=1\r\n", piece.len()).bytes());
            request.extend(piece);
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\nX-Trailer: 1\r\n\r\n");
        let reply = client.ask(request);
        assert_eq!((reply.status, reply.body == body), (200, true), "{length} bytes, chunked");
    }
    assert_eq!(origin.connections(), 1);
    eventually("permits are back", || fixed.in_flight() == 0);
    assert_eq!(edge.metrics().sites[0].request_body_bytes, 2 * 3_071_001);
    drop(edge);
}
