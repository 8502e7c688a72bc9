//! The version table as its users see it: by cases, by deaths at each step, and against a
//! naive twin.

use super::super::steps::{Machine, Next};
use super::super::{PENDING_MAX, Stamp};
use super::*;
use proptest::prelude::{Strategy, prop_assert_eq, prop_oneof, proptest};
use remote_memory::shm::OwnedRegion;

const A: WriterId = WriterId(1);
const B: WriterId = WriterId(2);

fn small() -> SlotBits {
    SlotBits::new(SlotBits::MIN).unwrap()
}

/// The smallest with fine summary words: 128 of them.
fn summarised() -> SlotBits {
    SlotBits::new(17).unwrap()
}

/// The smallest with coarse ones too.
fn summarised_twice() -> SlotBits {
    SlotBits::new(23).unwrap()
}

fn region_of(bits: SlotBits) -> Arc<dyn Mapped> {
    let bytes = TableLayout::new(bits).region_bytes();
    Arc::new(OwnedRegion::create("versions", bytes).unwrap())
}

fn region() -> Arc<dyn Mapped> {
    region_of(small())
}

fn open_of(bits: SlotBits) -> VersionTable {
    let table = VersionTable::publish(region_of(bits), bits).unwrap();
    assert!(table.admit_hits(Decided));
    table
}

fn open() -> VersionTable {
    open_of(small())
}

fn slots(numbers: impl IntoIterator<Item = u32>) -> Vec<Slot> {
    numbers.into_iter().map(Slot).collect()
}

fn pending(table: &VersionTable, slot: u32) -> u16 {
    table.version(Slot(slot)).unwrap().pending
}

#[test]
fn the_default_table_has_128_mib_and_its_records() {
    let bytes = TableLayout::new(SlotBits::DEFAULT).region_bytes();
    let words = 528_384 + (128 << 20) + (128 << 10) + (2 << 10);
    assert_eq!(bytes, u64::next_multiple_of(words, 4_096));
    let largest = SlotBits::new(SlotBits::MAX).unwrap();
    assert!(TableLayout::new(largest).region_bytes() <= remote_memory::MAX_REGION_BYTES);
    assert_eq!(TableLayout::new(small()).region_bytes() % 4_096, 0);
    assert_eq!([SlotBits::new(SlotBits::MIN - 1), SlotBits::of(257)], [None, None]);
}

#[test]
fn a_ticket_ends_its_own_update_and_that_once() {
    let table = open();
    let many = table.begin(A, &slots(0..200)).unwrap();
    let ticket = table.ticket(&many).unwrap();
    // Whoever held it has died.
    drop(many);
    let old = Ticket { generation: ticket.generation + 1, ..ticket };
    let other = Ticket { incarnation: Incarnation(1), ..ticket };
    let strange = Ticket { record: u16::MAX, ..ticket };
    for wrong in [old, other, strange, Ticket { writer: B, ..ticket }] {
        assert_eq!(table.end_ticket(wrong, Decided), Ok(false), "{wrong:?}");
    }
    assert_eq!(pending(&table, 7), 1);
    assert_eq!(table.end_ticket(ticket, Decided), Ok(true));
    assert_eq!(table.end_ticket(ticket, Decided), Ok(false));
    assert!((0..200).all(|slot| pending(&table, slot) == 0) && table.undecided().is_empty());
    let nothing = table.begin(A, &[]).unwrap();
    assert_eq!(table.ticket(&nothing), None);
}

#[test]
fn the_hash_is_the_documented_one() {
    let cases: [(&[u8], u32, u32); 5] = [
        (b"", 13_680_577, 193),
        (b"a", 6_435_008, 192),
        (b"page:1", 10_939_190, 54),
        (b"product-4711", 10_831_817, 201),
        ("preis/€".as_bytes(), 16_568_199, 135),
    ];
    for (tag, default, least) in cases {
        assert_eq!(SlotBits::DEFAULT.slot(tag), Slot(default), "{tag:?}");
        assert_eq!(small().slot(tag), Slot(least), "{tag:?}");
        assert_eq!(open().slot(tag), Slot(least));
    }
    assert_eq!(SlotBits::DEFAULT.slots_of(&["a", "page:1", "a"]), slots([6_435_008, 10_939_190]));
}

