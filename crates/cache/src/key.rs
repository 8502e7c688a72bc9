//! By what a response is found: site, scheme, authority, path and query. The method is not part of
//! it: a response to GET answers HEAD too, and to no other method.

use std::hash::{Hash, Hasher};

use http::HeaderMap;
use http::Method;
use pool_model::SiteId;
use quick_cache::Equivalent;

use crate::moment::UnixMs;

/// How a client spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// As in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that a URL leaves out.
    const fn usual_port(self) -> &'static str {
        match self {
            Self::Http => ":80",
            Self::Https => ":443",
        }
    }
}

/// A request as the cache sees it.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The site that the edge found by the request's host.
    pub site: SiteId,
    /// Its method.
    pub method: &'a Method,
    /// How the client came.
    pub scheme: Scheme,
    /// The host and port that the client asked for; letters of either case.
    pub authority: &'a str,
    /// The target as it was sent, with its query.
    pub path_and_query: &'a str,
    /// All fields as the client sent them.
    pub headers: &'a HeaderMap,
    /// When it arrived.
    pub now: UnixMs,
    /// Whether it waited for another request's fetch, and asks anew.
    pub waited: bool,
}

impl<'a> Request<'a> {
    /// What its response is found by.
    #[must_use]
    pub fn key(&self) -> KeyRef<'a> {
        let authority =
            self.authority.strip_suffix(self.scheme.usual_port()).unwrap_or(self.authority);
        let (site, scheme) = (self.site, self.scheme);
        KeyRef { site, scheme, authority, path_and_query: self.path_and_query }
    }
}

/// A key that borrows its text: what a look-up costs no allocation with.
#[derive(Debug, Clone, Copy)]
pub struct KeyRef<'a> {
    site: SiteId,
    scheme: Scheme,
    authority: &'a str,
    path_and_query: &'a str,
}

impl<'a> KeyRef<'a> {
    /// The key of an absolute URL of a site, such as `https://a.example/b?c`; `None` if it is none.
    #[must_use]
    pub fn of_url(site: SiteId, url: &'a str) -> Option<Self> {
        let (scheme, rest) = if let Some(rest) = strip_prefix_any_case(url, "http://") {
            (Scheme::Http, rest)
        } else {
            (Scheme::Https, strip_prefix_any_case(url, "https://")?)
        };
        let (authority, path) = rest.find(['/', '?']).map_or((rest, "/"), |at| rest.split_at(at));
        let path_and_query = path.split('#').next().unwrap_or(path);
        if authority.is_empty() || authority.contains('@') || !path_and_query.starts_with('/') {
            return None;
        }
        let authority = authority.strip_suffix(scheme.usual_port()).unwrap_or(authority);
        Some(Self { site, scheme, authority, path_and_query })
    }

    /// The same key with text of its own.
    #[must_use]
    pub fn to_key(&self) -> Key {
        let mut text = String::with_capacity(self.authority.len() + self.path_and_query.len());
        text.push_str(self.authority);
        text.make_ascii_lowercase();
        text.push_str(self.path_and_query);
        let path_at = self.authority.len();
        Key { site: self.site, scheme: self.scheme, path_at, text: text.into_boxed_str() }
    }

    /// Its site.
    #[must_use]
    pub const fn site(&self) -> SiteId {
        self.site
    }

    pub(crate) fn same_origin(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.authority.eq_ignore_ascii_case(other.authority)
    }

    pub(crate) const fn scheme(&self) -> Scheme {
        self.scheme
    }

    pub(crate) const fn authority(&self) -> &'a str {
        self.authority
    }

    pub(crate) const fn path_and_query(&self) -> &'a str {
        self.path_and_query
    }
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.site, self.scheme).hash(state);
        // Hosts are the same in either case; short pieces, so that nothing is allocated.
        let mut lower = [0_u8; 64];
        for piece in self.authority.as_bytes().chunks(lower.len()) {
            let lower = &mut lower[..piece.len()];
            lower.copy_from_slice(piece);
            lower.make_ascii_lowercase();
            state.write(lower);
        }
        state.write_u8(b' ');
        state.write(self.path_and_query.as_bytes());
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        let other = key.borrowed();
        self.site == other.site
            && self.scheme == other.scheme
            && self.path_and_query == other.path_and_query
            && self.authority.eq_ignore_ascii_case(other.authority)
    }
}

/// What a stored response is found by. The authority is in small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    site: SiteId,
    scheme: Scheme,
    /// Where the path begins in the text.
    path_at: usize,
    text: Box<str>,
}

impl Key {
    /// The same key, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> KeyRef<'_> {
        let (authority, path_and_query) = self.text.split_at(self.path_at);
        KeyRef { site: self.site, scheme: self.scheme, authority, path_and_query }
    }

    /// Its site.
    #[must_use]
    pub const fn site(&self) -> SiteId {
        self.site
    }

    /// Its authority in small letters, without a usual port, and behind it the target.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes of its text.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Site, scheme, bytes of the authority, and authority with path and query.
    pub(crate) fn parts(&self) -> (SiteId, Scheme, u32, &str) {
        // The edge bounds heads far below 4 GiB; what is longer is no key when it is read.
        let path_at = u32::try_from(self.path_at).unwrap_or(u32::MAX);
        (self.site, self.scheme, path_at, &self.text)
    }

    /// The key of these; `None` if they are none.
    pub(crate) fn from_parts(
        site: SiteId,
        scheme: Scheme,
        authority_bytes: u32,
        text: &str,
    ) -> Option<Self> {
        let path_at = usize::try_from(authority_bytes).ok()?;
        text.is_char_boundary(path_at).then(|| Self { site, scheme, path_at, text: text.into() })
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.borrowed().hash(state);
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", self.scheme.as_str(), self.text)
    }
}

/// The rest of a text that opens with this, letters of either case.
fn strip_prefix_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    fn site() -> SiteId {
        SiteId::new(3).unwrap()
    }

    fn key(url: &str) -> Option<Key> {
        KeyRef::of_url(site(), url).map(|key| key.to_key())
    }

    #[test]
    fn hosts_are_the_same_in_either_case_and_paths_are_not() {
        let headers = HeaderMap::new();
        let request = |authority, path_and_query| Request {
            site: site(),
            method: &Method::GET,
            scheme: Scheme::Http,
            authority,
            path_and_query,
            headers: &headers,
            now: UnixMs(0),
            waited: false,
        };
        let state = RandomState::new();
        let stored = request("a.example", "/B?c").key().to_key();
        let same = request("A.eXample:80", "/B?c").key();
        assert!(same.equivalent(&stored));
        assert_eq!(state.hash_one(same), state.hash_one(&stored));
        for (authority, path) in [("a.example", "/b?c"), ("a.example:8080", "/B?c"), ("b", "/B?c")]
        {
            assert!(!request(authority, path).key().equivalent(&stored), "{authority} {path}");
        }
    }

    #[test]
    fn urls_become_keys() {
        let text = |url| key(url).map(|key| key.to_string());
        assert_eq!(text("HTTP://A.example:80/x?y#z"), Some("http://a.example/x?y".to_owned()));
        assert_eq!(text("https://a.example"), Some("https://a.example/".to_owned()));
        for url in ["", "/x", "ftp://a/x", "http:///x", "http://u@a/x", "http://a?x", "höhe"] {
            assert_eq!(text(url), None, "{url}");
        }
    }
}
