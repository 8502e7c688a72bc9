//! Rules of the decisions: what one edge runs in a look, in which order, and what it records.

use crate::memory::{E, Memory, node, site};
use moves::protocol::{Machine, Outcome, Refusal, Word};
use moves::{
    Core, Ending, Input, Mode, Options, RECORDS_MAX, REQUEST_WAIT_NS, REQUESTS_MAX, Timing, Work,
};
use policy::{Candidate, Policy, Reconf, Stage};
use pool_model::{
    EdgeId, Guarantee, NodeId, NodeTraits, NodeView, PoolView, Priority, Reason, SiteId, SiteTerms,
    SiteView,
};
use shared_state::words::{Arrive, Assign, Depart, Epoch, Floor};
use std::collections::HashMap;

/// Promised so many nodes, at most 100.
fn terms(hard: u16) -> SiteTerms {
    SiteTerms::default().with_guarantee(Guarantee { hard, soft: hard, max: 100 })
}

const MS: u64 = 1_000_000;

/// A policy that does as it is told.
#[derive(Clone, Debug, Default)]
struct Told {
    needs: HashMap<SiteId, Reason>,
    candidates: Vec<Candidate>,
    /// Site 2 is given this node by site 3 before site 1 is given any.
    stage: Option<NodeId>,
}

impl Policy for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn need(&self, _: &PoolView, site: SiteId) -> Option<Reason> {
        self.needs.get(&site).copied()
    }

    fn candidates(&self, _: &PoolView, taker: SiteId, _: Reason) -> Vec<Candidate> {
        let mut candidates = self.candidates.clone();
        candidates.retain(|candidate| candidate.donor != Some(taker));
        candidates
    }

    fn stage(
        &self,
        view: &PoolView,
        taker: SiteId,
        _: Reason,
        _: Option<Candidate>,
    ) -> Option<Stage> {
        let donor = Some(site(3));
        let node = self.stage.filter(|&node| view.node(node).is_some_and(|n| n.site == donor))?;
        (taker == site(1)).then_some(Stage { to: site(2), candidate: Candidate { node, donor } })
    }
}

/// What another edge does.
type Interference = fn(&mut Memory);

struct Bench {
    memory: Memory,
    core: Core,
    policy: Box<dyn Policy>,
    is_unready: Box<dyn Fn(NodeId, SiteId) -> bool>,
    queued: HashMap<SiteId, u32>,
    priorities: HashMap<SiteId, Priority>,
    hard: Vec<u16>,
    op_ns: u64,
    now_ns: u64,
    /// What happens before the operation of this number in a round.
    before: Option<(usize, Interference)>,
}

fn options(edge: u8, sites: usize, nodes: u16) -> Options {
    Options {
        edge: EdgeId::new(edge).expect("an edge"),
        timing: Timing::default(),
        sites: vec![terms(1); sites],
        nodes,
        settings_version: 1,
        mode: Mode::Move,
    }
}

impl Bench {
    fn new(hard: &[u16], nodes: &[u16]) -> Self {
        let memory = Memory::new(hard, nodes);
        let mut options = options(0, hard.len(), memory.nodes);
        options.sites = hard.iter().map(|&hard| terms(hard)).collect();
        Self {
            memory,
            core: Core::new(options),
            policy: Box::new(Reconf::default()),
            is_unready: Box::new(|_, _| false),
            queued: HashMap::new(),
            priorities: HashMap::new(),
            hard: hard.to_vec(),
            op_ns: 50,
            now_ns: 0,
            before: None,
        }
    }

    fn told(&mut self, needs: &[(u16, Reason)], candidates: &[(u16, u16)]) {
        let needs = needs.iter().map(|&(at, reason)| (site(at), reason)).collect();
        let candidate = |&(number, from): &(u16, u16)| Candidate {
            node: node(number),
            donor: (from > 0).then(|| site(from)),
        };
        let candidates = candidates.iter().map(candidate).collect();
        self.policy = Box::new(Told { needs, candidates, stage: None });
    }

