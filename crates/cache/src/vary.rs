//! Which requests a stored response is for, beyond its key (RFC 9111, 4.1).
//!
//! A response is found by the fields that its `Vary` names, by the keyed fields and cookies of its
//! site, and by `Accept-Encoding` if it is encoded, whether or not `Vary` says so. Values are
//! compared as sent first, which is what repeated requests of one client match by; then as they
//! mean the same.

use std::borrow::Cow;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_LANGUAGE, CONTENT_ENCODING, COOKIE, HeaderMap, HeaderName, VARY,
};

use crate::forward;
use crate::options::{Cookies, Rules};

/// Most fields that one `Vary` may name: more would be a mistake, and cost each look-up.
pub(crate) const NAMES_MAX: usize = 16;

/// Codings that responses come in, in the order in which they are named to the server.
const CODINGS: [&str; 3] = ["br", "gzip", "zstd"];

/// A response is for no other request than its own: `Vary: *`, or too many names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForNobodyElse;

/// The names in `Vary`, each once.
pub(crate) fn names(headers: &HeaderMap) -> Result<Vec<HeaderName>, ForNobodyElse> {
    let mut names = Vec::new();
    for line in headers.get_all(VARY) {
        for name in line.as_bytes().split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if name.is_empty() {
                continue;
            }
            // A star is no name of a field, and neither is what nobody can compare.
            let name = HeaderName::from_bytes(name).map_err(|_| ForNobodyElse)?;
            if name.as_str() == "*" {
                return Err(ForNobodyElse);
            }
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.len() > NAMES_MAX { Err(ForNobodyElse) } else { Ok(names) }
}

/// The fields, and their values in the request, that a stored response is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selected {
    pub(crate) fields: Box<[Field]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: HeaderName,
    /// What the request carried if it was one line: most requests that match carry just that.
    pub(crate) raw: Option<Box<[u8]>>,
    /// What it means; `None`: the field was absent.
    pub(crate) meaning: Option<Box<[u8]>>,
}

impl Selected {
    /// What the response to this request is for.
    pub(crate) fn of(
        rules: &Rules,
        request: &HeaderMap,
        response: &HeaderMap,
    ) -> Result<Self, ForNobodyElse> {
        let mut names = names(response)?;
        let mut add = |name: HeaderName| {
            if !names.contains(&name) {
                names.push(name);
            }
        };
        if response.contains_key(CONTENT_ENCODING) {
            add(ACCEPT_ENCODING);
        }
        if matches!(rules.cookies, Cookies::Keyed(_)) {
            add(COOKIE);
        }
        for name in &rules.keyed {
            add(name.clone());
        }
        let fields = names.into_iter().map(|name| {
            let meaning = meaning(rules, request, &name).map(|value| value.into_owned().into());
            let raw = one_line(request, &name).map(Into::into);
            Field { name, raw, meaning }
        });
        Ok(Self { fields: fields.collect() })
    }

    /// Whether the response is for this request.
    pub(crate) fn is_for(&self, rules: &Rules, request: &HeaderMap) -> bool {
        self.fields.iter().all(|field| {
            if field.meaning.is_none() && !request.contains_key(&field.name) {
                return true;
            }
            let same =
                field.raw.is_some() && one_line(request, &field.name) == field.raw.as_deref();
            same || meaning(rules, request, &field.name).as_deref() == field.meaning.as_deref()
        })
    }

    /// The names, for those who explain.
    pub(crate) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.fields.iter().map(|field| &field.name)
    }

    /// What another request with other values is told apart by.
    pub(crate) fn meaning_of(&self, rules: &Rules, request: &HeaderMap) -> Vec<u8> {
        let mut all = Vec::new();
        for field in &self.fields {
            all.extend_from_slice(field.name.as_str().as_bytes());
            if let Some(value) = meaning(rules, request, &field.name) {
                all.push(b'=');
                all.extend_from_slice(&value);
            }
            all.push(b'\n');
        }
        all
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let of = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        let each = |field: &Field| size_of::<Field>() + of(&field.raw) + of(&field.meaning);
        self.fields.iter().map(each).sum()
    }
}

/// A field's value, if it has one line.
fn one_line<'a>(request: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = request.get_all(name).iter();
    let first = lines.next()?;
    lines.next().is_none().then(|| first.as_bytes())
}

