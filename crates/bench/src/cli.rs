//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The figures of the papers, measured on this machine.
///
/// Each figure starts pools of its own on free loopback ports, loads them, and stops them again.
/// Ratios are the result; absolute numbers depend on the machine. Progress goes to standard error,
/// tables to standard output; tables, JSON and pictures to the folder `results`.
#[derive(Debug, Parser)]
#[command(name = "bench", version, disable_help_subcommand = true, arg_required_else_help = true)]
#[command(after_help = "Examples:\n  cargo run --release -p bench -- burst --quick\n  cargo run \
                        --release -p bench -- churn --quick --json | tail -n 1\n\nA figure whose \
                        threads waited for a CPU for more than 5 % of the time says so: repeat it \
                        on a quiet machine.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bursts of 512 to 16K requests to one site after the other: rigid, reconf and
    /// over-provisioned pools side by side (figures 7 to 9 of the paper); about 8 minutes
    Burst(BurstArguments),
    /// Throughput and moves over `look_every_ms` and `hold_ms`; about 4 minutes
    Sensitivity(FigureArguments),
    /// Moves as fast as they go under 64 connections; square waves; the cost of an idle pool;
    /// about 4 minutes
    Churn(FigureArguments),
    /// 1,000 reloads and 20 upgrades under 64 connections; about 2 minutes
    Reloads(FigureArguments),
    /// CPU time of a proxied request beside nginx and HAProxy, plain, over TLS, over HTTP/2;
    /// about 5 minutes
    Proxy(FigureArguments),
    /// Reads of a busy node's record over shared memory and TCP (figures 5 and 6 of the paper);
    /// about 3 minutes
    Memory(FigureArguments),
    /// The tail behind 1, 2, 4 and 8 edges, beside edges that share nothing; about 5 minutes
    Edges(FigureArguments),
    /// Memory of an idle connection at an edge that holds as many as it may; about 20 seconds
    Idle(FigureArguments),
    /// Priorities and guarantees: equal sites, sites of different priority, traces of real sites
    /// (figures 6 to 11 of the paper); about 14 minutes
    Qos(QosArguments),
    /// Hits that are never stale, while the application's core is taken, beside no cache, nginx
    /// and Varnish (figures 6 to 8 of the paper); about 15 minutes
    Cache(FigureArguments),
    /// Data that changes while its page is fetched: whether the cache keeps the old page, ours and
    /// Varnish; about 4 minutes
    Fillrace(FigureArguments),
    /// The largest pool in the simulator, what a decision costs, 10,000 seeds of faults; about
    /// 10 minutes
    Simulate(FigureArguments),
    /// All of them, one after the other
    All(FigureArguments),
    /// Whether a pool starts, serves, moves and stops here: what the tests ask
    #[command(hide = true)]
    Smoke(SmokeArguments),
    /// The least form of a figure: what the tests run to see that all its parts work here
    #[command(hide = true)]
    Part(PartArguments),
}

/// Arguments of `part`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct PartArguments {
    /// Which figure
    #[arg(value_enum)]
    pub(crate) figure: PartOf,
}

/// Figures that have a least form.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PartOf {
    Proxy,
    Memory,
    Edges,
    Idle,
    Qos,
    Cache,
    Fillrace,
    Simulate,
}

/// Arguments of `burst`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BurstArguments {
    /// As of every figure.
    #[command(flatten)]
    pub(crate) figure: FigureArguments,

    /// What serves on the nodes
    #[arg(long, value_enum, default_value_t = Apps::Stub)]
    pub(crate) apps: Apps,
}

/// Arguments of `qos`.
#[derive(Clone, Debug, Args)]
pub(crate) struct QosArguments {
    /// As of every figure.
    #[command(flatten)]
    pub(crate) figure: FigureArguments,

    /// What serves on the nodes
    #[arg(long, value_enum, default_value_t = QosApps::Stub)]
    pub(crate) apps: QosApps,
}

/// What serves on the nodes of `qos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QosApps {
    /// Stand-ins with an exact capacity
    Stub,
    /// The shop of examples/shop: Apache httpd, PHP-FPM and MariaDB; the cases only (needs
    /// apache2-bin, php-fpm, php-mysql and mariadb-server); about 2 minutes
    Shop,
}

/// What serves on the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Apps {
    /// Stand-ins with an exact capacity
    Stub,
    /// Apache httpd, a fifth of a core for each node; rigid and reconf, scenario B (needs
    /// apache2-bin, and the right to make control groups); about 4 minutes
    Apache,
}

/// Arguments of `smoke`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SmokeArguments {
    /// How long load runs
    #[arg(long, default_value_t = 1)]
    pub(crate) seconds: u32,

    /// What serves on the nodes
    #[arg(long, value_enum, default_value_t = Apps::Stub)]
    pub(crate) apps: Apps,
}

/// Arguments of every figure.
#[derive(Clone, Debug, Args)]
pub(crate) struct FigureArguments {
    /// Less of everything, in under 50 seconds; writes no files unless --out names a folder
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the main numbers as one JSON object in the last line
    #[arg(long)]
    pub(crate) json: bool,

    /// Where table, JSON and pictures go [default: results]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn clap_finds_no_contradiction_and_the_figures_are_listed() {
        Cli::command().debug_assert();
        let help = Cli::command().render_help().to_string();
        let figures = [
            "burst",
            "sensitivity",
            "churn",
            "reloads",
            "proxy",
            "memory",
            "edges",
            "idle",
            "qos",
            "cache",
            "fillrace",
            "simulate",
            "all",
        ];
        for figure in figures {
            assert!(help.contains(&format!("\n  {figure}")), "{help}");
        }
    }
}