    fn view(&self, seen: &moves::protocol::Seen) -> PoolView {
        let site_view = |number: u16| SiteView {
            id: site(number),
            terms: SiteTerms {
                priority: self.priorities.get(&site(number)).copied().unwrap_or_default(),
                ..terms(self.hard[usize::from(number) - 1])
            },
            service_us: 0,
            queued: self.queued.get(&site(number)).copied().unwrap_or(0),
            in_flight: 0,
            capacity: 0,
            nodes: 0,
        };
        let node_view = |number: u16| {
            let at = seen.assign(node(number))?.site;
            let id = node(number);
            let traits = NodeTraits::default();
            Some(NodeView { id, site: at, in_flight: 0, max_in_flight: 8, movable: true, traits })
        };
        let sites = (1..=self.memory.sites).map(site_view).collect();
        let nodes = (0..self.memory.nodes).filter_map(node_view).collect();
        let mut view = PoolView { sites, nodes, ..PoolView::default() };
        view.sum_up();
        view
    }

    /// One look at this time, with all that follows; the names of the tasks that were run.
    fn look(&mut self, now_ns: u64) -> Vec<&'static str> {
        self.now_ns = now_ns;
        let mut names = Vec::new();
        let mut seen = self.memory.look();
        let mut view = self.view(&seen);
        let (core, input) = self.input(&seen, &view);
        core.looked(&input, |_| true);
        self.memory.ops.clear();
        let mut ops = 0;
        loop {
            let (core, input) = self.input(&seen, &view);
            match core.next(&input) {
                Work::Rest => return names,
                Work::LookAgain => {
                    names.push("look");
                    seen = self.memory.look();
                    view = self.view(&seen);
                    let (core, input) = self.input(&seen, &view);
                    core.looked(&input, |_| true);
                }
                Work::Run(mut task) => {
                    names.push(task.name());
                    let outcome = task.drive(|op| {
                        if let Some((_, act)) = self.before.take_if(|(at, _)| *at == ops) {
                            act(&mut self.memory);
                        }
                        ops += 1;
                        self.now_ns += self.op_ns;
                        self.memory.perform(op)
                    });
                    self.core.ended(self.now_ns, &outcome);
                }
            }
            assert!(names.len() < 100, "no rest: {names:?}");
        }
    }

    fn input<'a>(
        &'a mut self,
        seen: &'a moves::protocol::Seen,
        view: &'a PoolView,
    ) -> (&'a mut Core, Input<'a>) {
        let (now_ns, policy, op_time_ns) = (self.now_ns, &*self.policy, self.op_ns);
        let is_unready = &*self.is_unready;
        let nonce = 9;
        (&mut self.core, Input { now_ns, seen, view, policy, is_unready, op_time_ns, nonce })
    }

    fn endings(&self) -> Vec<(Ending, Reason)> {
        self.core.records().since(0).map(|record| (record.ending, record.reason)).collect()
    }
}

#[test]
fn a_load_that_lasts_moves_one_node_per_look_and_hold() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.queued.insert(site(2), 100);
    assert!(bench.look(0).is_empty());
    assert!(bench.look(MS).is_empty());
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "close"]);
    let record = *bench.core.records().since(0).next().expect("a record");
    assert_eq!((record.ending, record.reason), (Ending::Moved, Reason::Load));
    assert_eq!((record.from, record.to), (Some(site(1)), Some(site(2))));
    assert_eq!((record.version, record.took_ns), (Some(8), 3 * 50));
    assert!(record.load > 1.0 && record.request.is_none());
    // The load is still high: the next move takes an arrival seen, and a whole hold after it.
    assert!(bench.look(3 * MS).is_empty());
    assert!(bench.look(4 * MS).is_empty());
    assert_eq!(bench.look(5 * MS), ["claim", "attempt", "close"]);
    // The donor is at its floor now.
    for now_ms in 6..20 {
        assert!(bench.look(now_ms * MS).is_empty());
    }
    assert_eq!(bench.core.counters().moves, 2);
}

#[test]
fn a_donor_gives_once_it_has_been_light_for_a_hold() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.queued.extend([(site(1), 20), (site(2), 100)]);
    for now_ms in 0..10 {
        assert!(bench.look(now_ms * MS).is_empty(), "nobody is light");
    }
    // A stall that ends in time, then a load that has gone.
    bench.queued.insert(site(1), 0);
    assert!(bench.look(10 * MS).is_empty());
    assert!(bench.look(11 * MS).is_empty());
    bench.queued.insert(site(1), 20);
    assert!(bench.look(12 * MS).is_empty());
    bench.queued.insert(site(1), 0);
    assert!(bench.look(13 * MS).is_empty());
    assert!(bench.look(14 * MS).is_empty());
    assert_eq!(bench.look(15 * MS), ["claim", "attempt", "close"]);
}

