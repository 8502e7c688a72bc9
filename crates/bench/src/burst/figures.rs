//! Pictures: throughput, nodes in use, share of full use, the beginning of a burst.

use super::measure::{Cell, Measured};
use super::plan::{LONG, SHORT};
use super::report::size_name;
use super::run::Results;
use super::scenario::Scheme;
use crate::output::Output;
use load::clock::WINDOW_NS;
use load::plot::{Axis, Figure, Panel, Reference, Series, Shape};

/// Of the nodes in use so much is drawn at most: a few bursts; seconds.
const NODES_SHOWN_S: f64 = 7.0;
/// The paper shows its shortest bursts, and those of 8K.
const NODES_SIZES: [u64; 2] = [SHORT, 8_192];
const PANEL_PX: f64 = 80.0;

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    for measured in &results.scenarios {
        let name = measured.scenario.name.to_lowercase();
        output.picture(&format!("throughput-{name}"), throughput(measured))?;
        output.picture(&format!("nodes-{name}"), nodes(measured))?;
        output.picture(&format!("full-use-{name}"), full_use(measured))?;
        output.picture(&format!("penalty-{name}"), penalty(measured))?;
    }
    Ok(())
}

fn names(measured: &Measured) -> Vec<String> {
    measured.sizes().into_iter().map(size_name).collect()
}

/// A series over the burst lengths.
fn over_sizes(
    measured: &Measured,
    scheme: Scheme,
    value: impl Fn(&Cell) -> Option<(f64, f64, f64)>,
) -> Series {
    let cells: Vec<_> = measured
        .sizes()
        .into_iter()
        .map(|requests| measured.cell(scheme, requests).and_then(&value))
        .map(|found| found.unwrap_or((f64::NAN, f64::NAN, f64::NAN)))
        .collect();
    let medians: Vec<f64> = cells.iter().map(|cell| cell.0).collect();
    Series::over_names(label(measured, scheme), &medians)
        .with_spread(cells.iter().map(|cell| (cell.1, cell.2)).collect())
}

fn label(measured: &Measured, scheme: Scheme) -> String {
    let nodes: u16 = measured.scenario.nodes_under(scheme).iter().sum();
    format!("{}, {nodes} nodes", scheme.name())
}

/// Figure 7 of the paper.
fn throughput(measured: &Measured) -> Figure {
    let spread = |cell: &Cell| cell.throughput().map(|s| (s.median, s.low, s.high));
    let series =
        Scheme::ALL.map(|scheme| over_sizes(measured, scheme, spread)).into_iter().collect();
    let x = Axis::named("requests in a burst", names(measured));
    let panel = Panel::new(Shape::Lines, x, Axis::new("requests/s"), series);
    Figure::new(format!("Throughput of bursts, scenario {}", measured.scenario.title()), panel)
}

/// Figures 8 and 9 of the paper: a panel for each scheme, the shortest bursts above.
fn nodes(measured: &Measured) -> Figure {
    let sizes = measured.sizes();
    let shown = NODES_SIZES.map(|wanted| if sizes.contains(&wanted) { wanted } else { LONG });
    let panels = shown.iter().flat_map(|&requests| nodes_of_size(measured, requests));
    Figure {
        title: format!("Nodes fully used, scenario {}", measured.scenario.title()),
        subtitle: "busy for at least 95 % of a 10 ms window; one rotation".to_owned(),
        panels: panels.collect(),
    }
}

fn nodes_of_size(measured: &Measured, requests: u64) -> Vec<Panel> {
    let window_s = WINDOW_NS as f64 / 1e9;
    let used = |scheme: Scheme| {
        let found = measured.cell(scheme, requests)?.rotations.last()?;
        Some((scheme, found.used_nodes.as_slice()))
    };
    let series: Vec<(Scheme, &[usize])> = Scheme::ALL.into_iter().filter_map(used).collect();
    let longest = series.iter().map(|(_, used)| used.len()).max().unwrap_or(0);
    let until_s = (longest as f64 * window_s).min(NODES_SHOWN_S);
    let usable = f64::from(measured.scenario.usable);
    let last = series.len().saturating_sub(1);
    let panel = |(place, (scheme, used)): (usize, (Scheme, &[usize]))| {
        let point = |(place, &nodes): (usize, &usize)| (place as f64 * window_s, nodes as f64);
        let points = used.iter().enumerate().map(point).take_while(|point| point.0 < until_s);
        // What has ended holds no more nodes.
        let end = (used.len() as f64 * window_s, 0.0);
        let mut points: Vec<(f64, f64)> = points.collect();
        points.extend((end.0 < until_s).then_some(end));
        let label = if place < last {
            String::new()
        } else {
            format!("time (s), bursts of {}", size_name(requests))
        };
        let x = Axis { from: Some(0.0), to: Some(until_s), ..Axis::new(label) };
        let y = Axis { from: Some(0.0), to: Some(usable + 1.0), ..Axis::new("nodes") };
        let series = Series::new(self::label(measured, scheme), points);
        let mut panel = Panel::new(Shape::StackedSteps, x, y, vec![series]);
        panel.height_px = PANEL_PX;
        panel.references.push(Reference { y: usable, label: "usable".to_owned() });
        panel
    };
    series.into_iter().enumerate().map(panel).collect()
}

fn full_use(measured: &Measured) -> Figure {
    let share = |cell: &Cell| cell.full_use_pct().map(|share| (share, share, share));
    let series = Scheme::ALL
        .map(|scheme| Series { spread: Vec::new(), ..over_sizes(measured, scheme, share) })
        .into_iter()
        .collect();
    let x = Axis::named("requests in a burst", names(measured));
    let y = Axis { from: Some(0.0), to: Some(100.0), ..Axis::new("% of the time") };
    let title = format!(
        "All {} usable nodes fully used, scenario {}",
        measured.scenario.usable,
        measured.scenario.title()
    );
    Figure::new(title, Panel::new(Shape::Bars, x, y, series))
}

/// What a site pays whose nodes have been lent: the beginning of its next burst.
fn penalty(measured: &Measured) -> Figure {
    let series = |scheme: Scheme| {
        let counts = measured.cell(scheme, SHORT)?.beginning();
        let points = counts.iter().enumerate().map(|(ms, &count)| (ms as f64 + 1.0, count));
        let mut all = vec![(0.0, 0.0)];
        all.extend(points);
        Some(Series::new(label(measured, scheme), all))
    };
    let series = Scheme::ALL.into_iter().filter_map(series).collect();
    let x = Axis::new("ms after the first request of a burst");
    let panel = Panel::new(Shape::Lines, x, Axis::new("responses so far"), series);
    let title = format!("The beginning of a burst of 512, scenario {}", measured.scenario.title());
    Figure::new(title, panel)
}
