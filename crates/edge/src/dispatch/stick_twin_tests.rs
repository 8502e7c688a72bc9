//! Sticky requests against a naive twin: one list of all who wait, searched from the front.

use super::tests::{MAX, NOW, Out, STICK_WAIT, Somebody};
use super::tests::{assign, core, leave, look_at, node, record, site};
use super::*;
use crate::dispatch::slow_start;
use crate::dispatch::stick::{Seat, target};
use crate::face::Stick;
use policy::choose::ServerLoad;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

const NODES: usize = 3;
const QUEUE_MAX: usize = 12;

/// Somebody who waits in the twin.
#[derive(Clone, Debug)]
struct Waits {
    who: usize,
    gone: Rc<Cell<bool>>,
    stick: Option<Stick>,
    /// The server that it waits for.
    bound: Option<usize>,
    until: Duration,
}

/// The naive reading of the rules.
#[derive(Debug, Default)]
struct Twin {
    /// Whether each server serves the site.
    open: [bool; NODES],
    /// Whether its node belongs to the site.
    ours: [bool; NODES],
    in_flight: [u32; NODES],
    waiting: Vec<Waits>,
    turn: usize,
}

impl Twin {
    fn is_usable(&self, place: usize) -> bool {
        self.open[place] && self.ours[place]
    }

    fn has_room(&self, place: usize) -> bool {
        self.is_usable(place) && self.in_flight[place] < MAX
    }

    fn own(&self, stick: Stick) -> Option<usize> {
        let loads: Vec<ServerLoad> = (0..NODES)
            .map(|place| ServerLoad { in_flight: 0, max_in_flight: 1, open: self.is_usable(place) })
            .collect();
        let seat = |(place, load)| Seat { node: node(place as u16), load, part: slow_start::WHOLE };
        target(stick, loads.iter().enumerate().map(seat))
    }

    /// The least loaded server but for these.
    fn any(&mut self, but: &BTreeSet<usize>) -> Option<usize> {
        let ours: Vec<usize> = (0..NODES).filter(|&place| self.ours[place]).collect();
        let load = |&place: &usize| ServerLoad {
            in_flight: self.in_flight[place],
            max_in_flight: if but.contains(&place) { 0 } else { MAX },
            open: self.is_usable(place),
        };
        let loads: Vec<ServerLoad> = ours.iter().map(load).collect();
        let chosen = Balance::LeastInFlight.choose(&loads, self.turn, 0)?;
        self.turn = chosen + 1;
        Some(ours[chosen])
    }

    fn enter(&mut self, place: usize) -> usize {
        self.in_flight[place] += 1;
        place
    }

    fn ask(&mut self, me: Waits, now: Duration) -> Option<Result<usize, ()>> {
        if self.waiting.iter().all(|waits| waits.bound.is_some() || waits.gone.get()) {
            self.waiting.retain(|waits| waits.bound.is_some() || !waits.gone.get());
            // As the core: a lane counts until somebody looks whether its people are gone.
            let lanes: BTreeSet<usize> = self.waiting.iter().filter_map(|w| w.bound).collect();
            match me.stick.and_then(|stick| self.own(stick)) {
                Some(own) if self.has_room(own) && !lanes.contains(&own) => {
                    return Some(Ok(self.enter(own)));
                }
                Some(_) => {}
                None => {
                    if let Some(place) = self.any(&lanes) {
                        return Some(Ok(self.enter(place)));
                    }
                }
            }
        }
        if self.waiting.len() >= QUEUE_MAX {
            self.waiting.retain(|waits| !waits.gone.get());
        }
        if self.waiting.len() >= QUEUE_MAX {
            return Some(Err(()));
        }
        let bound = me.stick.and_then(|stick| self.own(stick));
        self.waiting.push(Waits { bound, until: now + STICK_WAIT, ..me });
        None
    }

