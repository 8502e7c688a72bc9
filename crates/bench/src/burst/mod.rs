//! Bursts of requests to one site after the other, as figures 7 to 9 of "Dynamic
//! reconfigurability" (in the papers) show them: throughput, nodes in use, and what a site pays
//! whose nodes have just been lent.
//!
//! Three pools run side by side: `rigid` leaves each node where it started, `reconf` moves them,
//! `over-provisioned` is `rigid` with as many nodes for every site as `reconf` could ever give it.
//! Their rotations take turns, so that what disturbs the machine disturbs all of them. A rotation
//! is one burst to each site; the next site's burst starts at the last response.

mod apache;
mod figures;
mod measure;
mod plan;
mod report;
mod run;
mod scenario;

pub(crate) use apache::Nodes;
pub(crate) use run::capacities;
pub(crate) use scenario::{B, Scheme};

use crate::cli::Apps;
use crate::output::Output;
use load::generate::Cancel;

/// Measures, prints, draws.
pub(crate) fn run(output: &Output, apps: Apps, cancel: &Cancel) -> anyhow::Result<()> {
    if apps == Apps::Apache {
        return apache::run(output, cancel);
    }
    let measured = run::measure(output.quick, cancel)?;
    figures::draw(output, &measured)?;
    let text = report::text(&measured);
    output.finish(&text, &report::raw(&measured), &report::summary(&measured))
}
