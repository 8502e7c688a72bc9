//! Arrows point down: a crate uses only crates on strictly lower floors.
//!
//! The table of floors is the block that opens with three backquotes and `floors` in
//! `ARCHITECTURE.md`, and it is the only one. A line of it reads
//!
//! ```text
//! floor 3   edge agent (drivers sim)   | what the floor is for
//! beside    xtask                      | what stands beside the floors
//! ```
//!
//! Names in parentheses are places kept for crates that do not exist yet. What stands beside uses
//! no crate of the workspace; tests alone may use it.

use std::collections::BTreeMap;

use crate::manifest::{self, Crate};
use crate::tidy::Problem;
use crate::tree::Tree;

/// Where the table stands.
const MAP: &str = "ARCHITECTURE.md";
const OPENS: &str = "```floors";

/// The place of one crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// `None` beside the floors.
    floor: Option<u32>,
    /// In parentheses: the crate is still to come.
    planned: bool,
    line: usize,
}

/// Crates by name, and where in the map each stands.
type Floors = BTreeMap<String, Place>;

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(map) = tree.get(MAP) else {
        return vec![Problem::new(MAP, 1, "the map is missing; write it, with its floors")];
    };
    let (floors, mut problems) = parse(map.text());
    problems.extend(second_tables(tree));
    let (crates, broken) = manifest::crates(tree);
    problems.extend(broken);
    for found in &crates {
        check_place(found, &floors, &mut problems);
        check_arrows(found, &crates, &floors, &mut problems);
    }
    for (name, place) in &floors {
        if !place.planned && !crates.iter().any(|found| found.name == *name) {
            let text = format!("there is no crate `{name}`; put it in parentheses until there is");
            problems.push(Problem::new(MAP, place.line, text));
        }
    }
    problems
}

fn parse(text: &str) -> (Floors, Vec<Problem>) {
    let (mut floors, mut problems) = (Floors::new(), Vec::new());
    let lines = || text.lines().zip(1..);
    let Some(start) = lines().find(|(line, _)| line.trim_end() == OPENS).map(|(_, at)| at) else {
        let text = format!("there is no table of floors; add a block that opens with {OPENS}");
        return (floors, vec![Problem::new(MAP, 1, text)]);
    };
    for (line, at) in lines().skip(start).take_while(|(line, _)| !line.starts_with("```")) {
        let (names, _purpose) = line.split_once('|').unwrap_or((line, ""));
        let mut parts = names.split_whitespace();
        let floor = match (parts.next(), &mut parts) {
            (None, _) => continue,
            (Some("beside"), _) => None,
            (Some("floor"), rest) => match rest.next().and_then(|number| number.parse().ok()) {
                Some(number) => Some(number),
                None => {
                    problems.push(Problem::new(MAP, at, "no number of a floor; write `floor N`"));
                    continue;
                }
            },
            (Some(word), _) => {
                let text = format!("`{word}` opens no line of floors; write `floor N` or `beside`");
                problems.push(Problem::new(MAP, at, text));
                continue;
            }
        };
        let mut planned = false;
        for part in parts {
            planned |= part.starts_with('(');
            let name = part.trim_matches(['(', ')']).to_owned();
            let place = Place { floor, planned, line: at };
            planned &= !part.ends_with(')');
            if floors.insert(name.clone(), place).is_some() {
                let text = format!("`{name}` stands here a second time; keep one of its places");
                problems.push(Problem::new(MAP, at, text));
            }
        }
    }
    (floors, problems)
}

/// A second table would one day differ from the first.
fn second_tables(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let opened = file.text().lines().zip(1..).filter(|(line, _)| line.trim_end() == OPENS);
        let allowed = usize::from(file.path == MAP);
        for (_, at) in opened.skip(allowed) {
            let text = format!("a second table of floors; the one in {MAP} is enough, refer to it");
            problems.push(Problem::new(&file.path, at, text));
        }
    }
    problems
}

/// The crate stands in the map, under the name of its directory.
fn check_place(found: &Crate, floors: &Floors, problems: &mut Vec<Problem>) {
    let name = &found.name;
    if found.directory().rsplit('/').next() != Some(name) {
        let text = format!("crate `{name}` lies in another directory; give both one name");
        problems.push(Problem::new(&found.path, 1, text));
    }
    let text = match floors.get(name) {
        None => format!("crate `{name}` has no floor; add it to the table in {MAP}"),
        Some(place) if place.planned => {
            format!("crate `{name}` exists; take it out of its parentheses in {MAP}")
        }
        Some(_) => return,
    };
    problems.push(Problem::new(&found.path, 1, text));
}

