//! Which server a request belongs to, read from its head, and the cookie that says it.
//!
//! ```text
//! cookie:  request with a token of ours   -> the server of that token
//!          answered by another server, or without a token -> Set-Cookie: NAME=TOKEN
//! hash:    equal address, header or cookie -> equal key -> the dispatcher finds the server
//! ```
//!
//! A token is whatever the options say; it is compared, never taken apart, so that a client can
//! say nothing with it but one of the tokens that it was given. The cookie is a session's: it
//! has no time, and a server that is gone is replaced in it with the next response.
//!
//! Fast path: a look-up in a small map for sites that stick; nothing for others.

use crate::face::Stick;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use pool_model::NodeId;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

/// Which requests of a site go to one server.
#[derive(Clone, Debug)]
pub enum Sticky {
    /// Those with the same cookie, which the edge sets.
    Cookie(StickyCookie),
    /// Those that are alike in this.
    Hash(HashBy),
}

/// A cookie that stands for a server.
#[derive(Clone)]
pub struct StickyCookie {
    /// Its name, a token.
    pub name: String,
    /// Its value for each node: tokens that nobody can guess, the same at all edges.
    pub tokens: Vec<(NodeId, String)>,
}

impl fmt::Debug for StickyCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Who has a token can choose its server; logs are no place for it.
        write!(f, "StickyCookie({}, {} nodes)", self.name, self.tokens.len())
    }
}

/// What requests to one server have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    Address,
    /// The value of this header; requests without it go anywhere.
    Header(HeaderName),
    /// The value of this cookie, which the site sets; requests without it go anywhere.
    Cookie(String),
}

impl HashBy {
    /// Reads `address`, `header:NAME` or `cookie:NAME`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "address" {
            return Some(Self::Address);
        }
        let (kind, name) = text.split_once(':')?;
        match kind {
            "header" => name.parse().ok().map(Self::Header),
            "cookie" if is_token(name) => Some(Self::Cookie(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for HashBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
        }
    }
}

/// Whether a text may be the name or the value of a cookie of ours: a token (RFC 9110, 5.6.2),
/// which needs no quotes anywhere.
#[must_use]
pub fn is_token(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(allowed)
}

/// The stickiness of one site, ready for requests.
#[derive(Debug)]
pub(crate) enum Stickiness {
    Cookie(Cookies),
    Hash(HashBy),
}

/// The cookies of one site.
pub(crate) struct Cookies {
    name: String,
    servers: HashMap<Box<[u8]>, NodeId>,
    lines: HashMap<NodeId, Lines>,
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookies({}, {} nodes)", self.name, self.servers.len())
    }
}

/// The values of `Set-Cookie` for one server.
struct Lines {
    plain: HeaderValue,
    secure: HeaderValue,
}

impl Stickiness {
    /// None if a cookie's name or one of its tokens is no token.
    pub(crate) fn new(options: &Sticky) -> Option<Self> {
        let StickyCookie { name, tokens } = match options {
            Sticky::Hash(by) => return Some(Self::Hash(by.clone())),
            Sticky::Cookie(cookie) => cookie,
        };
        if !is_token(name) || !tokens.iter().all(|(_, token)| is_token(token)) {
            return None;
        }
        let line = |token: &str, more: &str| {
            let text = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax{more}");
            HeaderValue::try_from(text).ok()
        };
        let mut lines = HashMap::new();
        for (node, token) in tokens {
            let (plain, secure) = (line(token, "")?, line(token, "; Secure")?);
            lines.insert(*node, Lines { plain, secure });
        }
        let servers = tokens.iter().map(|(node, token)| (token.as_bytes().into(), *node));
        Some(Self::Cookie(Cookies { name: name.clone(), servers: servers.collect(), lines }))
    }

    /// What the request is bound by.
    pub(crate) fn of(&self, headers: &HeaderMap, client: IpAddr) -> Option<Stick> {
        match self {
            Self::Cookie(cookies) => {
                let server = |value| cookies.servers.get(value).copied();
                all_of(headers, &cookies.name).find_map(server).map(Stick::Server)
            }
            Self::Hash(HashBy::Address) => Some(Stick::Key(match client.to_canonical() {
                IpAddr::V4(address) => key_of(&address.octets()),
                IpAddr::V6(address) => key_of(&address.octets()),
            })),
            Self::Hash(HashBy::Header(name)) => {
                headers.get(name).map(|value| Stick::Key(key_of(value.as_bytes())))
            }
            Self::Hash(HashBy::Cookie(name)) => {
                all_of(headers, name).next().map(|value| Stick::Key(key_of(value)))
            }
        }
    }

    /// The `Set-Cookie` of a response that this node's server gave to a request which was bound
    /// by `stick`; none where the client knows already.
    pub(crate) fn set_cookie(
        &self,
        stick: Option<Stick>,
        node: NodeId,
        secure: bool,
    ) -> Option<HeaderValue> {
        let Self::Cookie(cookies) = self else { return None };
        if stick == Some(Stick::Server(node)) {
            return None;
        }
        let lines = cookies.lines.get(&node)?;
        Some(if secure { &lines.secure } else { &lines.plain }.clone())
    }
}

