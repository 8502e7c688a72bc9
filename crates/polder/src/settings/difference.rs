//! What differs between two settings, key by key, for a person.

use super::model::Settings;
use std::collections::BTreeMap;
use toml::{Table, Value};

/// One line for each key that differs: `http.retries_max: 2 -> 3`. A site, node or edge that is
/// there in one of them only has one line.
#[must_use]
pub fn differences(old: &Settings, new: &Settings) -> Vec<String> {
    let (before, after) = (keys(old), keys(new));
    let mut lines = Vec::new();
    let owners = |keys: &BTreeMap<String, String>| -> Vec<String> {
        keys.keys().filter_map(|key| key.strip_suffix(THERE)).map(str::to_owned).collect()
    };
    let (owners_before, owners_after) = (owners(&before), owners(&after));
    let gone: Vec<_> = owners_before.iter().filter(|one| !owners_after.contains(one)).collect();
    let come: Vec<_> = owners_after.iter().filter(|one| !owners_before.contains(one)).collect();
    lines.extend(gone.iter().map(|owner| format!("{owner}: removed")));
    lines.extend(come.iter().map(|owner| format!("{owner}: added")));
    let is_told = |key: &str| {
        gone.iter()
            .chain(&come)
            .any(|owner| key.strip_prefix(owner.as_str()).is_some_and(|rest| rest.starts_with('.')))
    };
    let all: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in all.into_iter().filter(|key| !is_told(key)) {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            let shown = |value: Option<&String>| value.map_or("not set", String::as_str).to_owned();
            lines.push(format!("{key}: {} -> {}", shown(old), shown(new)));
        }
    }
    lines
}

/// Ends the key that says that an entry of a list is there.
const THERE: &str = ".";

fn keys(settings: &Settings) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    // What was written by us is TOML.
    let root: Table = settings.to_toml().parse().unwrap_or_default();
    flatten("", &root, &mut keys);
    keys
}

fn flatten(path: &str, table: &Table, keys: &mut BTreeMap<String, String>) {
    for (name, value) in table {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            Value::Table(table) => flatten(&path, table, keys),
            Value::Array(list) if list.iter().any(Value::is_table) => {
                for (place, one) in list.iter().enumerate() {
                    let Value::Table(table) = one else { continue };
                    let named = table.get("name").and_then(Value::as_str);
                    let entry = named.map_or_else(|| place.to_string(), str::to_owned);
                    let path = format!("{path}.{entry}");
                    keys.insert(format!("{path}{THERE}"), String::new());
                    flatten(&path, table, keys);
                }
            }
            value => drop(keys.insert(path, value.to_string())),
        }
    }
}
