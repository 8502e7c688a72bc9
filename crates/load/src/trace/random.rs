//! Seeded random numbers: splitmix64, whose whole state is one word.

/// A sequence that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// At least 0, below 1.
    pub(super) fn unit(&mut self) -> f64 {
        // 53 bits are what the fraction of an f64 holds.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_with_the_right_means() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..20_000).map(|_| random.exponential()).collect::<Vec<f64>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        let mean = draw(7).iter().sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        let mut random = Random::new(1);
        assert!((0..20_000).map(|_| random.unit()).all(|unit| (0.0..1.0).contains(&unit)));
    }
}
