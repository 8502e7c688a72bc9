//! When the next look is due, and what looks cost.

use std::time::Duration;

/// The share of a core that looks may cost, in parts of a thousand.
pub(crate) const LOOK_COST_MAX_PERMILLE: u64 = 50;

/// Looks over which the cost is averaged: long enough to even out a page fault, short enough to
/// react within a tenth of a second.
const COST_WINDOW: u32 = 64;

/// Absolute deadlines with two intervals, and the cost of looks.
#[derive(Clone, Debug)]
pub struct Pace {
    busy: Duration,
    idle: Duration,
    deadline: Duration,
    stretched: Duration,
    spent: Duration,
    looks: u32,
    cost: Duration,
}

impl Pace {
    /// Looks every `busy` or every `idle`; the first is due at `now`.
    #[must_use]
    pub fn new(busy: Duration, idle: Duration, now: Duration) -> Self {
        let zero = Duration::ZERO;
        Self {
            busy,
            idle: idle.max(busy),
            deadline: now,
            stretched: zero,
            spent: zero,
            looks: 0,
            cost: zero,
        }
    }

    /// Looks at other intervals from the next deadline on.
    pub fn set_intervals(&mut self, busy: Duration, idle: Duration) {
        (self.busy, self.idle) = (busy, idle.max(busy));
    }

    /// The time that a look made at `now` counts as: its deadline, if it is at most half an
    /// interval late; and from then on the deadlines follow it.
    pub fn look_time(&mut self, now: Duration) -> Duration {
        let late = now.saturating_sub(self.deadline);
        if now < self.deadline || late > self.every(true) / 2 {
            self.deadline = now;
        }
        self.deadline
    }

    /// Sets the next deadline. Deadlines that have passed already are left out.
    pub fn next(&mut self, now: Duration, is_busy: bool) -> Duration {
        let every = self.every(is_busy);
        self.deadline += every;
        if self.deadline <= now {
            self.deadline = now + every;
        }
        self.deadline
    }

    /// The interval in force.
    #[must_use]
    pub fn every(&self, is_busy: bool) -> Duration {
        if is_busy { self.busy.max(self.stretched) } else { self.idle.max(self.stretched) }
    }

    /// Notes the CPU time that one look took, and stretches the interval where looks would cost
    /// more than their share of a core.
    pub fn spent(&mut self, cpu: Duration) {
        self.spent += cpu;
        self.looks += 1;
        if self.looks < COST_WINDOW {
            return;
        }
        self.cost = self.spent / self.looks;
        let least = self.cost * 1_000 / u32::try_from(LOOK_COST_MAX_PERMILLE).unwrap_or(1);
        self.stretched = if least > self.busy { least } else { Duration::ZERO };
        (self.spent, self.looks) = (Duration::ZERO, 0);
    }

    /// The CPU time of one look, averaged.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.cost
    }

    /// Whether the busy interval is longer than the settings say.
    #[must_use]
    pub fn is_stretched(&self) -> bool {
        self.stretched > self.busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn pace() -> Pace {
        Pace::new(us(1_000), us(50_000), us(0))
    }

    #[test]
    fn a_look_that_is_a_little_late_counts_as_in_time() {
        let mut pace = pace();
        assert_eq!(pace.look_time(us(80)), us(0));
        assert_eq!(pace.next(us(90), true), us(1_000));
        assert_eq!(pace.look_time(us(1_400)), us(1_000));
        assert_eq!(pace.next(us(1_410), true), us(2_000));
    }

    #[test]
    fn a_look_that_is_very_late_or_early_starts_a_new_row() {
        let mut pace = pace();
        assert_eq!(pace.look_time(us(700)), us(700));
        assert_eq!(pace.next(us(720), false), us(50_700));
        assert_eq!(pace.look_time(us(9_000)), us(9_000));
    }

    #[test]
    fn deadlines_that_passed_are_left_out() {
        let mut pace = pace();
        pace.look_time(us(0));
        assert_eq!(pace.next(us(5_300), true), us(6_300));
    }

    #[test]
    fn dear_looks_are_stretched_to_their_share_and_back() {
        let mut pace = pace();
        for _ in 0..COST_WINDOW {
            pace.spent(us(100));
        }
        assert!(pace.is_stretched());
        assert_eq!((pace.cost(), pace.every(true)), (us(100), us(2_000)));
        for _ in 0..COST_WINDOW {
            pace.spent(us(10));
        }
        assert!(!pace.is_stretched());
        assert_eq!(pace.every(true), us(1_000));
    }
}
