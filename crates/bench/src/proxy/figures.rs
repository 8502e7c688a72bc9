//! One picture: CPU time per request, a group of bars for each kind of load.

use super::plan::{Kind, Proxy};
use super::run::Results;
use crate::output::Output;
use load::plot::{Axis, Figure, Panel, Series, Shape};

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("cpu", cpu(results))
}

fn cpu(results: &Results) -> Figure {
    let kinds: Vec<Kind> = results.plan.rows.iter().map(|row| row.kind).collect();
    let series = |proxy: Proxy| {
        let spreads = kinds.iter().map(|&kind| results.cells.spread(kind, proxy, |c| c.cpu_us));
        let (medians, ranges): (Vec<f64>, Vec<(f64, f64)>) = spreads
            .map(|found| {
                found.map_or((f64::NAN, (f64::NAN, f64::NAN)), |s| (s.median, (s.low, s.high)))
            })
            .unzip();
        Series::over_names(proxy.name(), &medians).with_spread(ranges)
    };
    let x = Axis::named("", kinds.iter().map(|kind| kind.title()));
    let y = Axis::new("CPU time per request (us)");
    let panel = Panel::new(Shape::Bars, x, y, Proxy::ALL.into_iter().map(series).collect());
    let mut figure = Figure::new("What a proxied request costs", panel);
    figure.subtitle = "1 KiB, kept connections, one thread; bars: medians, lines: range".to_owned();
    figure
}
