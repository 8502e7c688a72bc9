//! Throughput and moves over `look_every_ms` and `hold_ms`: how fast must an edge look, and how
//! long may it wait, until moving nodes no longer pays? Our own figure; the paper names both
//! ("sensitivity") and shows neither.
//!
//! Scenario B of the bursts, policy `reconf`, bursts of one length in rotations; a rigid pool
//! beside it in the same run is what all cells are compared to.

mod measure;
mod report;
mod run;

use crate::output::Output;
use load::generate::Cancel;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    report::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}
