//! `sticky` and `rate` of a site: what concerns its traffic.

use super::model::{Sticky, StickyBy};
use super::problem::Findings;
use super::reader::{At, Table, shown};
use super::schema::{RATE, STICKY, Section};
use edge::{HashBy, Rate, RateOptions};
use std::path::PathBuf;

/// The longest name of a cookie: a request has room for many, and logs for one.
const COOKIE_NAME_BYTES_MAX: usize = 64;

/// A table within a site's, if it is given.
pub(super) fn inner<'a>(
    site: &Table<'a>,
    section: &'static Section,
    findings: &'a Findings,
) -> Option<Table<'a>> {
    let value = site.get(section.name)?;
    if !value.get_ref().is_table() {
        let message = format!("`{}` is not a table", section.name);
        findings.error(&value.span(), message, "write it in braces: `{ ... }`");
        return None;
    }
    let mut table = Table::open(section, Some(value), findings);
    table.title = format!("`{}` of {}", section.name, site.title);
    Some(table)
}

/// How many requests each edge lets in.
pub(super) fn rate<'a>(site: &Table<'a>, findings: &'a Findings) -> RateOptions {
    let Some(table) = inner(site, &RATE, findings) else { return RateOptions::default() };
    let one = |per_s: &str, burst: &str| {
        let given: Option<At<u32>> = table.integer_given(burst);
        let Some(per_s_given) = table.integer_given(per_s) else {
            let spoilt = table.get(per_s).is_some();
            if let Some(burst_given) = given.filter(|_| !spoilt) {
                let message = format!("{} has `{burst}` without `{per_s}`", table.title);
                findings.error(&burst_given.span, message, format!("add `{per_s}`"));
            }
            return None;
        };
        let per_s: u32 = per_s_given.value;
        Some(Rate { per_s, burst: given.map_or(per_s, |burst| burst.value) })
    };
    RateOptions {
        client: one("client_per_s", "client_burst"),
        site: one("site_per_s", "site_burst"),
    }
}

/// Which requests go to one server.
pub(super) fn sticky<'a>(site: &Table<'a>, findings: &'a Findings) -> Option<Sticky> {
    let table = inner(site, &STICKY, findings)?;
    let either = "write `{ cookie = \"NAME\" }` or `{ hash = \"address\" }`";
    let (cookie, hash) = (table.text_given("cookie"), table.text_given("hash"));
    let key_file = key_file(&table, findings);
    let wait_ms = table.integer("wait_ms").value;
    let by = match (cookie, hash) {
        (Some(name), None) => {
            let name = cookie_name(&name, findings)?;
            StickyBy::Cookie { name, key_file: key_file.map(|file| file.value) }
        }
        (None, Some(hash)) => {
            if let Some(file) = key_file {
                let message = format!("{} has `key_file` without `cookie`", table.title);
                findings.error(&file.span, message, "a hash needs no key: remove it");
            }
            StickyBy::Hash(hash_by(&hash, findings)?)
        }
        (Some(_), Some(hash)) => {
            let message = format!("{} has both `cookie` and `hash`", table.title);
            findings.error(&hash.span, message, either);
            return None;
        }
        // With a wrong value, that was reported.
        (None, None) if table.get("cookie").or_else(|| table.get("hash")).is_some() => return None,
        (None, None) => {
            let message = format!("{} says neither `cookie` nor `hash`", table.title);
            findings.error(&table.span, message, either);
            return None;
        }
    };
    Some(Sticky { by, wait_ms })
}

fn key_file(table: &Table<'_>, findings: &Findings) -> Option<At<PathBuf>> {
    let At { value, span } = table.text_given("key_file")?;
    let path = PathBuf::from(value);
    if !path.is_absolute() || value.contains('\0') {
        findings.error(&span, "`key_file` is not an absolute path", "start it with `/`");
        return None;
    }
    Some(At { value: path, span })
}

fn cookie_name(name: &At<&str>, findings: &Findings) -> Option<String> {
    if edge::is_token(name.value) && name.value.len() <= COOKIE_NAME_BYTES_MAX {
        return Some(name.value.to_owned());
    }
    let message = format!("`{}` is no name of a cookie", shown(name.value));
    let help = format!("letters, digits, `-` and `_`, at most {COOKIE_NAME_BYTES_MAX}");
    findings.error(&name.span, message, help);
    None
}

fn hash_by(text: &At<&str>, findings: &Findings) -> Option<HashBy> {
    let by = HashBy::parse(text.value);
    if by.is_none() {
        let message = format!("`hash` is `{}`, which is not known", shown(text.value));
        findings.error(&text.span, message, "`address`, `header:NAME` or `cookie:NAME`");
    }
    by
}
