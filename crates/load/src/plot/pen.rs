//! A thin layer over `plotters`: pixels as floating-point numbers, a few strokes, and text.

use plotters::coord::Shift;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::{DrawingArea, IntoDrawingArea, RGBColor, SVGBackend, ShapeStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, TextStyle};

/// The library places everything on whole numbers; drawn so many times larger than shown, a
/// picture is precise to a quarter of a pixel.
const SCALE: f64 = 4.0;

/// The library divides font sizes by this before it writes them.
const FONT_SCALE: f64 = 1.24;

/// Mean width of a character of these fonts, as a share of the font size: enough to place legends.
const CHARACTER_WIDTH: f64 = 0.56;

const FONTS: &str = "Helvetica, Arial, sans-serif";

/// Titles and lines that matter.
pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// Labels.
pub(super) const QUIET: RGBColor = RGBColor(0x59, 0x63, 0x6e);
/// Lines of the grid.
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe7, 0xeb);
/// Axes.
pub(super) const AXIS: RGBColor = RGBColor(0x9a, 0xa4, 0xae);
/// The page.
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// Okabe and Ito's palette, ordered so that neighbours differ in lightness too; yellow, which is
/// faint on white, comes last but black.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x33, 0x33, 0x33),
];

/// Colour of the n-th series.
pub(super) fn color(series: usize) -> RGBColor {
    PALETTE[series % PALETTE.len()]
}

/// Which point of a text stands at the given place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextAlign {
    Left,
    Center,
    Right,
}

/// A point; pixels from the upper left corner.
pub(super) type Point = (f64, f64);

/// Draws an SVG picture.
pub(super) struct Pen<'svg> {
    area: DrawingArea<SVGBackend<'svg>, Shift>,
}

impl<'svg> Pen<'svg> {
    pub(super) fn new(svg: &'svg mut String, width: f64, height: f64) -> Self {
        let size = ((width * SCALE) as u32, (height * SCALE) as u32);
        Self { area: SVGBackend::with_string(svg, size).into_drawing_area() }
    }

    /// Ends the document.
    pub(super) fn finish(self) -> Result<(), String> {
        self.area.present().map_err(|error| error.to_string())
    }

    /// A line along the points.
    pub(super) fn line(&self, points: &[Point], color: RGBColor, width: f64) -> Result<(), String> {
        let style = color.stroke_width((width * SCALE).round() as u32);
        let path = PathElement::new(scaled(points), style);
        self.area.draw(&path).map_err(|error| error.to_string())
    }

    /// A line of dashes between two points.
    pub(super) fn dashes(&self, from: Point, to: Point, color: RGBColor) -> Result<(), String> {
        const DASH_PX: f64 = 6.0;
        const GAP_PX: f64 = 5.0;
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let at = |way: f64| {
            let share = (way / length).min(1.0);
            (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
        };
        let count = (length / (DASH_PX + GAP_PX)).ceil() as usize;
        for number in 0..count {
            let start = number as f64 * (DASH_PX + GAP_PX);
            self.line(&[at(start), at(start + DASH_PX)], color, 1.25)?;
        }
        Ok(())
    }

    /// A filled area.
    pub(super) fn fill(&self, outline: &[Point], color: RGBColor) -> Result<(), String> {
        let polygon = Polygon::new(scaled(outline), ShapeStyle::from(color).filled());
        self.area.draw(&polygon).map_err(|error| error.to_string())
    }

    /// A filled rectangle between two corners.
    pub(super) fn rectangle(&self, a: Point, b: Point, color: RGBColor) -> Result<(), String> {
        self.fill(&[a, (b.0, a.1), b, (a.0, b.1)], color)
    }

    /// A filled circle with a white rim.
    pub(super) fn dot(&self, at: Point, color: RGBColor) -> Result<(), String> {
        for (radius, color) in [(5.0, PAPER), (3.75, color)] {
            let radius = (radius * SCALE) as i32;
            let circle = Circle::new(scaled_point(at), radius, ShapeStyle::from(color).filled());
            self.area.draw(&circle).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// A line of text; `at` is the place of its upper edge and of what `align` says.
    pub(super) fn text(
        &self,
        at: Point,
        text: &str,
        align: TextAlign,
        size: f64,
        color: RGBColor,
        bold: bool,
    ) -> Result<(), String> {
        let weight = if bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::Name(FONTS), size * SCALE * FONT_SCALE, weight);
        let horizontal = match align {
            TextAlign::Left => HPos::Left,
            TextAlign::Center => HPos::Center,
            TextAlign::Right => HPos::Right,
        };
        let style = TextStyle::from(font).color(&color).pos(Pos::new(horizontal, VPos::Top));
        self.area.draw_text(text, &style, scaled_point(at)).map_err(|error| error.to_string())
    }
}

/// About how wide a text gets; pixels.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * CHARACTER_WIDTH
}

/// The document that the pen wrote, shown at its real size, named for readers who cannot see it,
/// and on white paper.
pub(super) fn finished(svg: &str, title: &str, width: f64, height: f64) -> String {
    let (head, rest) = svg.split_once('>').unwrap_or((svg, ""));
    let view = format!("viewBox=\"0 0 {} {}\"", (width * SCALE) as u32, (height * SCALE) as u32);
    let space = "xmlns=\"http://www.w3.org/2000/svg\"";
    debug_assert!(head.starts_with("<svg ") && head.contains(&view), "{head}");
    let title = title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<svg width=\"{width}\" height=\"{height}\" {view} {space} role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{rest}\n"
    )
}

fn scaled(points: &[Point]) -> Vec<(i32, i32)> {
    points.iter().map(|&point| scaled_point(point)).collect()
}

fn scaled_point(point: Point) -> (i32, i32) {
    ((point.0 * SCALE).round() as i32, (point.1 * SCALE).round() as i32)
}
