//! How fast a queue empties, and how long who joins it would wait.
//!
//! ```text
//! gap      time during which somebody waited / answers in it, over windows of 50 ms and more;
//!          while nobody waits, answers say how much is asked, not how much could be answered
//! higher   arrivals of higher classes for each answer in that time: they will overtake
//! answer   gap x (ahead / (1 - higher) + in flight): the wait, and by Little's law the service
//! ```
//!
//! A prediction may be wrong: higher classes come in bursts. So who has waited too long to be
//! answered in time is found out too ([`Drain::is_late`]), by what has happened.
//!
//! Integers only, no clock: an answer and an arrival cost some additions.

use crate::admission::CLASSES_MAX;
use std::time::Duration;

/// A window ends after so long, if it has enough answers: long enough that single answers do not
/// count for much, and short beside any time in which a person notices.
const WINDOW_NS: u64 = 50_000_000;
/// Answers that a window has at least, unless it lasts for [`WINDOW_MAX_NS`]: with fewer, what
/// came of higher classes meanwhile is chance.
const ANSWERS_MIN: u32 = 32;
/// A slow site's window ends with what it has.
const WINDOW_MAX_NS: u64 = 1_000_000_000;
/// Answers by which a first window may be judged before its end.
const EARLY_ANSWERS: u32 = 4;
/// What was measured so long ago says nothing: nodes have moved since.
const STALE: Duration = Duration::from_secs(5);
/// Shares are in parts of this.
const WHOLE: u64 = 256;
/// Higher classes never leave less than this part of the answers to lower ones, as far as is
/// predicted: else a wait would be infinite by one window's chance.
const LEFT_MIN: u64 = WHOLE / 16;
/// What a prediction may use of an objective, in percent: it is a mean, and 99 of 100 must meet it.
const BUDGET_PCT: u64 = 80;
/// The same for who has waited: nothing can happen to it any more but its service.
const WAITED_BUDGET_PCT: u64 = 95;
/// What `Retry-After` asks for, in seconds. A minute is as long as anything here lasts.
const RETRY_AFTER_S: std::ops::RangeInclusive<u64> = 1..=60;

/// Who would be in front of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Requests that wait and go before it.
    pub(super) waiting: u64,
    /// Requests of this edge at the site's servers.
    pub(super) in_flight: u64,
}

/// What is known of one site's queue at this edge.
#[derive(Debug)]
pub(super) struct Drain {
    /// Between two answers while somebody waits; zero: not known.
    gap_ns: u64,
    /// By class: arrivals for each answer, in parts of [`WHOLE`].
    share: [u64; CLASSES_MAX],
    /// Since when somebody waits, as far as it is not in `spent_ns`; none: nobody does.
    since: Option<Duration>,
    /// In this window: time during which somebody waited.
    spent_ns: u64,
    answers: u32,
    arrived: [u32; CLASSES_MAX],
    /// When the last window ended.
    known_at: Duration,
}

impl Drain {
    pub(super) const fn new() -> Self {
        Self {
            gap_ns: 0,
            share: [0; CLASSES_MAX],
            since: None,
            spent_ns: 0,
            answers: 0,
            arrived: [0; CLASSES_MAX],
            known_at: Duration::ZERO,
        }
    }

