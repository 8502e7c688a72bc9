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
    let used = Scheme::ALL.map(|scheme| {
        let typical = measured.cell(scheme, requests).and_then(Cell::typical);
        typical.map_or(&[][..], |rotation| rotation.used_nodes.as_slice())
    });
    let longest = used.iter().map(|used| used.len()).max().unwrap_or(0);
    let until_s = (longest as f64 * window_s).min(NODES_SHOWN_S);
    let usable = f64::from(measured.scenario.usable);
    let panel = |place: usize| {
        let point = |(window, &nodes): (usize, &usize)| (window as f64 * window_s, nodes as f64);
        let mut points: Vec<(f64, f64)> = used[place].iter().enumerate().map(point).collect();
        // What has ended uses no nodes.
        points.push((points.len() as f64 * window_s, 0.0));
        points.retain(|point| point.0 < until_s);
        // All names in each panel, so that a scheme has one colour in all of them.
        let mut series =
            Scheme::ALL.map(|scheme| Series::new(label(measured, scheme), Vec::new())).to_vec();
        series[place].points = points;
        let is_last = place + 1 == Scheme::ALL.len();
        let time = format!("time (s), bursts of {}", size_name(requests));
        let text = if is_last { time } else { String::new() };
        let x = Axis { from: Some(0.0), to: Some(until_s), ..Axis::new(text) };
        let y = Axis { from: Some(0.0), to: Some(usable + 1.0), ..Axis::new("nodes") };
        let mut panel = Panel::new(Shape::StackedSteps, x, y, series);
        panel.height_px = PANEL_PX;
        panel.references.push(Reference { y: usable, label: "usable".to_owned() });
        panel
    };
    (0..used.len()).filter(|&place| !used[place].is_empty()).map(panel).collect()
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
