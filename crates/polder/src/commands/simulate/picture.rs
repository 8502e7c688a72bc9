//! A run over time: requests, nodes, lateness of each site.

use super::plan::Plan;
use super::report::during;
use super::runs::Done;
use ::load::plot::{Axis, Figure, Panel, Series, Shape};
use sim::Window;

/// Three panels, one above the other.
pub(super) fn of(plan: &Plan, done: &Done) -> Figure {
    let window_s = plan.options(&done.run).window_ns as f64 / 1e9;
    let panel = |label: &str, shape: Shape, value: &dyn Fn(&Window) -> f64| {
        let series = plan.names.iter().enumerate().map(|(place, name)| {
            let points = during(done, place).enumerate();
            let points = points.map(|(at, window)| (at as f64 * window_s, value(window)));
            Series::new(name.clone(), points.collect())
        });
        Panel::new(shape, Axis::new("s"), Axis::new(label), series.collect())
    };
    Figure {
        title: format!("{} on {} nodes", done.run.policy, done.run.nodes),
        subtitle: "simulated".to_owned(),
        panels: vec![
            panel("requests/s", Shape::Lines, &|window| window.arrived / window_s),
            panel("nodes", Shape::Steps, &|window| window.nodes),
            panel("late, %", Shape::Lines, &|window| {
                if window.arrived > 0.0 { 100.0 * window.slow / window.arrived } else { 0.0 }
            }),
        ],
    }
}
