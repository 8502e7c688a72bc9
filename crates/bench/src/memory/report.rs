//! Tables, raw data and the summary.

use super::measure::{Cell, Cells};
use super::plan::{Busy, Way};
use super::reader::{BATCH, STOPPED_PATIENCE};
use super::run::Results;
use crate::output::{Text, number, plain, shown, spread_json, table};
use load::stats::Spread;
use serde_json::{Value, json};

/// The most that a checked read may cost; nanoseconds.
const SHM_NS_MAX: f64 = 60.0;
/// How much more it may cost with 200 threads on the owner's core.
const SHM_200_FACTOR_MAX: f64 = 1.5;
/// The most that a word over `tcp` may cost, as a multiple of a ping-pong: encrypted, plain.
const TCP_OVER_PING_PONG_MAX: [f64; 2] = [1.3, 1.2];

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let rounds = results.plan.rounds;
    text.line(format!(
        "Reads of a node record whose owner is a process on another core; {rounds} rounds, medians \
         of the rounds.\nshm: status and assignment, checked, in batches of {BATCH}, the clock \
         subtracted; p99.9 is that of the batches.\ntcp: the same in one batch, or one word; the \
         ping-pong sends as many bytes as a word takes.\nThe threads that answer run at {} \
         priority.\n\nMicroseconds for one read, p50 and p99.9, by what the owner's core does \
         beside",
        results.priority
    ));
    text.table(&by_load(results));
    text.line("\nOn an idle owner");
    text.table(&idle(&results.cells));
    if !results.sizes.is_empty() {
        text.line("\nReads of several lengths on an idle owner, us (p50)");
        text.table(&by_size(results));
    }
    let stopped = &results.stopped;
    text.line(format!(
        "\nWith the owner stopped (SIGSTOP): {} checked reads over shm, {} ns each; tcp {} within \
         {} ms",
        stopped.shm_reads,
        shown(stopped.shm_p50_ns, 1),
        if stopped.tcp_answers { "answered (which it should not)" } else { "did not answer" },
        STOPPED_PATIENCE.as_millis(),
    ));
    text.line(missed(&summary(results)));
    text.finish()
}

fn by_load(results: &Results) -> comfy_table::Table {
    let heads = results.plan.busy.iter().map(|busy| busy.name());
    let mut rows = table(std::iter::once("").chain(heads));
    for way in Way::ALL {
        let cell = |&busy: &Busy| {
            let us = |value: fn(&Cell) -> f64| {
                let spread = results.cells.spread(way, busy, |cell| Some(value(cell)));
                let us = spread.map(|spread| spread.median / 1e3);
                // What takes nanoseconds needs their digits.
                shown(us, if way == Way::Shm { 4 } else { 1 })
            };
            format!("{} / {}", us(|cell| cell.p50_ns), us(|cell| cell.p999_ns))
        };
        let cells = results.plan.busy.iter().map(cell);
        rows.add_row(std::iter::once(way.name().to_owned()).chain(cells));
    }
    rows
}

fn idle(cells: &Cells) -> comfy_table::Table {
    let mut rows = table(["", "p50 us", "over the ping-pong", "owner's CPU us/read"]);
    for way in Way::ALL {
        let p50 = cells.p50_ns(way, Busy::Idle).map(|ns| ns / 1e3);
        let owner = cells.spread(way, Busy::Idle, |cell| cell.owner_us);
        let ratio = cells.over_ping_pong(way);
        let decimals = if way == Way::Shm { 4 } else { 2 };
        rows.add_row(vec![
            way.name().to_owned(),
            shown(p50, decimals),
            ratio.map_or_else(|| "-".to_owned(), |ratio| ratio_text(ratio, decimals)),
            shown(owner.map(|spread| spread.median), decimals),
        ]);
    }
    rows
}

fn ratio_text(ratio: Spread, decimals: usize) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high];
    format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
}

