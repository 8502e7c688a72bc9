//! Each property notices what breaks it.

use super::*;
use shared_state::words::{Departure, Epoch};

const HOLD_NS: u64 = 60_000_000;
/// After it a loaded site counts as overloaded.
const LONG_NS: u64 = LOADED_HOLDS * HOLD_NS;

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

fn monitor() -> Monitor {
    let rules = Rules { hold_ns: HOLD_NS, failure_counts_ns: 1_000_000_000 };
    Monitor::new(rules, vec![1, 2], 4)
}

fn assign(at: Option<SiteId>, version: u32) -> u64 {
    Assign { site: at, stamp: Epoch::ZERO, version }.pack()
}

/// Moves a node of site `from` whose version is `version`.
fn go(monitor: &mut Monitor, now_ns: u64, (from, to): (u16, u16), version: u32, alive: u16) {
    let words = (assign(Some(site(from)), version), assign(Some(site(to)), version + 1));
    monitor.claimed(site(to));
    assert!(monitor.swapped(now_ns, NodeId::MIN, words, |_| alive));
}

#[test]
fn a_floor_is_broken_by_a_move_and_not_by_a_node_that_died_just_now() {
    let mut fine = monitor();
    go(&mut fine, 10, (2, 1), 0, 2);
    assert_eq!(fine.violations_total, 0);
    let mut broken = monitor();
    go(&mut broken, 10, (2, 1), 0, 1);
    assert!(broken.violations[0].what.contains("below hard = 2"), "{broken:?}");
    let mut died = monitor();
    died.node_failed(5, NodeId::new(1).unwrap(), Some(site(2)));
    go(&mut died, 10, (2, 1), 0, 1);
    assert_eq!(died.violations_total, 0);
    let mut long_ago = monitor();
    long_ago.node_failed(5, NodeId::new(1).unwrap(), Some(site(2)));
    go(&mut long_ago, 2_000_000_000, (2, 1), 0, 1);
    assert_eq!(long_ago.violations_total, 1);
}

#[test]
fn versions_grow_by_one_with_each_site() {
    let mut monitor = monitor();
    go(&mut monitor, 1, (2, 1), 0, 9);
    // A renewal keeps the version.
    let old = Assign::unpack(assign(Some(site(1)), 1)).unwrap();
    let renewed = old.renewed(Epoch::new(1, 1)).pack();
    assert!(!monitor.swapped(2, NodeId::MIN, (old.pack(), renewed), |_| 9));
    assert_eq!(monitor.violations_total, 0);
    monitor.claimed(site(2));
    let words = (assign(Some(site(1)), 1), assign(Some(site(2)), 1));
    assert!(monitor.swapped(3, NodeId::MIN, words, |_| 9));
    assert!(monitor.violations[0].what.contains("version 1 is followed by 1"), "{monitor:?}");
}

#[test]
fn a_move_without_a_claim_is_one_too_many() {
    let mut monitor = monitor();
    let words = (assign(Some(site(2)), 0), assign(Some(site(1)), 1));
    assert!(monitor.swapped(3, NodeId::MIN, words, |_| 9));
    assert!(monitor.violations[0].what.contains("1 moves, but 0 claims"), "{monitor:?}");
}

#[test]
fn a_departure_to_the_donor_itself_is_nonsense() {
    let mut monitor = monitor();
    let departure = |taker| Departure { node: NodeId::MIN, taker, version_low: 0 };
    let word =
        |taker| Depart { pending: Some(departure(taker)), ..Depart::opened(Epoch::new(1, 1)) };
    monitor.described(1, site(1), word(Some(site(2))).pack());
    monitor.described(1, site(1), 0);
    assert_eq!(monitor.violations_total, 0);
    monitor.described(1, site(1), word(Some(site(1))).pack());
    assert_eq!(monitor.violations_total, 1);
}

/// Both sites loaded from the start; the node goes and comes back a little later.
fn there_and_back(between: impl Fn(&mut Monitor), after_ns: u64) -> u64 {
    let mut monitor = monitor();
    monitor.loaded(0, site(1), true);
    monitor.loaded(0, site(2), true);
    go(&mut monitor, LONG_NS, (2, 1), 0, 9);
    between(&mut monitor);
    go(&mut monitor, LONG_NS + after_ns, (1, 2), 1, 9);
    monitor.violations_total
}

#[test]
fn ping_pong_between_loaded_sites_is_seen() {
    assert_eq!(there_and_back(|_| {}, HOLD_NS), 1);
    assert_eq!(there_and_back(|_| {}, 11 * HOLD_NS), 0, "much later things are different");
    assert_eq!(there_and_back(|monitor| monitor.loaded(LONG_NS, site(2), false), HOLD_NS), 0);
    assert_eq!(there_and_back(|monitor| monitor.disturbed(LONG_NS + 1), HOLD_NS), 0);
    let died = |monitor: &mut Monitor| {
        monitor.node_failed(LONG_NS + 1, NodeId::new(3).unwrap(), Some(site(2)));
    };
    assert_eq!(there_and_back(died, HOLD_NS), 0);
}

#[test]
fn a_need_that_nobody_meets_is_told_once() {
    let mut monitor = monitor();
    for look in 0..=PROGRESS_HOLDS {
        monitor.unmet(look * HOLD_NS, site(1), true);
    }
    assert_eq!(monitor.violations_total, 0);
    monitor.unmet((PROGRESS_HOLDS + 1) * HOLD_NS, site(1), true);
    assert!(monitor.violations[0].what.contains("none came"), "{monitor:?}");
    assert_eq!(monitor.violations_total, 1);
    // One that was met, or whose fault is in play, is not.
    let mut met = self::monitor();
    for look in 0..4 * PROGRESS_HOLDS {
        met.unmet(look * HOLD_NS, site(1), look % PROGRESS_HOLDS != 0);
    }
    assert_eq!(met.violations_total, 0);
}
