//! Pictures: figure 6 of the paper, reads under load, and figure 5, reads by length.

use super::measure::Cell;
use super::plan::{Busy, Way};
use super::run::Results;
use crate::output::Output;
use load::plot::{Axis, Figure, Panel, Series, Shape};

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("load", under_load(results))?;
    if !results.sizes.is_empty() {
        output.picture("size", by_size(results))?;
    }
    Ok(())
}

/// Both panels have their own scale: they are three powers of ten apart.
fn under_load(results: &Results) -> Figure {
    let series = |way: Way, unit_ns: f64| {
        let value = |busy: &Busy| {
            let found = results.cells.spread(way, *busy, |cell: &Cell| Some(cell.p50_ns));
            found.map_or((f64::NAN, f64::NAN, f64::NAN), |spread| {
                (spread.median / unit_ns, spread.low / unit_ns, spread.high / unit_ns)
            })
        };
        let values: Vec<_> = results.plan.busy.iter().map(value).collect();
        let medians: Vec<f64> = values.iter().map(|value| value.0).collect();
        Series::over_names(way.name(), &medians)
            .with_spread(values.iter().map(|value| (value.1, value.2)).collect())
    };
    let panel = |series: Vec<Series>, label: &str| {
        let names = results.plan.busy.iter().map(|busy| busy.name());
        Panel::new(Shape::Bars, Axis::named("", names), Axis::new(label), series)
    };
    let tcp = Way::TWO_SIDED.into_iter().map(|way| series(way, 1e3)).collect();
    Figure {
        title: "Reading the record of a busy node".to_owned(),
        subtitle: "threads on the owner's core, the reader on another; p50".to_owned(),
        panels: vec![
            panel(vec![series(Way::Shm, 1.0)], "ns, shared memory"),
            panel(tcp, "us, over TCP"),
        ],
    }
}

fn by_size(results: &Results) -> Figure {
    let series = |way: Way| {
        let of_way = results.sizes.iter().filter(|size| size.way == way);
        Series::new(way.name(), of_way.map(|size| (size.bytes as f64, size.p50_ns / 1e3)).collect())
    };
    let (x, y) = (Axis::new("bytes read"), Axis::new("us (p50)"));
    let ways = [Way::Shm, Way::TcpPlain, Way::TcpSealed];
    let panel = Panel::new(Shape::Lines, x, y, ways.into_iter().map(series).collect());
    Figure::new("Reads by length, on an idle owner", panel)
}
