//! The one place of this crate with unsafe code: letting tokio watch a kernel timer.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of the calling task, to be told when it gets readable.
///
/// Does not block. Fails when the runtime's epoll refuses the descriptor.
pub(crate) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open, names the same description until it is dropped, and always
    // returns the same number; it is dropped only by the `AsyncFd` that takes it over here.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    Ok(watched?)
}
