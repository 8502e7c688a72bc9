//! What a request tells of changes, in the dialects that applications speak. Pure.
//!
//! | request | invalidates |
//! | --- | --- |
//! | `PURGE`, none of the fields below | its URL |
//! | `PURGE`, `BAN` and a field of [`FIELDS`] | tags, or with the pattern `.*` everything |
//! | `PURGETAGS`, `PURGEKEYS` and such a field | tags |
//! | `BAN` with `X-Url: .*` | everything |
//! | `PURGE` with `Clear-Cache: true`, or with `X-Purge-Method: regex` of `/.*` | everything |
//! | `POST /service/SITE/purge/KEY` | a tag |
//! | `POST /service/SITE/purge` with `Surrogate-Key`, or keys in its body | tags |
//! | `POST /service/SITE/purge_all` | everything |
//!
//! Tags and URLs may be purged softly, see [`is_soft`].

use super::keys;
use super::keys::BODY_BYTES_MAX;
use super::pattern::{self, Pattern};
use cache::tags::split;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use thiserror::Error;
use writers::line::{TAG_BYTES_MAX, check_tag};

/// Tags of one request: what one update of a version table takes, and four times what CDNs do.
pub(super) const TAGS_MAX: usize = 1_000;
const _: () = assert!(TAGS_MAX <= writers::line::TAGS_MAX);

/// Bytes of all tags of a request: four times the header that applications keep below.
pub(super) const TAGS_BYTES_MAX: usize = 32 << 10;
const _: () = assert!(TAGS_BYTES_MAX + 2 * TAGS_MAX < writers::line::LINE_BYTES_MAX);

/// What the paths of Fastly's interface begin with.
const SERVICE: &str = "/service/";

/// How a field names tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As the field of this name does in a response.
    List(&'static str),
    /// As a regular expression that an application writes for Varnish.
    Pattern,
    /// As a regular expression; in a request that is made for lists as a list.
    Either(&'static str),
}

/// The field by which xkey purges softly.
const XKEY_SOFT: &str = "xkey-softpurge";

/// The field by which Fastly makes any purge but that of everything a soft one.
const FASTLY_SOFT: &str = "fastly-soft-purge";

/// The fields that name tags.
const FIELDS: [(&str, Form); 10] = [
    ("xkey", Form::List("xkey")),
    ("xkey-purge", Form::List("xkey")),
    (XKEY_SOFT, Form::List("xkey")),
    ("surrogate-key", Form::List("surrogate-key")),
    ("cache-tag", Form::List("cache-tag")),
    ("x-cache-tags", Form::Either("x-cache-tags")),
    ("cache-tags", Form::Either("cache-tags")),
    ("purge-cache-tags", Form::Either("purge-cache-tags")),
    ("x-magento-tags-pattern", Form::Pattern),
    ("apiplatform-ban-regex", Form::Pattern),
];

/// Fields that narrow a ban; only a pattern of everything is understood.
const NARROWING: [&str; 3] = ["x-url", "x-host", "x-content-type"];

/// What is to be invalidated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Everything,
    /// The request's own URL.
    Url,
    /// One at least.
    Tags(Vec<String>),
}