fn by_size(results: &Results) -> comfy_table::Table {
    let sizes: Vec<usize> = results.plan.sizes_words.iter().map(|words| words * 8).collect();
    let heads = sizes.iter().map(|bytes| format!("{bytes} B"));
    let mut rows = table(std::iter::once(String::new()).chain(heads));
    for way in [Way::Shm, Way::TcpPlain, Way::TcpSealed] {
        let p50 = |&bytes: &usize| {
            let found = results.sizes.iter().find(|size| (size.way, size.bytes) == (way, bytes));
            shown(found.map(|size| size.p50_ns / 1e3), if way == Way::Shm { 4 } else { 1 })
        };
        let name = if way == Way::Shm { "shm, unchecked" } else { way.name() };
        rows.add_row(std::iter::once(name.to_owned()).chain(sizes.iter().map(p50)));
    }
    rows
}

fn missed(summary: &Value) -> String {
    let [sealed, plain] = TCP_OVER_PING_PONG_MAX;
    let bounds = [
        ("shm_read_ns", SHM_NS_MAX),
        ("shm_200_threads_over_idle", SHM_200_FACTOR_MAX),
        ("tcp_over_pingpong", sealed),
        ("tcp_plain_over_pingpong", plain),
    ];
    let mut missed = Vec::new();
    for (name, most) in bounds {
        let value = summary[name].as_f64();
        if value.is_none_or(|value| value > most) {
            missed.push(format!("{name} {} (most {most})", shown(value, 3)));
        }
    }
    if summary["tcp_answers_when_stopped"] != json!(false) {
        missed.push("a stopped owner answered".to_owned());
    }
    if missed.is_empty() {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: {}", missed.join("; "))
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let cells = &results.cells;
    let shm = cells.p50_ns(Way::Shm, Busy::Idle);
    let shm_200 = cells.p50_ns(Way::Shm, Busy::Compute200);
    let over = |way| number(cells.over_ping_pong(way).map(|ratio| ratio.median));
    let tcp_200 = cells.p50_ns(Way::TcpSealed, Busy::Compute200);
    json!({
        "shm_read_ns": number(shm),
        "shm_read_ns_200_threads": number(shm_200),
        "shm_200_threads_over_idle": number(shm_200.zip(shm).map(|(busy, idle)| busy / idle)),
        "tcp_over_pingpong": over(Way::TcpSealed),
        "tcp_plain_over_pingpong": over(Way::TcpPlain),
        "tcp_us_200_threads": number(tcp_200.map(|ns| ns / 1e3)),
        "tcp_record_over_pingpong": over(Way::TcpRecord),
        "shm_read_ns_stopped": number(results.stopped.shm_p50_ns),
        "tcp_answers_when_stopped": results.stopped.tcp_answers,
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let over = |way| spread_json(results.cells.over_ping_pong(way));
    json!({
        "priority": results.priority,
        "rounds": results.plan.rounds,
        "tcp_over_pingpong": over(Way::TcpSealed),
        "tcp_plain_over_pingpong": over(Way::TcpPlain),
        "stopped": plain(&results.stopped),
        "sizes": plain(&results.sizes),
        "cells": plain(&results.cells.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_named() {
        let good = json!({
            "shm_read_ns": 12.0, "shm_200_threads_over_idle": 1.1, "tcp_over_pingpong": 1.2,
            "tcp_plain_over_pingpong": 1.1, "tcp_answers_when_stopped": false,
        });
        assert!(missed(&good).starts_with("All"));
        let mut bad = good.clone();
        bad["shm_read_ns"] = json!(61.0);
        bad["tcp_plain_over_pingpong"] = Value::Null;
        bad["tcp_answers_when_stopped"] = json!(true);
        let line = missed(&bad);
        for part in ["shm_read_ns 61.000", "tcp_plain_over_pingpong -", "stopped owner"] {
            assert!(line.contains(part), "{line}");
        }
    }
}
