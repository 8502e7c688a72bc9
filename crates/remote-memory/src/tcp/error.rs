//! What can go wrong with a connection, a key file or a service; nothing here names a secret.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::record::{PREAMBLE_VERSION, RECORD_BYTES_MAX};
use crate::region::RemoteKey;

/// Why bytes from a peer are none of ours. The connection ends; what came before holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first 8 bytes are not the magic number: something else speaks here.
    #[error("not a region service: it starts with {found:02x?}")]
    Magic {
        /// The first 8 bytes.
        found: [u8; 8],
    },
    /// The peer speaks another version.
    #[error("wire version {found}, this program speaks version {PREAMBLE_VERSION}")]
    Version {
        /// The version that the peer states.
        found: u16,
    },
    /// A record states a length outside its limits.
    #[error("a record of {found_bytes} bytes, it has 1 to {RECORD_BYTES_MAX}")]
    RecordLength {
        /// The length that it states.
        found_bytes: u32,
    },
    /// A message ends before its fields do.
    #[error("a message ends inside its field {field}")]
    Truncated {
        /// Name of the field, as in the drawing of the module.
        field: &'static str,
    },
    /// Bytes follow behind the last field of a message.
    #[error("{left_bytes} bytes behind the end of a message")]
    Trailing {
        /// How many.
        left_bytes: usize,
    },
    /// A field holds a value that it cannot have.
    #[error("field {field} holds {found}: {rule}")]
    Field {
        /// Name of the field, as in the drawing of the module.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        rule: &'static str,
    },
    /// A message that does not belong here: an answer that nobody waits for, a second greeting.
    #[error("a message out of order: {what}")]
    Order {
        /// Which.
        what: &'static str,
    },
    /// A record was not sealed by who has the key, or was changed, repeated or left out under way.
    #[error("a record is not authentic")]
    NotAuthentic,
}

/// Why a service turns a peer away, as it says itself. Not authenticated: it is a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It speaks another version of the wire.
    #[error("it speaks another version")]
    OtherVersion,
    /// One side has a key, the other is set to speak plainly.
    #[error("one side encrypts and the other does not")]
    OtherSecurity,
    /// It serves as many peers as it may.
    #[error("it has as many peers as it may have")]
    TooManyPeers,
    /// The peer does not hold its key.
    #[error("the keys differ")]
    OtherKey,
}

/// Why a connection is not up.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not on the loopback device, and the settings ask for plain text.
    #[error("{address} is not a loopback address: plain text stays on the machine")]
    PlainBeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The kernel refused, or the other side is not there.
    #[error("cannot {action} {address}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// With whom.
        address: SocketAddr,
        /// What the kernel says.
        cause: io::Error,
    },
    /// Connecting and greeting took longer than it may.
    #[error("{address} did not greet in time")]
    TimedOut {
        /// Who.
        address: SocketAddr,
    },
    /// The service turned us away.
    #[error("{address} refuses: {refusal}")]
    Refused {
        /// Who.
        address: SocketAddr,
        /// Its reason.
        refusal: Refusal,
    },
    /// It hung up.
    #[error("{address} closed the connection")]
    Closed {
        /// Who.
        address: SocketAddr,
    },
    /// It said something that makes no sense.
    #[error("{address}: {cause}")]
    Wire {
        /// Who.
        address: SocketAddr,
        /// What is wrong with it.
        cause: WireError,
    },
    /// It refused an operation, whose completion has the error; this breaks a connection.
    #[error("{address} refused an operation")]
    OperationRefused {
        /// Who.
        address: SocketAddr,
    },
    /// More operations than may be were left unanswered beyond their deadlines.
    #[error("{address} leaves {operations} operations without an answer")]
    Silent {
        /// Who.
        address: SocketAddr,
        /// How many.
        operations: usize,
    },
}

/// Why a service could not start or take a region.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is not on the loopback device, and the settings ask for plain text.
    #[error("{address} is not a loopback address: plain text stays on the machine")]
    PlainBeyondLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The kernel refused.
    #[error("cannot {action}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the kernel says.
        cause: io::Error,
    },
    /// Its atomics are an adapter's; those of this service are the processor's.
    #[error("the atomics of region {key} go by an adapter, those of this service do not")]
    OtherAtomicPath {
        /// The region.
        key: RemoteKey,
    },
    /// A region with this key is served already.
    #[error("a region with key {key} is served already")]
    KeyTaken {
        /// The key.
        key: RemoteKey,
    },
    /// As many regions are served as may be.
    #[error("{max} regions are served, which is the limit")]
    TooManyRegions {
        /// The limit.
        max: usize,
    },
    /// The thread of the service has ended, by a panic that it printed.
    #[error("the thread of the service has ended")]
    ThreadEnded,
}

/// Why a key could not be read or made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file could not be opened, read or written.
    #[error("key file {path:?}: {cause}")]
    System {
        /// Which file.
        path: PathBuf,
        /// What the kernel says.
        cause: io::Error,
    },
    /// It is no regular file.
    #[error("key file {path:?} is not a regular file")]
    NotAFile {
        /// Which file.
        path: PathBuf,
    },
    /// Others than its owner may read or change it.
    #[error("key file {path:?} has mode {mode:03o}: others than its owner reach it; set 600")]
    Mode {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody else than this process's user or root.
    #[error("key file {path:?} belongs to user {uid}")]
    Owner {
        /// Which file.
        path: PathBuf,
        /// Its user.
        uid: u32,
    },
    /// It is not as long as a key.
    #[error("key file {path:?} does not hold exactly 32 bytes")]
    Length {
        /// Which file.
        path: PathBuf,
    },
    /// All bytes are zero: the file was made, and never filled.
    #[error("key file {path:?} holds zero bytes only")]
    Zero {
        /// Which file.
        path: PathBuf,
    },
}

/// How the thread of a service is scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Priority {
    /// Before all ordinary threads (`SCHED_FIFO`): 200 computing threads do not delay it.
    RealTime,
    /// As any other thread.
    Normal {
        /// Why not before others, for `status`.
        why: NotFirst,
    },
}

/// Why a service's thread does not run before others.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFirst {
    /// It was not asked for.
    #[error("as set")]
    AsSet,
    /// The process may not.
    #[error("needs CAP_SYS_NICE or RLIMIT_RTPRIO")]
    NotPermitted,
    /// Its control group has no run time for such threads.
    #[error("{} grants no run time", .file.display())]
    NoRunTime {
        /// Where it would be granted.
        file: PathBuf,
    },
    /// The kernel refused for another reason.
    #[error("the kernel refused: {cause}")]
    Kernel {
        /// Its reason.
        cause: rustix::io::Errno,
    },
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RealTime => formatter.write_str("real time"),
            Self::Normal { why } => write!(formatter, "normal ({why})"),
        }
    }
}
