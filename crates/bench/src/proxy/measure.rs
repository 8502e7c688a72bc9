//! What cells mean. Pure.

use super::plan::{Kind, Proxy};
use load::stats::Spread;
use serde::Serialize;

/// One proxy under one load in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) kind: Kind,
    pub(crate) proxy: Proxy,
    pub(crate) round: usize,
    /// CPU time of all threads of the proxy; microseconds per good answer.
    pub(crate) cpu_us: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// How long the proxy's busiest thread waited for its core; percent of the time.
    pub(crate) wait_pct: f64,
}

/// All cells of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(pub(crate) Vec<Cell>);

impl Cells {
    fn of(&self, kind: Kind, proxy: Proxy) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| cell.kind == kind && cell.proxy == proxy)
    }

    /// A number of one proxy under one load, over the rounds.
    pub(crate) fn spread(
        &self,
        kind: Kind,
        proxy: Proxy,
        value: impl Fn(&Cell) -> f64,
    ) -> Option<Spread> {
        Spread::of(&self.of(kind, proxy).map(value).collect::<Vec<_>>())
    }

    /// CPU time of `one` over that of `other`, each round's by itself.
    pub(crate) fn ratio(&self, kind: Kind, one: Proxy, other: Proxy) -> Option<Spread> {
        let ratio = |cell: &Cell| {
            let beside = self.of(kind, other).find(|beside| beside.round == cell.round)?;
            (beside.cpu_us > 0.0).then(|| cell.cpu_us / beside.cpu_us)
        };
        Spread::of(&self.of(kind, one).filter_map(ratio).collect::<Vec<_>>())
    }

    pub(crate) fn failed(&self) -> u64 {
        self.0.iter().map(|cell| cell.failed).sum()
    }

    /// The median over all cells of how long proxies waited for their core: a stall of a moment
    /// disturbs one round, which the median of the ratios leaves out.
    pub(crate) fn wait_pct(&self) -> f64 {
        let waits: Vec<f64> = self.0.iter().map(|cell| cell.wait_pct).collect();
        Spread::of(&waits).map_or(0.0, |waits| waits.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(proxy: Proxy, round: usize, cpu_us: f64) -> Cell {
        Cell {
            kind: Kind::Saturated,
            proxy,
            round,
            cpu_us,
            per_second: 50_000.0,
            p50_us: 900.0,
            p99_us: 2_000.0,
            requests: 50_000,
            failed: 1,
            wait_pct: round as f64,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let cells = Cells(vec![
            cell(Proxy::Polder, 0, 9.0),
            cell(Proxy::Nginx, 0, 10.0),
            // The machine was slow in this round, for both.
            cell(Proxy::Nginx, 1, 30.0),
            cell(Proxy::Polder, 1, 24.0),
            cell(Proxy::Polder, 2, 9.5),
            cell(Proxy::Nginx, 2, 10.0),
            // Without a partner in its round.
            cell(Proxy::Polder, 3, 99.0),
        ]);
        let ratio = cells.ratio(Kind::Saturated, Proxy::Polder, Proxy::Nginx).unwrap();
        assert_eq!((ratio.median, ratio.low, ratio.high, ratio.count), (0.9, 0.8, 0.95, 3));
        assert_eq!(cells.ratio(Kind::Saturated, Proxy::Polder, Proxy::Haproxy), None);
        assert_eq!(cells.ratio(Kind::Tls, Proxy::Polder, Proxy::Nginx), None);
        assert_eq!(cells.failed(), 7);
        assert!((cells.wait_pct() - 1.0).abs() < 1e-9);
        let rate = cells.spread(Kind::Saturated, Proxy::Nginx, |cell| cell.per_second).unwrap();
        assert_eq!((rate.median, rate.count), (50_000.0, 3));
    }
}
