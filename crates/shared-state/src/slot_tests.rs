//! Limits over two edges, moves in between, and a naive twin.

use super::*;
use crate::words::Epoch;
use crate::{NODE_REGION_BYTES, NodeHeader};
use pool_model::NodeId;
use proptest::prelude::*;
use remote_memory::shm::OwnedRegion;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

const MAX: u32 = 8;

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

fn edge(number: u8) -> EdgeId {
    EdgeId::new(number).unwrap()
}

fn assign(number: u16, version: u32) -> Assign {
    Assign { site: Some(site(number)), stamp: Epoch::ZERO, version }
}

fn record(first: Assign) -> NodeRecord {
    let region = OwnedRegion::create("node-0", NODE_REGION_BYTES).unwrap();
    let header = NodeHeader { node: NodeId::MIN, max_in_flight: MAX };
    NodeRecord::publish(Arc::new(region), header, first).unwrap()
}

fn take(record: &NodeRecord, number: u8) -> NodeSlot {
    let lease = Lease { incarnation: u32::from(number) + 1, beat: 0 };
    NodeSlot::take(record.clone(), edge(number), 0, lease).unwrap()
}

fn move_to(record: &NodeRecord, assign: Assign) {
    record.assign_word().store(assign.pack(), Ordering::SeqCst);
}

const BOTH: LiveEdges = LiveEdges(0b11);

#[test]
fn two_edges_share_the_limit() {
    let record = record(assign(1, 1));
    let (mut a, mut b) = (take(&record, 0), take(&record, 1));
    for _ in 0..5 {
        assert_eq!(a.enter(assign(1, 1), MAX), Enter::Entered);
    }
    for _ in 0..3 {
        assert_eq!(b.enter(assign(1, 1), MAX), Enter::Entered);
    }
    assert_eq!(b.enter(assign(1, 1), MAX), Enter::Full);
    assert_eq!(a.enter(assign(1, 1), MAX), Enter::Full);
    a.leave(site(1), 1);
    assert_eq!(b.enter(assign(1, 1), MAX), Enter::Entered);
    assert_eq!(node_load(&record, BOTH), MAX);
}

#[test]
fn a_node_that_moved_takes_nothing_of_its_old_site() {
    let record = record(assign(1, 1));
    let mut slot = take(&record, 0);
    move_to(&record, assign(2, 2));
    assert_eq!(slot.enter(assign(1, 1), MAX), Enter::Moved(Some(assign(2, 2))));
    assert_eq!(node_load(&record, BOTH), 0);
    record.assign_word().store(Assign::TOMBSTONE, Ordering::SeqCst);
    assert_eq!(slot.enter(assign(1, 1), MAX), Enter::Moved(None));
}

#[test]
fn a_renewed_stamp_is_no_move() {
    let record = record(assign(1, 1));
    let mut slot = take(&record, 0);
    move_to(&record, assign(1, 1).renewed(Epoch::new(3, 4)));
    assert_eq!(slot.enter(assign(1, 1), MAX), Enter::Entered);
}

#[test]
fn requests_of_the_donor_are_load_but_leave_the_taker_its_room() {
    let record = record(assign(1, 1));
    let mut slot = take(&record, 0);
    for _ in 0..MAX {
        assert_eq!(slot.enter(assign(1, 1), MAX), Enter::Entered);
    }
    move_to(&record, assign(2, 2));
    slot.follow(assign(2, 2));
    assert!(!is_drained(&record, assign(2, 2), BOTH));
    assert_eq!(server_load(&record, Some(site(2)), BOTH), 0);
    for _ in 0..MAX {
        assert_eq!(slot.enter(assign(2, 2), MAX), Enter::Entered);
    }
    assert_eq!(node_load(&record, BOTH), 2 * MAX);
    for _ in 0..MAX {
        slot.leave(site(1), 1);
    }
    assert_eq!(node_load(&record, BOTH), MAX);
    assert!(is_drained(&record, assign(2, 2), BOTH));
}

#[test]
fn a_node_that_comes_back_still_counts_its_old_requests() {
    let record = record(assign(1, 1));
    let mut slot = take(&record, 0);
    for _ in 0..MAX {
        slot.enter(assign(1, 1), MAX);
    }
    for (number, version) in [(2, 2), (1, 3)] {
        move_to(&record, assign(number, version));
        slot.follow(assign(number, version));
    }
    assert_eq!(slot.enter(assign(1, 3), MAX), Enter::Full);
    slot.leave(site(1), 1);
    assert_eq!(slot.enter(assign(1, 3), MAX), Enter::Entered);
}

