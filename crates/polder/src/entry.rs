//! The hidden sub-commands, which a pool's parent process starts its children with. Any program
//! that starts pools (`polder` itself, the figures) passes its command line through here first.

use crate::cli::{Colour, SettingsArguments, exit};
use crate::logging;
use crate::pool::child::{self, ChildArguments};
use crate::pool::up::{self, UpOptions, Watcher};
use crate::settings;
use crate::status::StatusReport;
use crate::terminal::{Paint, Style};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The names of the hidden sub-commands.
pub const HIDDEN: [&str; 3] = ["up", "edge-process", "agent-process"];

#[derive(Debug, Parser)]
#[command(name = "polder", disable_help_subcommand = true)]
struct Hidden {
    #[command(subcommand)]
    role: Role,

    #[arg(long, global = true)]
    log_level: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Role {
    Up(SettingsArguments),
    EdgeProcess(Child),
    AgentProcess(Child),
}

#[derive(Debug, Args)]
struct Child {
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    index: u16,
    #[arg(long)]
    parent: u32,
    #[arg(long = "set")]
    overrides: Vec<String>,
    #[arg(long)]
    adopt: bool,
}

impl Child {
    fn arguments(self) -> ChildArguments {
        let Self { file, folder, index, parent, overrides, adopt } = self;
        ChildArguments { file, overrides, folder, index, parent, adopt }
    }
}

/// Runs a hidden sub-command, if the command line names one.
pub fn hidden(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let name = arguments.get(1)?.to_str()?;
    HIDDEN.contains(&name).then(|| run(arguments))
}

fn run(arguments: Vec<OsString>) -> ExitCode {
    let hidden = Hidden::parse_from(arguments);
    let style = Style::of_stderr(Colour::Auto);
    if let Err(error) = logging::start(hidden.log_level.as_deref(), style) {
        eprintln!("{} --log-level: {error}", style.paint(Paint::Red, "error:"));
        return ExitCode::from(exit::USAGE);
    }
    let outcome = match hidden.role {
        Role::Up(arguments) => start_up(&arguments),
        Role::EdgeProcess(child) => child::edge(&child.arguments()),
        Role::AgentProcess(child) => child::agent(&child.arguments()),
    };
    match outcome {
        Ok(()) => ExitCode::from(exit::OK),
        Err(error) => {
            eprintln!("{} {error:#}", style.paint(Paint::Red, "error:"));
            ExitCode::from(exit::FAILED)
        }
    }
}

fn start_up(arguments: &SettingsArguments) -> anyhow::Result<()> {
    let file = arguments.file.clone().unwrap_or_else(|| "polder.toml".into());
    let checked = settings::load(&file, &arguments.overrides)?;
    let options = UpOptions {
        text: std::fs::read_to_string(&file)?,
        file,
        overrides: arguments.overrides.clone(),
        program: std::env::current_exe()?,
    };
    up::run(&checked.settings, &options, &mut Tell)
}

struct Tell;

impl Watcher for Tell {
    fn ready(&mut self, _report: &StatusReport, missing: &[String], after: Duration) {
        tracing::info!(?missing, ?after, "ready");
    }

    fn stopping(&mut self) {
        tracing::info!("stopping");
    }
}
