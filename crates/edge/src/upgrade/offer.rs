//! What a client offers to switch to, and whether a server took it up (RFC 9110, 7.8). Pure.

use crate::head::Framing;
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, Version};

/// Protocols offered at once; nobody needs more than two.
const OFFERED_MAX: usize = 8;

/// Protocols that are never passed on: HTTP under another name would carry requests past the
/// edge, and TLS would hide them.
const NEVER: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// The offer to be passed on, if there is one: in HTTP/1.1 alone, named by `Connection`, of a
/// request without a body. In every other case the request is an ordinary one.
pub(crate) fn offered(parts: &Parts, framing: Framing) -> Option<HeaderValue> {
    let bodiless = matches!(framing, Framing::None | Framing::Length(0));
    let fields = &parts.headers;
    if parts.version != Version::HTTP_11 || !bodiless || parts.method == Method::CONNECT {
        return None;
    }
    if !fields.contains_key(header::UPGRADE) || !names_upgrade(fields) {
        return None;
    }
    let mut kept = String::new();
    for (place, protocol) in protocols(fields).enumerate() {
        if place == OFFERED_MAX {
            break;
        }
        if is_protocol(protocol) && !is_never(protocol) {
            kept.push_str(if kept.is_empty() { "" } else { ", " });
            kept.push_str(protocol);
        }
    }
    if kept.is_empty() { None } else { HeaderValue::try_from(kept).ok() }
}

/// What a response with status 101 switches to, if that is one of those offered.
pub(crate) fn agreed(offered: &HeaderValue, named: &HeaderValue) -> bool {
    let (Ok(offered), Ok(named)) = (offered.to_str(), named.to_str()) else { return false };
    let is_offered =
        |name: &str| offered.split(", ").any(|protocol| protocol.eq_ignore_ascii_case(name));
    let mut named = split(named).peekable();
    named.peek().is_some() && named.all(is_offered)
}

/// Whether frames of RFC 6455 follow.
pub(crate) fn is_websocket(agreed: &HeaderValue) -> bool {
    agreed.as_bytes().eq_ignore_ascii_case(b"websocket")
}

fn names_upgrade(fields: &HeaderMap) -> bool {
    let values = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(split).any(|option| option.eq_ignore_ascii_case("upgrade"))
}

fn protocols(fields: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = fields.get_all(header::UPGRADE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(split)
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|item| item.trim_matches([' ', '\t'])).filter(|item| !item.is_empty())
}

/// `token` or `token/token`.
fn is_protocol(text: &str) -> bool {
    let token = |text: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        !text.is_empty() && text.bytes().all(plain)
    };
    match text.split_once('/') {
        Some((name, version)) => token(name) && token(version),
        None => token(text),
    }
}

fn is_never(protocol: &str) -> bool {
    let name = protocol.split('/').next().unwrap_or(protocol);
    NEVER.iter().any(|never| never.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn offer(connection: &str, upgrade: &[&str]) -> Option<String> {
        let mut request = Request::get("/").header("connection", connection);
        for value in upgrade {
            request = request.header("upgrade", *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        Some(offered(&parts, Framing::None)?.to_str().unwrap().to_owned())
    }

    #[test]
    fn offers_are_passed_on_without_http_under_another_name() {
        assert_eq!(offer("Upgrade", &["websocket"]).as_deref(), Some("websocket"));
        assert_eq!(offer("keep-alive, UPGRADE", &["x/1"]).as_deref(), Some("x/1"));
        let mixed = offer("upgrade", &["h2c, websocket", ",a b,,HTTP/2.0", "irc/6.9"]);
        assert_eq!(mixed.as_deref(), Some("websocket, irc/6.9"));
        for never in ["h2c", "H2C", "HTTP/2.0", "http/1.1", "TLS/1.0", "h2", "h2c/1", "", "a/b/c"] {
            assert_eq!(offer("upgrade", &[never]), None, "{never}");
        }
        assert_eq!(offer("close", &["websocket"]), None, "`Connection` must name it");
        assert_eq!(offer("upgrade", &[]), None);
        let many = vec!["x"; 20];
        assert_eq!(offer("upgrade", &many).unwrap().matches('x').count(), OFFERED_MAX);
    }

    #[test]
    fn what_has_a_body_or_is_not_http_1_1_offers_nothing() {
        let parts = |version| {
            let request = Request::post("/").version(version);
            let request = request.header("connection", "upgrade").header("upgrade", "websocket");
            request.body(()).unwrap().into_parts().0
        };
        let modern = parts(Version::HTTP_11);
        assert!(offered(&modern, Framing::Length(0)).is_some());
        assert!(offered(&modern, Framing::Length(1)).is_none());
        assert!(offered(&modern, Framing::Chunked).is_none());
        for version in [Version::HTTP_10, Version::HTTP_2] {
            assert!(offered(&parts(version), Framing::None).is_none());
        }
    }

    #[test]
    fn only_what_was_offered_is_agreed_to() {
        let value = HeaderValue::from_static;
        let given = value("websocket, irc/6.9");
        assert!(agreed(&given, &value("WebSocket")) && agreed(&given, &value("irc/6.9")));
        assert!(agreed(&given, &value("irc/6.9, websocket")));
        for other in ["h2c", "", ",", "websocket, h2c", "irc", "websocket irc/6.9"] {
            assert!(!agreed(&given, &value(other)), "{other}");
        }
        assert!(is_websocket(&value("WebSocket")) && !is_websocket(&value("irc/6.9")));
    }
}
