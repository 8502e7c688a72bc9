//! What goes wrong, how often, and how long things take.

use std::time::Duration;

pub use crate::region::Access;
use crate::region::{AtomicPath, WORD_BYTES};
use crate::remote::{Atomics, Capabilities};

/// Delays and faults. All chances are in thousandths, drawn for each batch unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// Least time of one way between a peer and an owner.
    pub delay_min: Duration,
    /// Most time of one way without a fault. Batches overtake each other within this span.
    pub delay_max: Duration,
    /// Most time between two operations of a batch at the owner, and between two cache lines of
    /// one read; others' operations fall between.
    pub gap_max: Duration,
    /// Chance that the request is late by up to `late_max`: beyond its deadline it lands as a
    /// zombie.
    pub late_per_mille: u16,
    /// Most lateness.
    pub late_max: Duration,
    /// Chance that the request is lost: it never lands, and times out.
    pub lost_request_per_mille: u16,
    /// Chance that answers are lost from some operation on: they landed, and time out.
    pub lost_reply_per_mille: u16,
    /// Chance that the connection breaks while the batch is under way. In half of these cases
    /// what is under way still lands.
    pub break_per_mille: u16,
    /// Chance that connecting again fails, drawn for each attempt.
    pub reconnect_failure_per_mille: u16,
    /// Whether a deadline breaks the connection. It does over verbs, where the buffer of a late
    /// answer must not be used again.
    pub timeout_breaks: bool,
}

impl Faults {
    /// No faults, but delays that let batches overtake each other: 1 to 5 us one way.
    pub fn none() -> Self {
        Self {
            delay_min: Duration::from_micros(1),
            delay_max: Duration::from_micros(5),
            gap_max: Duration::from_nanos(500),
            late_per_mille: 0,
            late_max: Duration::ZERO,
            lost_request_per_mille: 0,
            lost_reply_per_mille: 0,
            break_per_mille: 0,
            reconnect_failure_per_mille: 0,
            timeout_breaks: true,
        }
    }

    /// Each kind of fault in one to five of a hundred batches.
    pub fn many() -> Self {
        Self {
            late_per_mille: 50,
            late_max: Duration::from_millis(10),
            lost_request_per_mille: 20,
            lost_reply_per_mille: 30,
            break_per_mille: 10,
            reconnect_failure_per_mille: 200,
            ..Self::none()
        }
    }
}

/// How a region is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionSettings {
    /// A name for messages.
    pub label: String,
    /// Length in bytes.
    pub length_bytes: u64,
    /// The path of its atomics.
    pub atomic_path: AtomicPath,
    /// What peers may do.
    pub access: Access,
}

impl RegionSettings {
    /// Readable and writable, with the processor's atomics.
    pub fn new(label: &str, length_bytes: u64) -> Self {
        Self {
            label: label.to_owned(),
            length_bytes,
            atomic_path: AtomicPath::Cpu,
            access: Access::ReadWrite,
        }
    }
}

/// Limits like those of a small adapter, with atomics as stated.
pub fn capabilities(atomics: Atomics) -> Capabilities {
    Capabilities {
        transport: "faulty",
        atomics,
        needs_owner_cpu: false,
        lands_late: true,
        adds_wake: false,
        batch_ops_max: 64,
        outstanding_ops_max: 256,
        outstanding_fetches_max: 16,
        op_words_max: 8192,
        inline_bytes: 8 * WORD_BYTES as usize,
    }
}
