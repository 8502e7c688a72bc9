//! The one place of this crate with unsafe code: descriptors that a service manager opened are
//! known by their number only, and tokio has to be promised that a descriptor stays what it is.
#![allow(unsafe_code)]

use rustix::io::{FdFlags, fcntl_getfd};
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime of the calling task, to be told when it gets readable.
/// Does not block.
///
/// # Errors
/// The runtime's epoll refuses the descriptor.
pub(crate) fn watched(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` that nobody can reach but through the `AsyncFd` stays open, and the
    // same file, for as long as that lives.
    let watched = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
    watched.map_err(io::Error::from)
}

/// Takes over a descriptor that this process was started with. Whoever calls it says so once for
/// each number, and before anything else could have been given that number.
///
/// # Errors
/// There is no such descriptor.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the number is not -1; it is only asked whether it stands for a descriptor, and the
    // borrow ends here.
    let asked = unsafe { BorrowedFd::borrow_raw(number) };
    let _: FdFlags = fcntl_getfd(asked)?;
    // SAFETY: it is open, see above, and was before this process opened anything; nobody else
    // owns it, since only `handed::sockets` calls this, once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
