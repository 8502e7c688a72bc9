//! What the runs showed, as a table and as JSON.

use super::plan::Plan;
use super::runs::Done;
use comfy_table::{CellAlignment, Table, presets};
use policy::Kind;
use serde_json::{Value, json};
use sim::SiteTotals;
use std::fmt::Write as _;

/// For people. Sites of a single run one by one; of several runs a line each.
pub(super) fn text(plan: &Plan, runs: &[Done]) -> String {
    let mut text = head(plan, runs);
    match runs {
        [one] => of_one(&mut text, plan, one),
        all => of_many(&mut text, plan, all),
    }
    text
}

fn head(plan: &Plan, runs: &[Done]) -> String {
    let arrived = runs.first().map_or(0.0, |done| done.outcome.arrived());
    let seconds = plan.duration_ns as f64 / 1e9;
    let kind = if plan.has_requests() { "requests" } else { "requests, as rates" };
    let sites = plan.names.join(", ");
    format!("{arrived:.0} {kind} for {sites} in {seconds:.1} s\n\n")
}

fn table<const N: usize>(heads: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heads);
    for (place, column) in table.column_iter_mut().enumerate() {
        let side = if place == 0 { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
        column.set_padding((0, 2));
    }
    table
}

fn of_one(text: &mut String, plan: &Plan, done: &Done) {
    let heads =
        ["SITE", "REQUESTS", "SERVED", "LATE", "P50", "P99", "OBJECTIVE", "NODES", "BELOW HARD"];
    let mut rows = table(heads);
    for (place, name) in plan.names.iter().enumerate() {
        let site = &done.outcome.sites[place];
        rows.add_row([
            name.clone(),
            format!("{:.0}", site.arrived),
            format!("{:.0}", site.served),
            percent(1.0 - site.in_time()),
            quantile(plan, site, 0.5),
            quantile(plan, site, 0.99),
            format!("{} ms", plan.objective_ms(place)),
            nodes_of(done, place),
            below(site.below_hard_ns),
        ]);
    }
    let _ = writeln!(text, "{}\n", rows.trim_fmt());
    let moves = done.outcome.moves_total;
    let _ = writeln!(
        text,
        "{} on {} nodes: {moves} moves, {} late",
        done.run.policy,
        done.run.nodes,
        percent(done.outcome.slow_share())
    );
    let said = if done.is_enough(plan.enough) { "are enough" } else { "are not enough" };
    let _ = writeln!(
        text,
        "{} nodes {said} for {} of each site's requests in time",
        done.run.nodes,
        percent(plan.enough)
    );
}

fn of_many(text: &mut String, plan: &Plan, runs: &[Done]) {
    let heads =
        ["POLICY", "NODES", "SERVED", "LATE", "WORST SITE", "P99", "MOVES", "BELOW HARD", "ENOUGH"];
    let mut rows = table(heads);
    for done in runs {
        let outcome = &done.outcome;
        let worst = worst(done);
        let served: f64 = outcome.sites.iter().map(|site| site.served).sum();
        let below_ns = outcome.sites.iter().map(|site| site.below_hard_ns).max().unwrap_or(0);
        rows.add_row([
            done.run.policy.name().to_owned(),
            done.run.nodes.to_string(),
            format!("{served:.0}"),
            percent(outcome.slow_share()),
            format!("{} {}", plan.names[worst], percent(1.0 - outcome.sites[worst].in_time())),
            quantile(plan, &outcome.sites[worst], 0.99),
            outcome.moves_total.to_string(),
            below(below_ns),
            if done.is_enough(plan.enough) { "yes" } else { "no" }.to_owned(),
        ]);
    }
    let _ = writeln!(text, "{}\n", rows.trim_fmt());
    for (policy, least) in fewest(plan, runs) {
        let said = match least {
            Some(nodes) => format!("{nodes} nodes are enough"),
            None => "none of these numbers of nodes is enough".to_owned(),
        };
        let _ = writeln!(
            text,
            "{policy}: {said} for {} of each site's requests in time",
            percent(plan.enough)
        );
    }
}

