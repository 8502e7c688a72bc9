//! Tables, raw data and the summary.

use super::measure::Cell;
use super::plan::{Kind, Proxy, Row};
use super::run::Results;
use crate::output::{Text, number, plain, shown, spread_json, table};
use crate::waits;
use load::stats::Spread;
use serde_json::{Map, Value, json};

/// What is asked for: name, most, and what we aim at.
const BOUNDS: [(&str, f64, f64); 5] = [
    ("cpu_over_nginx", 1.10, 0.95),
    ("cpu_over_haproxy", 1.05, 0.90),
    ("tls_cpu_over_nginx", 1.15, 1.15),
    ("h2_cpu_over_nginx", 1.10, 0.90),
    // Only in the long form.
    ("fixed_rate_cpu_over_nginx", 1.10, 0.95),
];

/// Where each ratio stands in the summary.
const RATIOS: [(&str, Kind, Proxy); 8] = [
    ("cpu_over_nginx", Kind::Saturated, Proxy::Nginx),
    ("cpu_over_haproxy", Kind::Saturated, Proxy::Haproxy),
    ("tls_cpu_over_nginx", Kind::Tls, Proxy::Nginx),
    ("h2_cpu_over_nginx", Kind::Http2, Proxy::Nginx),
    ("fixed_rate_cpu_over_nginx", Kind::FixedRate, Proxy::Nginx),
    ("fixed_rate_cpu_over_haproxy", Kind::FixedRate, Proxy::Haproxy),
    ("headers_cpu_over_nginx", Kind::Headers, Proxy::Nginx),
    ("headers_cpu_over_haproxy", Kind::Headers, Proxy::Haproxy),
];

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let (rounds, cell_s) = (results.plan.rounds, results.plan.cell_s);
    text.line(format!(
        "CPU time of the proxy per request: 1 KiB, connections kept on both sides, one thread \
         alone on its core;\nload and origin share another. {rounds} rounds of {cell_s} s in \
         changing order; medians, and lowest to highest.\n{}",
        results.versions.join(", ")
    ));
    for row in &results.plan.rows {
        text.line(format!("\n{}{}", row.kind.title(), remark(results, row.kind)));
        text.table(&rows(results, row));
    }
    text.line(format!("\nPolder is a pool of `polder up`, with its look every {LOOK_MS} ms."));
    if let Some(note) = waits::note(results.cells.wait_pct()) {
        text.line(note);
    }
    match results.cells.failed() {
        0 => {}
        failed => text.line(format!("{failed} requests failed")),
    }
    text.line(missed(&summary(results)));
    text.finish()
}

/// The product's default, which the pools of this figure keep.
const LOOK_MS: u32 = 1;

fn remark(results: &Results, kind: Kind) -> String {
    match kind {
        Kind::FixedRate => {
            let rate = results.fixed_rate.unwrap_or_default();
            format!(": {rate} requests/s for all (h2load)")
        }
        Kind::Tls => {
            let agreed: Vec<String> = results
                .ciphers
                .iter()
                .map(|(proxy, cipher)| format!("{} {cipher}", proxy.name()))
                .collect();
            format!(" (wrk, 64 connections); {}", agreed.join(", "))
        }
        Kind::Http2 => " (h2load, 16 connections, 8 streams)".to_owned(),
        Kind::Saturated | Kind::Headers => " (wrk, 64 connections)".to_owned(),
    }
}

