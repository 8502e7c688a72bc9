//! Table, raw data and summary.

use super::run::Results;
use crate::output::{Text, number, round, shown, table};
use load::stats::{Spread, quantile};
use serde_json::{Value, json};

fn median(times: &[f64]) -> Option<f64> {
    Spread::of(times).map(|spread| spread.median)
}

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let requests = &results.requests;
    text.line(
        "Reloads and upgrades of a pool under load: two edges, four nodes with an agent each, 64 \
         connections with one request at a time.",
    );
    let mut rows = table(["", "value"]);
    let mut row = |name: &str, value: String| {
        rows.add_row(vec![name.to_owned(), value]);
    };
    row("reloads", results.reload_ms.len().to_string());
    row("upgrades", results.upgrade_ms.len().to_string());
    row("changes that failed", results.failed_changes.len().to_string());
    row("requests", requests.requests.to_string());
    row("failed requests", requests.failures.to_string());
    row("requests add up", requests.adds_up().to_string());
    row("connections made", results.connections.to_string());
    let reload = [0.5, 0.99, 1.0].map(|share| shown(quantile(&results.reload_ms, share), 1));
    row("a reload, ms: median / p99 / max", reload.join(" / "));
    let upgrade = [0.5, 1.0].map(|share| shown(quantile(&results.upgrade_ms, share), 0));
    row("an upgrade, ms: median / max", upgrade.join(" / "));
    row("requests/s", format!("{:.0}", requests.ok as f64 / results.seconds.max(1e-9)));
    text.table(&rows);
    for why in &results.failed_changes {
        text.line(format!("failed: {why}"));
    }
    text.line("For comparison: nginx 1.22 lost 0.45 keep-alive requests for each reload.");
    text.finish()
}

/// What was measured, for other programs.
pub(super) fn raw(results: &Results) -> Value {
    let rounded = |times: &[f64]| times.iter().copied().map(round).collect::<Vec<f64>>();
    json!({
        "reload_ms": rounded(&results.reload_ms),
        "upgrade_ms": rounded(&results.upgrade_ms),
        "failed_changes": results.failed_changes,
        "requests": results.requests.requests,
        "ok": results.requests.ok,
        "seconds": round(results.seconds),
        "connections": results.connections,
    })
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    json!({
        "reloads": results.reload_ms.len(),
        "upgrades": results.upgrade_ms.len(),
        "failed_changes": results.failed_changes.len(),
        "requests": results.requests.requests,
        "failed_requests": results.requests.failures.total(),
        "reload_ms": number(median(&results.reload_ms)),
        "upgrade_ms": number(median(&results.upgrade_ms)),
    })
}
