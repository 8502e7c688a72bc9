//! Documents that must exist, links that must lead somewhere, and the face of each module.

use crate::source::Source;
use crate::tidy::Problem;
use crate::tree::{File, Tree};

/// What a newcomer is promised to find.
const REQUIRED: &[&str] = &[
    ".ci/run",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LEXICON.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "demo",
    "deny.toml",
    "docs/dependencies.md",
    "docs/layout.md",
    "test",
];

/// A README is read standing.
const README_LINES_MAX: usize = 120;

/// What fits one screen without scrolling: both commands must be there.
const FIRST_SCREEN_LINES: usize = 40;

/// The two commands of the first screen.
const COMMANDS: &[&str] = &["./demo", "./test"];

/// Items that a `lib.rs` leaves to its modules.
const ITEMS: &[&str] = &["fn", "struct", "enum", "trait", "impl"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for path in REQUIRED.iter().filter(|path| tree.get(path).is_none()) {
        problems.push(Problem::new(path, 1, "missing; write it"));
    }
    if let Some(readme) = tree.get("README.md") {
        check_readme(readme, &mut problems);
    }
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        check_links(tree, file, &mut problems);
    }
    for file in tree.rust() {
        check_module(file, &mut problems);
    }
    problems
}

fn check_readme(readme: &File, problems: &mut Vec<Problem>) {
    let lines = readme.text().lines().count();
    if lines > README_LINES_MAX {
        let text = format!("{lines} lines, at most {README_LINES_MAX}; move details to docs");
        problems.push(Problem::new(&readme.path, README_LINES_MAX + 1, text));
    }
    let first: Vec<&str> = readme.text().lines().take(FIRST_SCREEN_LINES).collect();
    for command in COMMANDS {
        if !first.iter().any(|line| line.contains(command)) {
            let text = format!("`{command}` is not on the first screen; move it up");
            problems.push(Problem::new(&readme.path, 1, text));
        }
    }
}

/// Links to files of the checkout lead to files; `http` links and anchors are not followed.
fn check_links(tree: &Tree, file: &File, problems: &mut Vec<Problem>) {
    let directory = file.path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut in_block = false;
    for (line, at) in file.text().lines().zip(1..) {
        in_block ^= line.trim_start().starts_with("```");
        if in_block {
            continue;
        }
        for rest in line.split("](").skip(1) {
            let target = rest.split([')', '#', ' ']).next().unwrap_or("");
            if target.is_empty() || target.contains(':') {
                continue;
            }
            if !tree.exists(&join(directory, target)) {
                let text = format!("the link to `{target}` leads nowhere; correct it");
                problems.push(Problem::new(&file.path, at, text));
            }
        }
    }
}

/// `target` as seen from `directory`, with `.` and `..` taken out.
fn join(directory: &str, target: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/').chain(target.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// A module opens with its documentation, and a `lib.rs` is documentation and re-exports.
fn check_module(file: &File, problems: &mut Vec<Problem>) {
    if !file.text().trim_start().starts_with("//!") {
        let text = "the module does not open with a `//!` comment; say what it is for";
        problems.push(Problem::new(&file.path, 1, text));
    }
    if file.name() == "lib.rs" {
        let source = Source::split(file.text());
        let item = source.words().find(|(_, word)| ITEMS.contains(word));
        if let Some((at, word)) = item {
            let text = format!("`{word}` in lib.rs; move it to a module and re-export it");
            problems.push(Problem::new(&file.path, source.line_of(at), text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(files: &[(&str, &str)]) -> Vec<String> {
        let found = check(&Tree::of(files));
        let other = |problem: &&Problem| problem.text != "missing; write it";
        found.iter().filter(other).map(ToString::to_string).collect()
    }

    #[test]
    fn required_documents_are_asked_for() {
        assert_eq!(check(&Tree::default()).len(), REQUIRED.len());
        let files: Vec<(&str, &str)> =
            REQUIRED.iter().map(|path| (*path, "./demo ./test")).collect();
        assert!(check(&Tree::of(&files)).is_empty());
    }

    #[test]
    fn a_readme_is_short_and_shows_both_commands_at_once() {
        let commands = "./demo\n./test\n";
        let with = |before: usize, after: usize| {
            let text = format!("{}{commands}{}", "\n".repeat(before), "\n".repeat(after));
            problems(&[("README.md", &text)])
        };
        assert!(with(38, 80).is_empty());
        assert!(with(38, 81)[0].starts_with("README.md:121: 121 lines"));
        assert!(with(39, 0)[0].contains("`./test` is not on the first screen"));
    }

    #[test]
    fn links_lead_somewhere() {
        let files = [("docs/a.md", "[b](b.md#x) [up](../README) [w](https://x.org/y) [h](#h)\n")];
        let found = problems(&files);
        assert_eq!(found.len(), 2, "{found:?}");
        let all = [files[0], ("docs/b.md", "```\n[x](nowhere)\n```\n"), ("README", "")];
        assert!(problems(&all).is_empty());
    }

    #[test]
    fn modules_say_what_they_are_for() {
        assert!(problems(&[("a.rs", "\n//! A.\nfn f() {}\n")]).is_empty());
        assert!(problems(&[("a.rs", "fn f() {}\n")])[0].starts_with("a.rs:1: the module"));
    }

    #[test]
    fn a_lib_is_a_table_of_contents() {
        let good = "//! A crate of fn and struct.\nmod a;\npub use a::{A, b};\n";
        assert!(problems(&[("crates/a/src/lib.rs", good)]).is_empty());
        let bad = format!("{good}pub fn f() {{}}\n");
        assert!(problems(&[("crates/a/src/lib.rs", &bad)])[0].contains("lib.rs:4: `fn`"));
    }
}
