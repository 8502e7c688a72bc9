//! A small version table as plain words, and machines that run on it one operation at a time.

use shared_state::versions::{Machine, Next, Op, Place, RecordHeader, RecordPhase, Shape, Slot};
use shared_state::versions::{SettleError, VersionWord};

pub(crate) const SLOTS: usize = 2;
pub(crate) const RECORDS: usize = 3;
pub(crate) const ENTRIES: usize = 2;

/// What the word `Live` says; see the layout.
pub(crate) const CLOSED: u64 = 0;
pub(crate) const RETIRED: u64 = u64::MAX;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Memory {
    pub(crate) live: u64,
    pub(crate) sequence: u64,
    headers: [u64; RECORDS],
    entries: [[u64; ENTRIES]; RECORDS],
    words: [u64; SLOTS],
}

impl Memory {
    pub(crate) fn new(live: u64) -> Self {
        let (headers, entries) = ([0; RECORDS], [[0; ENTRIES]; RECORDS]);
        Self { live, sequence: 0, headers, entries, words: [0; SLOTS] }
    }

    fn word(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Live => &mut self.live,
            Place::Sequence => &mut self.sequence,
            Place::Header(record) => &mut self.headers[usize::from(record)],
            Place::Entry(record, at) => &mut self.entries[usize::from(record)][usize::from(at)],
            Place::Word(slot) => &mut self.words[slot.0 as usize],
        }
    }

    pub(crate) fn perform(&mut self, op: Op) -> u64 {
        match op {
            Op::Load(place) => *self.word(place),
            Op::Swap { place, expected, new } => {
                let word = self.word(place);
                let found = *word;
                if found == expected {
                    *word = new;
                }
                found
            }
            Op::Draw => {
                self.sequence += 1;
                self.sequence - 1
            }
        }
    }

    pub(crate) fn header(&self, record: usize) -> RecordHeader {
        RecordHeader::unpack(self.headers[record])
    }

    pub(crate) fn is_free(&self, record: usize) -> bool {
        self.header(record).phase == RecordPhase::Free
    }

    pub(crate) fn version(&self, slot: usize) -> VersionWord {
        VersionWord::unpack(self.words[slot])
    }

    /// How many records in this phase list the slot.
    fn listing(&self, slot: usize, is: impl Fn(RecordPhase) -> bool) -> usize {
        let wanted = Slot(slot as u32);
        let lists = |record: &usize| {
            let header = self.header(*record);
            let mut entries = self.entries[*record].iter();
            is(header.phase) && entries.any(|&entry| header.listed(entry) == Some(wanted))
        };
        (0..RECORDS).filter(lists).count()
    }

    /// Never less than the updates that hold the word; exactly as many while nobody is between
    /// two steps.
    pub(crate) fn counts_are_right(&self) -> bool {
        (0..SLOTS).all(|slot| {
            let pending = usize::from(self.version(slot).pending);
            let begun = self.listing(slot, |phase| phase == RecordPhase::Begun);
            let known = |phase| matches!(phase, RecordPhase::Free | RecordPhase::Begun);
            let unknown = self.listing(slot, |phase| !known(phase));
            pending >= begun && (unknown > 0 || pending == begun)
        })
    }

    /// Nothing is pending, and what is filled now is a hit.
    pub(crate) fn is_at_rest(&self) -> bool {
        (0..SLOTS).all(|slot| {
            let word = self.version(slot);
            word.pending == 0 && word.stamp.get() <= self.sequence
        })
    }
}

/// Rules that a wrong variant breaks between a machine and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breach {
    None,
    /// A writer's look at its header behind the words finds it as it left it.
    NoOwnerCheck,
    /// A settler takes records in the middle of a step for free ones.
    UnknownCountsNothing,
    /// Whoever lowers a count leaves the stamp.
    StampKept,
    /// Begin does not see that its table was given up.
    RetiredUnseen,
}

/// A machine in the middle of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Running<M> {
    machine: M,
    found: Vec<u64>,
    /// The header that this machine wrote last.
    own: u64,
}

impl<M: Machine> Running<M> {
    pub(crate) fn new(machine: M) -> Self {
        Self { machine, found: Vec::new(), own: 0 }
    }

    /// One operation; what came of it all, if it was the last. Operations on words that nobody
    /// else looks at (`private`) are done together with the next one.
    pub(crate) fn step(
        &mut self,
        memory: &mut Memory,
        breach: Breach,
        private: fn(Place) -> bool,
    ) -> Option<M::Outcome> {
        let mut performed = false;
        loop {
            let ops = match self.machine.next() {
                Next::Done(outcome) => return Some(outcome),
                Next::Batch(ops) => ops,
            };
            if let Some(&op) = ops.get(self.found.len()) {
                let alone = match op {
                    Op::Load(place) | Op::Swap { place, .. } => private(place),
                    Op::Draw => false,
                };
                if performed && !alone {
                    return None;
                }
                performed |= !alone;
                let found = self.perform(memory, op, &ops, breach);
                self.found.push(found);
            }
            if self.found.len() == ops.len() {
                self.machine.reply(&std::mem::take(&mut self.found));
            }
        }
    }