#[test]
fn the_count_of_a_dead_edge_vanishes_and_its_slot_is_taken() {
    let record = record(assign(1, 1));
    let (mut a, mut b) = (take(&record, 0), take(&record, 1));
    for _ in 0..MAX {
        a.enter(assign(1, 1), MAX);
    }
    assert_eq!(b.enter(assign(1, 1), MAX), Enter::Full);
    record.set_edge(edge(0), false);
    assert_eq!(b.enter(assign(1, 1), MAX), Enter::Entered);
    let left = record.lease_word(edge(0)).load(Ordering::SeqCst);
    let lease = Lease { incarnation: 99, beat: 0 };
    let refused = NodeSlot::take(record.clone(), edge(0), 0, lease).unwrap_err();
    assert_eq!(refused.found.incarnation, 1);
    NodeSlot::take(record.clone(), edge(0), left, lease).unwrap();
    assert_eq!(node_load(&record, BOTH), 1);
}

#[test]
fn what_is_in_flight_is_carried_into_a_new_region() {
    let old = record(assign(1, 1));
    let mut slot = take(&old, 0);
    for _ in 0..3 {
        slot.enter(assign(1, 1), MAX);
    }
    move_to(&old, assign(2, 2));
    slot.follow(assign(2, 2));
    slot.enter(assign(2, 2), MAX);
    let new = record(assign(2, 3));
    let mut next = take(&new, 0);
    next.carry(&slot.counts());
    assert_eq!(node_load(&new, BOTH), 4);
    assert_eq!(server_load(&new, Some(site(2)), BOTH), 1);
    assert_eq!(next.enter(assign(2, 3), 1), Enter::Full, "the old request still counts");
    for number in [1, 1, 2, 1] {
        next.leave_earlier(site(number));
    }
    assert_eq!(node_load(&new, BOTH), 0);
}

/// An edge that had just started was unknown to one that looked rarely: for a moment each of the
/// two filled the server by itself.
#[test]
fn an_edge_counts_from_the_moment_it_takes_its_slot() {
    let record = record(assign(1, 1));
    let mut old = take(&record, 0);
    let mut new = take(&record, 1);
    for _ in 0..MAX {
        assert_eq!(new.enter(assign(1, 1), MAX), Enter::Entered);
    }
    assert_eq!(old.enter(assign(1, 1), MAX), Enter::Full);
    record.set_edge(edge(1), false);
    assert_eq!(old.enter(assign(1, 1), MAX), Enter::Entered);
    new.beat();
    assert_eq!(old.enter(assign(1, 1), MAX), Enter::Full, "it was alive after all");
}

#[test]
fn live_edges_are_a_set() {
    let live = LiveEdges::default().with(edge(0)).with(edge(63)).with(edge(5));
    let numbers: Vec<_> = live.iter().map(EdgeId::get).collect();
    assert_eq!(numbers, [0, 5, 63]);
    assert_eq!(live.without(edge(5)).iter().count(), 2);
}

#[test]
fn the_server_never_has_more_than_the_limit_whatever_two_edges_do() {
    let record = record(assign(1, 1));
    let at_server = AtomicU32::new(0);
    let peak = AtomicU32::new(0);
    let sent = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (record, at_server, peak, sent) = (&record, &at_server, &peak, &sent);
            scope.spawn(move || {
                let mut slot = take(record, number);
                let mut held = 0;
                for turn in 0..200_000_u32 {
                    if turn % 3 != 0 && slot.enter(assign(1, 1), MAX) == Enter::Entered {
                        peak.fetch_max(
                            at_server.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        sent.fetch_add(1, Ordering::SeqCst);
                        held += 1;
                    } else if held > 0 {
                        at_server.fetch_sub(1, Ordering::SeqCst);
                        slot.leave(site(1), 1);
                        held -= 1;
                    }
                }
                for _ in 0..held {
                    at_server.fetch_sub(1, Ordering::SeqCst);
                    slot.leave(site(1), 1);
                }
            });
        }
    });
    assert!(peak.load(Ordering::SeqCst) <= MAX);
    assert!(sent.load(Ordering::SeqCst) > 1_000);
    assert_eq!(node_load(&record, BOTH), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Enter,
    Leave(usize),
    Move(u16),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Enter),
        3 => any::<usize>().prop_map(Step::Leave),
        1 => (1u16..8).prop_map(Step::Move),
    ]
}

