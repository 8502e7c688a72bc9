//! Tables, raw data and the summary.

use super::changes::Kind;
use super::measure::{Cell, Under};
use super::mixes::Mix;
use super::plan::{CONNECTIONS, MANY, Scheme};
use super::run::{PAGE_TAGS, Results, Validation};
use super::validation::Meanwhile;
use crate::output::{Text, number, plain, shown, spread_json, table};
use load::stats::Spread;
use serde_json::{Map, Value, json};

/// What is asked for: name, least, and what we aim at.
const LEAST: [(&str, f64, f64); 7] = [
    ("strict_over_nocache_200", 100.0, 100.0),
    ("strict_over_tcp_polling_200", 5.0, 10.0),
    ("strict_over_tcp_fifo_200", 1.0, 1.0),
    ("strict_over_nginx_reval_200", 100.0, 100.0),
    ("strict_over_unvalidated_own", 0.97, 0.97),
    ("strict_over_varnish_hit", 1.5, 2.2),
    ("strict_over_nginx_hit", 1.1, 1.3),
];
/// The same with the most.
const MOST: [(&str, f64); 4] = [
    ("loss_points_over_unvalidated", 3.0),
    ("validation_share_pct_200", 1.0),
    ("tags100_ns", 1_500.0),
    ("tags100_by_own_words_ns", 1_500.0),
];
/// Hits again, with load on the other core.
const ALONE: [(&str, Scheme); 4] = [
    ("strict_over_unvalidated_own_load_elsewhere", Scheme::Unvalidated),
    ("strict_over_varnish_hit_load_elsewhere", Scheme::VarnishHit),
    ("strict_over_nginx_hit_load_elsewhere", Scheme::NginxHit),
    ("strict_over_nginx_static_load_elsewhere", Scheme::NginxStatic),
];
/// The most that a word over `tcp` may cost, as a multiple of a ping-pong, for rows of `tcp`.
const TCP_OVER_PING_PONG_MAX: f64 = 1.3;

/// Of the 1,000 advances in a second so many must have been made.
const TICKS_MIN: f64 = 950.0;

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    text.line(format!(
        "An application (Apache httpd, PHP-FPM, MariaDB; a page of 8 KB takes one row) on one \
         core, with threads that compute;\nwhat stands in front of it on another, with its load \
         (wrk, {CONNECTIONS} connections; elsewhere where said). Medians of the rounds; {}.",
        results.versions.join(", ")
    ));
    for under in conditions(results) {
        text.line(format!("\n{}", title(under)));
        text.table(&rows(results, under));
    }
    text.line("\nWhere the time of an answer goes; one connection, p50, microseconds");
    text.table(&stages(results));
    text.line("\nValidation of an entry over shared memory, a table of 128 MiB; nanoseconds");
    text.table(&validation(results));
    text.line(format!(
        "A word over plain tcp takes {} times a ping-pong here (rows of tcp are void above \
         {TCP_OVER_PING_PONG_MAX}).",
        shown(results.tcp_over_ping_pong, 2)
    ));
    let slowest = results
        .cells
        .0
        .iter()
        .filter(|cell| cell.under.changes == Kind::Ticks && !cell.under.is_short);
    let slowest = slowest.map(|cell| cell.changes_per_second).fold(f64::INFINITY, f64::min);
    if slowest < TICKS_MIN {
        text.line(format!(
            "disturbed: the tag of no page advanced only {slowest:.0} times a second"
        ));
    }
    for lack in &results.lacking {
        text.line(format!("Not measured: {lack}"));
    }
    match results.cells.failed() {
        0 => {}
        failed => text.line(format!("{failed} requests failed")),
    }
    text.line(verdict(&summary(results)));
    text.finish()
}

/// All conditions with a cell, in their order.
fn conditions(results: &Results) -> Vec<Under> {
    let mut all: Vec<Under> = Vec::new();
    for cell in &results.cells.0 {
        if !all.contains(&cell.under) {
            all.push(cell.under);
        }
    }
    all
}

fn title(under: Under) -> String {
    let changes = match under.changes {
        Kind::Updates => "a page changes each second",
        Kind::Ticks => "a tag of no page advances 1,000 times a second",
    };
    let edges = if under.edges == 1 { "" } else { ", three edges" };
    let one = if under.connections == 1 { ", one connection" } else { "" };
    let alone = if under.is_alone { ", load on the other core" } else { "" };
    let short = if under.is_short { ", short turns, our own load" } else { "" };
    format!("{}, {} threads{edges}{one}{alone}{short}; {changes}", under.mix.name(), under.threads)
}

