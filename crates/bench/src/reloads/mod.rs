//! Change without loss: reloads and upgrades of a pool under load, and every request counted.
//!
//! ```text
//! 64 connections, each with one request at a time, all the time; meanwhile
//! reloads    one after the other; each changes the settings of edges, sites and decisions
//! upgrades   the program is replaced by itself: parent, agents and edges, over running servers
//! ```

mod report;
mod run;

use crate::output::Output;
use load::generate::Cancel;

/// Measures and prints.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}
