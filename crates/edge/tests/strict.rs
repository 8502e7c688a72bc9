//! Request smuggling: each odd request is refused, or the origin sees exactly one unambiguous
//! request, and no byte of it is ever taken for a second one.
//!
//! The origin of these tests reads to the letter of RFC 9112 and panics on anything ambiguous.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::origin::{Origin, Seen};
use common::{edge, eventually, options, site};
use edge::{Edge, Options};

/// What a confused reader would take for the next request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";

fn setup(options: Options) -> (Origin, Edge) {
    let origin = Origin::echo();
    let (edge, _) = edge(options, &[origin.address]);
    (origin, edge)
}

/// Sends the bytes and what might be smuggled behind them; expects a refusal and the end.
fn refused(bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let bytes = bytes.as_ref();
    let name = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    let (origin, edge) = setup(options());
    let mut client = Client::new(edge.addresses()[0]);
    client.send([bytes, SMUGGLED.as_bytes()].concat());
    let reply = client.reply().unwrap_or_else(|| panic!("no answer to {name:?}"));
    assert!(statuses.contains(&reply.status), "{} to {name:?}", reply.status);
    assert!(client.reply().is_none(), "the connection ends after {name:?}");
    assert_eq!(origin.seen().len(), 0, "the origin saw something of {name:?}");
}

/// Sends the bytes; returns what the origin saw, which must be one request, and whether the
/// connection takes another.
fn forwarded(options: Options, bytes: impl AsRef<[u8]>) -> (Seen, bool) {
    let bytes = bytes.as_ref();
    let name = String::from_utf8_lossy(bytes).into_owned();
    let (origin, edge) = setup(options);
    let mut client = Client::new(edge.addresses()[0]);
    let reply = client.ask(bytes);
    assert_eq!(reply.status, 200, "{name:?}");
    let announced_end = reply.field("connection") == Some("close");
    client.send("GET /next HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let next = client.reply();
    assert!(next.is_none() || !announced_end, "{name:?}");
    let seen = origin.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(seen.len(), 1 + usize::from(next.is_some()), "{name:?}: {lines:?}");
    assert!(next.is_none() || lines[1] == "GET /next HTTP/1.1", "{name:?}: {lines:?}");
    (seen[0].clone(), next.is_some())
}

fn get(fields: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n")
}

fn post(fields: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n{body}")
}

#[test]
fn lengths_that_differ_or_are_malformed_are_refused() {
    refused(post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"), &[400]);
    for value in [
        "5, 5",
        "5,6",
        "+5",
        "-5",
        "5 5",
        "0x5",
        "",
        "5;",
        "5.0",
        "\"5\"",
        "five",
        "18446744073709551616",
        "99999999999999999999",
    ] {
        refused(post(&format!("Content-Length: {value}\r\n"), "hello"), &[400]);
    }
    // Within 64 bits, but nothing that anybody sends.
    refused(post("Content-Length: 18446744073709551615\r\n", "hello"), &[400, 413, 431]);
}

#[test]
fn equal_lengths_become_one() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length:  5 \r\n",
        "Content-Length: 0005\r\n",
        "content-LENGTH:5\r\n",
    ] {
        let (seen, open) = forwarded(options(), post(fields, "hello"));
        assert_eq!((seen.field("content-length"), &seen.body[..]), (Some("5"), &b"hello"[..]));
        assert!(open, "{fields:?}");
    }
}

#[test]
fn transfer_codings_other_than_chunked_are_refused() {
    for value in [
        "gzip, chunked",
        "chunked, chunked",
        "identity",
        "xchunked",
        "chunked, identity",
        "chunked;x=1",
        "\"chunked\"",
        "chunked chunked",
        "",
        ",chunked",
        "chunked,",
    ] {
        let fields = format!("Transfer-Encoding: {value}\r\n");
        refused(post(&fields, "5\r\nhello\r\n0\r\n\r\n"), &[400, 501]);
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
    ] {
        refused(post(fields, "5\r\nhello\r\n0\r\n\r\n"), &[400, 501]);
    }
    let old = "POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    refused(old, &[400]);
}

/// RFC 9112, 6.3: whoever forwards such a message removes Content-Length first, and closes.
#[test]
fn a_length_beside_chunks_never_reaches_the_origin() {
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 500\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: bad\r\n",
    ] {
        let (seen, open) = forwarded(options(), post(fields, chunks));
        assert_eq!((seen.field("content-length"), &seen.body[..]), (None, &b"hello"[..]));
        assert!(!open, "the connection is closed after {fields:?}");
    }
}

