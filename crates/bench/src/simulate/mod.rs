//! The simulator's own figures: how fast the largest pool runs, what one decision costs, and what
//! thousands of seeds of faults do to the properties.
//!
//! Everything but the clock around it is virtual: two runs differ in their times only.

mod decision;
mod figures;
mod report;
mod run;
mod seeds;

use crate::output::Output;
use load::generate::Cancel;

/// Measures and prints.
pub(crate) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let results = run::measure(output.quick, cancel)?;
    for (part, figure) in figures::all(&results) {
        output.picture(part, figure)?;
    }
    let text = report::text(&results);
    output.finish(&text, &report::raw(&results), &report::summary(&results))?;
    let violations = results.seeds.violations + u64::from(results.late_moves() > 0);
    anyhow::ensure!(violations == 0, "{violations} seeds broke a property; see above");
    Ok(())
}

/// The least form, for tests: its main numbers mean little.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<serde_json::Value> {
    Ok(report::summary(&run::measure_least(cancel)?))
}
