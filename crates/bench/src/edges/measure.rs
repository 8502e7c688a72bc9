//! What cells mean. Pure.

use super::plan::Tier;
use crate::waits::Cost;
use load::generate::ConstantReport;
use load::stats::Spread;
use serde::Serialize;

/// One tier in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) tier: Tier,
    pub(crate) round: usize,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// Requests that the generator sent more than a millisecond late.
    pub(crate) late: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) cost: Cost,
}

impl Cell {
    pub(crate) fn of(tier: Tier, round: usize, report: &ConstantReport, cost: Cost) -> Self {
        let total = report.run.total();
        let ms = |us: u64| us as f64 / 1e3;
        Self {
            tier,
            round,
            requests: total.requests,
            failed: total.failures.total(),
            late: report.late,
            p50_ms: ms(total.latency.p50_us()),
            p99_ms: ms(total.latency.p99_us()),
            p999_ms: ms(total.latency.p999_us()),
            cost,
        }
    }
}

/// All cells of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(pub(crate) Vec<Cell>);

impl Cells {
    fn of(&self, tier: Tier) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| cell.tier == tier)
    }

    pub(crate) fn spread(&self, tier: Tier, value: impl Fn(&Cell) -> f64) -> Option<Spread> {
        Spread::of(&self.of(tier).map(value).collect::<Vec<_>>())
    }

    /// A number of a tier over that of one edge, each round's by itself.
    pub(crate) fn over_one(&self, tier: Tier, value: impl Fn(&Cell) -> f64) -> Option<Spread> {
        let ratio = |cell: &Cell| {
            let one = self.of(Tier::ONE).find(|one| one.round == cell.round)?;
            (value(one) > 0.0).then(|| value(cell) / value(one))
        };
        Spread::of(&self.of(tier).filter_map(ratio).collect::<Vec<_>>())
    }

    pub(crate) fn failed(&self) -> u64 {
        self.0.iter().map(|cell| cell.failed).sum()
    }

    /// The median over all cells of how long their worst threads waited.
    pub(crate) fn wait_pct(&self) -> f64 {
        let waits: Vec<f64> = self.0.iter().map(|cell| cell.cost.wait_pct).collect();
        Spread::of(&waits).map_or(0.0, |waits| waits.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_is_compared_to_one_edge_in_the_same_round() {
        let cell = |tier, round, p99_ms| Cell {
            tier,
            round,
            requests: 100,
            failed: 1,
            late: 0,
            p50_ms: 10.0,
            p99_ms,
            p999_ms: p99_ms,
            cost: Cost::default(),
        };
        let four = Tier::shared(4);
        let cells = Cells(vec![
            cell(four, 0, 12.0),
            cell(Tier::ONE, 0, 10.0),
            cell(Tier::ONE, 1, 20.0),
            cell(four, 1, 20.0),
            cell(four, 2, 99.0),
        ]);
        let ratio = cells.over_one(four, |cell| cell.p99_ms).unwrap();
        assert_eq!((ratio.low, ratio.high, ratio.count), (1.0, 1.2, 2));
        assert_eq!(cells.over_one(Tier::independent(4), |cell| cell.p99_ms), None);
        assert_eq!((cells.failed(), cells.wait_pct()), (5, 0.0));
    }
}
