//! `cache` of a site: which of its responses the edges keep, and for whom.

use super::problem::Findings;
use super::reader::{At, Table, shown};
use super::schema::CACHE;
use super::traffic::inner;
use cache::{Cookies, DiskLimits, Mode, Rules, Source, Unkeyed};
use http::HeaderName;
use std::path::PathBuf;
use toml::Value;

/// Most fields of a list: each is compared with those of every request that may be a hit.
const FIELDS_MAX: usize = 32;

/// In the order of the schema.
const SOURCES: [Source; 3] = [Source::Acknowledged, Source::Linearizable, Source::Bounded];

/// Reads the table.
pub(super) fn cache<'a>(site: &Table<'a>, findings: &'a Findings) -> Rules {
    let usual = Rules::default();
    let Some(table) = inner(site, &CACHE, findings) else { return usual };
    let mode = table.choice("mode", &[Mode::Off, Mode::Http, Mode::Strict]);
    if mode == Mode::Strict && site.get("tags").is_none() {
        let span = table.get("mode").map_or_else(|| table.span.clone(), toml::Spanned::span);
        let message = format!("{} wants mode `strict` for a site without `tags`", table.title);
        let help = "add `tags = 16_777_216` to the site: hits are proved by its version table";
        findings.error(&span, message, help);
    }
    let source = match site.get("files") {
        Some(_) => of_files(&table, findings),
        None => table.choice("source", &SOURCES),
    };
    let flag = |name, usual| table.flag(name).map_or(usual, |flag| flag.value);
    Rules {
        mode,
        cookies: cookies(&table, findings),
        unkeyed: table.choice("unkeyed", &[Unkeyed::Removed, Unkeyed::Passed]),
        keyed: keyed(usual.keyed, fields(&table, "keyed", findings)),
        passed: fields(&table, "passed", findings).unwrap_or_default(),
        client_directives: flag("client_directives", usual.client_directives),
        heuristics: flag("heuristics", usual.heuristics),
        lifetime_max_ms: table.integer("lifetime_max_ms").value,
        stale_if_error_ms: table.integer("stale_if_error_ms").value,
        stale_while_revalidate: flag("stale_while_revalidate", usual.stale_while_revalidate),
        object_max_bytes: table.integer("object_max_bytes").value,
        tags_to_clients: table.choice("tags", &[false, true]),
        source,
        strict_lifetime_ms: table.integer("strict_lifetime_ms").value,
        audit_per_million: table.integer("audit_per_million").value,
        // The edge's part of `files`.
        files_at: None,
    }
}

/// What a site promises whose files are watched: their changes are seen a moment later.
fn of_files(table: &Table<'_>, findings: &Findings) -> Source {
    if let Some(said) = table.get("source")
        && table.choice("source", &SOURCES) != Source::Bounded
    {
        let message = format!("{} promises more than a watch of `files` can keep", table.title);
        findings.error(&said.span(), message, "write `source = \"bounded\"`, or nothing");
    }
    Source::Bounded
}

/// Where an edge keeps what its memory has no room for.
pub(super) fn disk(http: &Table<'_>, findings: &Findings) -> Option<DiskLimits> {
    let folder = http.text_given("cache_disk_folder");
    let bytes: Option<At<u64>> = http.integer_given("cache_disk_bytes");
    let names = ["cache_disk_folder", "cache_disk_bytes"];
    for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
        if let (Some(value), None) = (http.get(name), http.get(other)) {
            let message = format!("[http] has `{name}` without `{other}`");
            findings.error(&value.span(), message, "write both, or neither");
        }
    }
    let folder = folder.filter(|folder| {
        let is_good = folder.value.starts_with('/') && !folder.value.contains('\0');
        if !is_good {
            let message = "`cache_disk_folder` is not an absolute path";
            findings.error(&folder.span, message, "start it with `/`");
        }
        is_good
    })?;
    Some(DiskLimits { folder: PathBuf::from(folder.value), bytes: bytes?.value })
}

/// The usual ones and these.
fn keyed(usual: Vec<HeaderName>, given: Option<Vec<HeaderName>>) -> Vec<HeaderName> {
    let mut keyed = usual;
    for field in given.unwrap_or_default() {
        if !keyed.contains(&field) {
            keyed.push(field);
        }
    }
    keyed
}

