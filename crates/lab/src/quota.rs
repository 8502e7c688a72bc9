//! A share of a core: so many microseconds of CPU in each period.

use crate::error::LabError;
use std::ops::RangeInclusive;

/// The period of this project's figures: short, so that a node that used up its share waits for
/// less than a look and a hold together.
pub const PERIOD_US: u64 = 5_000;
/// The smallest quota that Linux takes (`min_cfs_quota_period`).
pub const QUOTA_US_MIN: u64 = 1_000;
/// The periods that Linux takes.
const PERIODS_US: RangeInclusive<u64> = 1_000..=1_000_000;
/// More cores than any machine has; keeps the product of both within range.
const CORES_MAX: f64 = 4_096.0;

/// A share of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    quota_us: u64,
    period_us: u64,
}

impl Quota {
    /// A share of one core (0.2 is a fifth), in periods of [`PERIOD_US`].
    ///
    /// # Errors
    ///
    /// [`LabError::Quota`] for a share so small that the kernel would refuse it.
    pub fn of_core(cores: f64) -> Result<Self, LabError> {
        Self::new(cores, PERIOD_US)
    }

    /// The same with another period.
    ///
    /// # Errors
    ///
    /// [`LabError::Quota`] for a share or period that the kernel would refuse.
    pub fn new(cores: f64, period_us: u64) -> Result<Self, LabError> {
        if !PERIODS_US.contains(&period_us) {
            let (least, most) = (PERIODS_US.start(), PERIODS_US.end());
            let text = format!("a period must be {least} to {most} us, not {period_us}");
            return Err(LabError::Quota(text));
        }
        if !(cores > 0.0 && cores <= CORES_MAX) {
            return Err(LabError::Quota(format!("{cores} is no share of a core")));
        }
        let quota_us = (cores * period_us as f64).round() as u64;
        if quota_us < QUOTA_US_MIN {
            let text = format!(
                "{:.1} % of a core is {quota_us} us in {period_us}; Linux takes no quota below \
                 {QUOTA_US_MIN} us, so that the least share with this period is {:.1} %",
                100.0 * cores,
                100.0 * QUOTA_US_MIN as f64 / period_us as f64,
            );
            return Err(LabError::Quota(text));
        }
        Ok(Self { quota_us, period_us })
    }

    /// CPU time in each period; microseconds.
    #[must_use]
    pub fn quota_us(self) -> u64 {
        self.quota_us
    }

    /// Length of a period; microseconds.
    #[must_use]
    pub fn period_us(self) -> u64 {
        self.period_us
    }

    /// The share of a core.
    #[must_use]
    pub fn cores(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_a_core_is_the_least_in_five_milliseconds() {
        let fifth = Quota::of_core(0.2).unwrap();
        assert_eq!((fifth.quota_us(), fifth.period_us()), (1_000, 5_000));
        assert!((fifth.cores() - 0.2).abs() < 1e-12);
        let text = Quota::of_core(0.05).unwrap_err().to_string();
        assert!(text.contains("5.0 %") && text.contains("least share") && text.contains("20.0 %"));
        assert_eq!(Quota::new(0.05, 20_000).unwrap().quota_us(), 1_000);
        assert_eq!(Quota::of_core(2.0).unwrap().quota_us(), 10_000);
    }

    #[test]
    fn nonsense_is_refused() {
        for cores in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            assert!(Quota::of_core(cores).is_err(), "{cores}");
        }
        for period_us in [0, 999, 1_000_001] {
            assert!(Quota::new(1.0, period_us).is_err(), "{period_us}");
        }
    }
}
