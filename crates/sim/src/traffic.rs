//! What clients ask for: single requests, or rates.

use crate::random::{Random, Stream};
use pool_model::SiteId;

const SECOND_NS: f64 = 1e9;
/// Requests of one site follow each other no closer: a billion in a second are more than any
/// simulation ends with.
const GAP_NS_MIN: f64 = 1.0;

/// A request that reaches the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// From the start of the run.
    pub at_ns: u64,
    /// For whom.
    pub site: SiteId,
}

/// From a time on, a site gets so many requests in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStep {
    /// From the start of the run.
    pub at_ns: u64,
    /// Which site.
    pub site: SiteId,
    /// Its rate until its next step.
    pub per_second: f64,
}

/// What comes to the pool.
pub enum Traffic {
    /// Single requests, by time: for pools of some tens of nodes.
    Requests(Box<dyn Iterator<Item = Arrival> + Send>),
    /// Rates, by time: load words are computed from rates, queues and capacity. For pools of any
    /// size; what a single request sees is not known.
    Rates(Vec<RateStep>),
}

impl std::fmt::Debug for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Requests(_) => f.write_str("Requests"),
            Self::Rates(steps) => write!(f, "Rates({})", steps.len()),
        }
    }
}

impl Traffic {
    /// Single requests at these rates, as Poisson processes: the gaps are drawn from the seed.
    #[must_use]
    pub fn poisson(seed: u64, steps: Vec<RateStep>, duration_ns: u64) -> Self {
        Self::Requests(Box::new(Poisson::new(seed, steps, duration_ns)))
    }
}

/// Requests at rates.
#[derive(Debug)]
struct Poisson {
    random: Random,
    steps: std::vec::IntoIter<RateStep>,
    coming: Option<RateStep>,
    /// By site: rate, and when the next request comes; by the order of sites.
    sites: Vec<(f64, f64)>,
    duration_ns: u64,
}

impl Poisson {
    fn new(seed: u64, mut steps: Vec<RateStep>, duration_ns: u64) -> Self {
        steps.sort_by_key(|step| step.at_ns);
        let count = steps.iter().map(|step| step.site.index() + 1).max().unwrap_or(0);
        let mut steps = steps.into_iter();
        let coming = steps.next();
        let random = Random::of(seed, Stream::Traffic);
        Self { random, steps, coming, sites: vec![(0.0, f64::INFINITY); count], duration_ns }
    }

    /// A process without memory may be drawn anew at any time: so a new rate acts at once.
    fn draw(&mut self, index: usize, from_ns: f64) {
        let (rate, next_ns) = &mut self.sites[index];
        let gap_ns = self.random.exponential() * SECOND_NS / *rate;
        *next_ns = if *rate > 0.0 { from_ns + gap_ns.max(GAP_NS_MIN) } else { f64::INFINITY };
    }
}

impl Iterator for Poisson {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        loop {
            let times = self.sites.iter().enumerate();
            let first = times.min_by(|a, b| a.1.1.total_cmp(&b.1.1));
            let (index, at_ns) = first.map(|(index, site)| (index, site.1))?;
            match self.coming.filter(|step| step.at_ns as f64 <= at_ns) {
                Some(step) => {
                    self.coming = self.steps.next();
                    self.sites[step.site.index()].0 = step.per_second;
                    self.draw(step.site.index(), step.at_ns as f64);
                }
                None => {
                    if at_ns >= self.duration_ns as f64 {
                        return None;
                    }
                    self.draw(index, at_ns);
                    let site = SiteId::from_index(index).ok()?;
                    return Some(Arrival { at_ns: at_ns as u64, site });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_become_requests_of_that_rate_and_a_new_rate_acts_at_once() {
        let (one, two) = (SiteId::MIN, SiteId::new(2).unwrap());
        let step = |at_s: u64, site, per_second| RateStep {
            at_ns: at_s * 1_000_000_000,
            site,
            per_second,
        };
        let steps = vec![step(0, one, 100.0), step(0, two, 1_000.0), step(10, one, 0.0)];
        let Traffic::Requests(requests) = Traffic::poisson(3, steps, 20_000_000_000) else {
            panic!("these are requests")
        };
        let all: Vec<Arrival> = requests.collect();
        assert!(all.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
        let of = |site| all.iter().filter(|arrival| arrival.site == site).count() as f64;
        assert!((of(one) - 1_000.0).abs() < 150.0, "{}", of(one));
        assert!((of(two) - 20_000.0).abs() < 700.0, "{}", of(two));
        let last = all.iter().rfind(|arrival| arrival.site == one).unwrap();
        assert!(last.at_ns < 10_000_000_000);
    }

    #[test]
    fn nobody_asks_for_nothing() {
        let Traffic::Requests(mut requests) = Traffic::poisson(3, vec![], 1) else {
            panic!("these are requests")
        };
        assert_eq!(requests.next(), None);
    }
}