#[test]
fn chunks_are_read_to_the_letter() {
    let chunked = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    for body in [
        "g\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "10000000000000000\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
        "5\r\nhello\r\n0\r\n\nGET",
        &long,
    ] {
        refused(chunked(body), &[400]);
    }
    for body in [
        "5\r\nhello\r\n0\r\n\r\n",
        "05\r\nhello\r\n000\r\n\r\n",
        "5;a=b;c\r\nhello\r\n0;x\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX-A: 1\r\nContent-Length: 7\r\nHost: b\r\n\r\n",
    ] {
        let (seen, open) = forwarded(options(), chunked(body));
        assert_eq!(seen.body, b"hello", "{body:?}");
        assert_eq!(seen.field("transfer-encoding"), Some("chunked"));
        assert_eq!(open, !body.contains("X-A"), "{body:?}");
    }
}

#[test]
fn heads_with_odd_bytes_are_refused() {
    for fields in [
        "X: a\r\n b\r\n",
        "X: a\r\n\tb\r\n",
        "X: a\rb\r\n",
        "X: a\0b\r\n",
        "X\0: a\r\n",
        "X : a\r\n",
        "X\t: a\r\n",
        " X: a\r\n",
        ": a\r\n",
        "X\r\n",
        "X Y: a\r\n",
        "X(: a\r\n",
        "X: a\x01b\r\n",
        "X: a\x7fb\r\n",
        "\r: a\r\n",
        "X\r: a\r\n",
        "Ü: a\r\n",
    ] {
        refused(get(fields), &[400]);
    }
    refused("GET / HTTP/1.1\r\n Host: a.example\r\n\r\n", &[400]);
}

#[test]
fn odd_request_lines_are_refused() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        " GET / HTTP/1.1",
        "GET / HTTP/1.1 ",
        "GET /",
        "GET / HTTP/2.0",
        "GET / HTTP/1.2",
        "GET / http/1.1",
        "GET / HTTP/1.10",
        "GET / HTTP/01.1",
        "GE(T / HTTP/1.1",
        "/ HTTP/1.1",
        "GET HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET /\0 HTTP/1.1",
        "GET /\r HTTP/1.1",
        "G\rET / HTTP/1.1",
        "GET * HTTP/1.1",
        "GET a.example HTTP/1.1",
        "GET a.example:80 HTTP/1.1",
        "GET a.example/x HTTP/1.1",
        "GET ftp://a.example/ HTTP/1.1",
        "GET http://u:p@a.example/ HTTP/1.1",
        "GET http:///x HTTP/1.1",
        "GET http:/x HTTP/1.1",
        "GET http://a.example:99999999/ HTTP/1.1",
        "GET \\ HTTP/1.1",
    ] {
        refused(format!("{line}\r\nHost: a.example\r\n\r\n"), &[400]);
    }
    refused("CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n", &[501]);
}

#[test]
fn the_preface_of_http_2_ends_the_connection() {
    let (origin, edge) = setup(options());
    let mut client = Client::new(edge.addresses()[0]);
    client.send(format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{SMUGGLED}"));
    assert!(client.reply().is_none());
    assert_eq!(origin.seen().len(), 0);
}

#[test]
fn one_valid_host_is_demanded() {
    refused("GET / HTTP/1.1\r\n\r\n", &[400]);
    for hosts in [
        "Host: a.example\r\nHost: a.example\r\n",
        "Host: a.example\r\nhost: b\r\n",
        "Host:\r\n",
        "Host: a.example, b\r\n",
        "Host: u@a.example\r\n",
        "Host: a.example b\r\n",
        "Host: a.example/x\r\n",
        "Host: a.example:x\r\n",
        "Host: a.example#\r\n",
        "Host: a.example?\r\n",
        "Host: http://a.example\r\n",
        "Host: a.exam\\ple\r\n",
    ] {
        refused(format!("GET / HTTP/1.1\r\n{hosts}\r\n"), &[400]);
    }
}

#[test]
fn connection_may_not_name_what_matters() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Authorization",
        "Cookie",
        "close, Cookie",
        "X-Forwarded-For",
        "Via",
        "If-Match",
        "Content-Type",
        "Expect",
        "a b",
        "Cache-Control",
    ] {
        refused(get(&format!("Cookie: a\r\nConnection: {name}\r\n")), &[400]);
    }
    let fields = "Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-End: 2\r\nKeep-Alive: 5\r\n";
    let (seen, open) = forwarded(options(), get(fields));
    assert_eq!((seen.field("x-hop"), seen.field("x-end")), (None, Some("2")));
    assert_eq!((seen.field("keep-alive"), seen.field("connection"), open), (None, None, true));
}