/// What a site was promised comes back from a loaded lower priority after its own hold.
#[test]
fn a_donor_that_must_give_is_not_waited_for() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.policy = Box::new(policy::ReconfP::default());
    bench.priorities.insert(site(2), Priority(1));
    bench.queued.extend([(site(1), 20), (site(2), 100)]);
    assert!(bench.look(0).is_empty());
    bench.queued.insert(site(1), 0);
    assert!(bench.look(MS).is_empty());
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "close"]);
}

#[test]
fn an_empty_pool_is_opened_and_filled_from_its_settings() {
    let mut bench = Bench::new(&[1, 1], &[0, 0, 0]);
    for number in 1..=2 {
        for word in [Word::Depart(site(number)), Word::Floor(site(number))] {
            bench.memory.words.insert(word, 0);
        }
    }
    for now_ms in 0..10 {
        bench.look(now_ms * MS);
    }
    for number in 1..=2 {
        let floor = Floor::unpack(bench.memory.words[&Word::Floor(site(number))]);
        assert_eq!(floor, Floor { settings_version: 1, hard: 1, max: 100 });
        assert_eq!(bench.memory.depart(number).epoch.nonce(), 9);
        let of = |n: &u16| bench.memory.assign(*n).site == Some(site(number));
        assert_eq!((0..3).filter(of).count(), 1);
    }
    assert_eq!(bench.endings(), [(Ending::Moved, Reason::Floor); 2]);
}

#[test]
fn needs_are_met_in_the_order_of_reason_priority_share_and_id() {
    let fresh = || Bench::new(&[1, 1, 2, 1], &[1, 1, 1, 2, 2, 3, 3, 4]);
    let first = |mut bench: Bench, needs: &[(u16, Reason)]| {
        bench.told(needs, &[(0, 1), (1, 1)]);
        for now_ms in 0..3 {
            bench.look(now_ms * MS);
        }
        bench.core.records().since(0).last().and_then(|record| record.to)
    };
    let needs = [(2, Reason::Load), (3, Reason::Load), (4, Reason::TakeBack)];
    assert_eq!(first(fresh(), &needs), Some(site(4)));
    // Site 3 has its share once (2 of 2), site 2 twice (2 of 1).
    assert_eq!(first(fresh(), &needs[..2]), Some(site(3)));
    let equal = [(4, Reason::Load), (3, Reason::Load)];
    assert_eq!(first(fresh(), &equal), Some(site(3)));
    // The priority goes before the share, the reason before the priority.
    let mut important = fresh();
    important.priorities.insert(site(2), Priority(1));
    assert_eq!(first(important, &needs[..2]), Some(site(2)));
    let mut important = fresh();
    important.priorities.insert(site(2), Priority(1));
    assert_eq!(first(important, &needs), Some(site(4)));
}

/// Site 1 wants node 1 of site 2, which can spare it once it has node 2 of site 3.
fn staged_bench() -> Bench {
    let mut bench = Bench::new(&[0, 1, 0], &[1, 2, 3]);
    let needs = [(site(1), Reason::Load)].into();
    let candidates = vec![Candidate { node: node(1), donor: Some(site(2)) }];
    bench.policy = Box::new(Told { needs, candidates, stage: Some(node(2)) });
    bench
}

fn moved(bench: &Bench) -> Vec<(NodeId, Option<SiteId>, Reason)> {
    let records = bench.core.records().since(0);
    let moved = records.filter(|r| matches!(r.ending, Ending::Moved | Ending::WouldMove));
    moved.map(|record| (record.node, record.to, record.reason)).collect()
}

#[test]
fn a_stage_goes_before_what_it_prepares() {
    let mut bench = staged_bench();
    bench.look(0);
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "close"]);
    assert_eq!(
        Arrive::unpack(bench.memory.words[&Word::Arrive(site(2))]).counter,
        1,
        "claimed by who gets the node"
    );
    assert_eq!(bench.look(3 * MS), ["claim", "attempt", "close"]);
    let (one, two) = (Some(site(1)), Some(site(2)));
    assert_eq!(moved(&bench), [(node(2), two, Reason::Load), (node(1), one, Reason::Load)]);
}

