//! Tables, raw data and the summary.

use super::measure::{Move, Wave};
use super::run::{Results, WAVE_HOLD_MS};
use crate::output::{Text, number, plain, shown, table};
use crate::waits;
use load::stats::{Spread, quantile};
use serde_json::{Value, json};

/// The share of a core that a busy look may cost; percent.
const LOOK_CPU_PCT_MAX: f64 = 5.0;

/// What the issue of this figure asks for: name, lowest, highest.
fn bounds(quick: bool) -> Vec<(&'static str, f64, f64)> {
    vec![
        ("moves", if quick { 500.0 } else { 10_000.0 }, f64::INFINITY),
        ("failed_requests", 0.0, 0.0),
        ("move_ms_p99", 0.0, 5.0),
        ("square_moves", 0.0, 12.0),
        ("moves_per_node_per_hold_max", 0.0, 1.0),
        ("slow_wave_followed_pct", 95.0, 100.0),
        ("idle_cpu_pct", 0.0, 2.0),
    ]
}

/// All `move_ms` of the churn.
pub(super) fn move_ms(moves: &[Move]) -> Vec<f64> {
    moves.iter().filter_map(Move::move_ms).collect()
}

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let churn = &results.churn;
    let times = move_ms(&churn.moves);
    let rate = churn.moves.len() as f64 / churn.requests.seconds.max(1e-9);
    text.line(format!(
        "Moves as fast as they go: two sites, eight nodes, look {} ms, hold {} ms, 64 connections \
         that change sides every {} ms.",
        churn.look_every_ms, churn.hold_ms, churn.half_period_ms
    ));
    let mut rows = table(["", "value"]);
    let mut row = |name: &str, value: String| {
        rows.add_row(vec![name.to_owned(), value]);
    };
    row("moves", format!("{} ({rate:.0} a second)", churn.moves.len()));
    row("moves that the edge counted", churn.moves_counted.to_string());
    row("requests", churn.requests.sent.to_string());
    row("failed requests", churn.requests.failures.clone());
    row("requests add up", churn.requests.adds_up.to_string());
    let quantiles = [0.5, 0.99, 0.999, 1.0].map(|share| shown(quantile(&times, share), 3));
    row("move_ms median / p99 / p99.9 / max", quantiles.join(" / "));
    row("moved nodes that got a request", format!("{} of {}", times.len(), churn.moves.len()));
    row("latency p99, ms", format!("{:.1}", churn.requests.p99_ms));
    row("busy look, % of a core: median / max", look_cpu(&churn.look_cpu_pct));
    text.table(&rows);
    text.line(look_line(results));
    text.line(format!(
        "\nSquare waves: 64 in flight alternate between two sites; hold {WAVE_HOLD_MS} ms, look \
         20 ms"
    ));
    text.table(&wave_table(results));
    let idle = &results.idle;
    text.line(format!(
        "\nIdle for {:.0} s: {} edge {:.2} %, {} agents {:.2} %, together {:.2} % of a core",
        idle.seconds,
        idle.edges,
        idle.edge_cpu_pct,
        idle.agents,
        idle.agents_cpu_pct,
        idle.cpu_pct()
    ));
    let waits = [churn.cost.wait_pct, results.square.wait_pct, results.slow.wait_pct];
    if let Some(note) = waits::note(waits.into_iter().fold(0.0, f64::max)) {
        text.line(note);
    }
    text.line(missed(&summary(results), results.quick));
    text.finish()
}

fn look_cpu(samples: &[f64]) -> String {
    match Spread::of(samples) {
        Some(spread) => format!("{:.1} / {:.1}", spread.median, spread.high),
        None => "-".to_owned(),
    }
}

