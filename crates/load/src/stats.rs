//! Figures of a run: latency histograms, medians with their spread, counts in windows of time.

use hdrhistogram::Histogram;

use crate::clock::{WINDOW_NS, window_of};

/// Longest latency told apart from longer ones: far above any time-out of a load run.
pub const LATENCY_US_MAX: u64 = 600_000_000;

/// Windows that a [`WindowCounts`] holds: an hour of 10 ms windows. What lies beyond is counted in
/// the last one.
pub const WINDOWS_MAX: usize = 360_000;

/// Significant decimal digits that the histogram keeps.
const DIGITS: u8 = 3;

/// Latencies of requests, within 0.1 %; microseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, DIGITS)
            .expect("1 us to 600 s at 3 digits are valid bounds");
        Self { histogram }
    }
}

impl Latency {
    /// Counts one latency. Below a microsecond counts as one, above [`LATENCY_US_MAX`] as that.
    pub fn record_ns(&mut self, latency_ns: u64) {
        self.histogram.saturating_record((latency_ns / 1_000).max(1));
    }

    /// Adds all latencies of another record.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all records have the same bounds");
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.histogram.reset();
    }

    /// Number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that the given share (0 to 1) of the requests did not exceed; 0 when empty.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> u64 {
        self.histogram.value_at_quantile(share)
    }

    /// How many were longer, within the histogram's 0.1 %.
    #[must_use]
    pub fn slower_than(&self, us: u64) -> u64 {
        self.histogram.count_between(us.saturating_add(1), u64::MAX)
    }

    /// Median; microseconds.
    #[must_use]
    pub fn p50_us(&self) -> u64 {
        self.quantile_us(0.5)
    }

    /// 99th percentile; microseconds.
    #[must_use]
    pub fn p99_us(&self) -> u64 {
        self.quantile_us(0.99)
    }

    /// 99.9th percentile; microseconds.
    #[must_use]
    pub fn p999_us(&self) -> u64 {
        self.quantile_us(0.999)
    }

    /// The longest; microseconds; 0 when empty.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        self.histogram.max()
    }

    /// Mean; microseconds; 0 when empty.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.histogram.mean()
    }
}

/// Median and spread of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// Of the finite ones among `values`; `None` when there is none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&low, &high) = (sorted.first()?, sorted.last()?);
        let count = sorted.len();
        let middle = sorted[count / 2];
        let median = if count % 2 == 1 { middle } else { (sorted[count / 2 - 1] + middle) / 2.0 };
        Some(Self { median, low, high, count })
    }

    /// Distance of smallest and largest as a share of the median; 0 when the median is 0.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median.abs() }
    }
}

/// Median of the finite ones among `values`; `None` when there is none.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// The value that the given share (0 to 1) of the finite `values` does not exceed, by nearest
/// rank; `None` when there is none.
#[must_use]
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

/// Events per 10 ms window. Windows are numbered on the machine's monotonic clock, as those of a
/// stub are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowCounts {
    first: u64,
    counts: Vec<u32>,
}

impl WindowCounts {
    /// Counts an event at `at_ns`. Events before the first one's window count in that.
    pub fn add(&mut self, at_ns: u64) {
        let window = window_of(at_ns);
        if self.counts.is_empty() {
            self.first = window;
        }
        let offset = usize::try_from(window.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let offset = offset.min(WINDOWS_MAX - 1);
        if offset >= self.counts.len() {
            self.counts.resize(offset + 1, 0);
        }
        self.counts[offset] = self.counts[offset].saturating_add(1);
    }

    /// Number of the first window; meaningless while there are no counts.
    #[must_use]
    pub fn first_window(&self) -> u64 {
        self.first
    }

    /// Events of the first window, the next, and so on to the last that had one.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Points for a plot: seconds since `origin_ns`, and events per second, `group` windows taken
    /// together (at least one).
    #[must_use]
    pub fn rate_points(&self, origin_ns: u64, group: usize) -> Vec<(f64, f64)> {
        let group = group.max(1);
        let seconds = group as f64 * WINDOW_NS as f64 / 1e9;
        let start_s = (self.first as f64) * WINDOW_NS as f64 / 1e9 - origin_ns as f64 / 1e9;
        let rate = |part: &[u32]| part.iter().map(|&n| f64::from(n)).sum::<f64>() / seconds;
        self.counts
            .chunks(group)
            .enumerate()
            .map(|(place, part)| (start_s + place as f64 * seconds, rate(part)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut latency = Latency::default();
        for us in 1..=1_000u64 {
            latency.record_ns(us * 1_000);
        }
        assert_eq!(latency.count(), 1_000);
        assert_eq!((latency.p50_us(), latency.p99_us(), latency.p999_us()), (500, 990, 999));
        assert_eq!(latency.max_us(), 1_000);
        assert_eq!([0, 500, 1_000].map(|us| latency.slower_than(us)), [1_000, 500, 0]);
        let mut other = Latency::default();
        other.record_ns(u64::MAX);
        other.record_ns(0);
        other.add(&latency);
        assert_eq!(other.count(), 1_002);
        assert!(other.max_us() >= LATENCY_US_MAX);
        other.clear();
        assert_eq!((other.count(), other.p99_us(), other.max_us()), (0, 0, 0));
    }

    #[test]
    fn medians_and_spreads_ignore_what_is_no_number() {
        assert_eq!(median(&[3.0, f64::NAN, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[f64::INFINITY]), None);
        let spread = Spread::of(&[90.0, 100.0, 110.0]).expect("three values");
        assert_eq!((spread.low, spread.high, spread.count), (90.0, 110.0, 3));
        assert!((spread.relative() - 0.2).abs() < 1e-12);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.99), Some(4.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.0), Some(1.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn windows_count_and_become_rates() {
        let mut counts = WindowCounts::default();
        for at_ms in [1_000, 1_001, 1_009, 1_010, 1_035] {
            counts.add(at_ms * 1_000_000);
        }
        assert_eq!(counts.first_window(), 100);
        assert_eq!(counts.counts(), [3, 1, 0, 1]);
        let points = counts.rate_points(500_000_000, 2);
        assert_eq!(points.len(), 2);
        assert!((points[0].0 - 0.5).abs() < 1e-9 && (points[0].1 - 200.0).abs() < 1e-9);
        assert!((points[1].0 - 0.52).abs() < 1e-9 && (points[1].1 - 50.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn no_event_is_lost_and_memory_is_bounded(
            times in prop::collection::vec(0u64..u64::MAX, 1..30),
        ) {
            let mut counts = WindowCounts::default();
            times.iter().for_each(|&at| counts.add(at));
            let total: u64 = counts.counts().iter().map(|&n| u64::from(n)).sum();
            prop_assert_eq!(total, times.len() as u64);
            prop_assert!(counts.counts().len() <= WINDOWS_MAX);
        }
    }
}
