//! Sleeping until another process changes a word: a futex on the word's low 32 bits.
//!
//! The futex is not private, so it works between all processes that map the same region. Whoever
//! changes the word calls [`Wake::wake`] after the change; the sleeper names the value that it
//! saw, so that a change between its look and its sleep is not missed.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::mapped::{AccessError, Mapped};
use crate::region::WORD_BYTES;
use crate::sys;

/// Why a sleep ended. Check the word in every case: a wake can be early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// Somebody woke this sleeper, or a signal did.
    Woken,
    /// The low 32 bits were not `expected`; there was no sleep.
    Changed,
    /// The time-out passed.
    TimedOut,
}

/// Why waiting or waking failed.
#[derive(Debug, thiserror::Error)]
pub enum WakeError {
    /// There is no such word.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The kernel refused the futex call.
    #[error("futex call failed: {0}")]
    System(#[from] Errno),
}

/// Sleeping and waking on the words of any mapped region.
pub trait Wake: Mapped {
    /// Sleeps while the low 32 bits of the word are `expected`, at most `timeout`. **Blocks**;
    /// costs one system call and, where it sleeps, 20 to 40 us of CPU for the wake.
    ///
    /// # Errors
    /// There is no such word, or the kernel refused.
    fn wait(
        &self,
        word_index: usize,
        expected: u32,
        timeout: Duration,
    ) -> Result<WaitEnd, WakeError> {
        let half = sys::low_half(word_at(self.words(), word_index)?);
        let timeout = crate::time::timespec(timeout);
        match futex::wait(half, futex::Flags::empty(), expected, Some(&timeout)) {
            Ok(()) | Err(Errno::INTR) => Ok(WaitEnd::Woken),
            Err(Errno::AGAIN) => Ok(WaitEnd::Changed),
            Err(Errno::TIMEDOUT) => Ok(WaitEnd::TimedOut),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Wakes at most `count` sleepers of the word in any process, and returns how many. Does not
    /// block; costs one system call.
    ///
    /// # Errors
    /// There is no such word, or the kernel refused.
    fn wake(&self, word_index: usize, count: u32) -> Result<usize, WakeError> {
        let half = sys::low_half(word_at(self.words(), word_index)?);
        // The kernel takes a signed count.
        let count = count.min(i32::MAX.unsigned_abs());
        Ok(futex::wake(half, futex::Flags::empty(), count)?)
    }
}

impl<M: Mapped + ?Sized> Wake for M {}

fn word_at(words: &[AtomicU64], index: usize) -> Result<&AtomicU64, AccessError> {
    words.get(index).ok_or(AccessError::OutOfBounds {
        offset_bytes: (index as u64).saturating_mul(WORD_BYTES),
        access_bytes: WORD_BYTES,
        region_bytes: words.len() as u64 * WORD_BYTES,
    })
}