/// The values of all cookies of this name (RFC 6265, 5.4; HTTP/2 may have several lines). Names
/// differ by letter case.
fn all_of<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|&b| b == b';'));
    pairs.filter_map(move |pair| {
        let rest = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })
}

/// FNV-1a with 64 bits (RFC 9923): the same at every edge, in every version. The dispatcher mixes
/// it; whoever picks keys that fall to one server has won no more than by sending one key.
fn key_of(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn node(number: u16) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn cookies() -> Stickiness {
        let tokens = vec![(node(0), "aaaa".to_owned()), (node(3), "bbbb".to_owned())];
        let options = Sticky::Cookie(StickyCookie { name: "S".to_owned(), tokens });
        Stickiness::new(&options).unwrap()
    }

    fn headers(lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn a_token_of_ours_names_its_server() {
        let of = |lines: &[&'static str]| cookies().of(&headers(lines), CLIENT);
        let bound = |number| Some(Stick::Server(node(number)));
        assert_eq!(of(&["S=bbbb"]), bound(3));
        assert_eq!(of(&["x=1; S=aaaa;y=2"]), bound(0));
        assert_eq!(of(&["x=1", "z; S=aaaa"]), bound(0));
        assert_eq!(of(&["S=stale; S=bbbb"]), bound(3), "of two paths, say");
        for strange in ["S=cccc", "s=aaaa", "XS=aaaa", "S=\"aaaa\"", "S=aaaab", "S", "S=", ""] {
            assert_eq!(of(&[strange]), None, "{strange}");
        }
    }

    #[test]
    fn a_cookie_is_set_when_the_client_does_not_know_its_server() {
        let set = |stick, number, secure| {
            let value = cookies().set_cookie(stick, node(number), secure)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let known = Some(Stick::Server(node(3)));
        assert_eq!(set(known, 3, false), None);
        let plain = "S=bbbb; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(set(None, 3, false).as_deref(), Some(plain));
        let secure = "S=aaaa; Path=/; HttpOnly; SameSite=Lax; Secure";
        assert_eq!(set(known, 0, true).as_deref(), Some(secure));
        assert_eq!(set(None, 9, false), None, "a node without a token");
        let hash = Stickiness::new(&Sticky::Hash(HashBy::Address)).unwrap();
        assert_eq!(hash.set_cookie(None, node(3), false), None);
    }

    #[test]
    fn names_and_tokens_cannot_break_a_header() {
        for (name, token) in [("a b", "t"), ("a", "t;u"), ("a=", "t"), ("", "t"), ("a", "")] {
            let tokens = vec![(node(0), token.to_owned())];
            let options = Sticky::Cookie(StickyCookie { name: name.to_owned(), tokens });
            assert!(Stickiness::new(&options).is_none(), "{name:?} {token:?}");
        }
    }

    #[test]
    fn what_is_alike_has_the_same_key() {
        let of = |by: &str, headers: &HeaderMap, client: &str| {
            let sticky = Stickiness::new(&Sticky::Hash(HashBy::parse(by).unwrap())).unwrap();
            sticky.of(headers, client.parse().unwrap())
        };
        let none = HeaderMap::new();
        let of_address = |client| of("address", &none, client);
        assert_eq!(of_address("192.0.2.7"), of_address("::ffff:192.0.2.7"));
        assert_ne!(of_address("192.0.2.7"), of_address("192.0.2.8"));
        let user = |name: &'static str| {
            let mut headers = headers(&["session=5; other=6"]);
            headers.insert("x-user", HeaderValue::from_static(name));
            headers
        };
        let of_user = |headers: &HeaderMap| of("header:X-User", headers, "192.0.2.7");
        assert_eq!(of_user(&user("ann")), of_user(&user("ann")));
        assert_ne!(of_user(&user("ann")), of_user(&user("bob")));
        assert_eq!(of_user(&none), None);
        assert_eq!(of("cookie:session", &user("ann"), "::1"), Some(Stick::Key(key_of(b"5"))));
        assert_eq!(of("cookie:nothing", &user("ann"), "::1"), None);
    }

    #[test]
    fn words_name_what_is_hashed() {
        for text in ["address", "header:x-user", "cookie:Session"] {
            assert_eq!(HashBy::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "Address", "header", "header:", "header:a b", "cookie:", "cookie:a;b"] {
            assert_eq!(HashBy::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        /// Against the naive reading: text, split and trimmed.
        #[test]
        fn cookies_are_found_as_in_text(line in "[ aS=;\"]{0,30}") {
            let mut headers = HeaderMap::new();
            headers.insert(header::COOKIE, HeaderValue::try_from(line.as_str()).unwrap());
            let found: Vec<_> = all_of(&headers, "S").map(<[u8]>::to_vec).collect();
            let naive = line.split(';').map(str::trim).filter_map(|pair| {
                pair.split_once('=').filter(|(name, _)| *name == "S").map(|(_, value)| value)
            });
            let naive: Vec<_> = naive.map(|value| value.as_bytes().to_vec()).collect();
            prop_assert_eq!(found, naive);
        }
    }
}
