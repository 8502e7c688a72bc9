//! One event, one move: the real event code and the real claim under the checker.
//!
//! One site is hot until a node has arrived and its load has settled; it never gets hot again.
//! Edges look when they like; time is counted in halves of a hold and is the same for all.
//! A look is two steps (the counter; then nodes and load), a claim one, a move one.
//!
//! Rules are taken away by the model, not in the code: arrivals can be hidden from the event code
//! (no restart on a seen arrival), and the guard's answer can be ignored.

use crate::search::{assert_broken_in, assert_complete, assert_complete_on_demand};
use crate::state::site;
use moves::protocol::{Claim, Machine, Next, Op, Outcome, Reply, Seen};
use moves::{Events, Need, Timing};
use pool_model::{EdgeId, Reason};
use shared_state::words::{Arrive, Assign, Depart, Epoch};
use stateright::{Model, Property};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Half a hold.
const TICK_NS: u64 = 1_000_000;
const TIMING: Timing = Timing {
    look_every_ns: TICK_NS,
    hold_ns: 2 * TICK_NS,
    node_dead_ns: 100 * TICK_NS,
    serve_wait_ns: 100 * TICK_NS,
};
/// The time of every state: what passes makes the past older instead, so that the space is finite
/// although time is not.
const NOW_NS: u64 = 10 * TICK_NS;
/// Ages of a claim beyond this make no difference.
const CLAIM_TICKS_MAX: u8 = 2;
/// Ticks after an arrival in which the load has settled, less than a hold.
const SETTLE_TICKS_MAX: u8 = 1;
/// Claims that a search follows: a crash or a stall, a second claim, and one more.
const CLAIMS_MAX: u64 = 3;
/// Moves are counted up to this; each takes a node of its own.
const MOVES_MAX: u8 = 3;
/// Ticks within which one live edge alone makes the move that is due: what is under way, two looks
/// a hold apart, a claim that was lost, and once more.
const SOLO_TICKS_MAX: u8 = 8;
const TAKER: usize = 0;
const DONOR: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    Sound,
    /// A seen arrival does not start the timer anew.
    NoRestart,
    /// Neither that, nor the own-clock guard.
    NoRestartNoGuard,
    /// As published: check the counter, lock, move, add, unlock.
    CheckLockMoveAdd,
}

#[derive(Clone, Debug)]
struct EventWorld {
    edges: usize,
    crashes: u8,
    rules: Rules,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Rest,
    /// The counter was read.
    HalfLooked(u64),
    Claim(Claim),
    Claimed {
        ticks_ago: u8,
    },
    /// Published order: the check passed, the lock is wanted.
    Locking,
    Moving,
    Adding,
    Dead,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Edge {
    events: Events,
    doing: Doing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    arrive: u64,
    locked: bool,
    moves: u8,
    arrived_ticks_ago: u8,
    settled: bool,
    crashes: u8,
    edges: Vec<Edge>,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Step(usize),
    Tick,
    Settle,
    Crash(usize),
}

impl EventWorld {
    /// The shared words as a look sees them now, with the counter as read in its first half.
    fn seen(&self, state: &State, arrive: u64) -> Seen {
        let mut seen = Seen::new(2, u16::from(MOVES_MAX));
        let idle = Depart::opened(Epoch::new(1, 1)).pack();
        for words in &mut seen.sites {
            words.depart = idle;
        }
        seen.sites[TAKER].arrive = arrive;
        for (index, word) in seen.nodes.iter_mut().enumerate() {
            let stays = Assign { site: Some(site(DONOR)), ..Assign::FREE };
            let moved = index < usize::from(state.moves) && self.rules == Rules::Sound;
            let assign = if moved { stays.moved(Some(site(TAKER)), Epoch::ZERO) } else { stays };
            *word = Some(assign.pack());
        }
        seen
    }

