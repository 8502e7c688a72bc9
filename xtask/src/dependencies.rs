//! Each dependency has its reason in `docs/dependencies.md`, and each crate its description, the
//! workspace's lints and the workspace's versions.

use std::collections::BTreeMap;

use crate::manifest::{self, Crate, Offered};
use crate::tidy::Problem;
use crate::tree::Tree;

const DOCUMENT: &str = "docs/dependencies.md";

/// The first line of the table that must agree with the manifests. Other tables are free.
const TABLE_HEAD: [&str; 4] = ["dependency", "version", "used by", "reason"];

/// One row of the table.
#[derive(Debug)]
struct Row {
    version: String,
    used_by: String,
    reason: String,
    line: usize,
}

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let (crates, mut problems) = manifest::crates(tree);
    problems.clear(); // The check of floors reports broken manifests.
    for found in &crates {
        check_crate(found, &mut problems);
    }
    let Some(document) = tree.get(DOCUMENT) else {
        problems.push(Problem::new(DOCUMENT, 1, "missing; give each dependency its reason there"));
        return problems;
    };
    let rows = parse(document.text(), &mut problems);
    let offered = manifest::offered(tree);
    for dependency in &offered {
        check_offered(dependency, &crates, &rows, &mut problems);
    }
    for (name, row) in &rows {
        if !offered.iter().any(|dependency| dependency.name == *name) {
            let text = format!("`{name}` is no dependency of the workspace; remove its row");
            problems.push(Problem::new(DOCUMENT, row.line, text));
        }
    }
    problems
}

fn check_crate(found: &Crate, problems: &mut Vec<Problem>) {
    let mut say = |line: usize, text: String| problems.push(Problem::new(&found.path, line, text));
    if !found.has_description {
        say(1, "the crate has no description; say in a sentence what it does".to_owned());
    }
    if !found.has_workspace_lints {
        say(1, "the workspace's lints are off; add `[lints]` with `workspace = true`".to_owned());
    }
    for dependency in found.dependencies.iter().filter(|dependency| !dependency.from_workspace) {
        let name = &dependency.name;
        let text = format!("`{name}` has a version here; offer it in the top Cargo.toml instead");
        say(dependency.line, text);
    }
}

/// A dependency that the workspace offers is used, and its row tells its version and its users.
fn check_offered(
    dependency: &Offered,
    crates: &[Crate],
    rows: &BTreeMap<String, Row>,
    problems: &mut Vec<Problem>,
) {
    let name = &dependency.name;
    let uses = |found: &&Crate| found.dependencies.iter().any(|used| used.name == *name);
    let mut users: Vec<&str> =
        crates.iter().filter(uses).map(|found| found.name.as_str()).collect();
    users.sort_unstable();
    let Some(version) = &dependency.version else { return };
    if users.is_empty() {
        let text = format!("no crate uses `{name}`; remove it");
        problems.push(Problem::new("Cargo.toml", dependency.line, text));
    }
    let users = users.join(", ");
    let Some(row) = rows.get(name) else {
        let text = format!(
            "`{name}` has no reason; add to {DOCUMENT}: | `{name}` | {version} | {users} | why |"
        );
        problems.push(Problem::new("Cargo.toml", dependency.line, text));
        return;
    };
    let mut say = |text: String| problems.push(Problem::new(DOCUMENT, row.line, text));
    if row.version != *version {
        say(format!("`{name}`: the workspace asks for {version}; write that version"));
    }
    if row.used_by != users {
        say(format!("`{name}` has other users; write: {users}"));
    }
    if row.reason.is_empty() {
        say(format!("`{name}` has no reason; give one or do without it"));
    }
}

