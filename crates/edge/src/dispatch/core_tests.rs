//! The core over real shared memory, with one edge and with two.

use super::*;
use moves::looper::Link;
use proptest::prelude::*;
use remote_memory::shm::OwnedRegion;
use shared_state::slot::{self, LiveEdges};
use shared_state::words::{Epoch, Lease, Phase, Server};
use shared_state::{NODE_REGION_BYTES, NodeHeader};
use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) const MAX: u32 = 8;
pub(super) const NOW: Duration = Duration::from_secs(1);
const BOTH: LiveEdges = LiveEdges(0b11);
/// The site whose servers start slowly.
pub(super) const SLOW: u16 = 4;
pub(super) const SLOW_START: Duration = Duration::from_secs(8);
pub(super) const STICK_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Somebody(pub(super) usize, pub(super) Rc<Cell<bool>>);

impl Waiter for Somebody {
    fn is_gone(&self) -> bool {
        self.1.get()
    }
}

pub(super) type Out = Vec<(Somebody, Grant)>;

pub(super) fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

pub(super) fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

fn edge(number: u8) -> EdgeId {
    EdgeId::new(number).unwrap()
}

pub(super) fn assign(number: u16, version: u32) -> Assign {
    Assign { site: SiteId::new(number).ok(), stamp: Epoch::ZERO, version }
}

/// A node of this site whose servers of sites 1 to 4 all answer.
pub(super) fn record(number: u16, at: u16) -> NodeRecord {
    let region = OwnedRegion::create("node", NODE_REGION_BYTES).unwrap();
    let header = NodeHeader { node: node(number), max_in_flight: MAX };
    let record = NodeRecord::publish(Arc::new(region), header, assign(at, 1)).unwrap();
    for number in 1..=4 {
        let server =
            Server { address: Ipv4Addr::LOCALHOST, port: number, phase: Phase::Ready, restarts: 0 };
        record.set_server(site(number), server);
        record.set_warm(site(number), true);
    }
    record
}

pub(super) fn core(number: u8, records: &[NodeRecord], queue_max: usize) -> Core<Somebody> {
    let sites = (1..=4)
        .map(|number| SiteRules {
            site: site(number),
            queue_max,
            stick_wait: STICK_WAIT,
            slow_start: if number == SLOW { SLOW_START } else { Duration::ZERO },
            ..SiteRules::new(site(number))
        })
        .collect();
    let options = DispatchOptions {
        edge: edge(number),
        incarnation: u32::from(number) + 1,
        sites,
        health: HealthOptions::default(),
    };
    let mut core = Core::new(&options);
    for record in records {
        let lease = Lease { incarnation: options.incarnation, beat: 0 };
        core.attach(NodeSlot::take(record.clone(), edge(number), 0, lease).unwrap());
    }
    look(&mut core, records, &[]);
    core
}

pub(super) fn look(core: &mut Core<Somebody>, records: &[NodeRecord], sites: &[SiteSeen]) -> Out {
    look_at(core, records, sites, NOW, |_| true)
}

fn seen(record: &NodeRecord) -> NodeSeen {
    NodeSeen { assign: record.assign(), open: true, link: Link::Mapped, limit: MAX }
}

pub(super) fn look_at(
    core: &mut Core<Somebody>,
    records: &[NodeRecord],
    sites: &[SiteSeen],
    now: Duration,
    open: impl Fn(usize) -> bool,
) -> Out {
    let places = records.iter().enumerate();
    let seen: Vec<_> = places
        .map(|(place, record)| Some(NodeSeen { open: open(place), ..seen(record) }))
        .collect();
    let mut out = Vec::new();
    core.looked(&seen, sites, now, &mut out);
    out
}

pub(super) fn ask(core: &mut Core<Somebody>, number: u16) -> Outcome {
    core.request(site(number), Ask::default(), NOW, || Somebody(0, Rc::default()))
}

fn avoid(avoid: &[NodeId]) -> Ask<'_> {
    Ask { avoid, ..Ask::default() }
}

