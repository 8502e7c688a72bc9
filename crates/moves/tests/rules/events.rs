//! Rules of the events: when a need is ripe.

use crate::memory::{Memory, node, site};
use moves::protocol::{Seen, Word};
use moves::{Events, Need, Timing};
use pool_model::{EdgeId, Reason};
use shared_state::words::Arrive;

const MS: u64 = 1_000_000;
const OP_NS: u64 = 50;
const ME: EdgeId = EdgeId::MIN;

fn timing() -> Timing {
    Timing { node_dead_ns: 5 * MS, serve_wait_ns: 20 * MS, ..Timing::default() }
}

struct Watch {
    events: Events,
    memory: Memory,
    serving: bool,
    now_ms: u64,
    op_ns: u64,
}

impl Watch {
    /// Site 1 has two nodes and site 2 two; a first look was taken at 0 ms.
    fn new() -> Self {
        let memory = Memory::new(&[1, 1], &[1, 1, 2, 2]);
        let events = Events::new(timing(), ME, 2, 4);
        let mut watch = Self { events, memory, serving: true, now_ms: 0, op_ns: OP_NS };
        watch.look(0);
        watch
    }

    fn look(&mut self, now_ms: u64) -> Seen {
        self.now_ms = now_ms;
        let seen = self.memory.look();
        let serving = self.serving;
        self.events.looked(now_ms * MS, &seen, |_| serving);
        seen
    }

    fn ripe(&mut self, reason: Option<Reason>) -> bool {
        let need = Need { reason, nodes: 2, hard: 1 };
        self.events.ripe(self.now_ms * MS, self.op_ns, site(1), &need)
    }

    /// A look in which the load is high.
    fn hot(&mut self, now_ms: u64) -> bool {
        self.look(now_ms);
        self.ripe(Some(Reason::Load))
    }

    fn claim_by(&mut self, edge: EdgeId) {
        let word = self.memory.words.get_mut(&Word::Arrive(site(1))).expect("a word");
        *word = Arrive::unpack(*word).claimed(edge, Reason::Load).pack();
    }

    /// A node comes to site 1.
    fn arrive(&mut self, number: u16) {
        let assign = self.memory.assign(number);
        self.memory.put(number, assign.moved(Some(site(1)), assign.stamp));
    }
}

#[test]
fn a_load_is_ripe_after_hold_with_all_looks_high() {
    let mut watch = Watch::new();
    assert!(!watch.hot(1));
    assert!(!watch.hot(2));
    assert!(watch.hot(3));
    // A single look that is not high starts the timer anew.
    watch.look(4);
    assert!(!watch.ripe(None));
    assert!(!watch.hot(5));
    assert!(!watch.hot(6));
    assert!(watch.hot(7));
}

#[test]
fn a_claim_by_anybody_starts_the_timer_anew() {
    let mut watch = Watch::new();
    watch.hot(1);
    watch.hot(2);
    watch.claim_by(EdgeId::MAX);
    assert!(!watch.hot(3));
    assert!(!watch.hot(4));
    assert!(watch.hot(5));
    // Our own claim, noted by itself, does the same.
    watch.claim_by(ME);
    watch.events.claimed(site(1), 2);
    assert!(!watch.hot(6));
    assert!(!watch.hot(7));
    assert!(watch.hot(8));
}

#[test]
fn an_arrival_starts_the_timer_anew() {
    let mut watch = Watch::new();
    watch.hot(1);
    watch.hot(2);
    watch.arrive(2);
    assert!(!watch.hot(3));
    assert!(!watch.hot(4));
    assert!(watch.hot(5));
}

#[test]
fn an_arrived_node_holds_the_timer_until_it_is_seen_serving() {
    let mut watch = Watch::new();
    watch.arrive(2);
    watch.serving = false;
    for now_ms in 1..=10 {
        assert!(!watch.hot(now_ms), "{now_ms}");
    }
    watch.serving = true;
    // The look that sees it serving still belongs to the old event.
    assert!(!watch.hot(11));
    assert!(!watch.hot(12));
    assert!(watch.hot(13));
}

