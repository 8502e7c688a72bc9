//! The open loop: requests leave at set times, answered or not, and latency counts from the set
//! time. A server that stalls is thus charged for every request that it kept waiting, also for
//! those that could not even be sent (no coordinated omission).
//!
//! The pacer sleeps on the precise timer until the next set time and hands the request to an idle
//! client. When all clients are in use, the requests that are due wait as a mere number; each
//! client takes the oldest when it gets free.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::client::{Client, Plan};
use super::options::Cancel;
use super::recorder::Recorder;
use super::report::Failure;
use crate::clock::{duration_ns, now_ns};
use crate::timer::PreciseTimer;

/// A request that leaves later than this after its set time counts as late; microseconds. It is
/// what a busy but healthy generator stays below.
pub const LATE_US: u64 = 1_000;

/// Default of the most requests in flight of an open loop: 256 cover 10,000 requests per second at
/// a latency of 25 ms.
pub const OUTSTANDING_MAX: usize = 256;

/// How often the pacer looks for a stop that was asked for.
const LOOK_NS: u64 = 10_000_000;

/// How often it looks while all clients are in use. They take what is due themselves; this bounds
/// how late the first request leaves once they have caught up.
const SATURATED_LOOK_NS: u64 = 1_000_000;

/// Shape of an open loop.
#[derive(Clone, Debug)]
pub struct ConstantOptions {
    /// Requests per second, all sites together.
    pub rate_per_second: f64,
    /// How long requests are sent.
    pub duration: Duration,
    /// Places of the sites that take the requests in turn.
    pub sites: Vec<usize>,
    /// Most requests in flight, 1..=[`super::IN_FLIGHT_MAX`]; those due beyond it wait.
    pub outstanding_max: usize,
    /// How the set times lie.
    pub arrivals: Arrivals,
}

/// How the set times of an open loop lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// All the same time apart.
    #[default]
    Even,
    /// As those of many independent clients: a Poisson process. The same seed gives the same times.
    Poisson {
        /// Where the draws begin.
        seed: u64,
    },
}

/// The set times of a run, one after the other.
pub(super) struct SetTimes {
    start_ns: u64,
    interval_ns: f64,
    arrivals: Arrivals,
    /// How many intervals after the start the next request leaves.
    next: f64,
    draws: u64,
}

impl SetTimes {
    pub(super) fn new(start_ns: u64, interval_ns: f64, arrivals: Arrivals) -> Self {
        let mut times = Self { start_ns, interval_ns, arrivals, next: 0.0, draws: 0 };
        if arrivals != Arrivals::Even {
            times.advance();
        }
        times
    }

    /// When the next request leaves.
    fn next_ns(&self) -> u64 {
        self.start_ns + (self.next * self.interval_ns) as u64
    }

    /// Goes on to the one after it.
    fn advance(&mut self) {
        self.next += match self.arrivals {
            Arrivals::Even => 1.0,
            Arrivals::Poisson { seed } => {
                self.draws += 1;
                // Above 0, so that the logarithm is finite.
                let draw = (mix(seed, self.draws) >> 11) as f64 + 1.0;
                -(draw / (1_u64 << 53) as f64).ln()
            }
        };
    }
}

/// The `number`-th draw of a seed (SplitMix64; Steele, Lea and Flood, 2014).
fn mix(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl ConstantOptions {
    /// A rate to one site, at most [`OUTSTANDING_MAX`] in flight.
    #[must_use]
    pub fn new(rate_per_second: f64, duration: Duration, site: usize) -> Self {
        Self {
            rate_per_second,
            duration,
            sites: vec![site],
            outstanding_max: OUTSTANDING_MAX,
            arrivals: Arrivals::default(),
        }
    }
}

/// An open run, shared by pacer and clients.
pub(super) struct OpenRun {
    pub(super) plan: Rc<Plan>,
    pub(super) recorder: Rc<Recorder>,
    pub(super) cancel: Cancel,
    pub(super) timer: PreciseTimer,
    pub(super) sites: Vec<usize>,
    pub(super) times: RefCell<SetTimes>,
    pub(super) requests: u64,
    pub(super) next: Cell<u64>,
    pub(super) late: Cell<u64>,
    pub(super) idle: RefCell<Vec<Client>>,
}

/// A request that is due.
pub(super) struct Due {
    site: usize,
    set_ns: u64,
}

impl OpenRun {
    /// Takes the oldest request that is due at `now`. Requests that waited for longer than the
    /// time-out are counted as failed and passed over.
    pub(super) fn take_due(&self, now: u64) -> Option<Due> {
        loop {
            let number = self.next.get();
            let set_ns = self.times.borrow().next_ns();
            if number >= self.requests || set_ns > now || self.cancel.is_cancelled() {
                return None;
            }
            self.next.set(number + 1);
            self.times.borrow_mut().advance();
            let site = self.sites[(number % self.sites.len() as u64) as usize];
            if now - set_ns <= duration_ns(self.plan.timeout) {
                if now - set_ns > LATE_US * 1_000 {
                    self.late.set(self.late.get() + 1);
                }
                return Some(Due { site, set_ns });
            }
            self.recorder.record(site, set_ns, now, Err(Failure::Unsent));
        }
    }

    /// Waits until the next request is due, or for a look. False when all were taken.
    pub(super) async fn wait(&self) -> bool {
        if self.next.get() >= self.requests || self.cancel.is_cancelled() {
            return false;
        }
        let now = now_ns();
        let set_ns = self.times.borrow().next_ns();
        let until = if set_ns > now { set_ns.min(now + LOOK_NS) } else { now + SATURATED_LOOK_NS };
        self.timer.sleep_until(until).await;
        true
    }

    /// A client's loop: the given request, then all that are due, then back among the idle ones.
    pub(super) async fn work(self: Rc<Self>, mut client: Client, first: Due) {
        let mut due = Some(first);
        while let Some(Due { site, set_ns }) = due {
            let outcome = client.exchange(&self.plan, site).await;
            let now = now_ns();
            self.recorder.record(site, set_ns, now, outcome);
            due = self.take_due(now);
        }
        self.idle.borrow_mut().push(client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: Arrivals, count: usize) -> Vec<u64> {
        let mut times = SetTimes::new(1_000, 100.0, arrivals);
        let mut next = || {
            let now = times.next_ns();
            times.advance();
            now
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn even_times_are_an_interval_apart_from_the_start_on() {
        assert_eq!(times(Arrivals::Even, 4), [1_000, 1_100, 1_200, 1_300]);
    }

    #[test]
    fn poisson_times_follow_their_seed_and_have_the_mean_and_spread_of_one() {
        let one = times(Arrivals::Poisson { seed: 7 }, 100_000);
        assert_eq!(one, times(Arrivals::Poisson { seed: 7 }, 100_000));
        assert_ne!(one[..10], times(Arrivals::Poisson { seed: 8 }, 10)[..]);
        assert!(one.is_sorted());
        let mean = (one[one.len() - 1] - 1_000) as f64 / one.len() as f64;
        assert!((mean - 100.0).abs() < 2.0, "{mean}");
        // Of such times 1/e lie further apart than the mean.
        let far = one.windows(2).filter(|pair| pair[1] - pair[0] > 100).count();
        let share = far as f64 / one.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }
}
