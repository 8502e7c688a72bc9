//! Pictures: throughput, nodes in use, nodes over time, guarantees met.

use super::cases::{Case, CaseRun, Documents};
use super::equal::Cell;
use super::plan::{FILE_BYTES, LONG, SHORT};
use super::pools::{HIGH, LOW, NODES, POLICIES, SITES, SOFT, Scheme};
use super::run::Results;
use super::traces::Replayed;
use crate::output::Output;
use load::clock::WINDOW_NS;
use load::plot::{Axis, Figure, Panel, Reference, Series, Shape};
use load::stats::median;
use polder::settings::PolicyName;

/// Of the nodes in use so much is drawn at most; seconds.
const NODES_SHOWN_S: f64 = 5.0;
const PANEL_PX: f64 = 110.0;

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("throughput", throughput(&results.equal))?;
    output.picture("nodes-in-use", nodes_in_use(&results.equal))?;
    output.picture("cases", cases(&results.cases))?;
    for case in Case::ALL {
        let name = format!("nodes-case{}", case.number());
        output.picture(&name, nodes_over_time(&results.cases, case))?;
    }
    output.picture("guarantees", guarantees(&results.cases))?;
    output.picture("world-cup-nodes", replayed_nodes("World Cup", &results.world_cup))?;
    let azure = results.azure.iter().flat_map(|azure| &azure.replayed);
    let moving: Vec<Replayed> = azure.filter(|one| one.moves > 0).cloned().collect();
    output.picture("azure-nodes", replayed_nodes("Azure conv and code", &moving))
}

/// Figure 6 of the paper.
fn throughput(cells: &[Cell]) -> Figure {
    let cells = || cells.iter().filter(|cell| cell.body_bytes == FILE_BYTES);
    let mut sizes: Vec<u64> = cells().map(|cell| cell.requests).collect();
    sizes.dedup();
    let names: Vec<String> = sizes.iter().map(|size| format!("{}K", size / 1_024)).collect();
    let series = Scheme::ALL.map(|scheme| {
        let of = |&size: &u64| {
            let cell = cells().find(|cell| (cell.scheme, cell.requests) == (scheme, size));
            let spread = cell.and_then(Cell::throughput);
            spread.map_or((f64::NAN, f64::NAN, f64::NAN), |one| (one.median, one.low, one.high))
        };
        let points: Vec<_> = sizes.iter().map(of).collect();
        let medians: Vec<f64> = points.iter().map(|point| point.0).collect();
        Series::over_names(format!("{}, {} nodes", scheme.name(), scheme.nodes()), &medians)
            .with_spread(points.iter().map(|point| (point.1, point.2)).collect())
    });
    let x = Axis::named("requests in a burst", names);
    let panel = Panel::new(Shape::Lines, x, Axis::new("requests/s"), series.to_vec());
    Figure::new("Two equal sites, bursts in turn", panel)
}

/// Figure 7 of the paper.
fn nodes_in_use(cells: &[Cell]) -> Figure {
    let panels = [SHORT, LONG].iter().filter_map(|&requests| {
        let is_it = |cell: &&Cell| {
            (cell.scheme, cell.requests, cell.body_bytes) == (Scheme::Reconf, requests, FILE_BYTES)
        };
        let used = cells.iter().find(is_it)?.used_nodes();
        let window_s = WINDOW_NS as f64 / 1e9;
        let point = |(window, &nodes): (usize, &usize)| (window as f64 * window_s, nodes as f64);
        let mut points: Vec<(f64, f64)> = used.iter().enumerate().map(point).collect();
        points.push((points.len() as f64 * window_s, 0.0));
        points.retain(|point| point.0 < NODES_SHOWN_S);
        let x = Axis { from: Some(0.0), ..Axis::new(format!("time (s), bursts of {requests}")) };
        let y = Axis { from: Some(0.0), to: Some(f64::from(NODES)), ..Axis::new("nodes") };
        let mut panel = Panel::new(Shape::StackedSteps, x, y, vec![Series::new("in use", points)]);
        panel.height_px = PANEL_PX;
        let usable = f64::from(Scheme::Reconf.usable());
        panel.references.push(Reference { y: usable, label: "usable".to_owned() });
        Some(panel)
    });
    Figure {
        title: "Nodes fully used under reconf".to_owned(),
        subtitle: "busy for at least 95 % of a 10 ms window".to_owned(),
        panels: panels.collect(),
    }
}

