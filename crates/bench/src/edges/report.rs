//! Tables, raw data and the summary.

use super::measure::Cell;
use super::plan::{LOAD_SHARE, NODES, SERVICE, Tier, WORKERS, rate_per_second};
use super::run::Results;
use crate::output::{Text, number, plain, shown, spread_json, table};
use crate::waits;
use load::stats::Spread;
use serde_json::{Map, Value, json};

/// The most that the p99 of several edges may be of that of one.
const P99_OVER_ONE_MAX: f64 = 1.10;

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let plan = &results.plan;
    text.line(format!(
        "{NODES} nodes of {WORKERS} workers, {} ms for a request; an open load (Poisson) of {:.0} \
         requests/s, {:.0} % of what they can.\nEdges have one thread each. Independent edges are \
         pools of their own before the same servers: each counts\nonly its own requests, with the \
         same limit for each server. {} rounds of {:.1} s in turn; medians, and \
         lowest\nto highest.",
        SERVICE.as_millis(),
        rate_per_second(),
        100.0 * LOAD_SHARE,
        plan.rounds,
        plan.cell.as_secs_f64(),
    ));
    text.table(&rows(results));
    if let Some(note) = waits::note(results.cells.wait_pct()) {
        text.line(note);
    }
    text.line(missed(&summary(results)));
    text.finish()
}

fn rows(results: &Results) -> comfy_table::Table {
    let heads = [
        "",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "p99 over 1 edge",
        "edge us/request",
        "late",
        "failed",
        "waited %",
    ];
    let mut rows = table(heads);
    for &tier in &results.plan.tiers {
        let spread = |value: fn(&Cell) -> f64| results.cells.spread(tier, value);
        let median = |value: fn(&Cell) -> f64, decimals| {
            shown(spread(value).map(|spread| spread.median), decimals)
        };
        let most = |value: fn(&Cell) -> f64| shown(spread(value).map(|spread| spread.high), 0);
        let ratio = results.cells.over_one(tier, |cell| cell.p99_ms);
        rows.add_row(vec![
            tier.name(),
            median(|cell| cell.p50_ms, 2),
            with_range(spread(|cell| cell.p99_ms), 2),
            median(|cell| cell.p999_ms, 2),
            with_range(ratio.filter(|_| tier != Tier::ONE), 3),
            median(|cell| cell.cost.edge_us, 1),
            most(|cell| cell.late as f64),
            most(|cell| cell.failed as f64),
            median(|cell| cell.cost.wait_pct, 1),
        ]);
    }
    rows
}

fn with_range(spread: Option<Spread>, decimals: usize) -> String {
    let shown = |spread: Spread| {
        let [median, low, high] = [spread.median, spread.low, spread.high];
        format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    };
    spread.map_or_else(|| "-".to_owned(), shown)
}

fn missed(summary: &Value) -> String {
    let mut missed = Vec::new();
    let ratio = summary["p99_4_edges_over_1"].as_f64();
    if ratio.is_none_or(|ratio| ratio > P99_OVER_ONE_MAX) {
        missed.push(format!("p99_4_edges_over_1 {} (most {P99_OVER_ONE_MAX})", shown(ratio, 3)));
    }
    if summary["failed_requests"] != json!(0) {
        missed.push(format!("{} requests failed", summary["failed_requests"]));
    }
    if missed.is_empty() {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: {}", missed.join("; "))
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let mut summary = Map::new();
    let p99_over_one = |tier| {
        let ratio = results.cells.over_one(tier, |cell| cell.p99_ms);
        number(ratio.map(|ratio| ratio.median))
    };
    for &tier in results.plan.tiers.iter().filter(|tier| **tier != Tier::ONE) {
        let kind = if tier.shares { "" } else { "independent_" };
        let name = format!("p99_{kind}{}_edges_over_1", tier.edges);
        summary.insert(name, p99_over_one(tier));
    }
    summary.insert("p99_independent_over_1".to_owned(), p99_over_one(Tier::independent(4)));
    summary.insert("failed_requests".to_owned(), json!(results.cells.failed()));
    summary.insert("waited_for_cpu_pct".to_owned(), number(Some(results.cells.wait_pct())));
    summary.insert("quick".to_owned(), json!(results.quick));
    Value::Object(summary)
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let over_one = |&tier: &Tier| {
        let ratio = results.cells.over_one(tier, |cell| cell.p99_ms);
        json!({ "tier": plain(&tier), "p99_over_one": spread_json(ratio) })
    };
    json!({
        "rounds": results.plan.rounds,
        "cell_s": results.plan.cell.as_secs_f64(),
        "rate_per_second": rate_per_second(),
        "tiers": results.plan.tiers.iter().map(over_one).collect::<Vec<_>>(),
        "cells": plain(&results.cells.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_named() {
        let good = json!({ "p99_4_edges_over_1": 1.02, "failed_requests": 0 });
        assert!(missed(&good).starts_with("All"));
        let bad = json!({ "p99_4_edges_over_1": 1.2, "failed_requests": 3 });
        let line = missed(&bad);
        assert!(line.contains("1.200 (most 1.1)") && line.contains("3 requests"), "{line}");
        assert!(missed(&json!({ "failed_requests": 0 })).contains("over_1 -"));
    }
}
