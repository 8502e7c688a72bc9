//! Tables, raw data and the summary of the figure with Apache.

use super::nodes::{NodeCapacity, deviation_pct, stated_per_second};
use super::{BURN_US, DOCUMENT, Results, SCHEMES};
use crate::burst::measure::{Cell, quantiles};
use crate::burst::plan::LONG;
use crate::burst::report::{moves_line, size_name};
use crate::burst::scenario::{B, Scheme};
use crate::output::{Text, number, plain, shown, spread_json, table};
use crate::waits;
use load::stats::median;
use serde_json::{Value, json};

/// What is asked of the figure.
const RATIO_MIN: f64 = 2.3;

/// What all nodes should serve, and the worst deviation from it in percent.
struct Stated {
    per_second: Option<f64>,
    worst_pct: Option<f64>,
}

fn stated(results: &Results) -> Stated {
    let all: Vec<&NodeCapacity> = results.capacities.iter().flat_map(|(_, nodes)| nodes).collect();
    let per_second = stated_per_second(results.quota, &all);
    let deviations = per_second
        .into_iter()
        .flat_map(|stated| all.iter().map(move |one| deviation_pct(stated, one)));
    let worst_pct = deviations.max_by(|one, other| one.abs().total_cmp(&other.abs()));
    Stated { per_second, worst_pct }
}

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let quota = results.quota;
    let (look, hold) = results.look_and_hold_ms;
    let usable = f64::from(B.usable);
    text.line(format!(
        "Apache httpd (prefork), {} bytes, {BURN_US} us burnt by each request beside its cost.\n\
         Nodes: {:.0} % of a core ({} us in {} us, control groups of version {}); at most {} of \
         them busy\nat once: {:.1} of {} cores. Both pools: look {look} ms, hold {hold} ms, one \
         edge of one thread,\n64 requests in flight.",
        DOCUMENT.bytes,
        100.0 * quota.cores(),
        quota.quota_us(),
        quota.period_us(),
        if results.groups == lab::Version::V1 { 1 } else { 2 },
        B.usable,
        usable * quota.cores(),
        std::thread::available_parallelism().map_or(0, usize::from),
    ));
    let stated = stated(results);
    text.line(format!(
        "\nEach node alone: {} requests/s by its quota and the median cost of a request; worst \
         deviation {} %",
        shown(stated.per_second, 0),
        shown(stated.worst_pct, 1),
    ));
    text.table(&capacity_table(results, stated.per_second));
    text.line(format!("\nScenario {}; requests/s, medians", B.title()));
    text.table(&throughput_table(results));
    text.line(moves_line(&results.measured));
    let worst = results.measured.cells.iter().map(Cell::wait_pct).fold(0.0, f64::max);
    if let Some(note) = waits::note(worst) {
        text.line(note);
    }
    text.line(verdict(results.measured.ratio(Scheme::Reconf, Scheme::Rigid, LONG)));
    text.finish()
}

fn capacity_table(results: &Results, stated: Option<f64>) -> comfy_table::Table {
    let heads = ["node", "requests/s", "deviation %", "CPU us", "quota used %", "stopped %"];
    let mut rows = table(heads);
    for (scheme, nodes) in &results.capacities {
        for one in nodes {
            rows.add_row([
                format!("{} {}", scheme.name(), one.node),
                format!("{:.0}", one.per_second),
                shown(stated.map(|stated| deviation_pct(stated, one)), 1),
                format!("{:.0}", one.cpu_us),
                format!("{:.1}", one.used_pct),
                format!("{:.0}", one.throttled_pct),
            ]);
        }
    }
    rows
}

fn throughput_table(results: &Results) -> comfy_table::Table {
    let heads = [
        "burst",
        "scheme",
        "requests/s",
        "spread %",
        "over rigid",
        "use of all nodes %",
        "Apache us",
        "edge us",
        "generator us",
        "waited %",
    ];
    let mut rows = table(heads);
    for requests in results.measured.sizes() {
        for scheme in SCHEMES {
            let Some(cell) = results.measured.cell(scheme, requests) else { continue };
            let spread = cell.throughput();
            let cost = cell.cost();
            let [apache_us, used_pct] = used(results, scheme, requests);
            rows.add_row([
                size_name(requests),
                scheme.name().to_owned(),
                shown(spread.map(|spread| spread.median), 0),
                shown(spread.map(|spread| 100.0 * spread.relative()), 1),
                shown(results.measured.ratio(scheme, Scheme::Rigid, requests), 2),
                shown(used_pct, 1),
                shown(apache_us, 0),
                format!("{:.1}", cost.edge_us),
                format!("{:.1}", cost.generator_us),
                format!("{:.1}", cost.wait_pct),
            ]);
        }
    }
    rows
}

