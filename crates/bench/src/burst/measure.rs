//! What is kept of a burst and of a rotation, and what it means. Pure.

use super::plan::Round;
use super::scenario::{Scenario, Scheme};
use crate::waits::Cost;
use load::generate::BurstReport;
use load::stats::{Spread, median, quantile};
use polder::rig::MoveLog;
use serde::Serialize;

/// Responses after which the clock of a burst is read, for the penalty.
pub(crate) const MILESTONES: [usize; 4] = [64, 128, 256, 512];
/// How long the beginning of a burst is looked at, for the penalty; milliseconds.
pub(crate) const BEGINNING_MS: usize = 60;
/// A spread needs so many measures; with fewer rotations the single bursts are taken.
const ROTATIONS_MIN: usize = 3;

/// One burst.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Burst {
    pub(crate) site: usize,
    /// Whether it counts.
    pub(crate) kept: bool,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    /// When each of [`MILESTONES`] was reached; milliseconds.
    pub(crate) milestones_ms: Vec<Option<f64>>,
    /// Good responses within the first 1, 2, ... [`BEGINNING_MS`] milliseconds.
    #[serde(skip)]
    pub(crate) beginning: Vec<f64>,
    /// From its first request to the first request at the first node that moved for it.
    pub(crate) react_ms: Option<f64>,
    /// Of each move for it, from the look that decided to the first request there.
    pub(crate) move_ms: Vec<f64>,
    /// Nodes that came to its site meanwhile.
    pub(crate) moves: usize,
}

impl Burst {
    pub(crate) fn of(report: &BurstReport, kept: bool) -> Self {
        let beginning = |ms: usize| {
            let until_ns = report.start_ns + ms as u64 * 1_000_000;
            report.ok_at_ns.partition_point(|&at_ns| at_ns <= until_ns) as f64
        };
        Self {
            site: report.site,
            kept,
            start_ns: report.start_ns,
            end_ns: report.end_ns,
            ok: report.tally.ok,
            failed: report.tally.failures.total(),
            milestones_ms: MILESTONES.iter().map(|&k| report.ms_to_response(k)).collect(),
            beginning: (1..=BEGINNING_MS).map(beginning).collect(),
            react_ms: None,
            move_ms: Vec::new(),
            moves: 0,
        }
    }

    /// Adds what the edges tell of moves. `site` is the name of the burst's site.
    pub(crate) fn add_moves(&mut self, moves: &MoveLog, site: &str) {
        let within = moves.decided_within(self.start_ns, self.end_ns);
        for one in within.filter(|one| one.to.as_deref() == Some(site)) {
            self.moves += 1;
            // A node that came too late for this burst has no first request of it.
            let first = one.first_dispatch_ns.filter(|&first_ns| first_ns <= self.end_ns);
            let Some(first_ns) = first else { continue };
            self.move_ms.push(ms(one.decided_ns, first_ns));
            let react = ms(self.start_ns, first_ns);
            self.react_ms = Some(self.react_ms.map_or(react, |before| before.min(react)));
        }
    }

    fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    fn throughput(&self) -> f64 {
        if self.end_ns > self.start_ns { self.ok as f64 / self.seconds() } else { 0.0 }
    }
}

fn ms(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

/// One burst to each site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Rotation {
    pub(crate) bursts: Vec<Burst>,
    /// Of the bursts that count: the share of the time in which all usable nodes were fully used.
    pub(crate) full_use_pct: Option<f64>,
    /// Fully used nodes in each 10 ms window.
    #[serde(skip)]
    pub(crate) used_nodes: Vec<usize>,
    pub(crate) cost: Cost,
}

impl Rotation {
    fn kept(&self) -> impl Iterator<Item = &Burst> {
        self.bursts.iter().filter(|burst| burst.kept)
    }

    /// Good responses per second over all its bursts that count.
    fn throughput(&self) -> Option<f64> {
        let (mut ok, mut seconds) = (0, 0.0);
        for burst in self.kept() {
            (ok, seconds) = (ok + burst.ok, seconds + burst.seconds());
        }
        (seconds > 0.0).then(|| ok as f64 / seconds)
    }
}

/// All rotations of one scheme with one burst length.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    #[serde(skip)]
    pub(crate) scheme: Scheme,
    #[serde(rename = "scheme")]
    pub(crate) scheme_name: &'static str,
    pub(crate) requests: u64,
    pub(crate) rotations: Vec<Rotation>,
}

