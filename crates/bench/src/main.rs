//! The figures of the papers, each one command, peers side by side in the same run.
//!
//! ```text
//! cargo run --release -p bench -- burst        # bursts: rigid, reconf, over-provisioned
//! cargo run --release -p bench -- burst --apps apache  # the same with real servers
//! cargo run --release -p bench -- sensitivity  # the same over look and hold
//! cargo run --release -p bench -- churn        # moves as fast as they go, and none when idle
//! cargo run --release -p bench -- reloads      # settings and program change, no request is lost
//! cargo run --release -p bench -- proxy        # CPU time of a proxied request, beside others
//! cargo run --release -p bench -- memory       # reads of the record of a busy node
//! cargo run --release -p bench -- edges        # the tail behind several edges
//! cargo run --release -p bench -- idle         # memory of an idle connection
//! cargo run --release -p bench -- qos          # priorities, guarantees, objectives
//! cargo run --release -p bench -- cache        # hits that are never stale, beside others
//! cargo run --release -p bench -- fillrace     # data that changes while its page is fetched
//! cargo run --release -p bench -- simulate     # the simulator: speed, decisions, seeds of faults
//! ```
//!
//! Each command: settings -> rigs ([`polder::rig`]) -> load -> measures -> table, JSON, SVG. The
//! pure part of each (what measures mean) is apart from what runs it.

mod ask;
mod burst;
mod cache;
mod children;
mod churn;
mod cli;
mod cores;
mod edges;
mod fillrace;
mod idle;
mod interrupt;
mod machine;
mod memory;
mod output;
mod progress;
mod proxy;
mod qos;
mod reloads;
mod sensitivity;
mod simulate;
mod smoke;
mod tools;
mod varnish;
mod waits;

use clap::Parser;
use cli::{Apps, Cli, Command, FigureArguments, PartOf, QosApps};
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = hidden(&arguments) {
        return code;
    }
    let cli = Cli::parse();
    ended(run(&cli.command))
}

/// What the children of figures are started with.
fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    let outcome = match arguments.get(1)?.to_str()? {
        proxy::origin::ORIGIN_PROCESS => proxy::origin::process(),
        cache::application::APPLICATION_PROCESS => cache::application::process(),
        memory::owner::OWNER_PROCESS => memory::owner::process(&words(&arguments[2..])),
        idle::clients::CLIENTS_PROCESS => idle::clients::process(&words(&arguments[2..])),
        _ => return children::hidden(arguments).or_else(|| polder::rig::hidden(arguments)),
    };
    Some(ended(outcome))
}

fn words(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect()
}

fn ended(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
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
        Command::Proxy(arguments) => proxy::run(&output("proxy", arguments)?, &cancel),
        Command::Memory(arguments) => memory::run(&output("memory", arguments)?, &cancel),
        Command::Edges(arguments) => edges::run(&output("edges", arguments)?, &cancel),
        Command::Idle(arguments) => idle::run(&output("idle", arguments)?, &cancel),
        Command::Qos(arguments) => {
            let figure = match arguments.apps {
                QosApps::Stub => "qos",
                QosApps::Shop => "qos-shop",
            };
            qos::run(&output(figure, &arguments.figure)?, arguments.apps, &cancel)
        }
        Command::Cache(arguments) => cache::run(&output("cache", arguments)?, &cancel),
        Command::Fillrace(arguments) => fillrace::run(&output("fillrace", arguments)?, &cancel),
        Command::Simulate(arguments) => simulate::run(&output("simulate", arguments)?, &cancel),
        Command::All(arguments) => {
            burst::run(&output("burst", arguments)?, Apps::Stub, &cancel)?;
            sensitivity::run(&output("sensitivity", arguments)?, &cancel)?;
            churn::run(&output("churn", arguments)?, &cancel)?;
            reloads::run(&output("reloads", arguments)?, &cancel)?;
            proxy::run(&output("proxy", arguments)?, &cancel)?;
            memory::run(&output("memory", arguments)?, &cancel)?;
            edges::run(&output("edges", arguments)?, &cancel)?;
            idle::run(&output("idle", arguments)?, &cancel)?;
            qos::run(&output("qos", arguments)?, QosApps::Stub, &cancel)?;
            cache::run(&output("cache", arguments)?, &cancel)?;
            fillrace::run(&output("fillrace", arguments)?, &cancel)?;
            simulate::run(&output("simulate", arguments)?, &cancel)
        }
        Command::Smoke(arguments) => smoke::run(*arguments, &cancel),
        Command::Part(arguments) => {
            let summary = match arguments.figure {
                PartOf::Proxy => proxy::least(&cancel)?,
                PartOf::Memory => memory::least(&cancel)?,
                PartOf::Edges => edges::least(&cancel)?,
                PartOf::Idle => idle::least(&cancel)?,
                PartOf::Qos => qos::least(&cancel)?,
                PartOf::Cache => cache::least(&cancel)?,
                PartOf::Fillrace => fillrace::least(&cancel)?,
                PartOf::Simulate => simulate::least(&cancel)?,
            };
            println!("{summary}");
            Ok(())
        }
    }
}

fn output(figure: &'static str, arguments: &FigureArguments) -> anyhow::Result<Output> {
    Output::new(figure, arguments)
}
