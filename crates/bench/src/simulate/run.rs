//! Runs all parts.

use super::decision::{self, Decision};
use super::seeds::{self, Seeds};
use crate::progress::Progress;
use anyhow::bail;
use load::clock::ThreadTask;
use load::generate::Cancel;
use policy::{Kind, Thresholds};
use serde::Serialize;
use sim::scenario::unlike::{self, Compared};
use sim::scenario::{equal, large};
use std::time::Instant;

/// Simulated seconds of the largest pool, and of its quick form.
const LARGE_S: u64 = 60;
const LARGE_QUICK_S: u64 = 10;
/// Which policy decides there.
const LARGE_POLICY: Kind = Kind::ReconfPq;
/// Seeds of faults, and those of the quick form.
const SEEDS: u64 = 10_000;
const SEEDS_QUICK: u64 = 50;
/// How long two equal sites are overloaded, and after which time nothing may move.
const EQUAL_S: u64 = 60;
pub(super) const EQUAL_SETTLED_NS: u64 = 1_000_000_000;
/// Random pools of unlike nodes, and who is compared with whom.
const POOLS: u64 = 1_000;
pub(super) const UNLIKE: (Kind, Kind) = (Kind::Staged, Kind::ReconfPq);
/// Expected, for the bar: seconds for a simulated second of the largest pool, and for a seed.
const LARGE_EXPECTED_S: f64 = 0.5;
const SEED_EXPECTED_S: f64 = 0.06;
/// And for all else.
const OTHERS_EXPECTED_S: f64 = 8.0;

/// The largest pool.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Large {
    pub(crate) policy: &'static str,
    pub(crate) simulated_s: u64,
    pub(crate) wall_s: f64,
    /// CPU time of the thread that ran it.
    pub(crate) cpu_s: f64,
    pub(crate) node_reads: u64,
    pub(crate) looks: u64,
    pub(crate) moves: u64,
    pub(crate) requests: f64,
    pub(crate) in_time: f64,
    /// Moves in each simulated second.
    pub(crate) moves_by_second: Vec<u64>,
    pub(crate) violations: u64,
}

impl Large {
    /// For one simulated minute.
    pub(crate) fn seconds_for_a_minute(&self) -> f64 {
        self.wall_s * LARGE_S as f64 / self.simulated_s as f64
    }
}

/// Two equal sites, both overloaded.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Equal {
    pub(crate) policy: &'static str,
    pub(crate) moves: u64,
    /// After the first second.
    pub(crate) late_moves: u64,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) large: Large,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) seeds: Seeds,
    pub(crate) equal: Vec<Equal>,
    pub(crate) unlike: Vec<Compared>,
}

impl Results {
    /// Moves between equal sites that gain nothing.
    pub(crate) fn late_moves(&self) -> u64 {
        self.equal.iter().map(|equal| equal.late_moves).sum()
    }
}

/// Runs everything. Blocks for minutes, quick for less than 50 seconds.
pub(super) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let (large_s, seeds) = if quick { (LARGE_QUICK_S, SEEDS_QUICK) } else { (LARGE_S, SEEDS) };
    measure_with(large_s, seeds, (EQUAL_S, POOLS), cancel)
}

/// A little of everything, for tests.
pub(super) fn measure_least(cancel: &Cancel) -> anyhow::Result<Results> {
    measure_with(1, 2, (2, 20), cancel)
}

fn measure_with(
    large_s: u64,
    seeds: u64,
    (equal_s, pools): (u64, u64),
    cancel: &Cancel,
) -> anyhow::Result<Results> {
    let large_expected_s = large_s as f64 * LARGE_EXPECTED_S;
    let seeds_expected_s = seeds as f64 * SEED_EXPECTED_S / seeds::THREADS as f64;
    let mut progress = Progress::new(large_expected_s + seeds_expected_s + OTHERS_EXPECTED_S);
    let large = large_pool(large_s, &mut progress)?;
    let stopped = || if cancel.is_cancelled() { bail!("interrupted") } else { Ok(()) };
    stopped()?;
    progress.say("decisions");
    let decisions = decision::measure();
    progress.say("two equal sites");
    let equal: Vec<Equal> =
        Kind::ALL.into_iter().map(|kind| equal_sites(kind, equal_s)).collect::<Result<_, _>>()?;
    progress.say("unlike nodes");
    let unlike = (1..=pools).map(unlike_pool).collect::<Result<_, _>>()?;
    progress.did(OTHERS_EXPECTED_S);
    stopped()?;
    let seeds = seeds::measure(seeds, &mut progress, seeds_expected_s, cancel)?;
    stopped()?;
    Ok(Results { large, decisions, seeds, equal, unlike })
}

fn large_pool(seconds: u64, progress: &mut Progress) -> anyhow::Result<Large> {
    progress.say("10,000 nodes, 500 sites, 50 edges");
    let (wall, task) = (Instant::now(), ThreadTask::current());
    let before = task.time();
    let policy = LARGE_POLICY.build(Thresholds::default());
    let outcome = large::run(1, seconds, policy, |_| progress.did(LARGE_EXPECTED_S))?;
    let mut moves_by_second = vec![0; usize::try_from(seconds)? + 1];
    for moved in &outcome.moves {
        moves_by_second[usize::try_from(moved.at_ns / 1_000_000_000)?] += 1;
    }
    moves_by_second.pop();
    Ok(Large {
        policy: LARGE_POLICY.name(),
        simulated_s: seconds,
        wall_s: wall.elapsed().as_secs_f64(),
        cpu_s: task.time().since(before).run_ns as f64 / 1e9,
        node_reads: outcome.node_reads,
        looks: outcome.looks,
        moves: outcome.moves_total,
        requests: outcome.arrived(),
        in_time: 1.0 - outcome.slow_share(),
        moves_by_second,
        violations: outcome.violations_total,
    })
}

fn equal_sites(kind: Kind, seconds: u64) -> anyhow::Result<Equal> {
    let outcome = equal::run(1, seconds, kind.build(Thresholds::default()))?;
    let late = outcome.moves.iter().filter(|moved| moved.at_ns > EQUAL_SETTLED_NS).count();
    Ok(Equal { policy: kind.name(), moves: outcome.moves_total, late_moves: late as u64 })
}

fn unlike_pool(seed: u64) -> anyhow::Result<Compared> {
    let of = |kind: Kind| kind.build(Thresholds::default());
    Ok(unlike::compare(seed, of(UNLIKE.0), of(UNLIKE.1))?)
}
