//! The fast path: hits that are answered from the bytes of the socket, before hyper makes a request
//! of them.
//!
//! ```text
//! socket ─► ClientWire::poll_read ─┬─ one whole GET, and a hit ─► the socket; the next is read
//!                                  └─ anything else ─► hyper, which reads the same bytes
//! ```
//!
//! It is tried only where hyper holds no byte of the next request and the last one of the
//! connection was a hit, so that other requests do not pay for it; not under TLS, and not in
//! HTTP/2. What it does not take, hyper reads as if nothing had happened. The same rules decide as
//! in `serve`, by the same code, and what is counted, limited, logged and audited is the same.
//!
//! It saves a hit a fifth of the edge's CPU time.

use crate::attempt::Outgoing;
use crate::cached;
use crate::core::Core;
use crate::face::Dispatcher;
use crate::head::{Framing, Head};
use crate::live::Live;
use crate::purge;
use crate::serve::site_of;
use crate::spare;
use crate::upstream::find_end;
use crate::wire::Client;
use bytes::{Buf as _, Bytes};
use http::header::{self, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Version};
use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// Fields of a request that is tried: browsers send some twenty.
const FIELDS_MAX: usize = 48;

/// Fields that say how a request's body comes, or what is to become of the connection.
const NOT_PLAIN: [HeaderName; 4] =
    [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE, header::EXPECT];

/// Who answers a request from its bytes.
pub(crate) trait Answering {
    /// Whether there may be anything to answer with.
    fn is_on(&self) -> bool;

    /// Answers one whole request, and counts it: sends the head of the response and its body. False
    /// if that is not for it: then nothing has been done.
    fn answer(&self, request: &[u8], send: &mut dyn FnMut(&[u8], &Bytes)) -> bool;
}

thread_local! {
    /// The head of an answer, on its way to the socket.
    static HEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// That of one connection.
pub(crate) struct FastPath<D: Dispatcher> {
    pub(crate) live: Rc<Live<D>>,
    pub(crate) client: Rc<Client>,
}

impl<D: Dispatcher> Answering for FastPath<D> {
    fn is_on(&self) -> bool {
        self.live.core().shared.cached.is_some()
    }

    fn answer(&self, request: &[u8], send: &mut dyn FnMut(&[u8], &Bytes)) -> bool {
        let core = self.live.core();
        // Each answer ends its connection then.
        if core.draining.get() {
            return false;
        }
        let outgoing = parse(request).and_then(|parts| self.outgoing(&core, parts));
        let Some(mut outgoing) = outgoing else { return false };
        let answered = HEAD.with_borrow_mut(|head| {
            head.clear();
            cached::answer_at_once(&core, &self.client, &mut outgoing, head, send)
        });
        spare::keep(outgoing.parts.headers);
        answered.is_some()
    }
}

impl<D: Dispatcher> FastPath<D> {
    /// The request, if `serve` would accept it.
    fn outgoing(&self, core: &Core<D>, parts: Parts) -> Option<Outgoing> {
        let shared = &core.shared;
        if parts.headers.len() > shared.options.headers_max {
            return None;
        }
        let head = Head::read(&parts, shared.options.uri_bytes_max).ok()?;
        let slot = site_of(core, &head)?;
        let site = &shared.options.sites[slot.0];
        let caller = Rc::clone(&self.client.caller);
        let is_refused = shared.tls.requires(slot) && !caller.is_verified_for(slot);
        let is_plain = head.framing == Framing::None && head.upgrade.is_none();
        if is_refused || !is_plain || purge::is_asked(site, &parts.method, head.target.path()) {
            return None;
        }
        Outgoing::new(site, parts, head, caller, slot)
    }
}

/// A GET of HTTP/1.1 without a body that leaves the connection as it is, and nothing behind it.
pub(crate) fn parse(request: &[u8]) -> Option<Parts> {
    if !request.starts_with(b"GET /") {
        return None;
    }
    let mut slots = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let status = parsed.parse_with_uninit_headers(request, &mut slots).ok()?;
    if status != httparse::Status::Complete(request.len()) || parsed.version != Some(1) {
        return None;
    }
    let bytes = Bytes::copy_from_slice(request);
    let place = |part: &[u8]| {
        let start = part.as_ptr().addr() - request.as_ptr().addr();
        bytes.slice(start..start + part.len())
    };
    let mut headers = spare::take(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let keeps = name != header::CONNECTION || field.value.eq_ignore_ascii_case(b"keep-alive");
        if !keeps || NOT_PLAIN.contains(&name) {
            return None;
        }
        headers.append(name, HeaderValue::from_maybe_shared(place(field.value)).ok()?);
    }
    let target = PathAndQuery::from_maybe_shared(place(parsed.path?.as_bytes())).ok()?;
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.uri, parts.version, parts.headers) = (target.into(), Version::HTTP_11, headers);
    Some(parts)
}

