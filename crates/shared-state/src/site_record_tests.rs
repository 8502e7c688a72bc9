//! The site record: header, neighbours, noise.

use super::*;
use proptest::prelude::*;
use remote_memory::shm::OwnedRegion;

fn region(sites: usize) -> Arc<OwnedRegion> {
    Arc::new(OwnedRegion::create("home", site_region_bytes(sites)).unwrap())
}

fn record(sites: u16) -> SiteRecord {
    let header = SiteHeader { sites, settings_hash: 42 };
    SiteRecord::publish(region(usize::from(sites)), header).unwrap()
}

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

#[test]
fn what_is_published_is_opened() {
    let record = record(5);
    let opened = SiteRecord::open(Arc::clone(record.region())).unwrap();
    assert_eq!((opened.sites(), opened.settings_hash()), (5, 42));
    assert_eq!(opened.check(), Ok(()));
}

#[test]
fn every_word_has_its_own_place() {
    let sites = 1_023;
    let record = record(sites);
    for number in 1..=sites {
        record.depart_word(site(number)).unwrap().store(1, Ordering::Relaxed);
        record.arrive_word(site(number)).unwrap().store(2, Ordering::Relaxed);
        record.floor_word(site(number)).unwrap().store(3, Ordering::Relaxed);
    }
    for number in 0..64 {
        let edge = EdgeId::new(number).unwrap();
        let told = EdgeRow {
            lease: Lease { incarnation: u32::from(number) + 1, beat: 1 },
            settings_hash: 4,
            look_us: 5,
            look_every_us: 6,
            pid: 7,
        };
        record.set_edge_row(edge, &told);
        for number in 1..=sites {
            let queued = u32::from(number);
            record.set_demand(edge, site(number), EdgeDemand { queued, in_flight: 9 });
            record.set_service(edge, site(number), EdgeService { served: 8, mean_us: queued });
        }
        assert_eq!(record.edge_row(edge), told);
    }
    record.set_cordoned(NodeId::MAX, true);
    record.set_paused(true);
    for number in 1..=sites {
        assert_eq!(record.depart_word(site(number)).unwrap().load(Ordering::Relaxed), 1);
        assert_eq!(record.arrive_word(site(number)).unwrap().load(Ordering::Relaxed), 2);
        assert_eq!(record.floor_word(site(number)).unwrap().load(Ordering::Relaxed), 3);
        let demand = record.demand(EdgeId::MAX, site(number));
        assert_eq!(demand, EdgeDemand { queued: u32::from(number), in_flight: 9 });
        assert_eq!(demand.total(), u64::from(number) + 9);
        let service = record.service(EdgeId::MAX, site(number));
        assert_eq!(service, EdgeService { served: 8, mean_us: u32::from(number) });
    }
    assert_eq!(record.edge_row(EdgeId::MIN).lease.incarnation, 1);
    assert_eq!(record.check(), Ok(()));
}

#[test]
fn a_site_beyond_the_record_has_no_words() {
    let record = record(2);
    assert!(record.depart_word(site(3)).is_none());
    assert_eq!(record.demand(EdgeId::MIN, site(3)), EdgeDemand::default());
    record.set_demand(EdgeId::MIN, site(3), EdgeDemand { queued: 1, in_flight: 1 });
    record.set_service(EdgeId::MIN, site(3), EdgeService { served: 1, mean_us: 1 });
    assert_eq!(record.service(EdgeId::MIN, site(3)), EdgeService::default());
    assert_eq!(record.check(), Ok(()));
}

/// The record that `docs/layout.md` draws, in numbers.
#[test]
fn rows_lie_where_the_page_draws_them() {
    let record = record(3);
    let (edge, row) = (EdgeId::new(2).unwrap(), 272 + 8 * 3 + 2 * (8 + 8));
    assert_eq!(SiteRecord::row_range(3, edge), row..row + 16);
    record.set_demand(edge, site(2), EdgeDemand { queued: 1, in_flight: 2 });
    record.set_service(edge, site(2), EdgeService { served: 3, mean_us: 4 });
    let word = |at: usize| record.region().words()[at].load(Ordering::Relaxed);
    assert_eq!((word(row + 8 + 2), word(row + 8 + 3)), (1 << 32 | 2, 3 << 32 | 4));
    // Four sites fill a line beside the row's own.
    assert_eq!(SiteRecord::row_range(4, EdgeId::MIN).len(), 16);
    assert_eq!(SiteRecord::row_range(5, EdgeId::MIN).len(), 24);
}

#[test]
fn pause_and_cordon_come_and_go() {
    let record = record(1);
    let node = NodeId::new(64).unwrap();
    assert!(!record.is_paused() && !record.is_cordoned(node));
    record.set_paused(true);
    record.set_cordoned(node, true);
    assert!(record.is_paused() && record.is_cordoned(node));
    assert!(!record.is_cordoned(NodeId::new(63).unwrap()));
    record.set_paused(false);
    record.set_cordoned(node, false);
    assert!(!record.is_paused() && !record.is_cordoned(node));
}

#[test]
fn a_header_with_too_many_sites_is_refused() {
    let record = record(2);
    record.region().words()[SITES].store(900, Ordering::SeqCst);
    let refused = SiteRecord::open(Arc::clone(record.region())).unwrap_err();
    assert!(matches!(refused, LayoutError::TooShort { .. }), "{refused}");
    record.region().words()[SITES].store(1_024, Ordering::SeqCst);
    let refused = SiteRecord::open(Arc::clone(record.region())).unwrap_err();
    assert!(matches!(refused, LayoutError::OutOfRange { .. }), "{refused}");
}

proptest! {
    #[test]
    fn noise_in_a_region_never_panics(
        noise in proptest::collection::vec(any::<u64>(), 64),
        skip in 0usize..6,
    ) {
        let record = record(3);
        for (index, word) in record.region().words().iter().enumerate().skip(skip) {
            word.store(noise[index % 64].rotate_left(index as u32), Ordering::Relaxed);
        }
        let _ = SiteRecord::open(Arc::clone(record.region()));
        let _ = record.edge_row(EdgeId::MAX);
        let _ = record.demand(EdgeId::MAX, site(3)).total();
        let _ = record.service(EdgeId::MAX, site(3));
        let _ = (record.is_paused(), record.is_cordoned(NodeId::MAX));
    }
}