#[test]
fn a_stage_waits_with_all_who_are_paused() {
    for paused in 1..=3 {
        let mut bench = staged_bench();
        bench.core.set_paused(Some(site(paused)), true);
        bench.look(0);
        bench.look(2 * MS);
        assert!(bench.memory.assign(2).site == Some(site(3)), "{paused}");
    }
}

#[test]
fn a_stage_is_not_made_with_a_node_that_would_not_serve() {
    let mut bench = staged_bench();
    bench.is_unready = Box::new(|at, of| at == node(2) && of == site(2));
    bench.look(0);
    bench.look(2 * MS);
    assert_eq!(bench.memory.assign(2).site, Some(site(3)));
}

#[test]
fn a_lost_stage_is_planned_anew_or_given_up() {
    let mut bench = staged_bench();
    bench.look(0);
    // Between claim and install the donor's descriptor changes, but the node is still there.
    bench.before = Some((1, |memory| {
        let word = memory.depart(3);
        let bound = Depart { sequence: word.sequence + 1, ..word };
        memory.words.insert(Word::Depart(site(3)), bound.pack());
    }));
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "look", "attempt", "close"]);
    assert_eq!(bench.memory.assign(2).site, Some(site(2)));
}

#[test]
fn an_observer_logs_a_stage_once_in_a_hold() {
    let mut bench = staged_bench();
    bench.core.set_mode(Mode::Observe);
    for look in 0..4 {
        assert!(bench.look(look * MS).is_empty());
    }
    assert_eq!(moved(&bench), [(node(2), Some(site(2)), Reason::Load)]);
}

#[test]
fn a_lost_install_tries_the_next_donor_under_the_same_claim() {
    let mut bench = Bench::new(&[0, 0, 0], &[1, 1, 2, 3]);
    bench.told(&[(3, Reason::Load)], &[(0, 1), (1, 1), (2, 2)]);
    bench.look(0);
    // Between claim and install somebody else installs at the first donor.
    bench.before = Some((1, |memory| memory.install(1, 1, Some(2))));
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "attempt", "close"]);
    assert_eq!(bench.memory.assign(2).site, Some(site(3)));
    let counters = bench.core.counters();
    assert_eq!((counters.claims, counters.installs_lost, counters.moves), (1, 1, 1));
}

#[test]
fn after_the_last_donor_a_fresh_look_offers_the_first_again() {
    let mut bench = Bench::new(&[0, 0], &[1, 1, 2]);
    bench.told(&[(2, Reason::Load)], &[(0, 1)]);
    bench.look(0);
    // The guarantee is bound anew: the descriptor stays idle, but changes.
    bench.before = Some((1, |memory| {
        let word = memory.depart(1);
        let bound = Depart { sequence: word.sequence + 1, ..word };
        memory.words.insert(Word::Depart(site(1)), bound.pack());
    }));
    assert_eq!(bench.look(2 * MS), ["claim", "attempt", "look", "attempt", "close"]);
    assert_eq!(bench.core.counters().claims, 1);
    assert_eq!(bench.memory.assign(0).site, Some(site(2)));
}

#[test]
fn a_claim_that_the_edge_slept_on_is_dropped() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.queued.insert(site(2), 100);
    bench.look(0);
    bench.op_ns = MS + 1;
    assert_eq!(bench.look(2 * MS), ["claim"]);
    assert_eq!(bench.endings(), [(Ending::DroppedLate, Reason::Load)]);
    assert_eq!(bench.core.counters().late_moves, 1);
    assert_eq!(bench.memory.depart(1).pending, None);
}

#[test]
fn a_lost_claim_leaves_the_event_to_the_other_edge() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.queued.insert(site(2), 100);
    bench.look(0);
    bench.before = Some((0, |memory| {
        let word = Arrive::NONE.claimed(EdgeId::MAX, Reason::Load).pack();
        memory.words.insert(Word::Arrive(site(2)), word);
    }));
    assert_eq!(bench.look(2 * MS), ["claim"]);
    assert!(bench.look(3 * MS).is_empty());
    assert_eq!(bench.core.counters().claims_lost, 1);
    // It never moved: a hold after its claim was seen the event is free again.
    assert_eq!(bench.look(5 * MS), ["claim", "attempt", "close"]);
}