    /// The second half of a look, and what the event code makes of it.
    fn looked(&self, state: &State, edge: usize, arrive: u64) -> Edge {
        let Edge { mut events, .. } = state.edges[edge].clone();
        let seen = self.seen(state, arrive);
        events.looked(NOW_NS, &seen, |_| true);
        let reason = (!state.settled).then_some(Reason::Load);
        let need = Need { reason, nodes: 1 + u16::from(state.moves), hard: 0 };
        let ripe = events.ripe(NOW_NS, 0, site(TAKER), &need);
        let me = EdgeId::MIN;
        let doing = match self.rules {
            _ if !ripe => Doing::Rest,
            Rules::CheckLockMoveAdd => Doing::Locking,
            _ => Doing::Claim(Claim::new(&seen, site(TAKER), me, Reason::Load)),
        };
        Edge { events, doing }
    }

    fn claim(&self, state: &mut State, edge: usize, mut claim: Claim) -> Doing {
        let Next::Op(Op::CompareAndSwap { expected, new, .. }) = claim.next() else {
            return Doing::Rest;
        };
        let found = state.arrive;
        if found == expected {
            state.arrive = new;
        }
        claim.reply(Reply::Swapped { found });
        match claim.next() {
            Next::Done(Outcome::Claimed { taker, counter }) => {
                state.edges[edge].events.claimed(taker, counter);
                Doing::Claimed { ticks_ago: 0 }
            }
            _ => Doing::Rest,
        }
    }

    fn move_node(&self, state: &mut State) {
        state.moves = (state.moves + 1).min(MOVES_MAX);
        if !state.settled {
            state.arrived_ticks_ago = 0;
        }
    }

    fn step(&self, state: &mut State, edge: usize) -> Option<()> {
        let doing = state.edges[edge].doing.clone();
        state.edges[edge].doing = match doing {
            Doing::Dead => return None,
            Doing::Rest => Doing::HalfLooked(state.arrive),
            Doing::HalfLooked(arrive) => {
                state.edges[edge] = self.looked(state, edge, arrive);
                return Some(());
            }
            Doing::Claim(claim) => self.claim(state, edge, claim),
            Doing::Claimed { ticks_ago } => {
                let sent_ns = NOW_NS - u64::from(ticks_ago) * TICK_NS;
                let guarded = self.rules != Rules::NoRestartNoGuard;
                if !(guarded && TIMING.is_late(sent_ns, NOW_NS)) {
                    self.move_node(state);
                }
                Doing::Rest
            }
            Doing::Locking if state.locked => return None,
            Doing::Locking => {
                state.locked = true;
                Doing::Moving
            }
            Doing::Moving => {
                self.move_node(state);
                Doing::Adding
            }
            Doing::Adding => {
                let me = EdgeId::MIN;
                let added = Arrive::unpack(state.arrive);
                state.arrive = added.claimed(me, Reason::Load).pack();
                state.locked = false;
                Doing::Rest
            }
        };
        Some(())
    }

