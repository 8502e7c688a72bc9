//! What servers answer: bodiless and interim responses, early ones, broken and ambiguous ones.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, End};
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Options, Reason, Verdict};
use std::time::{Duration, Instant};

/// A request whose client waits for a 100 before it sends `hello`.
const HELD_BACK: &str = "PUT / HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\n\
     Content-Length: 5\r\n\r\n";

/// An origin that answers each request with these bytes.
fn saying(bytes: impl Into<Vec<u8>>) -> Origin {
    let bytes = bytes.into();
    Origin::serving(move |conn, _| conn.send(&bytes))
}

/// As above, and closes.
fn saying_once(bytes: impl Into<Vec<u8>>) -> Origin {
    let bytes = bytes.into();
    Origin::new(move |mut conn, _| {
        if conn.request().is_some() {
            conn.send(&bytes);
            let _ = conn.stream.shutdown(std::net::Shutdown::Both);
        }
    })
}

#[test]
fn responses_without_a_body_keep_the_connection() {
    let origin = Origin::serving(|conn, seen| {
        let status = seen.line().split(['/', ' ']).nth(2).unwrap();
        conn.send(format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n"));
        if seen.line().starts_with("GET /200") {
            conn.send("hello");
        }
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..3 {
        client.send("HEAD /200 HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let head = client.head().unwrap();
        assert_eq!((head.status, head.field("content-length")), (200, Some("5")));
        for status in [304, 200] {
            let reply = client.get(&format!("/{status}"));
            assert_eq!((reply.status, reply.field("etag")), (status, Some("\"a\"")));
            assert_eq!(reply.text(), if status == 200 { "hello" } else { "" });
        }
    }
    assert_eq!((origin.connections(), fixed.in_flight()), (1, 0));
    let empty = saying("HTTP/1.1 204 No Content\r\n\r\n");
    let (edge, _) = common::edge(options(), &[empty.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 204);
    }
    assert_eq!(empty.connections(), 1);
}

#[test]
fn interim_responses_are_skipped() {
    let origin = saying(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "ok");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn ambiguous_responses_become_502() {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n\
         2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: a\0\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "hello world\r\n\r\n",
        &long,
    ] {
        let name = &bytes[..bytes.len().min(100)];
        let origin = saying_once(bytes);
        let (edge, fixed) = edge(options(), &[origin.address]);
        let mut client = Client::new(edge.addresses()[0]);
        let reply = client.get("/");
        assert_eq!((reply.status, reply.reason()), (502, Some("bad-response")), "{name:?}");
        assert_eq!(fixed.verdicts(), [(0, Verdict::Broke)], "{name:?}");
        assert_eq!((origin.seen().len(), fixed.in_flight()), (1, 0), "no retry after {name:?}");
    }
}

/// A response had begun: whoever asks again might get its effects twice.
#[test]
fn a_head_that_breaks_off_is_not_asked_for_again() {
    for bytes in ["HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 100 Continue\r\n\r\n", "H"] {
        let origin = saying_once(bytes);
        let (edge, fixed) = edge(options(), &[origin.address]);
        let reply = Client::new(edge.addresses()[0]).get("/");
        assert_eq!((reply.status, reply.reason()), (502, Some("server-broke")), "{bytes:?}");
        assert_eq!(fixed.verdicts(), [(0, Verdict::Broke)], "{bytes:?}");
        assert_eq!(origin.seen().len(), 1, "{bytes:?}");
    }
}

/// Bytes behind a response belong to no request: the next one gets a fresh connection.
#[test]
fn bytes_behind_a_response_are_never_the_next_one() {
    let origin = saying(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\
         HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    );
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "ok");
    }
    assert_eq!(origin.connections(), 5);
}

#[test]
fn bodies_that_end_with_the_connection_come_through() {
    let origin = saying_once("HTTP/1.0 200 OK\r\n\r\nall of it");
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..2 {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.text()), (200, "all of it".to_owned()));
        assert_eq!(reply.field("transfer-encoding"), Some("chunked"));
    }
    let mut old = Client::new(edge.addresses()[0]);
    let reply = old.ask("GET / HTTP/1.0\r\nHost: a.example\r\n\r\n");
    assert_eq!((reply.text(), reply.field("transfer-encoding")), ("all of it".to_owned(), None));
}

#[test]
fn a_server_that_breaks_off_never_looks_complete() {
    for (bytes, request) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "GET / HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "GET / HTTP/1.1"),
        // Here only a reset can tell the client.
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "GET / HTTP/1.0"),
    ] {
        let origin = saying_once(bytes);
        let (edge, fixed) = edge(options(), &[origin.address]);
        let mut client = Client::new(edge.addresses()[0]);
        client.send(format!("{request}\r\nHost: a.example\r\n\r\n"));
        let reply = client.head().unwrap();
        assert_eq!(reply.status, 200);
        assert_eq!(client.body(&reply), Err(End::Reset), "{request} {bytes:?}");
        assert_eq!(fixed.in_flight(), 0);
        assert_eq!(origin.seen().len(), 1, "a response that has begun is not asked for again");
    }
}

