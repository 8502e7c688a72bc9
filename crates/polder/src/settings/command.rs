//! The program of a site: its placeholders, and what they become on a node.
//!
//! A placeholder is a lower-case word in braces, as `{port}`. What else stands in braces is the
//! program's own: `${port}` and `{ echo; }` go to a shell as they are.

use super::model::Site;
use super::problem::{Findings, did_you_mean, one_of};
use super::reader::{Table, shown};
use std::net::SocketAddrV4;

/// Arguments of one command. More are a list that belongs in a file.
const ARGUMENTS_MAX: usize = 256;

const PLACEHOLDERS: [&str; 4] = ["port", "host", "node", "site"];

/// Where one server of a site runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPlace<'a> {
    /// The node's name.
    pub node: &'a str,
    /// Where the program must listen.
    pub address: SocketAddrV4,
}

impl Site {
    /// The program and its arguments for one node, placeholders filled in; empty if the site has
    /// no command.
    #[must_use]
    pub fn command_at(&self, place: ServerPlace<'_>) -> Vec<String> {
        let port = place.address.port().to_string();
        let host = place.address.ip().to_string();
        let value = |name: &str| match name {
            "port" => Some(port.as_str()),
            "host" => Some(host.as_str()),
            "node" => Some(place.node),
            "site" => Some(self.name.as_str()),
            _ => None,
        };
        self.command.iter().map(|argument| fill(argument, value)).collect()
    }

    /// What the program finds in its environment, besides what it inherits.
    #[must_use]
    pub fn environment_at(&self, place: ServerPlace<'_>) -> [(&'static str, String); 4] {
        [
            ("PORT", place.address.port().to_string()),
            ("HOST", place.address.ip().to_string()),
            ("NODE", place.node.to_owned()),
            ("SITE", self.name.clone()),
        ]
    }
}

/// The next placeholder: its name, and the bytes that it takes with its braces.
fn next_placeholder(text: &str) -> Option<(&str, std::ops::Range<usize>)> {
    let mut from = 0;
    while let Some(open) = text[from..].find('{').map(|found| found + from) {
        let length = text[open + 1..].bytes().take_while(|b| b.is_ascii_lowercase()).count();
        let close = open + 1 + length;
        let is_shells = text[..open].ends_with('$');
        if length > 0 && text[close..].starts_with('}') && !is_shells {
            return Some((&text[open + 1..close], open..close + 1));
        }
        from = open + 1;
    }
    None
}

fn fill<'v>(argument: &str, value: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut filled = String::new();
    let mut rest = argument;
    while let Some((name, place)) = next_placeholder(rest) {
        filled.push_str(&rest[..place.start]);
        filled.push_str(value(name).unwrap_or(&rest[place.clone()]));
        rest = &rest[place.end..];
    }
    filled.push_str(rest);
    filled
}

/// Reads a site's command and reports what cannot run.
pub(super) fn checked(table: &Table<'_>, findings: &Findings) -> Vec<String> {
    let Some(list) = table.texts("command") else { return Vec::new() };
    let mut takes_port = false;
    for argument in &list.value {
        let mut rest = argument.value;
        while let Some((name, place)) = next_placeholder(rest) {
            takes_port |= name == "port";
            if !PLACEHOLDERS.contains(&name) {
                let message = format!("unknown placeholder `{{{}}}` in `command`", shown(name));
                let help = did_you_mean(name, PLACEHOLDERS)
                    .unwrap_or_else(|| format!("known: {}", one_of(PLACEHOLDERS)));
                findings.error(&argument.span, message, help);
            }
            rest = &rest[place.end..];
        }
        if argument.value.contains('\0') {
            findings.error(&argument.span, "an argument cannot hold a zero byte", "remove it");
        }
        takes_port |= argument.value.contains("PORT");
    }
    match list.value.first() {
        Some(program) if program.value.trim().is_empty() => {
            findings.error(&program.span, "`command` names no program", "put its path first");
        }
        Some(_) if !takes_port => {
            let message = format!("the command of {} does not mention `{{port}}`", table.title);
            let help = "each node gives it a port; the program must listen there, or read PORT \
                        from its environment";
            findings.warning(&list.span, message, help);
        }
        _ => {}
    }
    if list.value.len() > ARGUMENTS_MAX {
        let message = format!("`command` has more than {ARGUMENTS_MAX} arguments");
        findings.error(&list.span, message, "put them in a file or a script");
    }
    list.value.iter().map(|argument| argument.value.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(argument: &str) -> String {
        fill(argument, |name| (name == "port").then_some("9001"))
    }

    #[test]
    fn placeholders_are_filled_and_braces_of_the_shell_stay() {
        assert_eq!(filled("127.0.0.1:{port}"), "127.0.0.1:9001");
        assert_eq!(filled("{port}{port}"), "90019001");
        assert_eq!(filled("${port} f() { echo; } {PORT} {} {{port}}"), {
            "${port} f() { echo; } {PORT} {} {9001}"
        });
        assert_eq!(filled("{other} {port"), "{other} {port");
    }

    proptest! {
        #[test]
        fn text_without_braces_stays(text in "[^{]*") {
            prop_assert_eq!(filled(&text), text);
        }

        #[test]
        fn any_text_is_filled(text in "(\\{|\\}|port|\\$|ä| )*") {
            filled(&text);
        }
    }
}
