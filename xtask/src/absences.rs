//! Invariants that are stated as absences: what a crate must never know of.

use crate::manifest::{self, Crate};
use crate::source::Source;
use crate::tidy::Problem;
use crate::tree::Tree;

/// What one crate never mentions.
struct Absence {
    name: &'static str,
    /// Words and paths of words (`std::net`) that its sources never contain.
    words: &'static [&'static str],
    /// Dependencies it never has.
    dependencies: &'static [&'static str],
    /// Whether it may use crates of this workspace.
    knows_polder: bool,
    reason: &'static str,
}

/// Clock, network, files and randomness: inputs of a pure crate are its arguments.
const IMPURE: &[&str] = &[
    "Instant",
    "SystemTime",
    "std::net",
    "std::fs",
    "std::thread",
    "std::env",
    "std::process",
    "rand",
    "getrandom",
    "tokio",
    "rustix",
];

/// Only what would make two runs of a seed differ: a simulation's tests read variables, and run
/// seeds side by side.
const CLOCK_AND_CHANCE: &[&str] =
    &["Instant", "SystemTime", "std::net", "rand", "getrandom", "tokio", "rustix"];
const IMPURE_DEPENDENCIES: &[&str] = &["getrandom", "rand", "rustix", "socket2", "tokio"];

/// Crates of this workspace that know nothing of Polder themselves.
const STRANGERS: &[&str] = &["fuzzing"];

const ABSENCES: &[Absence] = &[
    Absence {
        name: "pool-model",
        words: IMPURE,
        dependencies: IMPURE_DEPENDENCIES,
        knows_polder: true,
        reason: "nouns have no clock, no input and no output",
    },
    Absence {
        name: "policy",
        words: IMPURE,
        dependencies: IMPURE_DEPENDENCIES,
        knows_polder: true,
        reason: "policy never reads a clock: views and time come in, moves go out",
    },
    Absence {
        name: "sim",
        words: CLOCK_AND_CHANCE,
        dependencies: IMPURE_DEPENDENCIES,
        knows_polder: true,
        reason: "time is virtual and every draw comes from the seed: a seed is a history",
    },
    Absence {
        name: "load",
        words: &[],
        dependencies: &[],
        knows_polder: false,
        reason: "load knows no Polder type, so that it measures rivals the same way",
    },
];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    check_with(tree, ABSENCES)
}

fn check_with(tree: &Tree, absences: &[Absence]) -> Vec<Problem> {
    let (crates, _) = manifest::crates(tree);
    let mut problems = Vec::new();
    for absence in absences {
        let Some(found) = crates.iter().find(|found| found.name == absence.name) else {
            let text = format!("there is no crate `{}`; remove its absences", absence.name);
            problems.push(Problem::new("xtask/src/absences.rs", 1, text));
            continue;
        };
        check_dependencies(found, &crates, absence, &mut problems);
        let directory = format!("{}/", found.directory());
        for file in tree.rust().filter(|file| file.path.starts_with(&directory)) {
            let code = expand_std_groups(&Source::split(file.text()).code);
            for (line, at) in code.lines().zip(1..) {
                for word in absence.words.iter().filter(|word| mentions(line, word)) {
                    let text = format!("`{word}`: {}; take it as an argument", absence.reason);
                    problems.push(Problem::new(&file.path, at, text));
                }
            }
        }
    }
    problems
}

fn check_dependencies(
    found: &Crate,
    crates: &[Crate],
    absence: &Absence,
    problems: &mut Vec<Problem>,
) {
    for dependency in &found.dependencies {
        let is_it = |other: &Crate| other.name == dependency.name;
        let ours = crates.iter().any(is_it) && !STRANGERS.contains(&dependency.name.as_str());
        let forbidden = absence.dependencies.contains(&dependency.name.as_str());
        if forbidden || (ours && !absence.knows_polder) {
            let text = format!("`{}`: {}; do without it", dependency.name, absence.reason);
            problems.push(Problem::new(&found.path, dependency.line, text));
        }
    }
}