#[test]
fn an_update_voids_what_depends_on_it_and_nothing_else() {
    let table = open();
    let filled = table.fill().unwrap();
    let (both, one, other) = (slots([1, 2]), slots([1]), slots([2]));
    assert!(table.is_valid(filled, &both));
    let update = table.begin(A, &one).unwrap();
    assert!(!table.is_valid(filled, &both) && !table.is_valid(filled, &one));
    assert!(table.is_valid(filled, &other));
    // Filled while the data changes: nobody knows what the origin read.
    let during = table.fill().unwrap();
    assert!(!table.is_valid(during, &one));
    table.end(update).unwrap();
    for filled in [filled, during] {
        assert!(!table.is_valid(filled, &both) && table.is_valid(filled, &other));
    }
    let after = table.fill().unwrap();
    assert!(table.is_valid(after, &both));
}

#[test]
fn an_update_is_seen_in_its_summary_word_and_others_of_the_group_stay_valid() {
    let table = open_of(summarised());
    let layout = table.layout();
    let levels = |layout: TableLayout| [FINE, COARSE].map(|level| layout.summaries(level));
    assert_eq!((levels(open().layout()), levels(layout)), ([0, 0], [128, 0]));
    let words = 1 << 17;
    assert_eq!(layout.raised(&slots([1_025, 5, 7])), slots([5, 7, 1_025, words, words + 1]));
    let (one, same_group, elsewhere) = (slots([5]), slots([7]), slots([1_025, words - 1]));
    let filled = table.fill().unwrap();
    let update = table.begin(A, &one).unwrap();
    // Without this an entry that depends on the tag would be proved by its summary word.
    assert_eq!((pending(&table, 5), pending(&table, words)), (1, 1));
    assert_eq!((pending(&table, 7), pending(&table, words + 1)), (0, 0));
    assert_eq!(table.pending_updates()[0].slots, one);
    assert!(!table.is_valid(filled, &one));
    assert!(table.is_valid(filled, &same_group) && table.is_valid(filled, &elsewhere));
    table.end(update).unwrap();
    assert!(!table.is_valid(filled, &one));
    assert!(table.is_valid(filled, &same_group) && table.is_valid(filled, &elsewhere));
    let filled = table.fill().unwrap();
    assert!(table.is_valid(filled, &one) && table.is_valid(filled, &[one, elsewhere].concat()));
    // Who died in it is settled there too.
    let _ = table.begin(B, &slots([5])).unwrap();
    assert_eq!(table.settle(B, Decided), Ok(1));
    assert_eq!((pending(&table, 5), pending(&table, words)), (0, 0));
    let filled = table.fill().unwrap();
    for strange in [words, words + 1, words + 128, u32::MAX] {
        assert!(!table.is_valid(filled, &slots([strange])), "{strange}");
        let refused = table.begin(A, &slots([strange])).unwrap_err();
        assert!(matches!(refused, BeginError::NoSuchSlot { .. }), "{refused}");
    }
    let most = UPDATE_SLOTS_MAX as u32;
    let update = table.begin(A, &slots((0..most).map(|slot| slot * 100))).unwrap();
    assert!((0..most).all(|slot| pending(&table, slot * 100) == 1));
    table.end(update).unwrap();
    assert_eq!(table.undecided(), []);
}

