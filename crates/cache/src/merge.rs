//! A stored response that the server says still holds takes over the fields of its 304 (RFC 9111,
//! 3.2 and 4.3.4).

use http::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, TRANSFER_ENCODING,
};

/// Fields that speak of the stored body, which stays.
const OF_THE_BODY: [HeaderName; 4] =
    [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, TRANSFER_ENCODING];

/// The stored fields, with all lines of those that the 304 has replaced by the 304's.
pub(crate) fn merged(stored: &HeaderMap, not_modified: &HeaderMap) -> HeaderMap {
    let updates =
        |name: &HeaderName| not_modified.contains_key(name) && !OF_THE_BODY.contains(name);
    let mut merged = HeaderMap::with_capacity(stored.len() + not_modified.len());
    for (name, value) in stored.iter().filter(|(name, _)| !updates(name)) {
        merged.append(name, value.clone());
    }
    for (name, value) in not_modified.iter().filter(|(name, _)| updates(name)) {
        merged.append(name, value.clone());
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_replaced_and_those_of_the_body_stay() {
        let map = |lines: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            headers
        };
        let stored = map(&[
            ("a", "1"),
            ("b", "1"),
            ("b", "2"),
            ("content-length", "36"),
            ("content-encoding", "gzip"),
            ("content-foo", "old"),
        ]);
        let update = map(&[
            ("b", "3"),
            ("c", "4"),
            ("content-length", "10"),
            ("content-encoding", "br"),
            ("content-foo", "new"),
        ]);
        let expected = map(&[
            ("a", "1"),
            ("b", "3"),
            ("c", "4"),
            ("content-length", "36"),
            ("content-encoding", "gzip"),
            ("content-foo", "new"),
        ]);
        assert_eq!(merged(&stored, &update), expected);
    }
}
