//! Tags that every response has, besides those that its server gives it: of its URL, and of its
//! site. So a URL, or all of a site, is invalidated as any tag is.

/// The tag that all responses of a site have.
pub const SITE_TAG: &[u8] = b"polder:site";

/// What tags of URLs begin with.
const URL: &[u8] = b"polder:url:";

/// The tag of the responses for one URL, however the client came: over TLS or not. Hosts are the
/// same in either case of letters, and with or without a port that URLs leave out.
#[must_use]
pub fn url_tag(authority: &str, path_and_query: &str) -> Vec<u8> {
    let authority = without_usual_port(authority);
    let mut tag = Vec::with_capacity(URL.len() + authority.len() + path_and_query.len());
    tag.extend_from_slice(URL);
    tag.extend(authority.bytes().map(|byte| byte.to_ascii_lowercase()));
    tag.extend_from_slice(path_and_query.as_bytes());
    tag
}

/// An authority as a URL has it.
#[must_use]
pub fn without_usual_port(authority: &str) -> &str {
    let without = authority.strip_suffix(":80").or_else(|| authority.strip_suffix(":443"));
    without.unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_url_has_one_tag() {
        assert_eq!(url_tag("A.example", "/B?c"), b"polder:url:a.example/B?c");
        for same in ["a.example:80", "a.example:443", "a.EXAMPLE"] {
            assert_eq!(url_tag(same, "/B?c"), url_tag("a.example", "/B?c"), "{same}");
        }
        assert_eq!(url_tag("[::1]:80", "/"), url_tag("[::1]", "/"));
        for (authority, path) in [("a.example:8080", "/B?c"), ("a.example", "/b?c"), ("b", "/B?c")]
        {
            assert_ne!(url_tag(authority, path), url_tag("a.example", "/B?c"));
        }
        assert_ne!(url_tag("a", "/"), SITE_TAG);
    }
}
