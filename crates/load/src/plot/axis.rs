//! Ranges, round numbers and their labels. Pure arithmetic.

/// Most marks of an axis, whatever its range.
const TICKS_MAX: usize = 20;

/// An axis: where it begins and ends, and where its marks are.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
    step: f64,
}

impl Scale {
    /// A scale from `low` to `high` with about `marks` marks; the ends are moved apart where they
    /// are equal or out of order.
    pub(super) fn new(low: f64, high: f64, marks: u32) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        let step = round_step((high - low) / f64::from(marks.max(1)));
        let first = (low / step).ceil();
        // Half a millionth of a step forgives the rounding of the division.
        let ticks = (0..TICKS_MAX)
            .map(|number| (first + number as f64) * step)
            .take_while(|&tick| tick <= high + step * 5e-7)
            .collect();
        Self { low, high, ticks, step }
    }

    /// The same, but ending at a mark that is at or above `high`.
    pub(super) fn ending_round(low: f64, high: f64, marks: u32) -> Self {
        let step = Self::new(low, high, marks).step;
        Self::new(low, low + ((high - low) / step - 5e-7).ceil().max(1.0) * step, marks)
    }

    /// Place of a value between 0 (low end) and 1; held within the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Text of a mark.
    pub(super) fn label(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        number(tick, decimals)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    let round = factor.unwrap_or(10.0) * power;
    // Ranges of the smallest and largest numbers overflow the powers above.
    if round.is_normal() { round } else { step.max(f64::MIN_POSITIVE) }
}

/// A number with thousands separated by commas.
pub(super) fn number(value: f64, decimals: usize) -> String {
    if value.abs() >= 1e15 {
        return format!("{value:e}");
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = match text.find('.') {
        Some(point) => text.split_at(point),
        None => (text.as_str(), ""),
    };
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let zero = text.chars().all(|c| c == '0' || c == '.');
    let sign = if value < 0.0 && !zero { "-" } else { "" };
    format!("{sign}{grouped}{rest}")
}

/// A value for the top of a bar: three digits that count.
pub(super) fn short_number(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = if magnitude >= 100.0 || magnitude == 0.0 {
        0
    } else if magnitude >= 10.0 {
        1
    } else {
        2
    };
    number(value, decimals)
}

/// Smallest and largest of the finite values; `None` when there is none.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |so_far, value| match so_far {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!(Scale::new(0.0, 10.0, 5).ticks, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let scale = Scale::ending_round(0.0, 9_731.0, 5);
        assert_eq!(scale.high, 10_000.0);
        assert_eq!(scale.label(4_000.0), "4,000");
        let scale = Scale::new(0.0, 0.9, 5);
        assert_eq!(
            scale.ticks.iter().map(|&t| scale.label(t)).collect::<Vec<_>>().join(" "),
            "0.0 0.2 0.4 0.6 0.8"
        );
    }

    #[test]
    fn numbers_are_grouped_and_signed() {
        assert_eq!(number(1_234_567.0, 0), "1,234,567");
        assert_eq!(number(-1_234.5, 1), "-1,234.5");
        assert_eq!(number(-0.01, 1), "0.0");
        assert_eq!(number(999.0, 0), "999");
        assert_eq!(short_number(2.447), "2.45");
        assert_eq!(short_number(24.47), "24.5");
        assert_eq!(short_number(11_870.4), "11,870");
    }

    #[test]
    fn what_is_no_number_does_not_count() {
        assert_eq!(extent([f64::NAN, 2.0, f64::INFINITY, -1.0].into_iter()), Some((-1.0, 2.0)));
        assert_eq!(extent([f64::NAN].into_iter()), None);
    }

    proptest! {
        #[test]
        fn every_range_gives_a_usable_scale(a in -1e12f64..1e12, b in -1e12f64..1e12) {
            for scale in [Scale::new(a, b, 8), Scale::ending_round(a, b, 5)] {
                prop_assert!(scale.high > scale.low);
                prop_assert!(scale.ticks.len() <= TICKS_MAX);
                prop_assert!((0.0..=1.0).contains(&scale.place(a)));
                for &tick in &scale.ticks {
                    prop_assert!(scale.label(tick).len() < 30);
                }
            }
        }
    }
}