#[test]
fn an_update_is_seen_in_both_its_summary_words() {
    let table = open_of(summarised_twice());
    let (layout, words) = (table.layout(), 1 << 23);
    let (fine, coarse) = (words, words + (words >> 10));
    let raised = slots([5, 65_536, fine, fine + 64, coarse, coarse + 1]);
    assert_eq!(layout.raised(&slots([65_536, 5])), raised);
    let (one, same_fine, same_coarse) = (slots([5]), slots([7]), slots([65_535]));
    let elsewhere = slots([65_536, words - 1]);
    let filled = table.fill().unwrap();
    let update = table.begin(A, &one).unwrap();
    for slot in [5, fine, coarse] {
        assert_eq!(pending(&table, slot), 1, "{slot}");
    }
    let others = [same_fine, same_coarse, elsewhere].map(|slots| table.is_valid(filled, &slots));
    assert!(!table.is_valid(filled, &one) && others == [true; 3]);
    table.end(update).unwrap();
    assert!(!table.is_valid(filled, &one));
    assert!(table.is_valid(table.fill().unwrap(), &one));
    for slot in [5, fine, coarse] {
        assert_eq!(pending(&table, slot), 0, "{slot}");
    }
    for strange in [fine, coarse, coarse + 128, u32::MAX] {
        assert!(!table.is_valid(filled, &slots([strange])), "{strange}");
        let refused = table.begin(A, &slots([strange])).unwrap_err();
        assert!(matches!(refused, BeginError::NoSuchSlot { .. }), "{refused}");
    }
}

#[test]
fn a_word_counts_all_its_updates() {
    let table = open();
    let first = table.begin(A, &slots([7])).unwrap();
    let second = table.begin(B, &slots([7, 8])).unwrap();
    assert_eq!((pending(&table, 7), pending(&table, 8)), (2, 1));
    table.abort(first).unwrap();
    assert!(!table.is_valid(table.fill().unwrap(), &slots([7])));
    table.end(second).unwrap();
    assert!(table.is_valid(table.fill().unwrap(), &slots([7, 8])));
    assert_eq!(table.undecided(), []);
}

#[test]
fn a_full_count_is_refused_and_nothing_is_left() {
    let table = open();
    let full = VersionWord { stamp: Stamp::new(3).unwrap(), pending: PENDING_MAX };
    let word = table.word(Place::Word(Slot(9))).unwrap();
    word.store(full.pack(), Ordering::SeqCst);
    let refused = table.begin(A, &slots([8, 9, 10]));
    assert_eq!(refused.unwrap_err(), BeginError::PendingFull { slot: Slot(9) });
    assert_eq!(table.version(Slot(9)), Some(full));
    assert_eq!((pending(&table, 8), pending(&table, 10)), (0, 0));
    assert_eq!(table.undecided(), []);
}

#[test]
fn a_sequence_that_is_used_up_is_told() {
    let table = open();
    let update = table.begin(A, &slots([1])).unwrap();
    let last = Stamp::MAX.get();
    table.word(Place::Sequence).unwrap().store(last, Ordering::SeqCst);
    assert_eq!(table.end(update), Err(EndError::UsedUp));
    assert_eq!(pending(&table, 1), 1);
    assert_eq!(table.settle(A, Decided), Err(SettleError::UsedUp));
    assert_eq!(table.fill(), None);
}

#[test]
fn long_updates_take_several_records_up_to_a_limit() {
    let table = open();
    let many = slots(0..200);
    let update = table.begin(A, &many).unwrap();
    assert_eq!(update.held.len(), 4);
    assert!((0..200).all(|slot| pending(&table, slot) == 1));
    table.end(update).unwrap();
    assert!(table.is_valid(table.fill().unwrap(), &many));

    let max = UPDATE_SLOTS_MAX;
    let refused = table.begin(A, &slots(0..max as u32 + 1)).unwrap_err();
    assert_eq!(refused, BeginError::TooManySlots { slots: max + 1, max });
    let refused = table.begin(A, &slots([256])).unwrap_err();
    assert_eq!(refused, BeginError::NoSuchSlot { slot: Slot(256), slots: 256 });
    assert!(!table.is_valid(table.fill().unwrap(), &slots([256])));
}

