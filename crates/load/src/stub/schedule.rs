//! The pure core of the stub: when is a request that arrives now answered?
//!
//! ```text
//! on arrival at a:
//!     w       = the worker that is free earliest
//!     start   = max(a, free_at[w])
//!     if start > a and queue_max requests wait already: refuse
//!     free_at[w] = start + t
//!     reply at free_at[w]
//! ```
//!
//! Bookings follow one another on this schedule and not on the moments at which timers fired, so a
//! late timer makes one reply late and loses no capacity: while the queue never runs empty, `W`
//! workers serve exactly `W / t` requests per second.
//!
//! As `t` is the same for all, workers become free in the order in which they were booked. The
//! earliest free one is therefore always the next in a ring, and a booking costs no search. (The
//! naive twin in the tests searches.)

use std::collections::VecDeque;

use thiserror::Error;

/// Most workers that a node may have; keeps the busy time of one window below 2^32 ns.
pub const WORKERS_MAX: u32 = 256;

/// One request on the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Booking {
    /// When a worker takes the request; nanoseconds on the caller's clock.
    pub start_ns: u64,
    /// When the reply is due: `start_ns` plus the service time.
    pub done_ns: u64,
}

/// More requests wait than the queue holds; answer 503 at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// The workers of one node and their bookings. No clock: the time comes in with each call.
#[derive(Clone, Debug)]
pub struct Schedule {
    free_at_ns: Vec<u64>,
    next: usize,
    service_ns: u64,
    queue_max: usize,
    waiting_starts_ns: VecDeque<u64>,
    last_now_ns: u64,
}

impl Schedule {
    /// A node of `workers` (clamped to 1..=[`WORKERS_MAX`]) that need `service_ns` for a request
    /// and let at most `queue_max` requests wait.
    #[must_use]
    pub fn new(workers: u32, service_ns: u64, queue_max: usize) -> Self {
        let workers = workers.clamp(1, WORKERS_MAX) as usize;
        Self {
            free_at_ns: vec![0; workers],
            next: 0,
            service_ns,
            queue_max,
            waiting_starts_ns: VecDeque::new(),
            last_now_ns: 0,
        }
    }

    /// Books a request that arrived at `now_ns`. A `now_ns` before that of an earlier call counts
    /// as that earlier time.
    ///
    /// # Errors
    ///
    /// [`QueueFull`] when no worker is free and `queue_max` requests wait already.
    pub fn book(&mut self, now_ns: u64) -> Result<Booking, QueueFull> {
        let now_ns = self.advance(now_ns);
        let free_at_ns = self.free_at_ns[self.next];
        let start_ns = free_at_ns.max(now_ns);
        if start_ns > now_ns {
            if self.waiting_starts_ns.len() >= self.queue_max {
                return Err(QueueFull);
            }
            self.waiting_starts_ns.push_back(start_ns);
        }
        let done_ns = start_ns.saturating_add(self.service_ns);
        self.free_at_ns[self.next] = done_ns;
        self.next = (self.next + 1) % self.free_at_ns.len();
        self.check_invariants();
        Ok(Booking { start_ns, done_ns })
    }

    /// Requests that are booked but have not started at `now_ns`.
    pub fn waiting(&mut self, now_ns: u64) -> usize {
        self.advance(now_ns);
        self.waiting_starts_ns.len()
    }

    fn advance(&mut self, now_ns: u64) -> u64 {
        self.last_now_ns = self.last_now_ns.max(now_ns);
        while self.waiting_starts_ns.front().is_some_and(|&start| start <= self.last_now_ns) {
            self.waiting_starts_ns.pop_front();
        }
        self.last_now_ns
    }

