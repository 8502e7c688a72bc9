//! Tables, raw data and the summary.

use super::measure::{MILESTONES, Measured, quantiles};
use super::plan::{LONG, SHORT};
use super::run::{CAPACITY_DEVIATION_MAX, Results};
use super::scenario::{B, Scheme};
use crate::output::{Text, number, plain, shown, spread_json, table};
use crate::waits;
use polder::rig::RigNode;
use serde_json::{Value, json};

use Scheme::{OverProvisioned, Reconf, Rigid};

/// What the issue of this figure asks for, beside what was measured.
const FLOORS: [(&str, f64); 3] = [
    ("reconf_over_rigid_16k", 2.4),
    ("reconf_over_overprovisioned_16k", 0.97),
    ("reconf_over_rigid_512", 2.0),
];
/// The same for what may not be exceeded.
const CEILINGS: [(&str, f64); 3] =
    [("move_ms_p99", 5.0), ("react_ms_p99", 10.0), ("failed_requests", 0.0)];

/// `512`, `1K`, ... `16K`.
pub(super) fn size_name(requests: u64) -> String {
    if requests.is_multiple_of(1_024) {
        format!("{}K", requests / 1_024)
    } else {
        requests.to_string()
    }
}

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let (look, hold) = results.look_and_hold_ms;
    let node = RigNode::default();
    text.line(format!(
        "All pools: look {look} ms, hold {hold} ms, one edge of one thread, 64 requests in \
         flight,\nin turn on all cores.\n\
         Nodes: {} workers, {} ms, max_in_flight {}: {:.0} requests/s.",
        node.workers,
        node.service_time.as_millis(),
        node.max_in_flight,
        node.capacity_per_second(),
    ));
    text.line(capacity_line(results));
    for measured in &results.scenarios {
        text.line(format!("\nScenario {}; requests/s, medians", measured.scenario.title()));
        text.table(&throughput_table(measured));
        text.line("Share of the time in which all usable nodes are fully used; CPU time; waits");
        text.table(&use_table(measured));
        text.line("Time to the k-th response of a burst, medians; ms");
        text.table(&penalty_table(measured));
        text.line(behind_line(measured));
        text.line(moves_line(measured));
        let worst = measured.cells.iter().map(super::measure::Cell::wait_pct).fold(0.0, f64::max);
        if let Some(note) = waits::note(worst) {
            text.line(note);
        }
    }
    text.line(floors_line(&summary(results)));
    text.finish()
}

fn capacity_line(results: &Results) -> String {
    let each: Vec<String> = results
        .capacities
        .iter()
        .map(|one| format!("{:.1} ({:+.2} %)", one.measured_per_second, 100.0 * one.deviation()))
        .collect();
    let limit = 100.0 * CAPACITY_DEVIATION_MAX;
    let exact = is_exact(results);
    let verdict = if exact { "within" } else { "NOT WITHIN" };
    format!("Measured at one node: {} requests/s: {verdict} {limit:.0} %.", each.join(", "))
}

fn is_exact(results: &Results) -> bool {
    let last = results.capacities.last();
    last.is_some_and(|one| one.deviation().abs() <= CAPACITY_DEVIATION_MAX)
}

fn throughput_table(measured: &Measured) -> comfy_table::Table {
    let mut rows = table([
        "burst",
        "rigid",
        "reconf",
        "over-prov.",
        "spread %",
        "reconf/rigid",
        "reconf/over",
    ]);
    for requests in measured.sizes() {
        let of =
            |scheme| measured.cell(scheme, requests).and_then(super::measure::Cell::throughput);
        let spreads = Scheme::ALL.map(of);
        let medians = spreads.map(|spread| shown(spread.map(|s| s.median), 0));
        let wide = spreads.map(|spread| shown(spread.map(|s| 100.0 * s.relative()), 1));
        let mut row = vec![size_name(requests)];
        row.extend(medians);
        row.push(wide.join(" / "));
        row.push(shown(measured.ratio(Reconf, Rigid, requests), 2));
        row.push(shown(measured.ratio(Reconf, OverProvisioned, requests), 3));
        rows.add_row(row);
    }
    rows
}

