//! SVG pictures: lines, steps, stacked steps and groups of bars, one panel or several under each
//! other.
//!
//! The pictures have a white background, so that they can be read on dark pages too, colours that
//! colour-blind readers tell apart (Okabe and Ito, "Color Universal Design", 2008), and text as
//! text: no font file is needed to draw them. Drawn with `plotters` as a pen; the layout is ours.
//!
//! ```no_run
//! use load::plot::{self, Series};
//!
//! let series = [Series::new("red", vec![(0.0, 3.0), (1.0, 4.0)])];
//! plot::lines("rate.svg".as_ref(), "Load", "time (s)", "requests/s", &series)?;
//! # Ok::<(), plot::PlotError>(())
//! ```
//!
//! Points that are no finite numbers are left out: a line has a gap there.

mod axis;
mod legend;
mod panel;
mod pen;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use pen::{Pen, TextAlign};

/// Most series of a panel: as many as there are colours.
pub const SERIES_MAX: usize = 8;

/// Most points of all series of a panel; more would make a picture of many megabytes that no
/// screen can show.
pub const POINTS_MAX: usize = 100_000;

/// Most panels of a figure.
pub const PANELS_MAX: usize = 8;

/// Height of a panel's plotting area unless told otherwise; pixels.
pub const PANEL_HEIGHT_PX: f64 = 230.0;

/// Width of all figures; pixels.
const WIDTH_PX: f64 = 960.0;
/// Empty border of a figure.
const MARGIN_PX: f64 = 26.0;
const TITLE_PX: f64 = 20.0;
const SUBTITLE_PX: f64 = 13.5;

/// Why a picture could not be drawn.
#[derive(Debug, Error)]
pub enum PlotError {
    /// A panel has no finite point, or a figure no panel.
    #[error("nothing to draw in {0:?}")]
    Empty(String),
    /// More panels, series or points than a picture can show.
    #[error("too much to draw in {figure:?}: {what}")]
    TooMuch {
        /// Title of the figure.
        figure: String,
        /// What there is too much of.
        what: String,
    },
    /// The drawing library gave up.
    #[error("cannot draw {figure:?}: {cause}")]
    Draw {
        /// Title of the figure.
        figure: String,
        /// What the library said.
        cause: String,
    },
    /// The file could not be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        cause: io::Error,
    },
}

/// Named points of one colour.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points in the order of x. For bars and named axes x is the place of the group: 0, 1, 2...
    pub points: Vec<(f64, f64)>,
    /// Lowest and highest y of each point, drawn as a thin line; empty for none.
    pub spread: Vec<(f64, f64)>,
}

impl Series {
    /// A series without spread.
    #[must_use]
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, spread: Vec::new() }
    }

    /// A series over named groups: the n-th value stands at the n-th name.
    #[must_use]
    pub fn over_names(name: impl Into<String>, values: &[f64]) -> Self {
        let points = values.iter().enumerate().map(|(place, &y)| (place as f64, y)).collect();
        Self::new(name, points)
    }

    /// The same series with the lowest and highest y of each point.
    #[must_use]
    pub fn with_spread(mut self, spread: Vec<(f64, f64)>) -> Self {
        self.spread = spread;
        self
    }
}

/// One axis of a panel.
#[derive(Clone, Debug, Default)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// Lower end; the data's (for y: zero, where nothing is below) when `None`.
    pub from: Option<f64>,
    /// Upper end; the data's when `None`.
    pub to: Option<f64>,
    /// For x only: names of the places 0, 1, 2... instead of numbers.
    pub names: Vec<String>,
}

impl Axis {
    /// An axis that fits the data.
    #[must_use]
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// An axis of named places.
    #[must_use]
    pub fn named<S: Into<String>>(
        label: impl Into<String>,
        names: impl IntoIterator<Item = S>,
    ) -> Self {
        Self { names: names.into_iter().map(Into::into).collect(), ..Self::new(label) }
    }
}

/// How the series of a panel are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Straight lines from point to point.
    Lines,
    /// Each value holds until the next point, the last to the end of the axis.
    Steps,
    /// Steps as filled areas on top of each other.
    StackedSteps,
    /// Bars beside each other in groups.
    Bars,
}

/// A dashed line across a panel.
#[derive(Clone, Debug)]
pub struct Reference {
    /// Its height.
    pub y: f64,
    /// What it means, written at its right end; short.
    pub label: String,
}

/// One plotting area with its axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// How the series are drawn.
    pub shape: Shape,
    /// The axis below.
    pub x: Axis,
    /// The axis on the left.
    pub y: Axis,
    /// What is drawn, at most [`SERIES_MAX`].
    pub series: Vec<Series>,
    /// Dashed lines, for instance what a paper reports.
    pub references: Vec<Reference>,
    /// Height of the plotting area; pixels, 40 to 2,000.
    pub height_px: f64,
}

impl Panel {
    /// A panel of the usual height without references.
    #[must_use]
    pub fn new(shape: Shape, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        Self { shape, x, y, series, references: Vec::new(), height_px: PANEL_HEIGHT_PX }
    }
}

/// A picture: a title and panels under each other.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The first line.
    pub title: String,
    /// The line below it, smaller; none when empty.
    pub subtitle: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

