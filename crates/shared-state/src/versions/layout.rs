//! Where the words of a version table lie in its region; `docs/layout.md` draws them.

use super::steps::{Place, Shape};
use super::word::{Slot, SlotBits};
use crate::LINE_WORDS;
use crate::header::{self, LayoutError};
use remote_memory::{Mapped, RegionDescriptor};
use std::sync::atomic::Ordering;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"POLDERVT");
const KIND: &str = "version table";

/// The word that says whether hits may be served: not yet.
pub(super) const CLOSED: u64 = 0;
/// Never again.
pub(super) const RETIRED: u64 = u64::MAX;

/// Updates that one table can have under way, dead writers' included. A hundred processes with ten
/// each; counting them all anew takes some ten microseconds.
pub const RECORDS: u16 = 1_024;

/// Slots that one record lists: with its header, a record is eight lines. An update with more takes
/// several records.
pub const RECORD_SLOTS: u16 = 63;

/// Words that one summary word stands for, as a power of two, of each of the two levels: of the
/// default table the fine ones are 128 KiB, which stays in a processor's second cache and in 32
/// pages, and the coarse ones 2 KiB, which stays in the first and in one page.
pub(super) const FINE: u8 = 10;
pub(super) const COARSE: u8 = 16;

/// The fewest words of a level: a smaller table does without it. Words that take a MiB are read as
/// fast themselves; and who settles waits until a word comes to rest, which the only summary word
/// of all updates would never do.
const SUMMARIES_MIN: usize = 128;

const SLOTS: usize = 4;
/// What is read of a header: all up to the number of words.
pub(super) const HEADER_WORDS: usize = SLOTS + 1;
const LIVE: usize = LINE_WORDS;
const SEQUENCE: usize = 2 * LINE_WORDS;
/// The rest of the first page is spare.
const RECORDS_AT: usize = 512;
const RECORD_WORDS: usize = 1 + RECORD_SLOTS as usize;
const PAGE_BYTES: u64 = 4_096;
const WORDS_AT: usize = RECORDS_AT + RECORDS as usize * RECORD_WORDS;

/// Where everything lies in a table of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLayout {
    bits: SlotBits,
}

impl TableLayout {
    /// For a table of this size.
    #[must_use]
    pub const fn new(bits: SlotBits) -> Self {
        Self { bits }
    }

    /// The size of its words.
    #[must_use]
    pub const fn bits(self) -> SlotBits {
        self.bits
    }

    /// The size of the region in bytes: whole pages.
    #[must_use]
    pub const fn region_bytes(self) -> u64 {
        (self.words() as u64 * 8).div_ceil(PAGE_BYTES) * PAGE_BYTES
    }

    const fn words(self) -> usize {
        WORDS_AT + self.all_slots()
    }

    /// The tags' words, and behind them the fine and the coarse summary words.
    const fn all_slots(self) -> usize {
        self.bits.slots() + self.summaries(FINE) + self.summaries(COARSE)
    }

    /// How many summary words of a level there are: that of slot `s` is number `s >> level`.
    #[inline]
    pub(super) const fn summaries(self, level: u8) -> usize {
        let words = self.bits.slots() >> level;
        if words < SUMMARIES_MIN { 0 } else { words }
    }

    /// Whether it is a tag's word, and no summary word.
    pub(super) const fn is_of_tags(self, slot: Slot) -> bool {
        (slot.0 as usize) < self.bits.slots()
    }

    /// What an update of these slots raises: they and their summary words, each once, in rising
    /// order. Whoever runs [`Begin`](super::Begin) on a table, over a connection say, gives it
    /// this.
    #[must_use]
    pub fn raised(self, slots: &[Slot]) -> Vec<Slot> {
        let mut raised = slots.to_vec();
        let mut first = self.bits.slots();
        for level in [FINE, COARSE] {
            let words = self.summaries(level);
            // A slot that is no tag's has none that the table has, and so is refused.
            let summary = |&slot: &Slot| match self.is_of_tags(slot) {
                true => Slot(first as u32 + (slot.0 >> level)),
                false => Slot(u32::MAX),
            };
            raised.extend(slots.iter().filter(|_| words > 0).map(summary));
            first += words;
        }
        raised.sort_unstable();
        raised.dedup();
        raised
    }

