//! Noise against what reads requests: heads that are taken must leave us in one spelling only.

use crate::answer::Reason;
use crate::attempt::Outgoing;
use crate::caller::Caller;
use crate::fast_path;
use crate::forward::{Fields, Forwarder};
use crate::head::{Framing, Head};
use crate::hosts::{SiteMap, SiteSlot, host_of};
use crate::labels::{Chance, LabelRules, Labels};
use crate::options::{ForwardedTrust, SiteOptions};
use fuzzing::{Random, Target};
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{Request, Version};
use pool_model::SiteId;
use std::net::IpAddr;
use std::rc::Rc;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

const CLIENT: &str = "192.0.2.7";

/// Longest target that the head's reader is told to take.
const URI_BYTES_MAX: usize = 300;

const TOKENS: [&str; 57] = [
    "GET ",
    "POST ",
    "HEAD ",
    "OPTIONS * ",
    "CONNECT ",
    "http://",
    "https://a.example",
    "ftp://",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "\r\n",
    "\r\n ",
    "\n",
    "\r",
    "Host: a.example\r\n",
    "Host: [::1]:80\r\n",
    "host:",
    "Content-Length: 5\r\n",
    "Content-Length: 05\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 18446744073709551616\r\n",
    "Content_Length: 9\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer_Encoding: chunked\r\n",
    "transfer-encoding:\tCHUNKED\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive, X-A\r\n",
    "Connection: content-length\r\n",
    "Connection: host, x-forwarded-for\r\n",
    "Proxy-Connection: x\r\n",
    "Keep-Alive: 5\r\n",
    "X-A: 1\r\n",
    "Expect: 100-continue\r\n",
    "Expect: 200-maybe\r\n",
    "Upgrade: websocket\r\n",
    "TE: trailers\r\n",
    "Trailer: X\r\n",
    "Forwarded: for=10.0.0.1\r\n",
    "X-Forwarded-For: 10.0.0.1\r\n",
    "X_Forwarded_For: 10.0.0.1\r\n",
    "X-Forwarded-Proto: https\r\n",
    "X-Forwarded-Host: b\r\n",
    "X-Real-IP: 10.0.0.1\r\n",
    "Via: 1.0 other\r\n",
    "Proxy-Authorization: Basic eA==\r\n",
    "X-Request-Id: abc\r\n",
    "X_Request_Id: abc\r\n",
    "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
    "Traceparent: cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-x\r\n",
    "Tracestate: a=b\r\n",
    "u:p@",
    "%00",
    "?",
    "#",
    "\\",
];

/// A head as hyper would hand it over; none for what its parser refuses.
fn parsed(bytes: &[u8]) -> Option<Parts> {
    let mut fields = [httparse::EMPTY_HEADER; 100];
    let mut read = httparse::Request::new(&mut fields);
    if !matches!(read.parse(bytes), Ok(httparse::Status::Complete(_))) {
        return None;
    }
    let version = if read.version? == 1 { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut request = Request::builder().method(read.method?).uri(read.path?).version(version);
    for field in read.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        request = request.header(name, HeaderValue::from_bytes(field.value).ok()?);
    }
    Some(request.body(()).ok()?.into_parts().0)
}

/// The lines that go to the server, as names and values: the letters of RFC 9110 and no others.
fn lines(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let line = |line: &[u8]| {
        let at = line.iter().position(|&byte| byte == b':').expect("each line is a field");
        let (name, value) = line.split_at(at);
        let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        assert!(!name.is_empty() && name.iter().all(token), "{:?}", name.escape_ascii());
        let value = value.strip_prefix(b": ").expect("one blank behind the colon");
        let odd = value.iter().find(|&&byte| (byte < b' ' && byte != b'\t') || byte == 0x7f);
        assert!(odd.is_none(), "{odd:?} in {:?}", value.escape_ascii());
        (String::from_utf8(name.to_vec()).unwrap(), value.to_vec())
    };
    let text = head.strip_suffix(b"\r\n").expect("the last line ends");
    let mut rest = text;
    let mut lines = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        lines.push(line(&rest[..end]));
        rest = &rest[end + 2..];
    }
    lines.push(line(rest));
    lines
}