impl Cell {
    pub(crate) fn new(scheme: Scheme, round: &Round) -> Self {
        let (scheme_name, requests) = (scheme.name(), round.requests);
        Self { scheme, scheme_name, requests, rotations: Vec::new() }
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = &Burst> {
        self.rotations.iter().flat_map(Rotation::kept)
    }

    /// Throughput: median and spread of its rotations; of its bursts where rotations are few.
    pub(crate) fn throughput(&self) -> Option<Spread> {
        let rotations: Vec<f64> = self.rotations.iter().filter_map(Rotation::throughput).collect();
        if rotations.len() >= ROTATIONS_MIN {
            return Spread::of(&rotations);
        }
        let bursts: Vec<f64> = self.kept().map(Burst::throughput).collect();
        Spread::of(&bursts)
    }

    /// The rotation whose throughput is the median, or next to it: the one to draw.
    pub(crate) fn typical(&self) -> Option<&Rotation> {
        let mut kept: Vec<(f64, &Rotation)> =
            self.rotations.iter().filter_map(|r| Some((r.throughput()?, r))).collect();
        kept.sort_by(|one, other| one.0.total_cmp(&other.0));
        kept.get(kept.len() / 2).map(|(_, rotation)| *rotation)
    }

    /// Median over its rotations; percent.
    pub(crate) fn full_use_pct(&self) -> Option<f64> {
        let shares: Vec<f64> = self.rotations.iter().filter_map(|r| r.full_use_pct).collect();
        median(&shares)
    }

    /// Medians over the bursts that count, for each of [`MILESTONES`]; milliseconds.
    pub(crate) fn milestones_ms(&self) -> Vec<Option<f64>> {
        let of = |place: usize| {
            let times: Vec<f64> = self.kept().filter_map(|b| b.milestones_ms[place]).collect();
            median(&times)
        };
        (0..MILESTONES.len()).map(of).collect()
    }

    /// Median count of good responses within the first milliseconds of a burst.
    pub(crate) fn beginning(&self) -> Vec<f64> {
        let of = |ms: usize| {
            let counts: Vec<f64> = self.kept().map(|burst| burst.beginning[ms]).collect();
            median(&counts)
        };
        (0..BEGINNING_MS).filter_map(of).collect()
    }

    /// The worst of its rotations that count.
    pub(crate) fn wait_pct(&self) -> f64 {
        let kept = self.rotations.iter().filter(|rotation| rotation.kept().next().is_some());
        kept.map(|rotation| rotation.cost.wait_pct).fold(0.0, f64::max)
    }

    /// Median costs over its rotations.
    pub(crate) fn cost(&self) -> Cost {
        let of = |part: fn(&Cost) -> f64| {
            let costs: Vec<f64> = self.rotations.iter().map(|r| part(&r.cost)).collect();
            median(&costs).unwrap_or(0.0)
        };
        Cost {
            generator_us: of(|cost| cost.generator_us),
            edge_us: of(|cost| cost.edge_us),
            stub_us: of(|cost| cost.stub_us),
            wait_pct: self.wait_pct(),
        }
    }

    /// Rotations that were disturbed, of those that count.
    pub(crate) fn disturbed(&self) -> usize {
        let kept = self.rotations.iter().filter(|rotation| rotation.kept().next().is_some());
        kept.filter(|rotation| rotation.cost.is_disturbed()).count()
    }
}

/// One scenario.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) scenario: Scenario,
    pub(crate) cells: Vec<Cell>,
}

impl Measured {
    pub(crate) fn cell(&self, scheme: Scheme, requests: u64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.scheme == scheme && cell.requests == requests)
    }

    /// The burst lengths, in order.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.cells.iter().map(|cell| cell.requests).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Median throughput of one scheme over that of another.
    pub(crate) fn ratio(&self, scheme: Scheme, over: Scheme, requests: u64) -> Option<f64> {
        let of = |scheme| self.cell(scheme, requests)?.throughput().map(|spread| spread.median);
        let (mine, others) = (of(scheme)?, of(over)?);
        (others > 0.0).then(|| mine / others)
    }

    fn reconf(&self) -> impl Iterator<Item = &Burst> {
        self.cells.iter().filter(|cell| cell.scheme == Scheme::Reconf).flat_map(Cell::kept)
    }

    /// Nodes that moved in bursts that count.
    pub(crate) fn moves(&self) -> usize {
        self.reconf().map(|burst| burst.moves).sum()
    }

    /// Failed requests of all schemes, discarded bursts included: nothing may fail.
    pub(crate) fn failed(&self) -> u64 {
        let rotations = self.cells.iter().flat_map(|cell| &cell.rotations);
        rotations.flat_map(|rotation| &rotation.bursts).map(|burst| burst.failed).sum()
    }

    /// All `move_ms` in bursts that count.
    pub(crate) fn move_ms(&self) -> Vec<f64> {
        self.reconf().flat_map(|burst| burst.move_ms.iter().copied()).collect()
    }

    /// All `react_ms` in bursts that count.
    pub(crate) fn react_ms(&self) -> Vec<f64> {
        self.reconf().filter_map(|burst| burst.react_ms).collect()
    }

    /// Bursts of `reconf` that count.
    pub(crate) fn reconf_bursts(&self) -> usize {
        self.reconf().count()
    }
}

/// Median, 99th percentile by nearest rank, and largest.
pub(crate) fn quantiles(values: &[f64]) -> [Option<f64>; 3] {
    [0.5, 0.99, 1.0].map(|share| quantile(values, share))
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
