//! How long the servers of a site take for a request, as this edge sees it: the time for which a
//! request holds its place at a server, from the grant to the end of its response from there.
//!
//! That is what a server's `max_in_flight` places are used up by: so many places, each for so long,
//! serve so many requests a second. A slow client whose response does not fit the buffers on the
//! way holds a place for longer, and so it counts. Requests that failed, or that were answered with
//! 500 and above, say nothing about how long serving takes.
//!
//! Fast path: two additions under the dispatcher's lock, no allocation. At each look one
//! multiplication a site lets older requests fade.

use shared_state::EdgeService;
use std::time::Duration;

/// After which time a request has half its weight: long enough that some hundred requests of a
/// usual site are in the mean, short enough that a policy learns of a change in a second or two.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Below so many requests the mean is no longer moved by what is left of their weight: it stays
/// what it was when the last of them came.
const WEIGHT_MIN: f64 = 0.5;

/// What was measured of one site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    /// Since the last look.
    fresh: u32,
    fresh_us: u64,
    /// Requests and their time, faded by age.
    served: f64,
    spent_us: f64,
    mean_us: u32,
}

impl Service {
    /// A request that was answered held its place for so long.
    pub(super) fn note(&mut self, held: Duration) {
        self.fresh = self.fresh.saturating_add(1);
        let held_us = u64::try_from(held.as_micros()).unwrap_or(u64::MAX);
        self.fresh_us = self.fresh_us.saturating_add(held_us);
    }

    /// What is told at a look; what was served before the last one keeps this part of its weight.
    pub(super) fn look(&mut self, kept: f64) -> EdgeService {
        let fresh_us = std::mem::take(&mut self.fresh_us) as f64;
        self.served = self.served * kept + f64::from(std::mem::take(&mut self.fresh));
        self.spent_us = self.spent_us * kept + fresh_us;
        if self.served >= WEIGHT_MIN {
            // At least 1: a mean of zero would mean that nothing was measured.
            self.mean_us = (self.spent_us / self.served).max(1.0) as u32;
        }
        EdgeService { served: self.served.round() as u32, mean_us: self.mean_us }
    }
}

/// The part of its weight that is left to a request after so long.
pub(super) fn kept_after(elapsed: Duration) -> f64 {
    (-elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// So many looks, 10 ms apart, with so many requests of so long before each.
    fn looks(service: &mut Service, looks: u32, requests: u32, took: Duration) -> EdgeService {
        let mut told = EdgeService::default();
        for _ in 0..looks {
            (0..requests).for_each(|_| service.note(took));
            told = service.look(kept_after(ms(10)));
        }
        told
    }

    #[test]
    fn the_mean_follows_a_change_within_seconds() {
        let mut service = Service::default();
        assert_eq!(looks(&mut service, 10, 0, ms(0)), EdgeService::default());
        let told = looks(&mut service, 500, 2, ms(5));
        assert_eq!(told.mean_us, 5_000);
        // 200 requests a second, of which a half-life is kept: 200 / ln 2.
        assert!((270..310).contains(&told.served), "{told:?}");
        let told = looks(&mut service, 100, 2, ms(15));
        assert!((9_500..10_500).contains(&told.mean_us), "half of it after a half-life: {told:?}");
        let told = looks(&mut service, 1_000, 2, ms(15));
        assert!((14_900..=15_000).contains(&told.mean_us), "{told:?}");
    }

    #[test]
    fn who_serves_no_more_remembers_the_mean_and_loses_the_weight() {
        let mut service = Service::default();
        looks(&mut service, 100, 3, ms(7));
        let told = looks(&mut service, 2_000, 0, ms(0));
        assert_eq!(told, EdgeService { served: 0, mean_us: 7_000 });
        // One look alone may be that long ago.
        let told = service.look(kept_after(Duration::from_secs(3_600)));
        assert_eq!(told, EdgeService { served: 0, mean_us: 7_000 });
        let told = looks(&mut service, 1, 4, Duration::ZERO);
        assert_eq!(told, EdgeService { served: 4, mean_us: 1 });
    }
}
