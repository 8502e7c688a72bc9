//! Keys of sites that were set while their pool runs, over what the file says.
//!
//! They are kept as `--set` arguments are, and go through the same reader and the same checks:
//! settings = file, then `up --set`, then these. A reload of the file forgets them.

use super::model::{Settings, Site};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What was set, in the order in which it holds. There is at most one entry for a key that the
/// schema knows, since unknown keys are refused: the list is bounded by the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live(Vec<LiveKey>);

/// One key of one site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LiveKey {
    site: String,
    /// Below the site's table: `max`, `sticky.wait_ms`.
    key: String,
    /// TOML, or a bare word that stands for a string.
    value: String,
}

/// A text that sets no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// There is no `=`, or nothing before it.
    #[error("`{0}` sets nothing: write `KEY=VALUE`")]
    NoKey(String),
    /// A key has letters, digits, `_`, `-` and dots between tables.
    #[error("`{0}` is no key of a site")]
    BadKey(String),
    /// A value has one line.
    #[error("the value of `{0}` has control characters")]
    BadValue(String),
    /// Who a site is does not change while its pool runs.
    #[error("a site can't get another name while its pool runs")]
    Name,
    /// `KEY=` takes a key back that was set.
    #[error("`{0}` was not set while the pool runs: there is nothing to take back")]
    NotSet(String),
}

impl Live {
    /// Sets one key of a site, `KEY=VALUE`; `KEY=` takes back what was set.
    pub fn set(&mut self, site: &str, text: &str) -> Result<(), LiveError> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || !text.contains('=') {
            return Err(LiveError::NoKey(super::reader::shown(text)));
        }
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !key.chars().all(valid) {
            return Err(LiveError::BadKey(super::reader::shown(key)));
        }
        if is_within(key, "name") {
            return Err(LiveError::Name);
        }
        if value.chars().any(char::is_control) {
            return Err(LiveError::BadValue(super::reader::shown(key)));
        }
        let before = self.0.len();
        self.0.retain(|one| !(one.site == site && is_within(&one.key, key)));
        if !value.is_empty() {
            let (site, key, value) = (site.to_owned(), key.to_owned(), value.to_owned());
            self.0.push(LiveKey { site, key, value });
        } else if self.0.len() == before {
            return Err(LiveError::NotSet(key.to_owned()));
        }
        Ok(())
    }

    /// Forgets a key of a site.
    pub fn forget(&mut self, site: &str, key: &str) {
        self.0.retain(|one| !(one.site == site && is_within(&one.key, key)));
    }

    /// As arguments of `--set`.
    #[must_use]
    pub fn overrides(&self) -> Vec<String> {
        let text = |one: &LiveKey| format!("sites.{}.{}={}", one.site, one.key, one.value);
        self.0.iter().map(text).collect()
    }
}

/// Whether a key is this one, or lies in the table that this one is.
fn is_within(key: &str, of: &str) -> bool {
    key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// A key of a site whose value differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyChange {
    /// The site.
    pub site: String,
    /// The key.
    pub key: String,
    /// Its value before, or in the file, as TOML; none where it is not set.
    pub from: Option<String>,
    /// Its value after, or in force.
    pub to: Option<String>,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<String>| value.as_deref().unwrap_or("not set").to_owned();
        let Self { site, key, from, to } = self;
        write!(f, "sites.{site}.{key}: {} -> {}", shown(from), shown(to))
    }
}

/// What the settings say of a site, key by key, every default filled in.
#[must_use]
pub fn site_keys(settings: &Settings, site: &Site) -> BTreeMap<String, toml::Value> {
    settings.site_table(site).into_iter().collect()
}

