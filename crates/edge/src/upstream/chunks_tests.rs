//! Chunked bodies against a naive reader, and cut anywhere.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Reads a whole body by lines; the body and what follows it. None: malformed or incomplete.
fn naive(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let line = |from: &'_ [u8]| from.windows(2).position(|two| two == b"\r\n");
    let (mut rest, mut body, mut extensions) = (bytes, Vec::new(), 0);
    loop {
        let end = line(rest)?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        rest = &rest[end + 2..];
        let digits = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
        let size = (digits <= 16).then(|| u64::from_str_radix(&text[..digits], 16).ok())??;
        match text[digits..].trim_start_matches([' ', '\t']).strip_prefix(';') {
            None if text[digits..].trim_matches([' ', '\t']).is_empty() => {}
            Some(extension) if !extension.contains(['\r', '\n']) => extensions += extension.len(),
            _ => return None,
        }
        if extensions > EXTENSION_BYTES_MAX {
            return None;
        }
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        let (data, more) = rest.split_at_checked(size)?;
        body.extend_from_slice(data);
        rest = more.strip_prefix(b"\r\n")?;
    }
    loop {
        let end = line(rest)?;
        let (field, more) = (&rest[..end], &rest[end + 2..]);
        rest = more;
        if field.is_empty() {
            return Some((body, rest));
        }
        let (name, value) = field.split_at(field.iter().position(|&byte| byte == b':')?);
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        let text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
        if name.is_empty() || !name.iter().all(token) || !value.iter().all(text) {
            return None;
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Whole(Vec<u8>, Vec<u8>),
    Incomplete,
    Malformed,
}

/// Feeds the bytes in pieces of these sizes.
fn decode(bytes: &[u8], cuts: &[usize]) -> Outcome {
    let (mut chunks, mut buffer, mut body) = (Chunks::new(), BytesMut::new(), Vec::new());
    let (mut rest, mut cuts) = (bytes, cuts.iter().cycle());
    loop {
        match chunks.next(&mut buffer) {
            Ok(Piece::Data(data)) => {
                assert!(!data.is_empty());
                body.extend_from_slice(&data);
            }
            Ok(Piece::End) => {
                assert!(chunks.is_end());
                return Outcome::Whole(body, [&buffer[..], rest].concat());
            }
            Ok(Piece::More) if rest.is_empty() => return Outcome::Incomplete,
            Ok(Piece::More) => {
                let count = (*cuts.next().unwrap()).min(rest.len());
                buffer.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
            }
            Err(Malformed) => {
                assert_eq!(chunks.next(&mut buffer), Err(Malformed), "a fault stays one");
                return Outcome::Malformed;
            }
        }
    }
}

fn whole(body: &str, rest: &str) -> Outcome {
    Outcome::Whole(body.into(), rest.into())
}

#[test]
fn bodies_are_read_to_the_letter() {
    for (bytes, outcome) in [
        ("5\r\nhello\r\n0\r\n\r\nrest", whole("hello", "rest")),
        ("2;a=\"b\"\r\nhe\r\n03 \t\r\nllo\r\n000;x\r\n\r\n", whole("hello", "")),
        ("0\r\nA: b\r\nC:\r\n\r\nHTTP/1.1", whole("", "HTTP/1.1")),
        ("A\r\n0123456789\r\n0\r\n\r\n", whole("0123456789", "")),
        ("5\r\nhel", Outcome::Incomplete),
        ("5\r\nhello\r\n0\r\n", Outcome::Incomplete),
        ("5\r\nhello\r\n0\r\n\r", Outcome::Incomplete),
        ("", Outcome::Incomplete),
    ] {
        assert_eq!(decode(bytes.as_bytes(), &[1_000]), outcome, "{bytes:?}");
    }
    for bad in [
        "\r\n",
        "g\r\n",
        "+5\r\n",
        "-5\r\n",
        " 5\r\n",
        "0x5\r\n",
        "5 5\r\n",
        "5\nhello",
        "5\rx",
        "5;a\nb\r\n",
        "5;a\rb\r\n",
        "5\r\nhelloX",
        "5\r\nhello\n",
        "5\r\nhello\rX",
        "10000000000000000\r\n",
        "00000000000000005\r\n",
        "0\r\n\n",
        "0\r\n\rX",
        "0\r\nA: b\n\r\n",
        "0\r\nA : b\r\n\r\n",
        "0\r\nA: b\r\n c\r\n\r\n",
        "0\r\n: b\r\n\r\n",
        "0\r\nA\r\n\r\n",
        "0\r\nA: \0\r\n\r\n",
    ] {
        assert_eq!(decode(bad.as_bytes(), &[1_000]), Outcome::Malformed, "{bad:?}");
    }
}

#[test]
fn limits_hold() {
    let extended = |count: usize| format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(count));
    assert_eq!(decode(extended(EXTENSION_BYTES_MAX).as_bytes(), &[9]), whole("hello", ""));
    let over = extended(EXTENSION_BYTES_MAX + 1);
    assert_eq!(decode(over.as_bytes(), &[1_000]), Outcome::Malformed);
    let trailers = |count: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(count));
    assert_eq!(decode(trailers(RESPONSE_FIELDS_MAX).as_bytes(), &[1_000]), whole("", ""));
    let over = trailers(RESPONSE_FIELDS_MAX + 1);
    assert_eq!(decode(over.as_bytes(), &[1_000]), Outcome::Malformed);
    let endless = "0\r\nA: ".to_owned() + &"x".repeat(RESPONSE_HEAD_BYTES_MAX);
    assert_eq!(decode(endless.as_bytes(), &[1_000]), Outcome::Malformed);
}