#[test]
fn a_dead_edges_move_is_helped_and_recorded() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.memory.install(1, 0, Some(2));
    assert!(bench.look(0).is_empty());
    assert_eq!(bench.look(MS), ["help"]);
    assert_eq!(bench.memory.assign(0).site, Some(site(2)));
    assert_eq!(bench.memory.depart(1).pending, None);
    assert_eq!(bench.endings()[0].0, Ending::Helped);
    assert_eq!(bench.core.counters().helps, 1);
}

#[test]
fn a_move_of_a_dead_node_is_aborted_and_the_rest_renewed_for_the_next() {
    let mut bench = Bench::new(&[1, 0], &[1, 1, 1, 2]);
    bench.memory.install(1, 0, Some(2));
    bench.look(0);
    bench.memory.words.remove(&Word::Assign(node(0)));
    bench.look(10 * MS);
    assert_eq!(bench.look(30 * MS), ["help"]);
    assert_eq!(bench.look(61 * MS), ["help", "bump", "look"]);
    assert_eq!(bench.endings()[0].0, Ending::Aborted);
    assert!(bench.memory.depart(1).epoch.is_newer_than(E));
    bench.queued.insert(site(2), 100);
    bench.look(62 * MS);
    let names = bench.look(64 * MS);
    assert_eq!(names, ["renew", "look", "claim", "attempt", "close"]);
}

#[test]
fn a_wiped_home_is_not_rebuilt_while_a_node_is_merely_unread() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.look(0);
    bench.memory.words.insert(Word::Depart(site(1)), 0);
    let word = bench.memory.words.remove(&Word::Assign(node(0))).expect("a word");
    assert!(bench.look(MS).is_empty());
    bench.memory.words.insert(Word::Assign(node(0)), word);
    assert_eq!(bench.look(2 * MS), ["bump", "look"]);
}

#[test]
fn bumps_are_rationed() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    let wiped = |bench: &mut Bench| bench.memory.words.insert(Word::Depart(site(1)), 0);
    wiped(&mut bench);
    assert_eq!(bench.look(0), ["bump", "look"]);
    wiped(&mut bench);
    assert!(bench.look(10 * MS).is_empty());
    assert_eq!(bench.look(20 * MS), ["bump", "look"]);
}

#[test]
fn a_person_moves_a_node_and_sets_one_free_but_not_below_the_floor() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.core.request(0, 70, node(0), Some(site(2))).expect("room");
    bench.core.request(0, 71, node(1), None).expect("room");
    bench.core.request(0, 72, node(2), None).expect("room");
    bench.core.request(0, 73, node(3), Some(site(2))).expect("room");
    bench.core.request(0, 74, node(3), Some(site(9))).expect("room");
    assert_eq!(bench.look(0), ["claim", "attempt", "close"]);
    assert_eq!(bench.look(MS), ["attempt", "close"]);
    bench.look(2 * MS);
    let answers: HashMap<u64, Ending> = bench
        .core
        .records()
        .since(0)
        .filter_map(|record| Some((record.request?, record.ending)))
        .collect();
    assert_eq!(answers[&70], Ending::Moved);
    assert_eq!(answers[&71], Ending::Moved);
    assert_eq!(answers[&72], Ending::Refused(Refusal::DonorAtFloor));
    assert_eq!(answers[&73], Ending::Refused(Refusal::AlreadyThere));
    assert_eq!(answers[&74], Ending::Refused(Refusal::NoSuchSite));
    assert_eq!(bench.memory.assign(1).site, None);
    let arrive = Arrive::unpack(bench.memory.words[&Word::Arrive(site(2))]);
    assert_eq!(arrive.reason, Some(Reason::Admin));
}

#[test]
fn a_request_that_cannot_be_done_is_answered_in_the_end() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.memory.words.insert(Word::Assign(node(0)), Assign::TOMBSTONE);
    bench.core.request(0, 5, node(0), Some(site(2))).expect("room");
    bench.look(0);
    bench.look(REQUEST_WAIT_NS - 1);
    assert!(bench.endings().is_empty());
    bench.look(REQUEST_WAIT_NS);
    assert_eq!(bench.endings(), [(Ending::TimedOut, Reason::Admin)]);
}

