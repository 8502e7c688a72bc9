//! The header of the PROXY protocol, versions 1 and 2: before its first own byte a proxy tells
//! for whom it made the connection. Pure: no socket, no clock.
//!
//! ```text
//! v1  "PROXY TCP4 192.0.2.7 198.51.100.1 40000 80\r\n", or TCP6, or UNKNOWN and anything
//! v2  0d 0a 0d 0a 00 0d 0a 51 55 49 54 0a  21  11  00 0c  addresses  type length value ...
//!     signature (12)                       |   |   length of what follows
//!                                          |   family (1 IPv4, 2 IPv6, 3 Unix), 1 for a stream
//!                                          version 2, command 1 (0: the proxy's own, a check)
//! ```
//!
//! As long as a header is incomplete, all bytes so far belong to it: whoever reads them from a
//! socket takes none of what follows.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The longest line of version 1 with its end, by the protocol's own count.
const V1_BYTES_MAX: usize = 107;

/// The longest header of version 2 that is taken. Its length field allows 65,551 bytes; what
/// proxies append (names, a TLS certificate's subject) stays below a tenth of this.
pub(crate) const V2_BYTES_MAX: usize = 4 * 1024;

const V1_START: &[u8] = b"PROXY ";
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const V2_FIXED_BYTES: usize = 16;

/// Version 2 and its commands.
const V2_LOCAL: u8 = 0x20;
const V2_PROXY: u8 = 0x21;

/// Families, all of streams.
const V2_TCP4: u8 = 0x11;
const V2_TCP6: u8 = 0x21;
const V2_UNIX: u8 = 0x31;
const V2_UNSPECIFIED: u8 = 0x00;

/// Two paths of 108 bytes.
const V2_UNIX_BYTES: usize = 216;

/// The type of the entry that holds a checksum over the whole header.
const TYPE_CRC32C: u8 = 0x03;

/// Both ends of the connection that a proxy took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The client.
    pub(crate) source: SocketAddr,
    /// Where it connected to.
    pub(crate) destination: SocketAddr,
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// Its bytes; what follows belongs to the client.
    pub(crate) length: usize,
    /// None where the proxy speaks for itself, does not know, or took a Unix socket.
    pub(crate) ends: Option<Ends>,
}

/// Why there is no header yet, or none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// So far it could become one.
    #[error("it is incomplete")]
    Incomplete,
    /// It never will.
    #[error("{0}")]
    Bad(&'static str),
}

/// The version in which a header is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Reads the header at the start of what a connection brought.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Fault> {
    if starts(bytes, V1_START)? {
        return parse_v1(bytes);
    }
    if starts(bytes, V2_SIGNATURE)? {
        return parse_v2(bytes);
    }
    Err(Fault::Bad("it begins with no header of the PROXY protocol"))
}

/// Whether the bytes begin with `start`; `Incomplete` while they may yet.
fn starts(bytes: &[u8], start: &[u8]) -> Result<bool, Fault> {
    let common = bytes.len().min(start.len());
    match bytes[..common] == start[..common] {
        true if common < start.len() => Err(Fault::Incomplete),
        same => Ok(same),
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Parsed, Fault> {
    let bytes = &bytes[..bytes.len().min(V1_BYTES_MAX)];
    // Control characters have no place in it, so that a line end that is none is found at once.
    let Some(end) = bytes.iter().position(|byte| !matches!(byte, b' '..=b'~')) else {
        return match bytes.len() {
            V1_BYTES_MAX => Err(Fault::Bad("its line is too long")),
            _ => Err(Fault::Incomplete),
        };
    };
    match &bytes[end..] {
        [b'\r', b'\n', ..] => {}
        [b'\r'] if end + 1 < V1_BYTES_MAX => return Err(Fault::Incomplete),
        _ => return Err(Fault::Bad("its line does not end as it must")),
    }
    let line = str::from_utf8(&bytes[..end]).map_err(|_| Fault::Bad("its line is no text"))?;
    let ends = line_ends(line).ok_or(Fault::Bad("its line does not tell two addresses"))?;
    Ok(Parsed { length: end + 2, ends })
}

/// What a line says; the outer `None` where it is malformed.
#[allow(clippy::option_option)]
fn line_ends(line: &str) -> Option<Option<Ends>> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let mut address = || match family {
        "TCP4" => words.next()?.parse().map(IpAddr::V4).ok(),
        "TCP6" => words.next()?.parse().map(IpAddr::V6).ok(),
        _ => None,
    };
    let (source, destination) = (address()?, address()?);
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    let ends = Ends {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    };
    words.next().is_none().then_some(Some(ends))
}

/// A number without sign and without leading zeros.
fn port(text: &str) -> Option<u16> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain)
}

