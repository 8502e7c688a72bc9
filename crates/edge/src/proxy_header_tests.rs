//! Tests of the PROXY header against examples of its specification, a naive twin and itself.

use super::*;
use proptest::prelude::*;

fn ends(source: &str, destination: &str) -> Ends {
    Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn told(source: &str, destination: &str, length: usize) -> Result<Parsed, Fault> {
    Ok(Parsed { length, ends: Some(ends(source, destination)) })
}

fn is_bad(bytes: &[u8]) -> bool {
    matches!(parse(bytes), Err(Fault::Bad(_)))
}

/// A header of version 2 with these bytes after its fixed part.
fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut header = V2_SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    header.extend(body);
    header
}

const PAIR_V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0, 80];

fn with_entries(entries: &[u8]) -> Vec<u8> {
    v2(V2_PROXY, V2_TCP4, &[&PAIR_V4, entries].concat())
}

#[test]
fn lines_of_version_1() {
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 80\r\nGET";
    assert_eq!(parse(line), told("192.0.2.7:40000", "198.51.100.1:80", 44));
    let line = b"PROXY TCP6 2001:db8::7 ::1 65535 0\r\n";
    assert_eq!(parse(line), told("[2001:db8::7]:65535", "[::1]:0", line.len()));
    for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::f ::1 65535 65535\r\n"] {
        let parsed = Parsed { length: unknown.len(), ends: None };
        assert_eq!(parse(unknown.as_bytes()), Ok(parsed));
    }
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!(longest.len(), V1_BYTES_MAX);
    assert!(parse(longest.as_bytes()).is_ok());
}

