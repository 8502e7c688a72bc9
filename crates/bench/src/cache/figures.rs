//! Pictures: answers per second of the coherent schemes by load of the application's core, and the
//! cost of hits.

use super::measure::Under;
use super::plan::{MANY, Scheme};
use super::run::Results;
use crate::output::Output;
use load::plot::{Axis, Figure, Panel, Series, Shape};

/// What the paper's pictures have on their axis.
const THREADS: [u32; 3] = [0, 50, MANY];
const HITS: [Scheme; 5] = [
    Scheme::Strict,
    Scheme::Unvalidated,
    Scheme::NginxHit,
    Scheme::VarnishHit,
    Scheme::NginxStatic,
];

pub(super) fn draw(output: &Output, results: &Results) -> anyhow::Result<()> {
    output.picture("load", under_load(results))?;
    output.picture("hits", hits(results))
}

/// On a scale of powers of ten: the schemes are three of them apart.
fn under_load(results: &Results) -> Figure {
    let coherent = Scheme::ALL.into_iter().filter(|scheme| scheme.is_coherent());
    let series = |scheme: Scheme| {
        let value = |threads: u32| {
            let rate = results.cells.median(Under::updates(threads), scheme, |c| c.per_second);
            rate.map_or(f64::NAN, f64::log10)
        };
        Series::over_names(scheme.name(), &THREADS.map(value))
    };
    let names = THREADS.map(|threads| format!("{threads} threads"));
    let y = Axis::new("requests/s, power of ten");
    let panel = Panel::new(Shape::Bars, Axis::named("", names), y, coherent.map(series).collect());
    let mut figure = Figure::new("Pages that are never stale, from a busy machine", panel);
    figure.subtitle = "1,000 pages of 8 KB, one of which changes each second".to_owned();
    figure
}

fn hits(results: &Results) -> Figure {
    let value = |scheme: Scheme| {
        let found = results.cells.spread(Under::ticks(0), scheme, |cell| cell.cache_us);
        found.map_or((f64::NAN, (f64::NAN, f64::NAN)), |s| (s.median, (s.low, s.high)))
    };
    let (medians, ranges): (Vec<f64>, Vec<(f64, f64)>) = HITS.map(value).into_iter().unzip();
    let series = Series::over_names("8 KB hit", &medians).with_spread(ranges);
    let x = Axis::named("", HITS.map(Scheme::name));
    let y = Axis::new("CPU time per hit (us)");
    let mut figure = Figure::new("What a hit costs", Panel::new(Shape::Bars, x, y, vec![series]));
    figure.subtitle = "CPU time of the cache's processes; bars: medians, lines: range".to_owned();
    figure
}
