//! The node record: header, neighbours, noise.

use super::*;
use crate::LAYOUT_VERSION;
use crate::words::Epoch;
use proptest::prelude::*;
use remote_memory::shm::OwnedRegion;
use std::net::Ipv4Addr;

fn region() -> Arc<OwnedRegion> {
    Arc::new(OwnedRegion::create("node-7", NODE_REGION_BYTES).unwrap())
}

fn record() -> NodeRecord {
    let header = NodeHeader { node: NodeId::new(7).unwrap(), max_in_flight: 8 };
    NodeRecord::publish(region(), header, Assign::FREE).unwrap()
}

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

#[test]
fn what_is_published_is_opened() {
    let record = record();
    let opened = NodeRecord::open(Arc::clone(record.region())).unwrap();
    assert_eq!(opened.header(), record.header());
    assert_eq!(opened.assign(), Some(Assign::FREE));
    assert_ne!(opened.beat(), 0);
    assert_eq!(opened.check(), Ok(()));
}

#[test]
fn a_region_that_was_not_published_is_refused() {
    let refused = NodeRecord::open(region()).unwrap_err();
    assert!(refused.to_string().contains("node-7"), "{refused}");
    assert!(matches!(refused, LayoutError::WrongMagic { .. }));
}

#[test]
fn a_short_region_is_refused() {
    let short = Arc::new(OwnedRegion::create("short", 4_096).unwrap());
    let refused = NodeRecord::open(short).unwrap_err();
    assert!(matches!(refused, LayoutError::TooShort { .. }), "{refused}");
}

#[test]
fn another_version_or_incarnation_is_refused() {
    let record = record();
    let words = record.region().words();
    words[header::VERSION].store(LAYOUT_VERSION + 1, Ordering::SeqCst);
    let refused = NodeRecord::open(Arc::clone(record.region())).unwrap_err();
    assert!(matches!(refused, LayoutError::WrongVersion { .. }), "{refused}");
    words[header::VERSION].store(LAYOUT_VERSION, Ordering::SeqCst);
    words[header::INCARNATION].fetch_xor(1, Ordering::SeqCst);
    assert!(matches!(record.check(), Err(LayoutError::WrongIncarnation { .. })));
}

#[test]
fn a_header_out_of_range_is_refused_by_name() {
    let record = record();
    record.region().words()[MAX_IN_FLIGHT].store(1 << 24, Ordering::SeqCst);
    let refused = NodeRecord::open(Arc::clone(record.region())).unwrap_err().to_string();
    assert!(refused.contains("max_in_flight"), "{refused}");
}

#[test]
fn a_retired_region_has_no_assignment_and_only_a_record_is_retired() {
    let record = record();
    let last = Assign { site: Some(site(3)), stamp: Epoch::ZERO, version: 5 };
    record.assign_word().store(last.pack(), Ordering::SeqCst);
    // An adopted region has another incarnation than its header.
    record.region().words()[header::INCARNATION].fetch_xor(1, Ordering::SeqCst);
    let adopted = NodeRecord::open_adopted(Arc::clone(record.region())).unwrap();
    assert_eq!((adopted.header(), adopted.assign()), (record.header(), Some(last)));
    assert_eq!(NodeRecord::retire(&**record.region()), Ok(Some(last)));
    assert_eq!(record.assign(), None);
    let next = |last: Assign| last.moved(last.site, Epoch::ZERO);
    let heir = self::record();
    assert_eq!(heir.succeed(&**record.region(), next), Ok(None), "given up for good");
    assert_eq!(heir.assign(), Some(Assign::FREE));
    assert_eq!(NodeRecord::retire(&**record.region()), Ok(None));
    assert!(matches!(NodeRecord::retire(&*region()), Err(LayoutError::WrongMagic { .. })));
}

/// An agent that was killed right after it had taken over left a tombstone and a region that
/// nobody held: the next agent began with the settings' assignment, as if nothing had moved.
#[test]
fn an_assignment_survives_successors_that_die_before_anybody_holds_them() {
    let old = record();
    let last = Assign { site: Some(site(3)), stamp: Epoch::new(1, 2), version: 5 };
    old.assign_word().store(last.pack(), Ordering::SeqCst);
    let next = |last: Assign| last.moved(last.site, Epoch::ZERO);
    for version in 6..9 {
        let successor = record();
        let first = Assign { site: Some(site(3)), stamp: Epoch::ZERO, version };
        assert_eq!(successor.succeed(&**old.region(), next), Ok(Some(first)));
        assert_eq!(successor.assign(), Some(first));
        assert_eq!(old.assign_word().load(Ordering::SeqCst), Assign::TOMBSTONE);
    }
    let noise = Arc::new(OwnedRegion::create("noise", NODE_REGION_BYTES).unwrap());
    assert!(record().succeed(&*noise, next).is_err());
}

