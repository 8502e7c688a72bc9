//! HTTP/2 in front, HTTP/1.1 behind: what passes, what must not, and what ends.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::frames::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, FrameClient, GOAWAY, HEADERS, INITIAL_WINDOW,
    RST_STREAM, SETTINGS, fields, frame, request,
};
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Edge, Options};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const PROTOCOL_ERROR: u32 = 1;
const CANCEL: u32 = 8;

fn plain() -> Options {
    Options { http2_plain: true, ..options() }
}

fn get(stream: u32, more: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &request("GET", more))
}

/// The text of the response's body; the stream must end well.
fn body(client: &mut FrameClient, stream: u32) -> String {
    assert_eq!(client.end_of(stream), None);
    text(client, stream)
}

/// The text of a response that has ended.
fn text(client: &FrameClient, stream: u32) -> String {
    let data = |frame: &&Frame| frame.kind == DATA && frame.stream == stream;
    let bytes: Vec<u8> =
        client.log.iter().filter(data).flat_map(|frame| frame.payload.clone()).collect();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn both_protocols_are_served_on_one_address() {
    let origin = Origin::serving(|conn, seen| conn.answer("200 OK", seen.head.as_bytes()));
    let (edge, _) = edge(plain(), &[origin.address]);
    let address = edge.addresses()[0];
    assert_eq!(Client::new(address).get("/").status, 200);
    // One that sends its first bytes one by one.
    let mut slow = Client::new(address);
    for byte in b"PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n" {
        slow.send([*byte]);
    }
    assert_eq!(slow.reply().unwrap().status, 200);

    let mut client = FrameClient::new(address, &[]);
    let crumbs = [("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2"), ("x-mine", "1")];
    for stream in [1, 3, 5] {
        client.send(get(stream, &crumbs));
    }
    for stream in [5, 1, 3] {
        assert_eq!(client.end_of(stream), None);
    }
    let seen = origin.seen().pop().unwrap();
    assert_eq!(seen.line(), "GET / HTTP/1.1");
    assert_eq!(seen.fields("host"), ["a.example"]);
    assert_eq!(seen.fields("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.fields("x-mine"), ["1"]);
    assert_eq!(seen.fields("via"), ["2 polder"]);
    assert_eq!(seen.fields("te"), Vec::<&str>::new());
    assert!(client.is_alive());
}

#[test]
fn without_the_setting_the_preface_is_no_request() {
    let origin = Origin::echo();
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let (answer, _) = client.until_end();
    assert!(!answer.starts_with(b"HTTP/1.1 200") && origin.seen().is_empty());
}

#[test]
fn bodies_stream_both_ways() {
    let origin = Origin::echo();
    let (edge, fixed) = edge(plain(), &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    let cases = [
        (1, Some(("content-length", "10")), "content-length"),
        (3, None, "transfer-encoding"),
        (5, Some(("expect", "100-continue")), "transfer-encoding"),
    ];
    for (stream, more, framing) in cases {
        let block = request("PUT", more.as_slice());
        client.send(frame(HEADERS, END_HEADERS, stream, &block));
        client.send(frame(DATA, 0, stream, b"hello"));
        client.send(frame(DATA, END_STREAM, stream, b"world"));
        assert_eq!(body(&mut client, stream), "helloworld");
        let seen = origin.seen().pop().unwrap();
        assert!(seen.field(framing).is_some(), "{}", seen.head);
        assert_eq!(seen.field("expect"), None);
    }
    // Trailers are dropped, as in HTTP/1.1; the connection lives on.
    client.send(frame(HEADERS, END_HEADERS, 7, &request("PUT", &[])));
    client.send(frame(DATA, 0, 7, b"body"));
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 7, &fields(&[("x-sum", "1")])));
    assert_eq!(body(&mut client, 7), "body");
    assert!(client.is_alive());
    assert_eq!(origin.connections(), 1, "and so does the server's");
    eventually("permits are back", || fixed.in_flight() == 0);
}

/// What HTTP/1.1 would read otherwise, or as two requests.
#[test]
fn what_has_no_meaning_in_http_1_is_refused() {
    let origin = Origin::echo();
    let (edge, fixed) = edge(plain(), &[origin.address]);
    let bad: [&[(&str, &str)]; 14] = [
        &[("connection", "close")],
        &[("keep-alive", "1")],
        &[("proxy-connection", "close")],
        &[("transfer-encoding", "chunked")],
        &[("upgrade", "websocket")],
        &[("te", "gzip")],
        &[("x-a", "b\r\nx-evil: 1")],
        &[("x-a", "b\nx-evil: 1")],
        &[("x-a", "b\0c")],
        &[("x-a\r\nx-evil", "1")],
        &[("X-Upper", "1")],
        &[("x a", "1")],
        &[("host", "b.example")],
        &[("content-length", "5"), ("content-length", "6")],
    ];
    for fields in bad {
        assert!(is_refused(&edge, &request("GET", fields)), "{fields:?}");
    }
    let pseudo: [&[(&str, &str)]; 9] = [
        &[(":method", "GET"), (":scheme", "http"), (":path", "/ HTTP/1.1\r\nx: y")],
        &[(":method", "GET"), (":scheme", "http"), (":path", "/\0")],
        &[(":method", "GET"), (":scheme", "http"), (":path", "")],
        &[(":method", "GET"), (":scheme", "http"), (":path", "no/slash")],
        &[(":method", "GET\r\nx: y"), (":scheme", "http"), (":path", "/")],
        &[(":method", "GET /x"), (":scheme", "http"), (":path", "/")],
        &[(":method", "GET"), (":scheme", "http")],
        &[(":method", "GET"), (":scheme", "ftp"), (":path", "/")],
        &[(":scheme", "http"), (":path", "/")],
    ];
    for wrong in pseudo {
        for authority in ["a.example", "a.example\r\nx: y", "u@a.example", "a.example:80:80"] {
            let all = [wrong, &[(":authority", authority)]].concat();
            assert!(is_refused(&edge, &fields(&all)), "{all:?}");
        }
    }
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    let connect = [(":method", "CONNECT"), (":authority", "a.example:443")];
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&connect)));
    assert_eq!(body(&mut client, 1), "This method is not served here.\n");
    client.send(get(3, &[("te", "gzip")]));
    assert_eq!(client.end_of(3), Some(PROTOCOL_ERROR));
    assert!(client.is_alive(), "one bad stream is no reason to end the others");
    assert!(origin.seen().is_empty(), "no server saw any of it: {:?}", origin.seen());
    assert_eq!(fixed.verdicts(), []);
}

