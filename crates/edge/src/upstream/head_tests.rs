//! Heads of responses: whole, in pieces, and odd ones.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn parse_all(bytes: &[u8], bodiless: bool) -> Result<Step, HeadFault> {
    HeadParser::default().next(&mut BytesMut::from(bytes), bodiless, None)
}

fn answer_to(bytes: &str) -> Answer {
    match parse_all(bytes.as_bytes(), false) {
        Ok(Step::Final(answer)) => answer,
        other => panic!("{other:?} of {bytes:?}"),
    }
}

/// How the parse went, in words that can be compared.
fn told(step: &Result<Step, HeadFault>) -> String {
    match step {
        Ok(Step::Final(Answer { parts, decoder, keep_alive })) => {
            let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>();
            format!("{parts:?} {reason:?} {decoder:?} {keep_alive}")
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn the_framing_follows_the_head() {
    let decoder = |fields: &str| {
        let answer = answer_to(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n"));
        (format!("{:?}", answer.decoder), answer.keep_alive)
    };
    assert_eq!(decoder("Content-Length: 5\r\n"), ("Length(5)".to_owned(), true));
    assert_eq!(decoder("Content-Length: 0\r\n"), ("End".to_owned(), true));
    assert_eq!(decoder("Content-Length: 5\r\ncontent-length: 05\r\n").0, "Length(5)");
    assert_eq!(decoder(""), ("Close".to_owned(), false));
    assert!(decoder("Transfer-Encoding: Chunked\r\n").0.starts_with("Chunked"));
    assert!(!decoder("Content-Length: 5\r\nConnection: x, Close\r\n").1);
    assert!(!decoder("Content-Length: 5\r\nConnection: close\r\nConnection: keep-alive\r\n").1);
    for bodiless in ["204 No Content", "304 Not Modified"] {
        let answer = answer_to(&format!("HTTP/1.1 {bodiless}\r\nContent-Length: 5\r\n\r\n"));
        assert!(answer.decoder.is_end() && answer.parts.headers.is_empty(), "{bodiless}");
    }
    let old = |fields: &str| answer_to(&format!("HTTP/1.0 200 OK\r\n{fields}\r\n")).keep_alive;
    assert!(
        !old("Content-Length: 5\r\n") && old("Content-Length: 5\r\nConnection: keep-alive\r\n")
    );
    let head = parse_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true).unwrap();
    let Step::Final(head) = head else { panic!("{head:?}") };
    assert!(head.decoder.is_end() && head.keep_alive);
    assert_eq!(head.parts.headers["content-length"], "5");
}

#[test]
fn odd_reasons_are_kept_and_usual_ones_are_not() {
    let reason = |line: &str| {
        let answer = answer_to(&format!("HTTP/1.1 {line}\r\n\r\n"));
        let phrase = answer.parts.extensions.get::<hyper::ext::ReasonPhrase>();
        phrase.map(|phrase| String::from_utf8(phrase.as_bytes().to_vec()).unwrap())
    };
    assert_eq!(reason("200 OK"), None);
    assert_eq!(reason("200 Fine").as_deref(), Some("Fine"));
    assert_eq!(reason("299"), Some(String::new()));
}

#[test]
fn limits_hold() {
    let fields = |count: usize| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
    assert!(parse_all(fields(RESPONSE_FIELDS_MAX).as_bytes(), false).is_ok());
    assert!(parse_all(fields(RESPONSE_FIELDS_MAX + 1).as_bytes(), false).is_err());
    let long = |count: usize| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(count));
    let most = RESPONSE_HEAD_BYTES_MAX - long(0).len();
    assert!(parse_all(long(most).as_bytes(), false).is_ok());
    assert!(parse_all(long(most + 1).as_bytes(), false).is_err());
    // Also where its end never comes.
    let endless = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(RESPONSE_HEAD_BYTES_MAX);
    assert!(parse_all(endless.as_bytes(), false).is_err());
    assert!(parse_all(&[b'\n'; RESPONSE_HEAD_BYTES_MAX], false).is_err());
}

#[test]
fn the_end_of_a_head_is_found_from_anywhere() {
    for bytes in ["a\r\n\r\nb", "a\n\nb", "a\r\n\nb", "a\n\r\nb"] {
        let whole = find_end(bytes.as_bytes(), 0).unwrap();
        assert_eq!(&bytes[whole..], "b", "{bytes:?}");
        for scanned in 0..whole {
            assert_eq!(find_end(bytes.as_bytes(), scanned), Some(whole), "{bytes:?} {scanned}");
        }
    }
    assert_eq!(find_end(b"a\r\n\r", 0), None);
    assert_eq!(find_end(b"", 0), None);
    assert_eq!(find_end(b"a", 9), None);
}

/// Parts of which heads, good and bad ones, are put together.
const PARTS: [&str; 30] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.0 304 Not Modified\r\n",
    "HTTP/1.1 204\r\n",
    "HTTP/1.1 999 ü\r\n",
    "HTTP/2.0 200 OK\r\n",
    "\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "Content-Length: 5\r\n",
    "Content-Length: 6\r\n",
    "Content-Length: 18446744073709551615\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 5, 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Connection: close\r\n",
    "Connection: x-a, content-length\r\n",
    "X-A: 1\r\n",
    "X-B:\t2 \t\r\n",
    "X : y\r\n",
    " folded\r\n",
    "X: \0\r\n",
    "X: \u{80}\u{ff}\r\n",
    ": y\r\n",
    "Set-Cookie: a=b; c\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Never a panic, and nothing that is not the head's is taken.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), bodiless in any::<bool>()) {
        let mut buffer = BytesMut::from(&bytes[..]);
        if HeadParser::default().next(&mut buffer, bodiless, None).is_ok() {
            prop_assert!(bytes.ends_with(&buffer));
        }
    }

    /// The same comes out however the bytes are cut, unless the head is incomplete: then a fault
    /// may be found early or late.
    #[test]
    fn pieces_change_nothing(
        parts in vec(select(PARTS.to_vec()), 1..9),
        cuts in vec(1_usize..40, 1..20),
        bodiless in any::<bool>(),
    ) {
        let bytes = (parts.concat() + "\r\n\r\nbody").into_bytes();
        let mut whole_buffer = BytesMut::from(&bytes[..]);
        let whole = HeadParser::default().next(&mut whole_buffer, bodiless, None);
        let (mut parser, mut buffer) = (HeadParser::default(), BytesMut::new());
        let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
        let pieced = loop {
            let count = (*cuts.next().unwrap()).min(rest.len());
            buffer.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
            match parser.next(&mut buffer, bodiless, None) {
                Ok(Step::More) if !rest.is_empty() => {}
                step => break step,
            }
        };
        if whole.is_ok() || !matches!(pieced, Ok(Step::More)) {
            prop_assert_eq!(told(&whole), told(&pieced));
        }
        if whole.is_ok() {
            buffer.extend_from_slice(rest);
            prop_assert_eq!(buffer, whole_buffer);
        }
    }
}
