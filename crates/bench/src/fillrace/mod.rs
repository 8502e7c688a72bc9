//! The fill race: data changes while a cache still fetches the page that was made of it.
//!
//! ```text
//! 0.0 s   a client asks for a page; the origin reads its data, and renders for a second
//! 0.4 s   the data changes, and the cache is told: ours by begin, commit, end over the writers'
//!         socket; Varnish by PURGE, xkey.purge or ban behind the commit
//! 1.0 s   the origin answers with what it had read, fresh for an hour
//! then    the page is asked for three times more: no answer may be older than the data, and the
//!         last must be a hit
//! ```
//!
//! A purge removes what is stored. What is in flight it does not meet, and that is stored behind
//! it. Races run ten at a time, at a pool of Polder and at Varnish side by side.

mod measure;
mod origin;
mod plan;
mod race;
mod report;
mod run;

use crate::output::Output;
use anyhow::ensure;
use load::generate::Cancel;
use serde_json::Value;

/// Measures and prints. Fails if the races show nothing, and if Polder lost one.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let measured = run::measure(output.quick, cancel)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))?;
    ensure!(report::is_shown(&measured), "void: {}", report::VOID);
    ensure!(measured.ours.stale() == 0, "Polder served {} stale pages", measured.ours.stale());
    Ok(())
}

/// The least form, for tests.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    Ok(report::summary(&run::measure_plan(true, plan::least(), cancel)?))
}
