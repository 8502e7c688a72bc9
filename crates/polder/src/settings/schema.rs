//! What is known of each key of the settings file: what it may be, what it is when it is missing,
//! what it means.
//!
//! This, `tables`, `site_tables`, `cache_table` and `purge` are the only places that know; the
//! reader takes ranges and defaults from here, and `docs/settings.md` is checked against it.

pub use super::cache_table::CACHE;
pub use super::purge::PURGE;
pub use super::site_tables::{ADMISSION, CHECK, RATE, SITES, STICKY, TLS};
pub use super::tables::{ACCESS_LOG, EDGES, HEALTH, HTTP, NODES, POOL, REMOTE, SECTIONS};

/// What a key may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number within bounds, both allowed.
    Integer {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A number within bounds, both allowed.
    Number {
        /// The smallest.
        min: f64,
        /// The largest.
        max: f64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A string.
    Text,
    /// A list of strings.
    Texts,
    /// A table of its own.
    Table,
    /// A list of tables.
    Tables,
    /// `true` or `false`.
    Flag,
}

/// What holds when a key is missing.
#[derive(Clone, Copy, Debug)]
pub enum Missing {
    /// The settings cannot be used.
    Required,
    /// This whole number.
    Integer(u64),
    /// This number.
    Number(f64),
    /// This string or word.
    Text(&'static str),
    /// What the words say; the reader decides.
    Means(&'static str),
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, unit last.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// What holds without it.
    pub missing: Missing,
    /// What it means.
    pub help: &'static str,
}

/// One table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Its name in the file.
    pub name: &'static str,
    /// Whether it is a list of tables, `[[name]]`.
    pub repeated: bool,
    /// What it is about.
    pub help: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

impl Section {
    /// As it is written in the file.
    #[must_use]
    pub fn heading(&self) -> String {
        if self.repeated { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }

    /// One of its keys.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Key {
    /// What it may hold, for a person.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Integer { min, max } => format!("{} to {}", thousands(min), thousands(max)),
            Kind::Number { min, max } => format!("{min} to {max}"),
            Kind::Choice(words) => super::problem::one_of(words.iter().copied()),
            Kind::Text => "a string".into(),
            Kind::Texts => "a list of strings".into(),
            Kind::Table => "a table".into(),
            Kind::Tables => "a list of tables".into(),
            Kind::Flag => "`true` or `false`".into(),
        }
    }

    /// What holds without it, for a person.
    #[must_use]
    pub fn default_text(&self) -> String {
        match self.missing {
            Missing::Required => "required".into(),
            Missing::Integer(value) => thousands(value),
            Missing::Number(value) => format!("{value:?}"),
            Missing::Text(text) => format!("`\"{text}\"`"),
            Missing::Means(words) => words.into(),
        }
    }
}

/// A number with its digits in groups, as TOML reads it too.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('_');
        }
        grouped.push(digit);
    }
    grouped
}
