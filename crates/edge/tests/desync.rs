//! Edge and origin never disagree about where a request ends: requests put together at random
//! from correct and odd parts, sent in random pieces; the origin, which reads to the letter, must
//! have seen exactly the requests that were answered with 200.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::origin::Origin;
use common::{edge, options};
use edge::Options;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::time::Duration;

const LINES: [&str; 10] = [
    "POST / HTTP/1.1",
    "POST / HTTP/1.1",
    "POST / HTTP/1.1",
    "GET /x HTTP/1.1",
    "PUT / HTTP/1.0",
    "DELETE http://a.example/ HTTP/1.1",
    "GET  / HTTP/1.1",
    "POST / HTTP/1.1\rX: y",
    "HEAD / HTTP/1.1",
    "BREW / HTTP/1.1",
];

const FIELDS: [&str; 32] = [
    "Host: a.example",
    "host:a.example",
    "Host: b",
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: 48",
    "Content-Length: +5",
    "Content-Length: 5, 5",
    "Content-Length : 5",
    "Content-Length: 0x5",
    "Content-Length:",
    "Content_Length: 9",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "transfer-encoding:  CHUNKED ",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\r\n : chunked",
    " Transfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\0",
    "X: y\nContent-Length: 5",
    "Connection: close",
    "Connection: content-length",
    "Connection: x",
    "Expect: 100-continue",
    "Upgrade: h2c",
    "TE: x",
    ": y",
];

const BODIES: [&str; 14] = [
    "",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n",
    "0\r\n\r\n",
    "0\r\n\n",
    "0\n\n",
    "5\nhello\n0\n\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "0\r\nX: y\n\r\n",
    "GET /smuggled HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n\r\n",
    "5\r\nhel",
    "30\r\nGET /smuggled HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n\r\n0\r\n\r\n",
    "ffffffffffffffff1\r\n",
];

fn request() -> impl Strategy<Value = String> {
    let ends = select(vec!["\r\n", "\r\n", "\r\n", "\n"]);
    let fields = vec(select(FIELDS.to_vec()), 0..4);
    (select(LINES.to_vec()), any::<bool>(), fields, ends, select(BODIES.to_vec())).prop_map(
        |(line, host, fields, end, body)| {
            let host = if host { format!("Host: a.example{end}") } else { String::new() };
            let fields: String = fields.iter().map(|field| format!("{field}{end}")).collect();
            format!("{line}{end}{host}{fields}{end}{body}")
        },
    )
}

/// How many of all answers are 200, until the connection ends.
fn count_answers(client: &mut Client) -> usize {
    let (bytes, _) = client.until_end();
    let text = String::from_utf8(bytes).unwrap();
    // Bodies of answers are bodies of requests, none of which has a status line.
    ["HTTP/1.1 200 OK\r\n", "HTTP/1.0 200 OK\r\n"]
        .map(|line| text.matches(line).count())
        .iter()
        .sum()
}

fn agree(requests: &[String], piece: usize) {
    let origin = Origin::echo();
    let limits = Options {
        header_timeout_ms: 30,
        keep_alive_idle_ms: 30,
        body_idle_timeout_ms: 30,
        expect_wait_ms: 1,
        ..options()
    };
    let (edge, _) = edge(limits, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    let bytes = requests.concat();
    for piece in bytes.as_bytes().chunks(piece) {
        client.send(piece);
        if bytes.len() / piece.len() < 8 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let answered = count_answers(&mut client);
    let seen: Vec<_> = origin.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(seen.len(), answered, "{seen:?} of {bytes:?}");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    #[test]
    fn edge_and_origin_agree(
        requests in vec(request(), 1..4),
        piece in select(vec![1, 7, 64, 9999]),
    ) {
        agree(&requests, piece);
    }
}

/// The same without chance: each framing with each body.
#[test]
fn each_framing_agrees_with_each_body() {
    let head = "POST / HTTP/1.1\r\nHost: a.example\r\n";
    std::thread::scope(|scope| {
        for field in FIELDS {
            scope.spawn(move || {
                for body in BODIES {
                    agree(&[format!("{head}{field}\r\n\r\n{body}")], 9_999);
                }
            });
        }
    });
}
