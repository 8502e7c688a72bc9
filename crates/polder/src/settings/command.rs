//! The program of a site: whether it can run, and whether its placeholders are known. The agent
//! fills them in.
//!
//! A placeholder is a lower-case word in braces, as `{port}`. What else stands in braces is the
//! program's own: `${port}` and `{ echo; }` go to a shell as they are.

use super::problem::{Findings, did_you_mean, one_of};
use super::reader::{Table, shown};

/// Arguments of one command. More are a list that belongs in a file.
const ARGUMENTS_MAX: usize = 256;

const PLACEHOLDERS: [&str; 4] = ["port", "host", "node", "site"];

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

    fn names(mut text: &str) -> Vec<&str> {
        let mut names = Vec::new();
        while let Some((name, place)) = next_placeholder(text) {
            names.push(name);
            text = &text[place.end..];
        }
        names
    }

    #[test]
    fn placeholders_are_found_and_braces_of_the_shell_are_not() {
        assert_eq!(names("127.0.0.1:{port}{node}"), ["port", "node"]);
        assert_eq!(names("${port} f() { echo; } {PORT} {} {{port}}"), ["port"]);
        assert_eq!(names("{other} {port"), ["other"]);
    }

    proptest! {
        #[test]
        fn any_text_is_searched(text in "(\\{|\\}|port|\\$|ä| )*") {
            prop_assert!(names(&text).iter().all(|name| !name.is_empty()));
        }
    }
}