pub(super) fn granted(outcome: Outcome) -> Grant {
    match outcome {
        Outcome::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub(super) fn leave(core: &mut Core<Somebody>, grant: &Grant) -> Out {
    let mut out = Vec::new();
    core.leave(grant, NOW, &mut out);
    out
}

#[test]
fn requests_spread_and_then_wait_in_order() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 2);
    let grants: Vec<_> = (0..2 * MAX).map(|_| granted(ask(&mut core, 1))).collect();
    for number in 0..2 {
        assert_eq!(grants.iter().filter(|g| g.node == node(number)).count(), MAX as usize);
    }
    for who in 0..2 {
        let outcome = core.request(site(1), Ask::default(), NOW, || Somebody(who, Rc::default()));
        assert_eq!(outcome, Outcome::Queued { first: who == 0 });
    }
    assert_eq!(ask(&mut core, 1), Outcome::Refused(Refusal::QueueFull));
    let out = leave(&mut core, &grants[3]);
    assert_eq!((out.len(), out[0].0.0, out[0].1.node), (1, 0, grants[3].node));
    assert_eq!(leave(&mut core, &grants[4])[0].0.0, 1);
    assert_eq!(core.totals(), (0, u64::from(2 * MAX)));
}

#[test]
fn who_gave_up_waiting_is_passed_over_and_leaves_room_in_the_queue() {
    let records = [record(0, 1)];
    let mut core = core(0, &records, 2);
    let grants: Vec<_> = (0..MAX).map(|_| granted(ask(&mut core, 1))).collect();
    let gone = Rc::new(Cell::new(false));
    core.request(site(1), Ask::default(), NOW, || Somebody(7, Rc::clone(&gone)));
    core.request(site(1), Ask::default(), NOW, || Somebody(8, Rc::default()));
    gone.set(true);
    let third = core.request(site(1), Ask::default(), NOW, || Somebody(9, Rc::default()));
    assert_eq!(third, Outcome::Queued { first: false });
    assert_eq!(core.demand()[0], EdgeDemand { queued: 2, in_flight: MAX });
    assert_eq!(leave(&mut core, &grants[0])[0].0.0, 8);
}

#[test]
fn a_node_that_comes_takes_from_the_queue_at_once() {
    let records = [record(0, 1), record(1, 2)];
    let mut core = core(0, &records, 100);
    for _ in 0..MAX + 5 {
        ask(&mut core, 1);
    }
    let now = assign(1, 2);
    records[1].assign_word().store(now.pack(), Ordering::SeqCst);
    let mut out = Vec::new();
    core.moved(node(1), now, MAX, NOW, &mut out);
    assert_eq!(out.len(), 5);
    assert!(out.iter().all(|(_, grant)| grant.node == node(1) && grant.version == 2));
    let first = FirstDispatch { node: node(1), version: 2, at: NOW };
    assert_eq!(core.take_first(), [first]);
    assert!(core.take_first().is_empty());
}

#[test]
fn a_node_that_went_takes_nothing_more_even_before_the_look() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 100);
    records[0].assign_word().store(assign(2, 2).pack(), Ordering::SeqCst);
    for _ in 0..MAX {
        assert_eq!(granted(ask(&mut core, 1)).node, node(1));
    }
    assert!(matches!(ask(&mut core, 1), Outcome::Queued { .. }));
    look(&mut core, &records, &[]);
    assert_eq!(granted(ask(&mut core, 2)).node, node(0));
}

