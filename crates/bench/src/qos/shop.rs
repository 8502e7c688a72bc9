//! The cases with real servers: the shop of `examples/shop`, Apache httpd and PHP-FPM on each node
//! and one MariaDB behind all.
//!
//! A node's capacity follows from its PHP processes and the time that a payment provider takes for
//! an order, in which nothing is computed: a machine of two cores has room for eight such nodes.
//! What is counted last is what a shop counts: the orders in the database.

use super::cases::{Case, CaseRound, CaseRun, Documents, in_rig};
use super::plan::FILE_BYTES;
use super::pools::{self, HIGH, LOW, POLICIES, minimum};
use crate::output::{Output, Text, number, plain, table};
use crate::progress::Progress;
use anyhow::{Context as _, bail, ensure};
use http::Method;
use lab::{Shop, ShopOptions};
use load::generate::Cancel;
use polder::rig::{Rig, RigServers};
use polder::settings::PolicyName;
use serde_json::json;
use std::time::Duration;

/// Requests that a node takes at once; one more PHP process is for checks.
const AT_ONCE: u16 = 4;
/// What payment takes: together with what an order computes (a few ms), 40 orders/s for a node.
const PAYMENT: Duration = Duration::from_millis(95);
const EXPECTED_PER_S: f64 = 40.0;
/// Orders of a burst; it is cut after so long.
const REQUESTS: u64 = 2_048;
const CUT: Duration = Duration::from_secs(12);
const CUT_QUICK: Duration = Duration::from_millis(1_500);
/// Requests in flight of a loaded site: four times what all nodes take at once.
const IN_FLIGHT: usize = 128;
/// Servers of a shop take longer than the product's default hold to settle.
const LOOK_AND_HOLD_MS: (u32, u32) = (10, 50);

/// Measures and prints.
pub(super) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let cut = if output.quick { CUT_QUICK } else { CUT };
    let expected_s = cut.as_secs_f64() * (Case::ALL.len() * POLICIES.len()) as f64;
    let mut progress = Progress::new(expected_s);
    progress.say("starting the database");
    let options = ShopOptions { children: AT_ONCE + 1, payment: PAYMENT };
    let shop = Shop::start(options).context("the shop")?;
    let mut runs = Vec::new();
    for policy in POLICIES {
        for case in Case::ALL {
            progress.say(&format!("case {}, {}", case.number(), policy.name()));
            let round = CaseRound {
                case,
                documents: Documents::Single(FILE_BYTES),
                requests: REQUESTS,
                cut: Some(cut),
            };
            runs.push(one(&shop, round, policy, cancel)?);
            progress.did(cut.as_secs_f64());
        }
    }
    let answered: u64 = runs.iter().flat_map(|run| &run.sites).map(|site| site.ok).sum();
    let orders = shop.orders(None)?;
    let failed: u64 = runs.iter().flat_map(|run| &run.sites).map(|site| site.failed).sum();
    let summary = json!({
        "high_priority_gain_case1": number(gain(&runs)),
        "hard_met_pct": hard_met_pct(&runs),
        "orders": orders,
        "answers_201": answered,
        "failed_requests": failed,
        "quick": output.quick,
    });
    let text = text(&runs, orders, answered);
    output.finish(&text, &json!({ "cases": plain(&runs) }), &summary)?;
    ensure!(orders == answered, "{answered} orders were confirmed, {orders} are in the database");
    Ok(())
}

fn one(
    shop: &Shop,
    round: CaseRound,
    policy: PolicyName,
    cancel: &Cancel,
) -> anyhow::Result<CaseRun> {
    let mut options = pools::prioritised(policy, FILE_BYTES);
    options.cancel = cancel.clone();
    options.servers = RigServers::Command(shop.command());
    options.node.max_in_flight = u32::from(AT_ONCE);
    (options.look_every_ms, options.hold_ms) = (Some(LOOK_AND_HOLD_MS.0), Some(LOOK_AND_HOLD_MS.1));
    let rig = Rig::start(&options)?;
    let mut load = rig.load();
    load.method = Method::POST;
    Shop::ORDER_PATH.clone_into(&mut load.path);
    load.in_flight = IN_FLIGHT;
    let run = in_rig(&rig, &load, round, policy, cancel)?;
    if cancel.is_cancelled() {
        bail!("interrupted");
    }
    Ok(run)
}

fn gain(runs: &[CaseRun]) -> Option<f64> {
    let high = |policy| {
        let run = runs.iter().find(|run| (run.case, run.policy) == (Case::LowFirst, policy))?;
        Some(run.sites[HIGH].per_second)
    };
    let (mine, base): (f64, f64) = (high(PolicyName::ReconfPq)?, high(PolicyName::Reconf)?);
    (base > 0.0).then(|| mine / base)
}

fn hard_met_pct(runs: &[CaseRun]) -> Option<f64> {
    let guarded = runs.iter().filter(|run| run.policy == PolicyName::ReconfPq);
    guarded.flat_map(|run| run.sites.iter().map(|site| site.hard_met_pct)).reduce(f64::min)
}

fn text(runs: &[CaseRun], orders: u64, answered: u64) -> String {
    let mut text = Text::default();
    let (look, hold) = LOOK_AND_HOLD_MS;
    text.line(format!(
        "The shop: Apache httpd, PHP-FPM with {AT_ONCE} orders at once for each of {} nodes, one \
         MariaDB; payment takes {} ms:\nabout {EXPECTED_PER_S} orders/s for each node. Look {look} \
         ms, hold {hold} ms. Bursts of {REQUESTS} orders, cut short.",
        pools::NODES,
        PAYMENT.as_millis(),
    ));
    let mut rows = table([
        "case",
        "policy",
        "minimum",
        "high/s",
        "low/s",
        "hard % h/l",
        "soft % h/l",
        "moves",
    ]);
    for run in runs {
        let [high, low] = [&run.sites[HIGH], &run.sites[LOW]];
        rows.add_row([
            run.case.number().to_string(),
            run.policy.name().to_owned(),
            minimum(run.policy).to_string(),
            format!("{:.0}", high.per_second),
            format!("{:.0}", low.per_second),
            format!("{:.1} / {:.1}", high.hard_met_pct, low.hard_met_pct),
            format!("{:.1} / {:.1}", high.soft_met_pct, low.soft_met_pct),
            run.moves.to_string(),
        ]);
    }
    text.table(&rows);
    runs.iter().filter_map(CaseRun::failures).for_each(|failures| text.line(failures));
    text.line(format!("{answered} orders were confirmed, {orders} are in the database."));
    text.finish()
}