/// Whether a request was refused: by an answer of the edge itself, by a reset, or, where not even
/// the table of fields can be trusted any more, with the whole connection.
fn is_refused(edge: &Edge, block: &[u8]) -> bool {
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, block));
    let ends = |frame: &Frame| match frame.kind {
        RST_STREAM | GOAWAY => true,
        DATA => frame.flags & END_STREAM != 0,
        _ => false,
    };
    let end = client.find(ends).expect("the connection ended without a word");
    match end.kind {
        DATA => end.payload.starts_with(b"The request is malformed"),
        _ => end.code() != 0,
    }
}

/// The server is told that so much comes; what does not come, or comes too much, must not be
/// taken from, or given to, the next request.
#[test]
fn a_length_that_is_not_kept_ends_the_stream_and_the_servers_connection() {
    let origin = Origin::echo();
    let (edge, fixed) = edge(plain(), &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    let mut stream = 1;
    for sent in [&b"four"[..], b"sixsix"] {
        client.send(frame(
            HEADERS,
            END_HEADERS,
            stream,
            &request("PUT", &[("content-length", "5")]),
        ));
        // The head, and some of the body, are under way to the server.
        std::thread::sleep(Duration::from_millis(50));
        client.send(frame(DATA, 0, stream, &sent[..3]));
        std::thread::sleep(Duration::from_millis(50));
        client.send(frame(DATA, END_STREAM, stream, &sent[3..]));
        assert_eq!(client.end_of(stream), Some(PROTOCOL_ERROR));
        eventually("the permit is back", || fixed.in_flight() == 0);
        client.send(get(stream + 2, &[]));
        assert_eq!(client.end_of(stream + 2), None);
        stream += 4;
    }
    // A body where none was announced, and none where one was.
    client.send(frame(HEADERS, END_HEADERS, stream, &request("PUT", &[("content-length", "0")])));
    client.send(frame(DATA, END_STREAM, stream, b"x"));
    let _ = client.end_of(stream);
    let announced = request("PUT", &[("content-length", "5")]);
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream + 2, &announced));
    assert_eq!(client.end_of(stream + 2), Some(PROTOCOL_ERROR));
    assert!(client.is_alive());
    let heads: Vec<_> = origin.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert!(heads.iter().all(|line| ["GET / HTTP/1.1", "PUT / HTTP/1.1"].contains(&&**line)));
    assert!(origin.seen().iter().all(|seen| seen.body.is_empty()), "{:?}", origin.seen());
    assert_eq!(fixed.verdicts().iter().filter(|(_, v)| *v != edge::Verdict::Answered).count(), 0);
}

