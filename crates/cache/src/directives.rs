//! What `Cache-Control` says (RFC 9111, 5.2), and `CDN-Cache-Control` in its place (RFC 9213).

use http::header::{CACHE_CONTROL, HeaderMap, HeaderName};

/// The targeted field, for caches like this one alone.
pub(crate) const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// A directive that may be meant for some fields only: `private`, `no-cache`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Scope {
    #[default]
    Absent,
    /// The whole response.
    Whole,
    /// These fields of it.
    Fields(Vec<HeaderName>),
}

impl Scope {
    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::Whole
    }

    /// What both say together.
    fn join(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Fields(all), Self::Fields(more)) => all.extend(more),
            (Self::Whole, _) | (_, Self::Absent) => {}
            (_, other) => *self = other,
        }
    }

    pub(crate) fn fields(&self) -> &[HeaderName] {
        if let Self::Fields(fields) = self { fields } else { &[] }
    }
}

/// What the directives of a response, or of a request, say. Times in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Directives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: Scope,
    pub(crate) private: Scope,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    /// `max-stale` without a number: any time.
    pub(crate) max_stale: Option<u64>,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
    /// They came from `CDN-Cache-Control`, so that `Expires` does not count.
    pub(crate) targeted: bool,
}

impl Directives {
    /// Those that count for a response here.
    pub(crate) fn of_response(headers: &HeaderMap) -> Self {
        let targeted = crate::structured::targeted(headers, &CDN_CACHE_CONTROL);
        targeted.unwrap_or_else(|| Self::of(headers))
    }

    /// Those of `Cache-Control`.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut all = Self::default();
        for line in headers.get_all(CACHE_CONTROL) {
            for part in split_unquoted(line.as_bytes()) {
                let (name, value) = name_and_value(part);
                all.add(name, value);
            }
        }
        all
    }

    /// Whether `name` is a directive known here, which then counts.
    pub(crate) fn add(&mut self, name: &[u8], value: Option<&[u8]>) -> bool {
        let seconds = || seconds(value);
        // Of several values the least counts, and one that is no number makes it stale.
        let least = |old: &mut Option<u64>, new| *old = Some(old.map_or(new, |old| old.min(new)));
        match name.to_ascii_lowercase().as_slice() {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache.join(scope(value)),
            b"private" => self.private.join(scope(value)),
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => least(&mut self.max_age, seconds()),
            b"s-maxage" => least(&mut self.s_maxage, seconds()),
            b"min-fresh" => least(&mut self.min_fresh, seconds()),
            b"max-stale" if value.is_none() => self.max_stale = Some(u64::MAX),
            b"max-stale" => least(&mut self.max_stale, seconds()),
            b"stale-while-revalidate" => least(&mut self.stale_while_revalidate, seconds()),
            b"stale-if-error" => least(&mut self.stale_if_error, seconds()),
            _ => return false,
        }
        true
    }
}

/// Parts between commas that are not within quotes.
pub(crate) fn split_unquoted(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = line.split(move |&byte| {
        let ends = byte == b',' && !quoted;
        (quoted, escaped) = match byte {
            b'"' if !escaped => (!quoted, false),
            b'\\' if quoted => (quoted, !escaped),
            _ => (quoted, false),
        };
        ends
    });
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// `name`, `name=value` or `name="value"`; no space may stand around the equals sign.
fn name_and_value(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(at) = part.iter().position(|&byte| byte == b'=') else { return (part, None) };
    (&part[..at], Some(unquoted(&part[at + 1..])))
}

/// What stands within the quotes, if there are some around it all.
pub(crate) fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    }
}

/// A number of seconds; 0 for what is none, and as many as fit for one that is too large.
fn seconds(value: Option<&[u8]>) -> u64 {
    number(value.unwrap_or_default()).unwrap_or(0)
}

/// A number of digits alone; as much as fits for one that is too large.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(text.iter().fold(0, add))
}

fn scope(value: Option<&[u8]>) -> Scope {
    let Some(value) = value else { return Scope::Whole };
    let names = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let names: Result<Vec<_>, _> =
        names.filter(|name| !name.is_empty()).map(HeaderName::from_bytes).collect();
    match names {
        Ok(names) if !names.is_empty() => Scope::Fields(names),
        _ => Scope::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(CACHE_CONTROL, line.parse().unwrap());
        }
        Directives::of(&headers)
    }

    #[test]
    fn max_age_is_read_as_the_suite_asks() {
        for (line, expected) in [
            ("max-age=3600", Some(3600)),
            ("MaX-aGe=3600", Some(3600)),
            ("foobar, max-age=3600", Some(3600)),
            ("max-age=003600", Some(3600)),
            ("max-age=\"3600\"", Some(3600)),
            ("max-age=99999999999", Some(99_999_999_999)),
            ("max-age=99999999999999999999999", Some(u64::MAX)),
            ("extension=\"max-age=3600\", max-age=1", Some(1)),
            ("max-age=1, extension=\"max-age=3600\"", Some(1)),
            ("e=\"a\\\", max-age=3600\", max-age=1", Some(1)),
            ("max-age=-3600", Some(0)),
            ("max-age='3600'", Some(0)),
            ("max-age=3600.5", Some(0)),
            ("max-age= 3600", Some(0)),
            ("max-age", Some(0)),
            ("max-age =3600", None),
            ("max-age=1800, max-age=1", Some(1)),
            ("max-age=1, max-age=1800", Some(1)),
            ("s-maxage=3", None),
        ] {
            assert_eq!(of(&[line]).max_age, expected, "{line}");
        }
        assert_eq!(of(&["max-age=5", "max-age=7, s-maxage=9"]).s_maxage, Some(9));
    }

    #[test]
    fn directives_may_be_for_some_fields() {
        let fields = |names: &[&'static str]| {
            Scope::Fields(names.iter().map(|name| HeaderName::from_static(name)).collect())
        };
        assert_eq!(of(&["no-cache"]).no_cache, Scope::Whole);
        assert_eq!(of(&["No-CaChE=\"a, B\""]).no_cache, fields(&["a", "b"]));
        assert_eq!(of(&["no-cache=a", "no-cache=\"b\""]).no_cache, fields(&["a", "b"]));
        assert_eq!(of(&["no-cache=\"a\", no-cache"]).no_cache, Scope::Whole);
        assert_eq!(of(&["private=\" \""]).private, Scope::Whole);
        assert_eq!(of(&["private=\"a b\""]).private, Scope::Whole);
        assert_eq!(of(&["max-stale"]).max_stale, Some(u64::MAX));
        assert!(of(&["No-StOrE"]).no_store && of(&[",public,"]).public);
    }
}