/// The rows of the table, by name. A missing table leaves no rows, so each dependency is reported.
fn parse(text: &str, problems: &mut Vec<Problem>) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    let lines = text.lines().zip(1..);
    let table = lines
        .skip_while(|(line, _)| cells(line) != TABLE_HEAD)
        .skip(2)
        .take_while(|(line, _)| line.starts_with('|'));
    for (line, at) in table {
        let [name, version, used_by, reason] = cells(line)[..] else {
            let text = "a row has four cells; write `|` inside a cell as a word";
            problems.push(Problem::new(DOCUMENT, at, text));
            continue;
        };
        let row = Row {
            version: version.to_owned(),
            used_by: used_by.to_owned(),
            reason: reason.to_owned(),
            line: at,
        };
        let name = name.trim_matches('`').to_owned();
        if rows.insert(name.clone(), row).is_some() {
            let text = format!("`{name}` has two rows; keep one");
            problems.push(Problem::new(DOCUMENT, at, text));
        }
    }
    rows
}

/// The cells of a row of a Markdown table.
fn cells(line: &str) -> Vec<&str> {
    let inside = line.trim().trim_start_matches('|').trim_end_matches('|');
    inside.split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str =
        "[workspace.dependencies]\nedge = { path = \"crates/edge\" }\nbytes = \"1.12\"\n";
    const EDGE: &str = "[package]\nname = \"edge\"\ndescription = \"The tier.\"\n\
        [lints]\nworkspace = true\n[dependencies]\nbytes = { workspace = true }\n";
    const TABLE: &str = "| dependency | version | used by | reason |\n| --- | --- | --- | --- |\n\
        | `bytes` | 1.12 | edge | shared slices |\n\n\
        | rejected | why |\n| --- | --- |\n| nix | x |\n";

    fn problems(root: &str, edge: &str, table: &str) -> Vec<String> {
        let tree = Tree::of(&[
            ("Cargo.toml", root),
            ("crates/edge/Cargo.toml", edge),
            ("docs/dependencies.md", table),
        ]);
        check(&tree).iter().map(ToString::to_string).collect()
    }

    /// The only problem of a tree with one thing replaced.
    fn only(problems: &[String]) -> &str {
        assert_eq!(problems.len(), 1, "{problems:?}");
        &problems[0]
    }

    #[test]
    fn agreement_is_good() {
        assert!(problems(ROOT, EDGE, TABLE).is_empty());
    }

    #[test]
    fn a_dependency_without_a_row_gets_one_to_copy() {
        let found =
            problems(ROOT, EDGE, &TABLE.replace("| `bytes` | 1.12 | edge | shared slices |\n", ""));
        let expected = "Cargo.toml:3: `bytes` has no reason; add to docs/dependencies.md: \
                        | `bytes` | 1.12 | edge | why |";
        assert_eq!(only(&found), expected);
    }

    #[test]
    fn rows_tell_versions_users_and_reasons() {
        let row = |from: &str, to: &str| problems(ROOT, EDGE, &TABLE.replace(from, to));
        assert!(only(&row("1.12", "1.11")).contains("asks for 1.12"));
        assert!(only(&row("| edge |", "| load |")).ends_with("write: edge"));
        assert!(only(&row("shared slices", "")).contains("has no reason"));
        assert!(row("shared slices", "a | b")[0].contains("four cells"));
    }

    #[test]
    fn what_nobody_uses_or_offers_is_removed() {
        let unused = ROOT.to_owned() + "http = \"1\"\n";
        let row = "| `bytes` | 1.12 | edge | shared slices |\n";
        let with_row = TABLE.replace(row, &format!("{row}| `http` | 1 |  | nouns |\n"));
        assert!(only(&problems(&unused, EDGE, &with_row)).contains("no crate uses `http`"));
        assert!(only(&problems(ROOT, EDGE, &with_row)).contains("is no dependency"));
    }

    #[test]
    fn crates_describe_themselves_and_keep_to_the_workspace() {
        let edge = |from: &str, to: &str| problems(ROOT, &EDGE.replace(from, to), TABLE);
        assert!(only(&edge("\"The tier.\"", "\" \"")).contains("no description"));
        assert!(only(&edge("[lints]\nworkspace = true\n", "")).contains("lints are off"));
        assert!(only(&edge("{ workspace = true }", "\"1.12\"")).contains("has a version here"));
    }
}