/// What a field of a request means for the choice of a response: values that mean the same are
/// equal. `None` where the field is absent.
pub(crate) fn meaning<'a>(
    rules: &Rules,
    request: &'a HeaderMap,
    name: &HeaderName,
) -> Option<Cow<'a, [u8]>> {
    if *name == COOKIE {
        match &rules.cookies {
            Cookies::Ignored => return None,
            Cookies::Keyed(keyed) => return keyed_cookies(request, keyed).map(Cow::Owned),
            Cookies::ByVary | Cookies::Bypass => {}
        }
        // A cookie's value may hold anything: as sent, or nothing.
        return joined(request, name).map(Cow::Owned);
    }
    // The server never sees it, so nothing depends on it.
    if forward::is_withheld(name) {
        return None;
    }
    if *name == ACCEPT_ENCODING {
        return accepted_codings(request).map(|text| Cow::Owned(text.into_bytes()));
    }
    let value = joined(request, name)?;
    Some(Cow::Owned(if *name == ACCEPT_LANGUAGE { languages(&value) } else { tight(&value) }))
}

/// All lines of a field as one.
fn joined(request: &HeaderMap, name: &HeaderName) -> Option<Vec<u8>> {
    let mut lines = request.get_all(name).iter();
    let mut all = lines.next()?.as_bytes().to_vec();
    for line in lines {
        all.extend_from_slice(b", ");
        all.extend_from_slice(line.as_bytes());
    }
    Some(all)
}

/// Without spaces around commas.
fn tight(value: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
    parts.join(&b","[..])
}

/// Languages in small letters, the most wanted first; those wanted alike in order of their letters.
fn languages(value: &[u8]) -> Vec<u8> {
    let small = value.to_ascii_lowercase();
    let mut parts: Vec<(u32, &[u8])> = small
        .split(|&byte| byte == b',')
        .map(weighted)
        .filter(|(_, name)| !name.is_empty())
        .collect();
    parts.sort_unstable_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let mut all = Vec::with_capacity(value.len());
    for (weight, name) in parts {
        all.extend_from_slice(name);
        all.extend_from_slice(format!(";q={weight},").as_bytes());
    }
    all
}

/// A name and its weight in thousandths; 1,000 where it says none, 0 where it says nonsense.
fn weighted(part: &[u8]) -> (u32, &[u8]) {
    let mut pieces = part.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let name = pieces.next().unwrap_or_default();
    let quality =
        pieces.find_map(|piece| piece.strip_prefix(b"q=").or_else(|| piece.strip_prefix(b"Q=")));
    (quality.map_or(1_000, thousandths), name)
}

fn thousandths(text: &[u8]) -> u32 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let value: f32 = text.parse().unwrap_or(0.0);
    // At most 1,000, and no number at all is 0.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let thousandths = (value.clamp(0.0, 1.0) * 1_000.0) as u32;
    thousandths
}

/// Those of the usual codings that a request accepts, as `br, gzip`; `None` if it accepts none.
///
/// This is also what is sent to the server in the place of what the client wrote.
pub(crate) fn accepted_codings(request: &HeaderMap) -> Option<String> {
    let value = joined(request, &ACCEPT_ENCODING)?;
    let parts: Vec<(u32, &[u8])> = value.split(|&byte| byte == b',').map(weighted).collect();
    let of = |wanted: &str| {
        let named = |name: &[u8]| {
            let same = name.eq_ignore_ascii_case(wanted.as_bytes());
            same || (wanted == "gzip" && name.eq_ignore_ascii_case(b"x-gzip"))
        };
        parts.iter().find(|(_, name)| named(name))
    };
    let star = parts.iter().find(|(_, name)| *name == b"*");
    let accepted = CODINGS.into_iter().filter(|coding| {
        of(coding).or(star.filter(|_| *coding == "gzip")).is_some_and(|(weight, _)| *weight > 0)
    });
    let accepted: Vec<&str> = accepted.collect();
    (!accepted.is_empty()).then(|| accepted.join(", "))
}

/// Those cookies of a request that the site's responses are found by, in the order of the setting.
pub(crate) fn keyed_cookies(request: &HeaderMap, keyed: &[String]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for wanted in keyed {
        let lines = request.get_all(COOKIE).iter();
        let pairs = lines.flat_map(|line| line.as_bytes().split(|&byte| byte == b';'));
        for pair in pairs.map(<[u8]>::trim_ascii) {
            let name = pair.split(|&byte| byte == b'=').next().unwrap_or_default();
            if name == wanted.as_bytes() {
                if !all.is_empty() {
                    all.extend_from_slice(b"; ");
                }
                all.extend_from_slice(pair);
            }
        }
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
#[path = "vary_tests.rs"]
mod tests;
