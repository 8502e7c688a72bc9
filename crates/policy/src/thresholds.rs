//! When a site's load counts as high, and when as light.

use pool_model::SiteView;
use std::fmt;

/// Loads at which a site counts as high and as light.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    high: f64,
    light: f64,
}

/// Why two numbers are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThresholdsError {
    high: f64,
    light: f64,
}

impl fmt::Display for ThresholdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { high, light } = self;
        write!(f, "high load {high} and light load {light}: need 0 < light < high")
    }
}

impl std::error::Error for ThresholdsError {}

impl Thresholds {
    /// High above 1.0: requests wait. Light below 0.5: half the nodes would do.
    pub const DEFAULT: Self = Self { high: 1.0, light: 0.5 };

    /// Checks that `0 < light < high`; the gap between them is the hysteresis.
    pub fn new(high: f64, light: f64) -> Result<Self, ThresholdsError> {
        let ordered = high.is_finite() && light > 0.0 && light < high;
        if ordered { Ok(Self { high, light }) } else { Err(ThresholdsError { high, light }) }
    }

    /// The load above which a site is high.
    #[must_use]
    pub const fn high(&self) -> f64 {
        self.high
    }

    /// The load below which a site is light.
    #[must_use]
    pub const fn light(&self) -> f64 {
        self.light
    }

    /// Whether the site's load is high. These three are asked of each site for each loaded one, so
    /// they don't divide.
    pub(crate) fn is_hot(&self, site: &SiteView) -> bool {
        demand(site) > self.high * f64::from(site.capacity)
    }

    /// Whether the site's load is light.
    pub(crate) fn is_light(&self, site: &SiteView) -> bool {
        let demand = demand(site);
        demand == 0.0 || demand < self.light * f64::from(site.capacity)
    }

    /// Whether the site would not be high without a node of this capacity.
    pub(crate) fn stays_calm(&self, donor: &SiteView, node_capacity: u32) -> bool {
        let rest = donor.capacity.saturating_sub(node_capacity);
        demand(donor) <= self.high * f64::from(rest)
    }
}

/// Requests of a site that are there, in flight and queued.
pub(crate) fn demand(site: &SiteView) -> f64 {
    f64::from(site.in_flight) + f64::from(site.queued)
}

impl Default for Thresholds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::site_view;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn loads_are_judged_without_a_division_as_with_one(
            demand in 0u32..40, capacity in 0u32..40, node in 0u32..20,
        ) {
            let site = SiteView { capacity, ..site_view(1, demand, 0, [0, 0, 0]) };
            let thresholds = Thresholds::DEFAULT;
            prop_assert_eq!(thresholds.is_hot(&site), site.load() > 1.0);
            prop_assert_eq!(thresholds.is_light(&site), site.load() < 0.5);
            prop_assert_eq!(thresholds.stays_calm(&site, node), site.load_without(node) <= 1.0);
        }
    }

    #[test]
    fn thresholds_leave_a_gap() {
        assert!(Thresholds::new(1.0, 0.5).is_ok());
        for (high, light) in [(0.5, 0.5), (0.5, 1.0), (1.0, 0.0), (f64::NAN, 0.5), (1.0, f64::NAN)]
        {
            assert!(Thresholds::new(high, light).is_err(), "{high} {light}");
        }
    }
}
