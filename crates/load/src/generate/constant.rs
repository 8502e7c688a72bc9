//! The open loop: requests leave at set times, answered or not, and latency counts from the set
//! time. A server that stalls is thus charged for every request that it kept waiting, also for
//! those that could not even be sent (no coordinated omission).
//!
//! This is the schedule of a steady rate; [`super::open`] follows any.

use std::time::Duration;

use super::open::{Due, Planned, Schedule};
use crate::trace::Random;

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
    /// How the set times lie.
    pub spacing: Spacing,
}

/// How the set times of an open loop lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All the same time apart.
    #[default]
    Even,
    /// As those of many independent clients: a Poisson process. The same seed gives the same times.
    Poisson {
        /// Decides every draw.
        seed: u64,
    },
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
            spacing: Spacing::default(),
        }
    }
}

/// Requests at a steady rate.
pub(super) struct Steady {
    sites: Vec<usize>,
    interval_ns: f64,
    requests: u64,
    next: u64,
    /// When the next one leaves; intervals after the start.
    at_intervals: f64,
    /// Draws the gaps that are not even.
    random: Option<Random>,
}

impl Steady {
    /// So many requests as the options say.
    pub(super) fn new(options: &ConstantOptions, requests: u64) -> Self {
        let interval_ns = 1e9 / options.rate_per_second;
        let mut random = match options.spacing {
            Spacing::Even => None,
            Spacing::Poisson { seed } => Some(Random::new(seed)),
        };
        let at_intervals = random.as_mut().map_or(0.0, Random::exponential);
        let sites = options.sites.clone();
        Self { sites, interval_ns, requests, next: 0, at_intervals, random }
    }
}

impl Schedule for Steady {
    fn peek(&mut self) -> Planned {
        if self.next >= self.requests {
            return Planned::End;
        }
        Planned::At((self.at_intervals * self.interval_ns) as u64)
    }

    fn pop(&mut self) -> Option<Due> {
        let Planned::At(set_ns) = self.peek() else { return None };
        let site = self.sites[(self.next % self.sites.len() as u64) as usize];
        self.next += 1;
        self.at_intervals += self.random.as_mut().map_or(1.0, Random::exponential);
        Some(Due { site, set_ns, uri: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(spacing: Spacing, count: u64) -> Vec<u64> {
        let options = ConstantOptions::new(1e7, Duration::from_secs(1), 0);
        let mut steady = Steady::new(&ConstantOptions { spacing, ..options }, count);
        std::iter::from_fn(|| steady.pop()).map(|due| due.set_ns).collect()
    }

    #[test]
    fn even_times_are_an_interval_apart_from_the_start_on() {
        assert_eq!(times(Spacing::Even, 4), [0, 100, 200, 300]);
    }

    #[test]
    fn poisson_times_follow_their_seed_and_have_the_mean_and_spread_of_one() {
        let one = times(Spacing::Poisson { seed: 7 }, 100_000);
        assert_eq!(one, times(Spacing::Poisson { seed: 7 }, 100_000));
        assert_ne!(one[..10], times(Spacing::Poisson { seed: 8 }, 10)[..]);
        assert!(one.is_sorted());
        let mean = one[one.len() - 1] as f64 / one.len() as f64;
        assert!((mean - 100.0).abs() < 2.0, "{mean}");
        // Of such times 1/e lie further apart than the mean.
        let far = one.windows(2).filter(|pair| pair[1] - pair[0] > 100).count();
        let share = far as f64 / one.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }
}
