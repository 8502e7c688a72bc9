//! Noise against what reads responses: however the bytes are cut, the same comes out.

use super::body::Decoder;
use super::chunks::Piece;
use super::head::{HeadParser, Step};
use super::{RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX};
use bytes::BytesMut;
use fuzzing::{Random, Target};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

const TOKENS: [&str; 48] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 500 \r\n",
    "HTTP/2.0 200 OK\r\n",
    "HTTP/1.1 99",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\n\n",
    "\r",
    "\r\n ",
    "Content-Length: 5\r\n",
    "Content-Length: 05\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 6\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding: identity\r\n",
    "transfer-encoding:\tCHUNKED\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "Connection: x-a, set-cookie\r\n",
    "Keep-Alive: timeout=5\r\n",
    "Set-Cookie: a=b; c\r\n",
    "X-A: 1\r\n",
    "X : y\r\n",
    "Trailer: T\r\n",
    "Upgrade: x\r\n",
    "hello",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n",
    "05 \t\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nT: u\r\n\r\n",
    "0\r\nT : u\r\n\r\n",
    "0\n\n",
    "ffffffffffffffff\r\n",
    "fffffffffffffffff\r\n",
    "10000000000000000\r\n",
    ";",
];

/// What became of the bytes.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Malformed,
    /// More bytes were needed; this much of the body was read.
    Incomplete {
        body: Vec<u8>,
    },
    /// The head in words, the body, and what is left behind it.
    Complete {
        head: String,
        body: Vec<u8>,
        left: Vec<u8>,
        keeps: bool,
    },
}

/// Reads one response out of pieces, as `own` does.
fn read(pieces: &[&[u8]], bodiless: bool) -> Outcome {
    let (mut buffer, mut pieces) = (BytesMut::new(), pieces.iter());
    let mut more = |buffer: &mut BytesMut| match pieces.next() {
        Some(piece) => {
            buffer.extend_from_slice(piece);
            true
        }
        None => false,
    };
    let (mut parser, mut head) = (HeadParser::default(), String::new());
    let mut body = Vec::new();
    let answer = loop {
        match parser.next(&mut buffer, bodiless, None) {
            Err(_) => return Outcome::Malformed,
            Ok(Step::Interim(status)) => head += &format!("{status} "),
            Ok(Step::More) if more(&mut buffer) => {}
            Ok(Step::More) => return Outcome::Incomplete { body },
            Ok(Step::Final(answer)) => break answer,
        }
    };
    assert!(answer.parts.headers.len() <= RESPONSE_FIELDS_MAX);
    head += &format!("{} {:?}", answer.parts.status, answer.parts.headers);
    let (mut decoder, keeps) = (answer.decoder, answer.keep_alive);
    assert!(!keeps || !matches!(decoder, Decoder::Close), "nothing can follow such a body");
    loop {
        match decoder.next(&mut buffer) {
            Err(_) => return Outcome::Malformed,
            Ok(Piece::Data(data)) => {
                assert!(!data.is_empty());
                body.extend_from_slice(&data);
            }
            Ok(Piece::More) if more(&mut buffer) => {}
            Ok(Piece::More) if !decoder.finish() => return Outcome::Incomplete { body },
            Ok(Piece::More | Piece::End) => break,
        }
    }
    let left = pieces.fold(buffer.to_vec(), |left, piece| [&left, *piece].concat());
    Outcome::Complete { head, body, left, keeps }
}

#[test]
fn fuzz_responses() {
    let check = |bytes: &[u8], random: &mut Random| {
        let bodiless = random.once_in(4);
        let whole = read(&[bytes], bodiless);
        let pieces = random.cut(bytes);
        let pieced = read(&pieces, bodiless);
        // A head of which the end is missing may hold a fault that is found only with its end.
        let waits = matches!(pieced, Outcome::Incomplete { .. });
        if whole != Outcome::Malformed || !waits {
            assert_eq!(whole, pieced, "{:?}", pieces.iter().map(|p| p.len()).collect::<Vec<_>>());
        }
        match whole {
            Outcome::Malformed => None,
            Outcome::Incomplete { body } => Some((body.len().min(2), 0, false, String::new())),
            Outcome::Complete { head, body, left, keeps } => {
                assert!(bytes.ends_with(&left));
                assert!(bytes.len() >= body.len() + left.len());
                assert!(head.len() <= 4 * RESPONSE_HEAD_BYTES_MAX);
                Some((body.len().min(9), left.len().min(2), keeps, head))
            }
        }
    };
    Target::new("responses", HERE).tokens(&TOKENS).run(check);
}

/// Chunked bodies alone, so that noise does not end at the head.
#[test]
fn fuzz_chunks() {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let check = |bytes: &[u8], random: &mut Random| {
        let whole = read(&[HEAD, bytes], false);
        let pieces = [vec![HEAD], random.cut(bytes)].concat();
        let pieced = read(&pieces, false);
        let waits = matches!(pieced, Outcome::Incomplete { .. });
        if whole != Outcome::Malformed || !waits {
            assert_eq!(whole, pieced, "{:?}", pieces.iter().map(|p| p.len()).collect::<Vec<_>>());
        }
        match whole {
            Outcome::Malformed => None,
            Outcome::Incomplete { body } => Some((body.len(), usize::MAX)),
            Outcome::Complete { body, left, keeps, .. } => {
                assert!(keeps && bytes.ends_with(&left));
                Some((body.len(), left.len()))
            }
        }
    };
    Target::new("chunks", HERE)
        .tokens(&TOKENS[36..])
        .tokens(&["\r\n", "\n", "\r", "A: b"])
        .run(check);
}