#[test]
fn a_broken_response_resets_its_stream() {
    let origin = Origin::new(|mut conn, _| {
        let Some(seen) = conn.request() else { return };
        match seen.field("x-break") {
            None => conn.answer("200 OK", b"fine"),
            Some(_) => conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
        }
    });
    let (edge, _) = edge(plain(), &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[]);
    client.send(get(1, &[("x-break", "1")]));
    client.send(get(3, &[]));
    assert!(client.end_of(1).is_some());
    assert_eq!(body(&mut client, 3), "fine");
}

/// The window says how much a client takes; the edge must not take more from the server, and a
/// client that takes nothing must not hold the server.
#[test]
fn a_shut_window_holds_the_server_back_and_then_ends_the_stream() {
    let origin = Origin::new(|mut conn, _| {
        let Some(_) = conn.request() else { return };
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
        let piece = vec![b'x'; 1 << 20];
        let mut sent = 0;
        while conn.try_send(&piece) && sent < 64 {
            sent += 1;
        }
        assert!(sent < 64, "the edge took everything though its client took nothing");
    });
    let limits = Options { body_idle_timeout_ms: 400, ..plain() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    for window in [0, 1_000] {
        let mut client = FrameClient::new(edge.addresses()[0], &[(INITIAL_WINDOW, window)]);
        let start = Instant::now();
        client.send(get(1, &[]));
        assert_eq!(client.end_of(1), Some(CANCEL));
        assert!(start.elapsed() >= Duration::from_millis(350));
        let sent: usize =
            client.log.iter().filter(|f| f.kind == DATA).map(|f| f.payload.len()).sum();
        assert_eq!(sent, window as usize);
        assert!(client.is_alive(), "only the stream ends");
        eventually("the permit is back", || fixed.in_flight() == 0);
    }
}

/// A client that is slow but not stuck loses nothing.
#[test]
fn a_window_that_opens_now_and_then_is_enough() {
    let origin = Origin::serving(|conn, _| conn.answer("200 OK", &[b'x'; 1_000]));
    let limits = Options { body_idle_timeout_ms: 400, ..plain() };
    let (edge, _) = edge(limits, &[origin.address]);
    let mut client = FrameClient::new(edge.addresses()[0], &[(INITIAL_WINDOW, 250)]);
    client.send(get(1, &[]));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(250));
        client.send(frame(common::frames::WINDOW_UPDATE, 0, 1, &250_u32.to_be_bytes()));
    }
    assert_eq!(body(&mut client, 1).len(), 1_000);
}

#[test]
fn a_drain_says_goodbye_and_finishes() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::serving(move |conn, _| {
        gate.lock().unwrap().recv().unwrap();
        conn.answer("200 OK", b"done");
    });
    let (edge, fixed) = edge(Options { drain_max_ms: 20_000, ..plain() }, &[origin.address]);
    let mut idle = FrameClient::new(edge.addresses()[0], &[]);
    assert!(idle.is_alive());
    let mut busy = FrameClient::new(edge.addresses()[0], &[]);
    busy.send(get(1, &[]));
    eventually("it is at the server", || fixed.in_flight() == 1);
    edge.drain();
    assert!(busy.find(|frame| frame.kind == GOAWAY).is_some());
    assert!(idle.find(|frame| frame.kind == GOAWAY).is_some());
    release.send(()).unwrap();
    assert_eq!(body(&mut busy, 1), "done");
    drop((idle, busy));
    let start = Instant::now();
    edge.join();
    assert!(start.elapsed() < Duration::from_secs(10), "it did not wait for the limit");
}

#[test]
fn a_connection_without_requests_ends_whatever_else_it_sends() {
    let origin = Origin::echo();
    let limits = Options { keep_alive_idle_ms: 300, body_idle_timeout_ms: 300, ..plain() };
    let (edge, _) = edge(limits, &[origin.address]);
    let address: SocketAddr = edge.addresses()[0];
    let mut client = FrameClient::new(address, &[]);
    client.send(get(1, &[]));
    assert_eq!(client.end_of(1), None);
    let start = Instant::now();
    let mut pings = 0;
    while client.send(frame(common::frames::PING, 0, 0, b"12345678")) {
        pings += 1;
        assert!(start.elapsed() < common::PATIENCE, "{pings} pings kept it open");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.goodbye(), Some(0));
    // One that never says what it wants.
    let mut silent = FrameClient::new(address, &[]);
    silent.send(frame(SETTINGS, ACK, 0, &[]));
    assert_eq!(silent.goodbye(), Some(0));
}
