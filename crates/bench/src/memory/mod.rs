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
use load::generate::Cancel;
use serde_json::Value;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    figures::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}

/// The least form, for tests: its main numbers mean little.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    Ok(report::summary(&run::measure_plan(true, plan::least(), cancel)?))
}