fn parse_v2(bytes: &[u8]) -> Result<Parsed, Fault> {
    let Some(fixed) = bytes.get(..V2_FIXED_BYTES) else { return Err(Fault::Incomplete) };
    let (command, family) = (fixed[12], fixed[13]);
    let length = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if !matches!(command, V2_LOCAL | V2_PROXY) {
        return Err(Fault::Bad("its version or its command is not known"));
    }
    if length > V2_BYTES_MAX {
        return Err(Fault::Bad("it is too long"));
    }
    let Some(header) = bytes.get(..length) else { return Err(Fault::Incomplete) };
    let body = &header[V2_FIXED_BYTES..];
    // Of a check by the proxy itself everything else is to be ignored.
    if command == V2_LOCAL || family == V2_UNSPECIFIED {
        return Ok(Parsed { length, ends: None });
    }
    let short = Fault::Bad("its addresses are cut short");
    let (ends, entries) = match family {
        V2_TCP4 => ends_v4(body).map(|(ends, rest)| (Some(ends), rest)).ok_or(short)?,
        V2_TCP6 => ends_v6(body).map(|(ends, rest)| (Some(ends), rest)).ok_or(short)?,
        V2_UNIX => (None, body.get(V2_UNIX_BYTES..).ok_or(short)?),
        _ => return Err(Fault::Bad("it speaks of no stream")),
    };
    check_entries(header, length - entries.len())?;
    Ok(Parsed { length, ends })
}

fn ends_v4(body: &[u8]) -> Option<(Ends, &[u8])> {
    let (source, rest) = body.split_first_chunk::<4>()?;
    let (destination, rest) = rest.split_first_chunk::<4>()?;
    with_ports(Ipv4Addr::from(*source).into(), Ipv4Addr::from(*destination).into(), rest)
}

fn ends_v6(body: &[u8]) -> Option<(Ends, &[u8])> {
    let (source, rest) = body.split_first_chunk::<16>()?;
    let (destination, rest) = rest.split_first_chunk::<16>()?;
    with_ports(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), rest)
}

fn with_ports(source: IpAddr, destination: IpAddr, ports: &[u8]) -> Option<(Ends, &[u8])> {
    let (source_port, rest) = ports.split_first_chunk::<2>()?;
    let (destination_port, rest) = rest.split_first_chunk::<2>()?;
    let ends = Ends {
        source: SocketAddr::new(source, u16::from_be_bytes(*source_port)),
        destination: SocketAddr::new(destination, u16::from_be_bytes(*destination_port)),
    };
    Some((ends, rest))
}

/// Goes over the entries (type, length, value) from `at` to the end of the header. None of them
/// matters here but the checksum.
fn check_entries(header: &[u8], mut at: usize) -> Result<(), Fault> {
    let mut checked = false;
    while at < header.len() {
        let start = header.get(at..at + 3).ok_or(Fault::Bad("an entry is cut short"))?;
        let length = usize::from(u16::from_be_bytes([start[1], start[2]]));
        let value = header.get(at + 3..at + 3 + length);
        let value = value.ok_or(Fault::Bad("an entry is longer than the header"))?;
        if start[0] == TYPE_CRC32C {
            let given: [u8; 4] =
                value.try_into().map_err(|_| Fault::Bad("its checksum has not four bytes"))?;
            if checked || u32::from_be_bytes(given) != checksum(header, at + 3) {
                return Err(Fault::Bad("its checksum is wrong"));
            }
            checked = true;
        }
        at += 3 + length;
    }
    Ok(())
}

/// The checksum of a header, in which the four bytes at `hole` count as zeros.
fn checksum(header: &[u8], hole: usize) -> u32 {
    let crc = crc32c(!0, &header[..hole]);
    !crc32c(crc32c(crc, &[0; 4]), &header[hole + 4..])
}

/// CRC32C (RFC 3720, appendix B.4) bit by bit: it runs once for a connection, over a few dozen
/// bytes.
fn crc32c(mut crc: u32, bytes: &[u8]) -> u32 {
    const REVERSED_POLYNOMIAL: u32 = 0x82f6_3b78;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (REVERSED_POLYNOMIAL & low.wrapping_neg());
        }
    }
    crc
}

/// What a server is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) version: ProxyVersion,
    pub(crate) ends: Ends,
}

/// The header by which a server learns for whom a connection was made.
pub(crate) fn write(version: ProxyVersion, ends: &Ends) -> Vec<u8> {
    let (source, destination) = same_family(ends);
    let (source_port, destination_port) = (ends.source.port(), ends.destination.port());
    if version == ProxyVersion::V1 {
        let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
        let mut line = Vec::with_capacity(V1_BYTES_MAX);
        // A Vec takes everything.
        let _ = write!(
            line,
            "PROXY {family} {source} {destination} {source_port} {destination_port}\r\n"
        );
        return line;
    }
    let mut addresses = Vec::with_capacity(V2_FIXED_BYTES + 36);
    let family = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            addresses.extend(source.octets());
            addresses.extend(destination.octets());
            V2_TCP4
        }
        _ => {
            addresses.extend(v6(source).octets());
            addresses.extend(v6(destination).octets());
            V2_TCP6
        }
    };
    addresses.extend(source_port.to_be_bytes());
    addresses.extend(destination_port.to_be_bytes());
    let length = u16::try_from(addresses.len()).expect("two addresses have 36 bytes at most");
    let mut header = V2_SIGNATURE.to_vec();
    header.extend([V2_PROXY, family]);
    header.extend(length.to_be_bytes());
    header.extend(addresses);
    header
}

/// Both addresses in one family: IPv4 where both are.
fn same_family(ends: &Ends) -> (IpAddr, IpAddr) {
    let pair = (ends.source.ip().to_canonical(), ends.destination.ip().to_canonical());
    match pair {
        (IpAddr::V4(_), IpAddr::V4(_)) => pair,
        (source, destination) => (v6(source).into(), v6(destination).into()),
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

#[cfg(test)]
#[path = "proxy_header_tests.rs"]
mod tests;
