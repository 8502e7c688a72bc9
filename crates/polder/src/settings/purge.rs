//! `purge` of a site: who may tell over HTTP that its data has changed.

use super::model::Purge;
use super::names;
use super::problem::Findings;
use super::reader::Table;
use super::schema::{Kind, Missing, Section};
use super::tables::key;
use super::traffic::inner;
use cache::{Mode, Rules};
use std::path::PathBuf;
use toml::Value;

/// Most networks of a list: each is compared with the address of every purge.
const NETWORKS_MAX: usize = 64;

/// `purge = { ... }` of a site.
pub const PURGE: Section = Section {
    name: "purge",
    repeated: false,
    help: "Who may invalidate a site's responses over HTTP, with `PURGE`, `BAN` and the like \
           (docs/writers.md): the edges answer such requests then. Without this table they are \
           requests like others, which the site's servers answer.",
    keys: &[
        key(
            "from",
            Kind::Texts,
            Missing::Required,
            "The addresses that such a request must come from: `[\"127.0.0.1\", \"10.1.0.0/16\"]`. \
             They are those of connections, or what a header of the PROXY protocol says that is \
             believed; `X-Forwarded-For` does not count, so behind another proxy a token is what \
             protects.",
        ),
        key(
            "token_file",
            Kind::Text,
            Missing::Means("no token"),
            "A file with what the request must carry besides, in `Authorization: Bearer`, \
             `Fastly-Key` or `X-Purge-Token`: 16 to 1,024 printable characters, which not everyone \
             may read; absolute. It is read when an edge starts, and when its settings change.",
        ),
    ],
};

/// Reads the table, if there is one.
pub(super) fn purge<'a>(
    site: &Table<'a>,
    has_tags: bool,
    rules: &Rules,
    findings: &'a Findings,
) -> Option<Purge> {
    let table = inner(site, &PURGE, findings)?;
    let from = names::networks(&table, "from", findings);
    if from.len() > NETWORKS_MAX {
        let message = format!("`from` has {} networks, more than {NETWORKS_MAX}", from.len());
        findings.error(&table.span, message, "each is compared with the address of every purge");
    }
    let token_file = table.text_given("token_file").map(|text| {
        if !text.value.starts_with('/') || text.value.contains('\0') {
            let message = "`token_file` is not an absolute path";
            findings.error(&text.span, message, "start it with `/`");
        }
        PathBuf::from(text.value)
    });
    if !has_tags && rules.mode == Mode::Off && site.get("tags").is_none() {
        let message = format!("{} has `purge`, and nothing that could be purged", site.title);
        let help = "add `tags = 16_777_216` or `cache = { mode = \"http\" }`, or remove it";
        findings.error(&table.span, message, help);
    }
    Some(Purge { from, token_file })
}

/// As it is written in the file.
pub(super) fn written(purge: &Purge) -> toml::Table {
    let networks: Vec<String> = purge.from.iter().map(ToString::to_string).collect();
    let mut table = toml::Table::from_iter([("from".to_owned(), Value::from(networks))]);
    if let Some(file) = purge.token_file.as_ref().and_then(|file| file.to_str()) {
        table.insert("token_file".to_owned(), Value::from(file));
    }
    table
}

#[cfg(test)]
mod tests {
    use crate::settings::{Problems, Settings, parse};

    fn settings(lines: &str) -> Result<Settings, Problems> {
        let text = format!(
            "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\n{lines}\n\
             [[nodes]]\nname = 'n'\nservers = {{ shop = '127.0.0.1:9001' }}\n"
        );
        parse("x.toml", &text, &[]).map(|checked| checked.settings)
    }

    #[test]
    fn what_is_read_is_written_back() {
        for given in [
            "tags = 256\npurge = { from = ['127.0.0.1', '10.0.0.0/8'] }",
            "cache = { mode = 'http' }\npurge = { from = ['::1'], token_file = '/etc/token' }",
        ] {
            let read = settings(given).unwrap();
            assert!(read.sites[0].purge.is_some());
            let again = parse("copy", &read.to_toml(), &[]).unwrap().settings;
            assert_eq!(again, read, "{given}");
        }
        assert_eq!(settings("tags = 256").unwrap().sites[0].purge, None);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let many: Vec<_> = (0..65).map(|n| format!("'10.0.0.{n}'")).collect();
        let many = format!("tags = 256\npurge = {{ from = [{}] }}", many.join(", "));
        for (given, told) in [
            ("purge = { from = ['::1'] }", "nothing that could be purged"),
            ("tags = 256\npurge = { }", "has no `from`"),
            ("tags = 256\npurge = { from = [] }", "`from` is empty"),
            ("tags = 256\npurge = { from = ['10.1.2.3/8'] }", "write `10.0.0.0/8`"),
            ("tags = 256\npurge = { from = ['::1'], token_file = 'x' }", "absolute"),
            (
                "tags = 256\npurge = { from = ['::1'], token = 'x' }",
                "known here: `from` or `token_file`",
            ),
            ("tags = 256\npurge = true", "`purge` is not a table"),
            (many.as_str(), "more than 64"),
        ] {
            let text = settings(given).unwrap_err().to_string();
            assert!(text.contains(told), "{given}: {text}");
        }
    }
}
