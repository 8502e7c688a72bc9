//! The one place of this crate with unsafe code: letting tokio watch a connection to a version
//! table.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of the calling task, to be told when it gets readable.
///
/// Does not block. Fails when the runtime's epoll refuses the descriptor.
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and keeps its number until it is dropped, which only the
    // `AsyncFd` does that takes it over here.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    Ok(watched?)
}