/// What a site got in the median of its runs with the smallest file.
fn typical(cases: &[CaseRun], key: (Case, PolicyName), value: impl Fn(&CaseRun) -> f64) -> f64 {
    let single = Documents::Single(FILE_BYTES);
    let runs = cases.iter().filter(|run| run.documents == single && (run.case, run.policy) == key);
    median(&runs.map(value).collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// A panel for each site, a group of bars for each case.
fn bars(
    title: &str,
    unit: &str,
    to: Option<f64>,
    value: impl Fn((Case, PolicyName), usize) -> f64,
) -> Figure {
    let panel = |site: usize| {
        let series = POLICIES.map(|policy| {
            let values = Case::ALL.map(|case| value((case, policy), site));
            Series::over_names(policy.name(), &values)
        });
        let names = Case::ALL.map(|case| format!("case {}", case.number())).to_vec();
        let x = Axis::named(format!("{} priority", SITES[site]), names);
        let y = Axis { from: Some(0.0), to, ..Axis::new(unit) };
        Panel::new(Shape::Bars, x, y, series.to_vec())
    };
    let panels = vec![panel(HIGH), panel(LOW)];
    Figure { title: title.to_owned(), subtitle: String::new(), panels }
}

/// Figure 8 of the paper.
fn cases(cases: &[CaseRun]) -> Figure {
    bars("Two sites of different priority", "requests/s", None, |key, site| {
        typical(cases, key, |run| run.sites[site].per_second)
    })
}

/// Figure 10 of the paper.
fn guarantees(cases: &[CaseRun]) -> Figure {
    let title = "Time in which the hard guarantee of two nodes was met";
    bars(title, "% of the time", Some(100.0), |key, site| {
        typical(cases, key, |run| run.sites[site].hard_met_pct)
    })
}

fn steps(nodes: &[(f64, u32)], until_s: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        nodes.iter().map(|&(at_s, count)| (at_s, f64::from(count))).collect();
    points.retain(|point| point.0 < until_s);
    let last = points.last().map_or(0.0, |point| point.1);
    points.push((until_s, last));
    points
}

fn nodes_panel(time: String, series: Vec<Series>) -> Panel {
    let x = Axis { from: Some(0.0), ..Axis::new(time) };
    let y = Axis { from: Some(0.0), to: Some(f64::from(NODES)), ..Axis::new("nodes") };
    let mut panel = Panel::new(Shape::Steps, x, y, series);
    panel.height_px = PANEL_PX;
    panel
}

/// Figure 9 of the paper, for each case: the first run of each policy.
fn nodes_over_time(cases: &[CaseRun], case: Case) -> Figure {
    let panels = POLICIES.iter().filter_map(|&policy| {
        let run = cases.iter().find(|run| run.case == case && run.policy == policy)?;
        let of = |site: usize| Series::new(SITES[site], steps(&run.sites[site].nodes, run.seconds));
        let time = format!("time (s), {} (minimum {})", policy.name(), run.minimum);
        let mut panel = nodes_panel(time, vec![of(HIGH), of(LOW)]);
        panel.references.push(Reference { y: f64::from(SOFT), label: "soft".to_owned() });
        Some(panel)
    });
    let title = format!("Nodes of both sites, case {}", case.number());
    Figure { title, subtitle: "from the recorded moves".to_owned(), panels: panels.collect() }
}

fn replayed_nodes(name: &str, replayed: &[Replayed]) -> Figure {
    let panel = |one: &Replayed| {
        let last = |nodes: &[(f64, u32)]| nodes.last().map_or(0.0, |step| step.0);
        let until_s = one.sites.iter().map(|site| last(&site.nodes)).fold(1.0, f64::max);
        let names = ["first", "second"];
        let of = |site: usize| Series::new(names[site], steps(&one.sites[site].nodes, until_s));
        nodes_panel(format!("time (s), {}", one.scheme), vec![of(HIGH), of(LOW)])
    };
    let title = format!("Nodes of both sites, {name}");
    let panels = replayed.iter().map(panel).collect();
    Figure { title, subtitle: "from the recorded moves".to_owned(), panels }
}
