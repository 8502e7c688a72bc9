//! Table, raw data and the summary.

use super::run::{Memory, Results};
use crate::output::{Text, number, plain, shown, table};
use serde_json::{Value, json};

/// The most that an idle connection may cost; bytes.
const BYTES_MAX: f64 = 12.0 * 1_024.0;

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let limit = results.descriptors_max.map_or("no limit".to_owned(), |most| most.to_string());
    text.line(format!(
        "{} idle connections at one edge of one thread, each after one request; hard limit on \
         descriptors: {limit}",
        results.opened.open
    ));
    let mut rows = table(["", "RSS MiB", "PSS MiB", "bytes per connection"]);
    let mut row = |name: &str, memory: Memory, bytes: Option<f64>| {
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / 1_048_576.0);
        rows.add_row(vec![name.to_owned(), mib(memory.rss), mib(memory.pss), shown(bytes, 0)]);
    };
    row("before", results.before, None);
    row("idle", results.idle, results.bytes_per_connection());
    row("after another request on each", results.after_again, results.bytes_after_again());
    row("all closed", results.after_close, None);
    text.table(&rows);
    for (what, asked) in [("first", &results.opened), ("second", &results.again)] {
        if asked.failed > 0 {
            let why = asked.why.as_deref().unwrap_or("unknown");
            text.line(format!("{} of the {what} requests failed: {why}", asked.failed));
        }
    }
    text.line(missed(&summary(results)));
    text.finish()
}

fn missed(summary: &Value) -> String {
    let mut missed = Vec::new();
    let bytes = summary["idle_connection_bytes"].as_f64();
    if bytes.is_none_or(|bytes| bytes > BYTES_MAX) {
        missed.push(format!("idle_connection_bytes {} (most {BYTES_MAX:.0})", shown(bytes, 0)));
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
    json!({
        "idle_connection_bytes": number(results.bytes_per_connection()),
        "idle_connections": results.opened.open,
        "descriptors_max": results.descriptors_max,
        "failed_requests": results.opened.failed + results.again.failed,
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    json!({
        "before": plain(&results.before),
        "idle": plain(&results.idle),
        "after_again": plain(&results.after_again),
        "after_close": plain(&results.after_close),
        "opened": plain(&results.opened),
        "again": plain(&results.again),
        "bytes_after_again": number(results.bytes_after_again()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_named() {
        let good = json!({ "idle_connection_bytes": 9_000.0, "failed_requests": 0 });
        assert!(missed(&good).starts_with("All"));
        let bad = json!({ "idle_connection_bytes": 13_000.0, "failed_requests": 2 });
        let line = missed(&bad);
        assert!(line.contains("13000 (most 12288)") && line.contains("2 requests"), "{line}");
    }
}