#[test]
fn a_node_has_left_a_site_once_it_is_seen_elsewhere() {
    let records = [record(0, 1)];
    let mut core = core(0, &records, 100);
    assert!(!core.has_left(site(1), node(0)) && core.has_left(site(2), node(0)));
    assert!(!core.has_left(site(1), node(7)), "nothing is known of a node that is not seen");
    records[0].assign_word().store(assign(2, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    assert!(core.has_left(site(1), node(0)) && !core.has_left(site(2), node(0)));
}

#[test]
fn requests_in_flight_across_a_move_are_counted_out_where_they_were_counted_in() {
    let records = [record(0, 1)];
    let mut core = core(0, &records, 100);
    let old = granted(ask(&mut core, 1));
    records[0].assign_word().store(assign(2, 2).pack(), Ordering::SeqCst);
    look(&mut core, &records, &[]);
    let new = granted(ask(&mut core, 2));
    assert_eq!(slot::node_load(&records[0], BOTH), 2);
    leave(&mut core, &old);
    assert_eq!(slot::server_load(&records[0], Some(site(2)), BOTH), 1);
    leave(&mut core, &new);
    assert_eq!(slot::node_load(&records[0], BOTH), 0);
}

#[test]
fn requests_in_flight_are_carried_into_a_new_region_of_their_node() {
    let mut records = [record(0, 1)];
    let mut core = core(0, &records, 100);
    let old = granted(ask(&mut core, 1));
    records[0].assign_word().store(Assign::TOMBSTONE, Ordering::SeqCst);
    look(&mut core, &records, &[]);
    assert!(matches!(ask(&mut core, 1), Outcome::Queued { first: true }));
    records[0] = record(0, 1);
    let lease = Lease { incarnation: 1, beat: 0 };
    core.attach(NodeSlot::take(records[0].clone(), edge(0), 0, lease).unwrap());
    assert_eq!(look(&mut core, &records, &[]).len(), 1);
    assert_eq!(slot::node_load(&records[0], BOTH), 2);
    leave(&mut core, &old);
    assert_eq!(slot::node_load(&records[0], BOTH), 1);
}

#[test]
fn two_edges_never_pass_the_limit_and_share_room_by_demand() {
    let records = [record(0, 1)];
    let (mut a, mut b) = (core(0, &records, 100), core(1, &records, 100));
    let mut grants: Vec<_> = (0..MAX).map(|_| granted(ask(&mut a, 1))).collect();
    for _ in 0..MAX {
        ask(&mut a, 1);
        ask(&mut b, 1);
    }
    // a has 8 in flight and 8 waiting, b has 8 waiting: b may have a third of the room.
    let (some, more) = (u64::from(MAX), u64::from(2 * MAX));
    let of_b = SiteSeen { others_demand: some, others_queued: some, others_starving: 1 };
    let of_a = SiteSeen { others_demand: more, others_queued: some, others_starving: 0 };
    look(&mut a, &records, &[of_b]);
    assert!(look(&mut b, &records, &[of_a]).is_empty());
    let before = slot::node_load(&records[0], BOTH);
    assert_eq!(before, MAX);
    for _ in 0..2 {
        assert!(leave(&mut a, &grants.pop().unwrap()).is_empty());
    }
    assert_eq!(look(&mut b, &records, &[of_a]).len(), 2);
    assert_eq!(slot::node_load(&records[0], BOTH), MAX);
    // Below its part, a goes on by itself.
    assert_eq!(leave(&mut a, &grants.pop().unwrap()).len(), 1);
}

/// Once an edge with one request waited for five seconds beside two busy edges of a loaded site:
/// parts are rounded up, theirs were all the room there was, and they took every place that came
/// free before a look of the third could see it.
#[test]
fn an_edge_with_one_request_gets_a_place_beside_one_with_very_many() {
    let records = [record(0, 1)];
    let (mut a, mut b) = (core(0, &records, 1_000), core(1, &records, 1_000));
    let mut grants: Vec<_> = (0..MAX).map(|_| granted(ask(&mut a, 1))).collect();
    for _ in 0..100 * MAX {
        ask(&mut a, 1);
    }
    ask(&mut b, 1);
    let seen = |demand: EdgeDemand| SiteSeen {
        others_demand: demand.total(),
        others_queued: demand.queued.into(),
        others_starving: demand.is_starving().into(),
    };
    let of = |core: &mut Core<_>| [seen(core.demand()[site(1).index()])];
    let of_b = of(&mut b);
    assert!(look(&mut a, &records, &of_b).is_empty());
    assert!(leave(&mut a, &grants.pop().unwrap()).is_empty(), "the place is left to b");
    assert!(!leave(&mut a, &grants.pop().unwrap()).is_empty(), "and only one");
    let of_a = of(&mut a);
    assert_eq!(look(&mut b, &records, &of_a).len(), 1);
    // b starves no more: all the rest is a's.
    let of_b = of(&mut b);
    look(&mut a, &records, &of_b);
    assert_eq!(slot::node_load(&records[0], BOTH), MAX);
}

#[test]
fn a_server_that_fails_in_a_row_is_left_out_and_the_last_one_never() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 100);
    let bad = granted(ask(&mut core, 1));
    for _ in 0..3 {
        core.report(&bad, Verdict::ConnectFailed, NOW);
    }
    for _ in 0..4 {
        assert_ne!(granted(ask(&mut core, 1)).node, bad.node);
    }
    let other = granted(ask(&mut core, 1));
    for _ in 0..3 {
        core.report(&other, Verdict::TimedOut, NOW);
    }
    assert!(matches!(ask(&mut core, 1), Outcome::Granted(_)));
}