fn rows(results: &Results, row: &Row) -> comfy_table::Table {
    let heads = [
        "",
        "us/request",
        "Polder's / its",
        "requests/s",
        "p50 us",
        "p99 us",
        "waited %",
        "failed",
    ];
    let mut table = table(heads);
    for &proxy in row.proxies {
        let spread = |value: fn(&Cell) -> f64| results.cells.spread(row.kind, proxy, value);
        let median = |value: fn(&Cell) -> f64, decimals| {
            shown(spread(value).map(|spread| spread.median), decimals)
        };
        let ratio = results.cells.ratio(row.kind, Proxy::Polder, proxy);
        let ratio = ratio.filter(|_| proxy != Proxy::Polder);
        table.add_row(vec![
            proxy.name().to_owned(),
            with_range(spread(|cell| cell.cpu_us), 2),
            with_range(ratio, 3),
            median(|cell| cell.per_second, 0),
            median(|cell| cell.p50_us, 0),
            median(|cell| cell.p99_us, 0),
            median(|cell| cell.wait_pct, 1),
            shown(spread(|cell| cell.failed as f64).map(|failed| failed.high), 0),
        ]);
    }
    table
}

fn with_range(spread: Option<Spread>, decimals: usize) -> String {
    let shown = |spread: Spread| {
        let [median, low, high] = [spread.median, spread.low, spread.high];
        format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    };
    spread.map_or_else(|| "-".to_owned(), shown)
}

fn missed(summary: &Value) -> String {
    let (mut missed, mut above) = (Vec::new(), Vec::new());
    for (name, most, aim) in BOUNDS {
        // The short form has no row for some.
        let Some(value) = summary.get(name) else { continue };
        match value.as_f64() {
            Some(value) if value > most => missed.push(format!("{name} {value:.3} (most {most})")),
            Some(value) if value > aim => above.push(format!("{name} {value:.3} (aim {aim})")),
            Some(_) => {}
            None => missed.push(format!("{name} was not measured")),
        }
    }
    let met = "All that was asked of this figure is met.".to_owned();
    let aims = |line: String| match above.is_empty() {
        true => line,
        false => format!("{line} Above the aims: {}", above.join("; ")),
    };
    if missed.is_empty() { aims(met) } else { aims(format!("Missed: {}.", missed.join("; "))) }
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let mut summary = Map::new();
    for (name, kind, peer) in RATIOS {
        let row = results.plan.rows.iter().find(|row| row.kind == kind);
        if row.is_some_and(|row| row.proxies.contains(&peer)) {
            let ratio = results.cells.ratio(kind, Proxy::Polder, peer);
            summary.insert(name.to_owned(), number(ratio.map(|ratio| ratio.median)));
        }
    }
    summary.insert("failed_requests".to_owned(), json!(results.cells.failed()));
    summary.insert("waited_for_cpu_pct".to_owned(), number(Some(results.cells.wait_pct())));
    summary.insert("quick".to_owned(), json!(results.quick));
    Value::Object(summary)
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let ratios: Map<String, Value> = RATIOS
        .into_iter()
        .map(|(name, kind, peer)| {
            (name.to_owned(), spread_json(results.cells.ratio(kind, Proxy::Polder, peer)))
        })
        .collect();
    json!({
        "versions": results.versions,
        "ciphers": results.ciphers,
        "rounds": results.plan.rounds,
        "cell_s": results.plan.cell_s,
        "fixed_rate_per_second": results.fixed_rate,
        "ratios": ratios,
        "cells": plain(&results.cells.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_named_and_what_is_not_measured_too() {
        let good = json!({
            "cpu_over_nginx": 0.9, "cpu_over_haproxy": 0.8, "tls_cpu_over_nginx": 1.1,
            "h2_cpu_over_nginx": 0.8,
        });
        assert_eq!(missed(&good), "All that was asked of this figure is met.");
        let mut bad = good.clone();
        bad["cpu_over_nginx"] = json!(1.05);
        bad["tls_cpu_over_nginx"] = json!(1.3);
        bad["h2_cpu_over_nginx"] = Value::Null;
        let line = missed(&bad);
        for part in ["aims: cpu_over_nginx 1.050", "tls_cpu_over_nginx 1.300 (most", "h2_cpu_over"]
        {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn numbers_stand_with_their_range() {
        let spread = Spread::of(&[1.0, 2.0, 4.0]);
        assert_eq!(with_range(spread, 1), "2.0 (1.0 to 4.0)");
        assert_eq!(with_range(None, 1), "-");
    }
}
