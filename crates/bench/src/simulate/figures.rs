//! Pictures: the moves of the largest pool, and what decisions cost.

use super::run::Results;
use load::plot::{Axis, Figure, Panel, Series, Shape};

pub(super) fn all(results: &Results) -> [(&'static str, Figure); 2] {
    [("moves", moves(results)), ("decisions", decisions(results))]
}

fn moves(results: &Results) -> Figure {
    let by_second = &results.large.moves_by_second;
    let points = by_second.iter().enumerate().map(|(at, &moves)| (at as f64, moves as f64));
    let series = Series::new(results.large.policy, points.collect());
    let (x, y) = (Axis::new("simulated second"), Axis::new("moves"));
    let panel = Panel::new(Shape::Lines, x, y, vec![series]);
    Figure::new("Moves of 10,000 nodes between 500 sites", panel)
}

fn decisions(results: &Results) -> Figure {
    let values: Vec<f64> = results.decisions.iter().map(|one| one.median_us).collect();
    let spread = results.decisions.iter().map(|one| (one.low_us, one.high_us)).collect();
    let series = Series::over_names("us", &values).with_spread(spread);
    let names = results.decisions.iter().map(|one| one.policy);
    let panel = Panel::new(Shape::Bars, Axis::named("", names), Axis::new("us"), vec![series]);
    Figure::new("One decision, 1,000 nodes and 100 sites", panel)
}
