//! The version table in mapped memory.

use super::access;
use super::begin::{Begin, BeginError};
use super::check::Fill;
use super::layout::{CLOSED, COARSE, FINE, RECORD_SLOTS, RECORDS, RETIRED, TableLayout};
use super::lower::{EndError, Lower};
use super::settle::{Settle, SettleError};
use super::steps::{Held, Memory, Op, Place, drive};
use super::word::{Filled, RecordHeader, RecordPhase, Slot, SlotBits, VersionWord, WriterId};
use crate::header::{INCARNATION, LayoutError};
use remote_memory::{Incarnation, Mapped};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Records that one update may take, so that a single one cannot use up all.
const UPDATE_RECORDS_MAX: usize = 32;

/// Slots that one update may have, each with a summary word at the most. Whoever changes more
/// begins and ends several, or gives them a tag in common.
pub const UPDATE_SLOTS_MAX: usize = UPDATE_RECORDS_MAX * RECORD_SLOTS as usize / 2;

/// Rounds of counting before a settler gives up: each is lost to a change of the same word within
/// some ten microseconds. The caller may come again.
const SETTLE_ROUNDS_MAX: u16 = 100;

/// The owner's word that a transaction is decided: committed or rolled back, and nothing that the
/// writer still does can commit it. A time that has passed or a socket that closed is no such word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided;

/// An update that has begun. Dropped without [`VersionTable::end`] or [`VersionTable::abort`] it
/// stays pending, which is safe, until its writer is settled.
#[must_use = "an update stays pending until it is ended"]
#[derive(Debug, PartialEq, Eq)]
pub struct Update {
    incarnation: Incarnation,
    held: Vec<Held>,
}

/// What finds an update again: one of its records, and the life of that record that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The table's.
    pub incarnation: Incarnation,
    /// Whose update it is.
    pub writer: WriterId,
    /// The record.
    pub record: u16,
    /// How often that record had been taken.
    pub generation: u32,
}

/// A record that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingUpdate {
    /// Whose update it is.
    pub writer: WriterId,
    /// How far it is.
    pub phase: RecordPhase,
    /// What it lists, but for summary words.
    pub slots: Vec<Slot>,
}

/// A view of one site's version table. Cheap to clone.
#[derive(Clone)]
pub struct VersionTable {
    region: Arc<dyn Mapped>,
    layout: TableLayout,
    incarnation: Incarnation,
}