#[test]
fn as_many_updates_as_there_are_records() {
    let table = open();
    let all: Vec<_> =
        (0..u32::from(RECORDS)).map(|n| table.begin(WriterId(n), &slots([5])).unwrap()).collect();
    assert_eq!(pending(&table, 5), RECORDS);
    let refused = table.begin(A, &slots([6])).unwrap_err();
    assert_eq!(refused, BeginError::NoFreeRecord { records: RECORDS });
    for update in all {
        table.end(update).unwrap();
    }
    assert_eq!(pending(&table, 5), 0);
}

#[test]
fn a_new_table_waits_for_the_updates_of_the_old() {
    let old = open();
    let filled = old.fill().unwrap();
    let update = old.begin(A, &slots([1])).unwrap();
    old.retire();
    assert!(!old.is_valid(filled, &slots([2])) && old.fill().is_none());
    assert_eq!(old.begin(B, &slots([1])).unwrap_err(), BeginError::Retired);
    assert_eq!((old.undecided(), pending(&old, 1)), (vec![A], 1));
    assert!(!old.admit_hits(Decided), "it was given up for good");

    let new = VersionTable::publish(region(), small()).unwrap();
    assert_eq!(new.fill(), None);
    let early = new.begin(B, &slots([2])).unwrap();
    assert_eq!(new.end(update), Err(EndError::OtherTable));
    assert_eq!(old.settle(A, Decided), Ok(1));
    assert!(old.undecided().is_empty());
    assert!(new.admit_hits(Decided) && !new.is_valid(filled, &slots([3])));
    assert!(!new.is_valid(new.fill().unwrap(), &slots([2])));
    new.end(early).unwrap();
    assert!(new.is_valid(new.fill().unwrap(), &slots([2])));
}

#[test]
fn a_left_table_is_adopted_and_settled() {
    let left = region();
    let table = VersionTable::publish(Arc::clone(&left), small()).unwrap();
    let _ = table.begin(A, &slots([1])).unwrap();
    left.words()[INCARNATION].fetch_add(1, Ordering::SeqCst);
    let refused = VersionTable::open(Arc::clone(&left)).unwrap_err();
    assert!(matches!(refused, LayoutError::WrongIncarnation { .. }), "{refused}");
    let adopted = VersionTable::open_adopted(left).unwrap();
    adopted.retire();
    assert_eq!(adopted.settle(B, Decided), Ok(0));
    assert_eq!(adopted.settle(A, Decided), Ok(1));
    assert_eq!(pending(&adopted, 1), 0);
}

/// Performs the first so many operations of a machine and leaves it there.
fn die_after<M: Machine>(table: &VersionTable, mut machine: M, operations: usize) -> bool {
    let mut left = operations;
    loop {
        let Next::Batch(ops) = machine.next() else { return false };
        let done: Vec<_> = ops.iter().take(left).map(|&op| table.perform(op)).collect();
        left -= done.len();
        if done.len() < ops.len() {
            return true;
        }
        machine.reply(&done);
    }
}

/// A table with an update of another writer on two slots, which shall stay as it is.
fn shared() -> (VersionTable, Update) {
    let table = open();
    let other = table.begin(B, &slots([1, 2])).unwrap();
    (table, other)
}

fn assert_settled(table: &VersionTable, other: Update, died_after: usize) {
    table.settle(A, Decided).unwrap();
    let counts = [1, 2, 3].map(|slot| pending(table, slot));
    assert_eq!(counts, [1, 1, 0], "died after {died_after} operations");
    assert_eq!(table.undecided(), [B]);
    table.end(other).unwrap();
    assert!(table.is_valid(table.fill().unwrap(), &slots([1, 2, 3])));
}

fn begin(table: &VersionTable) -> Begin {
    Begin::new(table.layout.shape(), A, slots([1, 2, 3]), 0)
}

fn settle(table: &VersionTable, held: &Held) -> Settle {
    Settle::new(table.layout.shape(), held.record(), A, 1)
}

