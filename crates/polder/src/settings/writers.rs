//! `tags` of a site and who may tell of changes: its version table and its writers' socket.

use super::model::{Files, Tags, TagsRead};
use super::names;
use super::problem::Findings;
use super::reader::{At, Table, shown};
use shared_state::versions::SlotBits;
use std::net::SocketAddr;
use std::path::PathBuf;

/// `sun_path` has 108 bytes with its zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// As long as the tools that make groups allow.
const GROUP_BYTES_MAX: usize = 32;

/// Reads them; a site without `tags` has no table, and nobody to tell it anything.
pub(super) fn tags(site: &Table<'_>, findings: &Findings) -> Option<Tags> {
    let words: Option<At<u64>> = site.integer_given("tags");
    let (socket, group) = (site.text_given("writers_socket"), site.text_given("writers_group"));
    let Some(words) = words else {
        let names =
            ["writers_socket", "writers_group", "tags_listen", "tags_read", "files", "files_at"];
        let idle = names.iter().filter_map(|name| Some((name, site.get(name)?)));
        // A wrong size was reported.
        for (name, value) in idle.filter(|_| site.get("tags").is_none()) {
            let message = format!("{} has `{name}` without `tags`", site.title);
            findings.error(&value.span(), message, "add `tags = 16_777_216`");
        }
        return None;
    };
    if let (Some(group), None) = (&group, &socket) {
        let message = format!("{} has `writers_group` without `writers_socket`", site.title);
        let help = "name a path that the group can reach: the pool's folder lets nobody else in";
        findings.error(&group.span, message, help);
    }
    let size = SlotBits::of(words.value);
    if size.is_none() {
        let message = format!("`tags` is {}, which is no power of two", words.value);
        let next = words.value.checked_next_power_of_two().unwrap_or(1 << SlotBits::MAX);
        let next = next.min(1 << SlotBits::MAX);
        findings.error(&words.span, message, format!("the next one is {next}"));
    }
    Some(Tags {
        words: size?,
        socket: socket.and_then(|path| socket_path(&path, findings)),
        group: group.and_then(|group| group_name(&group, findings)),
        listen: listen(site, findings),
        read: read(site, findings),
        files: files(site, findings),
    })
}

/// The files whose changes are watched.
fn files(site: &Table<'_>, findings: &Findings) -> Option<Files> {
    let (root, at) = (site.text_given("files"), site.text_given("files_at"));
    if let (Some(at), None) = (&at, site.get("files")) {
        let message = format!("{} has `files_at` without `files`", site.title);
        findings.error(&at.span, message, "name the folder: `files = \"/srv/www\"`");
    }
    let root = root?;
    if !root.value.starts_with('/') || root.value.contains('\0') {
        findings.error(&root.span, "`files` is not an absolute path", "start it with `/`");
        return None;
    }
    let at = at.filter(|at| {
        let is_path = at.value.starts_with('/') && !at.value.contains(['?', '#', '%']);
        if !is_path {
            let help = "write the beginning of a URL's path: `/assets/`";
            findings.error(&at.span, "`files_at` is no path", help);
        }
        is_path
    });
    let at = at.map_or("/", |at| at.value).to_owned();
    Some(Files { root: PathBuf::from(root.value), at })
}

/// Where the table is served.
fn listen(site: &Table<'_>, findings: &Findings) -> Option<SocketAddr> {
    let given = site.text_given("tags_listen")?;
    let address = names::address(&given, findings)?;
    if address.port() == 0 || address.ip().is_unspecified() || address.ip().is_multicast() {
        let message = format!("no edge can connect to {address}");
        findings.error(&given.span, message, "name the machine's own address and a port");
        return None;
    }
    Some(address)
}

fn read(site: &Table<'_>, findings: &Findings) -> TagsRead {
    let read = site.choice("tags_read", &[TagsRead::Memory, TagsRead::Tcp]);
    if read == TagsRead::Tcp && site.get("tags_listen").is_none() {
        let span = site.get("tags_read").map_or_else(|| site.span.clone(), toml::Spanned::span);
        let message = format!("{} has `tags_read = \"tcp\"` without `tags_listen`", site.title);
        findings.error(&span, message, "say where the table is served: `\"127.0.0.1:7300\"`");
    }
    read
}

fn socket_path(text: &At<&str>, findings: &Findings) -> Option<PathBuf> {
    let path = PathBuf::from(text.value);
    if !path.is_absolute() || path.file_name().is_none() || text.value.contains('\0') {
        let help = "start it with `/` and end it with the socket's name";
        findings.error(&text.span, "`writers_socket` is not an absolute path", help);
        return None;
    }
    if text.value.len() > SOCKET_PATH_BYTES_MAX {
        let help = format!("a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes");
        findings.error(&text.span, "`writers_socket` is too long", help);
        return None;
    }
    Some(path)
}

