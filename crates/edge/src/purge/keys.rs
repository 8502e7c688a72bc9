//! Keys in the body of a request: `{"surrogate_keys": ["a", "b"]}`.

use super::dialect::{TAGS_BYTES_MAX, TAGS_MAX, Wrong};
use crate::upload::{Upload, UploadFault};
use http::{HeaderMap, header};
use http_body::Body as _;
use serde::Deserialize;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;

/// Bytes of such a body: as many keys as are taken, with each of their bytes written as `\u00ff`,
/// and quotes, a comma and a line's indentation around each.
pub(super) const BODY_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(6 * TAGS_BYTES_MAX + 32 * TAGS_MAX < BODY_BYTES_MAX);

/// Letters of what is said of a wrong body, which may quote all of it.
const WHY_CHARS_MAX: usize = 200;

/// Other members of the object are of no interest; another list of the same name is an error.
#[derive(Deserialize)]
struct Keys {
    surrogate_keys: Vec<String>,
}

/// Whether the body of a request may name keys: nothing else does, or it says that it is JSON.
pub(super) fn may_be_in_body(headers: &HeaderMap) -> bool {
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|value| {
        let kind = value.as_bytes().split(|&byte| byte == b';').next().unwrap_or_default();
        kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    is_json || !headers.contains_key("surrogate-key")
}

/// The keys that a body names; none in an empty one.
pub(super) fn read(body: &[u8]) -> Result<Vec<String>, Wrong> {
    if body.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let why = |error: serde_json::Error| error.to_string().chars().take(WHY_CHARS_MAX).collect();
    let keys: Keys = serde_json::from_slice(body).map_err(|error| Wrong::Body(why(error)))?;
    if keys.surrogate_keys.is_empty() {
        return Err(Wrong::NoTag("surrogate_keys"));
    }
    Ok(keys.surrogate_keys)
}

/// The whole body of a request.
pub(super) async fn body(upload: &Rc<Upload>) -> Result<Vec<u8>, Wrong> {
    let mut body = upload.attempt(None);
    if body.size_hint().exact().is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return Err(Wrong::LongBody);
    }
    let mut all = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|fault| match fault {
            UploadFault::TooLarge => Wrong::LongBody,
            _ => Wrong::BrokenBody,
        })?;
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > BODY_BYTES_MAX {
            return Err(Wrong::LongBody);
        }
        all.extend_from_slice(&data);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn keys_are_read_and_what_is_wrong_is_said() {
        let keys = |keys: &[&str]| Ok(keys.iter().map(|&key| key.to_owned()).collect());
        assert_eq!(read(br#"{"surrogate_keys": ["a", "b c"]}"#), keys(&["a", "b c"]));
        assert_eq!(read(br#" {"x": {}, "surrogate_keys":["\u00e9"]} "#), keys(&["\u{e9}"]));
        assert_eq!(read(b" \n"), keys(&[]));
        assert_eq!(read(br#"{"surrogate_keys": []}"#), Err(Wrong::NoTag("surrogate_keys")));
        for (body, says) in [
            ("{", "EOF"),
            ("{}", "missing field `surrogate_keys`"),
            ("null", "invalid type"),
            ("a=b", "expected value"),
            (r#"{"surrogate_keys": "a"}"#, "expected a sequence"),
            (r#"{"surrogate_keys": ["a", 1]}"#, "expected a string"),
            (r#"{"surrogate_keys": ["a"], "surrogate_keys": ["b"]}"#, "duplicate field"),
            (r#"{"surrogate_keys": ["a"]} {}"#, "trailing"),
        ] {
            let Err(Wrong::Body(why)) = read(body.as_bytes()) else { panic!("{body}") };
            assert!(why.contains(says) && why.contains("line 1"), "{body}: {why}");
        }
        let long = format!(r#"{{"surrogate_keys": "{}"}}"#, "a".repeat(1_000));
        let Err(Wrong::Body(why)) = read(long.as_bytes()) else { panic!("{long}") };
        assert_eq!(why.len(), WHY_CHARS_MAX);
        let deep = format!(r#"{{"x": {}"#, "[".repeat(100_000));
        assert!(matches!(read(deep.as_bytes()), Err(Wrong::Body(_))));
    }

    #[test]
    fn a_body_counts_where_nothing_else_names_keys_or_it_says_that_it_is_json() {
        for (lines, counts) in [
            (&[][..], true),
            (&[("content-type", "text/plain")], true),
            (&[("surrogate-key", "a")], false),
            (&[("surrogate-key", "a"), ("content-type", "text/plain")], false),
            (&[("surrogate-key", "a"), ("content-type", "Application/JSON; charset=utf-8")], true),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, HeaderValue::from_static(value));
            }
            assert_eq!(may_be_in_body(&headers), counts, "{lines:?}");
        }
    }
}
