//! The unsafe part: a shared mapping seen as atomic words, the half word of a futex, and the
//! priority of a thread.
//!
//! The mapping rests on two facts that `shm` checks before it calls: the file is as long as
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

/// `SCHED_FIFO` of `sched.h`.
const SCHED_FIFO: std::ffi::c_int = 1;

/// `struct sched_param` of `sched.h`, as far as the C libraries read it for `SCHED_FIFO`; musl's
/// has fields behind it that it does not pass on, so there is room for them.
#[repr(C)]
struct SchedulingParameters {
    priority: std::ffi::c_int,
    unused: [u64; 8],
}

// Of the C library, which std links anyway.
unsafe extern "C" {
    /// The calling thread.
    safe fn pthread_self() -> usize;
    fn pthread_setschedparam(
        thread: usize,
        policy: std::ffi::c_int,
        parameters: *const SchedulingParameters,
    ) -> std::ffi::c_int;
}

/// Lets the calling thread run before all ordinary threads, at the lowest real-time priority.
pub(crate) fn run_first() -> io::Result<()> {
    let parameters = SchedulingParameters { priority: 1, unused: [0; 8] };
    // SAFETY: the thread is the caller, which is alive, and the parameters outlive the call,
    // which only reads them.
    let error = unsafe { pthread_setschedparam(pthread_self(), SCHED_FIFO, &raw const parameters) };
    if error == 0 { Ok(()) } else { Err(io::Errno::from_raw_os_error(error)) }
}
