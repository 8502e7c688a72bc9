//! Which request heads are taken, and as what.
//!
//! hyper refuses what has no meaning (RFC 9112): spaces before a colon, line folding, bare CR and
//! NUL, empty names, signs and lists in Content-Length, transfer codings in HTTP/1.0, differing
//! lengths. What it lets pass but different readers take differently is refused here. The rest
//! is written anew from its parsed form, so that the server sees exactly one spelling of it:
//!
//! | in | out |
//! | --- | --- |
//! | lines ended by a bare LF, empty lines before the request line | CRLF, none |
//! | equal Content-Length lines, leading zeros | one, in plain decimal |
//! | Transfer-Encoding with Content-Length | chunked alone; hyper closes after the response |
//! | chunk extensions | dropped |
//! | trailers | dropped; the connection closes after the response |
//! | absolute form | origin form, and `Host` from its authority (RFC 9112, 3.2.2) |
//! | `Connection: name` | that field is dropped; naming one of [`PROTECTED`] is refused |
//! | `Upgrade` | what [`offered`] leaves of it; dropped beside a body |

use crate::answer::Reason;
use crate::hosts::host_of;
use crate::upgrade::offered;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, Version};

/// More names than this in `Connection` serve no purpose.
const CONNECTION_NAMES_MAX: usize = 16;

/// Fields that `Connection` must not name: to drop them would change the request's framing, its
/// sender's identity or its meaning. Prefixes end in `-`.
const PROTECTED: [&str; 20] = [
    "host",
    "content-",
    "transfer-encoding",
    "authorization",
    "cookie",
    "set-cookie",
    "expect",
    "forwarded",
    "x-forwarded-",
    "x-real-ip",
    "via",
    "range",
    "if-",
    "cache-control",
    "date",
    "age",
    "vary",
    "location",
    "origin",
    "accept-",
];

/// Fields that a request of HTTP/2 must not have.
const CONNECTION_FIELDS: [HeaderName; 4] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// How the end of a request body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none, nor a length.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// What a request head means.
#[derive(Debug)]
pub(crate) struct Head {
    /// The authority; none only in HTTP/1.0.
    pub(crate) host: Option<HeaderValue>,
    /// In origin form, or `*`.
    pub(crate) target: PathAndQuery,
    pub(crate) framing: Framing,
    /// The client holds its body back until it gets a 100.
    pub(crate) expects_continue: bool,
    /// Fields that end here because `Connection` names them.
    pub(crate) dropped: Vec<HeaderName>,
    /// Protocols that the server may switch to.
    pub(crate) upgrade: Option<HeaderValue>,
}

impl Head {
    /// Reads a head that hyper has parsed, or says why it is refused.
    pub(crate) fn read(parts: &Parts, uri_bytes_max: usize) -> Result<Self, Reason> {
        if parts.method == Method::CONNECT {
            return Err(Reason::BadMethod);
        }
        if parts.version == Version::HTTP_2 {
            refuse_connection_fields(&parts.headers)?;
        }
        let framing = framing(&parts.headers)?;
        let (target, authority) = target(parts, uri_bytes_max)?;
        let named = host(parts, authority.as_ref())?;
        let host = match authority {
            Some(authority) => Some(authority),
            None => named,
        };
        let modern = parts.version == Version::HTTP_11;
        let expects_continue = expects(&parts.headers, modern)? && framing != Framing::None;
        let dropped = connection_names(&parts.headers)?;
        let upgrade = offered(parts, framing);
        Ok(Self { host, target, framing, expects_continue, dropped, upgrade })
    }
}

fn framing(headers: &HeaderMap) -> Result<Framing, Reason> {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    if let Some(coding) = codings.next() {
        if lengths.count() > 0 {
            return Err(Reason::BadRequest);
        }
        let chunked = coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        return match (chunked, codings.next()) {
            (true, None) => Ok(Framing::Chunked),
            _ => Err(Reason::BadTransferCoding),
        };
    }
    Ok(content_length(lengths).ok_or(Reason::BadRequest)?.map_or(Framing::None, Framing::Length))
}

/// The one length that all lines name, digits only; the outer `None` where they do not.
#[allow(clippy::option_option)]
pub(crate) fn content_length<'a>(
    values: impl Iterator<Item = &'a HeaderValue>,
) -> Option<Option<u64>> {
    let mut length = None;
    for value in values {
        let digits = value.as_bytes();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number: u64 = value.to_str().ok()?.parse().ok()?;
        if length.is_some_and(|other| other != number) {
            return None;
        }
        length = Some(number);
    }
    Some(length)
}