fn group_name(text: &At<&str>, findings: &Findings) -> Option<String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = text.value;
    if !name.is_empty() && name.len() <= GROUP_BYTES_MAX && name.chars().all(valid) {
        return Some(name.to_owned());
    }
    let message = format!("`{}` is no group", shown(name));
    findings.error(&text.span, message, "its name in /etc/group, or its number");
    None
}

#[cfg(test)]
mod tests {
    use super::super::{changes, parse};

    fn site(lines: &str) -> String {
        format!(
            "[[edges]]\nlisten = [\"127.0.0.1:0\"]\n[[sites]]\nname = \"a\"\n\
             hosts = [\"a.localhost\"]\ncommand = [\"x\"]\n{lines}\n[[nodes]]\nname = \"n\"\n"
        )
    }

    #[test]
    fn a_table_survives_the_way_to_text_and_back() {
        let text = site(
            "tags = 65_536\nwriters_socket = '/run/a.sock'\nwriters_group = 'www'\n\
             tags_listen = '127.0.0.1:7300'\ntags_read = 'tcp'",
        );
        let text = format!("[remote]\nplain_on_loopback = true\n{text}");
        let settings = parse("x", &text, &[]).unwrap().settings;
        let tags = settings.sites[0].tags.as_ref().unwrap();
        assert_eq!((tags.words.slots(), tags.group.as_deref()), (65_536, Some("www")));
        assert_eq!(parse("x", &settings.to_toml(), &[]).unwrap().settings, settings);
        assert!(parse("x", &site(""), &[]).unwrap().settings.sites[0].tags.is_none());
    }

    #[test]
    fn files_make_a_site_bounded() {
        let text = site("tags = 65_536\nfiles = '/srv/www'\ncache = { mode = 'strict' }");
        let settings = parse("x", &text, &[]).unwrap().settings;
        let files = settings.sites[0].tags.as_ref().unwrap().files.clone().unwrap();
        assert_eq!((files.root.to_str(), files.at.as_str()), (Some("/srv/www"), "/"));
        assert_eq!(settings.sites[0].cache.source, cache::Source::Bounded);
        assert_eq!(parse("x", &settings.to_toml(), &[]).unwrap().settings, settings);
        let text = text.replace("'strict'", "'strict', source = 'linearizable'");
        let problems = parse("x", &text, &[]).unwrap_err().to_string();
        assert!(problems.contains("promises more than a watch of `files` can keep"), "{problems}");
        let text = site("tags = 256\nfiles = '/srv/www'\nfiles_at = '/assets/'");
        let settings = parse("x", &text, &[]).unwrap().settings;
        assert_eq!(parse("x", &settings.to_toml(), &[]).unwrap().settings, settings);
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!("tags = 256\nwriters_socket = '/{}'", "x".repeat(120));
        for (lines, words) in [
            ("tags = 1000", "the next one is 1024"),
            ("tags = 128", "out of range"),
            ("tags = true", "not a whole number"),
            ("writers_socket = '/run/a.sock'", "`writers_socket` without `tags`"),
            ("writers_group = 'www'", "`writers_group` without `tags`"),
            ("files = '/srv'", "`files` without `tags`"),
            ("tags = 256\nfiles = 'srv'", "`files` is not an absolute path"),
            ("tags = 256\nfiles_at = '/a'", "`files_at` without `files`"),
            ("tags = 256\nfiles = '/srv'\nfiles_at = 'a'", "`files_at` is no path"),
            ("tags = 256\nwriters_group = 'www'", "`writers_group` without `writers_socket`"),
            ("tags = 256\nwriters_socket = 'a'", "not an absolute path"),
            ("tags = 256\nwriters_socket = '/a'\nwriters_group = 'a b'", "`a b` is no group"),
            (long.as_str(), "too long"),
            ("tags_read = 'tcp'", "`tags_read` without `tags`"),
            ("tags = 256\ntags_read = 'tcp'", "without `tags_listen`"),
            ("tags = 256\ntags_listen = '0.0.0.0:7300'", "no edge can connect to 0.0.0.0:7300"),
            ("tags = 256\ntags_listen = 'here'", "`here` is not an address"),
            ("tags = 256\ntags_listen = '127.0.0.1:7300'", "there is no `key_file`"),
        ] {
            let problems = parse("x", &site(lines), &[]).unwrap_err().to_string();
            assert!(problems.contains(words), "{lines}: {problems}");
        }
    }

    #[test]
    fn a_table_is_there_for_a_pools_life() {
        let settings = |lines| parse("x", &site(lines), &[]).unwrap().settings;
        let (none, small, large) = (settings(""), settings("tags = 256"), settings("tags = 512"));
        for (old, new) in [(&none, &small), (&small, &large), (&small, &none)] {
            let refused = changes(old, new).unwrap_err();
            assert!(refused[0].contains("`tags`"), "{refused:?}");
        }
        assert!(changes(&small, &small).unwrap().is_empty());
    }
}
