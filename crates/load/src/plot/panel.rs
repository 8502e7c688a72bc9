//! One panel: axes, grid and the shapes of its series.

use super::axis::{Scale, extent, short_number};
use super::legend::Legend;
use super::pen::{self, Pen, Point, TextAlign};
use super::{Axis, Panel, Series, Shape};

const LABEL_PX: f64 = 13.0;
const TICK_PX: f64 = 12.0;
const VALUE_PX: f64 = 11.5;
const LINE_PX: f64 = 2.25;
const FINE_LINE_PX: f64 = 1.5;
/// Space between panels.
const GAP_PX: f64 = 22.0;
/// Distance of the lines of text above and below the plotting area.
const ROW_PX: f64 = 22.0;
/// A line with at most so many points shows them as dots.
const DOTS_MAX: usize = 24;
/// Share of a group's width that its bars take.
const BARS_SHARE: f64 = 0.74;
/// Bars get their values written above them while there are at most so many.
const VALUES_MAX: usize = 24;
/// Marks that the axes should have, about.
const X_MARKS: u32 = 8;
const Y_MARKS: u32 = 5;
/// Panels with more points get thinner lines.
const FINE_POINTS: usize = 200;
const HEIGHT_PX: std::ops::RangeInclusive<f64> = 40.0..=2_000.0;

/// A panel with everything settled but its place.
pub(super) struct Plan<'data> {
    panel: &'data Panel,
    legend: Legend<'data>,
    x: Scale,
    y: Scale,
    full_width: f64,
    left: f64,
    right: f64,
    height: f64,
}

/// Settles axes and sizes; `None` when the panel has no finite point. A legend equal to that of
/// the panel above, `before`, is left out.
pub(super) fn plan<'data>(
    panel: &'data Panel,
    before: Option<&Panel>,
    width: f64,
) -> Option<Plan<'data>> {
    let x = x_scale(panel)?;
    let y = y_scale(panel)?;
    let labels = y.ticks.iter().map(|&tick| pen::text_width(&y.label(tick), TICK_PX));
    let left = labels.fold(20.0, f64::max) + 8.0;
    let references = panel.references.iter().filter(|reference| reference.y.is_finite());
    let right = references.map(|reference| pen::text_width(&reference.label, VALUE_PX) + 8.0);
    // However long a label, half of the width is left for the plot.
    let right = right.fold(0.0, f64::max).min(width / 2.0);
    let repeated = before.is_some_and(|before| {
        let names = |panel: &Panel| panel.series.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        names(before) == names(panel)
    });
    let named: &[Series] = if repeated { &[] } else { &panel.series };
    let height = if panel.height_px.is_nan() { super::PANEL_HEIGHT_PX } else { panel.height_px };
    Some(Plan {
        panel,
        legend: Legend::plan(named, width),
        x,
        y,
        full_width: width,
        left,
        right,
        height: height.clamp(*HEIGHT_PX.start(), *HEIGHT_PX.end()),
    })
}