/// The keys of one site that differ; none if it is in one of them only.
#[must_use]
pub fn site_changes(old: &Settings, new: &Settings, site: &str) -> Vec<KeyChange> {
    let (Some((_, before)), Some((_, after))) = (old.site(site), new.site(site)) else {
        return Vec::new();
    };
    let (before, after) = (site_keys(old, before), site_keys(new, after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let changes = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let change = |name: &String| KeyChange {
        site: site.to_owned(),
        key: name.clone(),
        from: before.get(name).map(ToString::to_string),
        to: after.get(name).map(ToString::to_string),
    };
    changes.map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    const FILE: &str = "[[sites]]\nname = 'shop'\nhosts = ['shop.localhost']\nmax = 2\n\
                        [[sites]]\nname = '1'\nhosts = ['one.localhost']\n\
                        [[nodes]]\nname = 'n1'\n\
                        servers = { shop = '127.0.0.1:9001', 1 = '127.0.0.1:9002' }\n\
                        [[nodes]]\nname = 'n2'\n\
                        servers = { shop = '127.0.0.1:9003', 1 = '127.0.0.1:9004' }\n";

    fn set(texts: &[(&str, &str)]) -> Live {
        let mut live = Live::default();
        texts.iter().for_each(|(site, text)| live.set(site, text).unwrap());
        live
    }

    #[test]
    fn keys_are_set_over_the_file_and_taken_back() {
        let of = |live: &Live| parse("x", FILE, &live.overrides()).unwrap().settings;
        let file = of(&Live::default());
        let mut live = set(&[("shop", "max=3"), ("shop", "balance = two-choices"), ("1", "max=5")]);
        let now = of(&live);
        let told: Vec<_> =
            site_changes(&file, &now, "shop").iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "sites.shop.balance: \"least-in-flight\" -> \"two-choices\"",
                "sites.shop.max: 2 -> 3"
            ]
        );
        let told = site_changes(&file, &now, "1");
        assert_eq!(told[0].to_string(), "sites.1.max: not set -> 5");
        live.set("shop", "max=").unwrap();
        live.set("shop", "balance=").unwrap();
        assert_eq!(of(&live).sites[0], file.sites[0]);
        assert_eq!(live.set("shop", "max="), Err(LiveError::NotSet("max".into())));
    }

    #[test]
    fn a_later_table_takes_the_place_of_its_keys_and_keys_go_over_a_table() {
        let mut live = set(&[
            ("shop", "sticky.wait_ms=5"),
            ("shop", "sticky={ hash = \"address\" }"),
            ("shop", "sticky.wait_ms=7"),
            ("shop", "sticky.wait_ms=8"),
        ]);
        assert_eq!(
            live.overrides(),
            ["sites.shop.sticky={ hash = \"address\" }", "sites.shop.sticky.wait_ms=8"]
        );
        let settings = parse("x", FILE, &live.overrides()).unwrap().settings;
        assert_eq!(settings.sites[0].sticky.as_ref().map(|sticky| sticky.wait_ms), Some(8));
        live.set("shop", "sticky=").unwrap();
        assert_eq!(live, Live::default());
    }

    /// Sites with all nodes at the start could never be promised more.
    #[test]
    fn what_sites_started_with_does_not_bind_a_pool_that_runs() {
        let file = FILE.replace("max = 2\n", "nodes = 2\nhard = 0\n");
        let check = |text: &str| {
            let live = set(&[("1", text)]);
            crate::settings::check_running("x".as_ref(), &file, &live.overrides())
        };
        let runs = check("hard=2").unwrap();
        assert_eq!((runs.sites[1].terms.guarantee.hard, runs.sites[0].nodes), (2, 2));
        // Written down and read by the pool's processes it is the same.
        let copy = crate::settings::check_running("x".as_ref(), &runs.to_toml(), &[]).unwrap();
        assert_eq!(copy, runs);
        assert!(parse("x", &runs.to_toml(), &[]).is_err(), "no pool could start by it");
        assert!(check("hard=3").unwrap_err().to_string().contains("sums up to 3"));
    }

    #[test]
    fn what_sets_no_key_is_named() {
        let refused = |text: &str| Live::default().set("shop", text).unwrap_err();
        assert_eq!(refused("max"), LiveError::NoKey("max".into()));
        assert_eq!(refused("=3"), LiveError::NoKey("=3".into()));
        assert_eq!(refused("name=red"), LiveError::Name);
        assert_eq!(refused("[pool]\nx=3"), LiveError::BadKey("[pool]?x".into()));
        assert_eq!(refused("max=3\n[pool]"), LiveError::BadValue("max".into()));
    }
}