#[test]
fn a_node_that_never_serves_is_waited_for_no_longer_than_its_time() {
    let mut watch = Watch::new();
    watch.arrive(2);
    watch.serving = false;
    let ripe = (1..=40).find(|&now_ms| watch.hot(now_ms));
    assert_eq!(ripe, Some(23));
}

#[test]
fn an_arrived_node_that_dies_is_waited_for_until_it_is_given_up() {
    let mut watch = Watch::new();
    watch.arrive(2);
    watch.serving = false;
    watch.hot(1);
    watch.memory.words.remove(&Word::Assign(node(2)));
    let ripe = (2..=40).find(|&now_ms| watch.hot(now_ms)).expect("some time");
    assert!(ripe <= 10, "{ripe}");
}

#[test]
fn a_floor_needs_no_hold_but_counts_who_is_coming() {
    let mut watch = Watch::new();
    let short = Need { reason: Some(Reason::Floor), nodes: 0, hard: 1 };
    watch.look(1);
    assert!(watch.events.ripe(MS, OP_NS, site(1), &short));
    watch.memory.install(2, 2, Some(1));
    watch.look(2);
    assert_eq!(watch.events.coming(site(1)), 1);
    assert!(!watch.events.ripe(2 * MS, OP_NS, site(1), &short));
    let shorter = Need { hard: 2, ..short };
    assert!(watch.events.ripe(2 * MS, OP_NS, site(1), &shorter));
}

#[test]
fn a_floor_waits_after_somebody_elses_claim() {
    let mut watch = Watch::new();
    watch.op_ns = MS;
    let short = Need { reason: Some(Reason::Floor), nodes: 0, hard: 1 };
    watch.claim_by(EdgeId::MAX);
    // help_after is eight of our operations here.
    for now_ms in 1..=8 {
        watch.look(now_ms);
        assert!(!watch.events.ripe(now_ms * MS, MS, site(1), &short), "{now_ms}");
    }
    watch.look(9);
    assert!(watch.events.ripe(9 * MS, MS, site(1), &short));
    // Our own claim makes nobody wait.
    watch.claim_by(ME);
    watch.look(10);
    assert!(watch.events.ripe(10 * MS, MS, site(1), &short));
}

#[test]
fn help_is_polite_in_the_second_look_after_its_time() {
    let mut watch = Watch::new();
    let helps = |watch: &Watch| watch.events.may_help(watch.now_ms * MS, watch.op_ns, site(2));
    watch.memory.install(2, 2, Some(1));
    watch.look(1);
    assert!(!helps(&watch));
    watch.look(2);
    assert!(helps(&watch));
    // For slow operations it takes longer.
    watch.op_ns = MS;
    assert!(!helps(&watch));
    watch.look(9);
    assert!(helps(&watch));
    // Another departure is another matter.
    let idle = watch.memory.depart(2).closed();
    watch.memory.words.insert(Word::Depart(site(2)), idle.pack());
    watch.memory.install(2, 3, Some(1));
    watch.look(18);
    assert!(!helps(&watch));
}

#[test]
fn a_node_is_dead_after_being_unreadable_for_its_time() {
    let mut watch = Watch::new();
    watch.memory.words.remove(&Word::Assign(node(0)));
    watch.look(1);
    assert!(!watch.events.is_dead(MS, node(0)) && watch.events.some_unread(MS));
    watch.look(6);
    assert!(watch.events.is_dead(6 * MS, node(0)) && !watch.events.some_unread(6 * MS));
    watch.memory.put(0, shared_state::words::Assign::FREE);
    watch.look(7);
    assert!(!watch.events.is_dead(7 * MS, node(0)));
}

#[test]
fn bumps_of_a_site_are_ten_holds_apart() {
    let mut watch = Watch::new();
    assert!(watch.events.take_bump(0, site(1)));
    assert!(watch.events.take_bump(0, site(2)));
    assert!(!watch.events.take_bump(19 * MS, site(1)));
    assert!(watch.events.take_bump(20 * MS, site(1)));
    assert!(!watch.events.take_bump(21 * MS, site(1)));
}

#[test]
fn a_claim_is_late_after_half_a_hold() {
    assert!(!timing().is_late(5 * MS, 6 * MS));
    assert!(timing().is_late(5 * MS, 6 * MS + 1));
}