#[test]
fn requests_are_bounded() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    for id in 0..REQUESTS_MAX as u64 {
        bench.core.request(0, id, node(0), None).expect("room");
    }
    let refused = bench.core.request(0, 99, node(0), None).expect_err("full");
    assert!(refused.to_string().contains("64 requests"), "{refused}");
}

#[test]
fn a_pause_stops_the_policy_but_not_persons_nor_repairs() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.queued.insert(site(2), 100);
    for paused in [None, Some(site(2)), Some(site(1))] {
        bench.core.set_paused(paused, true);
        for now_ms in 0..6 {
            assert!(bench.look(now_ms * MS).is_empty(), "{paused:?}");
        }
        bench.core.set_paused(paused, false);
    }
    bench.core.set_paused(None, true);
    assert!(bench.core.is_paused(site(1)));
    bench.core.request(0, 1, node(0), Some(site(2))).expect("room");
    assert_eq!(bench.look(6 * MS), ["claim", "attempt", "close"]);
    bench.core.set_paused(None, false);
    bench.look(7 * MS);
    assert_eq!(bench.look(9 * MS), ["claim", "attempt", "close"]);
}

#[test]
fn observe_logs_and_writes_nothing() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.core.set_mode(Mode::Observe);
    bench.memory.install(1, 2, Some(2));
    bench.memory.words.insert(Word::Depart(site(2)), 0);
    bench.core.request(0, 1, node(0), Some(site(2))).expect("room");
    let before = bench.memory.words.clone();
    bench.told(&[(1, Reason::Load)], &[(3, 2)]);
    for now_ms in 0..=5 {
        assert!(bench.look(now_ms * MS).is_empty());
    }
    assert_eq!(bench.memory.words, before);
    let would = bench.endings();
    assert!(would.iter().all(|(ending, _)| *ending == Ending::WouldMove), "{would:?}");
    // Every hold once, as the moves would be.
    assert_eq!(would.iter().filter(|(_, reason)| *reason == Reason::Load).count(), 2);
}

#[test]
fn edges_of_other_settings_make_no_moves() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
    bench.queued.insert(site(2), 100);
    let theirs = Floor { settings_version: 1, hard: 2, max: 100 };
    bench.memory.words.insert(Word::Floor(site(1)), theirs.pack());
    for now_ms in 0..6 {
        assert!(bench.look(now_ms * MS).is_empty());
    }
    assert!(bench.core.settings_conflict());
    // Newer settings of our own take over, and bind.
    let options = bench.core.options().clone();
    let sites = vec![terms(1); 2];
    bench.core.update(Options { sites, settings_version: 2, ..options });
    assert_eq!(bench.look(6 * MS)[..3], ["set-floor", "set-floor", "look"]);
    bench.look(8 * MS);
    assert!(!bench.core.settings_conflict());
    assert_eq!(bench.core.counters().floors_set, 2);
    assert_eq!(bench.core.counters().moves, 1);
}

#[test]
fn edges_start_with_different_donors() {
    let donors: Vec<Option<SiteId>> = (0..4u8)
        .map(|edge| {
            let mut bench = Bench::new(&[0, 0, 0, 0], &[1, 2, 3, 4]);
            let mut options = options(edge, 4, 4);
            options.sites = vec![terms(0); 4];
            bench.core = Core::new(options);
            bench.told(&[(4, Reason::Load)], &[(0, 1), (1, 2), (2, 3)]);
            bench.look(0);
            bench.look(2 * MS);
            bench.core.records().since(0).next().and_then(|record| record.from)
        })
        .collect();
    assert_eq!(donors, [Some(site(1)), Some(site(2)), Some(site(3)), Some(site(1))]);
}

/// A free node whose server for the taker kept crashing was given to it again and again.
#[test]
fn a_node_whose_server_answers_goes_before_one_whose_server_does_not() {
    let mut bench = Bench::new(&[1, 1], &[1, 2, 2, 0]);
    bench.is_unready = Box::new(|at, of| at == node(3) && of == site(1));
    bench.queued.insert(site(1), 10);
    for look in 0..3 {
        bench.look(look * MS);
    }
    let at = |bench: &Bench, number| bench.memory.assign(number).site;
    assert_eq!(at(&bench, 3), None, "the free node is left alone");
    assert_eq!((1..3).filter(|&number| at(&bench, number) == Some(site(1))).count(), 1);
    // Where no other is left, it is better than nothing.
    let mut bench = Bench::new(&[1, 1], &[1, 2, 0]);
    bench.is_unready = Box::new(|_, _| true);
    bench.queued.insert(site(1), 10);
    for look in 0..3 {
        bench.look(look * MS);
    }
    assert_eq!(at(&bench, 2), Some(site(1)));
}

