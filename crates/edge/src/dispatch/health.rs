//! Passive health: a server that fails several times in a row takes no requests for a while.

use std::time::Duration;

/// When a server is ejected, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthOptions {
    /// Failures in a row (no connection, broken or timed-out responses) that eject a server.
    pub failures_max: u32,
    /// How long the first ejection lasts; each one that follows without a success between them
    /// lasts twice as long, up to [`EJECT_DOUBLINGS_MAX`] doublings.
    pub eject_for: Duration,
}

/// Doublings of the time of ejection: 1 s becomes 64 s at the most, so that a server that came
/// back is never left out for minutes.
pub(crate) const EJECT_DOUBLINGS_MAX: u32 = 6;

impl Default for HealthOptions {
    fn default() -> Self {
        Self { failures_max: 3, eject_for: Duration::from_secs(1) }
    }
}

/// What is remembered of one server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Health {
    failures: u32,
    ejections: u32,
    ejected_until: Duration,
}

impl Health {
    /// Notes a response.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Notes a failure; true when this one ejects the server.
    pub(crate) fn failed(&mut self, now: Duration, options: HealthOptions) -> bool {
        self.failures = self.failures.saturating_add(1);
        if self.failures < options.failures_max || self.is_ejected(now) {
            return false;
        }
        let factor = 1 << self.ejections.min(EJECT_DOUBLINGS_MAX);
        self.ejected_until = now + options.eject_for * factor;
        self.ejections = self.ejections.saturating_add(1);
        // One failure after its return is enough to eject it again.
        self.failures = options.failures_max.saturating_sub(1);
        true
    }

    /// Whether the server takes no requests now.
    pub(crate) fn is_ejected(&self, now: Duration) -> bool {
        now < self.ejected_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: HealthOptions =
        HealthOptions { failures_max: 3, eject_for: Duration::from_secs(1) };

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_failures_in_a_row_eject() {
        let mut health = Health::default();
        assert!(!health.failed(s(1), OPTIONS) && !health.failed(s(1), OPTIONS));
        health.succeeded();
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
        for _ in 0..40 {
            health.failed(s(1_000), OPTIONS);
        }
        assert!(!health.is_ejected(s(1_064)));
    }
}
