//! Heads on their way through: which fields go on, which end here, which are added.
//!
//! Fields are filtered while they are copied: removing them in place would change their order.

use crate::attempt::Outgoing;
use crate::head::{Framing, content_length, is_connection_option, is_protected};
use crate::labels::{Labels, TRACEPARENT, X_REQUEST_ID};
use crate::options::ForwardedTrust;
use crate::spare;
use crate::upgrade::agreed;
use crate::upstream::HeadFault;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{StatusCode, Version};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_CLIENT_CERT_SUBJECT: HeaderName = HeaderName::from_static("x-client-cert-subject");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Where the fields of a request go.
pub(crate) enum Fields<'a> {
    /// Into a map, for hyper.
    Map(&'a mut HeaderMap),
    /// Into the lines of a head (RFC 9112, 5).
    Lines(&'a mut Vec<u8>),
}

impl Fields<'_> {
    /// Room for the fields that the edge adds.
    pub(crate) const ADDED: usize = 11;

    fn add(&mut self, name: &HeaderName, value: &HeaderValue) {
        match self {
            Self::Map(map) => {
                map.append(name.clone(), value.clone());
            }
            Self::Lines(lines) => line(lines, name, value.as_bytes()),
        }
    }

    /// A value of the edge's own making.
    fn add_text(&mut self, name: &HeaderName, text: &[u8]) {
        match self {
            Self::Map(map) => {
                if let Ok(value) = HeaderValue::from_bytes(text) {
                    map.append(name.clone(), value);
                }
            }
            Self::Lines(lines) => line(lines, name, text),
        }
    }
}

fn line(lines: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    lines.extend_from_slice(name.as_str().as_bytes());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}

/// Fields of one connection, never of a message (RFC 9110, 7.6.1), and the framing, which is
/// written anew. `Proxy-Authorization` is for the first proxy, which is this one.
fn ends_here(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authorization"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "http2-settings"
            | "content-length"
            | "expect"
            | "host"
    )
}

/// Fields by which a client could pretend to be another one.
fn claims_origin(name: &str) -> bool {
    name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-")
}

/// Fields by which servers learn of a verified certificate: ours, and those of RFC 9440. Only who
/// ends TLS can know of it, which is this edge: they are dropped whoever sends them.
fn claims_certificate(name: &str) -> bool {
    name == "client-cert" || name == "client-cert-chain" || name.starts_with("x-client-cert-")
}

/// Whether a client's field is not passed on.
///
/// Servers with CGI-like interfaces read `_` as `-`: `X_Forwarded_For` must not get past us where
/// `X-Forwarded-For` does not.
fn is_filtered(name: &HeaderName, rewrite: bool, labels: &Labels) -> bool {
    let filtered = |name: &str| {
        ends_here(name)
            || claims_certificate(name)
            || (rewrite && claims_origin(name))
            || labels.replaces(name)
    };
    let name = name.as_str();
    filtered(name) || (name.contains('_') && filtered(&name.replace('_', "-")))
}

/// What is the same for all requests of one edge.
#[derive(Debug)]
pub(crate) struct Forwarder {
    trust: ForwardedTrust,
    via: HeaderValue,
    via_old: HeaderValue,
    via_http2: HeaderValue,
}

impl Forwarder {
    pub(crate) fn new(trust: ForwardedTrust, name: &str) -> Self {
        let value = |version: &str| {
            HeaderValue::try_from(format!("{version} {name}"))
                .expect("the options were checked: the name is a token")
        };
        Self { trust, via: value("1.1"), via_old: value("1.0"), via_http2: value("2") }
    }