fn rows(results: &Results, under: Under) -> comfy_table::Table {
    let heads = [
        "",
        "requests/s",
        "strict / it",
        "p50 us",
        "p99 us",
        "cache us/request",
        "load us/request",
        "changes/s",
    ];
    let mut rows = table(heads);
    for scheme in Scheme::ALL {
        let median = |value: fn(&Cell) -> f64, decimals| {
            shown(results.cells.median(under, scheme, value), decimals)
        };
        if results.cells.median(under, scheme, |cell| cell.per_second).is_none() {
            continue;
        }
        let ratio = results.cells.ratio(under, Scheme::Strict, scheme);
        rows.add_row(vec![
            scheme.name().to_owned(),
            median(|cell| cell.per_second, 0),
            with_range(ratio.filter(|_| scheme != Scheme::Strict)),
            median(|cell| cell.p50_us, 0),
            median(|cell| cell.p99_us, 0),
            median(|cell| cell.cache_us, 2),
            median(|cell| cell.load_us, 2),
            median(|cell| cell.changes_per_second, 1),
        ]);
    }
    rows
}

fn with_range(spread: Option<Spread>) -> String {
    let shown = |spread: Spread| {
        let decimals = if spread.median < 10.0 { 3 } else { 0 };
        let [median, low, high] = [spread.median, spread.low, spread.high];
        format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
    };
    spread.map_or_else(|| "-".to_owned(), shown)
}

/// The conditions of one connection.
fn alone(threads: u32) -> Under {
    Under { connections: 1, ..Under::ticks(threads) }
}

fn p50_us(results: &Results, scheme: Scheme, threads: u32) -> Option<f64> {
    results.cells.median(alone(threads), scheme, |cell| cell.p50_us)
}

fn validation_ns(
    results: &Results,
    tags: usize,
    threads: u32,
    meanwhile: Meanwhile,
) -> Option<f64> {
    let of =
        |one: &&Validation| (one.tags, one.threads, one.meanwhile) == (tags, threads, meanwhile);
    results.validation.iter().find(of).map(|one| one.ns)
}

/// Nanoseconds of the validation of a page's entry, by the table.
fn page_validation_ns(results: &Results, threads: u32) -> Option<f64> {
    validation_ns(results, PAGE_TAGS, threads, Meanwhile::Nothing)
}

/// What a scheme spends beyond the same cache's hit that validates nothing.
fn beyond(scheme: Scheme) -> Option<Scheme> {
    match scheme {
        Scheme::NoCache | Scheme::StrictTcp | Scheme::StrictTcpFifo => Some(Scheme::Unvalidated),
        Scheme::NginxAsks => Some(Scheme::NginxHit),
        Scheme::VarnishAsks => Some(Scheme::VarnishHit),
        _ => None,
    }
}

