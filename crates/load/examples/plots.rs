//! One picture of each kind, with made-up numbers, into the folder given.
//!
//! ```text
//! cargo run -p load --example plots -- /tmp/plots
//! ```

use std::error::Error;
use std::path::PathBuf;

use load::plot::{Axis, Figure, Panel, Reference, Series, Shape};

const SIZES: [&str; 6] = ["512", "1K", "2K", "4K", "8K", "16K"];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("name a folder")?);
    std::fs::create_dir_all(&folder)?;
    throughput().write(&folder.join("lines.svg"))?;
    ratios().write(&folder.join("bars.svg"))?;
    demo().write(&folder.join("panels.svg"))?;
    println!("three pictures in {}", folder.display());
    Ok(())
}

fn throughput() -> Figure {
    let values = |scale: f64| [0.55, 0.7, 0.84, 0.92, 0.96, 0.98].map(|share| share * scale);
    let series = vec![
        Series::over_names("rigid, 2 nodes per site", &values(4_000.0)),
        Series::over_names("polder, 8 nodes shared", &values(9_900.0)),
        Series::over_names("over-provisioned, 5 nodes per site", &values(10_000.0)),
    ];
    let x = Axis::named("requests in a burst", SIZES);
    let panel = Panel::new(Shape::Lines, x, Axis::new("requests/s"), series);
    let mut figure = Figure::new("Throughput of a burst, four sites", panel);
    figure.subtitle = "stub nodes of exactly 2,000 requests/s, look 1 ms, hold 2 ms".to_owned();
    figure
}

fn ratios() -> Figure {
    let over_rigid = [2.1, 2.2, 2.3, 2.35, 2.42, 2.46];
    let spread = over_rigid.iter().map(|ratio| (ratio - 0.08, ratio + 0.05)).collect();
    let series = vec![
        Series::over_names("polder / rigid", &over_rigid).with_spread(spread),
        Series::over_names("polder / over-provisioned", &[0.9, 0.93, 0.95, 0.97, 0.98, 0.99]),
    ];
    let x = Axis::named("requests in a burst", SIZES);
    let mut panel = Panel::new(Shape::Bars, x, Axis::new("ratio of throughputs"), series);
    panel.references.push(Reference { y: 2.5, label: "5 nodes / 2".to_owned() });
    Figure::new("Polder against both extremes", panel)
}

fn demo() -> Figure {
    let names = ["shop", "news", "wiki"];
    let nodes = |site: usize| {
        let burst = |time: usize| (time / 4) % 3;
        let count = |time: usize| if burst(time) == site { 6.0 } else { 1.0 };
        let points = (0..24).map(|time| (time as f64 / 2.0, count(time))).collect();
        Series::new(names[site], points)
    };
    let rate = |site: usize| {
        let wobble = |step: usize| f64::from(u32::try_from(step * 7_919 % 700).unwrap_or(0));
        let value = |step: usize| {
            if (step / 40) % 3 == site { 11_600.0 + wobble(step) } else { 0.0 }
        };
        let points = (0..240).map(|step| (step as f64 / 20.0, value(step))).collect();
        Series::new(names[site], points)
    };
    let time = || Axis { from: Some(0.0), to: Some(12.0), ..Axis::new("time (s)") };
    let bare = Axis { label: String::new(), ..time() };
    let stack =
        Panel::new(Shape::StackedSteps, bare, Axis::new("nodes"), (0..3).map(nodes).collect());
    let rates =
        Panel::new(Shape::Steps, time(), Axis::new("requests/s"), (0..3).map(rate).collect());
    Figure {
        title: "Eight nodes follow the load of three sites".to_owned(),
        subtitle: "bursts of 16K requests to one site after the other".to_owned(),
        panels: vec![stack, rates],
    }
}
