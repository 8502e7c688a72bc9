//! Noise in shared memory: any peer that may write it may write anything, at any time.

use crate::slot::{Enter, NodeSlot, is_drained, node_load, server_load};
use crate::words::{Arrive, Assign, Current, Depart, Earlier, Epoch, Floor, Lease, Server};
use crate::{
    EDGES_MAX, NODE_REGION_BYTES, NODES_MAX, NodeHeader, NodeRecord, SITES_MAX, SiteHeader,
    SiteRecord, site_region_bytes,
};
use fuzzing::{Random, Target};
use pool_model::{EdgeId, NodeId, SiteId};
use remote_memory::Mapped;
use remote_memory::shm::OwnedRegion;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sites of the home's region.
const SITES: u16 = 5;

/// Bytes of an input that say: this word, and what is stored there.
const STORE_BYTES: usize = 2 + 8;

fn tokens() -> Vec<[u8; 8]> {
    let site = SiteId::new(3).ok();
    let departure = crate::words::Departure { node: NodeId::MIN, taker: site, version_low: 1 };
    let opened = Depart::opened(Epoch::new(1, 2));
    [
        0,
        1,
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        (1 << 24) - 1,
        1 << 24,
        u64::from(u32::MAX),
        u64::from_le_bytes(*b"POLDERND"),
        u64::from_le_bytes(*b"POLDERST"),
        Assign { site, stamp: Epoch::new(1, 2), version: 5 }.pack(),
        Assign { site, stamp: Epoch::ZERO, version: (1 << 30) - 1 }.pack(),
        opened.pack(),
        opened.installed(departure).map_or(0, Depart::pack),
        Lease { incarnation: 7, beat: u32::MAX }.pack(),
        Current { version: 5, in_flight: (1 << 24) - 1 }.pack(),
        Earlier { site, in_flight: (1 << 24) - 1 }.pack(),
    ]
    .map(u64::to_le_bytes)
    .to_vec()
}

/// The stores of an input. Half of the places lie among the first words, where headers are.
fn stores(bytes: &[u8], words: usize) -> impl Iterator<Item = (usize, u64)> {
    bytes.chunks_exact(STORE_BYTES).map(move |store| {
        let (place, word) = store.split_at(2);
        let place = usize::from(u16::from_le_bytes([place[0], place[1]]));
        let place = if place & 1 == 0 { place / 2 % 64 } else { place / 2 % words };
        (place, u64::from_le_bytes(word.try_into().expect("eight bytes are left")))
    })
}

fn store_all(region: &OwnedRegion, bytes: &[u8]) {
    let words = region.words();
    for (place, word) in stores(bytes, words.len()) {
        words[place].store(word, Ordering::SeqCst);
    }
}

/// Any word unpacks, and what it says survives packing.
fn check_word(word: u64) {
    macro_rules! stable {
        ($($kind:ident)*) => {$(
            let unpacked = $kind::unpack(word);
            assert_eq!($kind::unpack(unpacked.pack()), unpacked);
        )*};
    }
    stable!(Depart Arrive Floor Lease Current Earlier Server);
    if let Some(assign) = Assign::unpack(word) {
        // All ones stand for a region that was given up; no assignment packs to them.
        let again = Assign::unpack(assign.pack());
        assert!(again == Some(assign) || assign.pack() == Assign::TOMBSTONE, "{assign:?}");
        assert!(assign.moved(assign.site, assign.stamp).version < 1 << 30);
    }
}

fn check_node(record: &NodeRecord, random: &mut Random) -> bool {
    let header = record.header();
    assert!(header.max_in_flight < 1 << 24 && header.node <= NodeId::MAX);
    let assign = record.assign();
    let (first, last) = (SiteId::MIN, SiteId::new(SITES_MAX as u16).expect("it is the last"));
    for site in [first, last, SiteId::new(1 + random.below(SITES_MAX) as u16).expect("in range")] {
        let _ = (record.server(site), record.is_warm(site));
        let takes = assign.is_some_and(|assign| record.takes(site, assign));
        assert!(!takes || assign.and_then(|assign| assign.site) == Some(site));
        let warm = record.is_warm(site);
        record.set_warm(site, !warm);
        assert_ne!(record.is_warm(site), warm);
    }
    let _ = (record.beat(), record.ready(), record.status(), record.wake_value());
    let _ = record.beat_period();
    let live = record.edges();
    assert!(live.iter().count() <= EDGES_MAX);
    let _ = node_load(record, live);
    let _ = assign.is_some_and(|assign| is_drained(record, assign, live));
    check_slot(record, EdgeId::new(random.below(EDGES_MAX) as u8).expect("in range"))
}

