//! Several edges before the same servers: does it matter for a client that they are several?
//!
//! ```text
//! one          one edge
//! shared       k edges of one pool: each sees what all have in flight
//! independent  k pools of one edge before the same servers: each counts only its own, as any
//!              balancer with least-connections does that shares nothing with its neighbours
//! ```
//!
//! All have the same servers (one stub process, 10 ms for a request) and take turns under the same
//! open load: 70 % of what the servers can, at times drawn from a seed that is the round's.

mod figures;
mod measure;
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
