//! Seeded pseudo-random numbers: `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom
//! number generators, 2014). Not for secrets.

/// A stream of numbers that is a function of its seed.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to `high`, both possible; `low` if they are the wrong way round. The bias of
    /// the remainder is below 2^-20 for the spans drawn here.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        low + self.next() % span.saturating_add(1)
    }

    /// True in so many of a thousand draws.
    pub(super) fn chance(&mut self, per_mille: u16) -> bool {
        self.next() % 1000 < u64::from(per_mille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_sequence() {
        // The first outputs for seed 1234567, as printed by the authors' reference code.
        let mut random = Random::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| random.next()).collect();
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
    }

    #[test]
    fn draws_stay_in_their_span_and_reach_its_ends() {
        let mut random = Random::new(1);
        let draws: Vec<_> = (0..1000).map(|_| random.between(3, 6)).collect();
        assert!((3..=6).all(|value| draws.contains(&value)));
        assert!(draws.iter().all(|value| (3..=6).contains(value)));
        assert_eq!(random.between(5, 2), 5);
        assert!(!(0..1000).any(|_| random.chance(0)));
        assert!((0..1000).all(|_| random.chance(1000)));
    }
}
