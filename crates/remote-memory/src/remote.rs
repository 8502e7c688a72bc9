//! The face `Remote`: regions that are reached by messages, or by an adapter.
//!
//! What sets it apart from [`Mapped`](crate::Mapped), and what each transport must keep:
//!
//! - **Batches.** A batch goes to one region; its operations take effect there in order, one
//!   after the other (a transport over verbs sets the fence that a write behind a read needs).
//!   Operations of other peers, and of other batches of the same peer, may fall between them.
//!   Two batches are ordered only if the second is submitted after the first has completed.
//! - **Deadlines.** Each batch completes within its deadline, as far as it is polled. An operation
//!   that timed out may still land, at any later time: see [`OpError::may_have_landed`].
//! - **Errors.** Each operation has its own result. After the first failed one the rest of the
//!   batch is [`OpError::Flushed`]. An error that the owner's side reports breaks the connection,
//!   as a queue pair breaks: all that is under way is flushed, and nothing can be submitted until
//!   [`Remote::reconnect`]. What can be checked here is refused before it is sent, and breaks
//!   nothing.
//! - **Words.** Only an aligned word cannot be torn. A read or write of several words may mix old
//!   and new between its cache lines, in any order: a version belongs into each line, or version
//!   and body are read in separate operations of one batch.
//! - **Limits** are data: [`Capabilities`]. Callers ask for them, never for a transport's name.
//!
//! Back of the envelope for a batch of one: 3 us by an adapter, 30 to 100 us over TCP.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::region::{AtomicPath, RegionDescriptor, RemoteKey};

/// What the atomics of a transport are atomic with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// There are none (software iWARP): compare-and-swap and fetch-and-add are refused.
    None,
    /// They agree with those of the owner's processor, so regions of [`AtomicPath::Cpu`] open.
    AgreeWithOwner,
    /// Only with others through the adapter with this GUID: regions of that path open.
    Adapter(u64),
}

/// What a transport can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// A name for messages. Never test it.
    pub transport: &'static str,
    /// What its atomics are atomic with.
    pub atomics: Atomics,
    /// True if the owner's processor works for each operation (a TCP service): then a stopped
    /// owner answers nothing.
    pub needs_owner_cpu: bool,
    /// True if an operation can take effect after its deadline was reported.
    pub lands_late: bool,
    /// True if a fetch-and-add also wakes who sleeps on its word ([`crate::Wake`]).
    pub adds_wake: bool,
    /// Most operations in one batch.
    pub batch_ops_max: usize,
    /// Most operations that were submitted and whose completions were not yet polled: the depth
    /// of the send queue.
    pub outstanding_ops_max: usize,
    /// Reads and atomics that are under way together (`max_rd_atomic` of verbs, both kinds
    /// counted). The transport holds further ones back, which costs round trips.
    pub outstanding_fetches_max: usize,
    /// Most words in one read or write.
    pub op_words_max: usize,
    /// Writes up to this length in bytes are sent from the request itself; longer ones cost a
    /// copy into registered memory.
    pub inline_bytes: usize,
}

/// One operation on a region. Offsets are in bytes from the region's start, multiples of 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Reads words.
    Read {
        /// Where the first word lies.
        offset_bytes: u64,
        /// How many words, at least one.
        length_words: usize,
    },
    /// Writes words. Others may see some of its cache lines before the rest, in any order.
    Write {
        /// Where the first word goes.
        offset_bytes: u64,
        /// The words, at least one.
        words: Vec<u64>,
    },
    /// Writes `new` if the word holds `expected`.
    CompareAndSwap {
        /// Where the word lies.
        offset_bytes: u64,
        /// What it must hold.
        expected: u64,
        /// What it then holds.
        new: u64,
    },
    /// Adds to a word, modulo 2^64.
    FetchAndAdd {
        /// Where the word lies.
        offset_bytes: u64,
        /// What is added.
        addend: u64,
    },
}

/// What an operation that took effect brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpResult {
    /// The words read.
    Read(Vec<u64>),
    /// All words were written.
    Written,
    /// The compare-and-swap found this; it swapped if that is what it expected.
    Swapped {
        /// The value before.
        found: u64,
    },
    /// The sum was written; this was there before.
    Added {
        /// The value before.
        found: u64,
    },
}

/// Why an operation brought no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpError {
    /// No answer within the deadline. **It may still land.**
    #[error("no answer within the deadline; the operation may still land")]
    TimedOut,
    /// An earlier operation failed, in this batch or on this connection. It may have landed.
    #[error("given up after an earlier failure on the connection; it may have landed")]
    Flushed,
    /// The connection broke, or the deadline passed, before it was sent. It did not take effect.
    #[error("the operation was never sent")]
    NotSent,
    /// The connection broke. It may have landed.
    #[error("the connection broke; the operation may have landed")]
    Disconnected,
    /// The owner grants no such operation on the region. It did not take effect. An adapter
    /// reports stale keys and bounds in this form too.
    #[error("the owner refuses {op}")]
    AccessDenied {
        /// Which kind of operation.
        op: &'static str,
    },
    /// No region has this key now: its owner has ended or made a new one. It did not take effect.
    #[error("no region has this key: its owner ended or started again")]
    StaleKey,
    /// It reaches beyond the region. It did not take effect.
    #[error(
        "{access_bytes} bytes at offset {offset_bytes} lie outside the region of \
         {region_bytes} bytes"
    )]
    OutOfBounds {
        /// Where the access starts.
        offset_bytes: u64,
        /// Its length in bytes.
        access_bytes: u64,
        /// The region's length in bytes.
        region_bytes: u64,
    },
    /// The offset is no multiple of 8. It did not take effect.
    #[error("offset {offset_bytes} is not a multiple of 8")]
    Misaligned {
        /// Where the access starts.
        offset_bytes: u64,
    },
    /// The transport cannot do this. It was not sent.
    #[error("the transport cannot do this: {reason}")]
    NotSupported {
        /// What is missing.
        reason: &'static str,
    },
}