fn use_table(measured: &Measured) -> comfy_table::Table {
    let mut rows = table([
        "burst",
        "scheme",
        "full use %",
        "generator us",
        "edge us",
        "stub us",
        "waited %",
        "disturbed",
    ]);
    for requests in measured.sizes() {
        for scheme in Scheme::ALL {
            let Some(cell) = measured.cell(scheme, requests) else { continue };
            let cost = cell.cost();
            let costs = [cost.generator_us, cost.edge_us, cost.stub_us, cost.wait_pct];
            let mut row = vec![size_name(requests), scheme.name().to_owned()];
            row.push(shown(cell.full_use_pct(), 1));
            row.extend(costs.map(|cost| format!("{cost:.1}")));
            row.push(format!("{} of {}", cell.disturbed(), cell.rotations.len()));
            rows.add_row(row);
        }
    }
    rows
}

fn penalty_table(measured: &Measured) -> comfy_table::Table {
    let mut heads = vec!["burst".to_owned(), "scheme".to_owned()];
    heads.extend(MILESTONES.iter().map(|k| format!("{k}th")));
    heads.push("penalty to the 64th".to_owned());
    let mut rows = table(heads);
    for requests in measured.sizes() {
        let rigid = measured.cell(Rigid, requests).map(super::measure::Cell::milestones_ms);
        for scheme in Scheme::ALL {
            let Some(cell) = measured.cell(scheme, requests) else { continue };
            let times = cell.milestones_ms();
            let base = rigid.as_ref().and_then(|rigid| rigid[0]);
            let penalty = times[0].zip(base).map(|(mine, base)| mine - base);
            let mut row = vec![size_name(requests), scheme.name().to_owned()];
            row.extend(times.iter().map(|time| shown(*time, 1)));
            row.push(penalty.map_or_else(|| "-".into(), |ms| format!("{ms:+.1}")));
            rows.add_row(row);
        }
    }
    rows
}

/// What the next site pays for nodes that it has lent: responses that it lacks at first.
fn behind_line(measured: &Measured) -> String {
    let beginning = |scheme| measured.cell(scheme, SHORT).map(super::measure::Cell::beginning);
    let (Some(rigid), Some(reconf)) = (beginning(Rigid), beginning(Reconf)) else {
        return String::new();
    };
    match behind(&rigid, &reconf) {
        None => "A burst of 512 under reconf is never behind rigid.".to_owned(),
        Some((until_ms, most)) => format!(
            "A burst of 512 under reconf is behind rigid until {until_ms} ms after its start, by \
             at most {most:.0} responses."
        ),
    }
}

/// The last millisecond at which `mine` is below `base`, and by how much at most. Both hold counts
/// after 1, 2, ... milliseconds.
fn behind(base: &[f64], mine: &[f64]) -> Option<(usize, f64)> {
    let lacks: Vec<f64> = base.iter().zip(mine).map(|(base, mine)| base - mine).collect();
    let last = lacks.iter().rposition(|&lack| lack > 0.0)?;
    Some((last + 1, lacks.iter().copied().fold(0.0, f64::max)))
}

pub(super) fn moves_line(measured: &Measured) -> String {
    let show = |values: &[f64]| {
        let [median, p99, max] = quantiles(values).map(|value| shown(value, 2));
        format!("median {median}, p99 {p99}, max {max} ({} of them)", values.len())
    };
    format!(
        "{} moves in {} bursts; move_ms {}; react_ms {}; failed requests {}",
        measured.moves(),
        measured.reconf_bursts(),
        show(&measured.move_ms()),
        show(&measured.react_ms()),
        measured.failed(),
    )
}