#[test]
fn a_writer_that_dies_at_any_step_is_settled_exactly() {
    for operations in 0.. {
        let (table, other) = shared();
        let died = die_after(&table, begin(&table), operations);
        assert_settled(&table, other, operations);
        if !died {
            assert!(operations > 12, "a begin has more operations than {operations}");
            break;
        }
    }
    for operations in 0.. {
        let (table, other) = shared();
        let held = drive(&table, begin(&table)).unwrap();
        let died = die_after(&table, Lower::new(held), operations);
        assert_settled(&table, other, operations);
        if !died {
            assert!(operations > 8, "an end has more operations than {operations}");
            break;
        }
    }
}

#[test]
fn a_settler_that_dies_at_any_step_is_followed_by_another() {
    // The writer died behind its begin, within it, and within its end.
    for writer_died in [0, 1, 2] {
        for operations in (0..).step_by(3) {
            let (table, other) = shared();
            let held = drive(&table, begin(&table)).unwrap();
            if writer_died == 1 {
                drive(&table, Lower::new(held.clone())).unwrap();
                let _ = die_after(&table, begin(&table), 12);
            } else if writer_died == 2 {
                let _ = die_after(&table, Lower::new(held.clone()), 7);
            }
            let died = die_after(&table, settle(&table, &held), operations);
            assert_settled(&table, other, operations);
            if !died {
                break;
            }
        }
    }
}

/// Two settlers at once: the first ended the record in its writer's place, the second took it over
/// and died. The first found that out, and called it settled, although it was pending for good.
/// Seed 1022 of the simulation of strict caches found this.
#[test]
fn a_settler_overtaken_by_one_that_died_does_the_work_itself() {
    let (table, other) = shared();
    let held = drive(&table, begin(&table)).unwrap();
    let mut first = settle(&table, &held);
    // It has looked, put the record into the phase lowering, and read its entries.
    for _ in 0..3 {
        let Next::Batch(ops) = first.next() else { panic!("there is more to do") };
        let found: Vec<_> = ops.into_iter().map(|op| table.perform(op)).collect();
        first.reply(&found);
    }
    assert!(die_after(&table, settle(&table, &held), 2));
    assert_eq!(drive(&table, first), Ok(true));
    assert_eq!(table.settle(A, Decided), Ok(0), "nothing is left");
    assert_settled(&table, other, 2);
}

#[test]
fn a_new_table_is_opened_when_the_old_one_is_decided() {
    let (old, new) = (open(), VersionTable::publish(region(), small()).unwrap());
    let first = old.begin(A, &slots([1])).unwrap();
    let _second = old.begin(B, &slots([1, 2])).unwrap();
    assert_eq!(new.admit_hits_after(&old), Err(vec![A, B]));
    assert_eq!((old.fill(), new.fill()), (None, None));
    old.end(first).unwrap();
    assert_eq!(new.admit_hits_after(&old), Err(vec![B]));
    let begun = PendingUpdate { writer: B, phase: RecordPhase::Begun, slots: slots([1, 2]) };
    assert_eq!(old.pending_updates(), [begun]);
    assert_eq!(old.settle(B, Decided), Ok(1));
    assert_eq!((new.admit_hits_after(&old), old.pending_updates()), (Ok(()), vec![]));
    assert!(new.is_valid(new.fill().unwrap(), &slots([1, 2])));
    assert_eq!(new.admit_hits_after(&old), Ok(()));
}

#[derive(Clone, Debug)]
enum Step {
    Begin(u32, Vec<u32>),
    End(usize),
    Die(usize),
    Settle(u32),
    Fill(Vec<u32>),
}

fn step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::vec(0..6_u32, 1..4);
    prop_oneof![
        4 => (1..4_u32, some()).prop_map(|(writer, slots)| Step::Begin(writer, slots)),
        3 => (0..8_usize).prop_map(Step::End),
        1 => (0..8_usize).prop_map(Step::Die),
        1 => (1..4_u32).prop_map(Step::Settle),
        4 => some().prop_map(Step::Fill),
    ]
}

