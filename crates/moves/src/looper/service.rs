//! How long a site's servers take for a request, over all edges.

use shared_state::EdgeService;

/// What live edges measured of one site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceSum {
    served: u64,
    /// Sum of the means, each as often as it was measured.
    weighted_us: u128,
    /// Edges that served none of late, and remember what they served earlier.
    idle: u64,
    idle_us: u64,
}

impl ServiceSum {
    pub(super) fn add(&mut self, told: EdgeService) {
        self.served += u64::from(told.served);
        // Memory may hold any word, and 64 of these products may not fit 64 bits.
        self.weighted_us += u128::from(told.served) * u128::from(told.mean_us);
        if told.served == 0 && told.mean_us > 0 {
            self.idle += 1;
            self.idle_us += u64::from(told.mean_us);
        }
    }

    /// The mean over those that served of late, else over what is remembered; 0 for nothing.
    pub(super) fn mean_us(&self) -> u32 {
        let mean = self.weighted_us.checked_div(u128::from(self.served));
        let idle = self.idle_us.checked_div(self.idle).map(u128::from);
        // A mean of such numbers is one.
        u32::try_from(mean.or(idle).unwrap_or(0)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(told: &[(u32, u32)]) -> u32 {
        let mut sum = ServiceSum::default();
        told.iter().for_each(|&(served, mean_us)| sum.add(EdgeService { served, mean_us }));
        sum.mean_us()
    }

    #[test]
    fn who_served_more_weighs_more_and_who_rests_is_asked_last() {
        assert_eq!(mean(&[]), 0);
        assert_eq!(mean(&[(0, 0), (0, 0)]), 0);
        assert_eq!(mean(&[(100, 5_000), (300, 1_000)]), 2_000);
        assert_eq!(mean(&[(100, 5_000), (0, 900)]), 5_000);
        assert_eq!(mean(&[(0, 4_000), (0, 2_000), (0, 0)]), 3_000);
        assert_eq!(mean(&[(u32::MAX, u32::MAX); 64]), u32::MAX);
    }
}
