//! Noise in a version table: whoever may write it may write anything, at any time.

use super::{
    Decided, Place, RecordHeader, RecordPhase, Slot, SlotBits, Stamp, TableLayout, VersionTable,
    VersionWord, WriterId,
};
use fuzzing::{Random, Target};
use remote_memory::Mapped;
use remote_memory::shm::OwnedRegion;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of an input that say: this word, and what is stored there.
const STORE_BYTES: usize = 2 + 8;

fn tokens() -> Vec<[u8; 8]> {
    let header = |phase| RecordHeader { generation: 1, phase, writer: WriterId(7) };
    let stamp = Stamp::new(3).unwrap();
    [
        0,
        1,
        u64::MAX,
        1 << 48,
        (1 << 48) - 1,
        1 << 8,
        1 << 9,
        1 << 26,
        u64::from_le_bytes(*b"POLDERVT"),
        u64::from_le_bytes(*b"POLDERND"),
        VersionWord { stamp, pending: u16::MAX }.pack(),
        VersionWord { stamp: Stamp::MAX, pending: 1 }.pack(),
        header(RecordPhase::Begun).entry(Slot(1)),
        header(RecordPhase::Begun).entry(Slot(u32::MAX)),
        header(RecordPhase::Raising).pack(),
        header(RecordPhase::Begun).pack(),
        header(RecordPhase::Lowering).pack(),
        header(RecordPhase::Settling).pack(),
    ]
    .map(u64::to_le_bytes)
    .to_vec()
}

/// Where a store goes: the table's header, the first records, a few words of tags, or anywhere.
fn place(choice: usize, words: usize, tags: usize) -> usize {
    match choice % 4 {
        0 => choice / 4 % 24,
        1 => 512 + choice / 4 % 160,
        2 => tags + choice / 4 % 4,
        _ => choice / 4 % words,
    }
}

fn store_all(region: &OwnedRegion, tags: usize, bytes: &[u8]) {
    let words = region.words();
    for store in bytes.chunks_exact(STORE_BYTES) {
        let (choice, word) = store.split_at(2);
        let choice = usize::from(u16::from_le_bytes([choice[0], choice[1]]));
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes are left"));
        words[place(choice, words.len(), tags)].store(word, Ordering::SeqCst);
    }
}

fn check_word(word: u64) {
    let version = VersionWord::unpack(word);
    assert_eq!(version.pack(), word);
    assert!(version.begun().is_none_or(|begun| begun.stamp == version.stamp));
    let header = RecordHeader::unpack(word);
    assert_eq!(RecordHeader::unpack(header.pack()), header);
    assert_ne!(header.taken(WriterId(1)).generation, 0);
    assert!(header.listed(word).is_none_or(|slot| header.entry(slot) == word));
}

/// What a table of noise answers. Whatever it holds, a count is never lowered below nothing and a
/// pending word is never valid.
fn check_table(table: &VersionTable, random: &mut Random) -> (bool, bool, usize) {
    let slots: Vec<_> = (0..4).map(|slot| Slot(slot * random.below(2) as u32 * 90)).collect();
    let filled = table.fill();
    let pending = |slot: &Slot| table.version(*slot).is_some_and(|word| word.pending > 0);
    let valid = filled.is_some_and(|filled| table.is_valid(filled, &slots));
    assert!(!valid || !slots.iter().any(pending));
    let update = table.begin(WriterId(9), &slots);
    let begun = update.is_ok();
    if let Ok(update) = update {
        assert!(slots.iter().all(pending));
        let _ = table.end(update);
    }
    let mut settled = 0;
    for writer in table.undecided() {
        settled += usize::from(table.settle(writer, Decided).is_ok());
    }
    (valid, begun, settled)
}

#[test]
fn fuzz_version_table() {
    let bits = SlotBits::new(SlotBits::MIN).unwrap();
    let layout = TableLayout::new(bits);
    let region = Arc::new(OwnedRegion::create("versions", layout.region_bytes()).unwrap());
    let tags = layout.index(Place::Word(Slot(0))).unwrap();
    let check = |bytes: &[u8], random: &mut Random| {
        region.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let mapped = || Arc::clone(&region) as Arc<dyn Mapped>;
        let known = VersionTable::publish(mapped(), bits).unwrap();
        known.admit_hits(Decided);
        store_all(&region, tags, bytes);
        let words = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
        words.map(u64::from_le_bytes).for_each(check_word);
        // Whoever opened it before goes on with it.
        let before = check_table(&known, random);
        let opened = VersionTable::open(mapped()).map_err(|error| std::mem::discriminant(&error));
        let adopted = VersionTable::open_adopted(mapped()).is_ok();
        assert!(adopted || opened.is_err());
        let opened = opened.map(|table| check_table(&table, random));
        known.retire();
        assert!(known.fill().is_none());
        (before, opened, adopted)
    };
    let target = Target::new("version_table", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&tokens()).bytes_max(40 * STORE_BYTES).smoke_cases(300).run(check);
}
