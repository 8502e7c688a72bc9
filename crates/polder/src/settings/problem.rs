//! What is wrong with settings: where, why, and what to write instead.

use super::source::{Place, Source};
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

/// Problems shown at once. More do not help: the first ones usually cause the rest.
pub const PROBLEMS_SHOWN_MAX: usize = 50;

/// A place in the source, in bytes.
pub(super) type Span = Range<usize>;

/// How grave a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The settings cannot be used.
    Error,
    /// The settings can be used, but probably do not say what was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// How grave it is.
    pub severity: Severity,
    /// Where it is.
    #[serde(flatten)]
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The line concerned, with carets.
    #[serde(skip)]
    pub snippet: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Place { file, line, column } = &self.place;
        writeln!(f, "{word}: {}", self.message)?;
        writeln!(f, "  --> {file}:{line}:{column}")?;
        writeln!(f, "{}", self.snippet)?;
        if let Some(help) = &self.help {
            writeln!(f, "  = help: {help}")?;
        }
        Ok(())
    }
}

/// All that is wrong with some settings, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Whether any of them makes the settings unusable.
    #[must_use]
    pub fn any_error(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in self.0.iter().take(PROBLEMS_SHOWN_MAX) {
            writeln!(f, "{problem}")?;
        }
        let more = self.0.len().saturating_sub(PROBLEMS_SHOWN_MAX);
        if more > 0 {
            writeln!(f, "and {more} more")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[derive(Debug)]
struct Finding {
    severity: Severity,
    span: Span,
    message: String,
    help: Option<String>,
}

/// Collects problems while settings are read; reading goes on after each.
#[derive(Debug, Default)]
pub(super) struct Findings(RefCell<Vec<Finding>>);

impl Findings {
    pub(super) fn error(&self, span: &Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Error, span, message.into(), help.into());
    }

    pub(super) fn warning(&self, span: &Span, message: impl Into<String>, help: impl Into<String>) {
        self.add(Severity::Warning, span, message.into(), help.into());
    }

    pub(super) fn any_error(&self) -> bool {
        self.0.borrow().iter().any(|finding| finding.severity == Severity::Error)
    }

    fn add(&self, severity: Severity, span: &Span, message: String, help: String) {
        // The TOML parser lets control characters through in places where none are expected.
        let clean = |text: String| text.replace(|c: char| c.is_control() && c != '\n', "?");
        let help = Some(clean(help)).filter(|help| !help.is_empty());
        let message = clean(message);
        self.0.borrow_mut().push(Finding { severity, span: span.clone(), message, help });
    }

    /// Places all findings in the source, in its order.
    pub(super) fn locate(self, source: &Source) -> Problems {
        let mut findings = self.0.into_inner();
        findings.sort_by_key(|finding| finding.span.start);
        let place = |finding: Finding| Problem {
            severity: finding.severity,
            place: source.place(finding.span.start),
            snippet: source.snippet(&finding.span),
            message: finding.message,
            help: finding.help,
        };
        Problems(findings.into_iter().map(place).collect())
    }
}

/// "did you mean `x`?", if some known word is near enough to be meant.
pub(crate) fn did_you_mean<'w>(
    given: &str,
    known: impl IntoIterator<Item = &'w str>,
) -> Option<String> {
    // One slip in three letters is a typing error; more is another word.
    let slips_max = (given.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&given.to_lowercase(), word), word))
        .filter(|&(slips, _)| slips <= slips_max)
        .min()
        .map(|(_, word)| format!("did you mean `{word}`?"))
}

/// Words as a list for a person: `` `a`, `b` or `c` ``.
pub(crate) fn one_of<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["look_every_ms", "hold_ms", "mode"];
        let suggest = |given| did_you_mean(given, known);
        assert_eq!(suggest("look_evry_ms").as_deref(), Some("did you mean `look_every_ms`?"));
        assert_eq!(suggest("Mode").as_deref(), Some("did you mean `mode`?"));
        assert_eq!(suggest("colour"), None);
        assert_eq!(suggest(""), None);
    }

    #[test]
    fn lists_read_like_sentences() {
        assert_eq!(one_of(["a"]), "`a`");
        assert_eq!(one_of(["a", "b", "c"]), "`a`, `b` or `c`");
        assert_eq!(one_of([]), "");
    }

    #[test]
    fn problems_come_in_the_order_of_the_file_and_all_are_told() {
        let findings = Findings::default();
        findings.error(&(4..5), "second", "");
        findings.warning(&(0..1), "first", "do this");
        let problems = findings.locate(&Source::new("x.toml", "a\nb\nc"));
        assert!(problems.any_error());
        let text = problems.to_string();
        let expected = "warning: first\n  --> x.toml:1:1\n  |\n1 | a\n  | ^\n  = help: do this\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("error: second\n  --> x.toml:3:1\n"), "{text}");
    }
}
