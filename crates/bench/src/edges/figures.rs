//! One picture: the tail by the number of edges.

use super::measure::Cell;
use super::plan::Tier;
use super::run::Results;
use crate::output::Output;
use load::plot::{Axis, Figure, Panel, Series, Shape};

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("tail", tail(results))
}

fn tail(results: &Results) -> Figure {
    let mut counts: Vec<u8> = results.plan.tiers.iter().map(|tier| tier.edges).collect();
    counts.sort_unstable();
    counts.dedup();
    let series = |name: &str, shares: bool, value: fn(&Cell) -> f64| {
        let at = |&edges: &u8| {
            // One edge shares with nobody: both lines begin there.
            let tier = if edges == 1 { Tier::ONE } else { Tier { edges, shares } };
            let found = results.cells.spread(tier, value);
            found.map_or((f64::NAN, f64::NAN, f64::NAN), |s| (s.median, s.low, s.high))
        };
        let values: Vec<_> = counts.iter().map(at).collect();
        let medians: Vec<f64> = values.iter().map(|value| value.0).collect();
        Series::over_names(name, &medians)
            .with_spread(values.iter().map(|value| (value.1, value.2)).collect())
    };
    let x = Axis::named("edges", counts.iter().map(u8::to_string));
    let series = vec![
        series("p99, shared", true, |cell| cell.p99_ms),
        series("p99, independent", false, |cell| cell.p99_ms),
        series("p99.9, shared", true, |cell| cell.p999_ms),
        series("p99.9, independent", false, |cell| cell.p999_ms),
    ];
    let panel = Panel::new(Shape::Bars, x, Axis::new("latency (ms)"), series);
    let mut figure = Figure::new("Several edges before the same servers", panel);
    figure.subtitle = "10 ms of service, 70 % of capacity, Poisson; medians and range".to_owned();
    figure
}
