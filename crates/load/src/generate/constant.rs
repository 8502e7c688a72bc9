//! The open loop: requests leave at set times, answered or not, and latency counts from the set
//! time. A server that stalls is thus charged for every request that it kept waiting, also for
//! those that could not even be sent (no coordinated omission).
//!
//! This is the schedule of a steady rate; [`super::open`] follows any.

use std::time::Duration;

use super::open::{Due, Planned, Schedule};

/// Default of the most requests in flight of an open loop: 256 cover 10,000 requests per second at
/// a latency of 25 ms.
pub const OUTSTANDING_MAX: usize = 256;

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

/// Requests at a steady rate.
pub(super) struct Steady {
    sites: Vec<usize>,
    interval_ns: f64,
    requests: u64,
    next: u64,
}

impl Steady {
    /// So many requests as the options say.
    pub(super) fn new(options: &ConstantOptions, requests: u64) -> Self {
        let interval_ns = 1e9 / options.rate_per_second;
        Self { sites: options.sites.clone(), interval_ns, requests, next: 0 }
    }
}

impl Schedule for Steady {
    fn peek(&mut self) -> Planned {
        if self.next >= self.requests {
            return Planned::End;
        }
        Planned::At((self.next as f64 * self.interval_ns) as u64)
    }

    fn pop(&mut self) -> Option<Due> {
        let Planned::At(set_ns) = self.peek() else { return None };
        let site = self.sites[(self.next % self.sites.len() as u64) as usize];
        self.next += 1;
        Some(Due { site, set_ns, uri: None })
    }
}
