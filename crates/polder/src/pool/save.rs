//! Writing set keys into the settings file, which keeps its comments and its order.
//!
//! The file is somebody's, and may have been edited since it was read: only the keys concerned are
//! changed, what comes of it must be settings that can be used, and it takes the file's place as a
//! whole.

use crate::settings::{self, SettingsError};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use toml_edit::{DocumentMut, Item, TableLike, Value};

/// How the new text is called until it takes the file's place.
const NEXT_END: &str = ".polder-next";

/// Why the file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum SaveError {
    /// It can't be read, or what it would say can't be used.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// It is no TOML by now.
    #[error("it is not TOML: {0}")]
    NoToml(#[from] toml_edit::TomlError),
    /// The site, or the table around the key, is not where it was.
    #[error("it has no place for `{0}`")]
    NoPlace(String),
    /// A system call failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Sets keys of a site in the file.
pub(super) fn save(
    file: &Path,
    overrides: &[String],
    site: &str,
    keys: &[String],
) -> Result<(), SaveError> {
    // A link stays one.
    let file = &fs::canonicalize(file)?;
    let text = edited(&settings::read_text(file)?, site, keys)?;
    settings::check_text(file, &text, overrides)?;
    let mut next = file.as_os_str().to_owned();
    next.push(NEXT_END);
    let next = Path::new(&next);
    let written = write_like(next, file, &text).and_then(|()| fs::rename(next, file));
    if written.is_err() {
        // It may not even be there.
        let _ = fs::remove_file(next);
    }
    Ok(written?)
}

/// With the permissions of the other file, and on the disk when this comes back.
fn write_like(path: &Path, like: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    file.set_permissions(fs::metadata(like)?.permissions())?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The text with these keys, `KEY=VALUE`, in a site's table.
pub(super) fn edited(text: &str, site: &str, keys: &[String]) -> Result<String, SaveError> {
    let mut document: DocumentMut = text.parse()?;
    let table = site_table(&mut document, site);
    let table = table.ok_or_else(|| SaveError::NoPlace(format!("sites.{site}")))?;
    for argument in keys {
        let (path, value) = argument.split_once('=').unwrap_or((argument, ""));
        let (path, value) = (path.trim(), value.trim());
        set(table, path, value).ok_or_else(|| SaveError::NoPlace(path.to_owned()))?;
    }
    Ok(document.to_string())
}

/// The table of a site, in whichever way the list of sites is written.
fn site_table<'d>(document: &'d mut DocumentMut, site: &str) -> Option<&'d mut dyn TableLike> {
    let is_it = |table: &dyn TableLike| table.get("name").and_then(Item::as_str) == Some(site);
    match document.get_mut("sites")? {
        Item::ArrayOfTables(sites) => {
            let found = sites.iter_mut().find(|table| is_it(*table))?;
            Some(found)
        }
        Item::Value(Value::Array(sites)) => {
            let mut tables = sites.iter_mut().filter_map(Value::as_inline_table_mut);
            let found = tables.find(|table| is_it(*table))?;
            Some(found)
        }
        _ => None,
    }
}

/// Sets one key below a table.
fn set(mut table: &mut dyn TableLike, path: &str, value: &str) -> Option<()> {
    let (tables, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut is_inline = false;
    for name in tables.split('.').filter(|name| !name.is_empty()) {
        if !table.contains_key(name) {
            table.insert(name, Item::Value(Value::InlineTable(toml_edit::InlineTable::new())));
        }
        let item = table.get_mut(name)?;
        is_inline = item.is_inline_table();
        table = item.as_table_like_mut()?;
    }
    let mut value: Value = value.parse().unwrap_or_else(|_| Value::from(value));
    match table.get_mut(key) {
        Some(Item::Value(old)) => {
            // The comment behind it stays.
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        Some(other) => *other = Item::Value(value),
        None => {
            table.insert(key, Item::Value(value));
            if is_inline {
                // Within braces there are no comments that this could lose.
                table.fmt();
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# A pool.\n[[sites]]\nname = \"shop\" # ours\nmax = 3 # of four\n\n\
                        [[sites]]\nname = 'blog'\nsticky = { hash = \"address\" }\n\
                        [sites.rate]\nsite_per_s = 5\n\n[[nodes]]\nname = \"n\"\n";

    fn after(site: &str, keys: &[&str]) -> String {
        let keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        edited(FILE, site, &keys).unwrap()
    }

    #[test]
    fn comments_and_order_stay() {
        let text = after("shop", &["max=4", "hard = 2", "balance=two-choices"]);
        let expected = FILE.replace(
            "max = 3 # of four\n",
            "max = 4 # of four\nhard = 2\nbalance = \"two-choices\"\n",
        );
        assert_eq!(text, expected);
        assert_eq!(after("shop", &["max=3"]), FILE);
    }

    #[test]
    fn keys_of_tables_are_set_where_they_stand() {
        let text = after("blog", &["sticky.wait_ms=7", "rate.site_per_s=9", "rate.client_per_s=1"]);
        let expected = FILE
            .replace("hash = \"address\" }", "hash = \"address\", wait_ms = 7 }")
            .replace("site_per_s = 5\n", "site_per_s = 9\nclient_per_s = 1\n");
        assert_eq!(text, expected);
        let text = after("shop", &["rate.site_per_s=9"]);
        assert!(text.contains("rate = { site_per_s = 9 }"), "{text}");
    }

    #[test]
    fn a_list_in_brackets_is_one_too_and_what_is_missing_is_told() {
        let keys = ["max=2".to_owned()];
        let inline = "sites = [{ name = \"shop\" }, { name = \"blog\", max = 1 }]\n";
        let text = edited(inline, "blog", &keys).unwrap();
        assert_eq!(text, inline.replace("max = 1", "max = 2"));
        for (text, site) in [(inline, "red"), ("sites = 3\n", "shop"), ("", "shop")] {
            assert!(matches!(edited(text, site, &keys), Err(SaveError::NoPlace(_))), "{text}");
        }
        assert!(matches!(edited("[", "shop", &keys), Err(SaveError::NoToml(_))));
        let below = ["max.x=2".to_owned()];
        assert!(matches!(edited(FILE, "shop", &below), Err(SaveError::NoPlace(_))));
    }

    #[test]
    fn the_file_changes_as_a_whole_or_not_at_all() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pool.toml");
        let text = "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\n[[nodes]]\nname = 'n'\n\
                    servers = { shop = '127.0.0.1:9001' }\n";
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let wrong = save(&file, &[], "shop", &["max=0".to_owned()]);
        assert!(matches!(wrong, Err(SaveError::Settings(_))), "{wrong:?}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        save(&link, &[], "shop", &["max=1".to_owned()]).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("max = 1\n"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
