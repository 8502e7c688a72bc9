//! A version table of this process.

use remote_memory::shm::OwnedRegion;
use shared_state::versions::{Decided, SlotBits, TableLayout, VersionTable};
use std::sync::Arc;

/// One that serves hits, of the smallest size that keeps a few tags apart.
pub fn table() -> VersionTable {
    let bits = SlotBits::of(1 << 12).unwrap();
    let bytes = TableLayout::new(bits).region_bytes();
    let region = Arc::new(OwnedRegion::create("tags-test", bytes).unwrap());
    let table = VersionTable::publish(region, bits).unwrap();
    assert!(table.admit_hits(Decided));
    table
}
