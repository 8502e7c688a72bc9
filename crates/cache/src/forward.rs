//! What a server sees of a request whose response may be kept.
//!
//! A field that reaches the server and is no part of what the response is found by can poison the
//! cache: one client's field makes a page that all get. So of such a request
//!
//! - those by which a client pretends another address, host or method ([`PRETENDING`]) are removed;
//! - `Range`, `If-Range`, `If-None-Match` and `If-Modified-Since` are removed: the cache asks for
//!   the whole, with conditions of its own;
//! - `Accept-Encoding` is written anew, as what of `br, gzip, zstd` the client accepts, and encoded
//!   responses are found by that;
//! - `Cookie` goes by the site's setting;
//! - `Authorization` is sent: the response is kept only if it says that it may be;
//! - what a `Vary` of the site has named is sent, and what its settings call keyed: responses are
//!   found by it;
//! - what cannot change a page ([`NEUTRAL`]) is sent, and what the site's settings name;
//! - all else is removed, or sent if the site's setting `unkeyed` is `passed`.
//!
//! A response whose `Vary` names a field that was removed is not used: the server is asked again
//! with the field, once, and from then on the site's requests carry it.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE,
};

use crate::options::{Cookies, Rules, Unkeyed};
use crate::vary;

/// Fields by which a client pretends to be another, or to ask for something else. In small letters.
pub const PRETENDING: [&str; 20] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-path",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-forwarded-uri",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-url",
    "x-override-url",
    "x-proxy-host",
    "x-rewrite-url",
    "front-end-https",
];

/// Fields that change no page: what names the request, its way and its connection.
pub const NEUTRAL: [&str; 12] = [
    "cache-control",
    "connection",
    "host",
    "keep-alive",
    "pragma",
    "te",
    "traceparent",
    "tracestate",
    "via",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-request-id",
];

/// The fields of the client's request that the server is to see, without any of ours.
pub(crate) fn prepare(rules: &Rules, client: &HeaderMap, varied: &[HeaderName]) -> HeaderMap {
    let mut sent = HeaderMap::with_capacity(client.len() + 2);
    for (name, value) in client {
        if is_sent(rules, name, varied) {
            sent.append(name, value.clone());
        }
    }
    if let Some(codings) = vary::accepted_codings(client) {
        let value = HeaderValue::try_from(codings).expect("names of codings are plain");
        sent.insert(ACCEPT_ENCODING, value);
    }
    if let Cookies::Keyed(keyed) = &rules.cookies
        && let Some(cookies) = vary::keyed_cookies(client, keyed)
        && let Ok(value) = HeaderValue::from_bytes(&cookies)
    {
        sent.insert(COOKIE, value);
    }
    sent
}

/// Whether a field of the client's goes to the server as it is.
pub(crate) fn is_sent(rules: &Rules, name: &HeaderName, varied: &[HeaderName]) -> bool {
    if *name == ACCEPT_ENCODING || is_withheld(name) {
        return false;
    }
    if *name == COOKIE {
        return matches!(rules.cookies, Cookies::ByVary | Cookies::Bypass);
    }
    if *name == HOST || *name == AUTHORIZATION || rules.unkeyed == Unkeyed::Passed {
        return true;
    }
    let named = [&rules.keyed[..], &rules.passed, varied];
    NEUTRAL.contains(&name.as_str()) || named.iter().any(|names| names.contains(name))
}

/// Whether a field never reaches a server as the client sent it.
pub(crate) fn is_withheld(name: &HeaderName) -> bool {
    let ours = [RANGE, IF_RANGE, IF_NONE_MATCH, IF_MODIFIED_SINCE];
    ours.contains(name) || PRETENDING.contains(&name.as_str())
}
