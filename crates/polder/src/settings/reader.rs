//! Reads one table of the file by its schema. A value that is missing or wrong gives the default
//! and a finding, so that one run finds everything.

use super::problem::{Findings, Span, did_you_mean, one_of};
use super::schema::{Key, Kind, Missing, SECTIONS, Section};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands; for a default, where its table stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// One table while it is read.
pub(super) struct Table<'a> {
    /// How messages call it: `` [pool] `` or `` site `shop` ``.
    pub(super) title: String,
    /// Where the table starts.
    pub(super) span: Span,
    section: &'static Section,
    entries: Option<&'a DeTable<'a>>,
    findings: &'a Findings,
}

impl<'a> Table<'a> {
    /// Opens a table that may be missing, and reports the keys that it should not have.
    pub(super) fn open(
        section: &'static Section,
        value: Option<&'a Spanned<DeValue<'a>>>,
        findings: &'a Findings,
    ) -> Self {
        let span = value.map_or(0..0, Spanned::span);
        let entries = value.and_then(|value| match value.get_ref() {
            DeValue::Table(entries) => Some(entries),
            other => {
                let message = format!("`{}` is {}, not a table", section.name, kind_of(other));
                findings.error(
                    &span,
                    message,
                    format!(
                        "write `{}` on a line of its own and the \
                    keys below it",
                        section.heading()
                    ),
                );
                None
            }
        });
        let name = entries.and_then(|entries| entries.get("name")?.get_ref().as_str());
        let title = match name.filter(|name| section.repeated && !name.is_empty()) {
            Some(name) => format!("{} `{}`", section.name.trim_end_matches('s'), shown(name)),
            None => section.heading(),
        };
        let table = Self { title, span, section, entries, findings };
        table.report_unknown_keys();
        table
    }

    fn report_unknown_keys(&self) {
        for (name, _) in self.entries.into_iter().flatten() {
            let given = name.get_ref().as_ref();
            if self.section.key(given).is_some() {
                continue;
            }
            let known = || self.section.keys.iter().map(|key| key.name);
            let elsewhere = || {
                let section = SECTIONS.iter().find(|section| section.key(given).is_some())?;
                Some(format!("it belongs in `{}`", section.heading()))
            };
            let help = did_you_mean(given, known())
                .or_else(elsewhere)
                .unwrap_or_else(|| format!("known here: {}", one_of(known())));
            let message = format!("unknown key `{}` in {}", shown(given), self.title);
            self.findings.error(&name.span(), message, help);
        }
    }

