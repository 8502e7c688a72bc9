//! Packing there and back, noise, and the layout itself.

use super::*;
use proptest::prelude::*;

fn any_site() -> impl Strategy<Value = Option<SiteId>> {
    (0u16..=1_023).prop_map(|number| SiteId::new(number).ok())
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    (0u32..=0x00ff_ffff).prop_map(Epoch::from_bits)
}

fn any_departure() -> impl Strategy<Value = Option<Departure>> {
    proptest::option::of((0u16..=16_381, any_site(), any::<u8>()).prop_map(|(node, taker, low)| {
        Departure { node: NodeId::new(node).unwrap(), taker, version_low: low }
    }))
}

proptest! {
    #[test]
    fn assign_survives_memory(site in any_site(), stamp in any_epoch(), version in 0u32..1 << 30) {
        let word = Assign { site, stamp, version };
        // A word of site 1,023, the newest stamp and the last version is the tombstone.
        prop_assume!(word.pack() != Assign::TOMBSTONE);
        prop_assert_eq!(Assign::unpack(word.pack()), Some(word));
    }

    #[test]
    fn depart_survives_memory(epoch in any_epoch(), sequence: u8, pending in any_departure()) {
        let word = Depart { epoch, sequence, pending };
        prop_assert_eq!(Depart::unpack(word.pack()), word);
    }

    #[test]
    fn noise_never_panics(word: u64) {
        let _ = Assign::unpack(word);
        let _ = Depart::unpack(word);
        let _ = Arrive::unpack(word);
        let _ = Floor::unpack(word);
        let _ = Server::unpack(word);
        let _ = Earlier::unpack(word);
        prop_assert_eq!(Lease::unpack(word).pack(), word);
        prop_assert_eq!(Floor::unpack(word).pack(), word);
    }

    #[test]
    fn counts_survive_memory(
        version in 0u32..1 << 30,
        in_flight in 0u32..1 << 24,
        site in any_site(),
    ) {
        let current = Current { version, in_flight };
        prop_assert_eq!(Current::unpack(current.pack()), current);
        let earlier = Earlier { site, in_flight };
        prop_assert_eq!(Earlier::unpack(earlier.pack()), earlier);
    }

    #[test]
    fn next_epoch_is_newer(epoch in any_epoch(), nonce: u32) {
        prop_assert!(epoch.next(nonce).is_newer_than(epoch));
        prop_assert!(!epoch.is_newer_than(epoch.next(nonce)));
    }

    #[test]
    fn of_two_epochs_one_is_newer(a in any_epoch(), b in any_epoch()) {
        // Exactly half a round apart there is no order; that is excluded by rate.
        prop_assume!((a.counter() ^ b.counter()) != 1 << 11 || a.counter() == b.counter());
        let half = (a.counter().wrapping_sub(b.counter())) & 0xfff == 1 << 11;
        prop_assume!(!half);
        prop_assert_eq!(a != b, a.is_newer_than(b) != b.is_newer_than(a));
    }

    #[test]
    fn server_survives_memory(address: u32, port: u16, phase in 0usize..5, restarts in 0u16..4096) {
        let phase = Phase::ALL[phase];
        let server = Server { address: address.into(), port, phase, restarts };
        prop_assert_eq!(Server::unpack(server.pack()), server);
    }
}

#[test]
fn a_claim_counts_one_and_tells_who_and_why() {
    let edge = EdgeId::new(63).unwrap();
    let word = Arrive::NONE.claimed(edge, Reason::Floor);
    assert_eq!(Arrive::unpack(word.pack()), word);
    assert_eq!((word.counter, word.claimer, word.reason), (1, Some(edge), Some(Reason::Floor)));
    let first = Arrive::NONE.claimed(EdgeId::MIN, Reason::Admin);
    assert_eq!(Arrive::unpack(first.pack()), first);
}

#[test]
fn a_sequence_ends_after_255_departures() {
    let departure = Departure { node: NodeId::MIN, taker: None, version_low: 0 };
    let mut word = Depart::opened(Epoch::new(1, 7));
    for _ in 0..255 {
        word = word.installed(departure).unwrap().closed();
    }
    assert_eq!(word.installed(departure), None);
}

#[test]
fn a_tombstone_is_no_assignment() {
    assert_eq!(Assign::unpack(u64::MAX), None);
    assert_eq!(Assign::unpack(Assign::FREE.pack()), Some(Assign::FREE));
}

#[test]
fn the_layout_is_fixed() {
    let site = SiteId::new(3).unwrap();
    let stamp = Epoch::new(1, 2);
    let assign = Assign { site: Some(site), stamp, version: 5 };
    assert_eq!(assign.pack(), 3 << 54 | (1 << 12 | 2) << 30 | 5);
    let node = NodeId::new(9).unwrap();
    let pending = Some(Departure { node, taker: Some(site), version_low: 5 });
    let depart = Depart { epoch: stamp, sequence: 4, pending };
    assert_eq!(depart.pack(), (1 << 12 | 2) << 40 | 4 << 32 | 9 << 18 | 3 << 8 | 5);
    assert_eq!(Depart::opened(stamp).pack(), (1 << 12 | 2) << 40 | 0x3fff << 18);
    assert_eq!(Floor { settings_version: 1, hard: 2, max: 3 }.pack(), 1 << 32 | 2 << 16 | 3);
    assert_eq!(Lease { incarnation: 1, beat: 2 }.pack(), 1 << 32 | 2);
    assert_eq!(Current { version: 1, in_flight: 2 }.pack(), 1 << 24 | 2);
}