fn all<'a>(lines: &'a [(String, Vec<u8>)], wanted: &str) -> Vec<&'a [u8]> {
    // Servers with CGI-like interfaces read `_` as `-`.
    let matches = |name: &str| name.replace('_', "-").eq_ignore_ascii_case(wanted);
    lines.iter().filter(|(name, _)| matches(name)).map(|(_, value)| &value[..]).collect()
}

/// What the server gets of a head that was taken.
fn check_forwarded(parts: Parts, head: Head, trust: ForwardedTrust, chance: &Chance) {
    let host = head.host.clone().unwrap_or_else(|| HeaderValue::from_static("default.example"));
    let (framing, dropped) = (head.framing, head.dropped.clone());
    let expects = head.expects_continue;
    let caller = Rc::new(Caller::new((CLIENT.parse::<IpAddr>().unwrap(), 1_024).into(), None));
    let trusts_id = trust == ForwardedTrust::Append;
    let rules = LabelRules { request_id: true, trusts_id, trace: true };
    let labels = Labels::new(rules, &parts.headers, chance);
    let outgoing = Outgoing {
        parts,
        head,
        host: host.clone(),
        caller,
        slot: SiteSlot(0),
        upload: None,
        labels,
        announced: None,
        upgrade_share: None,
    };
    let mut bytes = Vec::new();
    Forwarder::new(trust, "edge").request(&outgoing, &mut Fields::Lines(&mut bytes));
    let lines = lines(&bytes);
    assert_eq!(all(&lines, "host"), [host.as_bytes()]);
    assert!(host_of(host.as_bytes()).is_some());
    let (lengths, codings) = (all(&lines, "content-length"), all(&lines, "transfer-encoding"));
    match framing {
        Framing::None => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Chunked => assert!(lengths.is_empty() && codings == [b"chunked"]),
        Framing::Length(bytes) => {
            assert_eq!(lengths, [bytes.to_string().as_bytes()]);
            assert!(codings.is_empty());
        }
    }
    let none = ["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"];
    for name in none.into_iter().chain(["http2-settings", "proxy-authorization"]) {
        assert!(all(&lines, name).is_empty(), "{name} goes on");
    }
    assert!(dropped.iter().all(|name| !lines.iter().any(|(line, _)| line == name.as_str())));
    assert_eq!(!all(&lines, "expect").is_empty(), expects);
    assert_eq!(all(&lines, "x-forwarded-for").last(), Some(&CLIENT.as_bytes()));
    for (name, bytes) in [("x-request-id", 1..=128), ("traceparent", 55..=55)] {
        let label = all(&lines, name);
        assert!(label.len() == 1 && bytes.contains(&label[0].len()), "{name}: {label:?}");
        assert!(label[0].iter().all(u8::is_ascii_graphic), "{name}: {label:?}");
    }
    assert!(all(&lines, "via").last().is_some_and(|via| via.ends_with(b" edge")));
    if trust == ForwardedTrust::Rewrite {
        assert_eq!(all(&lines, "x-forwarded-for").len(), 1);
        assert_eq!(all(&lines, "x-forwarded-host"), [host.as_bytes()]);
        assert_eq!(all(&lines, "x-forwarded-proto"), [b"http"]);
        assert!(all(&lines, "forwarded").is_empty() && all(&lines, "x-real-ip").is_empty());
    }
}

/// What the fast path takes is one whole request, as hyper reads it, that leaves the connection
/// alone.
fn check_fast_path(bytes: &[u8]) {
    let Some(parts) = fast_path::parse(bytes) else { return };
    assert!(fast_path::is_one_head(bytes));
    let other = parsed(bytes).expect("hyper takes it too");
    assert_eq!((&parts.method, &parts.uri), (&other.method, &other.uri));
    assert_eq!((parts.version, &parts.headers), (other.version, &other.headers));
    if let Ok(head) = Head::read(&parts, URI_BYTES_MAX) {
        assert!(head.framing == Framing::None && head.upgrade.is_none());
        assert!(!head.expects_continue && head.dropped.is_empty());
    }
}

