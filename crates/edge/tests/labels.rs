//! Request ids and traces, from the client to the server and back.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, Reply};
use common::origin::{Origin, Seen};
use common::{edge, options};
use edge::{ForwardedTrust, Options};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn exchange(options: Options, fields: &str) -> (Seen, Reply) {
    let origin = Origin::serving(|conn, _| {
        conn.send("HTTP/1.1 200 OK\r\nX-Request-Id: servers-own\r\nContent-Length: 0\r\n\r\n");
    });
    let (edge, _) = edge(options, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    let reply = client.ask(format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    (origin.seen()[0].clone(), reply)
}

#[test]
fn a_strangers_id_is_replaced_and_a_trusted_one_kept() {
    let claims = "X-Request-Id: claimed\r\nX_Request_Id: claimed\r\n";
    let (seen, reply) = exchange(options(), claims);
    let id = seen.field("x-request-id").unwrap();
    assert_eq!((id.len(), reply.field("x-request-id")), (32, Some(id)));
    assert!(seen.fields("x_request_id").is_empty() && !reply.head.contains("servers-own"));
    let trusting = Options { forwarded: ForwardedTrust::Append, ..options() };
    let (seen, reply) = exchange(trusting.clone(), "X-Request-Id: abc-1\r\n");
    assert_eq!(
        (seen.field("x-request-id"), reply.field("x-request-id")),
        (Some("abc-1"), Some("abc-1"))
    );
    let (seen, _) = exchange(trusting, "X-Request-Id: a\"b\r\n");
    assert_eq!(seen.field("x-request-id").unwrap().len(), 32);
}

#[test]
fn traces_go_on_or_begin() {
    let state = "Tracestate: a=1\r\nTracestate: b=2\r\n";
    let (seen, _) = exchange(options(), &format!("Traceparent: {PARENT}\r\n{state}"));
    let ours = seen.field("traceparent").unwrap();
    assert_eq!((&ours[..36], &ours[52..], ours == PARENT), (&PARENT[..36], "-01", false));
    assert_eq!(seen.fields("tracestate"), ["a=1", "b=2"]);
    let (seen, _) = exchange(options(), &format!("Traceparent: {PARENT}-\r\n{state}"));
    assert_ne!(seen.field("traceparent").unwrap()[..36], PARENT[..36]);
    assert!(seen.fields("tracestate").is_empty());
    let (seen, _) = exchange(options(), "");
    assert_eq!(seen.field("traceparent").unwrap().len(), 55);
}

#[test]
fn what_is_off_is_left_alone() {
    let off = Options { request_id: false, trace: false, ..options() };
    let fields = format!("X-Request-Id: mine\r\nTraceparent: {PARENT}\r\nTracestate: a\r\n");
    let (seen, reply) = exchange(off.clone(), &fields);
    assert_eq!(
        (seen.field("x-request-id"), seen.field("traceparent")),
        (Some("mine"), Some(PARENT))
    );
    assert_eq!(reply.field("x-request-id"), Some("servers-own"));
    let (seen, _) = exchange(off, "");
    assert_eq!((seen.field("x-request-id"), seen.field("traceparent")), (None, None));
}

#[test]
fn the_edges_own_answers_have_an_id_too() {
    let (edge, _) = edge(options(), &[]);
    let mut client = Client::new(edge.addresses()[0]);
    let ids: Vec<_> = ["a.example", "elsewhere"]
        .iter()
        .map(|host| client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")))
        .map(|reply| reply.field("x-request-id").unwrap().to_owned())
        .collect();
    assert_ne!(ids[0], ids[1]);
}
