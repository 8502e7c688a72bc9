//! `polder simulate`: what a pool would have done with that traffic, and how many nodes it needs.

mod coherence;
mod faults;
mod picture;
mod plan;
mod rate;
mod report;
mod runs;

use super::load::{format_named, time_s};
use super::{CommandError, Output};
use crate::terminal::Style;
use ::load::trace::Format;
use clap::Args;
use policy::Kind;
use std::path::PathBuf;

pub use plan::NodeRange;

const EXAMPLES: &str = "\
The policies, the decision loop and the move protocol are those of a real pool; nodes, clients and
the clock are made up. The same arguments and the same seed give the same result, to the last
request. `late` is the share of requests slower than the objective, or never answered.

Traffic:
  --trace FILE=SITE      a recorded trace (formats as of `polder load --trace`); more than one play
                         by one clock
  --rate SITE=120        that many requests in a second, as a Poisson process
  --rate SITE=50@30s,400@10s      50 for 30 s, 400 for 10 s, and again from the start
  --rate SITE=100..900@60s        up and down between both, a minute for each round

Examples:
  polder simulate --rate shop=100..900@20s --rate blog=200 --nodes 4..12
  polder simulate --trace conv.csv.gz=chat --trace code.csv.gz=code --compress 60 \\
      --nodes 8 --in-flight 1 --policy slo,reconf,rigid --svg pool.svg
  polder simulate --settings polder.toml --trace access.log.gz=shop --compress 10m
  polder simulate --faults 10 --seed 17       break things; replay what a seed did
  polder simulate --cache --seeds 1000        strict caches while processes die";

/// Arguments of `simulate`.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub struct SimulateArguments {
    /// Recorded traffic of a site; named as its file if no site is
    #[arg(long = "trace", value_name = "FILE[=SITE]")]
    pub traces: Vec<String>,

    /// Made-up traffic of a site; see below
    #[arg(long = "rate", value_name = "SITE=RATE")]
    pub rates: Vec<String>,

    /// Who decides; several side by side: rigid, reconf, reconf_p, reconf_pq, ... [default: that of
    /// the settings, or reconf]
    #[arg(long, visible_alias = "compare", value_name = "NAME,...", value_delimiter = ',',
        value_parser = policy_named)]
    pub policy: Vec<Kind>,

    /// How many nodes; 4..12 tries all from 4 to 12 and names the fewest that are enough [default:
    /// those of the settings, or 8]
    #[arg(long, value_name = "N[..M]", value_parser = plan::node_range)]
    pub nodes: Option<NodeRange>,

    /// Sites and nodes from a settings file, instead of usual ones
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,

    /// What the pool is made of.
    #[command(flatten)]
    pub pool: PoolShape,

    /// Which part of the traffic, and how fast.
    #[command(flatten)]
    pub window: Window,

    /// Treat traffic as rates instead of single requests: for hundreds of nodes and more
    #[arg(long)]
    pub fluid: bool,

    /// Decides every draw
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Instead of all that: a small pool of its own with so many faults (crashes, pauses, lost and
    /// late operations, a wiped home), and whether every property held
    #[arg(long, value_name = "N", conflicts_with_all = ["traces", "rates", "settings", "nodes"],
        value_parser = clap::value_parser!(u16).range(0..=1_000))]
    pub faults: Option<u16>,

    /// Instead of all that: a site of its own with strict caches, writers that change what they
    /// hold, and processes that die; whether an answer was older than what was committed
    #[arg(long, conflicts_with_all = ["traces", "rates", "settings", "nodes", "faults"])]
    pub cache: bool,

    /// With --cache: so many seeds, from that of --seed on
    #[arg(long, value_name = "N", default_value_t = 1, requires = "cache",
        conflicts_with_all = ["traces", "rates", "settings", "nodes", "faults"],
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: u64,

    /// Draw requests, nodes and lateness over time into this file (several runs: the first)
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What the pool is made of, where no settings file says it.
#[derive(Clone, Debug, Args)]
pub struct PoolShape {
    /// Requests that a node takes at once [default: as the settings, or 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub in_flight: Option<u32>,