impl fmt::Debug for VersionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VersionTable").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl VersionTable {
    /// Lays out a fresh region. Only its owner calls this, once. Updates can begin at once, so the
    /// site's earlier table must be retired by then; hits are not served before
    /// [`VersionTable::admit_hits`] or [`VersionTable::admit_hits_after`].
    pub fn publish(region: Arc<dyn Mapped>, bits: SlotBits) -> Result<Self, LayoutError> {
        TableLayout::new(bits).publish(&*region)?;
        Self::open(region)
    }

    /// Opens a region that its owner has published. Noise, another version or another incarnation
    /// is refused by name.
    pub fn open(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        let layout = TableLayout::check(&*region, true)?;
        Ok(Self::over(region, layout))
    }

    /// Opens the region of a dead process that left its file to us, to retire it and to settle
    /// what is pending there. Its announced incarnation was lost and is not checked.
    pub fn open_adopted(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        let layout = TableLayout::check(&*region, false)?;
        Ok(Self::over(region, layout))
    }

    fn over(region: Arc<dyn Mapped>, layout: TableLayout) -> Self {
        let incarnation = Incarnation(region.words()[INCARNATION].load(Ordering::Relaxed));
        Self { region, layout, incarnation }
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> TableLayout {
        self.layout
    }

    /// The table's incarnation.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The words of tags, each once: what an update and an entry keep in place of the tags.
    #[must_use]
    pub fn slots_of<T: AsRef<[u8]>>(&self, tags: &[T]) -> Vec<Slot> {
        self.layout.bits().slots_of(tags)
    }

    /// The word of one tag; allocates nothing.
    #[must_use]
    pub fn slot(&self, tag: &[u8]) -> Slot {
        self.layout.bits().slot(tag)
    }

    fn word(&self, place: Place) -> Option<&AtomicU64> {
        self.region.words().get(self.layout.index(place)?)
    }

    fn load(&self, place: Place) -> u64 {
        self.perform(Op::Load(place))
    }

    /// Lets hits be served. The owner only, once it knows that no update that began in an earlier
    /// table of the site is undecided: it has retired that table and settled its writers, or all
    /// who had it have ended. Whether the table is open now.
    pub fn admit_hits(&self, _: Decided) -> bool {
        let open = self.incarnation.0;
        let swap = Op::Swap { place: Place::Live, expected: CLOSED, new: open };
        matches!(self.perform(swap), found if found == CLOSED || found == open)
    }

    /// [`VersionTable::admit_hits`] in the place of an earlier table: gives that one up, and admits
    /// hits here once nothing is undecided there. May be called again at any time; the owner does
    /// so whenever an update of the earlier table was ended or settled.
    ///
    /// # Errors
    /// Whose updates are undecided in the earlier table, each writer once.
    pub fn admit_hits_after(&self, earlier: &Self) -> Result<(), Vec<WriterId>> {
        // In this order: an update that begins there sees that it is too late, or is seen here.
        earlier.retire();
        let undecided = earlier.undecided();
        if undecided.is_empty() {
            self.admit_hits(Decided);
            return Ok(());
        }
        Err(undecided)
    }

    /// Gives the table up: nothing is valid in it any more and no update begins. Those that have
    /// begun stay, and must be ended or settled before the next table admits hits.
    pub fn retire(&self) {
        if let Some(word) = self.word(Place::Live) {
            word.swap(RETIRED, Ordering::SeqCst);
        }
    }

    /// Whose updates have begun and are not ended, each once.
    #[must_use]
    pub fn undecided(&self) -> Vec<WriterId> {
        let mut writers: Vec<_> = self.held_records().map(|(_, header)| header.writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }

    /// The updates that have begun and are not ended, one for each record: what `polder cache
    /// stats` shows to whoever has to settle. Those that change meanwhile may be told half.
    #[must_use]
    pub fn pending_updates(&self) -> Vec<PendingUpdate> {
        let shape = self.layout.shape();
        let pending = |(record, header): (u16, RecordHeader)| {
            let entries: Vec<_> = shape.load_entries(record).map(|op| self.perform(op)).collect();
            let mut slots = shape.listed(header, &entries);
            slots.retain(|&slot| self.layout.is_of_tags(slot));
            PendingUpdate { writer: header.writer, phase: header.phase, slots }
        };
        self.held_records().map(pending).collect()
    }

    fn held_records(&self) -> impl Iterator<Item = (u16, RecordHeader)> {
        let header = |record| (record, RecordHeader::unpack(self.load(Place::Header(record))));
        (0..RECORDS).map(header).filter(|(_, header)| header.phase != RecordPhase::Free)
    }

    /// Marks slots, and their summary words, as pending. Only when this has returned may the writer
    /// commit. On an error nothing may be committed; what was raised has been taken back, or is
    /// left to be settled.
    ///
    /// # Errors
    /// See [`BeginError`]; more than [`UPDATE_SLOTS_MAX`] slots are refused.
    pub fn begin(&self, writer: WriterId, slots: &[Slot]) -> Result<Update, BeginError> {
        let mut slots = slots.to_vec();
        slots.sort_unstable();
        slots.dedup();
        if slots.len() > UPDATE_SLOTS_MAX {
            let max = UPDATE_SLOTS_MAX;
            return Err(BeginError::TooManySlots { slots: slots.len(), max });
        }
        let raised = self.layout.raised(&slots);
        let mut update = Update { incarnation: self.incarnation, held: Vec::new() };
        // Writers start at different places, so that they do not meet at one record.
        let start = (writer.0.wrapping_mul(0x9e37_79b1) >> 16) as u16;
        for part in raised.chunks(usize::from(RECORD_SLOTS)) {
            let begin = Begin::new(self.layout.shape(), writer, part.to_vec(), start);
            match drive(self, begin) {
                Ok(held) => update.held.push(held),
                Err(error) => {
                    // What this leaves is pending, and settled with the writer.
                    let _ = self.abort(update);
                    return Err(error);
                }
            }
        }
        Ok(update)
    }

    /// Ends an update after its commit: every entry that was filled before is void.
    ///
    /// # Errors
    /// See [`EndError`]; what is left pending is safe and settled with the writer.
    pub fn end(&self, update: Update) -> Result<(), EndError> {
        if update.incarnation != self.incarnation {
            return Err(EndError::OtherTable);
        }
        let ends = update.held.into_iter().map(|held| drive(self, Lower::new(held)));
        // All of them, whatever comes of the first.
        ends.fold(Ok(()), Result::and)
    }

    /// Ends an update that was rolled back. The same as [`VersionTable::end`]: were the stamp left
    /// as it was, the word would have a value for the second time.
    ///
    /// # Errors
    /// As for [`VersionTable::end`].
    pub fn abort(&self, update: Update) -> Result<(), EndError> {
        self.end(update)
    }

    /// What finds an update again where the [`Update`] itself was lost with a process.
    /// None for one without slots, which holds nothing.
    #[must_use]
    pub fn ticket(&self, update: &Update) -> Option<Ticket> {
        // The last record is lowered last: while it is held, there is something to end.
        let held = update.held.last()?;
        let (record, generation) = (held.record, held.generation);
        Some(Ticket { incarnation: update.incarnation, writer: held.writer, record, generation })
    }

    /// Ends the update of a ticket in its writer's place, by the name of that writer, which must
    /// be this update's alone; false where nothing of it is pending.
    ///
    /// # Errors
    /// As for [`VersionTable::settle`].
    pub fn end_ticket(&self, ticket: Ticket, decided: Decided) -> Result<bool, SettleError> {
        let word = self.word(Place::Header(ticket.record));
        let header = word.map(|word| RecordHeader::unpack(word.load(Ordering::SeqCst)));
        let is_its = header.is_some_and(|header| {
            header.phase != RecordPhase::Free
                && (header.writer, header.generation) == (ticket.writer, ticket.generation)
        });
        if ticket.incarnation != self.incarnation || !is_its {
            return Ok(false);
        }
        self.settle(ticket.writer, decided).map(|settled| settled > 0)
    }

    /// Repairs what a writer left that is dead or will not go on; returns how many records there
    /// were. May be called again at any time, by anybody.
    ///
    /// # Errors
    /// See [`SettleError`]: some words stay pending until this is called again.
    pub fn settle(&self, writer: WriterId, _: Decided) -> Result<usize, SettleError> {
        let settle = |&record: &u16| {
            let shape = self.layout.shape();
            let outcome = drive(self, Settle::new(shape, record, writer, SETTLE_ROUNDS_MAX));
            (record, outcome)
        };
        let all: Vec<_> = (0..RECORDS).map(|record| settle(&record)).collect();
        let settled = all.iter().filter(|(_, outcome)| *outcome != Ok(false)).count();
        // Two records of this writer can stand in each other's way the first time; by now both
        // count for nothing.
        let stuck = all.iter().filter(|(_, outcome)| outcome.is_err());
        let again = stuck.map(|(record, _)| settle(record).1);
        again.fold(Ok(true), Result::and).map(|_| settled)
    }

    /// What an entry is to hold that is filled now. Called **before** the origin is asked; none:
    /// the response must not be stored.
    #[must_use]
    pub fn fill(&self) -> Option<Filled> {
        let filled = Fill::judge(self.load(Place::Live), self.load(Place::Sequence));
        // What follows, the request to the origin above all, is not begun before.
        fence(Ordering::SeqCst);
        filled
    }

    /// Whether an entry is as new as the origin was when this was called, which is after the
    /// request arrived. An entry with a slot of another table is not.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, filled: Filled, slots: &[Slot]) -> bool {
        let (all, live) = (self.region.words(), self.layout.index(Place::Live));
        let live = live.and_then(|at| all.get(at));
        let (Some(live), Some(words)) = (live, all.get(self.layout.word_range())) else {
            return false;
        };
        let Some((own, summaries)) = words.split_at_checked(self.layout.bits().slots()) else {
            return false;
        };
        let fine = self.layout.summaries(FINE);
        let Some((fine, coarse)) = summaries.split_at_checked(fine) else { return false };
        // Words in few lines prove most entries; more of them are read only where something of
        // their groups changed, and their own words last.
        let by = |words: &[_], level| access::is_valid(live, words, level, filled, slots);
        filled.incarnation == self.incarnation
            && (!coarse.is_empty() && by(coarse, COARSE)
                || !fine.is_empty() && by(fine, FINE)
                || by(own, 0))
    }

    /// A word as it is, for those who explain why an entry is not valid.
    #[must_use]
    pub fn version(&self, slot: Slot) -> Option<VersionWord> {
        self.word(Place::Word(slot)).map(|word| VersionWord::unpack(word.load(Ordering::SeqCst)))
    }
}

impl Memory for VersionTable {
    fn perform(&self, op: Op) -> u64 {
        let place = match op {
            Op::Load(place) | Op::Swap { place, .. } => place,
            Op::Draw => Place::Sequence,
        };
        match (self.word(place), op) {
            (Some(word), op) => access::perform(word, op),
            // The machines stay within the shape. Else: a swap that missed, a word that never is.
            (None, Op::Swap { expected, .. }) => !expected,
            (None, _) => u64::MAX,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "table_tests.rs"]
mod tests;
