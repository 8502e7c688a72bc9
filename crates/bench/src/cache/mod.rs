//! Hits that are never stale: figures 6 to 8 of the paper, with the caches of today beside ours.
//!
//! ```text
//! core A   load (wrk) and what stands in front: edges of Polder, nginx, Varnish, in turn
//! core B   the application: Apache httpd, PHP-FPM, MariaDB; and 0, 50 or 200 threads that
//!          compute, each of which competes with each process of the application one to one
//! ```
//!
//! A page takes one row of the database and has 8 KB. Coherent schemes answer with nothing older
//! than what was committed when the request came: without a cache, by asking the application at
//! each hit, or by reading the version table of the application's machine: in shared memory, or by
//! `tcp` of a process there. They are compared while one of the pages changes each second; hits,
//! their cost and their loss under load while a tag that no page carries advances 1,000 times a
//! second. The long form measures hits also with load on core B, whose application is idle then.

pub(crate) mod application;
mod changes;
mod figures;
mod filling;
mod measure;
mod mixes;
mod peers;
mod plan;
mod report;
mod run;
mod validation;

use crate::output::Output;
use load::generate::Cancel;
use serde_json::Value;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    // The measuring thread stays on its core; whoever comes next has all cores again.
    let measured = std::thread::scope(|scope| {
        let measure = || run::measure(output.quick, cancel);
        scope.spawn(measure).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    figures::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}

/// The least form, for tests: its main numbers mean little.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    Ok(report::summary(&run::measure_plan(true, plan::least(), cancel)?))
}
