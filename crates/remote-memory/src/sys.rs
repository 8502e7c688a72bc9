//! The unsafe part: a shared mapping seen as atomic words, and the half word of a futex.
//!
//! Everything here rests on two facts that `shm` checks before it calls: the file is as long as
//! the mapping, and it is sealed against shrinking, so that no access can raise SIGBUS.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::io;
use rustix::mm::{MapFlags, ProtFlags};

#[cfg(not(target_endian = "little"))]
compile_error!("regions hold little-endian words, and this host is not little-endian");

/// A readable and writable shared mapping of a whole region. It is unmapped on drop.
pub(crate) struct Mapping {
    start: NonNull<AtomicU64>,
    length_words: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reached through
// atomic operations.
unsafe impl Send for Mapping {}
// SAFETY: shared references give out `&[AtomicU64]` only, which is `Sync`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length_words` words of `file`, which must be that long and sealed against
    /// shrinking.
    pub(crate) fn new(file: BorrowedFd<'_>, length_words: usize) -> io::Result<Self> {
        let length_bytes =
            length_words.checked_mul(size_of::<AtomicU64>()).ok_or(io::Errno::OVERFLOW)?;
        // SAFETY: a null hint without MAP_FIXED never replaces an existing mapping.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                length_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast::<AtomicU64>()).ok_or(io::Errno::FAULT)?;
        Ok(Self { start, length_words })
    }

    /// All words of the region.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping starts at a page, so it is aligned to 8 bytes; it holds
        // `length_words` words and lives as long as `self`; any bytes are a valid word; other
        // processes change them, which atomics allow.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length_words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let length_bytes = self.length_words * size_of::<AtomicU64>();
        // SAFETY: `new` mapped exactly these bytes, and no reference into them outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), length_bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of a mapping made by mmap: {unmapped:?}");
    }
}

/// The low 32 bits of a word, for the futex system calls only: the kernel reads them atomically,
/// Rust code never does.
pub(crate) fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let half = ptr::from_ref(word).cast::<AtomicU32>();
    // SAFETY: on a little-endian host (checked above) the low half lies at the word's address,
    // aligned and inside it, for as long as the word is borrowed.
    unsafe { &*half }
}
