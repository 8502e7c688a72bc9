//! How busy a node was, window by window.

use std::collections::VecDeque;

use crate::clock::{WINDOW_NS, window_of};

/// Windows kept for each server: ten minutes of 10 ms windows, the longest cell of a figure with
/// room to spare, in at most 240 KiB.
pub const WINDOWS_KEPT: usize = 60_000;

/// Booked time per window, a bounded ring that forgets the oldest windows.
///
/// The time is that of the schedule, so the windows up to the present are final: a booking never
/// starts in the past.
#[derive(Clone, Debug, Default)]
pub(super) struct Usage {
    first: u64,
    busy_ns: VecDeque<u32>,
}

impl Usage {
    /// Adds one worker's time from `start_ns` to `done_ns`.
    pub(super) fn add(&mut self, start_ns: u64, done_ns: u64) {
        let mut at_ns = start_ns;
        // A single booking longer than the ring would only overwrite itself.
        let end_ns = done_ns.min(start_ns.saturating_add(WINDOW_NS * WINDOWS_KEPT as u64));
        while at_ns < end_ns {
            let window = window_of(at_ns);
            let until_ns = ((window + 1) * WINDOW_NS).min(end_ns);
            if let Some(busy) = self.slot(window) {
                let part = u32::try_from(until_ns - at_ns).unwrap_or(u32::MAX);
                *busy = busy.saturating_add(part);
            }
            at_ns = until_ns;
        }
    }

    /// Busy nanoseconds of one window, all workers together.
    pub(super) fn busy_ns(&self, window: u64) -> u64 {
        window
            .checked_sub(self.first)
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|offset| self.busy_ns.get(offset))
            .map_or(0, |&busy| u64::from(busy))
    }

    /// The oldest window still kept; `None` before the first booking.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.busy_ns.is_empty()).then_some(self.first)
    }

    fn slot(&mut self, window: u64) -> Option<&mut u32> {
        if self.busy_ns.is_empty() {
            self.first = window;
        }
        let offset = usize::try_from(window.checked_sub(self.first)?).ok()?;
        if offset >= self.busy_ns.len() + WINDOWS_KEPT {
            // So long idle that all that is kept has become too old.
            self.busy_ns.clear();
            self.first = window;
        }
        let offset = usize::try_from(window - self.first).ok()?;
        if offset >= self.busy_ns.len() {
            self.busy_ns.resize(offset + 1, 0);
        }
        let surplus = self.busy_ns.len().saturating_sub(WINDOWS_KEPT);
        self.busy_ns.drain(..surplus);
        self.first += surplus as u64;
        self.busy_ns.get_mut(offset - surplus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_booking_is_split_at_window_borders() {
        let mut usage = Usage::default();
        usage.add(WINDOW_NS * 5 - 1_000, WINDOW_NS * 6 + 2_000);
        assert_eq!(usage.busy_ns(4), 1_000);
        assert_eq!(usage.busy_ns(5), WINDOW_NS);
        assert_eq!(usage.busy_ns(6), 2_000);
        assert_eq!(usage.busy_ns(7), 0);
        assert_eq!(usage.first(), Some(4));
    }

    #[test]
    fn the_ring_is_bounded_and_forgets_the_oldest() {
        let mut usage = Usage::default();
        let last = WINDOWS_KEPT as u64 + 10;
        for window in 0..=last {
            usage.add(window * WINDOW_NS, window * WINDOW_NS + 7);
        }
        assert_eq!(usage.busy_ns.len(), WINDOWS_KEPT);
        assert_eq!(usage.first(), Some(11));
        assert_eq!(usage.busy_ns(10), 0);
        assert_eq!(usage.busy_ns(11), 7);
        assert_eq!(usage.busy_ns(last), 7);
        // After a day of silence nothing old remains, and nothing huge was allocated.
        usage.add(10_000_000 * WINDOW_NS, 10_000_000 * WINDOW_NS + 5);
        assert_eq!(usage.busy_ns.len(), 1);
        assert_eq!(usage.busy_ns(10_000_000), 5);
    }

    proptest! {
        #[test]
        fn no_booked_time_is_lost(
            bookings in prop::collection::vec((0u64..500, 0u64..50_000_000), 1..40),
        ) {
            let mut usage = Usage::default();
            let mut start = 0;
            let mut booked = 0;
            for (gap, length) in bookings {
                start += gap * 100_000;
                usage.add(start, start + length);
                booked += length;
            }
            let seen: u64 = (0..20_000).map(|window| usage.busy_ns(window)).sum();
            prop_assert_eq!(seen, booked);
        }
    }
}