    /// Tells whether anybody waits from now on.
    pub(super) fn waits(&mut self, waits: bool, now: Duration) {
        match (self.since, waits) {
            (None, true) => {
                if now.saturating_sub(self.known_at) > STALE {
                    *self = Self { known_at: now, ..Self::new() };
                }
                self.since = Some(now);
            }
            (Some(_), false) => {
                self.spend(now);
                self.since = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// A request of this class came.
    pub(super) fn arrived(&mut self, class: usize) {
        if self.since.is_some() {
            self.arrived[class] = self.arrived[class].saturating_add(1);
        }
    }

    /// A server has answered a request.
    pub(super) fn answered(&mut self, now: Duration) {
        if self.since.is_none() {
            return;
        }
        self.answers = self.answers.saturating_add(1);
        self.spend(now);
        let is_whole = self.spent_ns >= WINDOW_NS && self.answers >= ANSWERS_MIN;
        if is_whole || self.spent_ns >= WINDOW_MAX_NS {
            self.fold(now);
        }
    }

    fn spend(&mut self, now: Duration) {
        if let Some(since) = &mut self.since {
            self.spent_ns += nanos(now.saturating_sub(*since));
            *since = now;
        }
    }

    /// The window ends: what it says counts as much as all before.
    fn fold(&mut self, now: Duration) {
        let answers = u64::from(self.answers.max(1));
        let mean = |known: u64, new: u64| if self.gap_ns == 0 { new } else { known.midpoint(new) };
        for (share, arrived) in self.share.iter_mut().zip(&mut self.arrived) {
            *share = mean(*share, u64::from(*arrived) * WHOLE / answers);
            *arrived = 0;
        }
        self.gap_ns = mean(self.gap_ns, self.spent_ns / answers).max(1);
        (self.spent_ns, self.answers, self.known_at) = (0, 0, now);
    }

    /// The time between two answers; none while too few came.
    fn gap_ns(&self, now: Duration) -> Option<u64> {
        let open_ns = self.since.map_or(0, |since| nanos(now.saturating_sub(since)));
        let spent_ns = self.spent_ns + open_ns;
        if self.gap_ns == 0 {
            let early = self.answers >= EARLY_ANSWERS;
            return early.then(|| (spent_ns / u64::from(self.answers)).max(1));
        }
        // Where answers fail to come, a window that does not end tells it.
        let stalled = spent_ns > 2 * WINDOW_NS && spent_ns > 2 * self.gap_ns;
        let so_far = spent_ns / (u64::from(self.answers) + 1);
        Some(if stalled { self.gap_ns.max(so_far) } else { self.gap_ns })
    }

    /// Whether a request of this class would be answered too late.
    pub(super) fn is_over(
        &self,
        class: usize,
        ahead: Ahead,
        objective: Duration,
        now: Duration,
    ) -> bool {
        let Some(gap_ns) = self.gap_ns(now) else {
            // No more than are being served wait for as long as nothing is known.
            return ahead.waiting >= ahead.in_flight.max(1);
        };
        let higher: u64 = self.share[..class].iter().sum();
        let left = WHOLE.saturating_sub(higher).max(LEFT_MIN);
        let turns = ahead.waiting.saturating_mul(WHOLE) / left + ahead.in_flight;
        gap_ns.saturating_mul(turns) > nanos(objective) / 100 * BUDGET_PCT
    }

    /// Whether who has waited so long is answered too late, if it goes now.
    pub(super) fn is_late(
        &self,
        waited: Duration,
        in_flight: u64,
        objective: Duration,
        now: Duration,
    ) -> bool {
        let service_ns = self.gap_ns(now).unwrap_or(0).saturating_mul(in_flight);
        nanos(waited).saturating_add(service_ns) > nanos(objective) / 100 * WAITED_BUDGET_PCT
    }

    /// After how many seconds the queue will have drained, if nobody joined it.
    pub(super) fn retry_after_s(&self, queued: u64, now: Duration) -> u8 {
        let wait_ns = self.gap_ns(now).unwrap_or(0).saturating_mul(queued);
        let seconds = wait_ns.div_ceil(1_000_000_000);
        let bounded = seconds.clamp(*RETRY_AFTER_S.start(), *RETRY_AFTER_S.end());
        u8::try_from(bounded).unwrap_or(u8::MAX)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn ahead(waiting: u64, in_flight: u64) -> Ahead {
        Ahead { waiting, in_flight }
    }

    /// Answers each `gap` for so long, from `from` on.
    fn answer(drain: &mut Drain, from: Duration, gap: Duration, count: u32) -> Duration {
        for number in 1..=count {
            drain.answered(from + gap * number);
        }
        from + gap * count
    }

    proptest! {
        /// A steady server is known within two windows, whatever was known before.
        #[test]
        fn a_steady_rate_is_found(before_us in 50_u64..20_000, gap_us in 50_u64..20_000) {
            let mut drain = Drain::new();
            let start = ms(9_000);
            drain.waits(true, start);
            let then = answer(&mut drain, start, us(before_us), 2_000);
            let enough = (12 * WINDOW_NS / 1_000 / gap_us).max(12 * u64::from(ANSWERS_MIN));
            let now = answer(&mut drain, then, us(gap_us), enough as u32);
            let found = drain.gap_ns(now).unwrap();
            let wanted = gap_us * 1_000;
            prop_assert!(found.abs_diff(wanted) <= wanted / 10 + before_us, "{found} {wanted}");
        }

        /// Times without anybody who waits do not count, however many there are.
        #[test]
        fn idle_time_says_nothing(
            spells in proptest::collection::vec((1_u32..6, 1_u64..500), 200),
        ) {
            let mut drain = Drain::new();
            let mut now = ms(9_000);
            for (answers, idle_ms) in spells {
                drain.waits(true, now);
                now = answer(&mut drain, now, ms(2), answers);
                drain.waits(false, now);
                now += ms(idle_ms);
                drain.answered(now);
            }
            prop_assert_eq!(drain.gap_ns(now), Some(2_000_000));
        }
    }

    #[test]
    fn nothing_is_known_at_first_and_again_after_a_while() {
        let mut drain = Drain::new();
        let start = ms(9_000);
        drain.waits(true, start);
        assert_eq!(drain.gap_ns(start), None);
        assert!(!drain.is_over(1, ahead(3, 4), ms(1), start), "as many wait as are served");
        assert!(drain.is_over(1, ahead(4, 4), ms(1_000), start));
        let now = answer(&mut drain, start, ms(1), EARLY_ANSWERS);
        assert_eq!(drain.gap_ns(now), Some(1_000_000));
        let now = answer(&mut drain, now, ms(1), 100);
        drain.waits(false, now);
        drain.waits(true, now + STALE / 2);
        assert_eq!(drain.gap_ns(now + STALE / 2), Some(1_000_000));
        drain.waits(false, now + STALE / 2);
        drain.waits(true, now + STALE * 3);
        assert_eq!(drain.gap_ns(now + STALE * 3), None);
    }

    #[test]
    fn a_wait_counts_who_is_ahead_who_is_served_and_who_will_overtake() {
        let mut drain = Drain::new();
        let start = ms(9_000);
        drain.waits(true, start);
        // For each two answers one request of class 0 comes.
        let mut now = start;
        for number in 0..400 {
            now += ms(1);
            drain.answered(now);
            if number % 2 == 0 {
                drain.arrived(0);
            }
        }
        let over = |class, waiting, objective| {
            drain.is_over(class, ahead(waiting, 10), ms(objective), now)
        };
        // 10 ms of service and 30 of wait, of 50 of which 80 % may be used.
        assert!(!over(0, 30, 50) && over(0, 31, 50));
        // Half of the answers go to those that overtake.
        assert!(!over(1, 15, 50) && over(1, 16, 50));
        // 10 ms of service are left; 95 % may be used.
        let late = |waited| drain.is_late(ms(waited), 10, ms(60), now);
        assert!(!late(47) && late(48));
        assert_eq!(drain.retry_after_s(1, now), 1);
        assert_eq!(drain.retry_after_s(3_500, now), 4);
        assert_eq!(drain.retry_after_s(u64::MAX, now), 60);
    }

    #[test]
    fn answers_that_stop_are_noticed_without_another() {
        let mut drain = Drain::new();
        let start = ms(9_000);
        drain.waits(true, start);
        let now = answer(&mut drain, start, ms(1), 200);
        assert!(!drain.is_over(1, ahead(5, 2), ms(100), now));
        let later = now + Duration::from_secs(2);
        assert!(drain.is_over(1, ahead(5, 2), ms(100), later));
        assert_eq!(drain.retry_after_s(5, later), 10);
    }

    #[test]
    fn overtakers_without_end_leave_some_room() {
        let mut drain = Drain::new();
        let start = ms(9_000);
        drain.waits(true, start);
        let mut now = start;
        for _ in 0..400 {
            now += ms(1);
            (0..5).for_each(|_| drain.arrived(0));
            drain.answered(now);
        }
        assert!(!drain.is_over(1, ahead(1, 1), ms(100), now), "16 ms");
        assert!(drain.is_over(1, ahead(5, 1), ms(100), now));
    }
}
