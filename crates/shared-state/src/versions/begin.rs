//! Marking tags as pending, before their data changes.

use super::layout::RETIRED;
use super::lower::Lower;
use super::steps::{Change, Found, Held, Machine, Next, Op, Place, ROUNDS_MAX, Shape};
use super::word::{PENDING_MAX, RecordHeader, RecordPhase, Slot, VersionWord, WriterId};
use thiserror::Error;

/// Headers that are read at once in the search of a free record. Writers start at places of their
/// own, where most often the first is free.
const LOOK_AT: u16 = 4;

/// Why an update may not begin. Nothing may be committed under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum BeginError {
    /// All records are in use.
    #[error("all {records} records of the version table are in use; end or settle updates")]
    NoFreeRecord {
        /// How many there are.
        records: u16,
    },
    /// One update lists more slots than it may.
    #[error("the update has {slots} slots, one may have {max}")]
    TooManySlots {
        /// How many it has.
        slots: usize,
        /// How many it may have.
        max: usize,
    },
    /// The slot is of another table.
    #[error("the version table has {slots} slots, there is no slot {}", slot.0)]
    NoSuchSlot {
        /// The slot.
        slot: Slot,
        /// How many there are.
        slots: u32,
    },
    /// A word's count is full.
    #[error("slot {} has {PENDING_MAX} pending updates, which is the limit", slot.0)]
    PendingFull {
        /// The word's place.
        slot: Slot,
    },
    /// The table was given up for a newer one.
    #[error("the version table was given up; open the new one")]
    Retired,
    /// Somebody has settled this writer meanwhile.
    #[error("the writer was settled by somebody else")]
    Settled,
    /// Words were changed by others in every round.
    #[error("a word changed in each of {ROUNDS_MAX} rounds")]
    Contended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Find {
        looked_at: u16,
    },
    Take {
        looked_at: u16,
        found: u64,
    },
    ReadEntries,
    /// Entries that are not written yet: index and present value.
    List(Vec<(u16, u64)>),
    Look,
    Raise(Vec<Change>),
    Mark,
    Undo(Lower, BeginError),
    Done(Result<Held, BeginError>),
}

/// Takes one record, lists up to its size of slots, and raises their counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Begin {
    shape: Shape,
    start: u16,
    /// What the update will hold: all slots that are to be listed.
    held: Held,
    /// Slots that are not raised yet.
    left: Vec<Slot>,
    rounds: u16,
    step: Step,
}

impl Begin {
    /// For slots that are all different, summary words among them: see
    /// [`TableLayout::raised`](super::TableLayout::raised). The search of a free record begins at
    /// `start`.
    #[must_use]
    pub fn new(shape: Shape, writer: WriterId, slots: Vec<Slot>, start: u16) -> Self {
        let max = usize::from(shape.entries);
        let strange = slots.iter().find(|slot| slot.0 >= shape.slots);
        let step = match (slots.len(), strange) {
            (count, _) if count > max => {
                Step::Done(Err(BeginError::TooManySlots { slots: count, max }))
            }
            (_, Some(&slot)) => {
                Step::Done(Err(BeginError::NoSuchSlot { slot, slots: shape.slots }))
            }
            _ => Step::Find { looked_at: 0 },
        };
        let left = slots.clone();
        let held = Held { record: 0, generation: 0, writer, slots };
        Self { shape, start, held, left, rounds: 0, step }
    }

    fn record_at(&self, looked_at: u16) -> u16 {
        let place = usize::from(self.start) + usize::from(looked_at);
        (place % usize::from(self.shape.records.max(1))) as u16
    }

    /// The records that are looked at together, by how many were looked at before.
    fn looks(&self, looked_at: u16) -> std::ops::Range<u16> {
        looked_at..self.shape.records.min(looked_at.saturating_add(LOOK_AT))
    }

    /// Goes on with the first free record of those that were looked at.
    fn find(&self, looked_at: u16, found: &[u64]) -> Step {
        let free = self.looks(looked_at).zip(found).find_map(|(place, &found)| {
            let is_free = RecordHeader::unpack(found).phase == RecordPhase::Free;
            is_free.then_some(Step::Take { looked_at: place, found })
        });
        free.unwrap_or_else(|| self.find_from(self.looks(looked_at).end))
    }

    fn find_from(&self, looked_at: u16) -> Step {
        if looked_at < self.shape.records {
            return Step::Find { looked_at };
        }
        Step::Done(Err(BeginError::NoFreeRecord { records: self.shape.records }))
    }

    fn taken(&mut self, looked_at: u16, expected: u64, found: u64) -> Step {
        if found != expected {
            return self.find_from(looked_at + 1);
        }
        let taken = RecordHeader::unpack(expected).taken(self.held.writer);
        self.held.record = self.record_at(looked_at);
        self.held.generation = taken.generation;
        Step::ReadEntries
    }