fn stages(results: &Results) -> comfy_table::Table {
    let heads = [
        "",
        "threads",
        "whole",
        "client, kernel, cache",
        "validation",
        "application or its machine",
    ];
    let mut rows = table(heads);
    let mut threads: Vec<u32> = conditions(results).iter().map(|under| under.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    for threads in threads {
        for scheme in Scheme::ALL {
            let Some(whole) = p50_us(results, scheme, threads) else { continue };
            let validation = match scheme {
                Scheme::Strict => page_validation_ns(results, threads).map(|ns| ns / 1e3),
                _ => None,
            };
            let asked = beyond(scheme).and_then(|hit| Some(whole - p50_us(results, hit, threads)?));
            let rest = whole - validation.unwrap_or(0.0) - asked.unwrap_or(0.0);
            rows.add_row(vec![
                scheme.name().to_owned(),
                threads.to_string(),
                shown(Some(whole), 1),
                shown(Some(rest).filter(|_| beyond(scheme).is_none() || asked.is_some()), 1),
                shown(validation, 3),
                shown(asked, 1),
            ]);
        }
    }
    rows
}

fn validation(results: &Results) -> comfy_table::Table {
    let mut tags: Vec<usize> = results.validation.iter().map(|one| one.tags).collect();
    tags.sort_unstable();
    tags.dedup();
    let heads = ["threads", "changed meanwhile"].map(str::to_owned).into_iter();
    let mut rows = table(heads.chain(tags.iter().map(|tags| format!("{tags} tags"))));
    let mut of: Vec<_> =
        results.validation.iter().map(|one| (one.meanwhile, one.threads)).collect();
    of.sort_unstable();
    of.dedup();
    for (meanwhile, threads) in of {
        let what = match meanwhile {
            Meanwhile::Nothing => "nothing",
            Meanwhile::Others => "100,000 other tags",
        };
        let ns = |&tags: &usize| shown(validation_ns(results, tags, threads, meanwhile), 1);
        rows.add_row([threads.to_string(), what.to_owned()].into_iter().chain(tags.iter().map(ns)));
    }
    rows
}

/// Whether rows of `tcp` count.
fn is_tcp_fit(results: &Results) -> bool {
    results.tcp_over_ping_pong.is_some_and(|ratio| ratio <= TCP_OVER_PING_PONG_MAX)
}

/// The ratios of the summary, with their spread.
fn ratios(results: &Results) -> Vec<(&'static str, Option<Spread>)> {
    let cells = &results.cells;
    let loaded = |other| cells.ratio(Under::updates(MANY), Scheme::Strict, other);
    let far = |other| loaded(other).filter(|_| is_tcp_fit(results));
    let hit = |other| cells.cpu_ratio(Under::ticks(0), Scheme::Strict, other);
    let own = cells.cpu_ratio(Under::duel(0), Scheme::Strict, Scheme::Unvalidated);
    vec![
        ("strict_over_nocache_200", loaded(Scheme::NoCache)),
        ("strict_over_tcp_polling_200", far(Scheme::StrictTcp)),
        ("strict_over_tcp_fifo_200", far(Scheme::StrictTcpFifo)),
        ("strict_over_nginx_reval_200", loaded(Scheme::NginxAsks)),
        ("strict_over_varnish_reval_200", loaded(Scheme::VarnishAsks)),
        ("strict_over_unvalidated_own", own),
        ("strict_over_varnish_hit", hit(Scheme::VarnishHit)),
        ("strict_over_nginx_hit", hit(Scheme::NginxHit)),
        ("strict_over_nginx_static", hit(Scheme::NginxStatic)),
    ]
}

/// Of the p50 of an answer over one connection, so much is validation; percent.
fn validation_share_pct(results: &Results) -> Option<f64> {
    let ns = page_validation_ns(results, MANY)?;
    Some(100.0 * ns / 1e3 / p50_us(results, Scheme::Strict, MANY)?)
}

/// The main numbers; null is what was not measured.
pub(super) fn summary(results: &Results) -> Value {
    let mut summary = Map::new();
    for (name, ratio) in ratios(results) {
        summary.insert(name.to_owned(), number(ratio.map(|ratio| ratio.median)));
    }
    let tags100 = |meanwhile| number(validation_ns(results, 100, 0, meanwhile));
    let mut put = |name: &str, value| drop(summary.insert(name.to_owned(), value));
    // Only in the long form.
    for (name, other) in ALONE {
        let ratio = results.cells.cpu_ratio(Under::alone(), Scheme::Strict, other);
        if let Some(ratio) = ratio {
            put(name, number(Some(ratio.median)));
        }
    }
    put("loss_points_over_unvalidated", number(results.cells.loss_points(MANY)));
    put("validation_share_pct_200", number(validation_share_pct(results)));
    put("tags100_ns", tags100(Meanwhile::Nothing));
    put("tags100_by_own_words_ns", tags100(Meanwhile::Others));
    put("tcp_over_pingpong", number(results.tcp_over_ping_pong));
    put("failed_requests", json!(results.cells.failed()));
    put("quick", json!(results.quick));
    Value::Object(summary)
}

fn verdict(summary: &Value) -> String {
    let (mut missed, mut below) = (Vec::new(), Vec::new());
    for (name, least, aim) in LEAST {
        match summary[name].as_f64() {
            None => missed.push(format!("{name} was not measured")),
            Some(value) if value < least => {
                missed.push(format!("{name} {value:.3} (least {least})"));
            }
            Some(value) if value < aim => below.push(format!("{name} {value:.3} (aim {aim})")),
            Some(_) => {}
        }
    }
    for (name, most) in MOST {
        match summary[name].as_f64() {
            None => missed.push(format!("{name} was not measured")),
            Some(value) if value > most => missed.push(format!("{name} {value:.3} (most {most})")),
            Some(_) => {}
        }
    }
    let mut line = match missed.is_empty() {
        true => "All that was asked of this figure is met.".to_owned(),
        false => format!("Missed: {}.", missed.join("; ")),
    };
    if !below.is_empty() {
        line.push_str(&format!(" Below the aims: {}", below.join("; ")));
    }
    line
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let ratios: Map<String, Value> = ratios(results)
        .into_iter()
        .map(|(name, ratio)| (name.to_owned(), spread_json(ratio)))
        .collect();
    json!({
        "versions": results.versions,
        "ratios": ratios,
        "not_measured": results.lacking,
        "validation": plain(&results.validation),
        "mixes": results.plan.mixes().iter().map(|mix: &Mix| mix.name()).collect::<Vec<_>>(),
        "cells": plain(&results.cells.0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::measure::Cells;
    use super::super::plan::plan;
    use super::*;

    fn cell(under: Under, scheme: Scheme, per_second: f64) -> Cell {
        Cell {
            under,
            scheme,
            round: 0,
            per_second,
            p50_us: 1e6 / per_second,
            p99_us: 2e6 / per_second,
            requests: 1_000,
            failed: 0,
            cache_us: 1e6 / per_second,
            load_us: 4.0,
            changes_per_second: 1.0,
        }
    }

    fn results() -> Results {
        let mut cells = Vec::new();
        let rates = [50.0, 60.0, 40.0, 40_000.0, 5_000.0, 30_000.0];
        for (scheme, rate) in Scheme::ALL.into_iter().zip(rates) {
            cells.push(cell(Under::updates(MANY), scheme, rate));
        }
        for (scheme, rate) in Scheme::ALL.into_iter().zip(rates).skip(3) {
            cells.push(cell(alone(MANY), scheme, rate / 2.0));
        }
        for threads in [0, MANY] {
            let under = Under::ticks(threads);
            cells.push(cell(under, Scheme::Strict, 40_000.0));
            cells.push(cell(Under::duel(threads), Scheme::Strict, 40_000.0));
            cells.push(cell(Under::duel(threads), Scheme::Unvalidated, 40_000.0));
            cells.push(cell(alone(threads), Scheme::Unvalidated, 25_000.0));
        }
        for (scheme, rate) in [(Scheme::NginxHit, 25_000.0), (Scheme::VarnishHit, 16_000.0)] {
            cells.push(cell(Under::ticks(0), scheme, rate));
            cells.push(cell(Under::alone(), scheme, rate));
        }
        cells.push(cell(Under::alone(), Scheme::Strict, 20_000.0));
        let (nothing, others) = (Meanwhile::Nothing, Meanwhile::Others);
        let validation = [(0, 100, nothing, 900.0), (MANY, PAGE_TAGS, nothing, 50.0)];
        let validation = [&validation[..], &[(0, 100, others, 1_100.0)]].concat();
        let validation = validation.into_iter().map(|(threads, tags, meanwhile, ns)| Validation {
            threads,
            tags,
            meanwhile,
            ns,
        });
        Results {
            quick: true,
            plan: plan(true),
            cells: Cells(cells),
            validation: validation.collect(),
            tcp_over_ping_pong: Some(1.1),
            lacking: vec!["the moon: too far".to_owned()],
            versions: vec!["nginx 1".to_owned()],
        }
    }

    #[test]
    fn the_summary_has_all_that_is_asked_for() {
        let results = results();
        let summary = summary(&results);
        let about = |name: &str, wanted: f64| {
            let found = summary[name].as_f64();
            assert!(found.is_some_and(|found| (found - wanted).abs() < 1e-3), "{name}: {found:?}");
        };
        about("strict_over_nocache_200", 800.0);
        about("strict_over_tcp_polling_200", 8.0);
        about("strict_over_tcp_fifo_200", 1.333_33);
        about("strict_over_unvalidated_own", 1.0);
        about("strict_over_varnish_hit", 2.5);
        about("strict_over_nginx_hit", 1.6);
        about("loss_points_over_unvalidated", 0.0);
        about("validation_share_pct_200", 0.1);
        about("tags100_ns", 900.0);
        about("tags100_by_own_words_ns", 1_100.0);
        about("strict_over_varnish_hit_load_elsewhere", 1.25);
        assert_eq!(summary["strict_over_nginx_static"], Value::Null);
        assert_eq!(summary.get("strict_over_nginx_static_load_elsewhere"), None);
        let line = verdict(&summary);
        assert_eq!(
            line,
            "All that was asked of this figure is met. Below the aims: \
             strict_over_tcp_polling_200 8.000 (aim 10)"
        );
    }

    #[test]
    fn a_slow_tcp_voids_its_rows_and_what_is_missed_is_named() {
        let mut results = results();
        results.tcp_over_ping_pong = Some(1.4);
        results.validation.clear();
        let summary = summary(&results);
        assert_eq!(summary["strict_over_tcp_polling_200"], Value::Null);
        assert_eq!(summary["strict_over_tcp_fifo_200"], Value::Null);
        let line = verdict(&summary);
        for part in ["tcp_fifo_200 was not", "validation_share_pct_200 was not", "tags100_ns was"] {
            assert!(line.contains(part), "{line}");
        }
        let text = text(&results);
        assert!(text.contains("Not measured: the moon: too far"), "{text}");
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let text = stages(&results()).to_string();
        // The wait for the table: 400 us beyond the 40 of our own unvalidated hit.
        let row = text.lines().find(|line| line.contains("tcp, normal")).unwrap();
        for part in [" 400.0 ", " 40.0 ", " 360.0 "] {
            assert!(row.contains(part), "{row}");
        }
    }
}
