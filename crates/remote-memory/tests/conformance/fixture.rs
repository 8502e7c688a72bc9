//! What a transport brings to the suite.

use std::time::Duration;

use remote_memory::{Completion, Op, OpError, OpResult, RegionDescriptor, Remote, RemoteKey};

/// Far beyond what any operation needs, on a loaded machine too.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
/// Polls before a call is given up; with a pause in each it outlasts the deadline.
const POLLS_MAX: u64 = 1_000_000_000;

/// A peer in a race: what it sends next, told what its last batch brought (nothing at the start);
/// nothing when it is done.
pub(crate) type Step =
    Box<dyn FnMut(Option<Vec<Result<OpResult, OpError>>>) -> Option<(RemoteKey, Vec<Op>)> + Send>;

/// One transport with owners and peers.
pub(crate) trait Fixture {
    /// Operations of each peer in a race: some tenths of a second.
    const ROUNDS: u64;
    /// Swaps of each peer in a race: enough that peers meet.
    const SWAPS: u64;
    fn new() -> Self;
    /// Makes an owner with a region of zero words.
    fn region(&mut self, length_words: usize) -> RegionDescriptor;
    /// Ends the owner of a region and starts it again; its new region holds zero words.
    fn restart(&mut self, old: RemoteKey) -> RegionDescriptor;
    /// A new peer that can reach all regions made so far.
    fn connect(&mut self) -> Box<dyn Remote>;
    /// Reads a word as the owner does.
    fn owner_read(&self, key: RemoteKey, offset_bytes: u64) -> u64;
    /// Writes a word as the owner does.
    fn owner_write(&self, key: RemoteKey, offset_bytes: u64, value: u64);
    /// Lets something happen while a peer waits.
    fn pass_time(&self);
    /// Runs all peers against each other to their ends.
    fn race(&mut self, peers: Vec<(Box<dyn Remote>, Step)>);
}

/// Opens a region on a new peer.
pub(crate) fn peer_of(fixture: &mut impl Fixture, region: &RegionDescriptor) -> Box<dyn Remote> {
    let mut peer = fixture.connect();
    peer.open(region).unwrap();
    peer
}

/// Sends a batch and waits for its completion.
pub(crate) fn call(
    fixture: &impl Fixture,
    peer: &mut dyn Remote,
    key: RemoteKey,
    batch: Vec<Op>,
) -> Vec<Result<OpResult, OpError>> {
    let count = batch.len();
    let ticket = peer.submit(key, batch, DEADLINE).unwrap();
    let mut done: Vec<Completion> = Vec::new();
    for _ in 0..POLLS_MAX {
        if peer.poll(&mut done) > 0 {
            break;
        }
        fixture.pass_time();
    }
    assert_eq!(done.len(), 1, "one batch, one completion");
    assert_eq!(done[0].ticket, ticket);
    assert_eq!(done[0].results.len(), count, "one result for each operation");
    done.remove(0).results
}

/// Sends one operation that must succeed.
pub(crate) fn call_one(
    fixture: &impl Fixture,
    peer: &mut dyn Remote,
    key: RemoteKey,
    op: Op,
) -> OpResult {
    call(fixture, peer, key, vec![op]).remove(0).unwrap()
}

pub(crate) fn read(offset_bytes: u64) -> Op {
    Op::Read { offset_bytes, length_words: 1 }
}

pub(crate) fn write(offset_bytes: u64, word: u64) -> Op {
    Op::Write { offset_bytes, words: vec![word] }
}

pub(crate) fn swap(offset_bytes: u64, expected: u64, new: u64) -> Op {
    Op::CompareAndSwap { offset_bytes, expected, new }
}

pub(crate) fn add(offset_bytes: u64, addend: u64) -> Op {
    Op::FetchAndAdd { offset_bytes, addend }
}

/// Drives one peer of a race: takes completions, sends what comes next. False when it is done.
pub(crate) struct Runner {
    pub(crate) peer: Box<dyn Remote>,
    step: Step,
    waiting: bool,
    done: Vec<Completion>,
}

impl Runner {
    pub(crate) fn new((peer, step): (Box<dyn Remote>, Step)) -> Self {
        Self { peer, step, waiting: false, done: Vec::new() }
    }

    pub(crate) fn turn(&mut self) -> bool {
        let brought = if self.waiting {
            self.peer.poll(&mut self.done);
            match self.done.pop() {
                Some(completion) => Some(completion.results),
                None => return true,
            }
        } else {
            None
        };
        let Some((key, batch)) = (self.step)(brought) else { return false };
        self.peer.submit(key, batch, DEADLINE).unwrap();
        self.waiting = true;
        true
    }
}