/// Medians over rotations: CPU time of Apache for each request, and the use of all usable nodes.
fn used(results: &Results, scheme: Scheme, requests: u64) -> [Option<f64>; 2] {
    let fits = |one: &&super::Use| one.scheme == scheme && one.requests_per_burst == requests;
    [|one: &super::Use| one.apache_us, |one: &super::Use| one.used_pct].map(|part| {
        let values: Vec<f64> = results.uses.iter().filter(fits).map(part).collect();
        median(&values)
    })
}

fn verdict(ratio: Option<f64>) -> String {
    if ratio.is_some_and(|ratio| ratio >= RATIO_MIN) {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: reconf_over_rigid_16k {} (wanted at least {RATIO_MIN})", shown(ratio, 3))
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let measured = &results.measured;
    let per_second = |scheme| {
        let spread = measured.cell(scheme, LONG).and_then(Cell::throughput);
        number(spread.map(|spread| spread.median))
    };
    let stated = stated(results);
    let worst = measured.cells.iter().map(Cell::wait_pct).fold(0.0, f64::max);
    json!({
        "apps": "apache",
        "reconf_over_rigid_16k": number(measured.ratio(Scheme::Reconf, Scheme::Rigid, LONG)),
        "rigid_per_second_16k": per_second(Scheme::Rigid),
        "reconf_per_second_16k": per_second(Scheme::Reconf),
        "failed_requests": measured.failed(),
        "moves": measured.moves(),
        "move_ms_p99": number(quantiles(&measured.move_ms())[1]),
        "react_ms_p99": number(quantiles(&measured.react_ms())[1]),
        "node_cores": results.quota.cores(),
        "quota_us": results.quota.quota_us(),
        "period_us": results.quota.period_us(),
        "capacity_per_second": number(stated.per_second),
        "capacity_deviation_pct": number(stated.worst_pct),
        "look_every_ms": results.look_and_hold_ms.0,
        "hold_ms": results.look_and_hold_ms.1,
        "waited_for_cpu_pct": number(Some(worst)),
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let cell = |cell: &Cell| {
        let mut value = plain(cell);
        value["throughput_per_second"] = spread_json(cell.throughput());
        let fits = |one: &&super::Use| {
            one.scheme == cell.scheme && one.requests_per_burst == cell.requests
        };
        value["use"] = plain(&results.uses.iter().filter(fits).collect::<Vec<_>>());
        value
    };
    let nodes = |one: &(Scheme, Vec<NodeCapacity>)| {
        let (scheme, nodes) = (one.0.name(), plain(&one.1));
        json!({ "scheme": scheme, "nodes": nodes })
    };
    json!({
        "capacities": results.capacities.iter().map(nodes).collect::<Vec<_>>(),
        "cells": results.measured.cells.iter().map(cell).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::burst::measure::Measured;
    use lab::Quota;

    #[test]
    fn an_empty_run_has_all_keys_and_misses_what_is_asked() {
        let results = Results {
            quick: true,
            quota: Quota::of_core(0.2).unwrap(),
            groups: lab::Version::V2,
            capacities: vec![(Scheme::Rigid, vec![])],
            uses: vec![],
            measured: Measured { scenario: B, cells: vec![] },
            look_and_hold_ms: (1, 2),
        };
        let summary = summary(&results);
        assert_eq!(summary["reconf_over_rigid_16k"], Value::Null);
        assert_eq!((&summary["quota_us"], &summary["period_us"]), (&json!(1_000), &json!(5_000)));
        let text = text(&results);
        assert!(text.contains("Missed") && text.contains("20 % of a core"), "{text}");
        assert!(raw(&results)["cells"].as_array().is_some_and(Vec::is_empty));
        assert!(verdict(Some(2.31)).starts_with("All"));
    }
}