impl OpError {
    /// True if nobody knows whether the operation took effect, or will.
    pub fn may_have_landed(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Flushed | Self::Disconnected)
    }
}

/// Names a submitted batch among those of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A batch that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Which batch.
    pub ticket: Ticket,
    /// One result for each of its operations, in order.
    pub results: Vec<Result<OpResult, OpError>>,
}

/// Why a region could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The region's atomics go another way than this transport's.
    #[error("the region's atomics go by {region:?}, those of this transport are {transport:?}")]
    OtherAtomicPath {
        /// What the region states.
        region: AtomicPath,
        /// What the transport has.
        transport: Atomics,
    },
    /// The length is no length of a region.
    #[error("region length {length_bytes} is not a multiple of 8 within the limit")]
    BadLength {
        /// The length that the descriptor states.
        length_bytes: u64,
    },
    /// Another region with this key is open. Keys are random: somebody made this one up.
    #[error("another region with key {key} is open")]
    KeyTaken {
        /// The key.
        key: RemoteKey,
    },
    /// As many regions are open as may be.
    #[error("{max} regions are open, which is the limit")]
    TooManyRegions {
        /// The limit.
        max: usize,
    },
    /// This transport has no way to the region.
    #[error("no way to a region with key {key}")]
    Unreachable {
        /// The key.
        key: RemoteKey,
    },
}

/// Why a batch was refused. Nothing of it was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A batch needs an operation.
    #[error("the batch is empty")]
    Empty,
    /// It has more operations than the transport takes in a batch.
    #[error("the batch has {ops} operations, the transport takes {max}")]
    BatchTooLong {
        /// How many it has.
        ops: usize,
        /// How many it may have.
        max: usize,
    },
    /// The queue is full: poll completions first.
    #[error("{outstanding} operations are outstanding, the queue holds {max}")]
    QueueFull {
        /// Outstanding before this batch.
        outstanding: usize,
        /// The queue's depth.
        max: usize,
    },
    /// The key was not opened.
    #[error("the region with key {key} is not open")]
    NotOpen {
        /// The key.
        key: RemoteKey,
    },
    /// One operation cannot be right, as seen from here.
    #[error("operation {index} of the batch: {error}")]
    BadOp {
        /// Its place in the batch, from 0.
        index: usize,
        /// What is wrong.
        error: OpError,
    },
    /// The connection is not up: see [`Remote::reconnect`].
    #[error("the connection is {state:?}")]
    NotConnected {
        /// Its state.
        state: ConnectionState,
    },
}

/// The state of the connection to an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Batches can be submitted.
    Up,
    /// [`Remote::reconnect`] is under way.
    Connecting,
    /// It broke. All that was under way is flushed.
    Broken,
}

/// A connection to an owner's regions. No method blocks.
pub trait Remote: Send {
    /// What this transport can do; does not change while the connection exists.
    fn capabilities(&self) -> &Capabilities;

    /// Makes a region known, so that batches can name its key. Opening the same descriptor again
    /// changes nothing.
    ///
    /// # Errors
    /// The region's atomics go another way, or the descriptor cannot be right. An unknown key may
    /// be found here, or only when an operation uses it.
    fn open(&mut self, descriptor: &RegionDescriptor) -> Result<(), OpenError>;

    /// Forgets a region (its owner has ended). Batches under way are not touched.
    fn close(&mut self, key: RemoteKey);

    /// Hands over a batch, whose completion comes from [`Remote::poll`] within `deadline`. The
    /// transport may ring one doorbell for several batches, at the latest at the next poll.
    ///
    /// # Errors
    /// The batch is refused as a whole, and nothing of it was sent.
    fn submit(
        &mut self,
        key: RemoteKey,
        batch: Vec<Op>,
        deadline: Duration,
    ) -> Result<Ticket, SubmitError>;

    /// Appends all completions that are there to `out` and returns how many; their places in the
    /// queue are free from then on. Drives the transport: without polls nothing may progress.
    fn poll(&mut self, out: &mut Vec<Completion>) -> usize;

    /// Asks for an event at the next completion and returns the descriptor that becomes readable.
    /// The order is: poll until empty, arm, **poll again**, then sleep on the descriptor.
    /// Nothing is returned by transports on which sleeping makes no sense.
    fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The state of the connection.
    fn connection(&self) -> ConnectionState;

    /// Begins to connect again, if broken; watch [`Remote::connection`]. Backing off between
    /// attempts is the caller's part, for it knows how urgent they are.
    fn reconnect(&mut self);
}