fn cookies(table: &Table<'_>, findings: &Findings) -> Cookies {
    let said = table.choice("cookies", &[Cookie::ByVary, Cookie::Ignored, Cookie::Bypass]);
    let Some(names) = table.texts("keyed_cookies") else {
        return match said {
            Cookie::ByVary => Cookies::ByVary,
            Cookie::Ignored => Cookies::Ignored,
            Cookie::Bypass => Cookies::Bypass,
        };
    };
    if let Some(said) = table.get("cookies") {
        let message = format!("{} has both `cookies` and `keyed_cookies`", table.title);
        findings.error(
            &said.span(),
            message,
            "`keyed_cookies` says what they do: remove `cookies`",
        );
    }
    too_many(&names, "keyed_cookies", findings);
    let mut keyed = Vec::new();
    for name in names.value {
        if edge::is_token(name.value) {
            keyed.push(name.value.to_owned());
        } else {
            let message = format!("`{}` is no name of a cookie", shown(name.value));
            findings.error(&name.span, message, "letters, digits, `-` and `_`");
        }
    }
    Cookies::Keyed(keyed)
}

#[derive(Clone, Copy)]
enum Cookie {
    ByVary,
    Ignored,
    Bypass,
}

/// A list of names of header fields.
fn fields(table: &Table<'_>, key: &str, findings: &Findings) -> Option<Vec<HeaderName>> {
    let given = table.texts(key)?;
    too_many(&given, key, findings);
    let mut fields: Vec<HeaderName> = Vec::new();
    for name in given.value {
        match name.value.parse() {
            Ok(field) if !fields.contains(&field) => fields.push(field),
            Ok(_) => {
                let message = format!("`{}` stands in `{key}` twice", shown(name.value));
                findings.error(&name.span, message, "remove one of them");
            }
            Err(_) => {
                let message = format!("`{}` is no name of a header field", shown(name.value));
                findings.error(&name.span, message, "write it as `X-Name`, without a value");
            }
        }
    }
    Some(fields)
}

fn too_many(given: &At<Vec<At<&str>>>, key: &str, findings: &Findings) {
    if given.value.len() > FIELDS_MAX {
        let message = format!("`{key}` has {} names, more than {FIELDS_MAX}", given.value.len());
        findings.error(&given.span, message, "each is compared with every request");
    }
}

/// As it is written in the file; none for a site without a cache that says nothing else.
pub(super) fn written(rules: &Rules) -> Option<toml::Table> {
    if *rules == Rules::default() {
        return None;
    }
    let word = |word: &str| Value::from(word);
    // The schema keeps them below 2^63.
    let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
    let names = |names: &[HeaderName]| {
        Value::from(names.iter().map(ToString::to_string).collect::<Vec<String>>())
    };
    let mut table = toml::Table::new();
    let mut put = |name: &str, value| drop(table.insert(name.to_owned(), value));
    put("mode", word(cache_mode_name(rules.mode)));
    put("source", word(rules.source.label()));
    put("strict_lifetime_ms", number(rules.strict_lifetime_ms));
    put("audit_per_million", number(rules.audit_per_million.into()));
    match &rules.cookies {
        Cookies::ByVary => put("cookies", word("by-vary")),
        Cookies::Ignored => put("cookies", word("ignored")),
        Cookies::Bypass => put("cookies", word("bypass")),
        Cookies::Keyed(names) => put("keyed_cookies", Value::from(names.clone())),
    }
    put("unkeyed", word(if rules.unkeyed == Unkeyed::Passed { "passed" } else { "removed" }));
    let usual = Rules::default().keyed;
    let keyed: Vec<_> = rules.keyed.iter().filter(|name| !usual.contains(name)).cloned().collect();
    // A list is left out or has something in it.
    for (key, fields) in [("keyed", &keyed), ("passed", &rules.passed)] {
        if !fields.is_empty() {
            put(key, names(fields));
        }
    }
    put("client_directives", Value::from(rules.client_directives));
    put("heuristics", Value::from(rules.heuristics));
    put("lifetime_max_ms", number(rules.lifetime_max_ms));
    put("stale_if_error_ms", number(rules.stale_if_error_ms));
    put("stale_while_revalidate", Value::from(rules.stale_while_revalidate));
    put("object_max_bytes", number(rules.object_max_bytes));
    put("tags", word(if rules.tags_to_clients { "kept" } else { "removed" }));
    Some(table)
}

