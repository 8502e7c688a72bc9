//! Sizes that keep the house readable: files, functions, lines, and no stray white space.

use crate::source::Source;
use crate::tidy::Problem;
use crate::tree::{File, Tree};

/// A file beyond this does two things; also the limit that a reader's patience sets.
const FILE_LINES_MAX: usize = 800;

/// Files beyond this are listed by `--verbose`: the next addition is the moment to split.
const FILE_LINES_NEAR: usize = 400;

/// A function fits a screen. The same count as clippy's `too_many_lines`: lines of code between
/// the braces, without blank ones and comments.
const FUNCTION_LINES_MAX: usize = 70;

/// Two sources side by side on one screen; rustfmt keeps to it where it can.
const COLUMNS_MAX: usize = 100;

/// Files in which white space is checked, by the ends of their names.
const TEXT_ENDS: &[&str] = &[".rs", ".md", ".toml", ".sh"];

/// Scripts whose names have no end.
const SCRIPTS: &[&str] = &["demo", "test", ".ci/run"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        check_file_length(file, &mut problems);
        check_columns(file, &mut problems);
        check_functions(file, &mut problems);
    }
    for file in &tree.files {
        let is_text = TEXT_ENDS.iter().any(|end| file.path.ends_with(end));
        if is_text || SCRIPTS.contains(&file.path.as_str()) {
            check_white_space(file, &mut problems);
        }
    }
    problems
}

/// What is not wrong yet, but near it.
pub(crate) fn near(tree: &Tree) -> Vec<Problem> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let lines = file.text().lines().count();
        if (FILE_LINES_NEAR + 1..=FILE_LINES_MAX).contains(&lines) {
            let text = format!("{lines} lines (preferred: {FILE_LINES_NEAR}); split when it grows");
            found.push(Problem::new(&file.path, lines, text));
        }
    }
    found
}

fn check_file_length(file: &File, problems: &mut Vec<Problem>) {
    let lines = file.text().lines().count();
    if lines > FILE_LINES_MAX {
        let text = format!("{lines} lines, at most {FILE_LINES_MAX}; split the file");
        problems.push(Problem::new(&file.path, FILE_LINES_MAX + 1, text));
    }
}

/// A line that carries an address may be longer: addresses cannot be broken.
fn check_columns(file: &File, problems: &mut Vec<Problem>) {
    for (line, at) in file.text().lines().zip(1..) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !line.contains("://") {
            let text = format!("{columns} columns, at most {COLUMNS_MAX}; break the line");
            problems.push(Problem::new(&file.path, at, text));
        }
    }
}

fn check_white_space(file: &File, problems: &mut Vec<Problem>) {
    for (line, at) in file.text().lines().zip(1..) {
        if line.contains('\t') {
            problems.push(Problem::new(&file.path, at, "a tab; use spaces"));
        }
        if line.ends_with([' ', '\t']) {
            problems.push(Problem::new(&file.path, at, "white space at the end; remove it"));
        }
    }
    if file.text.as_deref().is_some_and(|text| !text.is_empty() && !text.ends_with('\n')) {
        let lines = file.text().lines().count();
        problems.push(Problem::new(&file.path, lines, "no newline at the end; add it"));
    }
}

fn check_functions(file: &File, problems: &mut Vec<Problem>) {
    let source = Source::split(file.text());
    for (at, body) in functions(&source) {
        let inside = body.trim_start_matches('{');
        let lines = inside.lines().filter(|line| !line.trim().is_empty()).count();
        if lines > FUNCTION_LINES_MAX {
            let text = format!(
                "a function of {lines} lines, at most {FUNCTION_LINES_MAX}; \
                 move pure work into functions of its own"
            );
            problems.push(Problem::new(&file.path, source.line_of(at), text));
        }
    }
}

/// Each function with a body: the offset of its `fn`, and the body from its `{` up to its `}`.
fn functions(source: &Source) -> Vec<(usize, &str)> {
    let code = &source.code;
    let mut found = Vec::new();
    let mut words = source.words().peekable();
    while let Some((at, word)) = words.next() {
        let named = words.peek().is_some_and(|(next, _)| code[at..*next].trim() == "fn");
        if word == "fn" && named {
            found.extend(body(&code[at..]).map(|body| (at, body)));
        }
    }
    found
}

/// The body of the function whose signature `code` begins with; `None` if it has none.
fn body(code: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut start = None;
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 && start.is_none() => return None,
            '{' => {
                if depth == 0 && start.is_none() {
                    start = Some(at);
                }
                depth += 1;
            }
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return start.map(|start| &code[start..at]);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    fn function(lines: usize) -> String {
        format!("//! A.\nfn f(a: [u8; 4]) -> [u8; 4] {{\n{}}}\n", "    run();\n".repeat(lines))
    }

    #[test]
    fn functions_have_a_limit() {
        assert!(problems("a.rs", &function(70)).is_empty());
        let long = problems("a.rs", &function(71));
        assert!(long[0].starts_with("a.rs:2: a function of 71 lines"), "{long:?}");
    }

    #[test]
    fn blank_lines_and_comments_do_not_count() {
        let airy = function(69).replacen("run();", "run();\n\n    // Why { it runs.\n", 10);
        assert!(problems("a.rs", &airy).is_empty());
    }

    #[test]
    fn each_function_is_counted_apart() {
        let two = format!("{}{}", function(60), function(60).replace("fn f", "fn g"));
        assert!(problems("a.rs", &two).is_empty());
        let without_body = format!("trait T {{ fn f(&self, g: fn(u8)); {} }}", "\n".repeat(90));
        let source = Source::split(&without_body);
        assert!(functions(&source).is_empty());
    }

    #[test]
    fn files_have_a_limit_and_a_warning_before_it() {
        assert!(problems("a.rs", &"run();\n".repeat(800)).is_empty());
        assert!(problems("a.rs", &"run();\n".repeat(801))[0].starts_with("a.rs:801: 801 lines"));
        let near_at = |lines| near(&Tree::of(&[("a.rs", &*"run();\n".repeat(lines))])).len();
        assert_eq!([near_at(400), near_at(401), near_at(801)], [0, 1, 0]);
    }

    #[test]
    fn lines_have_a_limit_but_addresses_do_not_break() {
        assert!(problems("a.rs", &format!("// {}\n", "ä".repeat(97))).is_empty());
        assert!(problems("a.rs", &format!("// {}\n", "a".repeat(98)))[0].contains("101 columns"));
        assert!(problems("a.rs", &format!("// https://{}\n", "a".repeat(98))).is_empty());
    }

    #[test]
    fn white_space_is_clean() {
        assert_eq!(problems("a.md", "a \n"), ["a.md:1: white space at the end; remove it"]);
        assert_eq!(problems("demo", "\ta\n"), ["demo:1: a tab; use spaces"]);
        assert_eq!(problems("a.toml", "a\nb"), ["a.toml:2: no newline at the end; add it"]);
        assert!(problems("a.json", "\t \n").is_empty());
    }
}