/// The end is known with the last data, where it is there.
#[test]
fn the_end_is_seen_early() {
    let (mut chunks, mut buffer) = (Chunks::new(), BytesMut::from("5\r\nhello\r\n0\r\n\r\n"));
    assert_eq!(chunks.next(&mut buffer), Ok(Piece::Data(Bytes::from("hello"))));
    assert!(chunks.is_end() && buffer.is_empty());
}

const PARTS: [&str; 24] = [
    "5\r\nhello\r\n",
    "5\r\nhello\r\n",
    "b\r\n5\r\nhello\r\n0\r\n",
    "3;x=y\r\nabc\r\n",
    "2 \t\r\nab\r\n",
    "0\r\n\r\n",
    "0\r\n",
    "\r\n",
    "00\r\n",
    "A: b\r\n",
    "A: b\n",
    "a : b\r\n",
    "5\n",
    "5\r",
    "hello",
    ";",
    " ",
    "\n",
    "\r",
    "ffffffffffffffff\r\n",
    "fffffffffffffffff\r\n",
    "G\r\n",
    "0;\r\n\r\n",
    "HTTP/1.1 200 OK\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn the_naive_reader_agrees(
        parts in vec(select(PARTS.to_vec()), 0..12),
        cuts in vec(1_usize..20, 1..8),
    ) {
        let bytes = parts.concat().into_bytes();
        let decoded = decode(&bytes, &cuts);
        prop_assert_eq!(&decoded, &decode(&bytes, &[usize::MAX]));
        match naive(&bytes) {
            Some((body, rest)) => prop_assert_eq!(decoded, Outcome::Whole(body, rest.to_vec())),
            None => prop_assert!(!matches!(decoded, Outcome::Whole(..)), "{:?}", decoded),
        }
    }

    #[test]
    fn what_was_encoded_is_decoded(
        pieces in vec(vec(any::<u8>(), 1..400), 0..8),
        cuts in vec(1_usize..300, 1..8),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = Vec::new();
        for piece in &pieces {
            bytes.extend(format!("{:X}\r\n", piece.len()).bytes());
            bytes.extend(piece);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\n\r\n");
        bytes.extend(&rest);
        prop_assert_eq!(decode(&bytes, &cuts), Outcome::Whole(pieces.concat(), rest));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, &[3, 1, 7]);
    }
}
