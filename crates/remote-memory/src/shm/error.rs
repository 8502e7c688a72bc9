//! What can go wrong between an owner and a peer on one machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::frame::{FrameError, Refusal};
use crate::region::{LABEL_BYTES_MAX, MAX_REGION_BYTES};

/// Why a region could not be made, served or attached.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// A label must be short and printable.
    #[error("region label {label:?} is not 1 to {LABEL_BYTES_MAX} bytes of printable text")]
    BadLabel {
        /// The label.
        label: String,
    },
    /// A region holds whole words, at least one.
    #[error("region length {length_bytes} is not a multiple of 8 from 8 to {MAX_REGION_BYTES}")]
    BadLength {
        /// The length in bytes.
        length_bytes: u64,
    },
    /// A system call failed.
    #[error("cannot {operation}: {source}")]
    System {
        /// What was tried, as in "cannot ...".
        operation: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// The system gives no random numbers for key and incarnation.
    #[error("cannot draw a random key: {0}")]
    Random(getrandom::Error),
    /// The server's thread could not start.
    #[error("cannot start the region server's thread: {0}")]
    Spawn(std::io::Error),
    /// The file can still be shrunk: its owner could make every access a SIGBUS.
    #[error("the region's file is not sealed against shrinking")]
    NotSealed,
    /// The file is not plain shared memory (a disk file, huge pages).
    #[error("the region's file is not a plain memory file")]
    NotSharedMemory,
    /// The file's size is not what the descriptor says.
    #[error("the region's file has {found_bytes} bytes where its owner announced {stated_bytes}")]
    SizeDiffers {
        /// Size in bytes that the descriptor states.
        stated_bytes: u64,
        /// Size of the file in bytes.
        found_bytes: u64,
    },
    /// The region's atomics go through an adapter: the processor's would be lost among them.
    #[error("the region's atomics go through an adapter, so it cannot be mapped")]
    OtherAtomicPath,
    /// An adopted region is an old one; regions are never reused, so it is not served again.
    #[error("an adopted region is not served again: make a new one")]
    AdoptedRegion,
    /// A socket path has at most 107 bytes.
    #[error("{}: the path is too long for a Unix socket (107 bytes)", path.display())]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
    },
    /// The socket's directory must be ours alone.
    #[error("{}: mode {mode:04o}, user {uid}: must be our directory, mode 0700", path.display())]
    DirectoryNotPrivate {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner.
        uid: u32,
    },
    /// Another live process serves a region here.
    #[error("{}: another process serves a region here", path.display())]
    AlreadyServed {
        /// The socket's path.
        path: PathBuf,
    },
    /// Something other than a socket lies at the path; it is left alone.
    #[error("{}: is not a socket, left as it is", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Nobody listens at the path: the owner has not started, or is gone.
    #[error("{}: no process serves a region here", path.display())]
    NoOwner {
        /// The socket's path.
        path: PathBuf,
    },
    /// The owner did not answer in time (it may be stopped).
    #[error("{}: no answer from the owner within {deadline:?}", path.display())]
    Deadline {
        /// The socket's path.
        path: PathBuf,
        /// The time allowed.
        deadline: Duration,
    },
    /// The socket belongs to another user, whose region we do not trust.
    #[error("{}: the owner runs as user {uid}, neither ours nor root", path.display())]
    OtherUser {
        /// The socket's path.
        path: PathBuf,
        /// The owner's user id.
        uid: u32,
    },
    /// The owner refused this peer.
    #[error("{}: {reason}", path.display())]
    Refused {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        reason: Refusal,
    },
    /// What the owner sent is no frame of ours.
    #[error("{}: {source}", path.display())]
    Frame {
        /// The socket's path.
        path: PathBuf,
        /// What is wrong with it.
        source: FrameError,
    },
    /// The owner sent a frame, but no file with it.
    #[error("{}: the owner sent no file with its frame", path.display())]
    NoFile {
        /// The socket's path.
        path: PathBuf,
    },
}

impl ShmError {
    /// For `map_err`: names the operation that failed.
    pub(crate) fn system(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |source| Self::System { operation, source }
    }

    pub(crate) fn no_owner(path: &Path) -> Self {
        Self::NoOwner { path: path.to_owned() }
    }
}