#[test]
fn a_successor_loses_no_move_that_happens_meanwhile() {
    let old = record();
    let successor = record();
    let moved = Assign { site: Some(site(9)), stamp: Epoch::ZERO, version: 1 };
    let first = successor.succeed(&**old.region(), |last| {
        // An edge is faster: its swap succeeds between the reading and the tombstone.
        let word = old.assign_word();
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let free = Assign::FREE.pack();
        let _ = word.compare_exchange(free, moved.pack(), order.0, order.1);
        last.moved(last.site, Epoch::ZERO)
    });
    assert_eq!(first, Ok(Some(moved.moved(moved.site, Epoch::ZERO))));
    assert_eq!(successor.assign(), first.unwrap());
}

#[test]
fn a_warm_server_takes_requests_at_once_another_when_it_answers() {
    let record = record();
    let assign = Assign { site: Some(site(3)), stamp: Epoch::ZERO, version: 5 };
    assert!(!record.takes(site(3), assign));
    record.set_ready(Ready { version: 4, phase: Phase::Ready });
    assert!(!record.takes(site(3), assign));
    record.set_ready(Ready { version: 5, phase: Phase::Ready });
    assert!(record.takes(site(3), assign));
    assert!(!record.takes(site(4), assign));
    record.set_ready(Ready { version: 0, phase: Phase::Absent });
    record.set_warm(site(3), true);
    assert!(record.takes(site(3), assign));
    record.set_warm(site(3), false);
    assert!(!record.takes(site(3), assign));
}

#[test]
fn neighbours_do_not_overlap() {
    let record = record();
    for number in [1, 63, 64, 1_023] {
        record.set_warm(site(number), true);
        let server =
            Server { address: Ipv4Addr::LOCALHOST, port: number, phase: Phase::Ready, restarts: 1 };
        record.set_server(site(number), server);
    }
    let status = AgentStatus { run_queue_milli: 1, pid: 6, ..AgentStatus::default() };
    record.set_status(&status);
    record.beat_once(Duration::from_millis(7));
    record.ring();
    for number in 0..64 {
        let edge = EdgeId::new(number).unwrap();
        let lease = Lease { incarnation: u32::from(number) + 1, beat: 9 };
        record.lease_word(edge).store(lease.pack(), Ordering::SeqCst);
    }
    assert_eq!(record.status(), Ok(status));
    assert_eq!(record.beat_period(), Duration::from_millis(7));
    assert_eq!(record.wake_value(), 1);
    assert_eq!(record.assign(), Some(Assign::FREE));
    for number in [1, 63, 64, 1_023] {
        assert_eq!(record.server(site(number)).port, number);
        assert!(record.is_warm(site(number)));
    }
    assert!(!record.is_warm(site(2)));
    assert_eq!(record.lease(EdgeId::MAX).incarnation, 64);
    assert_eq!(record.check(), Ok(()));
}

proptest! {
    #[test]
    fn noise_in_a_region_never_panics(
        noise in proptest::collection::vec(any::<u64>(), 64),
        number in 1u16..=1_023,
    ) {
        let record = record();
        let words = record.region().words();
        for (index, word) in words.iter().enumerate().skip(usize::from(number) % 5) {
            word.store(noise[index % 64].rotate_left(index as u32), Ordering::Relaxed);
        }
        let _ = NodeRecord::open(Arc::clone(record.region()));
        let assign = record.assign().unwrap_or(Assign::FREE);
        let _ = (record.ready(), record.server(site(number)), record.takes(site(number), assign));
        let _ = (record.status(), record.beat_period(), record.is_warm(site(number)));
        let live = LiveEdges(u64::MAX);
        let _ = crate::slot::node_load(&record, live);
        let _ = crate::slot::server_load(&record, Some(site(number)), live);
        let _ = crate::slot::is_drained(&record, assign, live);
    }
}