#[test]
fn free_nodes_come_first() {
    let mut bench = Bench::new(&[0, 0], &[1, 0, 2]);
    let mut options = options(1, 2, 3);
    options.sites = vec![terms(0); 2];
    bench.core = Core::new(options);
    bench.told(&[(2, Reason::Load)], &[(1, 0), (0, 1)]);
    bench.look(0);
    assert_eq!(bench.look(2 * MS), ["claim", "join"]);
    assert_eq!(bench.memory.assign(1).site, Some(site(2)));
}

#[test]
fn an_unanswered_swap_is_left_to_the_next_look() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.queued.insert(site(2), 100);
    bench.look(0);
    // The home goes away between claim and install.
    bench.before = Some((1, |memory| {
        memory.words.remove(&Word::Depart(site(1)));
    }));
    assert_eq!(bench.look(2 * MS), ["claim", "attempt"]);
    assert_eq!(bench.endings(), [(Ending::Unreachable, Reason::Load)]);
}

#[test]
fn bad_words_are_counted_and_bumped() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    let noise = Depart::opened(Epoch::new(3, 3)).pack() | 1;
    bench.memory.words.insert(Word::Depart(site(1)), noise);
    bench.memory.put(0, Assign { site: Some(site(1_000)), stamp: E, version: 1 });
    let names = bench.look(0);
    assert_eq!(names, ["bump", "look"]);
    assert_eq!(bench.core.counters().bad_words, 1, "the node is still bad, the site is repaired");
    assert_eq!(bench.memory.depart(1).pending, None);
}

#[test]
fn records_are_bounded_and_numbered() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    let rounds = RECORDS_MAX as u64 + 10;
    for id in 0..rounds {
        bench.core.request(id, id, node(2), Some(site(2))).expect("room");
        bench.look(id);
    }
    let records = bench.core.records();
    assert_eq!(records.total(), rounds);
    assert_eq!(records.since(0).count(), RECORDS_MAX);
    assert_eq!(records.since(0).next().and_then(|record| record.request), Some(10));
    assert_eq!(records.since(rounds - 2).count(), 2);
    assert_eq!(records.since(rounds + 5).count(), 0);
}

#[test]
fn a_claim_that_cannot_be_reached_makes_no_move() {
    let mut bench = Bench::new(&[1, 1], &[1, 1, 2]);
    bench.queued.insert(site(2), 100);
    bench.look(0);
    bench.before = Some((0, |memory| {
        memory.words.remove(&Word::Arrive(site(2)));
    }));
    assert_eq!(bench.look(2 * MS), ["claim"]);
    // An outcome that nobody asked for changes nothing.
    bench.core.ended(3 * MS, &Outcome::LostClaim { taker: site(2) });
    assert_eq!(bench.core.counters().moves, 0);
    assert!(bench.core.records().since(0).next().is_none());
}

/// Noise in a site's word gives it an epoch anywhere on the counter's circle, and each bump after
/// that goes on from there: nodes that were stamped in between may stand so that each stamp is
/// older than another. An edge then bumped for ever and moved nothing.
#[test]
fn stamps_all_around_the_circle_do_not_stop_moves() {
    let third = (1 << 12) / 3;
    let around = [0, third, 2 * third].map(|counter| Epoch::new(counter, 1));
    for start in 0..3 {
        let mut bench = Bench::new(&[1, 1], &[1, 1, 1, 2]);
        for number in 0..3 {
            let stamp = around[usize::from(number)];
            bench.memory.put(number, Assign { site: Some(site(1)), stamp, version: 7 });
        }
        let opened = Depart::opened(around[start].next(9));
        bench.memory.words.insert(Word::Depart(site(1)), opened.pack());
        bench.queued.insert(site(2), 100);
        for now_ms in 0..100 {
            bench.look(now_ms * MS);
        }
        assert_eq!(bench.core.counters().moves, 2, "from {start}");
        let kept = (0..3).filter(|&number| bench.memory.assign(number).site == Some(site(1)));
        assert_eq!(kept.count(), 1, "the guarantee");
    }
}
