//! The version table over the face [`Remote`], in batches.

use super::super::{
    Begin, Check, Decided, EndError, FarError, FarTable, Fill, Lower, Settle, Slot, SlotBits,
    VersionTable, WriterId,
};
use super::*;
use crate::header::LayoutError;
use remote_memory::shm::OwnedRegion;
use remote_memory::{Incarnation, Inline, Mapped, RegionDescriptor, Remote};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const A: WriterId = WriterId(1);

struct Table {
    table: VersionTable,
    region: Arc<dyn Mapped>,
}

impl Table {
    fn new() -> Self {
        let bits = SlotBits::new(SlotBits::MIN).unwrap();
        let bytes = TableLayout::new(bits).region_bytes();
        let region: Arc<dyn Mapped> = Arc::new(OwnedRegion::create("versions", bytes).unwrap());
        let table = VersionTable::publish(Arc::clone(&region), bits).unwrap();
        assert!(table.admit_hits(Decided));
        Self { table, region }
    }
}

impl Deref for Table {
    type Target = VersionTable;

    fn deref(&self) -> &VersionTable {
        &self.table
    }
}

fn slots(numbers: impl IntoIterator<Item = u32>) -> Vec<Slot> {
    numbers.into_iter().map(Slot).collect()
}

fn pending(table: &VersionTable, slot: u32) -> u16 {
    table.version(Slot(slot)).unwrap().pending
}

/// Runs a machine over the face `Remote`.
fn far<M: Machine>(remote: &mut Inline, table: &Table, machine: M) -> M::Outcome {
    run(remote, table, Run::new(table.layout(), machine))
}

fn run<M: Machine>(remote: &mut Inline, table: &Table, mut run: Run<M>) -> M::Outcome {
    let key = table.region.descriptor().key;
    loop {
        let batch = match run.next(50).unwrap() {
            Want::Done(outcome) => return outcome,
            Want::Batch(batch) => batch,
        };
        assert!((1..=50).contains(&batch.len()));
        let ticket = remote.submit(key, batch, Duration::from_secs(5)).unwrap();
        let mut done = Vec::new();
        remote.poll(&mut done);
        assert_eq!(done[0].ticket, ticket);
        run.reply(&done[0].results).unwrap();
    }
}

#[test]
fn the_same_goes_over_batches() {
    let table = Table::new();
    let mut remote = Inline::new();
    remote.add(Arc::clone(&table.region));
    remote.open(table.region.descriptor()).unwrap();
    let (changed, read) = (slots(10..70), slots(0..100));
    let shape = table.layout().shape();

    let filled = far(&mut remote, &table, Fill::default()).unwrap();
    assert_eq!(Some(filled), table.fill());
    assert!(far(&mut remote, &table, Check::new(filled, read.clone())));
    let held = far(&mut remote, &table, Begin::new(shape, A, changed.clone(), 3)).unwrap();
    assert_eq!(pending(&table, 10), 1);
    assert!(!far(&mut remote, &table, Check::new(filled, read.clone())));
    far(&mut remote, &table, Lower::new(held)).unwrap();
    let filled = far(&mut remote, &table, Fill::default()).unwrap();
    assert!(far(&mut remote, &table, Check::new(filled, read.clone())));
    assert!(table.is_valid(filled, &read));

    let held = far(&mut remote, &table, Begin::new(shape, A, changed, 3)).unwrap();
    assert_eq!(far(&mut remote, &table, Settle::new(shape, held.record(), A, 3)), Ok(true));
    assert_eq!(far(&mut remote, &table, Lower::new(held)), Err(EndError::Settled));
    assert_eq!(pending(&table, 10), 0);
    table.retire();
    assert_eq!(far(&mut remote, &table, Fill::default()), None);
}

#[test]
fn a_far_table_is_opened_filled_from_and_validated() {
    let table = Table::new();
    let descriptor = table.region.descriptor();
    let mut remote = Inline::new();
    remote.add(Arc::clone(&table.region));
    remote.open(descriptor).unwrap();
    let header = |remote: &mut Inline| {
        let (batch, key) = (FarTable::header_batch(), descriptor.key);
        remote.submit(key, batch, Duration::from_secs(5)).unwrap();
        let mut done = Vec::new();
        remote.poll(&mut done);
        done.remove(0).results
    };
    let results = header(&mut remote);
    let edge = FarTable::open(descriptor.clone(), &results).unwrap();
    assert_eq!((edge.layout(), edge.descriptor()), (table.layout(), descriptor));
    let filled = run(&mut remote, &table, edge.fill()).unwrap();
    assert_eq!(Some(filled), table.fill());
    assert!(run(&mut remote, &table, edge.check(filled, slots([1, 2]))));
    let update = table.begin(A, &slots([2])).unwrap();
    assert!(!run(&mut remote, &table, edge.check(filled, slots([1, 2]))));
    table.end(update).unwrap();
    assert!(!run(&mut remote, &table, edge.check(filled, slots([1, 2]))));
    assert!(run(&mut remote, &table, edge.check(filled, slots([1]))));
    assert!(edge.check(filled, slots([256])).next(50).is_err());

    let another = RegionDescriptor { incarnation: Incarnation(1), ..descriptor.clone() };
    let refused = FarTable::open(another, &results).unwrap_err();
    assert!(matches!(refused, FarError::Layout(LayoutError::WrongIncarnation { .. })), "{refused}");
    let short = RegionDescriptor { length_bytes: 8, ..descriptor.clone() };
    let refused = FarTable::open(short, &results).unwrap_err();
    assert!(matches!(refused, FarError::Layout(LayoutError::TooShort { .. })), "{refused}");
    for unread in [vec![], vec![Err(OpError::TimedOut)], vec![Ok(OpResult::Read(vec![1]))]] {
        let refused = FarTable::open(descriptor.clone(), &unread).unwrap_err();
        assert!(matches!(refused, FarError::Unread { .. }), "{refused}");
    }
    let magic = table.region.words()[0].swap(7, Ordering::SeqCst);
    let refused = FarTable::open(descriptor.clone(), &header(&mut remote)).unwrap_err();
    assert!(matches!(refused, FarError::Layout(LayoutError::WrongMagic { .. })), "{refused}");
    table.region.words()[0].store(magic, Ordering::SeqCst);
    table.region.words()[4].store(300, Ordering::SeqCst);
    let refused = FarTable::open(descriptor.clone(), &header(&mut remote)).unwrap_err();
    assert!(matches!(refused, FarError::Layout(LayoutError::OutOfRange { .. })), "{refused}");
}
