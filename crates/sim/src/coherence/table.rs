//! A version table as plain words, and its machines, one operation on one word at a time.

use shared_state::versions::{
    Machine, Next, Op, Place, RecordHeader, RecordPhase, Shape, Slot, SlotBits, VersionWord,
};

/// The smallest table, so that now and then two tags lie on one word, with summary words, which
/// only large ones have in earnest. Records are so few that those of the dead can use them up for
/// a while.
pub(super) const SHAPE: Shape = Shape { slots: WORDS + WORDS / GROUP, records: 12, entries: 8 };
const BITS: u8 = 8;
const WORDS: u32 = 1 << BITS;
/// Words that a summary word stands for.
const GROUP: u32 = 32;

/// What the word `Live` says of a table without hits; see its layout.
const CLOSED: u64 = 0;
const RETIRED: u64 = u64::MAX;

/// The word of a tag.
pub(super) fn slot_of(tag: &[u8]) -> Slot {
    SlotBits::new(BITS).map_or(Slot(0), |bits| bits.slot(tag))
}

/// The summary words of tags' words, each once.
pub(super) fn summaries(slots: &[Slot]) -> Vec<Slot> {
    let mut summaries: Vec<_> = slots.iter().map(|slot| Slot(WORDS + slot.0 / GROUP)).collect();
    summaries.sort_unstable();
    summaries.dedup();
    summaries
}

/// The memory of one table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    live: u64,
    incarnation: u64,
    sequence: u64,
    headers: Vec<u64>,
    entries: Vec<u64>,
    words: Vec<u64>,
}

impl Table {
    /// A fresh one that serves no hits.
    pub(super) fn new(incarnation: u64) -> Self {
        let (records, entries) = (usize::from(SHAPE.records), usize::from(SHAPE.entries));
        Self {
            live: CLOSED,
            incarnation,
            sequence: 0,
            headers: vec![0; records],
            entries: vec![0; records * entries],
            words: vec![0; SHAPE.slots as usize],
        }
    }

    /// Lets hits be served, unless it was given up.
    pub(super) fn admit_hits(&mut self) {
        if self.live == CLOSED {
            self.live = self.incarnation;
        }
    }

    pub(super) fn retire(&mut self) {
        self.live = RETIRED;
    }

    pub(super) fn is_open(&self) -> bool {
        self.live == self.incarnation
    }

    /// Whether nobody holds a record: what an owner reads, one after the other.
    pub(super) fn is_free(&self, record: u16) -> bool {
        let header = RecordHeader::unpack(self.headers[usize::from(record)]);
        header.phase == RecordPhase::Free
    }

    /// Whether nothing is held or pending.
    pub(super) fn is_at_rest(&self) -> bool {
        let idle = |&word: &u64| VersionWord::unpack(word).pending == 0;
        (0..SHAPE.records).all(|record| self.is_free(record)) && self.words.iter().all(idle)
    }

    /// What is held, for whoever asks why it is not at rest.
    pub(super) fn held(&self) -> Vec<RecordHeader> {
        let headers = self.headers.iter().map(|&header| RecordHeader::unpack(header));
        headers.filter(|header| header.phase != RecordPhase::Free).collect()
    }

    fn word(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Live => &mut self.live,
            Place::Sequence => &mut self.sequence,
            Place::Header(record) => &mut self.headers[usize::from(record)],
            Place::Entry(record, at) => {
                let first = usize::from(record) * usize::from(SHAPE.entries);
                &mut self.entries[first + usize::from(at)]
            }
            Place::Word(slot) => &mut self.words[slot.0 as usize],
        }
    }

    fn perform(&mut self, op: Op) -> u64 {
        match op {
            Op::Load(place) => *self.word(place),
            Op::Draw => {
                self.sequence += 1;
                self.sequence - 1
            }
            Op::Swap { place, expected, new } => {
                let word = self.word(place);
                let found = *word;
                if found == expected {
                    *word = new;
                }
                found
            }
        }
    }
}

/// A machine in the middle of its work.
#[derive(Clone, Debug)]
pub(super) struct Running<M> {
    machine: M,
    ops: Vec<Op>,
    found: Vec<u64>,
}

impl<M: Machine> Running<M> {
    pub(super) fn new(machine: M) -> Self {
        Self { machine, ops: Vec::new(), found: Vec::new() }
    }

    /// Performs one operation; what came of it all, if that was the last.
    pub(super) fn step(&mut self, table: &mut Table) -> Option<M::Outcome> {
        let mut has_performed = false;
        loop {
            if self.found.len() < self.ops.len() {
                if has_performed {
                    return None;
                }
                self.found.push(table.perform(self.ops[self.found.len()]));
                has_performed = true;
            }
            if self.found.len() == self.ops.len() {
                if !self.ops.is_empty() {
                    self.machine.reply(&self.found);
                }
                self.found.clear();
                match self.machine.next() {
                    Next::Done(outcome) => return Some(outcome),
                    Next::Batch(ops) if ops.is_empty() => {
                        self.ops.clear();
                        self.machine.reply(&[]);
                    }
                    Next::Batch(ops) => self.ops = ops,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_state::versions::{Begin, Check, Fill, Lower, WriterId};

    fn run<M: Machine>(table: &mut Table, machine: M) -> (M::Outcome, usize) {
        let (mut running, mut steps) = (Running::new(machine), 0);
        loop {
            steps += 1;
            if let Some(outcome) = running.step(table) {
                return (outcome, steps);
            }
        }
    }

    #[test]
    fn machines_run_one_operation_at_a_time() {
        let mut table = Table::new(7);
        assert_eq!(run(&mut table, Fill::default()), (None, 2), "closed");
        table.admit_hits();
        let filled = run(&mut table, Fill::default()).0.unwrap();
        let slot = slot_of(b"row:1");
        let check = || Check::new(filled, vec![slot]);
        assert_eq!(run(&mut table, check()), (true, 2));
        let (held, steps) = run(&mut table, Begin::new(SHAPE, WriterId(1), vec![slot], 0));
        assert!(steps > 8 && !table.is_at_rest());
        assert!(!run(&mut table, check()).0);
        run(&mut table, Lower::new(held.unwrap())).0.unwrap();
        assert!(table.is_at_rest() && !run(&mut table, check()).0);
        table.retire();
        assert_eq!(run(&mut table, Fill::default()).0, None);
    }
}
