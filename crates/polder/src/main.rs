//! The `polder` command: read the command line, do what it says, print, exit.

use clap::Parser;
use polder::cli::{Cli, exit};
use polder::commands::{self, CommandError};
use polder::logging;
use polder::settings::SettingsError;
use polder::terminal::{Paint, Style};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = polder::entry::hidden(std::env::args_os()) {
        return code;
    }
    let cli = Cli::parse();
    let style = Style::of_stderr(cli.color);
    if let Err(error) = logging::start(cli.log_level.as_deref(), style) {
        eprintln!("{} --log-level: {error}", style.paint(Paint::Red, "error:"));
        return ExitCode::from(exit::USAGE);
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
