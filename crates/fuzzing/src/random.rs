//! Small random numbers from a seed: the same on every machine, for ever.

/// A generator (SplitMix64): every seed is good, zero too.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers that belong to some bytes (FNV-1a), so that an input replays by itself.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.iter().fold(0xcbf2_9ce4_8422_2325, fold))
    }

    /// The next number.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Whether it happens, once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the things, of which there must be some.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }

    /// The bytes cut into pieces: whole, byte by byte, or anywhere. No piece is empty.
    pub fn cut<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let piece_max = [usize::MAX, 1, 3, 17, 200][self.below(5)];
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((1 + self.below(piece_max)).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed_alone() {
        let run = |mut random: Random| [random.next(), random.next(), random.next()];
        assert_eq!(run(Random::new(7)), run(Random::new(7)));
        assert_ne!(run(Random::new(7)), run(Random::new(8)));
        assert_ne!(run(Random::of(b"a")), run(Random::of(b"b")));
        // The first number of SplitMix64 with seed 0, as its authors give it.
        assert_eq!(Random::new(0).next(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn bounds_hold() {
        let mut random = Random::new(1);
        assert!((0..1_000).all(|_| random.below(3) < 3));
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn pieces_are_the_whole() {
        let mut random = Random::new(2);
        for length in 0..100 {
            let bytes: Vec<u8> = (0..length).collect();
            let pieces = random.cut(&bytes);
            assert!(pieces.iter().all(|piece| !piece.is_empty()));
            assert_eq!(pieces.concat(), bytes);
        }
    }
}