    /// Lets go, again and again, who has waited longest of those who can go.
    fn pump(&mut self, now: Duration) -> Vec<(usize, usize)> {
        self.waiting.retain(|waits| !waits.gone.get());
        let mut out = Vec::new();
        let mut at = 0;
        while at < self.waiting.len() {
            let Waits { who, stick, bound, until, .. } = self.waiting[at].clone();
            let goes = match bound {
                Some(own) if now < until && self.is_usable(own) => {
                    self.has_room(own).then_some(own)
                }
                Some(_) => {
                    let next = stick.filter(|_| now < until).and_then(|stick| self.own(stick));
                    self.waiting[at].bound = next;
                    match next {
                        Some(next) => self.has_room(next).then_some(next),
                        None => self.any(&BTreeSet::new()),
                    }
                }
                None => self.any(&BTreeSet::new()),
            };
            match goes {
                Some(place) => {
                    self.enter(place);
                    self.waiting.remove(at);
                    out.push((who, place));
                }
                None => at += 1,
            }
        }
        out
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(Option<Stick>),
    Leave(usize),
    Move(usize, bool),
    Open(usize, bool),
    Pass(u64),
    GiveUp(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let stick = prop_oneof![
        1 => Just(None),
        2 => (0..NODES as u16).prop_map(|number| Some(Stick::Server(node(number)))),
        2 => (0_u64..6).prop_map(|key| Some(Stick::Key(key))),
    ];
    prop_oneof![
        12 => stick.prop_map(Step::Ask),
        4 => any::<usize>().prop_map(Step::Leave),
        1 => (0..NODES, any::<bool>()).prop_map(|(n, ours)| Step::Move(n, ours)),
        1 => (0..NODES, any::<bool>()).prop_map(|(n, open)| Step::Open(n, open)),
        2 => (0_u64..900).prop_map(Step::Pass),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ]
}

/// Both, side by side.
struct Pair {
    records: Vec<NodeRecord>,
    core: Core<Somebody>,
    twin: Twin,
    now: Duration,
    asked: usize,
    in_flight: Vec<Grant>,
    flags: Vec<Rc<Cell<bool>>>,
}

impl Pair {
    fn new() -> Self {
        let records: Vec<_> = (0..NODES as u16).map(|number| record(number, 1)).collect();
        let core = core(0, &records, QUEUE_MAX);
        let twin = Twin { open: [true; NODES], ours: [true; NODES], ..Twin::default() };
        let (in_flight, flags) = (Vec::new(), Vec::new());
        Self { records, core, twin, now: NOW, asked: 0, in_flight, flags }
    }

    fn look(&mut self) -> Out {
        let open = self.twin.open;
        look_at(&mut self.core, &self.records, &[], self.now, |place| open[place])
    }

    /// What the core let go must be what the twin lets go.
    fn compare(&mut self, out: Out) {
        let of_core: Vec<_> = out.iter().map(|(who, grant)| (who.0, grant.node.index())).collect();
        assert_eq!(of_core, self.twin.pump(self.now), "{:?}", self.twin);
        self.in_flight.extend(out.into_iter().map(|(_, grant)| grant));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Ask(stick) => self.ask(stick),
            Step::Leave(which) if !self.in_flight.is_empty() => {
                let grant = self.in_flight.swap_remove(which % self.in_flight.len());
                self.twin.in_flight[grant.node.index()] -= 1;
                let mut out = Vec::new();
                self.core.leave(&grant, self.now, &mut out);
                self.compare(out);
            }
            Step::Move(place, ours) if self.twin.ours[place] != ours => {
                let version = self.records[place].assign().unwrap().version + 1;
                let to = assign(if ours { 1 } else { 2 }, version);
                self.records[place].assign_word().store(to.pack(), Ordering::SeqCst);
                self.twin.ours[place] = ours;
                let out = self.look();
                self.compare(out);
            }
            Step::Open(place, open) => {
                self.twin.open[place] = open;
                let out = self.look();
                self.compare(out);
            }
            Step::Pass(ms) => {
                self.now += Duration::from_millis(ms);
                let out = self.look();
                self.compare(out);
            }
            Step::GiveUp(which) if !self.flags.is_empty() => {
                self.flags[which % self.flags.len()].set(true);
            }
            Step::Leave(_) | Step::Move(..) | Step::GiveUp(_) => {}
        }
    }

    fn ask(&mut self, stick: Option<Stick>) {
        self.asked += 1;
        let (who, gone) = (self.asked, Rc::new(Cell::new(false)));
        let ask = Ask { stick, ..Ask::default() };
        let me = Somebody(who, Rc::clone(&gone));
        let outcome = self.core.request(site(1), ask, self.now, || me);
        let (bound, until) = (None, Duration::ZERO);
        let waits = Waits { who, gone: Rc::clone(&gone), stick, bound, until };
        match (outcome, self.twin.ask(waits, self.now)) {
            (Outcome::Granted(grant), Some(Ok(place))) => {
                assert_eq!(grant.node.index(), place);
                self.in_flight.push(grant);
            }
            (Outcome::Queued { .. }, None) => self.flags.push(gone),
            (Outcome::Refused(Refusal::QueueFull), Some(Err(()))) => {}
            (core, twin) => panic!("{core:?} is not {twin:?}: {:?}", self.twin),
        }
    }
}

proptest! {
    /// Whoever asks, waits, gives up, and whichever servers come and go: the core lets the same
    /// requests go to the same servers in the same order as the naive reading of the rules.
    #[test]
    fn lanes_and_queue_agree_with_one_list(
        steps in proptest::collection::vec(any_step(), 1..250),
    ) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
        }
        // At the end everybody leaves, and nobody is forgotten.
        pair.step(&Step::Open(0, true));
        pair.step(&Step::Move(0, true));
        for _ in 0..steps.len() {
            pair.step(&Step::Leave(0));
        }
        prop_assert!(pair.in_flight.is_empty() && pair.core.totals() == (0, 0));
    }
}

#[test]
fn a_request_waits_for_its_server_and_then_takes_any() {
    let mut pair = Pair::new();
    let own = Some(Stick::Server(node(1)));
    for _ in 0..MAX + 2 {
        pair.ask(own);
    }
    assert_eq!(pair.core.totals(), (2, u64::from(MAX)), "two wait although others are idle");
    pair.step(&Step::Leave(0));
    assert!(pair.in_flight.iter().all(|grant| grant.node == node(1)));
    pair.step(&Step::Pass(STICK_WAIT.as_millis() as u64));
    assert_eq!(pair.core.totals().0, 0);
    assert_eq!(pair.in_flight.iter().filter(|grant| grant.node != node(1)).count(), 1);
    let counts = pair.core.counts(pair.now)[0];
    assert_eq!((counts.sticky_kept, counts.sticky_anew), (u64::from(MAX) + 1, 1));
}

#[test]
fn who_waits_for_a_server_that_moved_goes_elsewhere_at_once() {
    let mut pair = Pair::new();
    for _ in 0..MAX + 3 {
        pair.ask(Some(Stick::Server(node(2))));
    }
    pair.step(&Step::Move(2, false));
    assert_eq!(pair.core.totals().0, 0);
    pair.ask(Some(Stick::Server(node(2))));
    assert_ne!(pair.in_flight.last().unwrap().node, node(2));
    assert_eq!(pair.core.counts(pair.now)[0].sticky_anew, 4);
    // Who has no server of its own does not overtake who waits for one.
    drop(leave(&mut pair.core, &pair.in_flight[0]));
}