    /// The entries that still have to be written, after a round. A late swap of somebody who held
    /// the record before us can have come between.
    fn unlisted(&mut self, tried: &[(u16, u64)], found: &[u64]) -> Step {
        let rest = tried.iter().zip(found).filter(|((_, expected), found)| expected != *found);
        let rest: Vec<_> = rest.map(|(&(index, _), &found)| (index, found)).collect();
        self.rounds += 1;
        match rest.is_empty() {
            true => Step::Look,
            false if self.rounds > ROUNDS_MAX => self.undo(BeginError::Contended),
            false => Step::List(rest),
        }
    }

    fn looked(&mut self, found: &[u64]) -> Step {
        let mut found = Found::new(found);
        let mut changes = Vec::with_capacity(self.left.len());
        let mut full = None;
        for &slot in &self.left {
            let from = found.value();
            match VersionWord::unpack(from).begun() {
                Some(to) => changes.push(Change { slot, from, to: to.pack() }),
                None => full = Some(slot),
            }
        }
        // Read behind the words: whoever settles us changes them behind the header.
        if found.value() != self.held.header(RecordPhase::Raising).pack() {
            return Step::Done(Err(BeginError::Settled));
        }
        self.rounds += 1;
        match full {
            Some(slot) => self.undo(BeginError::PendingFull { slot }),
            None if self.rounds > ROUNDS_MAX => self.undo(BeginError::Contended),
            None => Step::Raise(changes),
        }
    }

    /// Takes back what was raised so far.
    fn undo(&self, error: BeginError) -> Step {
        let mut held = self.held.clone();
        held.slots.retain(|slot| !self.left.contains(slot));
        Step::Undo(Lower::undo(held, RecordPhase::Raising), error)
    }

    fn marked(&self, header: u64, live: u64) -> Step {
        if header != self.held.header(RecordPhase::Raising).pack() {
            return Step::Done(Err(BeginError::Settled));
        }
        if live == RETIRED {
            return Step::Undo(Lower::new(self.held.clone()), BeginError::Retired);
        }
        Step::Done(Ok(self.held.clone()))
    }
}

impl Machine for Begin {
    type Outcome = Result<Held, BeginError>;

    fn next(&self) -> Next<Self::Outcome> {
        let record = self.held.record;
        Next::Batch(match &self.step {
            Step::Done(outcome) => return Next::Done(outcome.clone()),
            Step::Find { looked_at } => {
                let places = self.looks(*looked_at).map(|place| self.record_at(place));
                places.map(|record| Op::Load(Place::Header(record))).collect()
            }
            Step::Take { looked_at, found } => {
                let new = RecordHeader::unpack(*found).taken(self.held.writer).pack();
                let place = Place::Header(self.record_at(*looked_at));
                vec![Op::Swap { place, expected: *found, new }]
            }
            Step::ReadEntries => {
                let places = (0..self.held.slots.len()).map(|at| Place::Entry(record, at as u16));
                places.map(Op::Load).collect()
            }
            Step::List(entries) => {
                let header = self.held.header(RecordPhase::Raising);
                let swap = |&(at, expected): &(u16, u64)| {
                    let new = header.entry(self.held.slots[usize::from(at)]);
                    Op::Swap { place: Place::Entry(record, at), expected, new }
                };
                entries.iter().map(swap).collect()
            }
            Step::Look => {
                let words = self.left.iter().map(|&slot| Op::Load(Place::Word(slot)));
                words.chain([Op::Load(self.held.place())]).collect()
            }
            Step::Raise(changes) => changes.iter().map(Change::op).collect(),
            Step::Mark => {
                let begun = self.held.swap(RecordPhase::Raising, RecordPhase::Begun);
                vec![begun, Op::Load(Place::Live)]
            }
            Step::Undo(lower, error) => match lower.next() {
                Next::Batch(ops) => ops,
                // What could not be taken back stays pending, and is settled with the writer.
                Next::Done(_) => return Next::Done(Err(*error)),
            },
        })
    }

    fn reply(&mut self, found: &[u64]) {
        let mut values = Found::new(found);
        let step = std::mem::replace(&mut self.step, Step::Look);
        self.step = match step {
            Step::Find { looked_at } => self.find(looked_at, found),
            Step::Take { looked_at, found } => self.taken(looked_at, found, values.value()),
            Step::ReadEntries => {
                let entries: Vec<_> = (0..).zip(found.iter().copied()).collect();
                Step::List(entries)
            }
            Step::List(entries) => self.unlisted(&entries, found),
            Step::Look => self.looked(found),
            Step::Raise(changes) => {
                let (_, lost) = Change::judge(&changes, found);
                self.left = lost;
                if self.left.is_empty() { Step::Mark } else { Step::Look }
            }
            Step::Mark => self.marked(values.value(), values.value()),
            Step::Undo(mut lower, error) => {
                lower.reply(found);
                Step::Undo(lower, error)
            }
            Step::Done(outcome) => Step::Done(outcome),
        };
    }
}
