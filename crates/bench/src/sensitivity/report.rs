//! Tables, pictures, raw data and the summary.

use super::measure::{Cell, Results};
use crate::output::{Output, Text, number, plain, shown, spread_json, table};
use crate::waits;
use load::plot::{Axis, Figure, Panel, Reference, Series, Shape};
use serde_json::{Value, json};

/// The product's defaults, which the summary quotes.
const DEFAULT: (u32, u32) = (1, 2);

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    let rigid = results.rigid.throughput();
    text.line(format!(
        "Scenario B, bursts of {} requests in turn; rigid: {} requests/s (spread {} %)",
        results.grid.requests,
        shown(rigid.map(|spread| spread.median), 0),
        shown(rigid.map(|spread| 100.0 * spread.relative()), 1),
    ));
    text.line("\nThroughput over that of the rigid pool (look down, hold across)");
    text.table(&grid(results, |cell| shown(results.over_rigid(cell), 2)));
    text.line("Moves in each burst");
    text.table(&grid(results, |cell| format!("{:.1}", cell.moves_per_burst(results.sites))));
    text.line("Spread of the throughput, % of the median");
    let spread = |cell: &Cell| shown(cell.throughput().map(|s| 100.0 * s.relative()), 1);
    text.table(&grid(results, spread));
    let worst = results.cells.iter().map(Cell::wait_pct).fold(0.0, f64::max);
    if let Some(note) = waits::note(worst) {
        let count = results.cells.iter().filter(|cell| cell.is_disturbed()).count();
        text.line(format!("{note}; {count} of {} cells", results.cells.len()));
    }
    text.finish()
}

fn grid(results: &Results, show: impl Fn(&Cell) -> String) -> comfy_table::Table {
    let holds = results.grid.holds_ms.iter().map(|hold| format!("hold {hold} ms"));
    let mut rows = table([String::new()].into_iter().chain(holds));
    for &look in &results.grid.looks_ms {
        let cell = |&hold: &u32| results.cell(look, hold).map_or_else(String::new, &show);
        let cells = results.grid.holds_ms.iter().map(cell);
        rows.add_row([format!("look {look} ms")].into_iter().chain(cells).collect::<Vec<_>>());
    }
    rows
}

/// Throughput and moves over the hold, a line for each look.
pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    let holds = || results.grid.holds_ms.iter().map(|hold| format!("{hold} ms"));
    let lines = |value: &dyn Fn(&Cell) -> f64| -> Vec<Series> {
        let line = |&look: &u32| {
            let of = |&hold: &u32| results.cell(look, hold).map_or(f64::NAN, value);
            let values: Vec<f64> = results.grid.holds_ms.iter().map(of).collect();
            Series::over_names(format!("look {look} ms"), &values)
        };
        results.grid.looks_ms.iter().map(line).collect()
    };
    let ratio = |cell: &Cell| results.over_rigid(cell).unwrap_or(f64::NAN);
    let y = Axis::new("throughput / rigid");
    let mut above = Panel::new(Shape::Lines, Axis::named("", holds()), y, lines(&ratio));
    above.references = vec![
        Reference { y: 2.5, label: "bound 5/2".to_owned() },
        Reference { y: 1.0, label: "rigid".to_owned() },
    ];
    let moves = |cell: &Cell| cell.moves_per_burst(results.sites);
    let below = Panel::new(
        Shape::Lines,
        Axis::named("hold_ms", holds()),
        Axis::new("moves in a burst"),
        lines(&moves),
    );
    let figure = Figure {
        title: "What look and hold cost".to_owned(),
        subtitle: format!("scenario B, bursts of {} requests", results.grid.requests),
        panels: vec![above, below],
    };
    output.picture("grid", figure)
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let default = results.cell(DEFAULT.0, DEFAULT.1);
    let ratios = results.cells.iter().filter_map(|cell| Some((cell, results.over_rigid(cell)?)));
    let best = ratios.max_by(|one, other| one.1.total_cmp(&other.1));
    let failed: u64 = results.cells.iter().chain([&results.rigid]).map(Cell::failed).sum();
    json!({
        "default_over_rigid": number(default.and_then(|cell| results.over_rigid(cell))),
        "best_over_rigid": number(best.map(|(_, ratio)| ratio)),
        "best_look_and_hold_ms": best.and_then(|(cell, _)| cell.look_and_hold_ms),
        "failed_requests": failed,
        "requests_in_a_burst": results.grid.requests,
        "quick": results.quick,
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    let cell = |cell: &Cell| {
        let mut value = plain(cell);
        value["throughput_per_second"] = spread_json(cell.throughput());
        value["moves_per_burst"] = number(Some(cell.moves_per_burst(results.sites)));
        value["over_rigid"] = number(results.over_rigid(cell));
        value
    };
    json!({
        "rigid": cell(&results.rigid),
        "cells": results.cells.iter().map(cell).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::measure::{Grid, Rotation};
    use super::*;

    fn results() -> Results {
        let cell = |look_and_hold_ms, rate| {
            let rotation =
                Rotation { throughput_per_second: rate, moves: 8, failed: 0, wait_pct: 1.0 };
            Cell { look_and_hold_ms, rotations: vec![rotation; 3] }
        };
        Results {
            quick: true,
            grid: Grid::new(true),
            sites: 4,
            rigid: cell(None, 4_000.0),
            cells: vec![cell(Some((1, 2)), 9_000.0), cell(Some((1, 10)), 8_000.0)],
        }
    }

    #[test]
    fn the_best_cell_and_the_default_are_named() {
        let summary = summary(&results());
        assert_eq!(summary["default_over_rigid"], 2.25);
        assert_eq!(summary["best_look_and_hold_ms"], json!([1, 2]));
        assert_eq!(summary["failed_requests"], 0);
    }

    #[test]
    fn cells_that_were_not_run_stay_empty() {
        let text = text(&results());
        assert!(text.contains("2.25") && text.contains("2.00"), "{text}");
        assert!(text.contains("look 20 ms"), "{text}");
        assert!(!text.contains("disturbed"), "{text}");
    }
}
