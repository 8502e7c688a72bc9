//! The order of memory operations, in one place: over the processor's atomics, or loom's in tests.
//!
//! The machines use sequential consistency throughout. Two things need it: `begin` writes its
//! header and then reads `live`, `retire` writes `live` and then reads the headers. All else rests
//! on *release* and *acquire*: who reads a word that another has swapped also sees what that one
//! did before. A hit reads with *acquire*, behind a fence of the same kind: nothing of it happens
//! before the loads by which its caller saw the request.

use super::steps::Op;
use super::word::{Filled, Slot, VersionWord};
#[cfg(loom)]
use loom::sync::atomic::fence;
use std::sync::atomic::Ordering;
#[cfg(not(loom))]
use std::sync::atomic::fence;

const ALL: Ordering = Ordering::SeqCst;

/// An atomic word: the standard library's, or loom's in its tests.
pub(super) trait Atomic {
    fn load(&self, order: Ordering) -> u64;
    fn compare_exchange(&self, expected: u64, new: u64) -> Result<u64, u64>;
    fn add_one(&self) -> u64;
}

impl Atomic for std::sync::atomic::AtomicU64 {
    #[inline]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn compare_exchange(&self, expected: u64, new: u64) -> Result<u64, u64> {
        Self::compare_exchange(self, expected, new, ALL, ALL)
    }

    fn add_one(&self) -> u64 {
        self.fetch_add(1, ALL)
    }
}

/// Performs one operation of a machine on its word.
pub(super) fn perform<A: Atomic>(word: &A, op: Op) -> u64 {
    match op {
        Op::Load(_) => word.load(ALL),
        Op::Draw => word.add_one(),
        Op::Swap { expected, new, .. } => match word.compare_exchange(expected, new) {
            Ok(found) | Err(found) => found,
        },
    }
}

/// Words that are read with no decision between them: a processor has as many under way.
const AT_ONCE: usize = 16;

/// Whether nothing changed on these slots, of whose words each of `words` stands for `2^level`.
#[inline]
pub(super) fn is_valid<A: Atomic>(
    live: &A,
    words: &[A],
    level: u8,
    filled: Filled,
    slots: &[Slot],
) -> bool {
    fence(Ordering::Acquire);
    let mut changed = live.load(Ordering::Acquire) ^ filled.incarnation.0;
    for some in slots.chunks(AT_ONCE) {
        for slot in some {
            let Some(word) = words.get((slot.0 >> level) as usize) else { return false };
            changed |= VersionWord::change_since(word.load(Ordering::Acquire), filled.sequence);
        }
        if changed != 0 {
            return false;
        }
    }
    changed == 0
}

#[cfg(test)]
#[cfg(loom)]
mod loom_interleavings {
    use super::super::{
        Begin, Fill, Lower, Memory, Place, RecordHeader, RecordPhase, Settle, Shape, WriterId,
        drive,
    };
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    impl Atomic for AtomicU64 {
        fn load(&self, order: Ordering) -> u64 {
            Self::load(self, order)
        }

        fn compare_exchange(&self, expected: u64, new: u64) -> Result<u64, u64> {
            Self::compare_exchange(self, expected, new, ALL, ALL)
        }

        fn add_one(&self) -> u64 {
            self.fetch_add(1, ALL)
        }
    }

    const SHAPE: Shape = Shape { slots: 1, records: 1, entries: 1 };
    const LIVE: usize = 0;
    const WORD: usize = 4;

    /// Live, sequence, one header, one entry, one word.
    struct Table([AtomicU64; 5]);

    impl Table {
        fn new() -> Self {
            Self([1, 0, 0, 0, 0].map(AtomicU64::new))
        }
    }

    impl Memory for Arc<Table> {
        fn perform(&self, op: Op) -> u64 {
            let place = match op {
                Op::Load(place) | Op::Swap { place, .. } => place,
                Op::Draw => Place::Sequence,
            };
            let at = match place {
                Place::Live => LIVE,
                Place::Sequence => 1,
                Place::Header(_) => 2,
                Place::Entry(..) => 3,
                Place::Word(_) => WORD,
            };
            perform(&self.0[at], op)
        }
    }

    /// Interleavings with so many forced switches at the most; without a bound there are millions.
    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    fn begin() -> Begin {
        Begin::new(SHAPE, WriterId(7), vec![Slot(0)], 0)
    }

    #[test]
    fn no_hit_is_older_than_what_its_reader_knew() {
        check(|| {
            let table = Arc::new(Table::new());
            let row = Arc::new(AtomicU64::new(0));
            let (theirs, database) = (Arc::clone(&table), Arc::clone(&row));
            let writer = loom::thread::spawn(move || {
                let held = drive(&theirs, begin()).unwrap();
                database.store(1, Ordering::Release);
                drive(&theirs, Lower::new(held)).unwrap();
            });
            let filled = drive(&table, Fill::default()).unwrap();
            let page = row.load(Ordering::Acquire);
            let arrived = row.load(Ordering::Acquire);
            let valid = is_valid(&table.0[LIVE], &table.0[WORD..], 0, filled, &[Slot(0)]);
            assert!(!valid || page == arrived, "page {page}, committed {arrived}");
            writer.join().unwrap();
        });
    }

    #[test]
    fn a_writer_and_its_settler_take_a_count_back_once() {
        check(|| {
            let table = Arc::new(Table::new());
            let theirs = Arc::clone(&table);
            let writer = loom::thread::spawn(move || drive(&theirs, begin()).is_ok());
            let settled = drive(&table, Settle::new(SHAPE, 0, WriterId(7), 3));
            let begun = writer.join().unwrap();
            let header = RecordHeader::unpack(perform(&table.0[2], Op::Load(Place::Header(0))));
            let word = VersionWord::unpack(perform(&table.0[WORD], Op::Load(Place::Live)));
            let holds = header.phase == RecordPhase::Begun;
            assert_eq!(word.pending, u16::from(holds), "{header:?} {settled:?} {begun}");
            assert!(holds || header.phase == RecordPhase::Free, "{header:?} {settled:?}");
        });
    }
}
