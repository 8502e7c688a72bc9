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
}

impl ConstantOptions {
    /// A rate to one site, at most [`OUTSTANDING_MAX`] in flight.
    #[must_use]
    pub fn new(rate_per_second: f64, duration: Duration, site: usize) -> Self {
        Self { rate_per_second, duration, sites: vec![site], outstanding_max: OUTSTANDING_MAX }
    }
}

/// An open run, shared by pacer and clients.
pub(super) struct OpenRun {
    pub(super) plan: Rc<Plan>,
    pub(super) recorder: Rc<Recorder>,
    pub(super) cancel: Cancel,
    pub(super) timer: PreciseTimer,
    pub(super) sites: Vec<usize>,
    pub(super) start_ns: u64,
    pub(super) interval_ns: f64,
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
            let set_ns = self.set_ns(number);
            if number >= self.requests || set_ns > now || self.cancel.is_cancelled() {
                return None;
            }
            self.next.set(number + 1);
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
        let set_ns = self.set_ns(self.next.get());
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

    fn set_ns(&self, number: u64) -> u64 {
        self.start_ns + (number as f64 * self.interval_ns) as u64
    }
}
