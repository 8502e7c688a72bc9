//! What an idle connection costs: memory of an edge that holds as many kept connections as it may
//! have, each of which has served a request.
//!
//! Clients are a process of their own and come from several loopback addresses, for one has too few
//! ports. What the kernel holds for its sockets is not in the figure: it is the same for everyone.

pub(crate) mod clients;
mod report;
mod run;

use crate::output::Output;
use load::generate::Cancel;
use serde_json::Value;

/// Measures and prints.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}

/// The least form, for tests: its main numbers mean little.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    Ok(report::summary(&run::measure_least(cancel)?))
}