    /// How much the table has of each.
    #[must_use]
    pub const fn shape(self) -> Shape {
        Shape { slots: self.all_slots() as u32, records: RECORDS, entries: RECORD_SLOTS }
    }

    /// The index of a word in the region; none for a place that the table does not have.
    #[must_use]
    pub fn index(self, place: Place) -> Option<usize> {
        match place {
            Place::Live => Some(LIVE),
            Place::Sequence => Some(SEQUENCE),
            Place::Header(record) => {
                (record < RECORDS).then(|| RECORDS_AT + usize::from(record) * RECORD_WORDS)
            }
            Place::Entry(record, at) => (record < RECORDS && at < RECORD_SLOTS)
                .then(|| RECORDS_AT + usize::from(record) * RECORD_WORDS + 1 + usize::from(at)),
            Place::Word(slot) => {
                let place = slot.0 as usize;
                (place < self.all_slots()).then_some(WORDS_AT + place)
            }
        }
    }

    /// The tags' words and the summary words.
    pub(super) const fn word_range(self) -> std::ops::Range<usize> {
        WORDS_AT..WORDS_AT + self.all_slots()
    }

    /// Writes the header of a fresh region.
    pub(super) fn publish(self, region: &dyn Mapped) -> Result<(), LayoutError> {
        let (found, needed) = (region.words().len() as u64 * 8, self.region_bytes());
        let label = || region.descriptor().label.clone();
        if found < needed {
            return Err(LayoutError::TooShort { label: label(), found, needed });
        }
        let incarnation = region.descriptor().incarnation.0;
        if incarnation == CLOSED || incarnation == RETIRED {
            let (field, max) = ("incarnation", RETIRED - 1);
            return Err(LayoutError::OutOfRange { label: label(), field, found: incarnation, max });
        }
        region.words()[SLOTS].store(self.bits.slots() as u64, Ordering::Relaxed);
        header::publish(region, MAGIC);
        Ok(())
    }

    /// Reads and checks the header of a region, and with `incarnation` that it is the announced
    /// one.
    pub(super) fn check(region: &dyn Mapped, incarnation: bool) -> Result<Self, LayoutError> {
        let check = if incarnation { header::check } else { header::check_kind };
        check(region, MAGIC, KIND, WORDS_AT)?;
        let slots = region.words()[SLOTS].load(Ordering::Relaxed);
        Self::sized(&region.descriptor().label, slots, region.words().len() as u64 * 8)
    }

    /// For a region of this length whose header names so many words.
    fn sized(label: &str, slots: u64, found: u64) -> Result<Self, LayoutError> {
        let label = || label.to_owned();
        let Some(bits) = SlotBits::of(slots) else {
            let (field, max) = ("slots", 1 << SlotBits::MAX);
            return Err(LayoutError::OutOfRange { label: label(), field, found: slots, max });
        };
        let layout = Self::new(bits);
        let needed = layout.region_bytes();
        if found < needed {
            return Err(LayoutError::TooShort { label: label(), found, needed });
        }
        Ok(layout)
    }

    /// Checks the words of a header that were read elsewhere against what its owner announced.
    pub(super) fn of_header(
        descriptor: &RegionDescriptor,
        header: &[u64; HEADER_WORDS],
    ) -> Result<Self, LayoutError> {
        let label = &descriptor.label;
        header::check_words(label, MAGIC, KIND, header[header::MAGIC], header[header::VERSION])?;
        let (found, announced) = (header[header::INCARNATION], descriptor.incarnation.0);
        if found != announced {
            let label = label.clone();
            return Err(LayoutError::WrongIncarnation { label, found, announced });
        }
        Self::sized(label, header[SLOTS], descriptor.length_bytes)
    }
}
