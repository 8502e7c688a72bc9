//! What tidy needs to know of the workspace's `Cargo.toml` files.

use crate::tidy::Problem;
use crate::tree::{File, Tree};

/// Sections whose entries are dependencies, also below `target.CFG`.
const SECTIONS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

/// One dependency of a crate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Whether its version stands in the workspace's manifest.
    pub(crate) from_workspace: bool,
    /// Only its tests and benches use it.
    pub(crate) for_tests: bool,
    /// Where the manifest names it first.
    pub(crate) line: usize,
}

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: String,
    /// The path of its manifest.
    pub(crate) path: String,
    pub(crate) has_description: bool,
    pub(crate) has_workspace_lints: bool,
    /// Normal, dev and build dependencies, for all targets.
    pub(crate) dependencies: Vec<Dependency>,
}

impl Crate {
    /// The directory of the crate.
    pub(crate) fn directory(&self) -> &str {
        self.path.trim_end_matches("Cargo.toml").trim_end_matches('/')
    }
}

/// A dependency that the workspace's manifest offers to its crates.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) name: String,
    /// The version it asks for; `None` for crates of the workspace.
    pub(crate) version: Option<String>,
    pub(crate) line: usize,
}

/// All crates: those in `crates/` and xtask. A manifest that is no TOML is a problem.
pub(crate) fn crates(tree: &Tree) -> (Vec<Crate>, Vec<Problem>) {
    let (mut crates, mut problems) = (Vec::new(), Vec::new());
    let is_manifest = |path: &str| match path.split('/').collect::<Vec<_>>()[..] {
        ["crates", _, "Cargo.toml"] => true,
        _ => path == "xtask/Cargo.toml",
    };
    for file in tree.files.iter().filter(|file| is_manifest(&file.path)) {
        match parse(file) {
            Ok(found) => crates.push(found),
            Err(why) => problems.push(Problem::new(&file.path, 1, format!("{why}; mend it"))),
        }
    }
    (crates, problems)
}

/// What the workspace's manifest offers under `[workspace.dependencies]`.
pub(crate) fn offered(tree: &Tree) -> Vec<Offered> {
    let Some(file) = tree.get("Cargo.toml") else { return Vec::new() };
    let root: toml::Table = file.text().parse().unwrap_or_default();
    let table = root.get("workspace").and_then(|w| w.get("dependencies")?.as_table());
    let version = |value: &toml::Value| {
        let plain = value.as_str().or_else(|| value.get("version")?.as_str());
        plain.map(str::to_owned)
    };
    let entry = |(name, value): (&String, &toml::Value)| Offered {
        name: name.clone(),
        version: version(value),
        line: line_of_key(file.text(), name),
    };
    table.into_iter().flatten().map(entry).collect()
}

fn parse(file: &File) -> Result<Crate, String> {
    let table: toml::Table =
        file.text().parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let package = table.get("package").ok_or("there is no [package]")?;
    let name = package.get("name").and_then(toml::Value::as_str).ok_or("it has no name")?;
    let lints = table.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
    let mut dependencies = section_entries(&table, file.text());
    for target in table.get("target").and_then(toml::Value::as_table).into_iter().flatten() {
        if let Some(sections) = target.1.as_table() {
            dependencies.extend(section_entries(sections, file.text()));
        }
    }
    Ok(Crate {
        name: name.to_owned(),
        path: file.path.clone(),
        has_description: package
            .get("description")
            .and_then(toml::Value::as_str)
            .is_some_and(|text| !text.trim().is_empty()),
        has_workspace_lints: lints == Some(true),
        dependencies,
    })
}

fn section_entries(table: &toml::Table, text: &str) -> Vec<Dependency> {
    let mut entries = Vec::new();
    for &section in SECTIONS {
        let names = table.get(section).and_then(toml::Value::as_table);
        entries.extend(names.into_iter().flatten().map(|(name, value)| Dependency {
            name: name.clone(),
            from_workspace: value.get("workspace").and_then(toml::Value::as_bool) == Some(true),
            for_tests: section == "dev-dependencies",
            line: line_of_key(text, name),
        }));
    }
    entries
}

/// The first line that begins with `key` as a TOML key, or line 1.
fn line_of_key(text: &str, key: &str) -> usize {
    let begins =
        |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '=', '.']));
    text.lines().position(begins).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGE: &str = "\
[package]
name = \"edge\"
description = \"The tier that clients reach.\"
[lints]
workspace = true
[dependencies]
moves = { workspace = true }
bytes.workspace = true
http = \"1\"
[dev-dependencies]
proptest = { workspace = true }
[target.'cfg(loom)'.dependencies]
loom = { workspace = true }
";

    #[test]
    fn a_manifest_gives_dependencies_of_every_kind() {
        let (crates, problems) = crates(&Tree::of(&[("crates/edge/Cargo.toml", EDGE)]));
        assert!(problems.is_empty());
        let edge = &crates[0];
        assert!(edge.has_description && edge.has_workspace_lints);
        assert_eq!((edge.name.as_str(), edge.directory()), ("edge", "crates/edge"));
        let for_tests = edge.dependencies.iter().filter(|d| d.for_tests);
        assert_eq!(for_tests.map(|d| d.name.as_str()).collect::<Vec<_>>(), ["proptest"]);
        let mut names: Vec<_> =
            edge.dependencies.iter().map(|d| (d.name.as_str(), d.from_workspace, d.line)).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                ("bytes", true, 8),
                ("http", false, 9),
                ("loom", true, 13),
                ("moves", true, 7),
                ("proptest", true, 11)
            ]
        );
    }

    #[test]
    fn only_the_crates_manifests_are_read() {
        let other = Tree::of(&[("crates/edge/tests/Cargo.toml", EDGE), ("Cargo.toml", EDGE)]);
        assert!(crates(&other).0.is_empty());
    }

    #[test]
    fn a_broken_manifest_is_a_problem() {
        let (crates, problems) = crates(&Tree::of(&[("xtask/Cargo.toml", "[package")]));
        assert!(crates.is_empty());
        assert_eq!(problems[0].path, "xtask/Cargo.toml");
    }

    #[test]
    fn the_workspace_offers_versions_and_its_own_crates() {
        let root = "[workspace.dependencies]\nmoves = { path = \"crates/moves\" }\n\
                    bytes = \"1.12\"\nhyper = { version = \"1.12\", features = [] }\n";
        let offered = offered(&Tree::of(&[("Cargo.toml", root)]));
        let mut found: Vec<_> =
            offered.iter().map(|o| (o.name.as_str(), o.version.as_deref(), o.line)).collect();
        found.sort_unstable();
        let expected = [("bytes", Some("1.12"), 3), ("hyper", Some("1.12"), 4), ("moves", None, 2)];
        assert_eq!(found, expected);
    }
}
