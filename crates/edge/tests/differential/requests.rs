//! Requests: what each of the three makes of the same bytes of a client.

use crate::common::daemon::Daemon;
use crate::common::{edge, eventually};
use crate::peers;
use crate::recorder::{Message, Recorder};
use crate::{confirmed, edge_options};
use edge::Edge;
use fuzzing::{Random, Target};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Ends each case: whoever still knows where requests end answers it and closes.
const LAST: &str = "GET /last HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";

/// All three close long before, unless the machine stands still.
const READ_MAX: Duration = Duration::from_secs(5);

/// Pieces that a case is sent in, at most: each costs a pause.
const PIECES_MAX: usize = 3;

/// What became of one request, in the eyes of one proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The origin has seen it.
    Forwarded(Message),
    /// The proxy answered by itself.
    Own(u16),
}

/// A proxy and the origin behind it.
struct Side {
    name: &'static str,
    address: SocketAddr,
    recorder: Recorder,
    _peer: Option<Daemon>,
}

impl Side {
    fn ours() -> (Self, Edge) {
        let recorder = Recorder::new();
        let (edge, _) = edge(edge_options(), &[recorder.address]);
        let address = edge.addresses()[0];
        (Self { name: "ours", address, recorder, _peer: None }, edge)
    }

    fn peer(name: &'static str, start: fn(SocketAddr) -> Option<Daemon>) -> Option<Self> {
        let recorder = Recorder::new();
        let peer = start(recorder.address)?;
        let address = peer.address;
        Some(Self { name, address, recorder, _peer: Some(peer) })
    }

    /// Sends the bytes and reads all answers; what the proxy did, request by request, and how many
    /// messages the origin saw that no answer tells of.
    fn run(&self, pieces: &[&[u8]]) -> (Vec<Outcome>, usize) {
        self.recorder.take();
        let answers = talk(self.address, pieces);
        eventually("the origin has read all", || self.recorder.is_quiet());
        let mut seen = self.recorder.take();
        let outcome = |(status, number): (u16, Option<usize>)| match number {
            Some(number) => Some(Outcome::Forwarded(seen.remove(&number)?)),
            None => Some(Outcome::Own(status)),
        };
        let outcomes = statuses(&answers).into_iter().filter_map(outcome).collect();
        (outcomes, seen.len())
    }
}

/// Everything that is answered to these bytes.
fn talk(address: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_MAX)).unwrap();
    stream.set_nodelay(true).unwrap();
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A peer that has refused already may have closed.
        let _ = stream.write_all(piece);
    }
    let mut answers = Vec::new();
    let _ = stream.read_to_end(&mut answers);
    answers
}

/// The final answers: status, and the number of the message if the origin gave it. No body holds a
/// status line: the origin's are empty, and pages of errors do not cite the request.
fn statuses(answers: &[u8]) -> Vec<(u16, Option<usize>)> {
    let text = String::from_utf8_lossy(answers);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("HTTP/1.") {
        let head = text[at..].split("\r\n\r\n").next().unwrap_or_default();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let number = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("x-seen").then(|| value.trim().parse().ok())?
        });
        if let Some(status) = status.filter(|status| *status >= 200) {
            found.push((status, number));
        }
    }
    found
}

/// What a message means, in the spelling of nobody.
fn meaning(message: &Message) -> (String, String, String, Vec<u8>) {
    let Message { method, target, host, body, .. } = message;
    let lower = target.to_ascii_lowercase();
    let scheme = ["http://", "https://"].into_iter().find(|scheme| lower.starts_with(scheme));
    let (authority, path) = match scheme {
        Some(scheme) => {
            let rest = &target[scheme.len()..];
            let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
            (Some(rest[..end].to_owned()), &rest[end..])
        }
        None => (None, &target[..]),
    };
    // A target has no fragment (RFC 9112, 3.2); hyper drops one, others pass it on.
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with(['/', '*']) { path.to_owned() } else { format!("/{path}") };
    let host = authority.or_else(|| host.clone()).unwrap_or_else(|| "a.example".to_owned());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => &host,
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    (method.clone(), path, name, body.clone())
}

/// Whether a proxy found that the request must not be taken. Other answers of its own mean that it
/// could not: it gave up waiting, or the origin did.
fn is_refusal(status: u16) -> bool {
    matches!(status, 400..=407 | 409..=499 | 501 | 505)
}