    fn check_invariants(&self) {
        debug_assert!(self.waiting_starts_ns.len() <= self.queue_max);
        debug_assert!(
            self.free_at_ns.iter().all(|&at| at >= self.free_at_ns[self.next]),
            "the next worker of the ring is the earliest free one"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same rules, written as slowly and plainly as possible.
    struct Twin {
        workers: Vec<u64>,
        service_ns: u64,
        queue_max: usize,
        starts: Vec<u64>,
    }

    impl Twin {
        fn book(&mut self, now: u64) -> Option<Booking> {
            let waiting = self.starts.iter().filter(|&&start| start > now).count();
            let earliest = *self.workers.iter().min().expect("at least one worker");
            let start = earliest.max(now);
            if start > now && waiting >= self.queue_max {
                return None;
            }
            let place = self.workers.iter().position(|&at| at == earliest).expect("it is there");
            self.workers[place] = start + self.service_ns;
            self.starts.push(start);
            Some(Booking { start_ns: start, done_ns: start + self.service_ns })
        }
    }

    proptest! {
        #[test]
        fn the_ring_books_as_the_naive_twin_does(
            workers in 1u32..6,
            service_ns in 1u64..5_000,
            queue_max in 0usize..12,
            gaps in prop::collection::vec(0u64..3_000, 1..200),
        ) {
            let mut schedule = Schedule::new(workers, service_ns, queue_max);
            let mut twin = Twin {
                workers: vec![0; workers as usize],
                service_ns,
                queue_max,
                starts: Vec::new(),
            };
            let mut now = 0;
            for gap in gaps {
                now += gap;
                prop_assert_eq!(schedule.book(now).ok(), twin.book(now));
                let waiting = twin.starts.iter().filter(|&&start| start > now).count();
                prop_assert_eq!(schedule.waiting(now), waiting);
            }
        }

        /// However late the replies are taken, a queue that never runs empty loses nothing.
        #[test]
        fn a_node_that_is_never_idle_serves_exactly_its_capacity(
            workers in 1u32..6,
            service_ns in 1_000u64..1_000_000,
            lateness in prop::collection::vec(0u64..1_000_000, 50..300),
        ) {
            // Twice as many requests as workers are kept; each is replaced when its reply is
            // taken, up to one whole service time late.
            let in_flight = 2 * workers as usize;
            let mut schedule = Schedule::new(workers, service_ns, in_flight);
            let mut due: VecDeque<u64> = VecDeque::new();
            for _ in 0..in_flight {
                due.push_back(schedule.book(0).expect("there is room").done_ns);
            }
            let mut last = 0;
            let mut now = 0;
            for late in &lateness {
                let done = due.pop_front().expect("in_flight are always booked");
                now = now.max(done + late % service_ns);
                let booking = schedule.book(now).expect("there is room");
                prop_assert!(booking.start_ns >= done);
                last = booking.done_ns;
                due.push_back(booking.done_ns);
            }
            let booked = (in_flight + lateness.len()) as u64;
            let rounds = booked.div_ceil(u64::from(workers));
            prop_assert_eq!(last, rounds * service_ns);
        }

        #[test]
        fn no_window_holds_more_than_the_capacity(
            workers in 1u32..5,
            service_ns in 1u64..400,
            gaps in prop::collection::vec(0u64..300, 1..200),
        ) {
            let mut schedule = Schedule::new(workers, service_ns, usize::MAX);
            let mut now = 0;
            let mut done: Vec<u64> = Vec::new();
            for gap in gaps {
                now += gap;
                done.push(schedule.book(now).expect("the queue is unbounded").done_ns);
            }
            // Any W + 1 replies in a row span at least one service time.
            for run in done.windows(workers as usize + 1) {
                prop_assert!(run[workers as usize] - run[0] >= service_ns);
            }
        }
    }

    #[test]
    fn the_queue_bound_refuses_and_recovers() {
        let mut schedule = Schedule::new(2, 1_000, 1);
        assert_eq!(schedule.book(0), Ok(Booking { start_ns: 0, done_ns: 1_000 }));
        assert_eq!(schedule.book(10), Ok(Booking { start_ns: 10, done_ns: 1_010 }));
        assert_eq!(schedule.book(20), Ok(Booking { start_ns: 1_000, done_ns: 2_000 }));
        assert_eq!(schedule.book(30), Err(QueueFull));
        assert_eq!(schedule.book(1_000), Ok(Booking { start_ns: 1_010, done_ns: 2_010 }));
        assert_eq!(schedule.book(1_005), Err(QueueFull));
        assert_eq!(schedule.book(1_010), Ok(Booking { start_ns: 2_000, done_ns: 3_000 }));
    }

    #[test]
    fn a_clock_that_steps_back_is_taken_as_standing_still() {
        let mut schedule = Schedule::new(1, 100, 4);
        assert_eq!(schedule.book(1_000), Ok(Booking { start_ns: 1_000, done_ns: 1_100 }));
        assert_eq!(schedule.book(500), Ok(Booking { start_ns: 1_100, done_ns: 1_200 }));
    }
}
