//! One-sided reads, writes and atomics on 8-byte words of another process's memory.
//!
//! State that many must read lies in a **region** of its owner; peers reach it without the
//! owner doing anything, even while its process is stopped. Regions are named by a
//! [`RegionDescriptor`] and never reused: an owner that starts again makes a new one.
//!
//! Two faces:
//! - [`Mapped`]: the region is in this process's address space. Inline, synchronous, costs a
//!   load. Its transport is [`shm`]; [`Wake`] adds sleeping until a word changes.
//! - [`Remote`]: the region is elsewhere. Batches, deadlines, and [`Capabilities`] as data. Its
//!   transports are [`tcp`], a small service in the owner, [`faulty`], which goes wrong on purpose
//!   in virtual time, and [`Inline`], which brings mapped regions under this face. The one over
//!   verbs comes later. A [`Mirror`] is a copy that is read as a mapped region is.
//!
//! `tests/conformance` is one suite that every transport passes.
//!
//! What this crate never does: interpret the words of a region (that is `shared-state`), read a
//! wall clock, or decide when to try again.

#[allow(unsafe_code)]
mod sys;

mod batch;
pub mod faulty;
pub mod frame;
mod inline;
mod mapped;
mod mirror;
mod region;
mod remote;
pub mod shm;
pub mod tcp;
mod time;
mod wake;

pub use batch::OPEN_REGIONS_MAX;
pub use inline::Inline;
pub use mapped::{AccessError, Mapped, check_access};
pub use mirror::Mirror;
pub use region::{
    Access, AtomicPath, Incarnation, LABEL_BYTES_MAX, MAX_REGION_BYTES, RegionDescriptor,
    RemoteKey, WORD_BYTES, label_is_valid, length_is_valid,
};
pub use remote::{
    Atomics, Capabilities, Completion, ConnectionState, Op, OpError, OpResult, OpenError, Remote,
    SubmitError, Ticket,
};
pub use wake::{WaitEnd, Wake, WakeError};