    /// Whether one live edge alone, looking once a tick, makes the move that is still due.
    fn solo(&self, state: &State, edge: usize) -> bool {
        if state.moves > 0 {
            return true;
        }
        let mut state = state.clone();
        for _ in 0..SOLO_TICKS_MAX {
            for _ in 0..4 {
                if state.moves > 0 {
                    return true;
                }
                if self.step(&mut state, edge).is_none() {
                    return false;
                }
            }
            tick(&mut state);
        }
        false
    }
}

/// Half a hold passes for everybody.
fn tick(state: &mut State) {
    state.arrived_ticks_ago += u8::from(state.moves > 0 && !state.settled);
    for Edge { events, doing } in &mut state.edges {
        events.age(NOW_NS, TICK_NS);
        if let Doing::Claimed { ticks_ago } = doing {
            *ticks_ago = (*ticks_ago + 1).min(CLAIM_TICKS_MAX);
        }
    }
}

/// Forgets what can make no difference any more: after the load has settled, an edge that is not
/// about to move never will. (The published variant locks later, so it keeps its place.)
fn normalise(state: &mut State) {
    for Edge { events, doing } in &mut state.edges {
        events.age(NOW_NS, 0);
        let idle = matches!(doing, Doing::Rest | Doing::HalfLooked(_));
        if *doing == Doing::Dead || (state.settled && idle) {
            *events = Events::new(TIMING, EdgeId::MIN, 0, 0);
            *doing = Doing::Dead;
        }
    }
    if state.settled {
        state.arrived_ticks_ago = 0;
    }
    state.edges.sort_by_cached_key(|edge| {
        let mut hasher = DefaultHasher::new();
        edge.hash(&mut hasher);
        hasher.finish()
    });
}

impl Model for EventWorld {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        // One name for all: who claimed makes a difference only for the reason floor.
        let edge = |_| {
            let events = Events::new(TIMING, EdgeId::MIN, 2, u16::from(MOVES_MAX));
            Edge { events, doing: Doing::Rest }
        };
        vec![State {
            arrive: 0,
            locked: false,
            moves: 0,
            arrived_ticks_ago: 0,
            settled: false,
            crashes: self.crashes,
            edges: (0..self.edges).map(edge).collect(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.moves >= MOVES_MAX {
            return;
        }
        for (edge, Edge { doing, .. }) in state.edges.iter().enumerate() {
            let spent = Arrive::unpack(state.arrive).counter >= CLAIMS_MAX;
            if *doing != Doing::Dead {
                if !(spent && matches!(doing, Doing::Claim(_) | Doing::Locking)) {
                    actions.push(Action::Step(edge));
                }
                if state.crashes > 0 {
                    actions.push(Action::Crash(edge));
                }
            }
        }
        let hot = state.moves > 0 && !state.settled;
        if hot {
            actions.push(Action::Settle);
        }
        if !(hot && state.arrived_ticks_ago >= SETTLE_TICKS_MAX) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step(edge) => self.step(&mut state, edge)?,
            Action::Tick => tick(&mut state),
            Action::Settle => state.settled = true,
            Action::Crash(edge) => {
                state.crashes -= 1;
                state.edges[edge].doing = Doing::Dead;
            }
        }
        normalise(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let one = Property::always(ONE_MOVE, |_: &Self, state: &State| state.moves <= 1);
        let stuck = Property::always(NEVER_STUCK, |world: &Self, state: &State| {
            let live = |&edge: &usize| state.edges[edge].doing != Doing::Dead;
            (0..world.edges).filter(live).all(|edge| world.solo(state, edge))
        });
        vec![one, stuck]
    }
}

const ONE_MOVE: &str = "one event makes at most one move";
const NEVER_STUCK: &str = "while an edge lives, the event is not forgotten";

#[test]
fn one_event_makes_one_move() {
    // A crash is never forced, so this includes the runs without one.
    for edges in [2, 3] {
        let name = format!("event rules, {edges} edges, one crash");
        assert_complete(&name, EventWorld { edges, crashes: 1, rules: Rules::Sound });
    }
}

#[test]
fn one_event_makes_one_move_with_four_edges() {
    let world = EventWorld { edges: 4, crashes: 1, rules: Rules::Sound };
    assert_complete_on_demand("event rules, 4 edges, one crash", world);
}

#[test]
fn wrong_arrivals_do_not_restart_the_timer() {
    let world = EventWorld { edges: 2, crashes: 0, rules: Rules::NoRestart };
    assert_broken_in("no restart on a seen arrival", world, ONE_MOVE);
}

#[test]
fn wrong_no_guard() {
    let world = EventWorld { edges: 2, crashes: 0, rules: Rules::NoRestartNoGuard };
    assert_broken_in("no restart, no guard", world, ONE_MOVE);
}

#[test]
fn wrong_check_lock_move_add() {
    let world = EventWorld { edges: 2, crashes: 0, rules: Rules::CheckLockMoveAdd };
    assert_broken_in("check, lock, move, add: moves", world, ONE_MOVE);
    let world = EventWorld { edges: 2, crashes: 1, rules: Rules::CheckLockMoveAdd };
    assert_broken_in("check, lock, move, add: stuck", world, NEVER_STUCK);
}
