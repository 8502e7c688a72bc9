//! The legend of a panel: a swatch and a name for each series, in rows above the plot.

use super::Series;
use super::pen::{self, Pen, TextAlign};

const SIZE_PX: f64 = 13.0;
const SWATCH_PX: f64 = 12.0;
const GAP_PX: f64 = 22.0;
/// Height of a row.
const ROW_PX: f64 = 22.0;

/// Entries with their places.
pub(super) struct Legend<'data> {
    entries: Vec<(usize, &'data str, f64, usize)>,
    rows: usize,
}

impl<'data> Legend<'data> {
    /// Lays the names of the series out in rows of at most `width`. A single series without a
    /// name needs no legend.
    pub(super) fn plan(series: &'data [Series], width: f64) -> Self {
        let mut entries = Vec::new();
        let (mut left, mut row) = (0.0, 0);
        for (place, series) in series.iter().enumerate() {
            if series.name.is_empty() {
                continue;
            }
            let entry = SWATCH_PX + 7.0 + pen::text_width(&series.name, SIZE_PX);
            if left > 0.0 && left + entry > width {
                left = 0.0;
                row += 1;
            }
            entries.push((place, series.name.as_str(), left, row));
            left += entry + GAP_PX;
        }
        let rows = if entries.is_empty() { 0 } else { row + 1 };
        Self { entries, rows }
    }

    pub(super) fn height_px(&self) -> f64 {
        self.rows as f64 * ROW_PX
    }

    pub(super) fn draw(&self, pen: &Pen<'_>, left: f64, top: f64) -> Result<(), String> {
        for &(place, name, x, row) in &self.entries {
            let (x, y) = (left + x, top + row as f64 * ROW_PX);
            pen.rectangle((x, y), (x + SWATCH_PX, y + SWATCH_PX), pen::color(place))?;
            let at = (x + SWATCH_PX + 7.0, y);
            pen.text(at, name, TextAlign::Left, SIZE_PX, pen::INK, false)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_into_rows_and_empty_ones_vanish() {
        let named = |name: &str| Series::new(name, Vec::new());
        assert_eq!(Legend::plan(&[named("")], 100.0).rows, 0);
        let series = [named("first"), named(""), named("second"), named(&"long ".repeat(40))];
        let legend = Legend::plan(&series, 300.0);
        assert_eq!(legend.rows, 2);
        let places: Vec<_> =
            legend.entries.iter().map(|&(place, _, _, row)| (place, row)).collect();
        assert_eq!(places, [(0, 0), (2, 0), (3, 1)]);
    }
}
