//! The words of the version table, packed as `docs/layout.md` draws them, and the hash that finds
//! a tag's word. Packing is pure; any word that memory may hold unpacks without a panic.

use remote_memory::Incarnation;
use std::fmt;

const PENDING_BITS: u32 = 16;
const GENERATION_BITS: u32 = 28;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const GENERATION_SHIFT: u32 = 36;
const PHASE_SHIFT: u32 = 32;

/// Updates that can be pending on one word: what its 16 bits hold. One more is refused.
pub const PENDING_MAX: u16 = u16::MAX;

/// A value of a site's sequence, 48 bits. At a million updates in a second the last one is drawn
/// after nine years; then updates are refused until the table is made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The largest.
    pub const MAX: Self = Self((1 << 48) - 1);

    /// None above [`Stamp::MAX`].
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        if value <= Self::MAX.0 { Some(Self(value)) } else { None }
    }

    /// The value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A tag's word: `stamp 48 | pending 16`.
///
/// No value of a word ever comes back: `pending` only rises under one stamp, and whatever lowers
/// it raises the stamp. A compare-and-swap that comes late therefore misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VersionWord {
    /// Drawn when the last update ended.
    pub stamp: Stamp,
    /// Updates that have begun and not ended.
    pub pending: u16,
}

impl VersionWord {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        self.stamp.0 << PENDING_BITS | self.pending as u64
    }

    /// From a word.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self { stamp: Stamp(word >> PENDING_BITS), pending: word as u16 }
    }

    /// With one update more; none if the count is full.
    #[must_use]
    pub const fn begun(self) -> Option<Self> {
        match self.pending.checked_add(1) {
            Some(pending) => Some(Self { pending, ..self }),
            None => None,
        }
    }

    /// With so many updates and a newer stamp; none if the stamp is not newer.
    #[must_use]
    pub fn restamped(self, stamp: Stamp, pending: u16) -> Option<Self> {
        (stamp > self.stamp).then_some(Self { stamp, pending })
    }

    /// With one update less and a newer stamp; none if the stamp is not newer. A count of zero,
    /// which only noise can bring here, stays zero.
    #[must_use]
    pub fn ended(self, stamp: Stamp) -> Option<Self> {
        self.restamped(stamp, self.pending.saturating_sub(1))
    }

    /// Whether nothing was, or may have been, committed since the sequence stood at `sequence`.
    #[inline]
    #[must_use]
    pub const fn is_unchanged_since(self, sequence: Stamp) -> bool {
        self.pending == 0 && self.stamp.0 <= sequence.0
    }

    /// The same of a word as it lies in memory, without a branch: zero where it is unchanged.
    #[inline]
    pub(super) const fn change_since(word: u64, sequence: Stamp) -> u64 {
        // With nothing pending, words stand in the order of their stamps.
        word & PENDING_MAX as u64 | (word > sequence.0 << PENDING_BITS) as u64
    }
}

/// The place of a word in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// How many words a table has: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotBits(u8);

impl SlotBits {
    /// The smallest table: 256 words.
    pub const MIN: u8 = 8;
    /// The largest: with 2^27 words the region would be longer than a region may be.
    pub const MAX: u8 = 26;
    /// 2^24 words, 128 MiB.
    pub const DEFAULT: Self = Self(24);

    /// None outside [`SlotBits::MIN`] to [`SlotBits::MAX`].
    #[must_use]
    pub const fn new(bits: u8) -> Option<Self> {
        if bits >= Self::MIN && bits <= Self::MAX { Some(Self(bits)) } else { None }
    }

    /// For this number of words; none if no table has as many.
    #[must_use]
    pub fn of(slots: u64) -> Option<Self> {
        let bits = slots.is_power_of_two().then(|| slots.trailing_zeros())?;
        Self::new(u8::try_from(bits).ok()?)
    }

    /// The words.
    #[must_use]
    pub const fn slots(self) -> usize {
        1 << self.0
    }

    /// The word of a tag, which is any bytes: FNV-1a of 64 bits, both halves folded together by
    /// exclusive or, the low bits of that.
    #[must_use]
    pub fn slot(self, tag: &[u8]) -> Slot {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        let hash = tag.iter().fold(OFFSET, step);
        let folded = (hash >> 32 ^ hash) as u32;
        Slot(folded & ((1 << self.0) - 1))
    }

    /// The words of several tags, each once, in rising order.
    #[must_use]
    pub fn slots_of<T: AsRef<[u8]>>(self, tags: &[T]) -> Vec<Slot> {
        let mut slots: Vec<_> = tags.iter().map(|tag| self.slot(tag.as_ref())).collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }
}

/// What a writer calls itself, for instance the process id of a database's back end. Whoever
/// settles names it, so no two writers that live or are to be settled may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(pub u32);

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What an entry of a cache keeps beside its slots: read before the origin was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Filled {
    /// The table's.
    pub incarnation: Incarnation,
    /// The site's sequence.
    pub sequence: Stamp,
}

/// How far an update is; see the module's drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordPhase {
    /// The record is nobody's.
    Free = 0,
    /// Its slots are being listed and raised: each may be raised or not.
    Raising = 1,
    /// All its slots are raised.
    Begun = 2,
    /// They are being lowered: each may be lowered or not.
    Lowering = 3,
    /// It counts for nothing any more; its slots are being counted anew.
    Settling = 4,
}

/// The first word of a record: `generation 28 | phase 4 | writer 32`. The generation is raised
/// whenever the record is taken and is never zero then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordHeader {
    /// Which update this is of those that have held the record.
    pub generation: u32,
    /// How far it is.
    pub phase: RecordPhase,
    /// Whose it is.
    pub writer: WriterId,
}

impl RecordHeader {
    /// The word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.generation as u64 & GENERATION_MASK) << GENERATION_SHIFT
            | (self.phase as u64) << PHASE_SHIFT
            | self.writer.0 as u64
    }

    /// From a word. A phase that does not exist can only be settled, and so reads as that.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        let phase = match (word >> PHASE_SHIFT) & 0xf {
            0 => RecordPhase::Free,
            1 => RecordPhase::Raising,
            2 => RecordPhase::Begun,
            3 => RecordPhase::Lowering,
            _ => RecordPhase::Settling,
        };
        let generation = (word >> GENERATION_SHIFT) as u32;
        Self { generation, phase, writer: WriterId(word as u32) }
    }

    /// The same in another phase.
    #[must_use]
    pub const fn at(self, phase: RecordPhase) -> Self {
        Self { phase, ..self }
    }

    /// The next update that holds the record.
    #[must_use]
    pub const fn taken(self, writer: WriterId) -> Self {
        let next = (self.generation as u64 + 1) & GENERATION_MASK;
        let generation = if next == 0 { 1 } else { next as u32 };
        Self { generation, phase: RecordPhase::Raising, writer }
    }

    /// What lists a slot under this header: `generation 28 | zero 4 | slot 32`.
    #[must_use]
    pub const fn entry(self, slot: Slot) -> u64 {
        (self.generation as u64 & GENERATION_MASK) << GENERATION_SHIFT | slot.0 as u64
    }

    /// The slot that an entry lists, if it was written under this header.
    #[must_use]
    pub const fn listed(self, entry: u64) -> Option<Slot> {
        let slot = Slot(entry as u32);
        if entry == self.entry(slot) { Some(slot) } else { None }
    }
}