#[test]
fn fuzz_request_heads() {
    #[derive(Hash)]
    enum Outcome {
        NoHead,
        Refused(&'static str),
        Taken(bool, u8, bool, usize, usize),
    }
    let chance = Chance::seeded();
    let check = |bytes: &[u8], random: &mut Random| {
        check_fast_path(bytes);
        let Some(parts) = parsed(bytes) else { return Outcome::NoHead };
        let head = match Head::read(&parts, URI_BYTES_MAX) {
            Ok(head) => head,
            Err(reason) => return Outcome::Refused(Reason::name(reason)),
        };
        assert!(head.host.is_some() || parts.version == Version::HTTP_10);
        let target = head.target.as_str();
        assert!(!target.contains([' ', '\r', '\n', '\0', '#']), "{target:?}");
        assert!(target.len() <= URI_BYTES_MAX);
        let framing = match head.framing {
            Framing::None => 0,
            Framing::Length(0) => 1,
            Framing::Length(_) => 2,
            Framing::Chunked => 3,
        };
        let modern = parts.version == Version::HTTP_11;
        let (dropped, fields) = (head.dropped.len(), parts.headers.len());
        let outcome = Outcome::Taken(modern, framing, head.expects_continue, dropped, fields);
        let trust = *random.pick(&[ForwardedTrust::Rewrite, ForwardedTrust::Append]);
        check_forwarded(parts, head, trust, &chance);
        outcome
    };
    Target::new("request_heads", HERE).tokens(&TOKENS).run(check);
}

/// A second reading of an authority: by letters, without the first one's shortcuts.
fn naive_host(authority: &str) -> Option<String> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (address, rest) = inner.split_once(']')?;
            if address.is_empty()
                || address.contains(|c: char| !"0123456789abcdefABCDEF:.".contains(c))
            {
                return None;
            }
            (format!("[{address}]"), rest.to_owned())
        }
        None => {
            let (name, rest) = match authority.split_once(':') {
                Some((name, port)) => (name, format!(":{port}")),
                None => (authority, String::new()),
            };
            let name = name.strip_suffix('.').unwrap_or(name);
            let letter = |c: char| c.is_ascii_alphanumeric() || ['-', '.', '_'].contains(&c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(letter) {
                return None;
            }
            (name.to_owned(), rest)
        }
    };
    let port = rest.strip_prefix(':').unwrap_or(&rest);
    let has_colon = rest.starts_with(':');
    let port_is_good = port.len() <= 5 && port.chars().all(|c| c.is_ascii_digit());
    ((rest.is_empty() || (has_colon && port_is_good)) && host.len() <= 255).then_some(host)
}

#[test]
fn fuzz_hosts() {
    let site = |number: u16, hosts: &[&str]| {
        SiteOptions::new(SiteId::new(number).unwrap(), &format!("site{number}"), hosts)
    };
    let sites = [
        site(1, &["www.example.org", "[::1]"]),
        site(2, &["*.example.org"]),
        site(3, &["*.deep.example.org", "a.example"]),
    ];
    let map = SiteMap::new(&sites, None).unwrap();
    // The longest name or subtree that fits, found by comparing with all of them.
    let naive_find = |host: &str| {
        let host = host.to_ascii_lowercase();
        let fits = |name: &str| match name.strip_prefix('*') {
            Some(subtree) => host.len() > subtree.len() && host.ends_with(subtree),
            None => host == name,
        };
        let names = sites.iter().enumerate().flat_map(|(at, site)| {
            site.hosts.iter().filter(|name| fits(name)).map(move |name| (at, name))
        });
        names.max_by_key(|(_, name)| (!name.starts_with('*'), name.len())).map(|(at, _)| at)
    };
    let check = |bytes: &[u8], _: &mut Random| {
        let host = host_of(bytes);
        let text = std::str::from_utf8(bytes).ok();
        let naive = text.and_then(naive_host);
        assert_eq!(host, naive.as_deref().map(str::as_bytes));
        let host = host?;
        let found = map.find(host).map(|slot| slot.0);
        assert_eq!(found, naive_find(naive.as_deref().unwrap_or_default()));
        // A host that was taken is its own host.
        assert!(host.ends_with(b".") || host_of(host) == Some(host));
        // A name that a settings file may hold finds its own site, or is refused.
        if let Some(text) = text
            && let Ok(map) = SiteMap::new(&[site(1, &[text])], None)
            && !text.starts_with("*.")
        {
            assert_eq!(map.find(host).map(|slot| slot.0), Some(0));
        }
        Some((found, host.len().min(8)))
    };
    let tokens = ["www.", "example.org", "deep.", "a.example", "[::1]", ":80", ":99999", ".", "*."];
    Target::new("hosts", HERE).tokens(&tokens).bytes_max(600).run(check);
}