/// What another refuses and we take for a reason: the other's name, how such a request is known
/// (what we made of it, and the input in lower case), and the reason.
type Exception = (&'static str, fn(&Message, &str) -> bool, &'static str);

const EXCEPTIONS: [Exception; 7] = [
    ("nginx", has_both_framings, BOTH_FRAMINGS),
    ("haproxy", has_both_framings, BOTH_FRAMINGS),
    (
        "nginx",
        |mine, _| !mine.method.bytes().all(|b| b.is_ascii_uppercase() || b"-_".contains(&b)),
        "a method is a token (RFC 9110, 5.6.2); nginx takes capital letters only",
    ),
    ("nginx", |_, text| text.contains('\t'), "a tab is white space (RFC 9110, 5.6.3)"),
    (
        "haproxy",
        |_, text| text.contains("http/1.0"),
        "HAProxy takes no body with GET of HTTP/1.0; we pass it on as HTTP/1.1, where all do",
    ),
    (
        "haproxy",
        |_, text| text.contains('#'),
        "hyper drops a fragment: whoever is behind us sees the target that we route by",
    ),
    (
        "haproxy",
        |_, text| text.contains("://"),
        "HAProxy wants Host to be the target's authority; we write it anew (RFC 9112, 3.2.2)",
    ),
];

const BOTH_FRAMINGS: &str =
    "hyper reads the chunks, drops a length beside them unread, and closes (RFC 9112, 6.3)";

fn has_both_framings(_: &Message, text: &str) -> bool {
    text.contains("transfer-encoding") && text.contains("content-length")
}

fn is_exception(name: &str, mine: &Message, text: &str) -> bool {
    EXCEPTIONS.iter().any(|(other, holds, _)| *other == name && holds(mine, text))
}

/// Compares what we did with what the others did.
fn judge(bytes: &[u8], ours: &[Outcome], others: &[(&str, Vec<Outcome>)]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    for (at, outcome) in ours.iter().enumerate() {
        let Outcome::Forwarded(mine) = outcome else { continue };
        let mut refused = 0;
        for (name, theirs) in others {
            match theirs.get(at) {
                Some(Outcome::Forwarded(other)) if other.fault.is_some() => {}
                Some(Outcome::Forwarded(other)) => {
                    let (mine, other) = (meaning(mine), meaning(other));
                    if mine != other {
                        return Err(format!("request {at}: we saw {mine:?}, {name} {other:?}"));
                    }
                }
                Some(Outcome::Own(status)) if is_refusal(*status) => {
                    refused += usize::from(!is_exception(name, mine, &text));
                }
                _ => {}
            }
        }
        if refused > 0 && refused == others.len() {
            return Err(format!("request {at}: all others refuse {mine:?}: {others:?}"));
        }
    }
    Ok(())
}

const LINES: [&str; 26] = [
    "POST / HTTP/1.1",
    "POST / HTTP/1.1",
    "POST /a?b=c HTTP/1.1",
    "GET /x HTTP/1.1",
    "GET /x HTTP/1.1",
    "HEAD / HTTP/1.1",
    "PUT / HTTP/1.0",
    "GET / HTTP/1.0",
    "DELETE http://a.example/ HTTP/1.1",
    "GET http://b.example:80?q HTTP/1.1",
    "GET HTTP://a.example/A%2f HTTP/1.1",
    "OPTIONS * HTTP/1.1",
    "CONNECT a.example:80 HTTP/1.1",
    "GET  / HTTP/1.1",
    "GET /\tx HTTP/1.1",
    "GET /x#y HTTP/1.1",
    "GET /../x//y/./z HTTP/1.1",
    "GET /x HTTP/1.2",
    "GET /x HTTP/2.0",
    "GET /x http/1.1",
    "GET /x",
    "\r\nGET /x HTTP/1.1",
    "POST / HTTP/1.1\rX: y",
    "GET /\u{e9} HTTP/1.1",
    "BREW / HTTP/1.1",
    "get / HTTP/1.1",
];