/// Whether these bytes are a request's head, with nothing behind it.
pub(crate) fn is_one_head(bytes: &[u8]) -> bool {
    find_end(bytes, 0) == Some(bytes.len())
}

/// Of an answer, what the socket has not taken yet.
#[derive(Debug)]
pub(crate) struct Owed {
    head: Bytes,
    body: Bytes,
}

impl Owed {
    /// What is left when so many bytes were taken.
    pub(crate) fn rest(head: &[u8], body: &Bytes, taken: usize) -> Self {
        let of_head = taken.min(head.len());
        let head = Bytes::copy_from_slice(&head[of_head..]);
        let mut owed = Self { head, body: body.clone() };
        owed.advance(taken - of_head);
        owed
    }

    pub(crate) fn slices(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.head), IoSlice::new(&self.body)]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    /// Bytes were taken.
    pub(crate) fn advance(&mut self, taken: usize) {
        let of_head = taken.min(self.head.len());
        self.head.advance(of_head);
        self.body.advance(taken - of_head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_tried(request: &str) -> bool {
        parse(request.as_bytes()).is_some()
    }

    #[test]
    fn a_plain_get_is_tried_and_read_as_hyper_reads_it() {
        let parts = parse(
            b"GET /a?b=c HTTP/1.1\r\nHost: A.example\r\nAccept: x\r\nAccept:  y \r\n\
              Connection: Keep-Alive\r\n\r\n",
        );
        let parts = parts.unwrap();
        assert_eq!((parts.method, parts.version), (http::Method::GET, Version::HTTP_11));
        assert_eq!(parts.uri, "/a?b=c");
        assert_eq!(parts.headers[header::HOST], "A.example");
        let accepted: Vec<_> = parts.headers.get_all(header::ACCEPT).iter().collect();
        assert_eq!(accepted, ["x", "y"]);
    }

    #[test]
    fn whatever_is_not_plain_is_left_to_hyper() {
        let with = |field: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n");
        assert!(is_tried(&with("Accept: */*")));
        for field in [
            "Content-Length: 0",
            "content-length: 5",
            "Transfer-Encoding: chunked",
            "Upgrade: websocket",
            "Expect: 100-continue",
            "Connection: close",
            "Connection: keep-alive, x-a",
            "Bad Name: x",
            "X: a\0b",
            ": x",
        ] {
            assert!(!is_tried(&with(field)), "{field}");
        }
        for request in [
            "",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nG",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        ] {
            assert!(!is_tried(request), "{request:?}");
        }
        let many = "X: y\r\n".repeat(FIELDS_MAX + 1);
        assert!(!is_tried(&format!("GET / HTTP/1.1\r\n{many}\r\n")));
    }

    #[test]
    fn one_head_has_one_end() {
        for head in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\n\n", "\r\nGET /\r\n\r\n"]
        {
            assert!(is_one_head(head.as_bytes()), "{head:?}");
        }
        for other in
            ["", "GET /", "GET / HTTP/1.1\r\n", "a\n\nb\r\n\r\n", "a\n\r\nb\r\n\r\n", "a\r\n\r\nb"]
        {
            assert!(!is_one_head(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn what_is_owed_is_what_was_not_taken() {
        let all = b"headbody";
        for taken in 0..all.len() {
            for again in 0..=all.len() - taken {
                let mut owed = Owed::rest(b"head", &Bytes::from_static(b"body"), taken);
                owed.advance(again);
                let left: Vec<u8> = owed.slices().iter().flat_map(|part| part.to_vec()).collect();
                assert_eq!(left, all[taken + again..]);
                assert_eq!(owed.is_empty(), left.is_empty());
            }
        }
    }
}