    fn key(&self, name: &str) -> &'static Key {
        self.section.key(name).expect("each key that is read stands in the schema")
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries?.get(name)
    }

    /// Whether a key is given, but not with a whole number in its range.
    pub(super) fn is_spoilt(&self, name: &str, value: &Option<At<u16>>) -> bool {
        value.is_none() && self.get(name).is_some()
    }

    fn wrong(&self, name: &str, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let message = format!("`{name}` is {}, not {wanted}", kind_of(value.get_ref()));
        self.findings.error(&value.span(), message, String::new());
    }

    fn missing(&self, name: &str) {
        let message = format!("{} has no `{name}`", self.title);
        self.findings.error(&self.span, message, format!("add `{name}`: {}", self.key(name).help));
    }

    /// A whole number, if one is given.
    pub(super) fn integer_given<T: TryFrom<u64>>(&self, name: &str) -> Option<At<T>> {
        let Kind::Integer { min, max } = self.key(name).kind else { return None };
        let value = self.get(name)?;
        let DeValue::Integer(digits) = value.get_ref() else {
            self.wrong(name, value, "a whole number");
            return None;
        };
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let Some(number) = number.filter(|number| (min..=max).contains(number)) else {
            let message =
                format!("`{name}` is {}, which is out of range", shown(&digits.to_string()));
            let allowed = format!("allowed: {}", self.key(name).allowed());
            self.findings.error(&value.span(), message, allowed);
            return None;
        };
        let value = value.span();
        T::try_from(number).ok().map(|number| At { value: number, span: value })
    }

    /// The default of a whole number.
    pub(super) fn integer_default<T: TryFrom<u64>>(&self, name: &str) -> At<T> {
        let Missing::Integer(default) = self.key(name).missing else {
            unreachable!("the schema has a whole number as the default")
        };
        let value = T::try_from(default).ok().expect("the schema's default fits the type");
        At { value, span: self.span.clone() }
    }

    /// A whole number or its default.
    pub(super) fn integer<T: TryFrom<u64>>(&self, name: &str) -> At<T> {
        self.integer_given(name).unwrap_or_else(|| self.integer_default(name))
    }

    /// A number or its default.
    pub(super) fn number(&self, name: &str) -> At<f64> {
        let key = self.key(name);
        let (Kind::Number { min, max }, Missing::Number(default)) = (key.kind, key.missing) else {
            unreachable!("the schema has a number and its default")
        };
        let fallback = At { value: default, span: self.span.clone() };
        let Some(value) = self.get(name) else { return fallback };
        let number = match value.get_ref() {
            DeValue::Float(digits) => digits.as_str().parse().ok(),
            DeValue::Integer(digits) => digits.as_str().parse().ok(),
            _ => {
                self.wrong(name, value, "a number");
                return fallback;
            }
        };
        match number.filter(|number| (min..=max).contains(number)) {
            Some(number) => At { value: number, span: value.span() },
            None => {
                let message = format!("`{name}` is out of range");
                let allowed = format!("allowed: {}", key.allowed());
                self.findings.error(&value.span(), message, allowed);
                fallback
            }
        }
    }

    /// A string, if one is given.
    pub(super) fn text_given(&self, name: &str) -> Option<At<&'a str>> {
        let value = self.get(name)?;
        match value.get_ref() {
            DeValue::String(text) => Some(At { value: text.as_ref(), span: value.span() }),
            _ => {
                self.wrong(name, value, "a string");
                None
            }
        }
    }

    /// A string or its default; the empty one where it is required and missing.
    pub(super) fn text(&self, name: &str) -> At<&'a str> {
        let default = match self.key(name).missing {
            Missing::Text(default) => default,
            _ => "",
        };
        if self.get(name).is_none() && matches!(self.key(name).missing, Missing::Required) {
            self.missing(name);
        }
        self.text_given(name).unwrap_or_else(|| At { value: default, span: self.span.clone() })
    }

    /// The meaning of one of the words of a choice; the meanings are in the schema's order.
    pub(super) fn choice<T: Copy>(&self, name: &str, meanings: &[T]) -> T {
        let Kind::Choice(words) = self.key(name).kind else {
            unreachable!("the schema has words to choose from")
        };
        let given = self.text(name);
        if let Some(place) = words.iter().position(|word| *word == given.value) {
            return meanings[place];
        }
        let message = format!("`{name}` is `{}`, which is not known", shown(given.value));
        let help = did_you_mean(given.value, words.iter().copied())
            .unwrap_or_else(|| format!("allowed: {}", one_of(words.iter().copied())));
        self.findings.error(&given.span, message, help);
        meanings[0]
    }

    /// A list of strings, each with its place; none if it is not given.
    pub(super) fn texts(&self, name: &str) -> Option<At<Vec<At<&'a str>>>> {
        let Some(value) = self.get(name) else {
            if matches!(self.key(name).missing, Missing::Required) {
                self.missing(name);
            }
            return None;
        };
        let DeValue::Array(items) = value.get_ref() else {
            let message = format!("`{name}` is {}, not a list", kind_of(value.get_ref()));
            self.findings.error(&value.span(), message, "put it in brackets: `[\"...\"]`");
            return None;
        };
        let mut texts = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::String(text) => texts.push(At { value: text.as_ref(), span: item.span() }),
                _ => self.wrong(name, item, "a string"),
            }
        }
        if items.is_empty() {
            self.findings.error(&value.span(), format!("`{name}` is empty"), self.key(name).help);
        }
        Some(At { value: texts, span: value.span() })
    }

    /// `true` or `false`, if given.
    pub(super) fn flag(&self, name: &str) -> Option<At<bool>> {
        let value = self.get(name)?;
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(At { value: *flag, span: value.span() }),
            _ => {
                self.wrong(name, value, "`true` or `false`");
                None
            }
        }
    }

    /// The keys and values of a table that is given.
    pub(super) fn entries(&self, name: &str) -> Option<(Span, &'a DeTable<'a>)> {
        let value = self.get(name)?;
        match value.get_ref() {
            DeValue::Table(entries) => Some((value.span(), entries)),
            _ => {
                self.wrong(name, value, "a table");
                None
            }
        }
    }
}

/// The tables of a list `[[name]]`, each opened; empty if there is no such list.
pub(super) fn open_all<'a>(
    section: &'static Section,
    value: Option<&'a Spanned<DeValue<'a>>>,
    findings: &'a Findings,
) -> Vec<Table<'a>> {
    let Some(value) = value else { return Vec::new() };
    match value.get_ref() {
        DeValue::Array(items) => {
            items.iter().map(|item| Table::open(section, Some(item), findings)).collect()
        }
        DeValue::Table(_) => {
            let message = format!("`[{}]` is one table, not a list of tables", section.name);
            let help = format!("write it with two brackets: `{}`", section.heading());
            findings.error(&value.span(), message, help);
            vec![Table::open(section, Some(value), findings)]
        }
        other => {
            let message = format!("`{}` is {}", section.name, kind_of(other));
            findings.error(&value.span(), message, format!("write `{}`", section.heading()));
            Vec::new()
        }
    }
}

/// Text of the file in a message: short, and without control characters.
pub(super) fn shown(text: &str) -> String {
    // Longer names than this are no typing errors; the snippet shows the rest.
    const SHOWN_MAX_CHARS: usize = 60;
    let clean = |c: char| if c.is_control() { '?' } else { c };
    let mut short: String = text.chars().take(SHOWN_MAX_CHARS).map(clean).collect();
    if text.chars().nth(SHOWN_MAX_CHARS).is_some() {
        short.push_str("...");
    }
    short
}

fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "`true` or `false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
