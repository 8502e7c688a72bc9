//! One-sided reads, writes and atomics on 8-byte words of another process's memory.
//!
//! State that many must read lies in a **region** of its owner; peers reach it without the
//! owner doing anything, even while its process is stopped. Regions are named by a
//! [`RegionDescriptor`] and never reused: an owner that starts again makes a new one.
//!
//! Two faces:
//! - [`Mapped`]: the region is in this process's address space. Inline, synchronous, costs a
//!   load. Its transport is [`shm`].

#[allow(unsafe_code)]
mod sys;

pub mod frame;
mod mapped;
mod region;
pub mod shm;
mod time;
mod wake;

pub use mapped::{AccessError, Mapped, check_access};
pub use region::{
    AtomicPath, Incarnation, LABEL_BYTES_MAX, MAX_REGION_BYTES, RegionDescriptor, RemoteKey,
    WORD_BYTES, label_is_valid, length_is_valid,
};
pub use wake::{WaitEnd, Wake, WakeError};