#[test]
fn a_node_that_failed_this_request_is_avoided_while_there_is_another() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 100);
    for _ in 0..4 {
        let outcome = core.request(site(1), avoid(&[node(0)]), NOW, || Somebody(0, Rc::default()));
        assert_eq!(granted(outcome).node, node(1));
    }
    let both = [node(0), node(1)];
    let outcome = core.request(site(1), avoid(&both), NOW, || Somebody(0, Rc::default()));
    granted(outcome);
}

#[test]
fn a_site_that_nobody_knows_is_refused() {
    let mut core = core(0, &[], 10);
    assert_eq!(ask(&mut core, 9), Outcome::Refused(Refusal::NoServer));
    assert_eq!(ask(&mut core, 1), Outcome::Queued { first: true });
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u16),
    Leave(usize),
    Move(usize, u16),
    Look(usize),
    GiveUp(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..2, 1u16..4).prop_map(|(e, s)| Step::Ask(e, s)),
        4 => any::<usize>().prop_map(Step::Leave),
        1 => (0usize..3, 1u16..4).prop_map(|(n, s)| Step::Move(n, s)),
        2 => (0usize..2).prop_map(Step::Look),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ]
}

/// Two edges over the same memory, and everything that is under way.
struct World {
    records: [NodeRecord; 3],
    cores: [Core<Somebody>; 2],
    in_flight: Vec<(usize, Grant)>,
    waiting: Vec<Somebody>,
    asked: usize,
    let_go: usize,
    refused: usize,
}

impl World {
    fn new() -> Self {
        let records = [record(0, 1), record(1, 2), record(2, 3)];
        let cores = [core(0, &records, 20), core(1, &records, 20)];
        let (in_flight, waiting) = (Vec::new(), Vec::new());
        Self { records, cores, in_flight, waiting, asked: 0, let_go: 0, refused: 0 }
    }

    fn settle(&mut self, which: usize, out: Out) {
        self.let_go += out.len();
        self.in_flight.extend(out.into_iter().map(|(_, grant)| (which, grant)));
    }

    fn look(&mut self, which: usize) {
        let seen = |demand: &EdgeDemand| SiteSeen {
            others_demand: demand.total(),
            others_queued: demand.queued.into(),
            others_starving: demand.is_starving().into(),
        };
        let others: Vec<_> = self.cores[1 - which].demand().iter().map(seen).collect();
        let out = look(&mut self.cores[which], &self.records, &others);
        self.settle(which, out);
    }