    /// The fields of a request as the server gets them.
    pub(crate) fn request(&self, outgoing: &Outgoing, to: &mut Fields<'_>) {
        let Outgoing { parts, head, host, caller, slot, labels, .. } = outgoing;
        to.add(&header::HOST, host);
        let rewrite = self.trust == ForwardedTrust::Rewrite;
        let joined = joined_cookie(parts);
        for (name, value) in &parts.headers {
            if joined.is_some() && name == header::COOKIE {
                continue;
            }
            if !is_filtered(name, rewrite, labels) && !head.dropped.contains(name) {
                to.add(name, value);
            }
        }
        if let Some(cookie) = &joined {
            to.add(&header::COOKIE, cookie);
        }
        match head.framing {
            Framing::None => {}
            Framing::Length(bytes) => to.add(&header::CONTENT_LENGTH, &HeaderValue::from(bytes)),
            Framing::Chunked => {
                to.add(&header::TRANSFER_ENCODING, &HeaderValue::from_static("chunked"));
            }
        }
        if head.expects_continue {
            to.add(&header::EXPECT, &HeaderValue::from_static("100-continue"));
        }
        if let Some(protocols) = &head.upgrade {
            to.add(&header::CONNECTION, &HeaderValue::from_static("upgrade"));
            to.add(&header::UPGRADE, protocols);
        }
        to.add(&X_FORWARDED_FOR, &caller.forwarded_for);
        // `Connection` can't have dropped these: it may not name them.
        if rewrite || !parts.headers.contains_key(X_FORWARDED_PROTO) {
            to.add(&X_FORWARDED_PROTO, &HeaderValue::from_static(caller.scheme()));
        }
        if let Some(subject) = caller.subject_for(*slot) {
            to.add(&X_CLIENT_CERT_SUBJECT, subject);
        }
        if rewrite || !parts.headers.contains_key(X_FORWARDED_HOST) {
            to.add(&X_FORWARDED_HOST, host);
        }
        let via = match parts.version {
            Version::HTTP_10 => &self.via_old,
            Version::HTTP_2 => &self.via_http2,
            _ => &self.via,
        };
        to.add(&header::VIA, via);
        if let Some(id) = labels.id() {
            to.add_text(&X_REQUEST_ID, id);
        }
        if let Some(traceparent) = labels.traceparent() {
            to.add_text(&TRACEPARENT, traceparent);
        }
    }
}

/// The one cookie field of HTTP/1, where HTTP/2 has cut it into several (RFC 9113, 8.2.3).
fn joined_cookie(parts: &Parts) -> Option<HeaderValue> {
    if parts.version != Version::HTTP_2 {
        return None;
    }
    let mut crumbs = parts.headers.get_all(header::COOKIE).iter();
    let (first, second) = (crumbs.next()?, crumbs.next()?);
    let mut joined = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(crumb.as_bytes());
    }
    // Parts that may stand in a field may stand there together.
    HeaderValue::from_bytes(&joined).ok()
}

/// The fields of a server's response as the client gets them. hyper has read its framing, but
/// says nothing of what contradicts it.
pub(crate) fn response(
    status: StatusCode,
    from: &HeaderMap,
    offered: Option<&HeaderValue>,
) -> Result<HeaderMap, HeadFault> {
    let mut fields = ResponseFields::new(from.len());
    for (name, value) in from {
        fields.add(name.clone(), value.clone())?;
    }
    fields.finish(status, offered)
}

/// The fields of one response, on their way from the server to the client.
pub(crate) struct ResponseFields {
    to: HeaderMap,
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
    /// `Connection` says so.
    pub(crate) closes: bool,
    pub(crate) keeps: bool,
    /// Fields that `Connection` names.
    named: Vec<HeaderName>,
    /// `Connection` names `Upgrade`.
    switches: bool,
    upgrade: Option<HeaderValue>,
}

impl ResponseFields {
    pub(crate) fn new(count: usize) -> Self {
        // One for the length, one for the request's id.
        let to = spare::take(count + 2);
        let (length, upgrade, named) = (None, None, Vec::new());
        let (chunked, closes, keeps, switches) = (false, false, false, false);
        Self { to, length, chunked, closes, keeps, named, switches, upgrade }
    }