/// Gives all panels the same left and right border, so that they can be read under each other.
pub(super) fn align(plans: &mut [Plan<'_>]) {
    let left = plans.iter().map(|plan| plan.left).fold(0.0, f64::max);
    let right = plans.iter().map(|plan| plan.right).fold(0.0, f64::max);
    for plan in plans {
        (plan.left, plan.right) = (left, right);
    }
}

fn finite(series: &Series) -> impl Iterator<Item = Point> + '_ {
    series.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

fn x_scale(panel: &Panel) -> Option<Scale> {
    let (low, high) = extent(panel.series.iter().flat_map(finite).map(|(x, _)| x))?;
    let names = panel.x.names.len();
    if names > 0 || panel.shape == Shape::Bars {
        let last = (names.max(1) as f64 - 1.0).max(high);
        return Some(Scale::new(-0.5, last + 0.5, X_MARKS));
    }
    Some(Scale::new(end(panel.x.from, low), end(panel.x.to, high), X_MARKS))
}

fn end(wanted: Option<f64>, data: f64) -> f64 {
    wanted.filter(|end| end.is_finite()).unwrap_or(data)
}

fn y_scale(panel: &Panel) -> Option<Scale> {
    let spreads = panel.series.iter().flat_map(|series| &series.spread);
    let spreads = spreads.flat_map(|&(low, high)| [low, high]);
    let references = panel.references.iter().map(|reference| reference.y);
    let (low, high) = if panel.shape == Shape::StackedSteps {
        extent(stacked(&panel.series).into_iter().flat_map(|(_, tops)| tops))?
    } else {
        extent(panel.series.iter().flat_map(finite).map(|(_, y)| y).chain(spreads))?
    };
    let (low, high) = extent(references.chain([low, high]))?;
    let low = end(panel.y.from, low.min(0.0));
    Some(match panel.y.to.filter(|to| to.is_finite()) {
        Some(to) => Scale::new(low, to, Y_MARKS),
        None => Scale::ending_round(low, high, Y_MARKS),
    })
}

/// Changes of a stack: x, and the upper edge of each series from there on. Before its first point
/// a series has no height; what is no number or below zero has none either.
fn stacked(series: &[Series]) -> Vec<(f64, Vec<f64>)> {
    let mut changes: Vec<(f64, usize, f64)> = series
        .iter()
        .enumerate()
        .flat_map(|(place, series)| finite(series).map(move |(x, y)| (x, place, y.max(0.0))))
        .collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut heights = vec![0.0; series.len()];
    let mut stack: Vec<(f64, Vec<f64>)> = Vec::new();
    for (x, place, y) in changes {
        heights[place] = y;
        if stack.last().is_some_and(|last| last.0 == x) {
            stack.pop();
        }
        let mut top = 0.0;
        let tops = heights.iter().map(|height| {
            top += height;
            top
        });
        stack.push((x, tops.collect()));
    }
    stack
}

impl Plan<'_> {
    /// Height with legend, labels and the gap below.
    pub(super) fn height_px(&self) -> f64 {
        let x_label = if self.panel.x.label.is_empty() { 0.0 } else { ROW_PX };
        self.above() + self.height + ROW_PX + x_label + GAP_PX
    }

    fn width(&self) -> f64 {
        self.full_width - self.left - self.right
    }

    /// Thickness of lines.
    fn line_px(&self) -> f64 {
        let points = self.panel.series.iter().map(|series| series.points.len()).sum::<usize>();
        if points > FINE_POINTS { FINE_LINE_PX } else { LINE_PX }
    }

    fn above(&self) -> f64 {
        ROW_PX + 4.0 + self.legend.height_px()
    }

    /// Draws the panel with its upper left corner at the given place.
    pub(super) fn draw(&self, pen: &Pen<'_>, left: f64, top: f64) -> Result<(), String> {
        self.legend.draw(pen, left, top)?;
        let label_top = top + self.legend.height_px();
        let label = self.panel.y.label.as_str();
        pen.text((left, label_top), label, TextAlign::Left, LABEL_PX, pen::QUIET, false)?;
        let frame = Frame { plan: self, left: left + self.left, top: top + self.above() };
        frame.grid(pen)?;
        // Filled areas would cover the dashes, bars only cross them.
        if self.panel.shape != Shape::StackedSteps {
            frame.references(pen)?;
        }
        match self.panel.shape {
            Shape::Lines => frame.lines(pen)?,
            Shape::Steps => frame.steps(pen)?,
            Shape::StackedSteps => {
                frame.stack(pen)?;
                frame.references(pen)?;
            }
            Shape::Bars => frame.bars(pen)?,
        }
        frame.x_axis(pen)
    }
}