/// Why a request does not say what to invalidate.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Wrong {
    #[error(
        "this names nothing to invalidate: name tags in xkey, xkey-purge, xkey-softpurge, \
         Surrogate-Key, Cache-Tag, X-Cache-Tags, Cache-Tags, Purge-Cache-Tags, \
         X-Magento-Tags-Pattern or ApiPlatform-Ban-Regex; everything with BAN and X-Url: .*; one \
         URL with PURGE and none of these"
    )]
    Nothing,
    #[error("{0} names no tag")]
    NoTag(&'static str),
    #[error(
        "{0} is a pattern that is no list of tags: supported are .* and tags like a|b, \
         (^|,)(a|b)(,|$) and ((^|,)a(,|$))|((^|,)b(,|$)), with \\ before signs"
    )]
    Pattern(&'static str),
    #[error(
        "{0} is a pattern: supported is .* alone; the site is found by Host, and for pages give \
         them a tag in common"
    )]
    Narrowing(&'static str),
    #[error("a tag has 1 to {TAG_BYTES_MAX} bytes of UTF-8 without control characters")]
    BadTag,
    #[error("more than {TAGS_MAX} tags, or {TAGS_BYTES_MAX} bytes of them: send several requests")]
    TooManyTags,
    #[error("X-Purge-Method: supported is regex for the path /.*, which purges everything")]
    PurgeMethod,
    #[error(
        "supported are POST /service/SITE/purge/KEY, /service/SITE/purge with Surrogate-Key or \
         keys in a body, and /service/SITE/purge_all, where SITE is the site's name in Polder's \
         settings"
    )]
    Service,
    #[error("name the keys in Surrogate-Key, or in a body like {{\"surrogate_keys\": [\"KEY\"]}}")]
    NoKeys,
    #[error("the body is not JSON like {{\"surrogate_keys\": [\"KEY\"]}}: {0}")]
    Body(String),
    #[error("the body has more than {BODY_BYTES_MAX} bytes: send several requests")]
    LongBody,
    #[error("the body did not come to its end")]
    BrokenBody,
    #[error("the key in the path is not percent-encoded as it should be")]
    BadKey,
}

/// Whether a request tells of changes at all; then what [`read`] says of it counts.
pub(super) fn is_spoken(method: &Method, path: &str) -> bool {
    match *method {
        Method::GET | Method::HEAD => false,
        Method::POST => service(path).is_some(),
        _ => matches!(method.as_str(), "PURGE" | "BAN" | "PURGETAGS" | "PURGEKEYS"),
    }
}

/// Whether the body of such a request may say something.
pub(super) fn wants_body(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    let is_list = || service(path).is_some_and(|(_, order)| order == "purge");
    *method == Method::POST && is_list() && keys::may_be_in_body(headers)
}

/// Whether what is asked for may go on as stale: what tags and URLs void, but not everything, where
/// Fastly's field says so, or where all tags are named in xkey's field for it.
pub(super) fn is_soft(headers: &HeaderMap, asked: &Asked) -> bool {
    if *asked == Asked::Everything {
        return false;
    }
    let fastly = headers.contains_key(FASTLY_SOFT) && all_say(headers, FASTLY_SOFT, "1");
    let named = |soft: bool| {
        FIELDS
            .iter()
            .any(|(field, _)| (*field == XKEY_SOFT) == soft && headers.contains_key(*field))
    };
    fastly || (named(true) && !named(false))
}