/// Each dependency within the workspace points to a strictly lower floor.
fn check_arrows(found: &Crate, all: &[Crate], floors: &Floors, problems: &mut Vec<Problem>) {
    let Some(from) = floors.get(&found.name) else { return };
    for dependency in &found.dependencies {
        if !all.iter().any(|other| other.name == dependency.name) {
            continue;
        }
        let Some(to) = floors.get(&dependency.name) else { continue };
        let (user, used) = (&found.name, &dependency.name);
        let text = match (from.floor, to.floor) {
            (Some(from), Some(to)) if to < from => continue,
            (Some(from), Some(to)) => format!(
                "`{user}` (floor {from}) uses `{used}` (floor {to}); arrows only point down: \
                 move what is shared to a lower crate"
            ),
            (None, _) => format!("`{user}` stands beside the floors; let it not use `{used}`"),
            (_, None) if dependency.for_tests => continue,
            (_, None) => {
                format!("`{used}` stands beside the floors; let only tests of `{user}` use it")
            }
        };
        problems.push(Problem::new(&found.path, dependency.line, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Map\n\n```floors\n\
        floor 2   edge (cache store)   | data plane\n\
        floor 1   policy (stream)      | decisions\n\
        floor 0   pool-model\n\
        beside    xtask\n```\n";

    fn manifest(name: &str, uses: &[&str]) -> String {
        let lines: String =
            uses.iter().map(|u| format!("{u} = {{ workspace = true }}\n")).collect();
        format!("[package]\nname = \"{name}\"\n[dependencies]\n{lines}")
    }

    /// The problems of a workspace with this map and these dependencies of edge, policy and xtask.
    fn problems(map: &str, edge: &[&str], policy: &[&str], xtask: &[&str]) -> Vec<String> {
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", map),
            ("crates/edge/Cargo.toml", &manifest("edge", edge)),
            ("crates/policy/Cargo.toml", &manifest("policy", policy)),
            ("crates/pool-model/Cargo.toml", &manifest("pool-model", &["proptest"])),
            ("xtask/Cargo.toml", &manifest("xtask", xtask)),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn arrows_down_are_good() {
        let none: [String; 0] = [];
        assert_eq!(problems(GOOD, &["policy", "pool-model", "tokio"], &["pool-model"], &[]), none);
    }

    #[test]
    fn arrows_up_sideways_and_from_beside_are_not() {
        let up = problems(GOOD, &[], &["edge"], &[]);
        assert!(up[0].starts_with("crates/policy/Cargo.toml:4: `policy` (floor 1) uses `edge`"));
        let beside = problems(GOOD, &[], &[], &["policy"]);
        assert!(beside[0].starts_with("xtask/Cargo.toml:4: `xtask` stands beside"), "{beside:?}");
        let onto = problems(GOOD, &["xtask"], &[], &[]);
        assert!(onto[0].contains("`xtask` stands beside the floors; let only"), "{onto:?}");
        let flat = GOOD.replace("floor 1", "floor 2");
        assert_eq!(problems(&flat, &["policy"], &[], &[]).len(), 1, "same floor");
    }

    #[test]
    fn tests_may_use_what_stands_beside() {
        let map = "```floors\nfloor 0 edge\nbeside fuzzing\n```\n";
        let found = |section: &str| {
            let edge = format!(
                "[package]\nname = \"edge\"\n[{section}]\nfuzzing = {{ workspace = true }}\n"
            );
            let tree = Tree::of(&[
                ("ARCHITECTURE.md", map),
                ("crates/edge/Cargo.toml", &edge),
                ("crates/fuzzing/Cargo.toml", &manifest("fuzzing", &[])),
            ]);
            check(&tree).len()
        };
        assert_eq!((found("dev-dependencies"), found("dependencies")), (0, 1));
    }

    #[test]
    fn every_crate_has_one_place_and_every_place_a_crate() {
        let unknown = problems(&GOOD.replace("policy", "politics"), &[], &[], &[]);
        assert_eq!(unknown.len(), 2, "{unknown:?}");
        let planned = problems(&GOOD.replace("edge", "(edge)"), &[], &[], &[]);
        assert!(planned[0].contains("exists; take it out"), "{planned:?}");
        let missing = problems(&GOOD.replace("(stream)", "stream"), &[], &[], &[]);
        assert!(missing[0].starts_with("ARCHITECTURE.md:5: there is no crate `stream`"));
        let twice = problems(&GOOD.replace("pool-model", "pool-model edge"), &[], &[], &[]);
        assert!(twice[0].contains("a second time"), "{twice:?}");
    }

    #[test]
    fn a_bad_table_is_named() {
        assert!(problems("# Map\n", &[], &[], &[])[0].contains("there is no table of floors"));
        let story = GOOD.replace("floor 0 ", "storey 0");
        assert!(problems(&story, &[], &[], &[]).iter().any(|p| p.contains("`storey` opens no")));
        let number = GOOD.replace("floor 0", "floor zero");
        assert!(problems(&number, &[], &[], &[]).iter().any(|p| p.contains("no number")));
        let twice = GOOD.to_owned() + GOOD;
        assert!(problems(&twice, &[], &[], &[])[0].contains("a second table of floors"));
    }

    #[test]
    fn a_directory_has_the_name_of_its_crate() {
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", "```floors\nfloor 0 edge\n```\n"),
            ("crates/rand/Cargo.toml", &manifest("edge", &[])),
        ]);
        assert!(check(&tree)[0].text.contains("lies in another directory"));
    }
}
