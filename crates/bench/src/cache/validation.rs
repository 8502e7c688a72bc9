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
use writers::Client;
use writers::line::TAGS_MAX;

/// Entries, each with tags of its own: together they touch more words than a cache of the CPU has.
const ENTRIES: usize = 4_096;
/// Entries between two looks at the clock.
const BATCH: usize = 64;
/// Passes over all entries; the first one brings the memory in and does not count.
const PASSES: usize = 6;
/// A pool that serves answers at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Updates that reach nearly all groups of the default table, and next to none of the entries.
const OTHERS: usize = 100_000;

/// What changes in the table between the filling of the entries and their validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Meanwhile {
    /// Nothing: their summary words prove them.
    Nothing,
    /// So many other tags that each of their own words is read.
    Others,
}

/// Where a site's table is handed out, and where its writers are heard.
pub(super) struct Sockets<'a> {
    pub(super) tags: &'a Path,
    pub(super) writers: &'a Path,
}

/// Nanoseconds for an entry of so many tags, whose own words do not change meanwhile.
pub(super) fn validation_ns(
    sockets: &Sockets<'_>,
    tags: usize,
    meanwhile: Meanwhile,
) -> anyhow::Result<f64> {
    let attachment = attach(sockets.tags, PATIENCE)?;
    let table = VersionTable::open(attachment.region())?;
    let filled = table.fill().context("the table is closed")?;
    let entry = |entry: usize| {
        let tags: Vec<String> = (0..tags).map(|tag| format!("bench-{entry}-{tag}")).collect();
        table.slots_of(&tags)
    };
    let mut entries: Vec<Vec<Slot>> = (0..ENTRIES).map(entry).collect();
    if meanwhile == Meanwhile::Others {
        update_others(sockets.writers)?;
        // Some have a word in common with what was updated.
        entries.retain(|slots| table.is_valid(filled, slots));
        ensure!(entries.len() >= ENTRIES / 4, "too few entries are valid");
    }
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

fn update_others(writers: &Path) -> anyhow::Result<()> {
    let mut client = Client::connect(writers, PATIENCE)?;
    let others: Vec<String> = (0..OTHERS).map(|other| format!("bench-other-{other}")).collect();
    for some in others.chunks(TAGS_MAX) {
        client.invalidate(some)?;
    }
    Ok(())
}
