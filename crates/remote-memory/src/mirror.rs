//! A copy of a region that lies elsewhere, in memory of our own.
//!
//! Code that is written for [`Mapped`] regions reads the copy, and whoever holds the way to the
//! region ([`crate::Remote`]) brings it up to date. A word lies in the copy where it lies in the
//! region, so that the layout is known in one place only.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapped::Mapped;
use crate::region::{MAX_REGION_BYTES, RegionDescriptor, WORD_BYTES};

/// The copy. It goes by the region's descriptor.
pub struct Mirror {
    descriptor: RegionDescriptor,
    words: Box<[AtomicU64]>,
}

impl Mirror {
    /// A copy of which nothing is known yet: all zero. A descriptor that states more than a region
    /// may have gets an empty one.
    pub fn new(descriptor: &RegionDescriptor) -> Self {
        let length_bytes =
            Some(descriptor.length_bytes).filter(|&length| length <= MAX_REGION_BYTES);
        let count = usize::try_from(length_bytes.unwrap_or(0) / WORD_BYTES).unwrap_or(0);
        let words = std::iter::repeat_with(AtomicU64::default).take(count).collect();
        Self { descriptor: descriptor.clone(), words }
    }

    /// Where a word of this copy lies, by its index; none for a word of something else.
    pub fn index_of(&self, word: &AtomicU64) -> Option<usize> {
        let start = self.words.as_ptr().addr();
        let distance = std::ptr::from_ref(word).addr().checked_sub(start)?;
        let index = distance / size_of::<AtomicU64>();
        (index < self.words.len()).then_some(index)
    }

    /// Stores words that were read from the region, from the word `start` on, in rising order; all
    /// but those whose index lies in `keep`. Words beyond the end are left out.
    pub fn put(&self, start: usize, values: &[u64], keep: &[Range<usize>]) {
        let places = self.words.iter().enumerate().skip(start);
        for ((index, word), &value) in places.zip(values) {
            if !keep.iter().any(|range| range.contains(&index)) {
                word.store(value, Ordering::Release);
            }
        }
    }
}

impl Mapped for Mirror {
    fn descriptor(&self) -> &RegionDescriptor {
        &self.descriptor
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::{AtomicPath, Incarnation, RemoteKey};

    fn mirror(length_bytes: u64) -> Mirror {
        Mirror::new(&RegionDescriptor {
            key: RemoteKey(1),
            incarnation: Incarnation(2),
            length_bytes,
            atomic_path: AtomicPath::Cpu,
            label: "far".to_owned(),
        })
    }

    fn values(mirror: &Mirror) -> Vec<u64> {
        mirror.words().iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn words_are_stored_but_for_those_that_are_kept() {
        let mirror = mirror(64);
        mirror.put(0, &[1, 2, 3, 4, 5, 6, 7, 8], &[2..4, 6..7]);
        assert_eq!(values(&mirror), [1, 2, 0, 0, 5, 6, 0, 8]);
        mirror.put(6, &[9, 9, 9, 9], &[]);
        assert_eq!(values(&mirror), [1, 2, 0, 0, 5, 6, 9, 9]);
    }

    #[test]
    fn a_word_is_found_by_its_place() {
        let (one, other) = (mirror(64), mirror(64));
        for index in 0..8 {
            assert_eq!(one.index_of(&one.words()[index]), Some(index));
        }
        assert_eq!(one.index_of(&other.words()[3]), None);
    }

    #[test]
    fn a_length_that_no_region_has_gets_no_memory() {
        assert!(mirror(MAX_REGION_BYTES + 8).words().is_empty());
    }
}