/// For each policy the fewest nodes that are enough, in the order of the runs.
fn fewest(plan: &Plan, runs: &[Done]) -> Vec<(Kind, Option<u16>)> {
    let mut found: Vec<(Kind, Option<u16>)> = Vec::new();
    for done in runs {
        let enough = done.is_enough(plan.enough).then_some(done.run.nodes);
        match found.iter_mut().find(|(policy, _)| *policy == done.run.policy) {
            Some((_, least)) => *least = least.or(enough),
            None => found.push((done.run.policy, enough)),
        }
    }
    found
}

/// The site with the largest share of late requests.
fn worst(done: &Done) -> usize {
    let sites = done.outcome.sites.iter().enumerate();
    sites.min_by(|a, b| a.1.in_time().total_cmp(&b.1.in_time())).map_or(0, |(place, _)| place)
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let decimals = if percent == 0.0 || percent >= 10.0 { 1 } else { 2 };
    format!("{percent:.decimals$} %")
}

fn quantile(plan: &Plan, site: &SiteTotals, share: f64) -> String {
    if !plan.has_requests() || site.latency.count() == 0 {
        return "-".to_owned();
    }
    let us = site.latency.quantile_us(share);
    if us < 1_000_000 {
        format!("{:.1} ms", us as f64 / 1e3)
    } else {
        format!("{:.2} s", us as f64 / 1e6)
    }
}

/// Fewest and most nodes of a site, in whole windows of time, up to the last request.
fn nodes_of(done: &Done, place: usize) -> String {
    let nodes = during(done, place).map(|window| window.nodes);
    let (least, most) = nodes
        .fold((f64::INFINITY, 0.0_f64), |(least, most), nodes| (least.min(nodes), most.max(nodes)));
    if least > most { "-".to_owned() } else { format!("{least:.0}..{most:.0}") }
}

/// The windows of a site that lie within the traffic.
pub(super) fn during(done: &Done, place: usize) -> impl Iterator<Item = &sim::Window> {
    let windows = &done.outcome.windows[place];
    windows.iter().take(done.windows)
}

fn below(ns: u64) -> String {
    if ns == 0 { "never".to_owned() } else { format!("{:.0} ms", ns as f64 / 1e6) }
}

/// For machines.
pub(super) fn json(plan: &Plan, runs: &[Done]) -> Value {
    let runs_json: Vec<Value> = runs.iter().map(|done| run_json(plan, done)).collect();
    let fewest = fewest(plan, runs)
        .into_iter()
        .map(|(policy, least)| (policy.name().to_owned(), least.map_or(Value::Null, Value::from)));
    json!({
        "seconds": plan.duration_ns as f64 / 1e9,
        "enough_pct": 100.0 * plan.enough,
        "fewest_nodes": fewest.collect::<serde_json::Map<_, _>>(),
        "runs": runs_json,
    })
}

fn run_json(plan: &Plan, done: &Done) -> Value {
    let outcome = &done.outcome;
    let site = |(place, name): (usize, &String)| {
        let totals = &outcome.sites[place];
        let us = |share| match totals.latency.count() {
            0 => Value::Null,
            _ => Value::from(totals.latency.quantile_us(share)),
        };
        let nodes: Vec<f64> = during(done, place).map(|window| round(window.nodes)).collect();
        let site = json!({
            "requests": round(totals.arrived),
            "served": round(totals.served),
            "late": round(totals.slow),
            "refused": round(totals.refused),
            "left": round(totals.left),
            "late_share": 1.0 - totals.in_time(),
            "objective_ms": plan.objective_ms(place),
            "latency_us_p50": us(0.5),
            "latency_us_p99": us(0.99),
            "hard": plan.guarantee(place).hard,
            "below_hard_ms": totals.below_hard_ns as f64 / 1e6,
            "below_soft_ms": totals.below_soft_ns as f64 / 1e6,
            "nodes": nodes,
        });
        (name.clone(), site)
    };
    json!({
        "policy": done.run.policy.name(),
        "nodes": done.run.nodes,
        "late_share": outcome.slow_share(),
        "moves": outcome.moves_total,
        "enough": done.is_enough(plan.enough),
        "history": format!("{:016x}", outcome.history_hash),
        "sites": plan.names.iter().enumerate().map(site).collect::<serde_json::Map<_, _>>(),
    })
}

/// Three decimals: amounts of rates are no whole numbers.
fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
