//! The whole program behind a command line: hidden sub-commands, then those for people. Any
//! program that starts pools (`polder` itself, the figures) passes its command line through
//! [`hidden`] first, because a pool starts its children with the program that it runs in.

use crate::cli::{Cli, Colour, exit};
use crate::commands::{self, CommandError};
use crate::logging;
use crate::pool::child::{self, ChildArguments};
use crate::pool::up;
use crate::settings::SettingsError;
use crate::terminal::{Paint, Style};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

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
    #[command(name = child::EDGE_PROCESS)]
    Edge(Child),
    #[command(name = child::AGENT_PROCESS)]
    Agent(Child),
    #[command(name = child::WRITERS_PROCESS)]
    Writers(Child),
    #[command(name = child::PARENT_PROCESS)]
    Parent(Resumed),
}

/// The names of [`Role`]s.
const ROLES: [&str; 4] =
    [child::EDGE_PROCESS, child::AGENT_PROCESS, child::WRITERS_PROCESS, child::PARENT_PROCESS];

/// A program that takes the place of a pool's parent: the state is its standard input.
#[derive(Debug, Args)]
struct Resumed {
    /// Only say whether it could.
    #[arg(long)]
    trial: bool,
}

#[derive(Debug, Args)]
struct Child {
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    folder: PathBuf,
    #[arg(long)]
    index: u16,
    #[arg(long, default_value_t = 0)]
    slot: u8,
    #[arg(long = "version-of-settings", default_value_t = 0)]
    version: u32,
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    adopt: bool,
    #[arg(long)]
    apart: bool,
}

impl Child {
    fn arguments(self) -> ChildArguments {
        let Self { file, folder, index, slot, version, parent, adopt, apart } = self;
        ChildArguments { file, folder, index, slot, version, parent, adopt, apart }
    }
}

/// Runs a hidden sub-command of a pool, if the command line names one. Blocks until it ends.
pub fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    let name = arguments.get(1)?.to_str()?;
    if !ROLES.contains(&name) {
        return None;
    }
    let hidden = Hidden::parse_from(arguments);
    let style = Style::of_stderr(Colour::Auto);
    if let Some(refused) = start_logging(hidden.log_level.as_deref(), style) {
        return Some(refused);
    }
    let outcome = match hidden.role {
        Role::Edge(child) => child::edge(&child.arguments()),
        Role::Agent(child) => child::agent(&child.arguments()),
        Role::Writers(child) => child::writers(&child.arguments()),
        Role::Parent(resumed) => up::resume(resumed.trial),
    };
    let Err(error) = outcome else { return Some(ExitCode::from(exit::OK)) };
    eprintln!("{} {error:#}", style.paint(Paint::Red, "error:"));
    Some(ExitCode::from(exit::FAILED))
}

fn start_logging(level: Option<&str>, style: Style) -> Option<ExitCode> {
    let error = logging::start(level, style).err()?;
    eprintln!("{} --log-level: {error}", style.paint(Paint::Red, "error:"));
    Some(ExitCode::from(exit::USAGE))
}

/// Does what a command line says, prints, and gives the exit code. Blocks until it is done.
pub fn run(arguments: &[OsString]) -> ExitCode {
    let cli = Cli::parse_from(arguments);
    let style = Style::of_stderr(cli.color);
    if let Some(refused) = start_logging(cli.log_level.as_deref(), style) {
        return refused;
    }
    match commands::run(&cli) {
        Ok(output) => {
            eprint!("{}", output.aside);
            let printed = print(&output.text);
            if output.has_failed { ExitCode::from(exit::FAILED) } else { printed }
        }
        Err(CommandError::SettingsJson(text)) => {
            print(&text);
            ExitCode::from(exit::SETTINGS)
        }
        Err(CommandError::Interrupted) => ExitCode::from(exit::INTERRUPTED),
        Err(error) => {
            complain(&error, style);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints what was asked for. A reader that has read enough (`polder status | head`) is no error.
fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            ExitCode::from(exit::FAILED)
        }
        _ => ExitCode::from(exit::OK),
    }
}

fn complain(error: &CommandError, style: Style) {
    match error {
        // A list of problems brings its own headings.
        CommandError::Settings(SettingsError::Wrong { .. }) => eprintln!("{error}"),
        _ => eprintln!("{} {error}", style.paint(Paint::Red, "error:")),
    }
}
