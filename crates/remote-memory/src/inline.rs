//! The face `Remote` over mapped regions: each operation runs inside `submit`.
//!
//! For code that is written against [`Remote`] and meets a region on its own machine, and for the
//! conformance suite. Code that knows its region is mapped uses [`Mapped`] and saves the batch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::batch::OpenRegions;
use crate::mapped::Mapped;
use crate::region::{RegionDescriptor, RemoteKey, WORD_BYTES};
use crate::remote::{
    Atomics, Capabilities, Completion, ConnectionState, Op, OpError, OpResult, OpenError, Remote,
    SubmitError, Ticket,
};
use crate::wake::Wake;

/// Nothing here is bounded by hardware; the limits only keep the queue finite.
const CAPABILITIES: Capabilities = Capabilities {
    transport: "inline",
    atomics: Atomics::AgreeWithOwner,
    needs_owner_cpu: false,
    lands_late: false,
    adds_wake: true,
    batch_ops_max: 1024,
    outstanding_ops_max: 4096,
    outstanding_fetches_max: 4096,
    op_words_max: 65_536,
    inline_bytes: 65_536 * WORD_BYTES as usize,
};

/// Mapped regions behind the face [`Remote`].
#[derive(Default)]
pub struct Inline {
    mapped: BTreeMap<RemoteKey, Arc<dyn Mapped>>,
    open: OpenRegions,
    done: VecDeque<Completion>,
    outstanding_ops: usize,
    next_ticket: u64,
}

impl Inline {
    /// Without any region.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a mapped region reachable; [`Remote::open`] opens it.
    pub fn add(&mut self, region: Arc<dyn Mapped>) {
        self.mapped.insert(region.descriptor().key, region);
    }
}

impl Remote for Inline {
    fn capabilities(&self) -> &Capabilities {
        &CAPABILITIES
    }

    fn open(&mut self, descriptor: &RegionDescriptor) -> Result<(), OpenError> {
        let key = descriptor.key;
        let known = self.mapped.get(&key).is_some_and(|region| region.descriptor() == descriptor);
        if !known {
            return Err(OpenError::Unreachable { key });
        }
        self.open.open(descriptor, &CAPABILITIES)
    }

    fn close(&mut self, key: RemoteKey) {
        self.open.close(key);
        self.mapped.remove(&key);
    }

    fn submit(
        &mut self,
        key: RemoteKey,
        batch: Vec<Op>,
        _deadline: Duration,
    ) -> Result<Ticket, SubmitError> {
        self.open.check_batch(key, &batch, &CAPABILITIES, self.outstanding_ops)?;
        let region = self.mapped.get(&key).ok_or(SubmitError::NotOpen { key })?;
        let results: Vec<_> = batch.iter().map(|op| execute(&**region, op)).collect();
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.outstanding_ops += results.len();
        self.done.push_back(Completion { ticket, results });
        Ok(ticket)
    }

    fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let count = self.done.len();
        out.extend(self.done.drain(..));
        self.outstanding_ops = 0;
        count
    }

    fn connection(&self) -> ConnectionState {
        ConnectionState::Up
    }

    fn reconnect(&mut self) {}
}

/// After an addition: wakes who sleeps on the word.
pub(crate) fn wake_sleepers(region: &dyn Mapped, offset_bytes: u64) {
    // The word was found to be there. Sleepers that are not woken find the change at their
    // time-out.
    let _ = region.wake((offset_bytes / WORD_BYTES) as usize, u32::MAX);
}

fn execute(region: &dyn Mapped, op: &Op) -> Result<OpResult, OpError> {
    match op {
        Op::Read { offset_bytes, length_words } => {
            let mut words = vec![0; *length_words];
            region.read_into(*offset_bytes, &mut words)?;
            Ok(OpResult::Read(words))
        }
        Op::Write { offset_bytes, words } => {
            op.check_access(region.descriptor().length_bytes)?;
            for (index, word) in words.iter().enumerate() {
                region.write(offset_bytes + index as u64 * WORD_BYTES, *word)?;
            }
            Ok(OpResult::Written)
        }
        Op::CompareAndSwap { offset_bytes, expected, new } => {
            let found = region.compare_and_swap(*offset_bytes, *expected, *new)?;
            Ok(OpResult::Swapped { found })
        }
        Op::FetchAndAdd { offset_bytes, addend } => {
            let found = region.fetch_and_add(*offset_bytes, *addend)?;
            wake_sleepers(region, *offset_bytes);
            Ok(OpResult::Added { found })
        }
    }
}
