//! Passive health: a server that fails several times in a row takes no requests for a while.
//!
//! The agents' checks come first: a server that fails them is not asked at all, and one that
//! passes them again is asked at once, whatever its requests did before. Of the servers that
//! pass, so many are left out at once as [`ejections_max`] allows.

use std::time::Duration;

/// When a server is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// Failures in a row (no connection, broken or timed-out responses) that eject a server.
    pub failures_max: u32,
    /// How long the first ejection lasts; each one that follows before the server has done well
    /// for as long as it was ejected lasts twice as long, up to [`EJECT_MAX`].
    pub eject_for: Duration,
    /// The share of a site's servers that may be ejected at once, in percent. Where more of them
    /// fail, requests go to all: then the fault hardly lies with single servers, and the few that
    /// were left would only break under what all of them had carried.
    pub eject_max_pct: u8,
}

/// The longest ejection, unless the first one is set to be longer: a server that was mended is
/// back within the time that a person waits for it.
pub const EJECT_MAX: Duration = Duration::from_secs(300);

/// Doublings that are counted: any sensible first ejection has reached [`EJECT_MAX`] by then.
const EJECT_DOUBLINGS_MAX: u32 = 20;

impl Default for HealthOptions {
    fn default() -> Self {
        Self { failures_max: 3, eject_for: Duration::from_secs(1), eject_max_pct: 50 }
    }
}

impl HealthOptions {
    /// How long the ejection lasts that follows so many others.
    fn ejection(&self, before: u32) -> Duration {
        let limit = EJECT_MAX.max(self.eject_for);
        let factor = 1_u32 << before.min(EJECT_DOUBLINGS_MAX);
        self.eject_for.checked_mul(factor).unwrap_or(limit).min(limit)
    }
}

/// How many of so many servers may be ejected at once: the share, rounded down, but one where
/// there are two, and never all.
pub(crate) fn ejections_max(servers: usize, eject_max_pct: u8) -> usize {
    if eject_max_pct == 0 {
        return 0;
    }
    let share = servers * usize::from(eject_max_pct.min(100)) / 100;
    share.max(1).min(servers.saturating_sub(1))
}

/// What is remembered of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u32,
    ejections: u32,
    ejected_until: Duration,
    /// From then on a success makes its ejections forgotten.
    calm_from: Duration,
}

impl Health {
    /// Notes a response.
    pub(crate) fn succeeded(&mut self, now: Duration) {
        self.failures = 0;
        if self.ejections > 0 && now >= self.calm_from {
            self.ejections = 0;
        }
    }

    /// Notes a failure; true when this one ejects the server.
    pub(crate) fn failed(&mut self, now: Duration, options: HealthOptions) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < options.failures_max || self.is_ejected(now) {
            return false;
        }
        let lasts = options.ejection(self.ejections);
        self.ejected_until = now + lasts;
        self.calm_from = self.ejected_until + lasts;
        self.ejections = self.ejections.saturating_add(1);
        // One failure after its return is enough to eject it again.
        self.failures = options.failures_max.saturating_sub(1);
        true
    }

    /// Its checks pass again: it is asked at once, and remembered for one more time.
    pub(crate) fn came_back(&mut self) {
        self.failures = 0;
        self.ejected_until = Duration::ZERO;
    }

    /// Whether it failed so often that it should take no requests now.
    pub(crate) fn is_ejected(&self, now: Duration) -> bool {
        now < self.ejected_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OPTIONS: HealthOptions =
        HealthOptions { failures_max: 3, eject_for: Duration::from_secs(1), eject_max_pct: 50 };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_failures_in_a_row_eject() {
        let mut health = Health::default();
        assert!(!health.failed(s(1), OPTIONS) && !health.failed(s(1), OPTIONS));
        health.succeeded(s(1));
        assert!(!health.failed(s(1), OPTIONS) && !health.failed(s(1), OPTIONS));
        assert!(health.failed(s(1), OPTIONS));
        assert!(health.is_ejected(s(1)) && !health.is_ejected(s(2)));
    }

    #[test]
    fn a_server_that_comes_back_and_fails_is_left_out_for_longer() {
        let mut health = Health::default();
        for _ in 0..3 {
            health.failed(s(0), OPTIONS);
        }
        assert!(health.failed(s(1), OPTIONS));
        assert!(health.is_ejected(s(2)) && !health.is_ejected(s(3)));
        for round in 1..40 {
            health.failed(s(1_000 * round), OPTIONS);
        }
        let last = s(39_000);
        assert!(health.is_ejected(last + EJECT_MAX - s(1)) && !health.is_ejected(last + EJECT_MAX));
    }

    /// One lucky request used to make a failing server's ejections short again.
    #[test]
    fn ejections_are_forgotten_after_as_long_a_time_without_one() {
        let mut health = Health::default();
        let lasts = |health: &mut Health, now: u64| {
            while !health.failed(s(now), OPTIONS) {}
            (now..).find(|&at| !health.is_ejected(s(at))).unwrap() - now
        };
        assert_eq!((lasts(&mut health, 10), lasts(&mut health, 20)), (1, 2));
        health.succeeded(s(23));
        assert_eq!(lasts(&mut health, 23), 4);
        health.succeeded(s(31));
        assert_eq!(lasts(&mut health, 32), 1);
    }

    #[test]
    fn checks_that_pass_again_end_an_ejection_but_do_not_excuse_it() {
        let mut health = Health::default();
        while !health.failed(s(1), OPTIONS) {}
        health.came_back();
        assert!(!health.is_ejected(s(1)));
        while !health.failed(s(1), OPTIONS) {}
        assert!(health.is_ejected(s(2)) && !health.is_ejected(s(3)));
    }

    #[test]
    fn an_ejection_longer_than_the_limit_stays_as_it_was_set() {
        let options = HealthOptions { eject_for: s(3_600), ..OPTIONS };
        assert_eq!((options.ejection(0), options.ejection(9)), (s(3_600), s(3_600)));
    }

    #[test]
    fn half_of_a_site_may_be_ejected_and_the_only_server_never() {
        let of = |servers| ejections_max(servers, 50);
        assert_eq!([of(0), of(1), of(2), of(3), of(4), of(5), of(8)], [0, 0, 1, 1, 2, 2, 4]);
        assert_eq!((ejections_max(9, 0), ejections_max(9, 1), ejections_max(9, 100)), (0, 1, 8));
    }

    proptest! {
        #[test]
        fn some_server_is_always_left(servers in 1_usize..20_000, pct: u8) {
            prop_assert!(ejections_max(servers, pct) < servers);
        }
    }
}