/// The naive twin: what is open on each slot by name, and when it last changed.
#[derive(Default)]
struct Twin {
    now: usize,
    open: Vec<(u32, Vec<u32>)>,
    changed: [usize; 6],
}

impl Twin {
    fn close(&mut self, which: impl Fn(&(u32, Vec<u32>)) -> bool) {
        self.now += 1;
        for (_, slots) in self.open.iter().filter(|update| which(update)) {
            for &slot in slots {
                self.changed[slot as usize] = self.now;
            }
        }
        self.open.retain(|update| !which(update));
    }

    fn is_valid(&self, filled: usize, slots: &[u32]) -> bool {
        slots.iter().all(|slot| {
            let open = self.open.iter().any(|(_, slots)| slots.contains(slot));
            !open && self.changed[*slot as usize] <= filled
        })
    }
}

proptest! {
    #[test]
    fn a_word_says_the_same_without_a_branch(word: u64, near in 0..4_u64, from: u64) {
        let sequence = Stamp::new(from >> 16).unwrap();
        for word in [word, word & !0xffff, (sequence.get() + near).saturating_sub(2) << 16] {
            let unchanged = VersionWord::unpack(word).is_unchanged_since(sequence);
            prop_assert_eq!(VersionWord::change_since(word, sequence) == 0, unchanged);
        }
    }

    #[test]
    fn it_answers_as_its_naive_twin(
        steps in proptest::collection::vec(step(), 1..60),
        size in 0..4,
    ) {
        // Some of the words share a summary word, some do not.
        let (bits, step) = match size {
            0 => (small(), 1),
            1 => (summarised(), 700),
            2 => (summarised_twice(), 700),
            _ => (summarised_twice(), 50_000),
        };
        let slots = |numbers: &[u32]| slots(numbers.iter().map(|number| number * step));
        let (table, mut twin) = (open_of(bits), Twin::default());
        let mut updates: Vec<(u32, Vec<u32>, Update)> = Vec::new();
        let mut entries = Vec::new();
        for next in steps {
            match next {
                Step::Begin(writer, numbers) => {
                    let update = table.begin(WriterId(writer), &slots(&numbers)).unwrap();
                    twin.open.push((writer, numbers.clone()));
                    updates.push((writer, numbers, update));
                }
                Step::End(which) if which < updates.len() => {
                    let (writer, numbers, update) = updates.remove(which);
                    table.end(update).unwrap();
                    let same = |open: &(u32, Vec<u32>)| *open == (writer, numbers.clone());
                    let at = twin.open.iter().position(same).unwrap();
                    let (whose, numbers) = twin.open.remove(at);
                    // Another one, just as open, stays.
                    let rest = std::mem::replace(&mut twin.open, vec![(whose, numbers)]);
                    twin.close(|_| true);
                    twin.open = rest;
                }
                Step::Die(which) if which < updates.len() => drop(updates.remove(which)),
                Step::End(_) | Step::Die(_) => {}
                Step::Settle(writer) => {
                    let open = twin.open.iter().filter(|(whose, _)| *whose == writer).count();
                    prop_assert_eq!(table.settle(WriterId(writer), Decided), Ok(open));
                    twin.close(|(whose, _)| *whose == writer);
                    updates.retain(|(whose, ..)| *whose != writer);
                }
                Step::Fill(numbers) => entries.push((table.fill().unwrap(), twin.now, numbers)),
            }
            for slot in 0..6 {
                let open = twin.open.iter().filter(|(_, slots)| slots.contains(&slot)).count();
                prop_assert_eq!(usize::from(pending(&table, slot * step)), open);
            }
            for (filled, when, numbers) in &entries {
                let valid = table.is_valid(*filled, &slots(numbers));
                prop_assert_eq!(valid, twin.is_valid(*when, numbers));
            }
        }
    }
}