    /// Takes the next field, or says that the response is ambiguous.
    pub(crate) fn add(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), HeadFault> {
        if !ends_here(name.as_str()) {
            self.to.append(name, value);
        } else if name == header::CONTENT_LENGTH {
            let length = content_length([&value].into_iter()).flatten();
            let length = length.ok_or(HeadFault::Malformed)?;
            if self.length.is_some_and(|other| other != length) {
                return Err(HeadFault::Malformed);
            }
            self.length = Some(length);
        } else if name == header::TRANSFER_ENCODING {
            if self.chunked || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(HeadFault::Malformed);
            }
            self.chunked = true;
        } else if name == header::CONNECTION
            && let Ok(options) = value.to_str()
        {
            self.connection(options);
        } else if name == header::UPGRADE {
            self.upgrade = Some(value);
        }
        Ok(())
    }

    /// Puts down what is switched to, which must have been offered. No body may stand between
    /// (RFC 9110, 15.2).
    fn switch(&mut self, offered: Option<&HeaderValue>) -> Result<(), HeadFault> {
        let (Some(offered), Some(named)) = (offered, self.upgrade.take()) else {
            return Err(HeadFault::Malformed);
        };
        if !self.switches || self.chunked || self.length.is_some() || !agreed(offered, &named) {
            return Err(HeadFault::Malformed);
        }
        self.to.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        self.to.insert(header::UPGRADE, named);
        Ok(())
    }

    fn connection(&mut self, options: &str) {
        for option in options.split(',').map(str::trim) {
            self.closes |= option.eq_ignore_ascii_case("close");
            self.keeps |= option.eq_ignore_ascii_case("keep-alive");
            self.switches |= option.eq_ignore_ascii_case("upgrade");
            if !is_connection_option(option)
                && let Ok(name) = option.parse()
            {
                self.named.push(name);
            }
        }
    }

    /// The fields that go on. Those that `Connection` names do not, unless they matter.
    pub(crate) fn finish(
        mut self,
        status: StatusCode,
        offered: Option<&HeaderValue>,
    ) -> Result<HeaderMap, HeadFault> {
        if self.chunked && self.length.is_some() {
            return Err(HeadFault::Malformed);
        }
        if status == StatusCode::SWITCHING_PROTOCOLS {
            self.switch(offered)?;
        }
        let dropped = |name: &HeaderName| self.named.contains(name) && !is_protected(name.as_str());
        if self.to.keys().any(dropped) {
            let kept = self.to.iter().filter(|(name, _)| !dropped(name));
            self.to = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        }
        // These have no body; their length would be that of another response.
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if let (Some(bytes), false) = (self.length, bodiless) {
            self.to.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        Ok(self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{Caller, Secured};
    use crate::head::Head;
    use crate::hosts::SiteSlot;
    use http::Request;
    use std::rc::Rc;

    fn forward(request: http::request::Builder, trust: ForwardedTrust) -> HeaderMap {
        let caller = Caller::new("[::ffff:192.0.2.7]:9".parse().unwrap(), None);
        forward_of(caller, request, trust)
    }

    fn forward_of(
        caller: Caller,
        request: http::request::Builder,
        trust: ForwardedTrust,
    ) -> HeaderMap {
        let caller = Rc::new(caller);
        let parts = request.header("host", "a.example").body(()).unwrap().into_parts().0;
        let head = Head::read(&parts, 1_000).unwrap();
        let host = head.host.clone().unwrap();
        let labels = Labels::default();
        let (slot, upload, announced, upgrade_share) = (SiteSlot(0), None, None, None);
        let outgoing =
            Outgoing { parts, head, host, caller, slot, upload, labels, announced, upgrade_share };
        let (mut map, mut lines) = (HeaderMap::new(), Vec::new());
        let forwarder = Forwarder::new(trust, "edge");
        forwarder.request(&outgoing, &mut Fields::Map(&mut map));
        forwarder.request(&outgoing, &mut Fields::Lines(&mut lines));
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}\r\n", value.to_str().unwrap())
        };
        let mut of_map: Vec<_> = map.iter().map(line).collect();
        let text = String::from_utf8(lines).unwrap();
        let mut of_lines: Vec<_> = text.split_inclusive("\r\n").map(str::to_owned).collect();
        // A map puts fields of one name together.
        of_map.sort();
        of_lines.sort();
        assert_eq!(of_map, of_lines);
        map
    }

    fn claims() -> http::request::Builder {
        Request::post("/")
            .header("x-forwarded-for", "10.0.0.1")
            .header("x-forwarded-proto", "https")
            .header("x-forwarded-port", "443")
            .header("forwarded", "for=10.0.0.1")
            .header("x-real-ip", "10.0.0.1")
            .header("x_forwarded_for", "10.0.0.1")
            .header("transfer_encoding", "chunked")
            .header("x_other", "kept")
    }

    fn all<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    #[test]
    fn claims_of_a_stranger_are_replaced() {
        let to = forward(claims(), ForwardedTrust::Rewrite);
        assert_eq!(all(&to, "x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(all(&to, "x-forwarded-proto"), ["http"]);
        assert_eq!(all(&to, "x-forwarded-host"), ["a.example"]);
        assert!(to.contains_key("x_other"));
        for name in
            ["forwarded", "x-real-ip", "x-forwarded-port", "x_forwarded_for", "transfer_encoding"]
        {
            assert!(!to.contains_key(name), "{name}");
        }
    }

    #[test]
    fn claims_of_a_trusted_proxy_are_kept_and_appended_to() {
        let to = forward(claims(), ForwardedTrust::Append);
        assert_eq!(all(&to, "x-forwarded-for"), ["10.0.0.1", "192.0.2.7"]);
        assert_eq!(all(&to, "x-forwarded-proto"), ["https"]);
    }

    #[test]
    fn certificates_are_told_of_by_the_edge_alone() {
        let pretends = || {
            Request::get("/")
                .header("x-client-cert-subject", "CN=root")
                .header("x_client_cert_subject", "CN=root")
                .header("x-client-cert-verified", "1")
                .header("client-cert", ":MII=:")
                .header("client-cert-chain", ":MII=:")
        };
        let address = "192.0.2.7:9".parse().unwrap();
        let subject = Some(HeaderValue::from_static("CN=alice"));
        let secured = |slot, verified| {
            Some(Secured { slot: SiteSlot(slot), verified, subject: subject.clone() })
        };
        for trust in [ForwardedTrust::Rewrite, ForwardedTrust::Append] {
            for secured in [None, secured(0, false), secured(1, true)] {
                let is_tls = secured.is_some();
                let caller = Caller { secured, ..Caller::new(address, None) };
                let to = forward_of(caller, pretends(), trust);
                let told: Vec<_> =
                    to.keys().filter(|name| name.as_str().contains("cert")).collect();
                assert_eq!(told, Vec::<&HeaderName>::new());
                let scheme = if is_tls { "https" } else { "http" };
                assert_eq!(all(&to, "x-forwarded-proto"), [scheme]);
            }
            let caller = Caller { secured: secured(0, true), ..Caller::new(address, None) };
            let to = forward_of(caller, pretends(), trust);
            assert_eq!(all(&to, "x-client-cert-subject"), ["CN=alice"]);
            assert_eq!(to.keys().filter(|name| name.as_str().contains("cert")).count(), 1);
        }
    }

    #[test]
    fn crumbs_of_a_cookie_become_one_field() {
        let crumbs = |version| {
            let request = Request::get("/").version(version);
            request.header("cookie", "a=1").header("x", "y").header("cookie", "b=2; c=3")
        };
        let to = forward(crumbs(Version::HTTP_2), ForwardedTrust::Rewrite);
        assert_eq!(all(&to, "cookie"), ["a=1; b=2; c=3"]);
        assert_eq!(all(&to, "via"), ["2 edge"]);
        let to = forward(crumbs(Version::HTTP_11), ForwardedTrust::Rewrite);
        assert_eq!(all(&to, "cookie"), ["a=1", "b=2; c=3"]);
    }

    #[test]
    fn fields_of_the_connection_end_here() {
        let request = Request::post("/")
            .header("connection", "close, x-hop")
            .header("x-hop", "1")
            .header("keep-alive", "timeout=5")
            .header("te", "trailers")
            .header("upgrade", "websocket")
            .header("proxy-authorization", "Basic eA==")
            .header("via", "1.0 other")
            .header("accept", "a")
            .header("accept", "b")
            .header("content-length", "007");
        let to = forward(request, ForwardedTrust::Rewrite);
        for name in ["connection", "x-hop", "keep-alive", "te", "upgrade", "proxy-authorization"] {
            assert!(!to.contains_key(name), "{name}");
        }
        assert_eq!(all(&to, "via"), ["1.0 other", "1.1 edge"]);
        assert_eq!(all(&to, "accept"), ["a", "b"]);
        assert_eq!(all(&to, "content-length"), ["7"]);
        assert_eq!(all(&to, "host"), ["a.example"]);
    }

    #[test]
    fn contradictory_responses_are_refused() {
        let check = |fields: &[(&'static str, &'static str)]| {
            let mut from = HeaderMap::new();
            for &(name, value) in fields {
                from.append(name, HeaderValue::from_static(value));
            }
            response(StatusCode::OK, &from, None)
        };
        let lengths = check(&[("content-length", "5"), ("content-length", "5")]).unwrap();
        assert_eq!(all(&lengths, "content-length"), ["5"]);
        let chunked = check(&[("transfer-encoding", "chunked"), ("set-cookie", "a")]).unwrap();
        assert!(!chunked.contains_key("transfer-encoding") && chunked.contains_key("set-cookie"));
        for bad in [
            &[("content-length", "5"), ("content-length", "6")][..],
            &[("content-length", "5, 5")],
            &[("content-length", "5"), ("transfer-encoding", "chunked")],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
        ] {
            assert!(matches!(check(bad), Err(HeadFault::Malformed)), "{bad:?}");
        }
    }

    #[test]
    fn a_responses_connection_drops_fields_but_not_those_that_matter() {
        let mut from = HeaderMap::new();
        from.append("connection", HeaderValue::from_static("x-a, set-cookie, close"));
        from.append("x-a", HeaderValue::from_static("1"));
        from.append("set-cookie", HeaderValue::from_static("s"));
        let to = response(StatusCode::OK, &from, None).unwrap();
        assert_eq!(to.len(), 1);
        assert!(to.contains_key("set-cookie"));
    }

    #[test]
    fn a_server_switches_to_what_was_offered_and_to_nothing_else() {
        let offered = HeaderValue::from_static("websocket");
        let check = |fields: &[(&'static str, &'static str)], offered: Option<&HeaderValue>| {
            let mut from = HeaderMap::new();
            for &(name, value) in fields {
                from.append(name, HeaderValue::from_static(value));
            }
            response(StatusCode::SWITCHING_PROTOCOLS, &from, offered)
        };
        let good = [("connection", "x-hop, Upgrade"), ("upgrade", "WebSocket"), ("x-hop", "1")];
        let to = check(&good, Some(&offered)).unwrap();
        assert_eq!(
            (all(&to, "connection"), all(&to, "upgrade")),
            (vec!["upgrade"], vec!["WebSocket"])
        );
        assert!(!to.contains_key("x-hop"));
        assert!(check(&good, None).is_err(), "nobody asked");
        for bad in [
            &good[..1],
            &good[1..],
            &[("connection", "upgrade"), ("upgrade", "h2c")],
            &[good[0], good[1], ("content-length", "0")],
            &[good[0], good[1], ("transfer-encoding", "chunked")],
        ] {
            assert!(check(bad, Some(&offered)).is_err(), "{bad:?}");
        }
    }
}
