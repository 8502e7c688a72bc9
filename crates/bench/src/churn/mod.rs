//! Moves: as many as they go while every request is counted; few under a load that changes faster
//! than `hold_ms`; none, and next to no CPU time, while nothing happens.
//!
//! ```text
//! churn    64 connections alternate between two sites just slowly enough that all nodes follow
//! square   64 in flight alternate every half hold: no site is loaded for long enough
//! slow     the same every ten holds: the nodes follow
//! idle     one edge and eight agents without a request
//! ```

mod figures;
mod measure;
mod report;
mod run;
mod sampler;

use crate::output::Output;
use load::generate::Cancel;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    figures::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}
