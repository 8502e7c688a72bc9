//! Seeded random numbers: the generator of Steele, Lea and Flood ("SplitMix", 2014). It is small,
//! its whole state is one word, and it is good enough for schedules and gaps.

/// Independent sequences of one seed: more draws of one kind do not shift those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Delays, losses, nonces.
    Transport = 1,
    /// Arrivals and service times.
    Traffic = 2,
    /// What breaks, and when.
    Faults = 3,
    /// What a random pool looks like.
    Scenario = 4,
}

/// A sequence that its seed decides.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// One of the sequences of a seed.
    pub(crate) fn of(seed: u64, stream: Stream) -> Self {
        let mut mixed = Self(seed ^ (stream as u64) << 56);
        // Neighbouring seeds start far apart.
        Self(mixed.draw())
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound - 1`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias of a remainder is below 2^-40 for the bounds used here.
        self.draw() % bound.max(1)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// At least 0, below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits are what the fraction of an f64 holds.
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
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
    fn streams_of_a_seed_differ_and_repeat() {
        let first = |seed, stream| Random::of(seed, stream).draw();
        assert_eq!(first(7, Stream::Traffic), first(7, Stream::Traffic));
        assert_ne!(first(7, Stream::Traffic), first(7, Stream::Faults));
        assert_ne!(first(7, Stream::Traffic), first(8, Stream::Traffic));
    }

    #[test]
    fn draws_keep_their_bounds_and_means() {
        let mut random = Random::of(1, Stream::Transport);
        assert!((0..10_000).all(|_| (3..=5).contains(&random.between(3, 5))));
        assert_eq!(random.between(4, 4), 4);
        assert_eq!(random.below(0), 0);
        let mean = (0..20_000).map(|_| random.exponential()).sum::<f64>() / 20_000.0;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
    }
}
