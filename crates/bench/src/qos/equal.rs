//! Two equal sites that get bursts in turn (figures 6 and 7 of the paper).

use super::pools::{HIGH, LOW, Scheme};
use crate::waits::Cost;
use load::clock::{ThreadTime, window_of};
use load::generate::{BurstReport, Cancel, Generator};
use load::stats::Spread;
use polder::rig::Rig;
use serde::Serialize;

/// Bursts of one length, to one site after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EqualRound {
    pub(crate) requests: u64,
    pub(crate) body_bytes: usize,
    /// Rotations of each scheme.
    pub(crate) rotations: usize,
    /// Bursts at the beginning that do not count: nodes start where no burst has brought them.
    pub(crate) discarded: usize,
}

/// One rotation: a burst to each site.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rotation {
    /// Good responses per second over the bursts that count; none if none does.
    pub(crate) per_second: Option<f64>,
    pub(crate) failed: u64,
    /// Fully used nodes in each 10 ms window.
    #[serde(skip)]
    pub(crate) used_nodes: Vec<usize>,
    pub(crate) cost: Cost,
}

/// All rotations of a scheme with one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    #[serde(skip)]
    pub(crate) scheme: Scheme,
    #[serde(rename = "scheme")]
    pub(crate) scheme_name: &'static str,
    pub(crate) requests: u64,
    pub(crate) body_bytes: usize,
    pub(crate) rotations: Vec<Rotation>,
}

impl Cell {
    pub(crate) fn new(scheme: Scheme, round: EqualRound) -> Self {
        let EqualRound { requests, body_bytes, .. } = round;
        Self { scheme, scheme_name: scheme.name(), requests, body_bytes, rotations: Vec::new() }
    }

    pub(crate) fn throughput(&self) -> Option<Spread> {
        let rates: Vec<f64> = self.rotations.iter().filter_map(|one| one.per_second).collect();
        Spread::of(&rates)
    }

    /// Windows of the rotation to draw: the last, whose beginning no start has disturbed.
    pub(crate) fn used_nodes(&self) -> &[usize] {
        self.rotations.last().map_or(&[], |rotation| &rotation.used_nodes)
    }
}

/// One pool with its generator.
pub(crate) struct Runner {
    pub(crate) scheme: Scheme,
    generator: Generator,
    rig: Rig,
}

impl Runner {
    pub(crate) fn start(
        scheme: Scheme,
        body_bytes: usize,
        cancel: &Cancel,
    ) -> anyhow::Result<Self> {
        let mut options = scheme.rig(body_bytes);
        options.cancel = cancel.clone();
        let rig = Rig::start(&options)?;
        Ok(Self { scheme, generator: Generator::new(rig.load())?, rig })
    }

    /// `look_every_ms` and `hold_ms`, as the pool says them.
    pub(crate) fn look_and_hold_ms(&self) -> anyhow::Result<(u32, u32)> {
        let pool = self.rig.status()?.pool;
        Ok((pool.look_every_ms, pool.hold_ms))
    }

    /// One burst to each site; `number` counts the round's rotations.
    pub(crate) fn rotate(&mut self, round: EqualRound, number: usize) -> anyhow::Result<Rotation> {
        let sites = [HIGH, LOW];
        let before = self.rig.cpu();
        let reports = self.generator.rotate(&sites, round.requests, 1, &mut |_| {})?;
        let spent = self.rig.cpu().since(&before);
        let mut generator = ThreadTime::default();
        for report in &reports {
            generator.run_ns += report.cpu.run_ns;
            generator.wait_ns += report.cpu.wait_ns;
        }
        let counted = round.discarded.saturating_sub(number * sites.len());
        let kept = reports.get(counted..).unwrap_or_default();
        Ok(Rotation {
            per_second: per_second(kept),
            failed: reports.iter().map(|report| report.tally.failures.total()).sum(),
            used_nodes: self.used_nodes(&reports)?,
            cost: Cost::of(requests(&reports), &spent, generator),
        })
    }

    fn used_nodes(&self, reports: &[BurstReport]) -> anyhow::Result<Vec<usize>> {
        let (Some(first), Some(last)) = (reports.first(), reports.last()) else {
            return Ok(Vec::new());
        };
        let (start, end) = (window_of(first.start_ns), window_of(last.end_ns) + 1);
        Ok(self.rig.stub_record(start)?.fully_used_nodes(start, end))
    }
}

fn requests(reports: &[BurstReport]) -> u64 {
    reports.iter().map(|report| report.tally.requests).sum()
}

fn per_second(reports: &[BurstReport]) -> Option<f64> {
    let ok: u64 = reports.iter().map(|report| report.tally.ok).sum();
    let seconds: f64 = reports.iter().map(BurstReport::seconds).sum();
    (seconds > 0.0).then(|| ok as f64 / seconds)
}

/// Median throughput of one scheme over that of another, at one length and file.
pub(crate) fn ratio(
    cells: &[Cell],
    (scheme, over): (Scheme, Scheme),
    requests: u64,
    body_bytes: usize,
) -> Option<f64> {
    let of = |scheme| {
        let fits = |cell: &&Cell| {
            (cell.scheme, cell.requests, cell.body_bytes) == (scheme, requests, body_bytes)
        };
        Some(cells.iter().find(fits)?.throughput()?.median)
    };
    let (mine, others): (f64, f64) = (of(scheme)?, of(over)?);
    (others > 0.0).then(|| mine / others)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheme: Scheme, rates: &[f64]) -> Cell {
        let round = EqualRound { requests: 512, body_bytes: 1_024, rotations: 3, discarded: 0 };
        let rotation = |&rate: &f64| Rotation {
            per_second: Some(rate),
            failed: 0,
            used_nodes: vec![],
            cost: Cost::default(),
        };
        Cell { rotations: rates.iter().map(rotation).collect(), ..Cell::new(scheme, round) }
    }

    #[test]
    fn ratios_are_of_medians() {
        let cells =
            [cell(Scheme::Reconf, &[90.0, 97.0, 500.0]), cell(Scheme::RigidLarge, &[100.0])];
        let pair = (Scheme::Reconf, Scheme::RigidLarge);
        assert_eq!(ratio(&cells, pair, 512, 1_024), Some(0.97));
        assert_eq!(ratio(&cells, pair, 512, 4_096), None);
        assert_eq!(ratio(&cells, (Scheme::RigidSmall, Scheme::Reconf), 512, 1_024), None);
    }
}
