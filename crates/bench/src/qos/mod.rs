//! Priorities and guarantees, as figures 6 to 11 of "Priorities and hard/soft guarantees" (in the
//! papers) show them, and what the project adds: an objective instead of numbers of nodes.
//!
//! - [`equal`]: two equal sites get bursts in turn, from 8 nodes that move, 8 that do not, and 14
//!   that do not (figures 6 and 7).
//! - [`cases`]: two sites of different priority. In case 1 the low one is loaded throughout and
//!   the high one gets a burst, in case 2 the other way round, in case 3 both get one at once
//!   (figures 8 to 10; with documents by Zipf's law, one half of figure 11).
//! - [`traces`]: recorded load of real sites (the other half, and the Azure pair).
//! - [`overload`]: two equal sites ask for more than there is: nothing moves for long.
//!
//! How long guarantees were met is computed from the recorded moves, at every instant, never from
//! samples.

mod azure;
mod cases;
mod equal;
mod figures;
mod overload;
mod plan;
mod pools;
mod report;
mod run;
mod shop;
mod streams;
pub(crate) mod traces;
pub(crate) mod zipf;

use crate::cli::QosApps;
use crate::output::Output;
use load::generate::Cancel;
use serde_json::Value;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, apps: QosApps, cancel: &Cancel) -> anyhow::Result<()> {
    if apps == QosApps::Shop {
        return shop::run(output, cancel);
    }
    let results = run::measure(output.quick, cancel)?;
    figures::draw(output, &results)?;
    output.finish(&report::text(&results), &report::raw(&results), &report::summary(&results))
}

/// The least form: all parts at work, small.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    run::least(cancel)
}
