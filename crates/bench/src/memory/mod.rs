//! What it costs to read the state of a node that is busy: figures 5 and 6 of the paper.
//!
//! ```text
//! core A   the owner of a node record, a process of its own, with all its threads:
//!          nothing else, or threads that compute, or threads that talk over TCP
//! core B   the reader
//! ```
//!
//! `shm` is the checked read of a look: the agent's status under its seqlock, and the assignment.
//! Over `tcp` the same is read in one batch; and one 8-byte word, the assignment, beside a plain
//! TCP ping-pong of the same shape in the same run. One-sided reads do not care what the owner
//! does; everything that the owner must answer does.

mod figures;
mod measure;
pub(crate) mod owner;
mod plan;
mod reader;
mod report;
mod run;

use crate::output::Output;
use anyhow::Context as _;
use load::generate::Cancel;
use load::stats::median;
use serde_json::Value;
use std::time::Duration;

/// Rounds of [`tcp_over_ping_pong`], and how long each of its two ways lasts in one.
const PING_PONG_ROUNDS: usize = 5;
const PING_PONG_LASTS: Duration = Duration::from_millis(100);

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    figures::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}

/// The p50 of a word over `tcp` in plain text over that of a ping-pong, of an idle owner: whether
/// `tcp` is here what it should be. Blocks for a second or two.
pub(crate) fn tcp_over_ping_pong() -> anyhow::Result<f64> {
    median(&run::over_ping_pong(PING_PONG_ROUNDS, PING_PONG_LASTS)?).context("there was a round")
}

/// The least form, for tests: its main numbers mean little.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    Ok(report::summary(&run::measure_plan(true, plan::least(), cancel)?))
}