/// The target in origin form, and the authority of an absolute form.
fn target(
    parts: &Parts,
    uri_bytes_max: usize,
) -> Result<(PathAndQuery, Option<HeaderValue>), Reason> {
    let uri = &parts.uri;
    let Some(target) = uri.path_and_query() else { return Err(Reason::BadRequest) };
    let authority = match (uri.scheme_str(), uri.authority()) {
        (None, None) => None,
        (Some("http" | "https"), Some(authority)) => Some(authority),
        _ => return Err(Reason::BadRequest),
    };
    let length = target.as_str().len() + authority.map_or(0, |name| name.as_str().len());
    if length > uri_bytes_max {
        return Err(Reason::UriTooLong);
    }
    let star = target.path() == "*";
    let allowed =
        if star { parts.method == Method::OPTIONS } else { target.path().starts_with('/') };
    if !allowed {
        return Err(Reason::BadRequest);
    }
    if star && target.query().is_some() {
        return Err(Reason::BadRequest);
    }
    let Some(authority) = authority else { return Ok((target.clone(), None)) };
    let name = authority.as_str();
    host_of(name.as_bytes()).ok_or(Reason::BadRequest)?;
    let host = HeaderValue::from_str(name).map_err(|_| Reason::BadRequest)?;
    Ok((target.clone(), Some(host)))
}

/// The value of `Host`. HTTP/2 needs none beside `:authority`; a differing one is malformed
/// (RFC 9113, 8.3.1), while in HTTP/1 the authority of the target wins (RFC 9112, 3.2.2).
fn host(parts: &Parts, authority: Option<&HeaderValue>) -> Result<Option<HeaderValue>, Reason> {
    let is_http2 = parts.version == Version::HTTP_2;
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            host_of(host.as_bytes()).ok_or(Reason::BadRequest)?;
            let same = |name: &HeaderValue| name.as_bytes().eq_ignore_ascii_case(host.as_bytes());
            if is_http2 && !authority.is_none_or(same) {
                return Err(Reason::BadRequest);
            }
            Ok(Some(host.clone()))
        }
        (None, None) if is_http2 && authority.is_some() => Ok(None),
        (None, None) if parts.version == Version::HTTP_10 => Ok(None),
        _ => Err(Reason::BadRequest),
    }
}

/// HTTP/2 has no fields of a connection (RFC 9113, 8.2.2). h2 refuses them too; but a server
/// behind must not depend on that.
fn refuse_connection_fields(headers: &HeaderMap) -> Result<(), Reason> {
    let found = CONNECTION_FIELDS.iter().any(|name| headers.contains_key(name));
    if found { Err(Reason::BadRequest) } else { Ok(()) }
}

/// Whether the client waits for a 100. HTTP/1.0 knows no expectations (RFC 9110, 10.1.1).
fn expects(headers: &HeaderMap, modern: bool) -> Result<bool, Reason> {
    let mut expectations = headers.get_all(header::EXPECT).iter();
    match (expectations.next(), expectations.next()) {
        (None, _) => Ok(false),
        _ if !modern => Ok(false),
        (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        _ => Err(Reason::BadExpectation),
    }
}

/// Whether a field must outlive what `Connection` says.
pub(crate) fn is_protected(name: &str) -> bool {
    let protects = |known: &str| match known.ends_with('-') {
        true => name.starts_with(known),
        false => name == known,
    };
    name == "accept" || PROTECTED.iter().any(|known| protects(known))
}

fn connection_names(headers: &HeaderMap) -> Result<Vec<HeaderName>, Reason> {
    let mut names = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        for name in value.to_str().map_err(|_| Reason::BadRequest)?.split(',') {
            let name = name.trim_matches([' ', '\t']);
            if name.is_empty() || is_connection_option(name) {
                continue;
            }
            let name: HeaderName = name.parse().map_err(|_| Reason::BadRequest)?;
            if is_protected(name.as_str()) || names.len() == CONNECTION_NAMES_MAX {
                return Err(Reason::BadRequest);
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// Options that name no field, or one that ends here in any case.
pub(crate) fn is_connection_option(name: &str) -> bool {
    ["keep-alive", "close", "te", "upgrade", "http2-settings"]
        .iter()
        .any(|option| name.eq_ignore_ascii_case(option))
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
