//! What a proxied request costs: CPU time of the proxy per request, Polder beside nginx and
//! HAProxy.
//!
//! ```text
//! core A   the proxy that is measured, one thread (the others run too, and are idle)
//! core B   load (wrk, h2load) and an origin that answers 1 KiB from memory
//! ```
//!
//! All keep connections on both sides, remove hop-by-hop fields, say `X-Forwarded-For`, `-Proto`
//! and `-Host`, have time-outs, and write no access log; Polder's request ids and traces are off,
//! for the others make none. Polder is a whole pool as `polder up` runs it: its look loop and its
//! dispatcher are in the figure, for all threads of the edge's process are counted. Cells of a
//! second or two follow each other in an order that changes from round to round; a ratio is the
//! median of the rounds' ratios.

mod figures;
mod measure;
pub(crate) mod origin;
mod peers;
mod plan;
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