    fn leave(&mut self, place: usize) {
        let (which, grant) = self.in_flight.swap_remove(place);
        let out = leave(&mut self.cores[which], &grant);
        self.settle(which, out);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask(which, number) => {
                self.asked += 1;
                let me = Somebody(self.asked, Rc::default());
                match self.cores[which].request(site(number), Ask::default(), NOW, || me.clone()) {
                    Outcome::Granted(grant) => self.settle(which, vec![(me, grant)]),
                    Outcome::Queued { .. } => self.waiting.push(me),
                    Outcome::Refused(_) => self.refused += 1,
                }
            }
            Step::Leave(which) if !self.in_flight.is_empty() => {
                self.leave(which % self.in_flight.len());
            }
            Step::Move(which, number) => {
                let now = self.records[which].assign().unwrap();
                let then = now.moved(Some(site(number)), Epoch::ZERO);
                self.records[which].assign_word().store(then.pack(), Ordering::SeqCst);
            }
            Step::Look(which) => self.look(which),
            Step::GiveUp(which) if !self.waiting.is_empty() => {
                self.waiting[which % self.waiting.len()].1.set(true);
            }
            Step::Leave(_) | Step::GiveUp(_) => {}
        }
    }

    /// The most that any server has.
    fn peak(&self) -> usize {
        let at = |number: u16, node: NodeId| {
            let here = |g: &Grant| g.site == site(number) && g.node == node;
            self.in_flight.iter().filter(|(_, grant)| here(grant)).count()
        };
        let nodes = || self.records.iter().map(|record| record.header().node);
        (1..4).flat_map(|number| nodes().map(move |node| at(number, node))).max().unwrap()
    }

    /// All requests leave, and whoever waits follows them.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.in_flight.is_empty() {
                (0..2).for_each(|which| self.look(which));
            }
            if self.in_flight.is_empty() {
                return;
            }
            self.leave(0);
        }
    }

    fn queued(&mut self) -> usize {
        let queued = |core: &mut Core<Somebody>| -> u32 {
            core.demand().iter().map(|demand| demand.queued).sum()
        };
        self.cores.iter_mut().map(queued).sum::<u32>() as usize
    }
}

proptest! {
    /// Whatever happens, no server has more than its limit, every request is let go at most once,
    /// and at the end nothing is left in flight.
    #[test]
    fn limits_hold_and_nothing_is_lost(steps in proptest::collection::vec(any_step(), 1..300)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            prop_assert!(world.peak() <= MAX as usize);
        }
        world.finish();
        prop_assert!(world.in_flight.is_empty());
        for record in &world.records {
            prop_assert_eq!(slot::node_load(record, BOTH), 0);
        }
        let left = world.queued();
        let gone = world.waiting.iter().filter(|waiter| waiter.1.get()).count();
        let ended = world.let_go + world.refused + left;
        prop_assert!(ended <= world.asked && ended + gone >= world.asked);
    }
}

#[test]
fn no_more_than_a_look_allows_is_sent_to_a_node_elsewhere() {
    let records = [record(0, 1)];
    let mut core = core(0, &records, 10);
    let mut limited = seen(&records[0]);
    (limited.link, limited.limit) = (Link::Mirrored, 3);
    let mut out = Vec::new();
    core.looked(&[Some(limited)], &[], NOW, &mut out);
    let grants: Vec<_> = (0..3).map(|_| granted(ask(&mut core, 1))).collect();
    assert!(matches!(ask(&mut core, 1), Outcome::Queued { .. }));
    assert_eq!(leave(&mut core, &grants[0]).len(), 1, "who waits takes the place");
}

#[test]
fn a_node_that_does_not_answer_gets_new_requests_only_if_there_is_no_other() {
    let records = [record(0, 1), record(1, 1)];
    let mut core = core(0, &records, 10);
    let mut told: Vec<_> = records.iter().map(|record| Some(seen(record))).collect();
    for (link, nodes) in [(Link::Silent, 1..=1), (Link::Gone, 0..=1)] {
        if let Some(first) = &mut told[0] {
            first.link = link;
        }
        core.looked(&told, &[], NOW, &mut Vec::new());
        let grants: Vec<_> = (0..6).map(|_| granted(ask(&mut core, 1))).collect();
        let used = |number| grants.iter().any(|grant| grant.node == node(number));
        assert_eq!((used(0), used(1)), (nodes.contains(&0), true), "{link:?}");
        for grant in &grants {
            leave(&mut core, grant);
        }
    }
    for seen in told.iter_mut().flatten() {
        seen.link = Link::Silent;
    }
    core.looked(&told, &[], NOW, &mut Vec::new());
    granted(ask(&mut core, 1));
}
