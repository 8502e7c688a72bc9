//! What each command does. A command gives back its output or its error; only `main` prints, and
//! turns errors into exit codes.

mod admin;
mod apart;
mod cache;
mod change;
mod check;
mod demo;
mod interrupt;
mod load;
mod paper;
mod pool;
mod shares;
mod simulate;
mod site;
mod status;
mod stub;
mod tell;
mod up;

use crate::cli::{Cli, Command, exit};
use crate::control::{AskError, Code};
use crate::demo::DemoError;
use crate::runtime_dir::RuntimeDirError;
use crate::settings::SettingsError;
use crate::terminal::Style;
use ::load::generate::GenerateError;
use ::load::stub::StubError;
use ::load::trace::TraceError;
use std::io;
use std::path::{Path, PathBuf};
use writers::ClientError;

pub use load::{Burst, Constant, LoadArguments, Shape, Target, TraceArguments};
pub use paper::{CompletionsArguments, ManArguments};
pub use pool::{control_socket, find_pool};
pub use simulate::{NodeRange, PoolShape, SimulateArguments, Window};
pub use stub::StubArguments;
pub use tell::TellError;

/// The settings file that is taken when none is named.
pub const SETTINGS_FILE: &str = "polder.toml";

/// What a command prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// To standard output: what was asked for.
    pub text: String,
    /// To standard error: what should be known besides.
    pub aside: String,
    /// Whether it ends with exit code 1 all the same: some requests failed.
    pub has_failed: bool,
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(#[from] SettingsError),
    /// The same, as JSON for standard output.
    #[error("{0}")]
    SettingsJson(String),
    /// No settings file was named, and none lies here.
    #[error("there is no {SETTINGS_FILE} here; name a settings file: polder check FILE")]
    NoSettingsFile,
    /// No pool runs.
    #[error("{0}")]
    NoPool(String),
    /// Its folder cannot be trusted.
    #[error("{0}")]
    RuntimeDir(#[from] RuntimeDirError),
    /// The pool did not answer, or refused.
    #[error("{0}")]
    Ask(#[from] AskError),
    /// The pool answered something else than was asked.
    #[error("the pool gave an answer that does not fit the question")]
    WrongAnswer,
    /// A site's writers' socket did not do it.
    #[error("{0}")]
    Tell(#[from] TellError),
    /// A pool could not be started, or ended badly.
    #[error("{0}")]
    Pool(String),
    /// An argument makes no sense.
    #[error("{0}")]
    Argument(String),
    /// No load could be made.
    #[error("{0}")]
    Load(GenerateError),
    /// A trace cannot be replayed.
    #[error("{0}")]
    Trace(#[from] TraceError),
    /// No stub could be started.
    #[error("{0}")]
    Stub(StubError),
    /// The demo could not be shown.
    #[error("{0}")]
    Demo(#[from] DemoError),
    /// Somebody stopped it; what it had to say is said.
    #[error("interrupted")]
    Interrupted,
    /// A system call failed.
    #[error("{doing}: {cause}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
}

impl CommandError {
    /// The exit code for it.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) | Self::SettingsJson(_) | Self::NoSettingsFile => exit::SETTINGS,
            Self::Ask(AskError::Refused(refusal)) if matches!(refusal.code, Code::Settings) => {
                exit::SETTINGS
            }
            Self::Ask(AskError::Refused(_)) => exit::REFUSED,
            Self::Tell(TellError::Client { cause: ClientError::Refused(_), .. }) => exit::REFUSED,
            Self::Tell(TellError::Client { cause: ClientError::Malformed(_), .. }) => exit::USAGE,
            Self::Tell(_) | Self::NoPool(_) | Self::RuntimeDir(_) | Self::Ask(_) => exit::NO_POOL,
            Self::Argument(_) => exit::USAGE,
            Self::Interrupted => exit::INTERRUPTED,
            Self::Pool(_)
            | Self::WrongAnswer
            | Self::Load(_)
            | Self::Trace(_)
            | Self::Stub(_)
            | Self::Demo(_)
            | Self::Io { .. } => exit::FAILED,
        }
    }
}

/// Carries out the command line. Blocks until the command is done; `status --watch` never is, and
/// writes by itself.
pub fn run(cli: &Cli) -> Result<Output, CommandError> {
    let style = Style::of_stdout(cli.color);
    match &cli.command {
        Command::Up(arguments) => up::run(&arguments.settings, cli.log_level.as_deref(), style),
        Command::Edge(arguments) => apart::edge(arguments, cli.log_level.as_deref()),
        Command::Agent(arguments) => apart::agent(arguments, cli.log_level.as_deref()),
        Command::Key => apart::key(),
        Command::Check(arguments) => check::run(arguments),
        Command::Status(arguments) => status::run(arguments, style),
        Command::Move(arguments) => admin::move_node(arguments),
        Command::Drain(arguments) => admin::drain(arguments),
        Command::Undrain(arguments) => admin::undrain(arguments),
        Command::Pause(arguments) => admin::pause(arguments),
        Command::Resume(arguments) => admin::resume(arguments),
        Command::Site(arguments) => site::run(arguments, style),
        Command::Reload(arguments) => change::reload(arguments),
        Command::Upgrade(arguments) => change::upgrade(arguments),
        Command::Invalidate(arguments) => tell::invalidate(arguments),
        Command::Cache(arguments) => cache::run(arguments),
        Command::Demo(arguments) => demo::run(arguments, style),
        Command::Load(arguments) => load::run(arguments, Style::of_stderr(cli.color)),
        Command::Stub(arguments) => stub::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments, Style::of_stderr(cli.color)),
        Command::Completions(arguments) => paper::completions(arguments),
        Command::Man(arguments) => paper::man(arguments),
    }
}

/// The file that was named, or the one in this folder.
pub fn settings_file(named: Option<&Path>) -> Result<PathBuf, CommandError> {
    match named {
        Some(file) => Ok(file.to_owned()),
        None if Path::new(SETTINGS_FILE).exists() => Ok(SETTINGS_FILE.into()),
        None => Err(CommandError::NoSettingsFile),
    }
}