/// A plan at its place.
struct Frame<'plan> {
    plan: &'plan Plan<'plan>,
    left: f64,
    top: f64,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> f64 {
        self.left + self.plan.x.place(value) * self.plan.width()
    }

    fn y(&self, value: f64) -> f64 {
        self.top + (1.0 - self.plan.y.place(value)) * self.plan.height
    }

    fn at(&self, point: Point) -> Point {
        (self.x(point.0), self.y(point.1))
    }

    fn right(&self) -> f64 {
        self.left + self.plan.width()
    }

    fn bottom(&self) -> f64 {
        self.top + self.plan.height
    }

    fn grid(&self, pen: &Pen<'_>) -> Result<(), String> {
        for &tick in &self.plan.y.ticks {
            let y = self.y(tick);
            pen.line(&[(self.left, y), (self.right(), y)], pen::GRID, 1.0)?;
            let at = (self.left - 8.0, y - TICK_PX * 0.42);
            let label = self.plan.y.label(tick);
            pen.text(at, &label, TextAlign::Right, TICK_PX, pen::QUIET, false)?;
        }
        Ok(())
    }

    fn x_axis(&self, pen: &Pen<'_>) -> Result<(), String> {
        let y = self.bottom();
        pen.line(&[(self.left, y), (self.right(), y)], pen::AXIS, 1.25)?;
        let Axis { label, names, .. } = &self.plan.panel.x;
        for (place, name) in names.iter().enumerate() {
            let at = (self.x(place as f64), y + 9.0);
            pen.text(at, name, TextAlign::Center, TICK_PX, pen::QUIET, false)?;
        }
        let ticks: &[f64] = if names.is_empty() { &self.plan.x.ticks } else { &[] };
        for &tick in ticks {
            let x = self.x(tick);
            pen.line(&[(x, y), (x, y + 5.0)], pen::AXIS, 1.25)?;
            let text = self.plan.x.label(tick);
            pen.text((x, y + 9.0), &text, TextAlign::Center, TICK_PX, pen::QUIET, false)?;
        }
        let at = (self.left + self.plan.width() / 2.0, y + 9.0 + ROW_PX);
        pen.text(at, label, TextAlign::Center, LABEL_PX, pen::QUIET, false)
    }

    fn references(&self, pen: &Pen<'_>) -> Result<(), String> {
        for reference in &self.plan.panel.references {
            if !reference.y.is_finite() {
                continue;
            }
            let y = self.y(reference.y);
            pen.dashes((self.left, y), (self.right(), y), pen::INK)?;
            let at = (self.right() + 8.0, y - VALUE_PX * 0.42);
            pen.text(at, &reference.label, TextAlign::Left, VALUE_PX, pen::INK, false)?;
        }
        Ok(())
    }

    /// Clears the place of a text around `at`, which dashes may cross.
    fn clear_dashes(&self, pen: &Pen<'_>, at: Point, width: f64) -> Result<(), String> {
        if self.plan.panel.references.is_empty() {
            return Ok(());
        }
        let corner = (at.0 - width / 2.0 - 1.0, at.1 - 1.0);
        pen.rectangle(corner, (at.0 + width / 2.0 + 1.0, at.1 + VALUE_PX), pen::PAPER)
    }

    fn lines(&self, pen: &Pen<'_>) -> Result<(), String> {
        for (place, series) in self.plan.panel.series.iter().enumerate() {
            let color = pen::color(place);
            for &(x, (low, high)) in &spread_of(series) {
                pen.line(&[self.at((x, low)), self.at((x, high))], color, 1.25)?;
            }
            let broken = |&(x, y): &Point| !(x.is_finite() && y.is_finite());
            for run in series.points.split(broken).filter(|run| !run.is_empty()) {
                let points: Vec<Point> = run.iter().map(|&point| self.at(point)).collect();
                pen.line(&points, color, self.plan.line_px())?;
            }
            let dots = series.points.len() <= DOTS_MAX;
            for point in finite(series).filter(|_| dots) {
                pen.dot(self.at(point), color)?;
            }
        }
        Ok(())
    }

    fn steps(&self, pen: &Pen<'_>) -> Result<(), String> {
        for (place, series) in self.plan.panel.series.iter().enumerate() {
            let mut points: Vec<Point> = Vec::new();
            for (x, y) in finite(series) {
                if let Some(&(_, before)) = points.last() {
                    points.push((self.x(x), before));
                }
                points.push(self.at((x, y)));
            }
            if let Some(&(_, last)) = points.last() {
                points.push((self.right(), last));
                pen.line(&points, pen::color(place), self.plan.line_px())?;
            }
        }
        Ok(())
    }

    fn stack(&self, pen: &Pen<'_>) -> Result<(), String> {
        let stack = stacked(&self.plan.panel.series);
        // From the top down: each area reaches the axis and is covered by the next.
        for place in (0..self.plan.panel.series.len()).rev() {
            let mut outline: Vec<Point> = Vec::new();
            for (x, tops) in &stack {
                let (x, y) = self.at((*x, tops[place]));
                let before = outline.last().map_or(self.bottom(), |&(_, before)| before);
                outline.extend([(x, before), (x, y)]);
            }
            let last = outline.last().map_or(self.bottom(), |&(_, last)| last);
            outline.push((self.right(), last));
            let edge = outline.clone();
            outline.push((self.right(), self.bottom()));
            pen.fill(&outline, pen::color(place))?;
            pen.line(&edge, pen::PAPER, 1.0)?;
        }
        Ok(())
    }

    fn bars(&self, pen: &Pen<'_>) -> Result<(), String> {
        let series = &self.plan.panel.series;
        let group = self.x(1.0) - self.x(0.0);
        let bar = group * BARS_SHARE / series.len() as f64;
        let count: usize = series.iter().map(|series| series.points.len()).sum();
        for (place, series) in series.iter().enumerate() {
            let shift = (place as f64 - self.plan.panel.series.len() as f64 / 2.0) * bar;
            let spread = spread_of(series);
            for (x, y) in finite(series) {
                let left = self.x(x) + shift;
                let gap = (bar * 0.06).min(2.0);
                let (a, b) = ((left + gap, self.y(y)), (left + bar - gap, self.y(0.0)));
                pen.rectangle(a, b, pen::color(place))?;
                let middle = left + bar / 2.0;
                let mut top = self.y(y).min(self.y(0.0));
                if let Some(&(_, (low, high))) = spread.iter().find(|(at, _)| *at == x) {
                    let line = [(middle, self.y(low)), (middle, self.y(high))];
                    pen.line(&line, pen::INK, 1.25)?;
                    top = top.min(self.y(high));
                }
                if count <= VALUES_MAX {
                    let at = (middle, top - VALUE_PX - 3.0);
                    let value = short_number(y);
                    self.clear_dashes(pen, at, pen::text_width(&value, VALUE_PX))?;
                    pen.text(at, &value, TextAlign::Center, VALUE_PX, pen::INK, false)?;
                }
            }
        }
        Ok(())
    }
}

