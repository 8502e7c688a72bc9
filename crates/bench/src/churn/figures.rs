//! Pictures: how long moves take, and who has the nodes in the slow wave.

use super::measure::Wave;
use super::report::move_ms;
use super::run::Results;
use crate::output::Output;
use load::plot::{Axis, Figure, Panel, Reference, Series, Shape};

/// Points of the curve: percentiles in steps of one.
const STEPS: usize = 100;

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("move-times", move_times(results))?;
    output.picture("waves", waves(results))
}

fn move_times(results: &Results) -> Figure {
    let times = move_ms(&results.churn.moves);
    let at = |step: usize| {
        let share = step as f64 / STEPS as f64;
        load::stats::quantile(&times, share).map(|ms| (100.0 * share, ms))
    };
    let points = (1..=STEPS).filter_map(at).collect();
    let name = format!("{} moves, {} failed requests", times.len(), results.churn.requests.failed);
    let y = Axis::new("ms from the deciding look to the first request");
    let x = Axis::new("percent of the moves");
    let panel = Panel::new(Shape::Steps, x, y, vec![Series::new(name, points)]);
    Figure::new("Moves as fast as they go", panel)
}

fn waves(results: &Results) -> Figure {
    let panel = |wave: &Wave| {
        let seconds = |at_ns: u64| at_ns.saturating_sub(wave.start_ns) as f64 / 1e9;
        let mut nodes = 0.0;
        let mut points = vec![(0.0, 0.0)];
        for one in &wave.moves {
            nodes += if one.to.as_deref() == Some("left") { 1.0 } else { -1.0 };
            points.push((seconds(one.effect_ns), nodes));
        }
        let x = Axis {
            from: Some(0.0),
            to: Some(wave.requests.seconds),
            ..Axis::new(format!("time (s), half period {} ms", wave.half_period_ms))
        };
        let y = Axis { from: Some(-8.0), to: Some(8.0), ..Axis::new("nodes won by the left site") };
        let mut panel = Panel::new(Shape::Steps, x, y, vec![Series::new("left", points)]);
        panel.height_px = 180.0;
        panel.references.push(Reference { y: 0.0, label: "start".to_owned() });
        panel
    };
    Figure {
        title: "Nodes under square waves of half a hold and of ten holds".to_owned(),
        subtitle: "64 in flight alternate between two sites; hold 200 ms, look 20 ms".to_owned(),
        panels: vec![panel(&results.square), panel(&results.slow)],
    }
}