    fn perform(&mut self, memory: &mut Memory, op: Op, batch: &[Op], breach: Breach) -> u64 {
        let is_word = |op: &Op| matches!(op, Op::Load(Place::Word(_)));
        match op {
            Op::Swap { place: Place::Header(_), expected, new } => {
                let found = memory.perform(op);
                if found == expected {
                    self.own = new;
                }
                found
            }
            Op::Load(Place::Header(_))
                if breach == Breach::NoOwnerCheck && batch.iter().any(is_word) =>
            {
                self.own
            }
            Op::Load(Place::Header(_))
                if breach == Breach::UnknownCountsNothing
                    // Its count, not its look at the record that it is to settle.
                    && batch.len() > 1
                    && batch.iter().all(|op| matches!(op, Op::Load(Place::Header(_)))) =>
            {
                let header = RecordHeader::unpack(memory.perform(op));
                let unknown = matches!(header.phase, RecordPhase::Raising | RecordPhase::Lowering);
                if unknown { header.at(RecordPhase::Free).pack() } else { header.pack() }
            }
            Op::Swap { place, expected, new }
                if breach == Breach::StampKept
                    && (new & 0xffff) + 1 == expected & 0xffff
                    && matches!(place, Place::Word(_)) =>
            {
                memory.perform(Op::Swap { place, expected, new: expected - 1 })
            }
            Op::Load(Place::Live) if breach == Breach::RetiredUnseen && memory.live == RETIRED => {
                CLOSED
            }
            _ => memory.perform(op),
        }
    }

    /// Runs to the end, alone.
    pub(crate) fn finish(mut self, memory: &mut Memory) -> M::Outcome {
        loop {
            if let Some(outcome) = self.step(memory, Breach::None, |_| false) {
                return outcome;
            }
        }
    }
}

/// A settler that subtracts one from all that a record lists: what must not be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Blind {
    shape: Shape,
    record: u16,
    header: u64,
    left: Vec<Slot>,
    step: BlindStep,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BlindStep {
    Look,
    Entries,
    Words,
    Swap { slot: Slot, from: u64, stamp: u64 },
    Leave,
    Done,
}

impl Blind {
    pub(crate) fn new(shape: Shape, record: u16) -> Self {
        Self { shape, record, header: 0, left: Vec::new(), step: BlindStep::Look }
    }
}

impl Machine for Blind {
    type Outcome = Result<bool, SettleError>;

    fn next(&self) -> Next<Self::Outcome> {
        let place = Place::Header(self.record);
        Next::Batch(match self.step {
            BlindStep::Done => return Next::Done(Ok(true)),
            BlindStep::Look => vec![Op::Load(place)],
            BlindStep::Entries => {
                (0..self.shape.entries).map(|at| Op::Load(Place::Entry(self.record, at))).collect()
            }
            BlindStep::Words => {
                vec![Op::Draw, Op::Load(Place::Word(self.left[0]))]
            }
            BlindStep::Swap { slot, from, stamp } => {
                let pending = (from & 0xffff).saturating_sub(1);
                let new = stamp << 16 | pending;
                vec![Op::Swap { place: Place::Word(slot), expected: from, new }]
            }
            BlindStep::Leave => {
                let free = RecordHeader::unpack(self.header).at(RecordPhase::Free).pack();
                vec![Op::Swap { place, expected: self.header, new: free }]
            }
        })
    }

    fn reply(&mut self, found: &[u64]) {
        self.step = match self.step {
            BlindStep::Look => {
                self.header = found[0];
                BlindStep::Entries
            }
            BlindStep::Entries => {
                let header = RecordHeader::unpack(self.header);
                self.left = found.iter().filter_map(|&entry| header.listed(entry)).collect();
                if self.left.is_empty() { BlindStep::Leave } else { BlindStep::Words }
            }
            BlindStep::Words => {
                BlindStep::Swap { slot: self.left[0], from: found[1], stamp: found[0] + 1 }
            }
            BlindStep::Swap { from, .. } => {
                if found[0] == from {
                    self.left.remove(0);
                }
                if self.left.is_empty() { BlindStep::Leave } else { BlindStep::Words }
            }
            BlindStep::Leave | BlindStep::Done => BlindStep::Done,
        };
    }
}