/// A slot on top of noise: its own counts begin at zero, and its requests are counted.
fn check_slot(record: &NodeRecord, edge: EdgeId) -> bool {
    let found = record.lease_word(edge).load(Ordering::SeqCst);
    let lease = Lease { incarnation: 1, beat: 0 };
    let mut slot = NodeSlot::take(record.clone(), edge, found, lease).expect("nobody else is here");
    assert_eq!((slot.in_flight(), slot.counts().len()), (0, 0));
    let Some(assign) = record.assign() else { return false };
    let max = record.header().max_in_flight;
    let entered = slot.enter(assign, max);
    assert_eq!(slot.in_flight(), u32::from(entered == Enter::Entered));
    if entered == Enter::Entered {
        assert!(server_load(record, assign.site, record.edges()) <= max);
    }
    slot.follow(assign.moved(SiteId::new(2).ok(), assign.stamp));
    slot.beat();
    if let Some(site) = assign.site.filter(|_| entered == Enter::Entered) {
        slot.leave(site, assign.version);
        assert!(slot.counts().is_empty(), "{:?}", slot.counts());
    }
    entered == Enter::Entered
}

#[test]
fn fuzz_node_record() {
    let region = Arc::new(OwnedRegion::create("node-7", NODE_REGION_BYTES).unwrap());
    let check = |bytes: &[u8], random: &mut Random| {
        region.words().iter().for_each(|word| word.store(0, Ordering::SeqCst));
        let header = NodeHeader { node: NodeId::new(7).unwrap(), max_in_flight: 8 };
        let mapped = || Arc::clone(&region) as Arc<dyn Mapped>;
        let known = NodeRecord::publish(mapped(), header, Assign::FREE).unwrap();
        store_all(&region, bytes);
        stores(bytes, 1).for_each(|(_, word)| check_word(word));
        // Whoever opened it before goes on with it.
        let _ = check_node(&known, random);
        let opened = NodeRecord::open(mapped());
        assert!(opened.is_err() || known.check().is_ok());
        let entered = opened.as_ref().map(|record| check_node(record, random)).ok();
        let refused = opened.err().map(|error| std::mem::discriminant(&error));
        let retired = NodeRecord::retire(&*region);
        assert!(retired.is_err() || known.assign().is_none());
        (entered, refused, retired.is_ok())
    };
    let target = Target::new("node_record", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&tokens()).bytes_max(40 * STORE_BYTES).run(check);
}

fn check_home(record: &SiteRecord, random: &mut Random) {
    let _ = (record.sites(), record.settings_hash(), record.is_paused());
    for number in [1, SITES, SITES + 1, SITES_MAX as u16, 1 + random.below(SITES_MAX) as u16] {
        let site = SiteId::new(number).expect("in range");
        let has = usize::from(number) <= record.sites();
        assert_eq!(record.depart_word(site).is_some(), has);
        assert_eq!(record.arrive_word(site).is_some(), has);
        assert_eq!(record.floor_word(site).is_some(), has);
        let edge = EdgeId::new(random.below(EDGES_MAX) as u8).expect("in range");
        let _ = (record.edge_row(edge), record.demand(edge, site).total());
        let _ = record.service(edge, site);
        record.set_service(edge, site, crate::EdgeService { served: 1, mean_us: 2 });
        assert_eq!(record.service(edge, site).mean_us, if has { 2 } else { 0 });
        record.set_demand(edge, site, crate::EdgeDemand { queued: 1, in_flight: 2 });
        assert_eq!(record.demand(edge, site).total(), if has { 3 } else { 0 });
    }
    let last = NODES_MAX - 1;
    for place in [0, last, random.below(NODES_MAX)] {
        let node = NodeId::new(place as u16).expect("in range");
        record.set_cordoned(node, !record.is_cordoned(node));
    }
}

#[test]
fn fuzz_site_record() {
    let region = Arc::new(OwnedRegion::create("home", site_region_bytes(SITES.into())).unwrap());
    let check = |bytes: &[u8], random: &mut Random| {
        region.words().iter().for_each(|word| word.store(0, Ordering::SeqCst));
        let mapped = || Arc::clone(&region) as Arc<dyn Mapped>;
        let header = SiteHeader { sites: SITES, settings_hash: 9 };
        let known = SiteRecord::publish(mapped(), header).unwrap();
        store_all(&region, bytes);
        check_home(&known, random);
        match SiteRecord::open(mapped()) {
            Ok(record) => {
                check_home(&record, random);
                Ok(record.sites())
            }
            Err(error) => Err(std::mem::discriminant(&error)),
        }
    };
    let target = Target::new("site_record", env!("CARGO_MANIFEST_DIR"));
    target.tokens(&tokens()).bytes_max(40 * STORE_BYTES).run(check);
}
