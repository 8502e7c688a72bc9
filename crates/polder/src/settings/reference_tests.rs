//! The documentation and the examples say what the program does.

use super::schema::{ADMISSION, CACHE, CHECK, PURGE, RATE, SECTIONS, STICKY, Section, TLS};
use super::{Checked, load, parse};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Below this line the page is made from the schema.
const MARK: &str = "<!-- reference -->\n";

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn reference() -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let _ = write!(text, "\n## `{}`\n\n{}\n", section.heading(), section.help);
        text.push_str(&table(section));
        if section.name == "sites" {
            for part in [&CHECK, &TLS, &STICKY, &RATE, &ADMISSION, &CACHE, &PURGE] {
                let _ = write!(text, "\n### `{}` of a site\n\n{}\n", part.name, part.help);
                text.push_str(&table(part));
            }
        }
    }
    text
}

fn table(section: &Section) -> String {
    let mut text =
        "\n| key | allowed | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
    for key in section.keys {
        let (allowed, default) = (key.allowed(), key.default_text());
        let _ = writeln!(text, "| `{}` | {allowed} | {default} | {} |", key.name, key.help);
    }
    text
}

#[test]
fn the_page_has_every_key_with_its_range_and_default() {
    let path = top().join("docs/settings.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (intro, below) = page.split_once(MARK).unwrap();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{intro}{MARK}{}", reference())).unwrap();
        return;
    }
    assert_eq!(below, reference(), "run `UPDATE_DOCS=1 cargo test -p polder`");
}

#[test]
fn the_examples_are_fine_without_a_warning() {
    let names = ["polder.toml", "three-sites.toml", "priorities.toml", "wiki/polder.toml"];
    let nodes = names.map(|name| {
        let file = top().join("examples").join(name);
        let Checked { settings, warnings } = load(&file, &[]).unwrap_or_else(|e| panic!("{e}"));
        assert!(warnings.0.is_empty(), "{warnings}");
        settings.nodes.len()
    });
    assert_eq!(nodes, [4, 8, 8, 1]);
}

#[test]
fn the_settings_in_the_readme_are_fine() {
    let readme = std::fs::read_to_string(top().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let checked = parse("README.md", text, &[]).unwrap();
    assert_eq!(checked.settings.sites.len(), 2);
}
