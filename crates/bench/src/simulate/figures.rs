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
    let mut cases: Vec<&'static str> = results.decisions.iter().map(|one| one.case).collect();
    cases.dedup();
    let of = |case: &&'static str| {
        let case = *case;
        results.decisions.iter().filter(move |one| one.case == case)
    };
    let series = cases.iter().map(|case| {
        let values: Vec<f64> = of(case).map(|one| one.median_us).collect();
        Series::over_names(*case, &values)
            .with_spread(of(case).map(|one| (one.low_us, one.high_us)).collect())
    });
    let first = cases.first().into_iter().flat_map(of);
    let names = first.map(|one| one.policy);
    let panel = Panel::new(Shape::Bars, Axis::named("", names), Axis::new("us"), series.collect());
    Figure::new("One decision, 1,000 nodes and 100 sites", panel)
}