/// Whether `line` contains `path` as whole words.
fn mentions(line: &str, path: &str) -> bool {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + path.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Writes `std::` before each name of a group `use std::{net, time::Duration}`, on its own line.
fn expand_std_groups(code: &str) -> String {
    let mut expanded = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find("std::{") {
        let inside = start + "std::{".len();
        let length = rest[inside..].find("};").unwrap_or(rest.len() - inside);
        let group = &rest[inside..inside + length];
        expanded.push_str(&rest[..inside]);
        let names = group.split(',').map(|name| {
            let trimmed = name.trim_start();
            format!("{}std::{trimmed}", &name[..name.len() - trimmed.len()])
        });
        expanded.push_str(&names.collect::<Vec<_>>().join(","));
        rest = &rest[inside + length..];
    }
    expanded + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"policy\"\n[dependencies]\n";

    fn problems(manifest: &str, source: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("crates/policy/Cargo.toml", manifest),
            ("crates/policy/src/reconf.rs", source),
            ("crates/edge/Cargo.toml", "[package]\nname = \"edge\"\n"),
            ("crates/edge/src/look.rs", "use std::time::Instant;\n"),
        ]);
        let of_policy = ABSENCES.iter().position(|absence| absence.name == "policy");
        let at = of_policy.expect("policy has absences");
        check_with(&tree, &ABSENCES[at..=at]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pure_code_is_good_and_others_may_read_clocks() {
        let pure = "//! Never reads std::time::Instant.\nuse std::time::Duration;\n\
                    use std::{fmt, vec};\nfn operand(instant: u64) { \"tokio\" }\n";
        assert!(problems(MANIFEST, pure).is_empty());
    }

    #[test]
    fn clocks_networks_and_chance_are_found() {
        let bad = [
            "use std::time::Instant;",
            "use std::{time::{Duration, Instant}};",
            "std::fs::read(a)",
            "use std::{collections::BTreeMap, net::TcpStream};",
            "rand::random()",
            "tokio::spawn(f)",
        ];
        for line in bad {
            let found = problems(MANIFEST, &format!("// First.\n{line}\n"));
            assert!(!found.is_empty(), "{line}");
            assert!(found[0].starts_with("crates/policy/src/reconf.rs:2: "), "{found:?}");
        }
    }

    #[test]
    fn groups_over_several_lines_keep_their_lines() {
        let found = problems(MANIFEST, "use std::{\n    fmt,\n    net::IpAddr,\n};\n");
        assert!(found[0].starts_with("crates/policy/src/reconf.rs:3: `std::net`"), "{found:?}");
    }

    #[test]
    fn dependencies_are_found() {
        let found = problems(&format!("{MANIFEST}tokio = {{ workspace = true }}\n"), "");
        assert!(found[0].starts_with("crates/policy/Cargo.toml:4: `tokio`"), "{found:?}");
    }

    #[test]
    fn load_knows_no_crate_of_ours() {
        let manifest = "[package]\nname = \"load\"\n[dependencies]\nbytes = \"1\"\nedge = \"0\"\n\
                        [dev-dependencies]\nfuzzing = \"0\"\n";
        let tree = Tree::of(&[
            ("crates/fuzzing/Cargo.toml", "[package]\nname = \"fuzzing\"\n"),
            ("crates/load/Cargo.toml", manifest),
            ("crates/edge/Cargo.toml", "[package]\nname = \"edge\"\n"),
        ]);
        let of_load = ABSENCES.iter().filter(|absence| absence.name == "load").count();
        assert_eq!(of_load, 1);
        let found = check(&tree);
        let load: Vec<_> = found.iter().filter(|p| p.path.starts_with("crates/load")).collect();
        assert_eq!(load.len(), 1, "{found:?}");
        assert!(load[0].line == 5 && load[0].text.starts_with("`edge`"));
        assert!(found.iter().any(|p| p.text.contains("no crate `policy`")), "stale entries show");
    }
}