#[test]
fn spellings_are_made_one() {
    let bare = "\r\n\nGET /x HTTP/1.1\nHost:a.example\nX:  y \t\n\n";
    let (seen, open) = forwarded(options(), bare);
    assert_eq!((seen.line(), seen.field("x"), open), ("GET /x HTTP/1.1", Some("y"), true));
    assert!(!seen.head.replace("\r\n", "").contains('\n'));
    let absolute = "GET http://A.Example:80/x?y HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let (seen, _) = forwarded(options(), absolute);
    assert_eq!((seen.line(), seen.field("host")), ("GET /x?y HTTP/1.1", Some("A.Example:80")));
    let (seen, _) = forwarded(options(), "GET http://a.example?y HTTP/1.1\r\nHost: b\r\n\r\n");
    assert_eq!(seen.line(), "GET /?y HTTP/1.1");
    let star = "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(forwarded(options(), star).0.line(), "OPTIONS * HTTP/1.1");
    for target in ["//x//y", "/a/../b/./c", "/%2e%2e/%00?%0d%0a", "/a;b=c,d", "/?", "/é"] {
        let (seen, _) =
            forwarded(options(), format!("get {target} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        assert_eq!(seen.line(), format!("get {target} HTTP/1.1"), "methods are case-sensitive");
    }
    let fields = "Upgrade: h2c\r\nConnection: upgrade, http2-settings\r\nHTTP2-Settings: x\r\n";
    let (seen, open) = forwarded(options(), get(fields));
    assert!(!seen.head.to_lowercase().contains("upgrade") && open, "{}", seen.head);
    let (none, fields) =
        (Options { upgrades: false, ..options() }, "Upgrade: websocket\r\nConnection: upgrade\r\n");
    let (seen, open) = forwarded(none, get(fields));
    assert!(!seen.head.to_lowercase().contains("upgrade") && open, "{}", seen.head);
}

#[test]
fn a_body_is_one_with_every_method() {
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "BREW"] {
        let inner = SMUGGLED;
        let length = inner.len();
        let sized = format!(
            "{method} / HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n{inner}"
        );
        let chunked = format!(
            "{method} / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             {length:x}\r\n{inner}\r\n0\r\n\r\n"
        );
        for request in [sized, chunked] {
            let (origin, edge) = setup(options());
            let mut client = Client::new(edge.addresses()[0]);
            client.send(request);
            assert_eq!(client.head().unwrap().status, 200);
            eventually("the origin has it", || !origin.seen().is_empty());
            let seen = origin.seen();
            assert_eq!((seen.len(), &seen[0].body[..]), (1, inner.as_bytes()), "{method}");
        }
    }
}

#[test]
fn old_clients_are_served_and_closed() {
    let ask = |fields: &str| format!("GET / HTTP/1.0\r\n{fields}\r\n");
    let (seen, open) = forwarded(options(), ask("Host: a.example\r\n"));
    assert_eq!((seen.line(), open), ("GET / HTTP/1.1", false));
    assert_eq!(seen.field("via"), Some("1.0 polder"));
    assert!(forwarded(options(), ask("Host: a.example\r\nConnection: keep-alive\r\n")).1);
    let with_default = Options { default_site: Some(site()), ..options() };
    let (seen, _) = forwarded(with_default, ask(""));
    assert_eq!(seen.field("host"), Some("a.example"));
    let (_origin, edge) = setup(options());
    assert_eq!(Client::new(edge.addresses()[0]).ask(ask("")).status, 421);
}

#[test]
fn pipelined_requests_stay_apart() {
    let (origin, edge) = setup(options());
    let mut client = Client::new(edge.addresses()[0]);
    let mut bytes = String::new();
    for number in 0..20 {
        let body = "x".repeat(number);
        bytes += &format!(
            "POST /{number} HTTP/1.1\r\nHost: a.example\r\nContent-Length: {number}\r\n\r\n{body}"
        );
    }
    client.send(bytes);
    for number in 0..20 {
        let reply = client.reply().unwrap();
        assert_eq!((reply.status, reply.body.len()), (200, number));
    }
    let lines: Vec<_> = origin.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, (0..20).map(|n| format!("POST /{n} HTTP/1.1")).collect::<Vec<_>>());
}

#[test]
fn long_heads_are_refused() {
    refused(get(&format!("X: {}\r\n", "x".repeat(40_000))), &[431]);
    refused(get(&"X: y\r\n".repeat(101)), &[431]);
    refused(format!("GET /{} HTTP/1.1\r\nHost: a.example\r\n\r\n", "x".repeat(9_000)), &[414]);
    refused(format!("GET /{}", "x".repeat(300_000)), &[414, 431]);
    let (seen, _) = forwarded(options(), get(&"X: y\r\n".repeat(90)));
    assert_eq!(seen.fields("x").len(), 90);
}
