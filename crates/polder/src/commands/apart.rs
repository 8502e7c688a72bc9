//! `polder edge`, `polder agent` and `polder key`: one role on this machine, and the pool's key.

use super::{CommandError, Output, settings_file};
use crate::cli::{AgentArguments, EdgeArguments, SettingsArguments};
use crate::pool::apart::{self, Part, part_name};
use crate::pool::up::UpOptions;
use crate::settings::{self, Settings};
use pool_model::{EdgeId, NodeId};
use remote_memory::tcp::PreSharedKey;
use std::io::Write as _;
use std::path::Path;

/// Runs an edge.
pub(super) fn edge(
    arguments: &EdgeArguments,
    log_level: Option<&str>,
) -> Result<Output, CommandError> {
    run(&arguments.settings, log_level, |settings| {
        let index = usize::from(arguments.index);
        let id = EdgeId::new(arguments.index).ok().filter(|_| index < settings.edges.len());
        let count = settings.edges.len();
        let none = || format!("there is no edge {index}: the settings have {count}, from 0 on");
        id.map(Part::Edge).ok_or_else(|| CommandError::Argument(none()))
    })
}

/// Runs the agent of a node.
pub(super) fn agent(
    arguments: &AgentArguments,
    log_level: Option<&str>,
) -> Result<Output, CommandError> {
    run(&arguments.settings, log_level, |settings| {
        let found: Option<(NodeId, _)> = settings.node(&arguments.node);
        let none = || format!("there is no node {:?} in the settings", arguments.node);
        found.map(|(id, _)| Part::Agent(id)).ok_or_else(|| CommandError::Argument(none()))
    })
}

/// Prints a new key.
pub(super) fn key() -> Result<Output, CommandError> {
    let drawn = PreSharedKey::random();
    let key = drawn
        .map_err(|error| CommandError::Pool(format!("no random numbers for a key: {error}")))?;
    Ok(Output { text: key.to_line(), ..Output::default() })
}

fn run(
    arguments: &SettingsArguments,
    log_level: Option<&str>,
    part: impl FnOnce(&Settings) -> Result<Part, CommandError>,
) -> Result<Output, CommandError> {
    let file = settings_file(arguments.file.as_deref())?;
    let text = settings::read_text(&file)?;
    let checked = settings::check_text(&file, &text, &arguments.overrides)?;
    let warnings = checked.warnings.to_string();
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
    let part = part(&checked.settings)?;
    let io = |doing, cause| CommandError::Io { doing, cause };
    let options = UpOptions {
        file: std::path::absolute(&file).map_err(|e| io("finding the settings file", e))?,
        text,
        overrides: arguments.overrides.clone(),
        log_level: log_level.map(str::to_owned),
        program: std::env::current_exe().map_err(|e| io("finding this program", e))?,
    };
    let begun = |folder: &Path| {
        let (pool, name) = (&checked.settings.pool.name, part_name(&checked.settings, part));
        let told = format!("Pool {pool}: {name} runs, its sockets lie in {}\n", folder.display());
        // A reader that is gone is no reason to stop.
        drop(std::io::stdout().lock().write_all(told.as_bytes()));
    };
    apart::run(&checked.settings, &options, part, begun)
        .map_err(|error| CommandError::Pool(format!("{error:#}")))?;
    Ok(Output::default())
}
