//! The figures of the papers, each one command, peers side by side in the same run.
//!
//! ```text
//! cargo run --release -p bench -- burst        # bursts: rigid, reconf, over-provisioned
//! cargo run --release -p bench -- burst --apps apache  # the same with real servers
//! cargo run --release -p bench -- sensitivity  # the same over look and hold
//! cargo run --release -p bench -- churn        # moves as fast as they go, and none when idle
//! cargo run --release -p bench -- reloads      # settings and program change, no request is lost
//! ```
//!
//! Each command: settings -> rigs ([`polder::rig`]) -> load -> measures -> table, JSON, SVG. The
//! pure part of each (what measures mean) is apart from what runs it.

mod burst;
mod churn;
mod cli;
mod interrupt;
mod machine;
mod output;
mod progress;
mod reloads;
mod sensitivity;
mod smoke;
mod waits;

use clap::Parser;
use cli::{Apps, Cli, Command, FigureArguments};
use output::Output;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = polder::rig::hidden(&arguments) {
        return code;
    }
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    let cancel = interrupt::watch()?;
    match command {
        Command::Burst(arguments) => {
            let figure = match arguments.apps {
                Apps::Stub => "burst",
                Apps::Apache => "burst-apache",
            };
            burst::run(&output(figure, &arguments.figure)?, arguments.apps, &cancel)
        }
        Command::Sensitivity(arguments) => {
            sensitivity::run(&output("sensitivity", arguments)?, &cancel)
        }
        Command::Churn(arguments) => churn::run(&output("churn", arguments)?, &cancel),
        Command::Reloads(arguments) => reloads::run(&output("reloads", arguments)?, &cancel),
        Command::All(arguments) => {
            burst::run(&output("burst", arguments)?, Apps::Stub, &cancel)?;
            sensitivity::run(&output("sensitivity", arguments)?, &cancel)?;
            churn::run(&output("churn", arguments)?, &cancel)?;
            reloads::run(&output("reloads", arguments)?, &cancel)
        }
        Command::Smoke(arguments) => smoke::run(*arguments, &cancel),
    }
}

fn output(figure: &'static str, arguments: &FigureArguments) -> anyhow::Result<Output> {
    Output::new(figure, arguments)
}