fn look_line(results: &Results) -> String {
    let churn = &results.churn;
    let most = churn.look_cpu_pct.iter().copied().fold(0.0, f64::max);
    let wanted = f64::from(churn.look_every_ms);
    let mut line = if most > LOOK_CPU_PCT_MAX {
        format!("A busy look exceeded {LOOK_CPU_PCT_MAX:.0} % of a core: {most:.1} %.")
    } else {
        format!("A busy look cost at most {most:.1} % of a core.")
    };
    if churn.look_every_ms_longest > 1.01 * wanted {
        let longest = churn.look_every_ms_longest;
        line += &format!(" Looks were stretched to {longest:.2} ms instead of {wanted:.0}.");
    }
    line
}

fn wave_table(results: &Results) -> comfy_table::Table {
    let mut rows = table([
        "half period",
        "half periods",
        "followed",
        "moves",
        "requests",
        "failed",
        "waited %",
    ]);
    for wave in [&results.square, &results.slow] {
        rows.add_row(vec![
            format!("{} ms", wave.half_period_ms),
            wave.followed.len().to_string(),
            shown(wave.followed_pct(), 1) + " %",
            wave.moves.len().to_string(),
            wave.requests.sent.to_string(),
            wave.requests.failures.clone(),
            format!("{:.1}", wave.wait_pct),
        ]);
    }
    rows
}

fn missed(summary: &Value, quick: bool) -> String {
    let mut missed = Vec::new();
    for (name, least, most) in bounds(quick) {
        let value = summary[name].as_f64();
        if value.is_none_or(|value| !(least..=most).contains(&value)) {
            let wanted = if most.is_infinite() {
                format!("at least {least}")
            } else {
                format!("{least} to {most}")
            };
            missed.push(format!("{name} {} (wanted {wanted})", shown(value, 3)));
        }
    }
    if missed.is_empty() {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: {}", missed.join("; "))
}

/// The main numbers. Failed requests are those of all parts together.
pub(super) fn summary(results: &Results) -> Value {
    let churn = &results.churn;
    let parts = [&churn.requests, &results.square.requests, &results.slow.requests];
    let failed: u64 = parts.iter().map(|requests| requests.failed).sum();
    let look = churn.look_cpu_pct.iter().copied().fold(0.0, f64::max);
    let waits = [churn.cost.wait_pct, results.square.wait_pct, results.slow.wait_pct];
    json!({
        "moves": churn.moves.len(),
        "failed_requests": failed,
        "move_ms_p99": number(quantile(&move_ms(&churn.moves), 0.99)),
        "square_moves": results.square.moves.len(),
        "moves_per_node_per_hold_max": results.moves_per_node_per_hold_max(),
        "slow_wave_followed_pct": number(results.slow.followed_pct()),
        "idle_cpu_pct": number(Some(results.idle.cpu_pct())),
        "look_cpu_pct_max": number(Some(look)),
        "waited_for_cpu_pct": number(Some(waits.into_iter().fold(0.0, f64::max))),
        "requests_add_up": parts.iter().all(|requests| requests.adds_up),
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let wave = |wave: &Wave| plain(wave);
    let mut churn = plain(&results.churn);
    churn["move_us"] =
        move_ms(&results.churn.moves).iter().map(|ms| (ms * 1e3).round() as u64).collect();
    json!({
        "churn": churn,
        "square": wave(&results.square),
        "slow": wave(&results.slow),
        "idle": plain(&results.idle),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_named() {
        let good = json!({
            "moves": 500, "failed_requests": 0, "move_ms_p99": 0.2, "square_moves": 0,
            "moves_per_node_per_hold_max": 0, "slow_wave_followed_pct": 100.0,
            "idle_cpu_pct": 0.7,
        });
        assert!(missed(&good, true).starts_with("All"));
        assert!(missed(&good, false).contains("moves 500"));
        let mut bad = good.clone();
        bad["failed_requests"] = json!(1);
        bad["slow_wave_followed_pct"] = Value::Null;
        let line = missed(&bad, true);
        assert!(line.contains("failed_requests 1") && line.contains("followed_pct -"), "{line}");
    }

    #[test]
    fn samples_are_shown_or_said_to_be_missing() {
        assert_eq!(look_cpu(&[]), "-");
        assert_eq!(look_cpu(&[1.0, 3.0, 2.0]), "2.0 / 3.0");
    }
}