/// The word in settings and status.
#[must_use]
pub const fn cache_mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Http => "http",
        Mode::Strict => "strict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Problems, Settings, parse};

    fn settings(cache: &str) -> Result<Settings, Problems> {
        let text = format!(
            "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\ncache = {cache}\n\
             [[nodes]]\nname = 'n'\nservers = {{ shop = '127.0.0.1:9001' }}\n"
        );
        parse("x.toml", &text, &[]).map(|checked| checked.settings)
    }

    #[test]
    fn the_defaults_of_the_tables_are_those_of_the_cache() {
        assert_eq!(*settings("{ }").unwrap().sites[0].cache, Rules::default());
        let read = settings("{ mode = 'http' }").unwrap();
        let expected = Rules { mode: Mode::Http, ..Rules::default() };
        assert_eq!(*read.sites[0].cache, expected);
    }

    #[test]
    fn what_is_read_is_written_back() {
        for given in [
            "{ mode = 'http', cookies = 'ignored', unkeyed = 'passed', tags = 'kept' }",
            "{ mode = 'http', keyed_cookies = ['lang'], keyed = ['X-A', 'Origin'], \
             passed = ['X-Trace'] }",
            "{ mode = 'http', client_directives = true, heuristics = false, \
             lifetime_max_ms = 5_000, stale_if_error_ms = 60_000, \
             stale_while_revalidate = true, object_max_bytes = 1_000 }",
            "{ mode = 'off', stale_if_error_ms = 60_000 }",
            "{ mode = 'strict', source = 'linearizable', strict_lifetime_ms = 60_000, \
             audit_per_million = 7 }\ntags = 256",
        ] {
            let read = settings(given).unwrap();
            let again = parse("copy", &read.to_toml(), &[]).unwrap().settings;
            assert_eq!(again, read, "{given}");
        }
    }

    fn http(lines: &str) -> Result<Settings, Problems> {
        let text = format!(
            "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\n[http]\n{lines}\n\
             [[nodes]]\nname = 'n'\nservers = {{ shop = '127.0.0.1:9001' }}\n"
        );
        parse("x.toml", &text, &[]).map(|checked| checked.settings)
    }

    #[test]
    fn a_disk_has_a_folder_and_a_limit() {
        assert_eq!(http("").unwrap().http.cache_disk, None);
        let read =
            http("cache_disk_folder = '/var/cache/polder'\ncache_disk_bytes = 1_048_576").unwrap();
        let folder = PathBuf::from("/var/cache/polder");
        assert_eq!(read.http.cache_disk, Some(DiskLimits { folder, bytes: 1 << 20 }));
        assert_eq!(parse("copy", &read.to_toml(), &[]).unwrap().settings, read);
        for (lines, told) in [
            ("cache_disk_folder = '/x'", "`cache_disk_folder` without `cache_disk_bytes`"),
            ("cache_disk_bytes = 2_000_000", "`cache_disk_bytes` without `cache_disk_folder`"),
            ("cache_disk_folder = 'x'\ncache_disk_bytes = 2_000_000", "not an absolute path"),
            ("cache_disk_folder = '/x'\ncache_disk_bytes = 2", "out of range"),
        ] {
            let text = http(lines).unwrap_err().to_string();
            assert!(text.contains(told), "{lines}: {text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        for (given, told) in [
            ("{ mode = 'strict' }", "wants mode `strict` for a site without `tags`"),
            ("{ source = 'exact' }", "linearizable"),
            ("{ mode = 'htpp' }", "did you mean `http`?"),
            ("{ keyed = ['X Y'] }", "`X Y` is no name of a header field"),
            ("{ keyed = ['X-Y', 'x-y'] }", "`x-y` stands in `keyed` twice"),
            ("{ keyed_cookies = ['a b'] }", "`a b` is no name of a cookie"),
            ("{ cookies = 'ignored', keyed_cookies = ['a'] }", "has both `cookies` and"),
            ("{ object_max_bytes = 0 }", "object_max_bytes"),
            ("true", "`cache` is not a table"),
        ] {
            let text = settings(given).unwrap_err().to_string();
            assert!(text.contains(told), "{given}: {text}");
        }
    }
}
