//! Admission classes: which of a site's requests go first when it has more than it can answer.
//!
//! Each rule makes a class, the most important first; requests that match none form the last. What
//! a class means for who waits and who is refused is a matter of [`crate::dispatch`].

use crate::face::Rank;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use std::fmt;

/// Most classes of one site, the last one among them: a person can tell that many apart, and a
/// request is compared with each rule.
pub const CLASSES_MAX: usize = 8;

/// What the class of requests that match no rule is called.
pub const LAST_CLASS: &str = "other";

/// Who belongs to one class: requests that match all that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    /// Its name, for logs and metrics.
    pub name: String,
    /// A header field of the request.
    pub header: Option<HeaderRule>,
    /// What the path of the request begins with, as the client sent it.
    pub path: Option<String>,
}

/// A header field that must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    name: HeaderName,
    /// Its whole value, in this spelling; any without it.
    value: Option<HeaderValue>,
}

impl HeaderRule {
    /// `X-Plan: gold`, or `X-Plan` for any value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, Some(value.trim_matches([' ', '\t']))),
            None => (text, None),
        };
        let name = name.parse().ok()?;
        let value = value.map(HeaderValue::from_str).transpose().ok()?;
        Some(Self { name, value })
    }

    fn matches(&self, parts: &Parts) -> bool {
        let mut values = parts.headers.get_all(&self.name).iter();
        match &self.value {
            Some(wanted) => values.any(|value| value == wanted),
            None => values.next().is_some(),
        }
    }
}

impl fmt::Display for HeaderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        match &self.value {
            // It was text.
            Some(value) => write!(f, ": {}", value.to_str().unwrap_or_default()),
            None => Ok(()),
        }
    }
}

/// The place of a request's class. `path` is that of its target.
pub(crate) fn rank_of(rules: &[ClassRule], parts: &Parts, path: &str) -> Rank {
    let matches = |rule: &ClassRule| {
        rule.path.as_deref().is_none_or(|start| path.starts_with(start))
            && rule.header.as_ref().is_none_or(|header| header.matches(parts))
    };
    let place = rules.iter().position(matches).unwrap_or(rules.len());
    // The options keep it far below.
    Rank(u8::try_from(place).unwrap_or(u8::MAX))
}

/// What the class at a place is called.
pub(crate) fn class_name(rules: &[ClassRule], rank: Rank) -> &str {
    rules.get(usize::from(rank.0)).map_or(LAST_CLASS, |rule| rule.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn rule(name: &str, header: Option<&str>, path: Option<&str>) -> ClassRule {
        ClassRule {
            name: name.to_owned(),
            header: header.map(|text| HeaderRule::parse(text).unwrap()),
            path: path.map(str::to_owned),
        }
    }

    fn rank(rules: &[ClassRule], path: &str, fields: &[(&str, &str)]) -> u8 {
        let mut request = Request::get(path);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        rank_of(rules, &parts, parts.uri.path()).0
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = [
            rule("gold", Some("X-Plan: gold"), None),
            rule("checkout", Some("cookie"), Some("/cart/")),
            rule("api", None, Some("/api/")),
        ];
        assert_eq!(rank(&rules, "/api/x", &[("x-plan", "gold")]), 0);
        assert_eq!(rank(&rules, "/api/x", &[("x-plan", "none"), ("x-plan", "gold")]), 0);
        assert_eq!(rank(&rules, "/api/x", &[("x-plan", "Gold")]), 2);
        assert_eq!(rank(&rules, "/cart/1", &[("cookie", "a=1")]), 1);
        assert_eq!(rank(&rules, "/cart/1", &[]), 3);
        assert_eq!(rank(&rules, "/API/", &[]), 3);
        assert_eq!(rank(&[], "/", &[]), 0);
        let names: Vec<_> = (0..4).map(|rank| class_name(&rules, Rank(rank))).collect();
        assert_eq!(names, ["gold", "checkout", "api", "other"]);
    }

    #[test]
    fn a_header_is_written_as_it_was_read() {
        for text in ["x-plan: gold", "x-plan", "x-plan: a: b"] {
            assert_eq!(HeaderRule::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(HeaderRule::parse("X-Plan:  gold ").unwrap().to_string(), "x-plan: gold");
        for text in ["", ": gold", "x plan: gold", "x-plan: go\nld"] {
            assert_eq!(HeaderRule::parse(text), None, "{text:?}");
        }
    }
}