#[test]
fn a_server_that_stops_is_cut_off() {
    let origin = Origin::serving(|conn, seen| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
        conn.send(if seen.line().contains("/head") { "" } else { head });
        conn.wait_closed();
    });
    let limits = Options { response_header_timeout_ms: 100, retries_max: 0, ..options() };
    let (edge, fixed) = edge(limits, &[origin.address]);
    let reply = Client::new(edge.addresses()[0]).get("/head");
    assert_eq!((reply.status, reply.reason()), (504, Some("server-timeout")));
    assert_eq!(fixed.verdicts(), [(0, Verdict::TimedOut)]);
    assert_eq!(edge.metrics().sites[0].refused(Reason::ServerTimeout), 1);
    let limits = Options { body_idle_timeout_ms: 200, ..options() };
    let (edge, fixed) = common::edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("GET /body HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let reply = client.head().unwrap();
    assert_eq!(client.body(&reply), Err(End::Reset));
    eventually("permits are back", || fixed.in_flight() == 0);
}

#[test]
fn errors_of_servers_are_passed_on_and_reported() {
    let origin = saying("HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy");
    let (edge, fixed) = edge(options(), &[origin.address]);
    let reply = Client::new(edge.addresses()[0]).get("/");
    assert_eq!((reply.status, reply.text(), reply.reason()), (503, "busy".to_owned(), None));
    assert_eq!(fixed.verdicts(), [(0, Verdict::ServerError(503))]);
}

#[test]
fn an_early_response_is_delivered_and_the_upload_ends() {
    let origin = Origin::new(|mut conn, _| {
        let head = conn.head().unwrap();
        conn.saw(&head);
        conn.some();
        conn.send("HTTP/1.1 413 Too Much\r\nContent-Length: 3\r\n\r\nno!");
        conn.wait_closed();
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 1000000000\r\n\r\n");
    let mut upload = client.stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let piece = vec![b'x'; 64 * 1024];
        // Ends when the edge closes; it must not take the whole gigabyte.
        (0..16_000).take_while(|_| std::io::Write::write_all(&mut upload, &piece).is_ok()).count()
    });
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.text()), (413, "no!".to_owned()));
    eventually("the permit is back", || fixed.in_flight() == 0);
    let pieces = sending.join().unwrap();
    assert!(pieces < 1_000, "{pieces} pieces of 64 KiB were taken");
    assert_eq!(fixed.verdicts(), [(0, Verdict::Answered)]);
}

/// An early response while the server still reads everything: nothing is cut.
#[test]
fn a_response_may_overtake_its_request() {
    let origin = Origin::new(|mut conn, _| {
        while let Some(head) = conn.head() {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n");
            let body = conn.body(&head).unwrap();
            conn.send(format!("{:x}\r\n", body.len()));
            conn.send(body);
            conn.send("\r\n0\r\n\r\n");
        }
    });
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 8\r\n\r\nhalf");
        let head = client.head().unwrap();
        client.send("rest");
        assert_eq!(client.body(&head).unwrap(), b"earlyhalfrest");
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_body_held_back_waits_for_the_servers_100() {
    let origin = Origin::new(|mut conn, _| {
        while let Some(head) = conn.head() {
            std::thread::sleep(Duration::from_millis(50));
            assert!(conn.buffered().is_empty(), "the body came before the 100");
            conn.saw(&head);
            conn.send("HTTP/1.1 100 Continue\r\n\r\n");
            let body = conn.body(&head).unwrap();
            conn.answer("200 OK", &body);
        }
    });
    let patient = Options { expect_wait_ms: 20_000, ..options() };
    let (edge, _) = edge(patient, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for _ in 0..3 {
        let start = Instant::now();
        client.send(HELD_BACK);
        assert_eq!(client.head().unwrap().status, 100);
        assert!(start.elapsed() >= Duration::from_millis(50), "the edge did not wait");
        assert_eq!(client.ask("hello").text(), "hello");
    }
    assert_eq!(origin.seen()[0].field("expect"), Some("100-continue"));
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_server_that_knows_no_100_gets_the_body_after_a_while() {
    let origin = Origin::echo();
    let (edge, _) = edge(Options { expect_wait_ms: 50, ..options() }, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send(HELD_BACK);
    assert_eq!(client.head().unwrap().status, 100);
    assert_eq!(client.ask("hello").text(), "hello");
}

#[test]
fn a_body_held_back_is_never_asked_for_when_the_server_declines() {
    let origin = Origin::new(|mut conn, _| {
        while let Some(head) = conn.head() {
            conn.saw(&head);
            conn.send("HTTP/1.1 417 No\r\nContent-Length: 2\r\n\r\nno");
            assert!(conn.some().is_empty(), "no body is sent after a refusal");
        }
    });
    let patient = Options { expect_wait_ms: 20_000, ..options() };
    let (edge, fixed) = edge(patient, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send(HELD_BACK);
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.text()), (417, "no".to_owned()), "no 100 came before");
    assert!(client.reply().is_none(), "what follows could be the body or a request");
    eventually("the permit is back", || fixed.in_flight() == 0);
    // Nor when the edge itself declines.
    let (edge, _) = common::edge(options(), &[]);
    let mut client = Client::new(edge.addresses()[0]);
    client.send(HELD_BACK);
    let reply = client.reply().unwrap();
    assert_eq!((reply.status, reply.field("connection")), (503, Some("close")));
    let unknown = HELD_BACK.replace("100-continue", "200-ok");
    let unknown = Client::new(edge.addresses()[0]).ask(unknown);
    assert_eq!((unknown.status, unknown.reason()), (417, Some("bad-expectation")));
}
