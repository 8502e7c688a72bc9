//! What times mean. Pure.

use super::plan::{Busy, Way};
use load::stats::Spread;
use serde::Serialize;

/// One way in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) way: Way,
    pub(crate) busy: Busy,
    pub(crate) round: usize,
    pub(crate) reads: u64,
    pub(crate) p50_ns: f64,
    pub(crate) p999_ns: f64,
    /// CPU time of the owner for one read, with its own beats; microseconds. Only while it does
    /// nothing else.
    pub(crate) owner_us: Option<f64>,
}

/// Reads of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Sized {
    pub(crate) way: Way,
    pub(crate) bytes: usize,
    pub(crate) p50_ns: f64,
}

/// All cells of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(pub(crate) Vec<Cell>);

impl Cells {
    fn of(&self, way: Way, busy: Busy) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| cell.way == way && cell.busy == busy)
    }

    /// A number of one way under one load, over the rounds.
    pub(crate) fn spread(
        &self,
        way: Way,
        busy: Busy,
        value: impl Fn(&Cell) -> Option<f64>,
    ) -> Option<Spread> {
        Spread::of(&self.of(way, busy).filter_map(value).collect::<Vec<_>>())
    }

    /// Median of the rounds' medians; nanoseconds.
    pub(crate) fn p50_ns(&self, way: Way, busy: Busy) -> Option<f64> {
        self.spread(way, busy, |cell| Some(cell.p50_ns)).map(|spread| spread.median)
    }

    /// The p50 of `way` over that of the ping-pong, each round's by itself, on an idle owner.
    pub(crate) fn over_ping_pong(&self, way: Way) -> Option<Spread> {
        let ratio = |cell: &Cell| {
            let beside =
                self.of(Way::PingPong, Busy::Idle).find(|beside| beside.round == cell.round)?;
            (beside.p50_ns > 0.0).then(|| cell.p50_ns / beside.p50_ns)
        };
        Spread::of(&self.of(way, Busy::Idle).filter_map(ratio).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(way: Way, busy: Busy, round: usize, p50_ns: f64) -> Cell {
        let (p999_ns, owner_us) = (2.0 * p50_ns, Some(1.0));
        Cell { way, busy, round, reads: 10, p50_ns, p999_ns, owner_us }
    }

    #[test]
    fn ratios_are_taken_within_a_round_of_an_idle_owner() {
        let cells = Cells(vec![
            cell(Way::PingPong, Busy::Idle, 0, 20_000.0),
            cell(Way::TcpSealed, Busy::Idle, 0, 24_000.0),
            cell(Way::TcpSealed, Busy::Idle, 1, 60_000.0),
            cell(Way::PingPong, Busy::Idle, 1, 40_000.0),
            cell(Way::PingPong, Busy::Compute20, 0, 1.0),
            cell(Way::TcpSealed, Busy::Compute20, 0, 9.0),
        ]);
        let ratio = cells.over_ping_pong(Way::TcpSealed).unwrap();
        assert_eq!((ratio.low, ratio.high, ratio.count), (1.2, 1.5, 2));
        assert_eq!(cells.over_ping_pong(Way::TcpPlain), None);
        assert_eq!(cells.p50_ns(Way::PingPong, Busy::Idle), Some(30_000.0));
        assert_eq!(cells.p50_ns(Way::Shm, Busy::Idle), None);
    }
}