/// The spreads that are numbers, each with the x of its point.
fn spread_of(series: &Series) -> Vec<(f64, (f64, f64))> {
    let pairs = series.points.iter().map(|point| point.0).zip(series.spread.iter().copied());
    pairs.filter(|(x, (low, high))| [*x, *low, *high].iter().all(|v| v.is_finite())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_adds_up_at_every_change() {
        let series = [
            Series::new("red", vec![(0.0, 3.0), (2.0, 1.0)]),
            Series::new("blue", vec![(0.0, 2.0), (1.0, f64::NAN), (2.0, 4.0), (3.0, -1.0)]),
        ];
        let stack = stacked(&series);
        assert_eq!(stack, [(0.0, vec![3.0, 5.0]), (2.0, vec![1.0, 5.0]), (3.0, vec![1.0, 1.0])]);
    }

    #[test]
    fn axes_start_at_zero_and_hold_references_and_spreads() {
        let series = Series::new("", vec![(0.0, 5.0)]).with_spread(vec![(4.0, 13.0)]);
        let mut panel =
            Panel::new(Shape::Bars, Axis::named("", ["a"]), Axis::new(""), vec![series]);
        let scale = y_scale(&panel).expect("a point");
        assert_eq!((scale.low, scale.high), (0.0, 15.0));
        panel.references.push(super::super::Reference { y: 18.0, label: String::new() });
        assert_eq!(y_scale(&panel).map(|scale| scale.high), Some(20.0));
        panel.series[0].points.clear();
        assert!(plan(&panel, None, 900.0).is_none());
    }
}
