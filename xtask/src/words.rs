//! Words that must not be committed: unfinished code, silent tests, paths of one machine.

use crate::source;
use crate::tidy::Problem;
use crate::tree::{File, Tree};

/// What no Rust source may contain, even in a message, and what to do instead. The words are put
/// together here so that this file does not contain them.
const UNFINISHED: &[(&str, &str)] = &[
    (concat!("todo", "!("), "unfinished code; finish it"),
    (concat!("unimplemented", "!("), "unfinished code; finish it"),
    (concat!("FIX", "ME"), "a known fault; mend it or open an issue"),
    (concat!("XX", "X"), "a known doubt; settle it or open an issue"),
    (concat!("#[", "ignore"), "a test that never runs; let it print `skipped: why` or remove it"),
];

/// A note for later; allowed with the number of its issue behind it, as in `(#12)`.
const LATER: &str = concat!("TO", "DO");

/// Homes and work places of single machines. They begin a word: after a letter they are part of
/// an address or of a longer path.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// A toolchain is the user's choice; the oldest that works stands in the workspace's manifest.
const TOOLCHAIN_FILES: &[&str] = &["rust-toolchain.toml", "rust-toolchain"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &tree.files {
        if TOOLCHAIN_FILES.contains(&file.name()) {
            let text = "pins a toolchain; remove it, `rust-version` in Cargo.toml is enough";
            problems.push(Problem::new(&file.path, 1, text));
        }
        check_machine_paths(file, &mut problems);
    }
    for file in tree.rust() {
        check_unfinished(file, &mut problems);
        check_later(file, &mut problems);
    }
    problems
}

fn check_unfinished(file: &File, problems: &mut Vec<Problem>) {
    for (line, at) in file.text().lines().zip(1..) {
        for (word, what) in UNFINISHED {
            if line.contains(word) {
                problems.push(Problem::new(&file.path, at, format!("`{word}`: {what}")));
            }
        }
    }
}

fn check_later(file: &File, problems: &mut Vec<Problem>) {
    for (at, word) in source::words(file.text()).filter(|(_, word)| *word == LATER) {
        let rest = file.text()[at + word.len()..].strip_prefix("(#");
        let number = rest.and_then(|rest| rest.split_once(')')).map_or("", |(number, _)| number);
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            let text = format!("`{LATER}` without an issue; write `{LATER}(#12)` or do it");
            problems.push(Problem::new(&file.path, source::line_of(file.text(), at), text));
        }
    }
}

fn check_machine_paths(file: &File, problems: &mut Vec<Problem>) {
    for (line, at) in file.text().lines().zip(1..) {
        for path in MACHINE_PATHS {
            let begins_a_word = |(place, _): (usize, &str)| {
                let before = line[..place].chars().next_back();
                !before.is_some_and(|c| c.is_alphanumeric() || "._-~/}*".contains(c))
            };
            if line.match_indices(path).any(begins_a_word) {
                let text = format!("`{path}`: a path of one machine; make it relative");
                problems.push(Problem::new(&file.path, at, text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unfinished_code_is_found_wherever_it_hides() {
        for (word, _) in UNFINISHED {
            let found = problems("a.rs", &format!("fn f() {{}}\n// \"{word}\"\n"));
            assert!(found.len() == 1 && found[0].starts_with("a.rs:2: "), "{found:?}");
        }
        assert!(problems("a.rs", "fn f() { ignore(); unfinished() }\n").is_empty());
    }

    #[test]
    fn later_needs_a_number() {
        let check = |rest: &str| problems("a.rs", &format!("// {LATER}{rest}\n")).len();
        assert_eq!(
            [check(": x"), check("(me)"), check("(#)"), check("(#12"), check("(#1a)")],
            [1; 5]
        );
        assert_eq!([check("(#12): x"), check("S are listed")], [0; 2]);
    }

    #[test]
    fn paths_of_one_machine_are_found_in_any_file() {
        for path in MACHINE_PATHS {
            assert_eq!(problems("a.json", &format!("{{\"at\": \"{path}me/x\"}}\n")).len(), 1);
            assert_eq!(problems("a.md", &format!("https://example.org{path}x\n")).len(), 0);
            assert_eq!(problems("a.sh", &format!("\"$top{path}x\" ../a{path}\n")).len(), 0);
        }
    }

    #[test]
    fn toolchains_are_not_pinned() {
        assert_eq!(problems("rust-toolchain.toml", "").len(), 1);
        assert_eq!(problems("crates/edge/rust-toolchain", "").len(), 1);
        assert_eq!(problems("docs/toolchain.md", "").len(), 0);
    }
}
