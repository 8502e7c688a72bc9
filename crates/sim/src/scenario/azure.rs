//! Two real services over the same hour, on one pool: the LLM inference traces of Azure, 2023,
//! `code` and `conv`, 60 times compressed.
//!
//! Eight nodes of 200 requests in a second (one request at a time, 5 ms each), each site with a
//! hard guarantee of one node and the objective that a request takes at most 50 ms. The figure is
//! the share of requests of both sites that are slower, under a policy and under each static
//! split of the nodes.

use crate::options::{NodeSpec, Options, SiteSpec};
use crate::outcome::Outcome;
use crate::traces::{TraceFile, read};
use crate::traffic::{Arrival, Traffic};
use crate::{OptionsError, Simulation};
use load::trace::{TraceError, TraceWindow};
use policy::{Policy, Rigid};
use pool_model::{Guarantee, NodeTraits, Objective, SiteId, SiteTerms};
use std::path::Path;

/// Nodes.
pub const NODES: u16 = 8;
/// Seconds of the traces in one second.
pub const COMPRESS: f64 = 60.0;
/// A request that takes longer is slow.
pub const OBJECTIVE_US: u32 = 50_000;
/// What a node takes for one request.
pub const SERVICE_NS: u64 = 5_000_000;

/// Files of the two traces, in the order of the sites.
pub const FILES: [&str; 2] = ["azure-llm-2023-code.csv.gz", "azure-llm-2023-conv.csv.gz"];

/// How the pool is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Edges.
    pub edges: u8,
    /// How often each looks.
    pub look_ms: u64,
    /// How long a load must last.
    pub hold_ms: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { edges: 1, look_ms: 1, hold_ms: 2 }
    }
}

/// Reads both traces from a folder: requests of both sites by time.
///
/// # Errors
///
/// [`TraceError`] when one of them is not there or cannot be read.
pub fn traces(folder: &Path) -> Result<Vec<Arrival>, TraceError> {
    let sites = [SiteId::MIN, SiteId::new(2).unwrap_or(SiteId::MIN)];
    let files = FILES.iter().zip(sites);
    let files: Vec<TraceFile> =
        files.map(|(name, site)| TraceFile::of_site(&folder.join(name), site)).collect();
    read(&files, TraceWindow { compress: COMPRESS, ..TraceWindow::default() })
}

/// The pool; `first` nodes start at the first site.
#[must_use]
pub fn options(pace: Pace, first: u16, duration_ns: u64) -> Options {
    let objective = Some(Objective { p99_us: OBJECTIVE_US });
    let guarantee = Guarantee { hard: 1, soft: 1, max: NODES };
    let terms = SiteTerms { objective, ..SiteTerms::default().with_guarantee(guarantee) };
    let slow_ns = u64::from(OBJECTIVE_US) * 1_000;
    let site = SiteSpec { terms, service_ns: SERVICE_NS, slow_ns };
    let nodes = (0..NODES).map(|number| NodeSpec {
        traits: NodeTraits::default(),
        max_in_flight: 1,
        site: SiteId::new(if number < first { 1 } else { 2 }).ok(),
    });
    Options {
        edges: pace.edges,
        duration_ns,
        ..Options::new(vec![site; 2], nodes.collect()).with_pace(pace.look_ms, pace.hold_ms)
    }
}

/// Runs the traces under a policy, from an even split.
///
/// # Errors
///
/// [`OptionsError`] for a pace that cannot be simulated.
pub fn run(
    arrivals: &[Arrival],
    pace: Pace,
    policy: Box<dyn Policy>,
) -> Result<Outcome, OptionsError> {
    run_from(arrivals, pace, NODES / 2, policy)
}

fn run_from(
    arrivals: &[Arrival],
    pace: Pace,
    first: u16,
    policy: Box<dyn Policy>,
) -> Result<Outcome, OptionsError> {
    let last_ns = arrivals.last().map_or(1, |arrival| arrival.at_ns + 1);
    let all = arrivals.to_vec();
    let requests = Traffic::Requests(Box::new(all.into_iter()));
    Ok(Simulation::new(options(pace, first, last_ns), requests, policy)?.run())
}

/// Share of slow requests under each static split: nodes of the first site, and the share.
///
/// # Errors
///
/// None: the pool can be simulated.
pub fn static_splits(arrivals: &[Arrival]) -> Result<Vec<(u16, f64)>, OptionsError> {
    let splits = 1..NODES;
    splits
        .map(|first| {
            // Nobody decides anything: one look in a second is enough.
            let pace = Pace { edges: 1, look_ms: 1_000, hold_ms: 2_000 };
            let outcome = run_from(arrivals, pace, first, Box::new(Rigid))?;
            Ok((first, outcome.slow_share()))
        })
        .collect()
}

/// A policy beside the best that could be had without moving nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Share of slow requests under the policy.
    pub slow_share: f64,
    /// Under each static split.
    pub statics: Vec<(u16, f64)>,
    /// The least of those.
    pub best_static: f64,
    /// `slow_share / best_static`.
    pub ratio: f64,
    /// Nodes that moved.
    pub moves: u64,
}

/// Compares a policy with all static splits.
///
/// # Errors
///
/// [`OptionsError`] for a pace that cannot be simulated.
pub fn compare(
    arrivals: &[Arrival],
    pace: Pace,
    policy: Box<dyn Policy>,
) -> Result<Comparison, OptionsError> {
    let outcome = run(arrivals, pace, policy)?;
    let statics = static_splits(arrivals)?;
    let best_static = statics.iter().map(|&(_, share)| share).fold(f64::INFINITY, f64::min);
    let slow_share = outcome.slow_share();
    let ratio = slow_share / best_static;
    Ok(Comparison { slow_share, statics, best_static, ratio, moves: outcome.moves_total })
}
