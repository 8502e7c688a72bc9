//! When the next look is due, and what looks cost.

use std::time::Duration;

/// The share of a core that looks may cost, in parts of a thousand.
pub(crate) const LOOK_COST_MAX_PERMILLE: u64 = 50;

/// Looks over which the cost is averaged: long enough to even out a page fault, short enough to
/// react within a tenth of a second.
const COST_WINDOW: u32 = 64;

/// How much longer an edge may leave out its look while the pool is calm. A request that has to
/// wait wakes it, so that it is only what other edges do that it learns of later.
const CALM_FACTOR: u32 = 4;

/// How much there may be to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tempo {
    /// Some site may soon want a node.
    Busy,
    /// Requests are under way, but none waits, and every site has room for many more.
    Calm,
    /// No request is under way.
    Idle,
}

/// Absolute deadlines with an interval for each tempo, and the cost of looks.
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
        if now < self.deadline || late > self.every(Tempo::Busy) / 2 {
            self.deadline = now;
        }
        self.deadline
    }

    /// Sets the next deadline. Deadlines that have passed already are left out.
    pub fn next(&mut self, now: Duration, tempo: Tempo) -> Duration {
        let every = self.every(tempo);
        self.deadline += every;
        if self.deadline <= now {
            self.deadline = now + every;
        }
        self.deadline
    }

    /// The interval in force.
    #[must_use]
    pub fn every(&self, tempo: Tempo) -> Duration {
        let every = match tempo {
            Tempo::Busy => self.busy,
            Tempo::Calm => (self.busy * CALM_FACTOR).min(self.idle),
            Tempo::Idle => self.idle,
        };
        every.max(self.stretched)
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
        assert_eq!(pace.next(us(90), Tempo::Busy), us(1_000));
        assert_eq!(pace.look_time(us(1_400)), us(1_000));
        assert_eq!(pace.next(us(1_410), Tempo::Busy), us(2_000));
    }

    #[test]
    fn a_look_that_is_very_late_or_early_starts_a_new_row() {
        let mut pace = pace();
        assert_eq!(pace.look_time(us(700)), us(700));
        assert_eq!(pace.next(us(720), Tempo::Idle), us(50_700));
        assert_eq!(pace.look_time(us(9_000)), us(9_000));
    }

    #[test]
    fn deadlines_that_passed_are_left_out() {
        let mut pace = pace();
        pace.look_time(us(0));
        assert_eq!(pace.next(us(5_300), Tempo::Busy), us(6_300));
    }

    #[test]
    fn a_calm_pool_is_looked_at_less_often_but_not_less_than_an_idle_one() {
        assert_eq!(pace().every(Tempo::Calm), us(4_000));
        let rare = Pace::new(us(30_000), us(50_000), us(0));
        assert_eq!(rare.every(Tempo::Calm), us(50_000));
    }

    #[test]
    fn dear_looks_are_stretched_to_their_share_and_back() {
        let mut pace = pace();
        for _ in 0..COST_WINDOW {
            pace.spent(us(100));
        }
        assert!(pace.is_stretched());
        assert_eq!((pace.cost(), pace.every(Tempo::Busy)), (us(100), us(2_000)));
        for _ in 0..COST_WINDOW {
            pace.spent(us(10));
        }
        assert!(!pace.is_stretched());
        assert_eq!(pace.every(Tempo::Busy), us(1_000));
    }
}
