//! How the machines of the protocol meet memory: each names a batch of operations on single words,
//! is told what they found, and goes on. They know no region, no thread and no clock; threads on
//! mapped memory, batches to another machine and the model checker run the same ones.

use super::word::{RecordHeader, RecordPhase, Slot, WriterId};

/// Rounds in which a machine tries to change words that others change too. Each lost round is a
/// change that somebody else made, so that a thousand are lost only where something is wrong.
pub const ROUNDS_MAX: u16 = 1_000;

/// A word by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// Whether hits may be served: the incarnation, zero, or all ones.
    Live,
    /// The last stamp drawn.
    Sequence,
    /// The header of a record.
    Header(u16),
    /// An entry of a record.
    Entry(u16, u16),
    /// A tag's word.
    Word(Slot),
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads the word.
    Load(Place),
    /// Writes `new` if the word is `expected`.
    Swap {
        /// Which word.
        place: Place,
        /// What it must be.
        expected: u64,
        /// What it then is.
        new: u64,
    },
    /// Adds one to the sequence.
    Draw,
}

/// What a machine wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// These operations, in this order; those of others may fall between them. Each brings the
    /// value that it found.
    Batch(Vec<Op>),
    /// Nothing more.
    Done(T),
}

/// A part of the protocol, step by step.
pub trait Machine {
    /// What comes of it.
    type Outcome;

    /// What is to be done next. Asking changes nothing.
    fn next(&self) -> Next<Self::Outcome>;

    /// Tells what the operations of the last batch found, one value for each, in their order.
    fn reply(&mut self, found: &[u64]);
}

/// Memory on which operations can be performed at once.
pub trait Memory {
    /// Performs one operation and returns the value that it found.
    fn perform(&self, op: Op) -> u64;
}

/// Runs a machine to its end.
pub fn drive<M: Machine>(memory: &impl Memory, mut machine: M) -> M::Outcome {
    let mut found = Vec::new();
    loop {
        match machine.next() {
            Next::Done(outcome) => return outcome,
            Next::Batch(ops) => {
                found.clear();
                found.extend(ops.into_iter().map(|op| memory.perform(op)));
                machine.reply(&found);
            }
        }
    }
}

/// How much a table has of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Words of tags.
    pub slots: u32,
    /// Records.
    pub records: u16,
    /// Slots that a record lists.
    pub entries: u16,
}

impl Shape {
    /// The slots that entries list under a header, each once. Noise is left out.
    pub(super) fn listed(&self, header: RecordHeader, entries: &[u64]) -> Vec<Slot> {
        let listed = entries.iter().filter_map(|&entry| header.listed(entry));
        let mut slots: Vec<_> = listed.filter(|slot| slot.0 < self.slots).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Reads all entries of a record.
    pub(super) fn load_entries(&self, record: u16) -> impl Iterator<Item = Op> + use<> {
        (0..self.entries).map(move |at| Op::Load(Place::Entry(record, at)))
    }
}

/// A record that an update holds, with what it lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub(super) record: u16,
    pub(super) generation: u32,
    pub(super) writer: WriterId,
    pub(super) slots: Vec<Slot>,
}

impl Held {
    /// Which record.
    #[must_use]
    pub fn record(&self) -> u16 {
        self.record
    }

    /// The slots whose counts it holds.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn header(&self, phase: RecordPhase) -> RecordHeader {
        RecordHeader { generation: self.generation, phase, writer: self.writer }
    }

    pub(super) fn place(&self) -> Place {
        Place::Header(self.record)
    }

    pub(super) fn swap(&self, from: RecordPhase, to: RecordPhase) -> Op {
        let (expected, new) = (self.header(from).pack(), self.header(to).pack());
        Op::Swap { place: self.place(), expected, new }
    }
}

/// Values that were found, taken one after the other. A missing one reads as zero, which no
/// machine takes for success; the caller has promised one for each operation.
pub(super) struct Found<'a>(std::slice::Iter<'a, u64>);

impl<'a> Found<'a> {
    pub(super) fn new(found: &'a [u64]) -> Self {
        Self(found.iter())
    }

    pub(super) fn value(&mut self) -> u64 {
        self.0.next().copied().unwrap_or(0)
    }
}

/// A word that was read and what it is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Change {
    pub(super) slot: Slot,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Change {
    pub(super) fn op(&self) -> Op {
        Op::Swap { place: Place::Word(self.slot), expected: self.from, new: self.to }
    }

    /// Sorts the slots of changes into those that took place and those that did not.
    pub(super) fn judge(changes: &[Self], found: &[u64]) -> (Vec<Slot>, Vec<Slot>) {
        let mut found = Found::new(found);
        let (mut made, mut lost) = (Vec::new(), Vec::new());
        for change in changes {
            let to = if found.value() == change.from { &mut made } else { &mut lost };
            to.push(change.slot);
        }
        (made, lost)
    }
}
