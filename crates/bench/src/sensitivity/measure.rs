//! The grid, and what is kept of each cell. Pure.

use crate::waits::WAIT_PCT_MAX;
use load::stats::Spread;
use serde::Serialize;

/// Which looks and holds are tried with which load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) looks_ms: Vec<u32>,
    pub(crate) holds_ms: Vec<u32>,
    /// Requests in a burst.
    pub(crate) requests: u64,
    /// Rotations of each cell; the first is discarded.
    pub(crate) rotations: usize,
}

impl Grid {
    pub(crate) fn new(quick: bool) -> Self {
        if quick {
            let (looks_ms, holds_ms) = (vec![1, 5, 20], vec![2, 10, 50]);
            return Self { looks_ms, holds_ms, requests: 1_024, rotations: 4 };
        }
        Self {
            looks_ms: vec![1, 2, 5, 10, 20],
            holds_ms: vec![1, 2, 5, 10, 20, 50, 100],
            requests: 2_048,
            rotations: 4,
        }
    }

    /// Pairs of look and hold. A hold below the look is only another name for the look.
    pub(crate) fn cells(&self) -> Vec<(u32, u32)> {
        let of = |&look: &u32| self.holds_ms.iter().map(move |&hold| (look, hold));
        self.looks_ms.iter().flat_map(of).filter(|&(look, hold)| hold >= look).collect()
    }
}

/// One rotation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Rotation {
    pub(crate) throughput_per_second: f64,
    pub(crate) moves: usize,
    pub(crate) failed: u64,
    pub(crate) wait_pct: f64,
}

/// One look and hold; none for the rigid pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Cell {
    pub(crate) look_and_hold_ms: Option<(u32, u32)>,
    /// Those that count.
    pub(crate) rotations: Vec<Rotation>,
}

impl Cell {
    pub(crate) fn throughput(&self) -> Option<Spread> {
        let values: Vec<f64> = self.rotations.iter().map(|r| r.throughput_per_second).collect();
        Spread::of(&values)
    }

    /// Moves in a burst, of `sites` bursts in a rotation; mean.
    pub(crate) fn moves_per_burst(&self, sites: usize) -> f64 {
        let moves: usize = self.rotations.iter().map(|rotation| rotation.moves).sum();
        moves as f64 / (self.rotations.len() * sites).max(1) as f64
    }

    pub(crate) fn failed(&self) -> u64 {
        self.rotations.iter().map(|rotation| rotation.failed).sum()
    }

    pub(crate) fn wait_pct(&self) -> f64 {
        self.rotations.iter().map(|rotation| rotation.wait_pct).fold(0.0, f64::max)
    }

    pub(crate) fn is_disturbed(&self) -> bool {
        self.wait_pct() > WAIT_PCT_MAX
    }
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) grid: Grid,
    pub(crate) sites: usize,
    pub(crate) rigid: Cell,
    pub(crate) cells: Vec<Cell>,
}

impl Results {
    pub(crate) fn cell(&self, look_ms: u32, hold_ms: u32) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.look_and_hold_ms == Some((look_ms, hold_ms)))
    }

    /// Median throughput over that of the rigid pool.
    pub(crate) fn over_rigid(&self, cell: &Cell) -> Option<f64> {
        let rigid = self.rigid.throughput()?.median;
        Some(cell.throughput()?.median / rigid).filter(|ratio| ratio.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(look_and_hold_ms: Option<(u32, u32)>, rates: &[f64]) -> Cell {
        let rotation = |&rate: &f64| Rotation {
            throughput_per_second: rate,
            moves: 16,
            failed: 1,
            wait_pct: rate / 1_000.0,
        };
        Cell { look_and_hold_ms, rotations: rates.iter().map(rotation).collect() }
    }

    #[test]
    fn a_cell_is_compared_to_the_rigid_pool() {
        let results = Results {
            quick: true,
            grid: Grid::new(true),
            sites: 4,
            rigid: cell(None, &[4_000.0]),
            cells: vec![cell(Some((1, 2)), &[9_000.0, 8_000.0, 10_000.0])],
        };
        let found = results.cell(1, 2).unwrap();
        assert_eq!(results.over_rigid(found), Some(2.25));
        assert!((found.moves_per_burst(results.sites) - 4.0).abs() < 1e-9);
        assert_eq!((found.failed(), found.is_disturbed()), (3, true));
        assert!(results.cell(2, 2).is_none());
        assert_eq!(results.over_rigid(&cell(None, &[])), None);
    }

    #[test]
    fn no_cell_holds_shorter_than_it_looks_and_the_defaults_are_among_them() {
        for quick in [true, false] {
            let cells = Grid::new(quick).cells();
            assert!(cells.contains(&(1, 2)));
            assert!(cells.iter().all(|(look, hold)| hold >= look));
        }
    }
}