    /// Time that a usual node takes for one request, of all sites or of one
    #[arg(long, value_name = "[SITE=]MS", default_value = "5", value_delimiter = ',')]
    pub service_ms: Vec<String>,

    /// Capacities of the nodes in percent of a usual one, in turn: 100,200 makes every second node
    /// twice as fast
    #[arg(long, value_name = "PCT,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub capacity: Vec<u16>,

    /// Nodes that no move takes from a site; of all sites or of one [default: as the settings, or
    /// 1]
    #[arg(long, value_name = "[SITE=]N", value_delimiter = ',')]
    pub hard: Vec<String>,

    /// Nodes that a site gets back when it is loaded [default: as hard]
    #[arg(long, value_name = "[SITE=]N", value_delimiter = ',')]
    pub soft: Vec<String>,

    /// Nodes that a site never exceeds [default: no limit]
    #[arg(long, value_name = "[SITE=]N", value_delimiter = ',')]
    pub max: Vec<String>,

    /// Which site goes first: larger numbers do [default: 0]
    #[arg(long, value_name = "[SITE=]N", value_delimiter = ',')]
    pub priority: Vec<String>,

    /// A request that takes longer is late; of all sites or of one [default: as the settings, or
    /// 50]
    #[arg(long, value_name = "[SITE=]MS", value_delimiter = ',')]
    pub objective_ms: Vec<String>,

    /// Of a hundred requests of each site, so many must be in time for the nodes to be enough
    #[arg(long, value_name = "PCT", default_value_t = 99.0)]
    pub enough_pct: f64,

    /// Edges [default: as the settings, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=50))]
    pub edges: Option<u8>,

    /// How often an edge looks [default: as the settings, or 1]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub look_ms: Option<u32>,

    /// How long a load must last [default: as the settings, or 2]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    pub hold_ms: Option<u32>,

    /// Draw service times from an exponential distribution, instead of always the same
    #[arg(long)]
    pub vary: bool,
}

/// Which part of the traffic, and how fast.
#[derive(Clone, Copy, Debug, Args)]
pub struct Window {
    /// How the traces are written, if that is not recognised: minutes, rates, counts, requests,
    /// tokens, log or binary
    #[arg(long, value_name = "NAME", value_parser = format_named)]
    pub format: Option<Format>,

    /// The interval of `counts` and `rates`; seconds
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub interval_s: f64,

    /// Seconds (or 10m, 2h, 1d) of the traces in one second
    #[arg(long, value_name = "N", default_value = "1", value_parser = time_s)]
    pub compress: f64,

    /// Where to begin, from the traces' first record: 90, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = time_s)]
    pub start: f64,

    /// How much of the traces; of rates, how long [default: all of a trace, 60 s of rates]
    #[arg(long, value_name = "TIME", value_parser = time_s)]
    pub duration: Option<f64>,

    /// Requests for each of the traces'
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub scale: f64,
}

fn policy_named(name: &str) -> Result<Kind, String> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    Kind::by_name(name).ok_or_else(|| format!("known policies: {}", known()))
}

/// Simulates. Blocks until it is done; draws a bar on standard error meanwhile.
pub(super) fn run(arguments: &SimulateArguments, style: Style) -> Result<Output, CommandError> {
    if let Some(faults) = arguments.faults {
        return faults::run(arguments, usize::from(faults));
    }
    if arguments.cache {
        return coherence::run(arguments);
    }
    let plan = plan::Plan::of(arguments)?;
    let runs = runs::all(&plan, style)?;
    if let (Some(file), Some(first)) = (&arguments.svg, runs.first()) {
        picture::of(&plan, first).write(file).map_err(|error| {
            CommandError::Argument(format!("--svg {}: {error}", file.display()))
        })?;
    }
    let text = if arguments.json {
        format!("{}\n", report::json(&plan, &runs))
    } else {
        report::text(&plan, &runs)
    };
    Ok(Output { text, ..Output::default() })
}

#[cfg(test)]
#[path = "simulate_tests.rs"]
mod tests;
