//! What validation of a hit costs over shared memory: the calls that an edge makes, on the table of
//! a running pool.

use anyhow::{Context as _, ensure};
use load::clock::now_ns;
use load::stats::median;
use remote_memory::shm::attach;
use shared_state::versions::{Slot, VersionTable};
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

/// Entries, each with tags of its own: together they touch more words than a cache of the CPU has.
const ENTRIES: usize = 4_096;
/// Entries between two looks at the clock.
const BATCH: usize = 64;
/// Passes over all entries; the first one brings the memory in and does not count.
const PASSES: usize = 6;
/// A pool that serves answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Nanoseconds for an entry of so many tags, nothing of which changes meanwhile.
pub(super) fn validation_ns(socket: &Path, tags: usize) -> anyhow::Result<f64> {
    let attachment = attach(socket, PATIENCE)?;
    let table = VersionTable::open(attachment.region())?;
    let filled = table.fill().context("the table is closed")?;
    let entry = |entry: usize| {
        let tags: Vec<String> = (0..tags).map(|tag| format!("bench-{entry}-{tag}")).collect();
        table.slots_of(&tags)
    };
    let entries: Vec<Vec<Slot>> = (0..ENTRIES).map(entry).collect();
    let mut samples = Vec::new();
    for pass in 0..PASSES {
        for batch in entries.chunks(BATCH) {
            let start_ns = now_ns();
            let valid = batch.iter().filter(|slots| table.is_valid(black_box(filled), slots));
            let valid = black_box(valid.count());
            let taken_ns = now_ns() - start_ns;
            ensure!(valid == batch.len(), "an entry was void whose tags nobody has changed");
            if pass > 0 {
                samples.push(taken_ns as f64 / batch.len() as f64);
            }
        }
    }
    median(&samples).context("there was a pass")
}
