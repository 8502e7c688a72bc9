//! Tags of responses: what each depends on, in the dialects that applications speak.
//!
//! | field | between tags | spoken by |
//! | --- | --- | --- |
//! | `Surrogate-Key` | spaces | Fastly, Drupal, Magento, Django, Rails |
//! | `Cache-Tag` | commas | Cloudflare, Drupal, Next.js |
//! | `X-Cache-Tags` | commas or spaces | FOSHttpCache (Symfony, API Platform, Ibexa), TYPO3 |
//! | `xkey` | spaces or commas | Varnish's module |
//! | `Cache-Tags` | spaces or commas | Drupal, API Platform |
//! | `Purge-Cache-Tags` | spaces or commas | Drupal |
//! | `X-Magento-Tags` | commas or spaces | Magento |
//!
//! Who invalidates must split alike ([`split`]), or an update would miss.

use http::{HeaderMap, HeaderName};

/// The fields that carry tags, in small letters.
pub static FIELDS: [HeaderName; 7] = [
    HeaderName::from_static("surrogate-key"),
    HeaderName::from_static("cache-tag"),
    HeaderName::from_static("x-cache-tags"),
    HeaderName::from_static("xkey"),
    HeaderName::from_static("cache-tags"),
    HeaderName::from_static("purge-cache-tags"),
    HeaderName::from_static("x-magento-tags"),
];

/// Most tags of one response: sites were seen with 500, so four times that.
pub const TAGS_MAX: usize = 2_048;

/// Most bytes of all tags of one response: what servers send in a head at most.
pub const TAGS_BYTES_MAX: usize = 32 << 10;

/// The tags of one response, each once, in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags {
    /// One after the other.
    text: Box<[u8]>,
    /// Where each ends.
    ends: Box<[u32]>,
}

/// More tags than can be kept: the response must not be, since none may be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("more than {TAGS_MAX} tags, or {TAGS_BYTES_MAX} bytes of them")]
pub struct TooManyTags;

impl Tags {
    /// All tags of a response's head, from all its fields.
    pub fn of(headers: &HeaderMap) -> Result<Self, TooManyTags> {
        Self::of_and(headers, [])
    }

    /// The same, and these.
    pub(crate) fn of_and<'a>(
        headers: &'a HeaderMap,
        more: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, TooManyTags> {
        let values = FIELDS.iter().flat_map(|field| {
            let lines = headers.get_all(field).iter();
            lines.flat_map(move |line| split(field, line.as_bytes()))
        });
        Self::from_tags(values.chain(more))
    }

    /// These tags.
    pub fn from_tags<'a>(tags: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, TooManyTags> {
        let mut all = Vec::new();
        let mut bytes = 0;
        for tag in tags {
            bytes += tag.len();
            if bytes > TAGS_BYTES_MAX || all.len() >= TAGS_MAX {
                return Err(TooManyTags);
            }
            all.push(tag);
        }
        all.sort_unstable();
        all.dedup();
        let mut text = Vec::with_capacity(bytes);
        let mut ends = Vec::with_capacity(all.len());
        for tag in all {
            text.extend_from_slice(tag);
            ends.push(u32::try_from(text.len()).expect("bounded by TAGS_BYTES_MAX"));
        }
        Ok(Self { text: text.into_boxed_slice(), ends: ends.into_boxed_slice() })
    }

    /// Each tag's bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| {
            let begin = if at == 0 { 0 } else { self.ends[at - 1] as usize };
            &self.text[begin..self.ends[at] as usize]
        })
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + 4 * self.ends.len()
    }
}

/// Whether a field carries tags.
#[must_use]
pub fn is_field(name: &HeaderName) -> bool {
    FIELDS.contains(name)
}

/// The tags in one line of a field.
pub fn split<'a>(field: &HeaderName, line: &'a [u8]) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    let (spaces, commas) = match field.as_str() {
        "surrogate-key" => (true, false),
        "cache-tag" => (false, true),
        _ => (true, true),
    };
    let ends = move |byte: &u8| match byte {
        b' ' | b'\t' => spaces,
        b',' => commas,
        _ => false,
    };
    line.split(ends).map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(lines: &[(&'static str, &str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let tags = Tags::of(&headers).unwrap();
        tags.iter().map(|tag| String::from_utf8_lossy(tag).into_owned()).collect()
    }

    #[test]
    fn each_dialect_is_split_by_its_own_separators() {
        assert_eq!(tags(&[("surrogate-key", "b  a,c b")]), ["a,c", "b"]);
        assert_eq!(tags(&[("cache-tag", "b, a c ,,b")]), ["a c", "b"]);
        assert_eq!(tags(&[("x-cache-tags", "b,a c")]), ["a", "b", "c"]);
        assert_eq!(tags(&[("xkey", "b a"), ("xkey", "c"), ("cache-tag", "a")]), ["a", "b", "c"]);
        assert_eq!(tags(&[("xkey", " , ")]), Vec::<String>::new());
        assert_eq!(
            tags(&[("cache-tags", "node:1 b"), ("x-magento-tags", "c,d")]),
            ["b", "c", "d", "node:1"]
        );
        assert_eq!(tags(&[("purge-cache-tags", "b a")]), ["a", "b"]);
    }

    #[test]
    fn too_many_are_refused_and_none_is_forgotten() {
        let many: Vec<String> = (0..TAGS_MAX).map(|at| format!("{at:04}")).collect();
        let tags = Tags::from_tags(many.iter().map(String::as_bytes)).unwrap();
        assert_eq!((tags.len(), tags.is_empty()), (TAGS_MAX, false));
        assert!(tags.iter().eq(many.iter().map(String::as_bytes)));
        let more = many.iter().map(String::as_bytes).chain([b"x".as_slice()]);
        assert_eq!(Tags::from_tags(more), Err(TooManyTags));
        let long = vec![b'x'; TAGS_BYTES_MAX + 1];
        assert_eq!(Tags::from_tags([long.as_slice()]), Err(TooManyTags));
    }
}