impl Figure {
    /// A figure of one panel.
    #[must_use]
    pub fn new(title: impl Into<String>, panel: Panel) -> Self {
        Self { title: title.into(), subtitle: String::new(), panels: vec![panel] }
    }

    /// The figure as the text of an SVG file.
    ///
    /// # Errors
    ///
    /// [`PlotError`] when there is nothing or too much to draw.
    pub fn to_svg(&self) -> Result<String, PlotError> {
        self.check()?;
        let mut plans = Vec::new();
        for (place, panel) in self.panels.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &self.panels[before]);
            let plan = panel::plan(panel, before, WIDTH_PX - 2.0 * MARGIN_PX)
                .ok_or_else(|| PlotError::Empty(self.title.clone()))?;
            plans.push(plan);
        }
        panel::align(&mut plans);
        let panels: f64 = plans.iter().map(panel::Plan::height_px).sum();
        let height = self.header_px() + panels;
        let mut svg = String::new();
        let drawn = {
            let pen = Pen::new(&mut svg, WIDTH_PX, height);
            self.draw(&pen, &plans).and_then(|()| pen.finish())
        };
        drawn.map_err(|cause| PlotError::Draw { figure: self.title.clone(), cause })?;
        Ok(pen::finished(&svg, &self.title, WIDTH_PX, height))
    }

    /// Writes the figure as an SVG file.
    ///
    /// # Errors
    ///
    /// As [`Figure::to_svg`], and [`PlotError::Write`].
    pub fn write(&self, path: &Path) -> Result<(), PlotError> {
        let svg = self.to_svg()?;
        fs::write(path, svg).map_err(|cause| PlotError::Write { path: path.to_owned(), cause })
    }

    fn draw(&self, pen: &Pen<'_>, plans: &[panel::Plan<'_>]) -> Result<(), String> {
        let at = (MARGIN_PX, MARGIN_PX - 4.0);
        pen.text(at, &self.title, TextAlign::Left, TITLE_PX, pen::INK, true)?;
        if !self.subtitle.is_empty() {
            let at = (MARGIN_PX, MARGIN_PX + 24.0);
            pen.text(at, &self.subtitle, TextAlign::Left, SUBTITLE_PX, pen::QUIET, false)?;
        }
        let mut top = self.header_px();
        for plan in plans {
            plan.draw(pen, MARGIN_PX, top)?;
            top += plan.height_px();
        }
        Ok(())
    }

    fn header_px(&self) -> f64 {
        MARGIN_PX + if self.subtitle.is_empty() { 34.0 } else { 54.0 }
    }

    fn check(&self) -> Result<(), PlotError> {
        let too_much = |what: String| Err(PlotError::TooMuch { figure: self.title.clone(), what });
        if self.panels.is_empty() {
            return Err(PlotError::Empty(self.title.clone()));
        }
        if self.panels.len() > PANELS_MAX {
            return too_much(format!("{} panels, at most {PANELS_MAX}", self.panels.len()));
        }
        for panel in &self.panels {
            let points: usize = panel.series.iter().map(|series| series.points.len()).sum();
            if panel.series.len() > SERIES_MAX {
                return too_much(format!("{} series, at most {SERIES_MAX}", panel.series.len()));
            }
            if points > POINTS_MAX {
                return too_much(format!("{points} points, at most {POINTS_MAX}"));
            }
        }
        Ok(())
    }
}

fn one_panel(
    path: &Path,
    title: &str,
    shape: Shape,
    axes: [Axis; 2],
    series: &[Series],
) -> Result<(), PlotError> {
    let [x, y] = axes;
    Figure::new(title, Panel::new(shape, x, y, series.to_vec())).write(path)
}

/// Writes a picture of lines.
///
/// # Errors
///
/// As [`Figure::write`].
pub fn lines(
    path: &Path,
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[Series],
) -> Result<(), PlotError> {
    one_panel(path, title, Shape::Lines, [Axis::new(x_label), Axis::new(y_label)], series)
}

/// Writes a picture of values that hold until the next point.
///
/// # Errors
///
/// As [`Figure::write`].
pub fn steps(
    path: &Path,
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[Series],
) -> Result<(), PlotError> {
    one_panel(path, title, Shape::Steps, [Axis::new(x_label), Axis::new(y_label)], series)
}

/// Writes a picture of filled steps on top of each other, such as nodes per site over time.
///
/// # Errors
///
/// As [`Figure::write`].
pub fn stacked_steps(
    path: &Path,
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[Series],
) -> Result<(), PlotError> {
    one_panel(path, title, Shape::StackedSteps, [Axis::new(x_label), Axis::new(y_label)], series)
}

/// Writes a picture of bars in named groups; see [`Series::over_names`].
///
/// # Errors
///
/// As [`Figure::write`].
pub fn grouped_bars(
    path: &Path,
    title: &str,
    y_label: &str,
    groups: &[&str],
    series: &[Series],
) -> Result<(), PlotError> {
    let x = Axis::named("", groups.iter().copied());
    one_panel(path, title, Shape::Bars, [x, Axis::new(y_label)], series)
}
