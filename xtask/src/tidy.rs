//! `cargo xtask tidy`: reads the checkout once, runs every check, prints what is wrong.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use crate::tree::Tree;
use crate::{absences, dependencies, documents, floors, fuzz, limits, unsafe_code, words};

/// One thing that is wrong, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// "what is wrong; what to do".
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(path: &str, line: usize, text: impl Into<String>) -> Problem {
        Problem { path: path.to_owned(), line, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.text)
    }
}

/// One check: its name, and the pure function that finds its problems.
type Check = (&'static str, fn(&Tree) -> Vec<Problem>);

const CHECKS: &[Check] = &[
    ("floors", floors::check),
    ("limits", limits::check),
    ("unsafe code", unsafe_code::check),
    ("words", words::check),
    ("dependencies", dependencies::check),
    ("absences", absences::check),
    ("documents", documents::check),
    ("fuzz targets", fuzz::check),
];

/// Runs every check on the checkout at `top` and prints the problems.
pub(crate) fn run(top: &Path, verbose: bool) -> ExitCode {
    let tree = match Tree::read(top) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: {} cannot be read: {error}", top.display());
            return ExitCode::from(2);
        }
    };
    if verbose {
        for near in limits::near(&tree) {
            println!("{near}");
        }
    }
    let mut count = 0;
    for (name, check) in CHECKS {
        let mut problems = check(&tree);
        problems.sort();
        for problem in &problems {
            println!("{problem}");
        }
        count += problems.len();
        if verbose {
            println!("{name}: {} problems", problems.len());
        }
    }
    if count > 0 {
        eprintln!("tidy: {count} problems");
        return ExitCode::FAILURE;
    }
    println!("tidy: {} checks of {} files, no problems", CHECKS.len(), tree.files.len());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_like_a_compilers() {
        let problem = Problem::new("crates/edge/src/a.rs", 7, "too long; split it");
        assert_eq!(problem.to_string(), "crates/edge/src/a.rs:7: too long; split it");
    }
}