fn floors_line(summary: &Value) -> String {
    let value = |name: &str| summary[name].as_f64();
    let mut missed = Vec::new();
    for (name, floor) in FLOORS {
        if value(name).is_none_or(|value| value < floor) {
            missed.push(format!("{name} {} (wanted at least {floor})", shown(value(name), 3)));
        }
    }
    for (name, most) in CEILINGS {
        if value(name).is_none_or(|value| value > most) {
            missed.push(format!("{name} {} (wanted at most {most})", shown(value(name), 3)));
        }
    }
    if missed.is_empty() {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: {}", missed.join("; "))
}

/// The main numbers: ratios of scenario B; failures and moves of all scenarios; percentiles of the
/// scenario in which they are worst.
pub(super) fn summary(results: &Results) -> Value {
    let b = results.scenarios.iter().find(|measured| measured.scenario == B);
    let ratio = |over, requests| number(b.and_then(|b| b.ratio(Reconf, over, requests)));
    let worst_p99 = |of: fn(&Measured) -> Vec<f64>| {
        let each = results.scenarios.iter().filter_map(|measured| quantiles(&of(measured))[1]);
        number(each.reduce(f64::max))
    };
    let cells = results.scenarios.iter().flat_map(|measured| &measured.cells);
    let disturbed: usize = cells.clone().map(super::measure::Cell::disturbed).sum();
    let worst = cells.map(super::measure::Cell::wait_pct).fold(0.0, f64::max);
    let capacity = results.capacities.last().map(|one| 100.0 * one.deviation());
    json!({
        "reconf_over_rigid_512": ratio(Rigid, SHORT),
        "reconf_over_rigid_16k": ratio(Rigid, LONG),
        "reconf_over_overprovisioned_16k": ratio(OverProvisioned, LONG),
        "failed_requests": results.scenarios.iter().map(Measured::failed).sum::<u64>(),
        "moves": results.scenarios.iter().map(Measured::moves).sum::<usize>(),
        "move_ms_p99": worst_p99(Measured::move_ms),
        "react_ms_p99": worst_p99(Measured::react_ms),
        "look_every_ms": results.look_and_hold_ms.0,
        "hold_ms": results.look_and_hold_ms.1,
        "capacity_deviation_pct": number(capacity),
        "disturbed_rotations": disturbed,
        "waited_for_cpu_pct": number(Some(worst)),
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let scenario = |measured: &Measured| {
        let cell = |cell: &super::measure::Cell| {
            let mut value = plain(cell);
            value["throughput_per_second"] = spread_json(cell.throughput());
            value["fully_used_nodes_of_a_typical_rotation"] =
                plain(&cell.typical().map(|rotation| &rotation.used_nodes));
            value["full_use_pct"] = number(cell.full_use_pct());
            value["waited_for_cpu_pct"] = number(Some(cell.wait_pct()));
            value
        };
        let behind = |scheme| {
            let beginning = |scheme| Some(measured.cell(scheme, SHORT)?.beginning());
            behind(&beginning(Rigid)?, &beginning(scheme)?)
        };
        json!({
            "reconf_behind_rigid_until_ms_by_responses": behind(Reconf),
            "name": measured.scenario.name,
            "nodes": measured.scenario.nodes,
            "usable_nodes": measured.scenario.usable,
            "cells": measured.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    };
    json!({
        "capacity_per_second":
            results.capacities.iter().map(|one| one.measured_per_second).collect::<Vec<_>>(),
        "milestones": MILESTONES,
        "scenarios": results.scenarios.iter().map(scenario).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_their_usual_names() {
        assert_eq!([512, 1_024, 16_384].map(size_name), ["512", "1K", "16K"]);
    }

    #[test]
    fn what_is_missed_is_named_and_nothing_measured_counts_as_missed() {
        let good = json!({
            "reconf_over_rigid_512": 2.1, "reconf_over_rigid_16k": 2.45,
            "reconf_over_overprovisioned_16k": 0.99, "failed_requests": 0,
            "move_ms_p99": 1.0, "react_ms_p99": 4.0,
        });
        assert!(floors_line(&good).starts_with("All"));
        let mut bad = good.clone();
        bad["reconf_over_rigid_512"] = json!(1.9);
        bad["failed_requests"] = json!(1);
        bad["move_ms_p99"] = Value::Null;
        let line = floors_line(&bad);
        for name in ["reconf_over_rigid_512 1.900", "failed_requests 1", "move_ms_p99 -"] {
            assert!(line.contains(name), "{line}");
        }
    }

    #[test]
    fn being_behind_has_an_end_and_a_worst_moment() {
        assert_eq!(behind(&[4.0, 8.0, 12.0, 16.0], &[2.0, 3.0, 11.0, 20.0]), Some((3, 5.0)));
        assert_eq!(behind(&[1.0, 2.0], &[1.0, 3.0]), None);
    }

    #[test]
    fn an_empty_run_has_all_keys_and_no_numbers() {
        let results = Results {
            quick: true,
            capacities: vec![],
            look_and_hold_ms: (1, 2),
            scenarios: vec![],
        };
        let summary = summary(&results);
        assert_eq!(summary["reconf_over_rigid_512"], Value::Null);
        assert_eq!(summary["failed_requests"], 0);
        assert!(text(&results).contains("Missed"));
        assert!(raw(&results)["scenarios"].as_array().is_some_and(Vec::is_empty));
    }
}
