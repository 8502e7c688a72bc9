//! Runs the grid, the rigid pool first and again after it.

use super::measure::{Cell, Grid, Results, Rotation};
use crate::burst::{B, Scheme};
use crate::progress::Progress;
use crate::waits::Cost;
use anyhow::bail;
use load::clock::ThreadTime;
use load::generate::{Cancel, Generator};
use polder::rig::{MoveLog, Rig};

/// What starting and stopping a pool takes, for the progress bar; seconds.
const START_S: f64 = 0.5;
/// Requests per second of the rigid pool and of the others at worst, for the progress bar.
const RATE_EXPECTED: f64 = 6_000.0;

/// Runs everything. Blocks for minutes.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let grid = Grid::new(quick);
    let cells = grid.cells();
    let sites = B.sites();
    let requests = grid.requests as f64 * (sites * grid.rotations) as f64;
    let each_s = START_S + requests / RATE_EXPECTED;
    let mut progress = Progress::new(each_s * (cells.len() + 2) as f64);
    let mut run = |look_and_hold_ms| -> anyhow::Result<Cell> {
        progress.say(&match look_and_hold_ms {
            Some((look, hold)) => format!("look {look} ms, hold {hold} ms"),
            None => "rigid".to_owned(),
        });
        let cell = cell(&grid, look_and_hold_ms, cancel)?;
        progress.did(each_s);
        Ok(cell)
    };
    let mut rigid = run(None)?;
    let mut measured = Vec::new();
    for (look, hold) in cells {
        measured.push(run(Some((look, hold)))?);
    }
    // Once more at the end: a machine that changed meanwhile shows in the spread.
    rigid.rotations.extend(run(None)?.rotations);
    Ok(Results { quick, grid, sites, rigid, cells: measured })
}

fn cell(
    grid: &Grid,
    look_and_hold_ms: Option<(u32, u32)>,
    cancel: &Cancel,
) -> anyhow::Result<Cell> {
    let scheme = if look_and_hold_ms.is_some() { Scheme::Reconf } else { Scheme::Rigid };
    let mut options = B.rig(scheme);
    options.cancel = cancel.clone();
    if let Some((look, hold)) = look_and_hold_ms {
        (options.look_every_ms, options.hold_ms) = (Some(look), Some(hold));
    }
    let rig = Rig::start(&options)?;
    let mut generator = Generator::new(rig.load())?;
    let mut rotations = Vec::new();
    for _ in 0..grid.rotations {
        rotations.push(rotation(&rig, &mut generator, grid.requests)?);
        if cancel.is_cancelled() {
            bail!("interrupted");
        }
    }
    rotations.remove(0);
    Ok(Cell { look_and_hold_ms, rotations })
}

fn rotation(rig: &Rig, generator: &mut Generator, requests: u64) -> anyhow::Result<Rotation> {
    let sites: Vec<usize> = (0..B.sites()).collect();
    let before = rig.cpu();
    let bursts = generator.rotate(&sites, requests, 1, &mut |_| {})?;
    let spent = rig.cpu().since(&before);
    let mut log = MoveLog::default();
    log.add(rig.moves()?);
    let start_ns = bursts.first().map_or(0, |burst| burst.start_ns);
    let end_ns = bursts.last().map_or(0, |burst| burst.end_ns);
    let (mut ok, mut failed, mut seconds) = (0, 0, 0.0);
    let mut generator_time = ThreadTime::default();
    for burst in &bursts {
        ok += burst.tally.ok;
        failed += burst.tally.failures.total();
        seconds += burst.seconds();
        generator_time.run_ns += burst.cpu.run_ns;
        generator_time.wait_ns += burst.cpu.wait_ns;
    }
    Ok(Rotation {
        throughput_per_second: ok as f64 / seconds,
        moves: log.decided_within(start_ns, end_ns).count(),
        failed,
        wait_pct: Cost::of(ok + failed, &spent, generator_time).wait_pct,
    })
}
