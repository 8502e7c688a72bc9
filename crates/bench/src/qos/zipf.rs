//! Documents whose popularity follows Zipf's law: the n-th is asked for in proportion to
//! `1 / n^exponent`.

use load::generate::GeneratorOptions;

/// The exponent of the law: what traces of web servers show (Breslau and others, "Web caching and
/// Zipf-like distributions", 1999: 0.64 to 0.83).
pub(crate) const EXPONENT: f64 = 0.75;
/// Documents of a site.
const DOCUMENTS: usize = 1_000;
/// Requests that are drawn; a longer run asks for them again.
const DRAWN: usize = 16_384;
/// Lengths of the documents, in turn by rank: those of the paper's single files.
const LENGTHS_BYTES: [usize; 3] = [1_024, 4_096, 16_384];
/// A multiplier of full period for a modulus of 2^64 (Steele and Vigna, 2021).
const MULTIPLIER: u64 = 0xd134_2543_de82_ef95;

/// Uniform numbers from 0 to 1, the same for a seed: a linear generator, whose upper bits are as
/// even as a share of requests needs.
pub(crate) struct Uniform(pub(crate) u64);

impl Uniform {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks from 0 of so many documents, drawn by the law.
pub(crate) fn ranks(seed: u64, documents: usize, count: usize) -> Vec<usize> {
    let mut sum = 0.0;
    let weight = |rank: usize| {
        sum += (rank as f64).powf(-EXPONENT);
        sum
    };
    let upto: Vec<f64> = (1..=documents).map(weight).collect();
    let mut uniform = Uniform(seed);
    let mut draw = || {
        let wanted = uniform.next() * sum;
        upto.partition_point(|&weight| weight <= wanted).min(documents - 1)
    };
    (0..count).map(|_| draw()).collect()
}

/// Makes a load ask for such documents.
pub(crate) fn ask_for_documents(load: &mut GeneratorOptions, seed: u64) {
    let path = |rank: usize| {
        let bytes = LENGTHS_BYTES[rank % LENGTHS_BYTES.len()];
        format!("/document/{}?bytes={bytes}", rank + 1)
    };
    load.paths = ranks(seed, DOCUMENTS, DRAWN).into_iter().map(path).collect();
}

/// The longest document.
pub(crate) const LONGEST_BYTES: usize = LENGTHS_BYTES[2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popularity_follows_the_law() {
        let drawn = ranks(1, DOCUMENTS, 200_000);
        let count = |rank: usize| drawn.iter().filter(|&&one| one == rank).count() as f64;
        for rank in [1, 3, 7] {
            let expected = ((rank + 1) as f64).powf(-EXPONENT);
            let share = count(rank) / count(0);
            assert!((share / expected - 1.0).abs() < 0.1, "{rank}: {share}, not {expected}");
        }
        assert!(drawn.iter().all(|&rank| rank < DOCUMENTS));
        assert!(drawn.iter().any(|&rank| rank > 900));
        assert_eq!(drawn[..50], ranks(1, DOCUMENTS, 50), "the same seed");
        assert_ne!(drawn[..50], ranks(2, DOCUMENTS, 50));
    }
}
