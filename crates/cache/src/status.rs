//! `Cache-Status` (RFC 9211): what the cache did, told to the client.

use std::io;

use http::{HeaderValue, StatusCode};
use smallvec::SmallVec;

/// The field's value as it is written: one piece of memory is taken for it, when its length is
/// known.
type Text = SmallVec<[u8; 128]>;

/// Why a request went to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The site's cache is off, or the response is known not to be kept.
    Bypass,
    /// The method is not for a cache.
    Method,
    /// Nothing is stored for this URL.
    UriMiss,
    /// What is stored for this URL is for other requests.
    VaryMiss,
    /// What was stored is no longer valid: one of its tags was updated, or it was purged.
    Miss,
    /// What is stored is no longer fresh.
    Stale,
    /// The request asked for it.
    Request,
}

impl Forward {
    /// The token of RFC 9211.
    #[must_use]
    pub const fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Stale => "stale",
            Self::Request => "request",
        }
    }
}

/// What the cache did with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatus {
    /// Why it went to the server; `None`: it was answered from the cache.
    pub forward: Option<Forward>,
    /// What the server answered, where that is not what the client gets.
    pub forward_status: Option<StatusCode>,
    /// Whether the response is kept.
    pub stored: bool,
    /// Whether it waited for another request's response.
    pub collapsed: bool,
    /// Seconds of freshness that are left; negative: since when it is stale.
    pub ttl_s: Option<i64>,
    /// What else there is to know: a token.
    pub detail: Option<&'static str>,
}

impl CacheStatus {
    /// The field's value.
    #[must_use]
    pub fn value(&self, cache: &str) -> HeaderValue {
        let mut text = Text::new();
        self.write(cache, &mut text).expect("a vector takes all text");
        HeaderValue::from_bytes(&text).expect("only printable characters were written")
    }

    /// Writes the field's value: printable characters alone.
    pub(crate) fn write(&self, cache: &str, text: &mut impl io::Write) -> io::Result<()> {
        if is_token(cache) {
            text.write_all(cache.as_bytes())?;
        } else {
            let plain = |c: &u8| (b' '..=b'~').contains(c) && *c != b'"' && *c != b'\\';
            let plain: Vec<u8> = cache.bytes().filter(plain).collect();
            for part in [b"\"", &*plain, b"\""] {
                text.write_all(part)?;
            }
        }
        match self.forward {
            None => text.write_all(b"; hit")?,
            Some(forward) => {
                text.write_all(b"; fwd=")?;
                text.write_all(forward.token().as_bytes())?;
            }
        }
        if let Some(status) = self.forward_status {
            text.write_all(b"; fwd-status=")?;
            text.write_all(status.as_str().as_bytes())?;
        }
        for (is, word) in [(self.stored, "; stored"), (self.collapsed, "; collapsed")] {
            text.write_all(if is { word } else { "" }.as_bytes())?;
        }
        if let Some(ttl) = self.ttl_s {
            write!(text, "; ttl={ttl}")?;
        }
        if let Some(detail) = self.detail {
            text.write_all(b"; detail=")?;
            text.write_all(detail.as_bytes())?;
        }
        Ok(())
    }
}

/// Whether a word may stand without quotes (RFC 9651, 3.3.4).
fn is_token(word: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*') && word.bytes().all(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_the_rfc_writes_them() {
        let hit = CacheStatus { ttl_s: Some(376), ..CacheStatus::default() };
        assert_eq!(hit.value("polder"), "polder; hit; ttl=376");
        assert_eq!(hit.value("edge 1\"\n"), "\"edge 1\"; hit; ttl=376");
        let miss = CacheStatus {
            forward: Some(Forward::Stale),
            forward_status: Some(StatusCode::NOT_MODIFIED),
            stored: true,
            collapsed: true,
            ttl_s: Some(-1),
            detail: Some("linearizable"),
        };
        let text = "p; fwd=stale; fwd-status=304; stored; collapsed; ttl=-1; detail=linearizable";
        assert_eq!(miss.value("p"), text);
    }
}
