//! Conditions: those of clients, which the cache answers itself, and those it sends (RFC 9110, 13).

use http::header::{
    ETAG, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE, LAST_MODIFIED,
};

use crate::date;
use crate::directives::split_unquoted;

/// Fields of a 200 that a 304 in its place carries (RFC 9110, 15.4.5), besides those of ours.
const KEPT_IN_304: [HeaderName; 8] = [
    http::header::CACHE_CONTROL,
    http::header::CONTENT_LOCATION,
    http::header::DATE,
    ETAG,
    http::header::EXPIRES,
    LAST_MODIFIED,
    http::header::SET_COOKIE,
    http::header::VARY,
];

/// Whether a request has conditions that only the server can judge.
pub(crate) fn needs_server(request: &HeaderMap) -> bool {
    request.contains_key(IF_MATCH) || request.contains_key(IF_UNMODIFIED_SINCE)
}

/// Whether the client has what this response would give it, so that a 304 does.
pub(crate) fn client_has(request: &HeaderMap, response: &HeaderMap, now_s: u64) -> bool {
    if request.contains_key(IF_NONE_MATCH) {
        let Some(tag) = response.get(ETAG) else { return any_tag(request) };
        let mut lines = request.get_all(IF_NONE_MATCH).iter();
        return lines.any(|line| names(line, tag.as_bytes()));
    }
    let Some(since) = request.get(IF_MODIFIED_SINCE) else { return false };
    let modified = response.get(LAST_MODIFIED).or_else(|| response.get(http::header::DATE));
    let date = |value| date::parse(value, now_s);
    let (since, modified) = (date(since), modified.and_then(date));
    since.zip(modified).is_some_and(|(since, modified)| modified <= since)
}

/// Whether `If-None-Match: *` stands there: it matches whatever there is.
fn any_tag(request: &HeaderMap) -> bool {
    request.get_all(IF_NONE_MATCH).iter().any(|line| line.as_bytes().trim_ascii() == b"*")
}

/// Whether a line of entity tags names this one, or any. Weak tags are as good as strong ones here.
fn names(line: &HeaderValue, tag: &[u8]) -> bool {
    let opaque = |tag: &[u8]| -> Vec<u8> { tag.strip_prefix(b"W/").unwrap_or(tag).to_vec() };
    let wanted = opaque(tag);
    line.as_bytes().trim_ascii() == b"*"
        || split_unquoted(line.as_bytes()).any(|part| opaque(part) == wanted)
}

/// Whether an entity tag stands for the very bytes.
pub(crate) fn is_strong(tag: &HeaderValue) -> bool {
    let tag = tag.as_bytes();
    tag.len() >= 2 && tag.starts_with(b"\"") && tag.ends_with(b"\"")
}

/// The head of a 304 in the place of this response's.
pub(crate) fn not_modified(response: &HeaderMap) -> HeaderMap {
    let mut head = HeaderMap::with_capacity(KEPT_IN_304.len() + 2);
    for name in &KEPT_IN_304 {
        for value in response.get_all(name) {
            head.append(name, value.clone());
        }
    }
    head
}

/// Asks the server whether what is stored still holds; whether there is anything to ask with.
/// `strong`: only by an entity tag that stands for the very bytes.
pub(crate) fn ask(stored: &Validators, strong: bool, request: &mut HeaderMap) -> bool {
    let tag = stored.etag.as_ref().filter(|tag| !strong || is_strong(tag));
    let modified = stored.last_modified.as_ref().filter(|_| !strong);
    if let Some(tag) = tag {
        request.insert(IF_NONE_MATCH, tag.clone());
    }
    if let Some(modified) = modified {
        request.insert(IF_MODIFIED_SINCE, modified.clone());
    }
    tag.is_some() || modified.is_some()
}

/// By what the server tells its responses apart: its own words, not those that we added.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Validators {
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) last_modified: Option<HeaderValue>,
}

impl Validators {
    pub(crate) fn of(response: &HeaderMap) -> Self {
        let get = |name| response.get(name).cloned();
        Self { etag: get(ETAG), last_modified: get(LAST_MODIFIED) }
    }

    pub(crate) fn any(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Whether a 304 with these fields is about the response that has these validators.
    pub(crate) fn fit(&self, not_modified: &HeaderMap) -> bool {
        match (&self.etag, not_modified.get(ETAG)) {
            (Some(own), Some(said)) => names(said, own.as_bytes()),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn entity_tags_match_as_lists_weakly() {
        let has = |wanted: &str, tag: &str| {
            client_has(&map(&[("if-none-match", wanted)]), &map(&[("etag", tag)]), 0)
        };
        for (wanted, tag) in [
            ("\"a\"", "\"a\""),
            ("\"x\", \"a\"", "\"a\""),
            ("\"a\",\"x\"", "\"a\""),
            ("W/\"a\"", "\"a\""),
            ("\"a\"", "W/\"a\""),
            ("*", "\"a\""),
            ("\"a,b\"", "\"a,b\""),
            ("\"abcdefü\"", "\"abcdefü\""),
            ("a", "a"),
        ] {
            assert!(has(wanted, tag), "{wanted} {tag}");
        }
        for (wanted, tag) in
            [("\"x\"", "\"a\""), ("\"a, b\"", "\"a\""), ("a", "\"a\""), ("", "\"\"")]
        {
            assert!(!has(wanted, tag), "{wanted} {tag}");
        }
        assert!(is_strong(&HeaderValue::from_static("\"a\"")));
        assert!(!is_strong(&HeaderValue::from_static("W/\"a\"")));
        assert!(!is_strong(&HeaderValue::from_static("\"")));
    }

    #[test]
    fn entity_tags_go_before_dates() {
        let request = map(&[("if-none-match", "\"a\""), ("if-modified-since", OLD)]);
        let is = |tag, modified| {
            client_has(&request, &map(&[("etag", tag), ("last-modified", modified)]), 0)
        };
        assert!(is("\"a\"", NEW));
        assert!(!is("\"b\"", OLD));
    }

    #[test]
    fn dates_are_compared_with_last_modified_or_date() {
        let since = |since| map(&[("if-modified-since", since)]);
        assert!(client_has(&since(OLD), &map(&[("last-modified", OLD)]), 0));
        assert!(client_has(&since(NEW), &map(&[("last-modified", OLD)]), 0));
        assert!(!client_has(&since(OLD), &map(&[("last-modified", NEW)]), 0));
        assert!(client_has(&since(OLD), &map(&[("date", OLD)]), 0));
        assert!(!client_has(&since("soon"), &map(&[("last-modified", OLD)]), 0));
        assert!(!client_has(&since(OLD), &map(&[]), 0));
        assert!(!client_has(&map(&[]), &map(&[("last-modified", OLD)]), 0));
    }

    #[test]
    fn an_answer_about_another_response_does_not_fit() {
        let own = Validators::of(&map(&[("etag", "\"a\"")]));
        assert!(own.fit(&map(&[("etag", "W/\"a\"")])) && own.fit(&map(&[])));
        assert!(!own.fit(&map(&[("etag", "\"b\"")])));
    }
}
