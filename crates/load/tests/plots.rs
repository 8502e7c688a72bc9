//! Pictures are drawn from good data and refused, without a panic, from bad data.

use load::plot::{
    self, Axis, Figure, POINTS_MAX, Panel, PlotError, Reference, SERIES_MAX, Series, Shape,
};

const SHAPES: [Shape; 4] = [Shape::Lines, Shape::Steps, Shape::StackedSteps, Shape::Bars];

fn figure(shape: Shape, series: Vec<Series>) -> Figure {
    Figure::new("A <title> & more", Panel::new(shape, Axis::new("x (s)"), Axis::new("y"), series))
}

#[test]
fn every_shape_gives_a_document_with_its_texts() {
    for shape in SHAPES {
        let series = vec![
            Series::new("red", vec![(0.0, 1.0), (1.0, 3_000.0)]),
            Series::new("blue & co", vec![(0.0, 2.0), (1.0, 1_000.0)]),
        ];
        let mut figure = figure(shape, series);
        figure.subtitle = "on two cores".to_owned();
        figure.panels[0].references.push(Reference { y: 500.0, label: "paper".to_owned() });
        let svg = figure.to_svg().expect("it can be drawn");
        assert!(svg.starts_with("<svg width=\"960\""), "{}", &svg[..80]);
        assert!(svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("<title>A &lt;title&gt; &amp; more</title>"));
        for text in ["red", "blue &amp; co", "on two cores", "paper", "x (s)", "3,000"] {
            assert!(svg.contains(text), "{shape:?} lacks {text:?}");
        }
        assert!(svg.contains("#0072B2") && svg.contains("fill=\"#ffffff\""));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}

#[test]
fn nothing_to_draw_is_an_error() {
    let nowhere = vec![(f64::NAN, 1.0), (1.0, f64::INFINITY)];
    for shape in SHAPES {
        for series in [
            vec![],
            vec![Series::default()],
            vec![Series::new("red", nowhere.clone()), Series::new("blue", vec![])],
        ] {
            let result = figure(shape, series).to_svg();
            assert!(matches!(result, Err(PlotError::Empty(_))), "{shape:?}: {result:?}");
        }
    }
    let empty = Figure { title: "none".to_owned(), subtitle: String::new(), panels: vec![] };
    assert!(matches!(empty.to_svg(), Err(PlotError::Empty(_))));
}

#[test]
fn odd_numbers_do_not_panic() {
    let odd = [
        vec![(0.0, 0.0)],
        vec![(5.0, -3.0)],
        vec![(0.0, 1e300), (1e300, -1e300)],
        vec![(1e-300, 1e-300), (2e-300, 2e-300)],
        vec![(0.0, f64::MAX), (1.0, f64::MIN)],
        vec![(0.0, 1.0), (f64::NAN, 2.0), (2.0, f64::NAN), (3.0, 4.0)],
        vec![(3.0, 1.0), (1.0, 2.0)],
    ];
    for shape in SHAPES {
        for points in &odd {
            let series =
                Series::new("s", points.clone()).with_spread(vec![(f64::NAN, 1.0), (0.0, 1e9)]);
            let mut figure = figure(shape, vec![series]);
            figure.panels[0].height_px = f64::NAN;
            figure.panels[0].references.push(Reference { y: f64::NAN, label: String::new() });
            figure.panels[0].y.to = Some(f64::INFINITY);
            let svg = figure.to_svg().expect("there is a finite point");
            assert!(!svg.contains("NaN"), "{shape:?} {points:?}");
        }
    }
}

#[test]
fn too_much_is_an_error() {
    let many = vec![Series::new("s", vec![(0.0, 1.0)]); SERIES_MAX + 1];
    let result = figure(Shape::Lines, many).to_svg();
    assert!(matches!(result, Err(PlotError::TooMuch { .. })), "{result:?}");
    let long = vec![Series::new("s", vec![(0.0, 1.0); POINTS_MAX + 1])];
    let result = figure(Shape::Lines, long).to_svg();
    assert!(matches!(result, Err(PlotError::TooMuch { .. })), "{result:?}");
}

#[test]
fn files_are_written_and_an_impossible_place_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("bars.svg");
    let series = [Series::over_names("rigid", &[1.0, 2.0]), Series::over_names("polder", &[3.0])];
    plot::grouped_bars(&path, "Bars", "requests/s", &["512", "1K"], &series)
        .expect("it is written");
    let svg = std::fs::read_to_string(&path).expect("it is there");
    assert!(svg.contains("512") && svg.contains("requests/s"));
    for write in [plot::lines, plot::steps, plot::stacked_steps] {
        let nowhere = folder.path().join("missing").join("a.svg");
        let result = write(&nowhere, "t", "x", "y", &series);
        assert!(matches!(result, Err(PlotError::Write { .. })), "{result:?}");
    }
}
