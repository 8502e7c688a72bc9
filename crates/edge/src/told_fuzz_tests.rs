//! Noise for what proxies tell of clients, and for what the log tells of requests.

use crate::access_log::{Line, LogFormat};
use crate::proxy_header::{Ends, Fault, ProxyVersion, V2_BYTES_MAX, parse, write};
use fuzzing::{Random, Target};
use http::{Method, Uri, Version};
use std::net::SocketAddr;
use std::time::Duration;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A header of any kind, with something behind it.
fn made(random: &mut Random) -> Vec<u8> {
    let mut address = || {
        let bits = u128::from(random.next()) << 64 | u128::from(random.next());
        let port = random.next() as u16;
        match random.below(3) {
            0 => SocketAddr::from((std::net::Ipv6Addr::from_bits(bits), port)),
            1 => SocketAddr::from((
                std::net::Ipv4Addr::from_bits(bits as u32).to_ipv6_mapped(),
                port,
            )),
            _ => SocketAddr::from((std::net::Ipv4Addr::from_bits(bits as u32), port)),
        }
    };
    let ends = Ends { source: address(), destination: address() };
    let version = [ProxyVersion::V1, ProxyVersion::V2][random.below(2)];
    let mut bytes = write(version, &ends);
    bytes.extend_from_slice(b"GET / HTTP/1.1\r\n");
    bytes
}

fn same(one: &SocketAddr, other: &SocketAddr) -> bool {
    one.ip().to_canonical() == other.ip().to_canonical() && one.port() == other.port()
}

#[test]
fn fuzz_proxy_header() {
    let check = |bytes: &[u8], random: &mut Random| {
        let found = parse(bytes);
        // What was said of some bytes is not taken back when more come.
        let more = [bytes, b"PROXY \r\n\0\xff"].concat();
        let part = &bytes[..random.below(bytes.len() + 1)];
        let parsed = match found {
            Err(Fault::Incomplete) => {
                assert!(bytes.len() < V2_BYTES_MAX);
                assert_eq!(parse(part), Err(Fault::Incomplete));
                return (0, "");
            }
            Err(Fault::Bad(why)) => {
                assert!(matches!(parse(&more), Err(Fault::Bad(_))));
                assert!(parse(part).is_err());
                return (1, why);
            }
            Ok(parsed) => parsed,
        };
        assert!(parsed.length <= bytes.len().min(V2_BYTES_MAX));
        assert_eq!(parse(&more), found);
        assert_eq!(parse(&bytes[..parsed.length]), found);
        assert_eq!(parse(&bytes[..parsed.length - 1]), Err(Fault::Incomplete));
        let Some(ends) = parsed.ends else { return (2, "") };
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let written = write(version, &ends);
            let again = parse(&written).expect("what is written is read");
            let there = again.ends.expect("both ends are told");
            assert_eq!(again.length, written.len());
            assert!(same(&there.source, &ends.source), "{there:?} {ends:?}");
            assert!(same(&there.destination, &ends.destination), "{there:?} {ends:?}");
        }
        (3 + usize::from(ends.source.is_ipv6()), "")
    };
    let tokens: [&[u8]; 14] = [
        b"PROXY ",
        b"TCP4 ",
        b"TCP6 ",
        b"UNKNOWN",
        b"\r\n",
        b"192.0.2.7 ",
        b"::ffff:192.0.2.7 ",
        b"::1 ",
        b"\r\n\r\n\0\r\nQUIT\n",
        b"\x21\x11\0\x0c",
        b"\x21\x21\0\x24",
        b"\x20\0\0\0",
        b"\x03\0\x04",
        b"\x04\0\0",
    ];
    Target::new("proxy_header", HERE).tokens(&tokens).made_by(made).run(check);
}

/// Text: one line of plain characters, its quotes where the format has them.
fn check_text(line: &Line<'_>) {
    let mut bytes = Vec::new();
    line.write(LogFormat::Text, &mut bytes);
    let text = String::from_utf8(bytes).expect("it is ASCII");
    let (text, end) = text.split_at(text.len() - 1);
    assert!(end == "\n" && text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
    let parts: Vec<&str> = text.split('"').collect();
    assert_eq!(parts.len(), 9, "{text}");
    assert_eq!((parts[2], parts[4], parts[6]), (" 200 5 ", " ", " host="), "{text}");
    assert_eq!(parts[1].split(' ').count(), 3, "{text}");
    let own: Vec<&str> = parts[8].split(' ').skip(1).collect();
    let names: Vec<&str> = own.iter().filter_map(|field| Some(field.split_once('=')?.0)).collect();
    let expected = "site node retries first_byte_us duration_us bytes_in over request_id \
                    trace_id reason class cache";
    assert_eq!(names.join(" "), expected, "{text}");
}

/// JSON: one line, one object, with what was put in.
fn check_json(line: &Line<'_>) {
    let mut bytes = Vec::new();
    line.write(LogFormat::Json, &mut bytes);
    let (object, end) = bytes.split_at(bytes.len() - 1);
    assert!(end == b"\n" && !object.iter().any(u8::is_ascii_control));
    let value: serde_json::Value = serde_json::from_slice(object).expect("it is JSON");
    let fields = [("host", line.host), ("agent", line.agent), ("referer", line.referer)];
    for (name, given) in fields {
        let given = given.map(String::from_utf8_lossy);
        assert_eq!(value[name].as_str(), given.as_deref(), "{name}");
    }
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(22));
}

#[test]
fn fuzz_access_log() {
    let check = |bytes: &[u8], _: &mut Random| {
        let mut values = bytes.split(|&byte| byte == b'\n').map(Some).chain([None; 5]);
        let mut next = || values.next().flatten();
        let (method, target) = (next().unwrap_or_default(), next().unwrap_or_default());
        let (Ok(method), Ok(target)) = (Method::from_bytes(method), Uri::try_from(target)) else {
            return None;
        };
        let line = Line {
            at: Duration::from_secs(bytes.len() as u64 * 86_399),
            client: "2001:db8::7".parse().unwrap(),
            class: None,
            cache: None,
            site: Some("one"),
            host: next(),
            method: &method,
            target: &target,
            version: Version::HTTP_11,
            status: 200,
            bytes: 5,
            bytes_in: 0,
            duration: Duration::from_millis(1),
            first_byte: None,
            node: None,
            retries: 0,
            request_id: None,
            trace_id: None,
            is_tls: false,
            agent: next(),
            referer: next(),
            reason: None,
        };
        check_text(&line);
        check_json(&line);
        Some((
            line.agent.map(str::from_utf8).is_some_and(|text| text.is_ok()),
            line.referer.is_some(),
        ))
    };
    let tokens: [&[u8]; 14] = [
        b"\n",
        b"GET\n/x?y\n",
        b"\"",
        b"\\",
        b"\\\"",
        b" ",
        b"\xe2\x80\xa8",
        b"\xc2\x85",
        b"\xff\xfe",
        b"\x1b[2J",
        b"\0",
        b"\r",
        b"\x7f",
        b"http://a.example/",
    ];
    Target::new("access_log", HERE).tokens(&tokens).run(check);
}