proptest! {
    /// Against a naive twin: a plain list of what is in flight, with its site and version.
    #[test]
    fn counts_agree_with_a_list(steps in proptest::collection::vec(any_step(), 0..200)) {
        let mut here = assign(1, 1);
        let record = record(here);
        let mut slot = take(&record, 0);
        let mut list: Vec<(SiteId, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Enter => {
                    let in_flight = list.iter().filter(|(s, _)| Some(*s) == here.site).count();
                    let entered = slot.enter(here, MAX) == Enter::Entered;
                    // The overflow word may count another site's requests against this one.
                    prop_assert!(!entered || in_flight < MAX as usize);
                    if entered {
                        list.push((here.site.unwrap(), here.version));
                    }
                }
                Step::Leave(which) if !list.is_empty() => {
                    let (site, version) = list.swap_remove(which % list.len());
                    slot.leave(site, version);
                }
                Step::Leave(_) => {}
                Step::Move(number) => {
                    here = here.moved(Some(site(number)), Epoch::ZERO);
                    move_to(&record, here);
                    slot.follow(here);
                }
            }
            prop_assert_eq!(node_load(&record, BOTH), list.len() as u32);
        }
        while let Some((site, version)) = list.pop() {
            slot.leave(site, version);
        }
        prop_assert_eq!(node_load(&record, BOTH), 0);
    }
}

/// Edges that each see a copy of the record, brought up to date at their looks only.
struct Apart {
    real: NodeRecord,
    edges: Vec<(NodeSlot, Vec<AtomicU64>, u32)>,
}

impl Apart {
    fn new(edges: u8) -> Self {
        let real = record(assign(1, 1));
        for number in 0..edges {
            real.set_edge(edge(number), true);
        }
        let copy = |number: u8| {
            let copy = record(assign(1, 1));
            let slot = take(&copy, number);
            let told = (0..LINE_WORDS).map(|_| AtomicU64::new(0)).collect();
            (slot, told, 0)
        };
        let mut apart = Self { real, edges: (0..edges).map(copy).collect() };
        (0..edges).for_each(|number| apart.look(number));
        apart
    }

    fn look(&mut self, number: u8) {
        self.publish(number);
        let (slot, told, limit) = &mut self.edges[usize::from(number)];
        let copy = slot.record().clone();
        for other in self.real.edges().iter().filter(|&other| other != edge(number)) {
            copy.set_edge(other, true);
            for (to, from) in copy.slot(other).iter().zip(self.real.slot(other)) {
                to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
            }
        }
        for (to, from) in told.iter().zip(self.real.slot(edge(number))) {
            to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        *limit = fair_limit(&copy, site(1), edge(number), told, MAX);
    }

    fn publish(&self, number: u8) {
        let own = self.edges[usize::from(number)].0.record().slot(edge(number));
        for (to, from) in self.real.slot(edge(number)).iter().zip(own) {
            to.store(from.load(Ordering::SeqCst), Ordering::SeqCst);
        }
    }

    fn enter(&mut self, number: u8) -> bool {
        let (slot, _, limit) = &mut self.edges[usize::from(number)];
        slot.enter(assign(1, 1), *limit) == Enter::Entered
    }

    fn leave(&mut self, number: u8) {
        self.edges[usize::from(number)].0.leave(site(1), 1);
    }

    fn counts(&self) -> Vec<u32> {
        self.edges.iter().map(|(slot, ..)| slot.in_flight()).collect()
    }
}

#[test]
fn edges_that_look_in_turn_go_beyond_the_limit_by_rounding_only() {
    for edges in 1..=5 {
        let mut apart = Apart::new(edges);
        for _ in 0..10 {
            for number in 0..edges {
                while apart.enter(number) {}
            }
            for number in 0..edges {
                apart.publish(number);
            }
            (0..edges).for_each(|number| apart.look(number));
        }
        let sum: u32 = apart.counts().iter().sum();
        assert!((MAX..MAX + u32::from(edges)).contains(&sum), "{edges} edges: {sum}");
    }
}

#[test]
fn one_busy_edge_gets_all_the_room_in_a_few_looks() {
    let mut apart = Apart::new(3);
    let mut looks = 0;
    while apart.counts()[1] < MAX {
        while apart.enter(1) {}
        apart.look(1);
        looks += 1;
        assert!(looks < 10, "{:?}", apart.counts());
    }
    assert!(!apart.enter(1), "and no more");
}

proptest! {
    #[test]
    fn looks_at_any_time_keep_all_edges_within_what_a_look_can_know(
        edges in 2_u8..=4,
        steps in proptest::collection::vec((0_u8..4, 0_u8..6), 1..400),
    ) {
        let mut apart = Apart::new(edges);
        let part = MAX.div_ceil(u32::from(edges));
        for (number, what) in steps {
            let number = number % edges;
            match what {
                0 => apart.look(number),
                1 => apart.leave(number),
                _ => {
                    apart.enter(number);
                }
            }
            let counts = apart.counts();
            let sum: u32 = counts.iter().sum();
            prop_assert!(sum <= MAX + (u32::from(edges) - 1) * part, "{counts:?}");
            prop_assert!(counts.iter().all(|&count| count <= MAX), "{counts:?}");
        }
    }
}
