//! A record of several words with one writer and any number of readers.
//!
//! ```text
//! write: s := word 0;  word 0 := s + 1 (odd);  fence;  body;  word 0 := s + 2
//! read:  s := word 0, even;  body;  fence;  word 0 is still s, or try again
//! ```
//!
//! The body's words are atomics read and written without order, so no read is torn below eight
//! bytes and nothing is undefined; the two fences order them against the sequence word (Boehm,
//! "Can seqlocks get along with programming language memory models?", 2012). A reader never
//! waits for the writer: a writer that was stopped in the middle makes it give up with
//! [`Unstable`]. Checked by loom in every interleaving of one writer and one reader.
//!
//! Cost: a read of seven words is nine loads on one cache line, a few nanoseconds.

#[cfg(loom)]
use loom::sync::atomic::fence;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::fence;

/// Tries before a reader gives up. A writer needs some ten nanoseconds; a reader that has lost
/// this often has met one that was stopped in the middle.
pub const READ_TRIES_MAX: u32 = 64;

/// The record changed all the time, or its writer stopped in the middle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record did not hold still for {READ_TRIES_MAX} reads")]
pub struct Unstable;

/// An atomic word: the standard library's, or loom's in its tests.
pub trait Word {
    /// Loads the word.
    fn load(&self, order: Ordering) -> u64;
    /// Stores the word.
    fn store(&self, value: u64, order: Ordering);
}

impl Word for std::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }
}

/// Writes the record. Only its one writer may call this. Extra words of `body` are left out.
pub fn write<W: Word>(record: &[W], body: &[u64]) {
    let [sequence, words @ ..] = record else { return };
    let before = sequence.load(Ordering::Relaxed) | 1;
    // A writer that died in the middle left an odd number: start from there.
    sequence.store(before, Ordering::Relaxed);
    fence(Ordering::Release);
    for (word, &value) in words.iter().zip(body) {
        word.store(value, Ordering::Relaxed);
    }
    sequence.store(before.wrapping_add(1), Ordering::Release);
}

/// Reads the record into `body`, all words of one write.
pub fn read<W: Word>(record: &[W], body: &mut [u64]) -> Result<(), Unstable> {
    let [sequence, words @ ..] = record else { return Err(Unstable) };
    for _ in 0..READ_TRIES_MAX {
        let before = sequence.load(Ordering::Acquire);
        if before & 1 == 0 {
            for (value, word) in body.iter_mut().zip(words) {
                *value = word.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if sequence.load(Ordering::Relaxed) == before {
                return Ok(());
            }
        }
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        std::hint::spin_loop();
    }
    Err(Unstable)
}

#[cfg(test)]
#[cfg(loom)]
mod loom_interleavings {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    impl Word for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            Self::load(self, order)
        }

        fn store(&self, value: u64, order: Ordering) {
            Self::store(self, value, order);
        }
    }

    #[test]
    fn a_reader_never_sees_two_writes_mixed() {
        loom::model(|| {
            let record = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
            let writers = Arc::clone(&record);
            let writer = loom::thread::spawn(move || {
                write(&writers[..], &[1, 1]);
                write(&writers[..], &[2, 2]);
            });
            let mut body = [0; 2];
            if read(&record[..], &mut body).is_ok() {
                assert_eq!(body[0], body[1]);
            }
            writer.join().unwrap();
        });
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    fn record() -> [AtomicU64; 4] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    #[test]
    fn what_is_written_is_read() {
        let record = record();
        write(&record, &[7, 8, 9]);
        let mut body = [0; 3];
        read(&record, &mut body).unwrap();
        assert_eq!(body, [7, 8, 9]);
    }

    #[test]
    fn a_writer_that_died_in_the_middle_is_told_and_mended() {
        let record = record();
        record[0].store(5, Ordering::Relaxed);
        let mut body = [0; 3];
        assert_eq!(read(&record, &mut body), Err(Unstable));
        write(&record, &[1, 2, 3]);
        assert_eq!(read(&record, &mut body), Ok(()));
        assert_eq!(body, [1, 2, 3]);
    }

    #[test]
    fn no_read_is_torn_while_a_thread_writes() {
        let record = record();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for value in 0.. {
                    write(&record, &[value, value, value]);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            let mut seen = 0;
            while seen < 10_000 {
                let mut body = [0; 3];
                if read(&record, &mut body).is_ok() {
                    assert!(body.iter().all(|&value| value == body[0]), "{body:?}");
                    seen += 1;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
