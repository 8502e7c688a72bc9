//! What to try after the demo: commands that work as they are printed.

use super::text::Line;
use std::path::Path;

/// The settings file of the first command, as it lies in the repository.
const EXAMPLE: &str = "examples/three-sites.toml";

/// What the commands depend on.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// Whether `polder` alone starts this program.
    pub(super) is_on_path: bool,
    /// The folder of this program.
    pub(super) folder: Option<String>,
    /// Whether the example lies here.
    pub(super) has_example: bool,
}

impl Surroundings {
    /// Those of this process.
    pub(super) fn read() -> Self {
        let program = std::env::current_exe().ok();
        let folder = program.as_deref().and_then(Path::parent);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_on_path = std::env::split_paths(&path).any(|place| {
            let there = std::fs::canonicalize(place.join("polder")).ok();
            there.is_some() && there == program
        });
        let here = std::env::current_dir().ok();
        let near = here.and_then(|here| Some(folder?.strip_prefix(here).ok()?.to_owned()));
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let folder = match &near {
            Some(near) => text(near).map(|near| format!("$PWD/{near}")),
            None => folder.and_then(text),
        };
        Self { is_on_path, folder, has_example: Path::new(EXAMPLE).exists() }
    }
}

/// A command and what it does.
fn commands(around: &Surroundings) -> Vec<(String, &'static str)> {
    let mut commands = Vec::new();
    if let (false, Some(folder)) = (around.is_on_path, &around.folder) {
        commands.push((format!("export PATH=\"{folder}:$PATH\""), "find `polder`"));
    }
    if around.has_example {
        commands.push((format!("polder up {EXAMPLE}"), "a pool of your own; Ctrl-C stops it"));
        commands.push(("polder status --watch".into(), "who serves what (second terminal)"));
        let burst = "polder load burst --host shop.localhost,blog.localhost";
        commands.push((burst.into(), "bursts for it (third terminal)"));
        commands.push(("polder status --moves".into(), "each move and its reason"));
    }
    commands.push(("polder demo --keep".into(), "a demo whose pool goes on"));
    commands.push(("polder demo --seconds 120 --seed 2".into(), "longer, other bursts"));
    commands
}

/// The lines to print.
pub(super) fn lines(around: &Surroundings) -> Vec<Line> {
    let commands = commands(around);
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let mut lines = vec![Line::bold("What to try next")];
    lines.extend(
        commands.iter().map(|(command, does)| Line::of(format!("  {command:<width$}  # {does}"))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::terminal::Style;
    use clap::Parser;

    fn around(is_on_path: bool, has_example: bool) -> Surroundings {
        Surroundings { is_on_path, folder: Some("$PWD/target/release".into()), has_example }
    }

    #[test]
    fn every_command_is_one_that_this_program_understands() {
        for (command, _) in commands(&around(true, true)) {
            let words: Vec<&str> = command.split_whitespace().collect();
            assert_eq!(words[0], "polder");
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{command}: {error}");
            }
        }
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/three-sites.toml");
        let text = std::fs::read_to_string(example).unwrap();
        for host in ["shop.localhost", "blog.localhost"] {
            assert!(text.contains(host), "{host}");
        }
    }

    #[test]
    fn what_would_not_work_here_is_not_named() {
        let text = |around: &Surroundings| {
            let lines = lines(around);
            let text: Vec<String> =
                lines.iter().map(|line| line.render(Style::PLAIN, usize::MAX)).collect();
            assert!(text.iter().all(|line| line.len() <= 100), "{text:?}");
            text.join("\n")
        };
        assert!(text(&around(false, true)).contains("export PATH=\"$PWD/target/release:$PATH\""));
        assert!(!text(&around(true, true)).contains("export"));
        let elsewhere = text(&around(true, false));
        assert!(!elsewhere.contains("three-sites") && elsewhere.contains("polder demo --keep"));
        let nowhere = Surroundings { folder: None, ..around(false, false) };
        assert!(!text(&nowhere).contains("export"));
        assert!(Surroundings::read().folder.is_some());
    }
}
