//! The face `Mapped`: regions that lie in this process's address space.
//!
//! **This is a hot path.** An operation runs inline in the caller; the owner of the region takes
//! no part and may be stopped. Forbidden here: system calls, allocation, locks, logging.
//! Back of the envelope: a read is one bounds check (a shift and a compare) and one load, about
//! 1 ns with the line in the cache and 50 to 100 ns when another core wrote it last; a
//! compare-and-swap is one locked instruction, 5 to 20 ns alone, some 100 ns contended. Through
//! `dyn Mapped` add one indirect call. The first touch of a page is a fault of about 1 us.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::region::{RegionDescriptor, WORD_BYTES};

/// Why an access by byte offset was refused. Nothing was read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The access ends beyond the region.
    #[error(
        "{access_bytes} bytes at offset {offset_bytes} lie outside the region of \
         {region_bytes} bytes"
    )]
    OutOfBounds {
        /// Where the access starts, in bytes from the region's start.
        offset_bytes: u64,
        /// Length of the access in bytes.
        access_bytes: u64,
        /// Length of the region in bytes.
        region_bytes: u64,
    },
    /// The offset is no multiple of 8: only whole words are read, written and compared.
    #[error("offset {offset_bytes} is not a multiple of 8")]
    Misaligned {
        /// Where the access starts, in bytes from the region's start.
        offset_bytes: u64,
    },
}

/// A region mapped into this process. No operation blocks, waits or has a deadline.
///
/// The 8-byte word is the only unit that cannot be torn. Whoever reads several words that belong
/// together needs a version before and behind them.
pub trait Mapped: Send + Sync {
    /// What names the region.
    fn descriptor(&self) -> &RegionDescriptor;

    /// All words of the region, for code that has checked its bounds once (a layout).
    fn words(&self) -> &[AtomicU64];

    /// The word at `offset_bytes`.
    ///
    /// # Errors
    /// The offset is misaligned or outside the region.
    #[inline]
    fn word(&self, offset_bytes: u64) -> Result<&AtomicU64, AccessError> {
        let words = self.words();
        match word_index(offset_bytes).and_then(|index| words.get(index)) {
            Some(word) => Ok(word),
            None => Err(refusal(words.len(), offset_bytes, WORD_BYTES)),
        }
    }

    /// Reads one word (`Acquire`).
    ///
    /// # Errors
    /// The offset is misaligned or outside the region.
    #[inline]
    fn read(&self, offset_bytes: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset_bytes)?.load(Ordering::Acquire))
    }

    /// Writes one word (`Release`).
    ///
    /// # Errors
    /// The offset is misaligned or outside the region.
    #[inline]
    fn write(&self, offset_bytes: u64, value: u64) -> Result<(), AccessError> {
        self.word(offset_bytes)?.store(value, Ordering::Release);
        Ok(())
    }

    /// Writes `new` if the word holds `expected` (`SeqCst`), and returns the value found: the
    /// swap took place if and only if that is `expected`.
    ///
    /// # Errors
    /// The offset is misaligned or outside the region.
    #[inline]
    fn compare_and_swap(
        &self,
        offset_bytes: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, AccessError> {
        let word = self.word(offset_bytes)?;
        match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(found) | Err(found) => Ok(found),
        }
    }

    /// Adds `addend`, modulo 2^64 (`SeqCst`), and returns the value found before.
    ///
    /// # Errors
    /// The offset is misaligned or outside the region.
    #[inline]
    fn fetch_and_add(&self, offset_bytes: u64, addend: u64) -> Result<u64, AccessError> {
        Ok(self.word(offset_bytes)?.fetch_add(addend, Ordering::SeqCst))
    }

    /// Reads as many words as `out` holds, each whole (`Acquire`), in rising order. Words written
    /// meanwhile may be old or new, each for itself.
    ///
    /// # Errors
    /// The offset is misaligned, or the words do not all lie in the region; `out` is unchanged.
    fn read_into(&self, offset_bytes: u64, out: &mut [u64]) -> Result<(), AccessError> {
        let words = self.words();
        let range = word_index(offset_bytes)
            .and_then(|start| words.get(start..start.checked_add(out.len())?));
        let Some(range) = range else {
            let access_bytes = (out.len() as u64).saturating_mul(WORD_BYTES);
            return Err(refusal(words.len(), offset_bytes, access_bytes));
        };
        for (value, word) in out.iter_mut().zip(range) {
            *value = word.load(Ordering::Acquire);
        }
        Ok(())
    }
}

impl<M: Mapped + ?Sized> Mapped for Arc<M> {
    #[inline]
    fn descriptor(&self) -> &RegionDescriptor {
        (**self).descriptor()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }
}

/// The index of the word at an aligned offset.
#[inline]
fn word_index(offset_bytes: u64) -> Option<usize> {
    if offset_bytes.is_multiple_of(WORD_BYTES) {
        usize::try_from(offset_bytes / WORD_BYTES).ok()
    } else {
        None
    }
}

/// Says what is wrong with an access that was found to be wrong.
#[cold]
fn refusal(region_words: usize, offset_bytes: u64, access_bytes: u64) -> AccessError {
    let region_bytes = region_words as u64 * WORD_BYTES;
    check_access(region_bytes, offset_bytes, access_bytes).err().unwrap_or(
        // Not reached: this is only called for an access that `check_access` refuses too.
        AccessError::OutOfBounds { offset_bytes, access_bytes, region_bytes },
    )
}

/// Checks an access against the length of a region, for transports that hold no mapping.
///
/// # Errors
/// The offset is misaligned, or the access ends beyond the region.
pub fn check_access(
    region_bytes: u64,
    offset_bytes: u64,
    access_bytes: u64,
) -> Result<(), AccessError> {
    if !offset_bytes.is_multiple_of(WORD_BYTES) {
        return Err(AccessError::Misaligned { offset_bytes });
    }
    match offset_bytes.checked_add(access_bytes) {
        Some(end_bytes) if end_bytes <= region_bytes => Ok(()),
        _ => Err(AccessError::OutOfBounds { offset_bytes, access_bytes, region_bytes }),
    }
}