/// What a request asks for, which [`is_spoken`]. The body is empty but where [`wants_body`].
pub(super) fn read(
    site: &str,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Asked, Wrong> {
    if *method == Method::POST {
        let (id, order) = service(path).ok_or(Wrong::Service)?;
        return if id == site { fastly(order, headers, body) } else { Err(Wrong::Service) };
    }
    let named = named(method.as_str(), headers)?;
    if let Some(field) = NARROWING.iter().find(|field| !all_say(headers, field, ".*")) {
        return Err(Wrong::Narrowing(field));
    }
    if let Some(asked) = named {
        return Ok(asked);
    }
    match method.as_str() {
        "PURGE" if headers.contains_key("x-purge-method") => purge_method(path, headers),
        "PURGE"
            if headers.contains_key("clear-cache") && all_say(headers, "clear-cache", "true") =>
        {
            Ok(Asked::Everything)
        }
        "PURGE" => Ok(Asked::Url),
        "BAN" if headers.contains_key("x-url") => Ok(Asked::Everything),
        _ => Err(Wrong::Nothing),
    }
}

/// Whether all lines of a field have this value; so if there is none.
fn all_say(headers: &HeaderMap, field: &str, value: &str) -> bool {
    headers.get_all(field).iter().all(|line| line.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
}

/// As plugins of WordPress say it.
fn purge_method(path: &str, headers: &HeaderMap) -> Result<Asked, Wrong> {
    if all_say(headers, "x-purge-method", "default") || all_say(headers, "x-purge-method", "exact")
    {
        return Ok(Asked::Url);
    }
    match all_say(headers, "x-purge-method", "regex") && path == "/.*" {
        true => Ok(Asked::Everything),
        false => Err(Wrong::PurgeMethod),
    }
}

/// What the fields of tags name; none if there is no such field.
fn named(method: &str, headers: &HeaderMap) -> Result<Option<Asked>, Wrong> {
    let takes_lists = matches!(method, "PURGETAGS" | "PURGEKEYS");
    let (mut tags, mut is_named, mut is_everything) = (Tags::default(), false, false);
    for (field, form) in FIELDS {
        for line in headers.get_all(field) {
            is_named = true;
            let list = match form {
                Form::List(list) => Some(list),
                Form::Either(list) => takes_lists.then_some(list),
                Form::Pattern => None,
            };
            match list {
                Some(list) => tags.add_list(field, list, line)?,
                None => match pattern::read(line.as_bytes().trim_ascii()) {
                    Some(Pattern::Everything) => is_everything = true,
                    Some(Pattern::Tags(found)) => tags.add(found.iter().map(Vec::as_slice))?,
                    None => return Err(Wrong::Pattern(field)),
                },
            }
        }
    }
    Ok(match (is_named, is_everything) {
        (false, _) => None,
        (true, true) => Some(Asked::Everything),
        (true, false) => Some(Asked::Tags(tags.all)),
    })
}

/// The service of a path of Fastly's interface, and what comes behind it.
fn service(path: &str) -> Option<(&str, &str)> {
    let (id, order) = path.strip_prefix(SERVICE)?.split_once('/')?;
    let is_purge = order == "purge" || order == "purge_all" || order.starts_with("purge/");
    is_purge.then_some((id, order))
}

fn fastly(order: &str, headers: &HeaderMap, body: &[u8]) -> Result<Asked, Wrong> {
    let mut tags = Tags::default();
    match order.strip_prefix("purge/") {
        Some(key) => tags.add([decoded(key)?.as_slice()])?,
        None if order == "purge_all" => return Ok(Asked::Everything),
        None => {
            let field = "surrogate-key";
            for line in headers.get_all(field) {
                tags.add_list(field, field, line)?;
            }
            tags.add(keys::read(body)?.iter().map(String::as_bytes))?;
            if tags.all.is_empty() {
                return Err(Wrong::NoKeys);
            }
        }
    }
    Ok(Asked::Tags(tags.all))
}

/// Without percent-encoding.
fn decoded(text: &str) -> Result<Vec<u8>, Wrong> {
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(Wrong::BadKey);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut next = || digit(rest.next().ok_or(Wrong::BadKey)?);
                // Two digits of 16 are a byte.
                (next()? << 4 | next()?) as u8
            }
            byte => byte,
        });
    }
    Ok(bytes)
}

#[derive(Default)]
struct Tags {
    all: Vec<String>,
    bytes: usize,
}

impl Tags {
    fn add_list(
        &mut self,
        field: &'static str,
        list: &'static str,
        line: &HeaderValue,
    ) -> Result<(), Wrong> {
        let before = self.all.len();
        self.add(split(&HeaderName::from_static(list), line.as_bytes()))?;
        if self.all.len() == before { Err(Wrong::NoTag(field)) } else { Ok(()) }
    }

    fn add<'t>(&mut self, tags: impl IntoIterator<Item = &'t [u8]>) -> Result<(), Wrong> {
        for tag in tags {
            check_tag(tag).map_err(|_| Wrong::BadTag)?;
            self.bytes += tag.len();
            if self.all.len() == TAGS_MAX || self.bytes > TAGS_BYTES_MAX {
                return Err(Wrong::TooManyTags);
            }
            self.all.push(std::str::from_utf8(tag).map_err(|_| Wrong::BadTag)?.to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "dialect_tests.rs"]
mod tests;
