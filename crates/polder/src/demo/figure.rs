//! The picture of the comparison: Polder's nodes over time above the throughput of all schemes.

use super::plan::{SITES, Scheme};
use super::results::{Results, Round};
use load::plot::{Axis, Figure, Panel, Series, Shape};

/// Windows of 10 ms that make one point of a rate: short against a burst, and long enough that a
/// point has some hundred requests.
const RATE_WINDOWS: u64 = 10;
const NODES_PX: f64 = 190.0;
const RATES_PX: f64 = 250.0;

/// Draws it from whole results.
pub(super) fn figure(results: &Results) -> Figure {
    let length_s = round_length_s(results);
    let end = length_s * longest(results) as f64;
    let time = |label: &str| Axis { from: Some(0.0), to: Some(end), ..Axis::new(label) };
    let nodes = Axis { from: Some(0.0), to: Some(8.0), ..Axis::new("nodes, Polder") };
    let stack = SITES.iter().enumerate().map(|(site, &(name, _))| {
        Series::new(name, joined(results, Scheme::Polder, length_s, |round| nodes_of(round, site)))
    });
    let mut above = Panel::new(Shape::StackedSteps, time(""), nodes, stack.collect());
    above.height_px = NODES_PX;
    // What is drawn last lies on top.
    let order = [Scheme::Rigid, Scheme::OverProvisioned, Scheme::Polder];
    let rates = order.into_iter().filter_map(|scheme| results.scheme(scheme)).map(|result| {
        let name = format!("{}, {} nodes", result.scheme.name(), result.nodes);
        let points = |round: &Round| round.outcome.rate_points(RATE_WINDOWS);
        Series::new(name, joined(results, result.scheme, length_s, points))
    });
    // Nameless series without points: schemes get other colours than sites.
    let rates = SITES.iter().map(|_| Series::default()).chain(rates).collect();
    let label = "seconds; each scheme meets the same bursts at the same time";
    let mut below = Panel::new(Shape::Steps, time(label), Axis::new("requests/s"), rates);
    below.height_px = RATES_PX;
    Figure {
        title: "Bursts go from site to site, and nodes follow".into(),
        subtitle: subtitle(results),
        panels: vec![above, below],
    }
}

fn subtitle(results: &Results) -> String {
    let polder = |over| results.ratio(Scheme::Polder, over);
    let ratio = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let nodes = |scheme| results.scheme(scheme).map_or(0, |result| result.nodes);
    format!(
        "Polder: {} x rigid with the same {} nodes, {} x over-provisioned with {}; {} of {} \
         requests failed",
        ratio(polder(Scheme::Rigid)),
        nodes(Scheme::Polder),
        ratio(polder(Scheme::OverProvisioned)),
        nodes(Scheme::OverProvisioned),
        super::text::count(results.all.failed),
        super::text::count(results.all.requests),
    )
}

/// The rounds of a scheme one after the other.
fn joined(
    results: &Results,
    scheme: Scheme,
    length_s: f64,
    points: impl Fn(&Round) -> Vec<(f64, f64)>,
) -> Vec<(f64, f64)> {
    let rounds = results.scheme(scheme).map_or(&[][..], |result| &result.rounds);
    let shifted = |(number, round): (usize, &Round)| -> Vec<(f64, f64)> {
        let shift = number as f64 * length_s;
        let within = points(round).into_iter().filter(|point| point.0 < length_s);
        within.map(|(x, y)| (x + shift, y)).collect()
    };
    rounds.iter().enumerate().flat_map(shifted).collect()
}

fn nodes_of(round: &Round, site: usize) -> Vec<(f64, f64)> {
    round.nodes.iter().map(|&(at_s, nodes)| (at_s, f64::from(nodes[site]))).collect()
}

/// The rounds are as long as planned but for their last responses; the median forgives a stall.
fn round_length_s(results: &Results) -> f64 {
    let rounds = results.schemes.iter().flat_map(|result| &result.rounds);
    let lengths: Vec<f64> = rounds.map(|round| round.outcome.seconds()).collect();
    load::stats::median(&lengths).unwrap_or(1.0).max(0.001)
}

fn longest(results: &Results) -> usize {
    results.schemes.iter().map(|result| result.rounds.len()).max().unwrap_or(0).max(1)
}

#[cfg(test)]
mod tests {
    use super::super::results::example;
    use super::*;

    #[test]
    fn rounds_follow_one_another() {
        let results = example();
        let nodes = joined(&results, Scheme::Polder, 2.0, |round| nodes_of(round, 0));
        assert_eq!(nodes, [(0.0, 3.0), (0.5, 6.0), (2.0, 3.0), (2.5, 6.0), (4.0, 3.0), (4.5, 6.0)]);
        assert!((round_length_s(&results) - 2.0).abs() < 1e-9);
        assert_eq!(longest(&results), 3);
    }

    #[test]
    fn the_picture_names_sites_schemes_and_ratios() {
        let svg = figure(&example()).to_svg().unwrap();
        for text in
            ["shop", "video", "polder, 8 nodes", "over-provisioned, 18 nodes", "2.39 x rigid"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("0 of 181,000 requests failed"));
    }
}
