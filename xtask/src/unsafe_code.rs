//! Unsafe code lives in few files, each listed here with its reason, and each block says why it is
//! sound.

use crate::source::Source;
use crate::tidy::Problem;
use crate::tree::{File, Tree};

/// Where unsafe code may be, and why. An entry whose file has none is a problem too.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/edge/src/sys.rs", "lets tokio watch a connection to a version table"),
    ("crates/load/src/sys.rs", "lets tokio watch a kernel timer"),
    (
        "crates/polder/src/sys.rs",
        "takes sockets that a service manager opened, lets tokio watch a child process",
    ),
    (
        "crates/remote-memory/src/sys.rs",
        "maps shared memory, sees it as atomic words, waits on half a word, raises a priority",
    ),
];

/// The table above, for messages.
const TABLE: &str = "xtask/src/unsafe_code.rs";

/// The crate whose business is other processes' memory.
const MEMORY_CRATE: &str = "crates/remote-memory/";

/// How many lines of code may stand between a `SAFETY:` comment and its block: a statement broken
/// over lines, or attributes.
const CODE_BETWEEN_MAX_LINES: usize = 3;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    check_with(tree, ALLOWED)
}

fn check_with(tree: &Tree, allowed: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.rust() {
        let source = Source::split(file.text());
        let uses: Vec<usize> =
            source.words().filter(|(_, word)| *word == "unsafe").map(|(at, _)| at).collect();
        if let Some(&first) = uses.first() {
            check_file(file, source.line_of(first), allowed, &mut problems);
        }
        for at in uses {
            check_reason(file, &source, at, &mut problems);
        }
    }
    for (path, _reason) in allowed {
        let has_unsafe =
            |file: &File| Source::split(file.text()).words().any(|(_, word)| word == "unsafe");
        if !tree.get(path).is_some_and(has_unsafe) {
            let text = format!("{path} has no unsafe code (any more); remove its entry");
            problems.push(Problem::new(TABLE, 1, text));
        }
    }
    problems
}

/// The file is one that may have unsafe code, and it is listed.
fn check_file(file: &File, line: usize, allowed: &[(&str, &str)], problems: &mut Vec<Problem>) {
    let in_place = file.path.starts_with(MEMORY_CRATE) || file.name() == "sys.rs";
    if !in_place {
        let text = "unsafe code outside crate remote-memory and a crate's sys.rs; move it there";
        problems.push(Problem::new(&file.path, line, text));
    } else if !allowed.iter().any(|(path, _)| *path == file.path) {
        let text = format!("unsafe code without an entry; add the file and its reason to {TABLE}");
        problems.push(Problem::new(&file.path, line, text));
    }
}

/// A block or an implementation needs a `SAFETY:` comment above it; a declaration needs a
/// `# Safety` list, which clippy asks for.
fn check_reason(file: &File, source: &Source, at: usize, problems: &mut Vec<Problem>) {
    let rest = source.code[at..].trim_start_matches("unsafe").trim_start();
    if !(rest.starts_with('{') || rest.starts_with("impl")) {
        return;
    }
    let line = source.line_of(at);
    let code: Vec<&str> = source.code.lines().collect();
    let comments: Vec<&str> = source.comments.lines().collect();
    let mut between = 0;
    for index in (0..line).rev() {
        if comments[index].contains("SAFETY:") {
            return;
        }
        let is_own_line = index + 1 == line;
        between += usize::from(!is_own_line && !code[index].trim().is_empty());
        let blank = code[index].trim().is_empty() && comments[index].trim().is_empty();
        if between > CODE_BETWEEN_MAX_LINES || blank {
            break;
        }
    }
    let text = "unsafe without a `// SAFETY:` comment above it; say why it is sound";
    problems.push(Problem::new(&file.path, line, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "// SAFETY: the region is mapped.\nlet a =\n    unsafe { b.read() };\n";

    fn problems(path: &str, text: &str, allowed: &[(&str, &str)]) -> Vec<String> {
        check_with(&Tree::of(&[(path, text)]), allowed).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn listed_files_with_reasons_are_good() {
        for path in ["crates/remote-memory/src/region.rs", "crates/edge/src/sys.rs"] {
            assert!(problems(path, GOOD, &[(path, "maps memory")]).is_empty());
        }
    }

    #[test]
    fn other_files_are_not() {
        let path = "crates/edge/src/pool.rs";
        let found = problems(path, GOOD, &[(path, "faster")]);
        assert!(found[0].starts_with("crates/edge/src/pool.rs:3: unsafe code outside"));
    }

    #[test]
    fn files_and_entries_go_together() {
        let path = "crates/edge/src/sys.rs";
        assert!(problems(path, GOOD, &[])[0].contains("without an entry"));
        let words = "// unsafe\nlet unsafe_code = \"unsafe\";\n";
        let stale = problems(path, words, &[(path, "calls the kernel")]);
        assert!(stale[0].contains("has no unsafe code"), "{stale:?}");
    }

    #[test]
    fn each_block_says_why() {
        let path = "crates/edge/src/sys.rs";
        let check = |text: &str| problems(path, text, &[(path, "calls the kernel")]).len();
        assert_eq!(check("unsafe { read() };\n"), 1);
        assert_eq!(check("// SAFETY: old.\n\nunsafe { read() };\n"), 1);
        assert_eq!(check("// SAFETY: far.\na();\nb();\nc();\nd();\nunsafe { read() };\n"), 1);
        assert_eq!(
            check("// SAFETY: no thread.\n#[rustfmt::skip]\nunsafe impl Send for A {}\n"),
            0
        );
        assert_eq!(check("unsafe impl Send for A {}\n"), 1);
        assert_eq!(check("/// # Safety\n/// Mapped.\nunsafe fn read();\n"), 0);
    }

    #[test]
    fn entries_are_given_with_a_reason() {
        for (path, reason) in ALLOWED {
            assert!(!reason.is_empty(), "{path}");
        }
    }
}