const FIELDS: [&str; 62] = [
    "Host: a.example",
    "host:a.example",
    "Host: b",
    "Host: a.example:80",
    "Host:",
    "Host: a.example, b",
    "Host: u@a.example",
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: 48",
    "Content-Length: 005",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length : 5",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length:",
    "Content-Length:\x0b5",
    "Content-Length: 18446744073709551621",
    "Content_Length: 9",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "transfer-encoding:  CHUNKED ",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding:\x0bchunked",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\r\n : chunked",
    "Transfer-Encoding:\r\n chunked",
    "Transfer_Encoding: chunked",
    "Transfer-Encoding:",
    " Transfer-Encoding: chunked",
    "X: y\rTransfer-Encoding: chunked",
    "X: y\r\n folded",
    "X: y\0",
    "X\0: y",
    "X: y\nContent-Length: 5",
    "X: y\n\nGET /smuggled HTTP/1.1",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: content-length",
    "Connection: x, host",
    "Expect: 100-continue",
    "Expect: 100-Continue",
    "Upgrade: h2c",
    "TE: trailers",
    "Trailer: X",
    ": y",
    "nonsense",
    "X Y: z",
    "X: \u{e9}\x7f\x01",
];

const BODIES: [&str; 26] = [
    "",
    "",
    "hello",
    "hello",
    "5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;x\r\nhello\r\n0\r\nA: b\r\n\r\n",
    "5;x=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
    "5;x\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    "05\r\nhello\r\n00\r\n\r\n",
    "0\r\n\r\n",
    "0\r\n\n",
    "0\n\n",
    "5\nhello\n0\n\n",
    "5\rhello\r0\r\r",
    "+5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5\r\nhelloo\r\n0\r\n\r\n",
    "5\r\nhello0\r\n\r\n",
    "0\r\nX: y\n\r\n",
    "0\r\nContent-Length: 5\r\n\r\nhello",
    "GET /smuggled HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n\r\n",
    "5\r\nhel",
    "30\r\nGET /smuggled HTTP/1.1\r\nHost: a.example\r\nX: 1\r\n\r\n0\r\n\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
];

/// Up to three requests behind each other, put together from correct and odd parts.
fn made(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..1 + random.below(3) {
        let end = if random.once_in(6) { "\n" } else { "\r\n" };
        text += *random.pick(&LINES);
        text += end;
        if !random.once_in(5) {
            text += "Host: a.example";
            text += end;
        }
        for _ in 0..random.below(4) {
            text += *random.pick(&FIELDS);
            text += end;
        }
        text += end;
        text += *random.pick(&BODIES);
    }
    // Letters beyond ASCII go as one byte each.
    text.chars().map(|letter| letter as u8).collect()
}

#[test]
fn fuzz_http_requests() {
    let (ours, _edge) = Side::ours();
    let others: Vec<Side> =
        [Side::peer("nginx", peers::nginx), Side::peer("haproxy", peers::haproxy)]
            .into_iter()
            .flatten()
            .collect();
    let check = |bytes: &[u8], random: &mut Random| {
        let bytes = [bytes, LAST.as_bytes()].concat();
        let cuts = if random.once_in(4) { 1 + random.below(PIECES_MAX) } else { 1 };
        let pieces: Vec<&[u8]> = bytes.chunks(bytes.len().div_ceil(cuts)).collect();
        let run = |side: &Side| (side.name, side.run(&pieces).0);
        let run = &run;
        confirmed(|| {
            std::thread::scope(|scope| {
                let waits: Vec<_> =
                    others.iter().map(|side| scope.spawn(move || run(side))).collect();
                let (mine, unanswered) = ours.run(&pieces);
                let theirs: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
                for outcome in &mine {
                    if let Outcome::Forwarded(Message { fault: Some(fault), .. }) = outcome {
                        return Err(format!("we forward what cannot be read: {fault}"));
                    }
                }
                if unanswered > 0 {
                    return Err(format!(
                        "the origin saw {unanswered} requests more than were answered"
                    ));
                }
                judge(&bytes, &mine, &theirs)?;
                let kind = |outcomes: &[Outcome]| -> Vec<u16> {
                    let status = |outcome: &Outcome| match outcome {
                        Outcome::Forwarded(message) => message.body.len().min(99) as u16,
                        Outcome::Own(status) => *status,
                    };
                    outcomes.iter().map(status).collect()
                };
                let theirs: Vec<_> = theirs.iter().map(|(_, outcomes)| kind(outcomes)).collect();
                Ok((kind(&mine), theirs))
            })
        })
    };
    let target = Target::new("http_requests", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&LINES).tokens(&FIELDS).tokens(&BODIES).made_by(made).smoke_cases(60).run(check);
}
