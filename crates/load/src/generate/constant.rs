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
struct SetTimes {
    interval_ns: f64,
    arrivals: Arrivals,
    /// How many intervals after the start the next request leaves.
    next: f64,
    draws: u64,
}

impl SetTimes {
    fn new(interval_ns: f64, arrivals: Arrivals) -> Self {
        let mut times = Self { interval_ns, arrivals, next: 0.0, draws: 0 };
        if arrivals != Arrivals::Even {
            times.advance();
        }
        times
    }

    /// When the next request leaves, after the start.
    fn next_ns(&self) -> u64 {
        (self.next * self.interval_ns) as u64
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

/// Requests at a rate.
pub(super) struct Steady {
    sites: Vec<usize>,
    times: SetTimes,
    requests: u64,
    next: u64,
}

impl Steady {
    /// So many requests as the options say.
    pub(super) fn new(options: &ConstantOptions, requests: u64) -> Self {
        let times = SetTimes::new(1e9 / options.rate_per_second, options.arrivals);
        Self { sites: options.sites.clone(), times, requests, next: 0 }
    }
}

impl Schedule for Steady {
    fn peek(&mut self) -> Planned {
        if self.next >= self.requests {
            return Planned::End;
        }
        Planned::At(self.times.next_ns())
    }

    fn pop(&mut self) -> Option<Due> {
        let Planned::At(set_ns) = self.peek() else { return None };
        let site = self.sites[(self.next % self.sites.len() as u64) as usize];
        self.times.advance();
        self.next += 1;
        Some(Due { site, set_ns, uri: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: Arrivals, count: usize) -> Vec<u64> {
        let mut times = SetTimes::new(100.0, arrivals);
        let mut next = || {
            let now = times.next_ns();
            times.advance();
            now
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn even_times_are_an_interval_apart_from_the_start_on() {
        assert_eq!(times(Arrivals::Even, 4), [0, 100, 200, 300]);
    }

    #[test]
    fn poisson_times_follow_their_seed_and_have_the_mean_and_spread_of_one() {
        let one = times(Arrivals::Poisson { seed: 7 }, 100_000);
        assert_eq!(one, times(Arrivals::Poisson { seed: 7 }, 100_000));
        assert_ne!(one[..10], times(Arrivals::Poisson { seed: 8 }, 10)[..]);
        assert!(one.is_sorted());
        let mean = one[one.len() - 1] as f64 / one.len() as f64;
        assert!((mean - 100.0).abs() < 2.0, "{mean}");
        // Of such times 1/e lie further apart than the mean.
        let far = one.windows(2).filter(|pair| pair[1] - pair[0] > 100).count();
        let share = far as f64 / one.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share}");
    }
}
