//! The state of the simulated network: time, regions, connections, batches and what comes next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::random::Random;
use super::responder::Transfer;
use super::settings::{Access, Faults};
use crate::region::{RegionDescriptor, RemoteKey};
use crate::remote::{Capabilities, Completion, ConnectionState, Op, OpError, OpResult, Ticket};

/// What happened so far. All counts are of operations unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Took effect at an owner.
    pub landed: u64,
    /// Took effect after their batch had been reported as failed.
    pub landed_late: u64,
    /// Were refused by an owner.
    pub refused: u64,
    /// Batches whose request was lost.
    pub requests_lost: u64,
    /// Answers that were lost.
    pub replies_lost: u64,
    /// Batches that met their deadline.
    pub deadlines_met: u64,
    /// Connections that broke.
    pub breaks: u64,
    /// Connections that came back.
    pub reconnects: u64,
}

/// Names a batch in the whole network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchId(pub(super) u64);

/// Names a connection: its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionId(pub(super) usize);

/// What happens at a point of virtual time.
#[derive(Debug)]
pub(super) enum Event {
    /// The owner's side performs the next step of a batch.
    Execute(BatchId),
    /// An answer arrives.
    Reply { batch: BatchId, index: usize, result: Result<OpResult, OpError> },
    /// A batch's deadline has come.
    Deadline(BatchId),
    /// A connection breaks, if it is still of this generation.
    Break { connection: ConnectionId, generation: u64 },
    /// An attempt to connect ends, well or not.
    Connected { connection: ConnectionId, well: bool },
}

/// Memory of an owner.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) descriptor: RegionDescriptor,
    pub(super) access: Access,
    pub(super) words: Vec<u64>,
}

/// A peer's connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) capabilities: Capabilities,
    pub(super) state: ConnectionState,
    /// Grows with each time it comes back, so that an old break does not hit a new connection.
    pub(super) generation: u64,
    /// The owner's side refused something and performs nothing more, whether or not the peer
    /// knows it yet.
    pub(super) owner_side_broken: bool,
    pub(super) outstanding_ops: usize,
    pub(super) next_ticket: u64,
    pub(super) done: VecDeque<Completion>,
    /// The queue pair was dropped: nobody will poll.
    pub(super) closed: bool,
}

/// A batch under way, or a zombie of one that was reported.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) connection: ConnectionId,
    /// Of the connection, when the batch was sent.
    pub(super) generation: u64,
    pub(super) ticket: Ticket,
    pub(super) key: RemoteKey,
    pub(super) ops: Vec<Op>,
    /// The operation that the owner's side performs next.
    pub(super) next_op: usize,
    /// The part of it that is done, where it moves several cache lines.
    pub(super) transfer: Option<Transfer>,
    /// Reads and atomics performed, to hold back those beyond the limit.
    pub(super) fetches: usize,
    /// Answers come in order: none before this.
    pub(super) last_reply_ns: u64,
    /// From this operation on answers are lost.
    pub(super) replies_lost_from: usize,
    pub(super) results: Vec<Option<Result<OpResult, OpError>>>,
    /// The request has more to do at the owner.
    pub(super) lives: bool,
    /// The completion was handed to the peer.
    pub(super) reported: bool,
}

pub(super) struct World {
    pub(super) now_ns: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) regions: BTreeMap<RemoteKey, Region>,
    pub(super) connections: Vec<Connection>,
    pub(super) batches: BTreeMap<BatchId, Batch>,
    pub(super) next_batch: u64,
    pub(super) statistics: Statistics,
    /// By time, then by order of planning.
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    fingerprint: u64,
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Self {
            now_ns: 0,
            random: Random::new(seed),
            faults,
            regions: BTreeMap::new(),
            connections: Vec::new(),
            batches: BTreeMap::new(),
            next_batch: 0,
            statistics: Statistics::default(),
            events: BTreeMap::new(),
            next_event: 0,
            fingerprint: seed,
        }
    }

    /// Plans an event so many nanoseconds from now.
    pub(super) fn plan(&mut self, in_ns: u64, event: Event) {
        let at_ns = self.now_ns.saturating_add(in_ns);
        self.events.insert((at_ns, self.next_event), event);
        self.next_event += 1;
    }

    /// When the next event comes.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// Goes to the next event and lets it happen; false if there is none.
    pub(super) fn run_next(&mut self) -> bool {
        let Some(((at_ns, number), event)) = self.events.pop_first() else { return false };
        self.now_ns = at_ns;
        self.mix(at_ns);
        self.mix(number);
        match event {
            Event::Execute(batch) => self.execute(batch),
            Event::Reply { batch, index, result } => self.receive_reply(batch, index, result),
            Event::Deadline(batch) => self.meet_deadline(batch),
            Event::Break { connection, generation } => {
                if self.connection(connection).generation == generation {
                    let lands = self.random.chance(500);
                    self.break_connection(connection, &OpError::Disconnected, lands);
                }
            }
            Event::Connected { connection, well } => self.connected(connection, well),
        }
        self.check_invariants();
        true
    }

    /// Adds a value to the run's fingerprint.
    pub(super) fn mix(&mut self, value: u64) {
        // The prime of FNV-1a, a word at a time.
        self.fingerprint = (self.fingerprint ^ value).wrapping_mul(0x0000_0100_0000_01b3);
        self.fingerprint ^= self.fingerprint >> 32;
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Draws the time of one way, in nanoseconds.
    pub(super) fn draw_way_ns(&mut self) -> u64 {
        let (low, high) = (nanos(self.faults.delay_min), nanos(self.faults.delay_max));
        self.random.between(low, high)
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> &mut Connection {
        // Identifiers are only made by `connect`, and connections are never removed.
        &mut self.connections[id.0]
    }

    /// Removes a batch of which nothing more can come.
    pub(super) fn forget_if_over(&mut self, id: BatchId) {
        if self.batches.get(&id).is_some_and(|batch| batch.reported && !batch.lives) {
            self.batches.remove(&id);
        }
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for batch in self.batches.values() {
            assert!(batch.lives || !batch.reported, "a batch that is over was forgotten");
            assert_eq!(batch.ops.len(), batch.results.len(), "one result for each operation");
            let connection = &self.connections[batch.connection.0];
            let up = connection.state == ConnectionState::Up;
            assert!(batch.reported || up, "a broken connection has flushed all its batches");
        }
        for connection in &self.connections {
            let limit = connection.capabilities.outstanding_ops_max;
            assert!(connection.outstanding_ops <= limit, "the queue holds what it can hold");
        }
    }
}

/// A duration in nanoseconds; 584 years at most.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