#[test]
fn bad_lines_are_refused_as_soon_as_they_are() {
    for bad in [
        "GET / HTTP/1.1\r\n",
        "PROXX",
        "PROXY\r\n",
        "PROXY  TCP4 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 65536 1\r\n",
        "PROXY TCP4 1.2.3.04 1.2.3.4 1 1\r\n",
        "PROXY TCP4 ::1 ::1 1 1\r\n",
        "PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY tcp4 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 1\r ",
        "PROXY TCP4 1.2.3.4\t1.2.3.4 1 1\r\n",
        "PROXY UNKNOWN \u{e9}",
    ] {
        assert!(is_bad(bad.as_bytes()), "{bad:?}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(93));
    assert!(is_bad(endless.as_bytes()));
    assert_eq!(parse(&endless.as_bytes()[..106]), Err(Fault::Incomplete));
    // Its last byte would be the 108th.
    assert!(is_bad(format!("PROXY UNKNOWN {}\r", "x".repeat(92)).as_bytes()));
}

#[test]
fn headers_of_version_2() {
    let header = with_entries(&[]);
    assert_eq!(parse(&header), told("192.0.2.7:40000", "198.51.100.1:80", 28));
    let none = |length| Ok(Parsed { length, ends: None });
    assert_eq!(parse(&v2(V2_LOCAL, V2_UNSPECIFIED, &[])), none(16));
    assert_eq!(parse(&v2(V2_LOCAL, V2_TCP4, &[1])), none(17), "what a check carries is ignored");
    assert_eq!(parse(&v2(V2_PROXY, V2_UNSPECIFIED, &[1, 2])), none(18));
    assert_eq!(parse(&v2(V2_PROXY, V2_UNIX, &[b'/'; 216])), none(232));
    for (command, family, body) in [
        (V2_PROXY, V2_TCP4, &[0; 11][..]),
        (V2_PROXY, V2_TCP6, &[0; 35]),
        (V2_PROXY, V2_UNIX, &[0; 215]),
        (V2_PROXY, 0x12, &[0; 12]),
        (V2_PROXY, 0x41, &[0; 12]),
        (0x22, V2_TCP4, &[0; 12]),
        (0x11, V2_TCP4, &[0; 12]),
    ] {
        assert!(is_bad(&v2(command, family, body)), "{command:x} {family:x}");
    }
    let longest = [4, 0x0f, 0xe1].into_iter().chain([0; 4_065]).collect::<Vec<_>>();
    assert_eq!(with_entries(&longest).len(), V2_BYTES_MAX);
    assert!(parse(&with_entries(&longest)).is_ok());
    let mut too_long = V2_SIGNATURE.to_vec();
    too_long.extend([V2_PROXY, V2_TCP4, 0x0f, 0xf1]);
    assert!(is_bad(&too_long), "told by its length, before it came");
}

#[test]
fn entries_stay_within_the_header() {
    assert!(parse(&with_entries(&[4, 0, 0, 0xea, 0, 2, 1, 2])).is_ok());
    for bad in [&[4][..], &[4, 0], &[4, 0, 1], &[4, 0xff, 0xff, 1]] {
        assert!(is_bad(&with_entries(bad)), "{bad:?}");
    }
}

/// As published with RFC 3720.
#[test]
fn the_checksum_is_crc32c() {
    assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
}

#[test]
fn a_checksum_counts() {
    let mut header = with_entries(&[4, 0, 1, 9, TYPE_CRC32C, 0, 4, 0, 0, 0, 0, 4, 0, 0]);
    let hole = header.len() - 7;
    // The field itself is zero here, so that the sum over everything is the sum to be written.
    let sum = !crc32c(!0, &header);
    header[hole..hole + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(parse(&header).is_ok());
    // Without its own type it is no checksum.
    for at in (V2_FIXED_BYTES..header.len()).filter(|&at| at != hole - 3) {
        let mut other = header.clone();
        other[at] ^= 1;
        assert!(parse(&other) != parse(&header), "byte {at} does not count");
    }
    let twice = [&[TYPE_CRC32C, 0, 4, 0, 0, 0, 0][..]; 2].concat();
    assert!(is_bad(&with_entries(&twice)));
    assert!(is_bad(&with_entries(&[TYPE_CRC32C, 0, 3, 0, 0, 0])));
}

#[test]
fn families_are_made_one() {
    let mapped = ends("[::ffff:192.0.2.7]:1", "198.51.100.1:2");
    assert_eq!(write(ProxyVersion::V1, &mapped), b"PROXY TCP4 192.0.2.7 198.51.100.1 1 2\r\n");
    let mixed = ends("[2001:db8::1]:1", "198.51.100.1:2");
    let line = b"PROXY TCP6 2001:db8::1 ::ffff:198.51.100.1 1 2\r\n";
    assert_eq!(write(ProxyVersion::V1, &mixed), line);
    let destination = "[::ffff:198.51.100.1]:2";
    assert_eq!(parse(&write(ProxyVersion::V2, &mixed)), told("[2001:db8::1]:1", destination, 52));
}

fn one_family() -> impl Strategy<Value = Ends> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
    (prop_oneof![v4, v6], any::<(u16, u16)>()).prop_map(|((source, destination), ports)| Ends {
        source: SocketAddr::new(source, ports.0),
        destination: SocketAddr::new(destination, ports.1),
    })
}

/// Something like a header, so that most of the parser is reached.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..64);
    let family = prop::sample::select(vec![V2_TCP4, V2_TCP6, V2_UNIX, V2_UNSPECIFIED, 0x12]);
    let binary = (0x1f_u8..0x23, family, prop::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(command, family, body)| v2(command, family, &body));
    let text = "PROXY (TCP4|TCP6|UNKNOWN)( ([0-9.:a-f]{1,12}|1\\.2\\.3\\.4|::1|80)){0,5}\r?\n?";
    let text = text.prop_map(String::into_bytes);
    (prop_oneof![bytes.clone(), binary, text], bytes).prop_map(|(head, rest)| [head, rest].concat())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        ends in one_family(),
        rest in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        for version in [ProxyVersion::V1, ProxyVersion::V2] {
            let header = write(version, &ends);
            let (source, destination) = same_family(&ends);
            let same = Ends {
                source: SocketAddr::new(source, ends.source.port()),
                destination: SocketAddr::new(destination, ends.destination.port()),
            };
            let all = [&header[..], &rest].concat();
            prop_assert_eq!(parse(&all), Ok(Parsed { length: header.len(), ends: Some(same) }));
            for cut in 0..header.len() {
                prop_assert_eq!(parse(&all[..cut]), Err(Fault::Incomplete));
            }
        }
    }

    /// More bytes never change what fewer have settled, and an incomplete header has no end
    /// before its last byte.
    #[test]
    fn a_verdict_is_final(bytes in almost()) {
        let whole = parse(&bytes);
        let mut settled = None;
        for cut in 0..=bytes.len() {
            let verdict = parse(&bytes[..cut]);
            match settled {
                Some(first) => prop_assert_eq!(verdict, first),
                None if verdict != Err(Fault::Incomplete) => {
                    if let Ok(parsed) = verdict {
                        prop_assert_eq!(parsed.length, cut, "a byte too many was waited for");
                    }
                    settled = Some(verdict);
                }
                None => {}
            }
        }
        prop_assert_eq!(settled.unwrap_or(Err(Fault::Incomplete)), whole);
        if let Ok(parsed) = whole {
            prop_assert!(parsed.length <= bytes.len() && parsed.length <= V2_BYTES_MAX);
        }
    }
}
