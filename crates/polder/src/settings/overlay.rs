//! `--set KEY=VALUE`: one setting from the command line instead of the file's.
//!
//! The key is a path: `pool.hold_ms`, `sites.shop.max`, `edges.0.threads`. The value is TOML; a
//! bare word counts as a string.

use super::problem::{Findings, Span, did_you_mean, one_of};
use super::reader::shown;
use super::schema::SECTIONS;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The TOML text of a `--set` argument.
pub(super) fn as_toml(argument: &str) -> String {
    let Some((key, value)) = argument.split_once('=') else { return argument.to_owned() };
    let is_toml = DeTable::parse(&format!("value = {value}")).is_ok();
    if is_toml || value.trim_start().starts_with(['"', '\'', '[', '{']) {
        return argument.to_owned();
    }
    let escaped = value.trim().replace('\\', "\\\\").replace('"', "\\\"");
    format!("{key}=\"{escaped}\"")
}

/// Puts what an argument says over what the file says. A list that the file does not have cannot
/// be set in parts.
pub(super) fn merge_root<'i>(base: &mut DeTable<'i>, over: DeTable<'i>, findings: &Findings) {
    let (mut in_file, mut absent) = (DeTable::new(), Vec::new());
    for (key, value) in over {
        let name = key.get_ref().as_ref();
        let is_list = SECTIONS.iter().any(|section| section.repeated && section.name == name);
        if is_list && value.get_ref().is_table() && !base.contains_key(name) {
            absent.push(key);
        } else {
            in_file.insert(key, value);
        }
    }
    for key in absent {
        let message = format!("the file has no `[[{}]]` to set anything in", key.get_ref());
        findings.error(&key.span(), message, "write one in the file");
    }
    merge(base, in_file, findings);
}

fn merge<'i>(base: &mut DeTable<'i>, over: DeTable<'i>, findings: &Findings) {
    for (key, value) in over {
        match (base.get_mut(key.get_ref().as_ref()), value.get_ref()) {
            (Some(old), DeValue::Table(_)) if old.get_ref().is_table() => {
                if let (DeValue::Table(old), DeValue::Table(new)) =
                    (old.get_mut(), value.into_inner())
                {
                    merge(old, new, findings);
                }
            }
            (Some(old), DeValue::Table(_)) if old.get_ref().is_array() => {
                if let (DeValue::Array(items), DeValue::Table(new)) =
                    (old.get_mut(), value.into_inner())
                {
                    merge_items(key.get_ref(), items, new, findings);
                }
            }
            _ => {
                // A plain insert would keep the old key with its old place.
                base.remove(key.get_ref().as_ref());
                base.insert(key, value);
            }
        }
    }
}

/// `sites.shop` is the site of that name, `sites.0` the first one.
fn merge_items<'i>(
    list: &str,
    items: &mut [Spanned<DeValue<'i>>],
    over: DeTable<'i>,
    findings: &Findings,
) {
    for (key, value) in over {
        let wanted = key.get_ref().as_ref();
        let by_name = items.iter().position(|item| name_of(item) == Some(wanted));
        let by_number = || wanted.parse().ok().filter(|&number: &usize| number < items.len());
        let Some(place) = by_name.or_else(by_number) else {
            report_no_item(list, wanted, items, &key.span(), findings);
            continue;
        };
        match (items[place].get_mut(), value.into_inner()) {
            (DeValue::Table(old), DeValue::Table(new)) => merge(old, new, findings),
            _ => findings.error(
                &key.span(),
                format!("`{list}.{}` is a table, and cannot be set as a whole", shown(wanted)),
                format!("set one of its keys: `{list}.{}.KEY=VALUE`", shown(wanted)),
            ),
        }
    }
}

fn name_of<'v>(item: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    item.get_ref().as_table()?.get("name")?.get_ref().as_str()
}

fn report_no_item(
    list: &str,
    wanted: &str,
    items: &[Spanned<DeValue<'_>>],
    span: &Span,
    findings: &Findings,
) {
    let names = || items.iter().filter_map(name_of);
    let help = did_you_mean(wanted, names()).unwrap_or_else(|| {
        let listed = one_of(names());
        if listed.is_empty() { "use a number from 0".into() } else { format!("there is {listed}") }
    });
    findings.error(span, format!("`{list}` has no `{}`", shown(wanted)), help);
}
