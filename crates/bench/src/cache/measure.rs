//! What cells mean. Pure.

use super::changes::Kind;
use super::mixes::Mix;
use super::plan::{CONNECTIONS, Scheme};
use load::stats::Spread;
use serde::Serialize;

/// The conditions of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Under {
    pub(crate) mix: Mix,
    pub(crate) threads: u32,
    pub(crate) edges: u8,
    pub(crate) connections: u32,
    pub(crate) changes: Kind,
    /// Load was on the other core.
    pub(crate) is_alone: bool,
    /// In short turns, with load by this program.
    pub(crate) is_short: bool,
}

impl Under {
    /// Pages over one edge, with a tag that no page carries advanced.
    pub(crate) fn ticks(threads: u32) -> Self {
        Self {
            mix: Mix::Pages,
            threads,
            edges: 1,
            connections: CONNECTIONS,
            changes: Kind::Ticks,
            is_alone: false,
            is_short: false,
        }
    }

    /// The same in short turns.
    pub(crate) fn duel(threads: u32) -> Self {
        Self { is_short: true, ..Self::ticks(threads) }
    }

    /// The same with load on the core of the application, which has nothing to do.
    pub(crate) fn alone() -> Self {
        Self { is_alone: true, ..Self::ticks(0) }
    }

    /// Pages over one edge, of which one is changed each second.
    pub(crate) fn updates(threads: u32) -> Self {
        Self { changes: Kind::Updates, ..Self::ticks(threads) }
    }
}

/// One scheme in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) under: Under,
    pub(crate) scheme: Scheme,
    /// Cells with the same number followed each other.
    pub(crate) round: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) requests: u64,
    pub(crate) failed: u64,
    /// CPU time of all processes of the cache; microseconds per good answer.
    pub(crate) cache_us: f64,
    /// CPU time of the load generators; microseconds per good answer.
    pub(crate) load_us: f64,
    /// Changes per second meanwhile.
    pub(crate) changes_per_second: f64,
}

/// All cells of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cells(pub(crate) Vec<Cell>);

impl Cells {
    fn of(&self, under: Under, scheme: Scheme) -> impl Iterator<Item = &Cell> {
        self.0.iter().filter(move |cell| cell.under == under && cell.scheme == scheme)
    }

    /// A number of one scheme under some conditions, over the rounds.
    pub(crate) fn spread(
        &self,
        under: Under,
        scheme: Scheme,
        value: impl Fn(&Cell) -> f64,
    ) -> Option<Spread> {
        Spread::of(&self.of(under, scheme).map(value).collect::<Vec<_>>())
    }

    pub(crate) fn median(
        &self,
        under: Under,
        scheme: Scheme,
        value: impl Fn(&Cell) -> f64,
    ) -> Option<f64> {
        self.spread(under, scheme, value).map(|spread| spread.median)
    }

    /// Answers per second of `one` over those of `other`, each round's by itself.
    pub(crate) fn ratio(&self, under: Under, one: Scheme, other: Scheme) -> Option<Spread> {
        self.ratio_of(under, one, other, |cell| cell.per_second)
    }

    /// Answers per CPU-second of the cache, likewise.
    pub(crate) fn cpu_ratio(&self, under: Under, one: Scheme, other: Scheme) -> Option<Spread> {
        self.ratio_of(under, one, other, |cell| 1.0 / cell.cache_us)
    }

    fn ratio_of(
        &self,
        under: Under,
        one: Scheme,
        other: Scheme,
        value: impl Fn(&Cell) -> f64,
    ) -> Option<Spread> {
        let ratio = |cell: &Cell| {
            let beside = self.of(under, other).find(|beside| beside.round == cell.round)?;
            let ratio = value(cell) / value(beside);
            ratio.is_finite().then_some(ratio)
        };
        Spread::of(&self.of(under, one).filter_map(ratio).collect::<Vec<_>>())
    }

    /// What strict loses of its answers per second when so many threads compute on the
    /// application's core, minus what our own unvalidated hit loses; percentage points. The two
    /// took turns, so their ratio at each load is known better than either.
    pub(crate) fn loss_points(&self, threads: u32) -> Option<f64> {
        let unvalidated =
            |threads| self.median(Under::duel(threads), Scheme::Unvalidated, |c| c.per_second);
        let ratio = |threads| {
            let under = Under::duel(threads);
            self.ratio(under, Scheme::Strict, Scheme::Unvalidated).map(|spread| spread.median)
        };
        let kept = unvalidated(threads)? / unvalidated(0)?;
        Some(100.0 * kept * (1.0 - ratio(threads)? / ratio(0)?))
    }

    pub(crate) fn failed(&self) -> u64 {
        self.0.iter().map(|cell| cell.failed).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scheme: Scheme, threads: u32, round: usize, per_second: f64) -> Cell {
        Cell {
            under: Under::duel(threads),
            scheme,
            round,
            per_second,
            p50_us: 100.0,
            p99_us: 200.0,
            requests: 1_000,
            failed: 1,
            cache_us: 1e6 / per_second,
            load_us: 3.0,
            changes_per_second: 1_000.0,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let cells = Cells(vec![
            cell(Scheme::Strict, 0, 0, 90.0),
            cell(Scheme::Unvalidated, 0, 0, 100.0),
            // The machine was slow in this round, for both.
            cell(Scheme::Strict, 0, 1, 48.0),
            cell(Scheme::Unvalidated, 0, 1, 50.0),
            cell(Scheme::Strict, 0, 2, 99.0),
            cell(Scheme::Unvalidated, 0, 2, 100.0),
            // Without a partner in its round.
            cell(Scheme::Strict, 0, 3, 9.0),
        ]);
        for ratio in [Cells::ratio, Cells::cpu_ratio] {
            let found = ratio(&cells, Under::duel(0), Scheme::Strict, Scheme::Unvalidated);
            let found = found.unwrap();
            assert!((found.median - 0.96).abs() < 1e-9 && found.count == 3, "{found:?}");
        }
        assert_eq!(cells.ratio(Under::updates(0), Scheme::Strict, Scheme::Unvalidated), None);
        assert_eq!(cells.failed(), 7);
    }

    #[test]
    fn loss_counts_from_what_the_unvalidated_hit_loses() {
        let mut all = vec![
            cell(Scheme::Strict, 0, 0, 98.0),
            cell(Scheme::Unvalidated, 0, 0, 100.0),
            cell(Scheme::Strict, 200, 1, 49.0),
            cell(Scheme::Unvalidated, 200, 1, 50.0),
        ];
        // Both lose half.
        assert!(Cells(all.clone()).loss_points(200).unwrap().abs() < 1e-9);
        all[2].per_second = 44.1;
        // 55 % and 50 %.
        assert!((Cells(all.clone()).loss_points(200).unwrap() - 5.0).abs() < 1e-9);
        all.truncate(3);
        assert_eq!(Cells(all).loss_points(200), None);
    }
}
