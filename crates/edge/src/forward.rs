//! Heads on their way through: which fields go on, which end here, which are added.
//!
//! Fields are filtered while they are copied: removing them in place would change their order.

use crate::answer::Reason;
use crate::head::{Framing, Head, content_length, is_connection_option, is_protected};
use crate::options::ForwardedTrust;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{StatusCode, Version};
use std::net::IpAddr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Room for the fields that the edge adds.
const ADDED_FIELDS: usize = 6;

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

/// Whether a client's field is not passed on.
///
/// Servers with CGI-like interfaces read `_` as `-`: `X_Forwarded_For` must not get past us where
/// `X-Forwarded-For` does not.
fn is_filtered(name: &HeaderName, rewrite: bool) -> bool {
    let filtered = |name: &str| ends_here(name) || (rewrite && claims_origin(name));
    let name = name.as_str();
    filtered(name) || (name.contains('_') && filtered(&name.replace('_', "-")))
}

/// What is the same for all requests of one edge.
#[derive(Debug)]
pub(crate) struct Forwarder {
    trust: ForwardedTrust,
    via: HeaderValue,
    via_old: HeaderValue,
}

impl Forwarder {
    pub(crate) fn new(trust: ForwardedTrust, name: &str) -> Self {
        let value = |version: &str| {
            HeaderValue::try_from(format!("{version} {name}"))
                .expect("the options were checked: the name is a token")
        };
        Self { trust, via: value("1.1"), via_old: value("1.0") }
    }

    /// The fields of a request as the server gets them.
    pub(crate) fn request(
        &self,
        parts: &Parts,
        head: &Head,
        host: &HeaderValue,
        client: &HeaderValue,
    ) -> HeaderMap {
        let mut to = HeaderMap::with_capacity(parts.headers.len() + ADDED_FIELDS);
        to.insert(header::HOST, host.clone());
        let rewrite = self.trust == ForwardedTrust::Rewrite;
        for (name, value) in &parts.headers {
            if is_filtered(name, rewrite) || head.dropped.contains(name) {
                continue;
            }
            to.append(name.clone(), value.clone());
        }
        match head.framing {
            Framing::None => {}
            Framing::Length(bytes) => {
                to.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
            }
            Framing::Chunked => {
                let chunked = HeaderValue::from_static("chunked");
                to.insert(header::TRANSFER_ENCODING, chunked);
            }
        }
        if head.expects_continue {
            to.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        to.append(X_FORWARDED_FOR, client.clone());
        if rewrite || !to.contains_key(X_FORWARDED_PROTO) {
            to.insert(X_FORWARDED_PROTO, HeaderValue::from_static("http"));
        }
        if rewrite || !to.contains_key(X_FORWARDED_HOST) {
            to.insert(X_FORWARDED_HOST, host.clone());
        }
        let via = if parts.version == Version::HTTP_10 { &self.via_old } else { &self.via };
        to.append(header::VIA, via.clone());
        to
    }
}

/// An address as it stands in `X-Forwarded-For`.
pub(crate) fn client_value(address: IpAddr) -> HeaderValue {
    HeaderValue::try_from(address.to_canonical().to_string())
        .expect("an address is written in ASCII")
}

/// The fields of a server's response as the client gets them; hyper has read its framing, but
/// says nothing of what contradicts it.
pub(crate) fn response(status: StatusCode, from: &HeaderMap) -> Result<HeaderMap, Reason> {
    // Nobody asked for another protocol: `Upgrade` is not forwarded.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Reason::BadResponse);
    }
    let lengths = from.get_all(header::CONTENT_LENGTH).iter();
    let length = content_length(lengths).ok_or(Reason::BadResponse)?;
    let mut codings = from.get_all(header::TRANSFER_ENCODING).iter();
    if let Some(coding) = codings.next() {
        let chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        if !chunked || length.is_some() || codings.next().is_some() {
            return Err(Reason::BadResponse);
        }
    }
    let dropped = connection_names(from);
    let mut to = HeaderMap::with_capacity(from.len() + 1);
    for (name, value) in from {
        let named = dropped.contains(name) && !is_protected(name.as_str());
        if !named && !ends_here(name.as_str()) {
            to.append(name.clone(), value.clone());
        }
    }
    // These have no body; their length would be that of another response.
    let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if let (Some(bytes), false) = (length, bodiless) {
        to.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    }
    Ok(to)
}

/// Fields that a response's `Connection` names. Those that matter are kept all the same.
fn connection_names(from: &HeaderMap) -> Vec<HeaderName> {
    let values = from.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(|name| name.trim_matches(' '));
    names.filter(|name| !is_connection_option(name)).filter_map(|name| name.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn forward(request: http::request::Builder, trust: ForwardedTrust) -> HeaderMap {
        let parts = request.header("host", "a.example").body(()).unwrap().into_parts().0;
        let head = Head::read(&parts, 1_000).unwrap();
        let host = head.host.clone().unwrap();
        let client = client_value("::ffff:192.0.2.7".parse().unwrap());
        Forwarder::new(trust, "edge").request(&parts, &head, &host, &client)
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
            response(StatusCode::OK, &from)
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
            assert_eq!(check(bad).unwrap_err(), Reason::BadResponse, "{bad:?}");
        }
    }

    #[test]
    fn a_responses_connection_drops_fields_but_not_those_that_matter() {
        let mut from = HeaderMap::new();
        from.append("connection", HeaderValue::from_static("x-a, set-cookie, close"));
        from.append("x-a", HeaderValue::from_static("1"));
        from.append("set-cookie", HeaderValue::from_static("s"));
        let to = response(StatusCode::OK, &from).unwrap();
        assert_eq!(to.len(), 1);
        assert!(to.contains_key("set-cookie"));
    }
}
