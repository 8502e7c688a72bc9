//! Protocols that do not keep a floor, in small: what the real one is measured against.
//!
//! Each edge makes one move away from site 0, whose floor is one node.

use crate::search::assert_broken;
use crate::world::FLOORS;
use stateright::{Model, Property};

/// Nodes at most.
const NODES_MAX: usize = 4;
const EDGES: usize = 2;
const DONOR: u8 = 0;
const HARD: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The published one: a lock on the taker, a look at the donor, a compare-and-swap on the
    /// node.
    TakerLock,
    /// A lock on the donor that a clock takes away from an owner that seems dead. Its writes
    /// carry no fence.
    DonorLockWithExpiry,
    /// A counter of the donor's nodes, lowered after the node was swapped.
    Counter,
}

#[derive(Clone, Debug)]
struct Locks {
    kind: Kind,
    takers: u8,
    nodes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Start,
    Counting { taker: u8, at: u8, seen: [bool; NODES_MAX] },
    Swapping { taker: u8, node: u8 },
    Lowering { taker: u8 },
    Unlocking { taker: u8 },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// The site of each node; past the end, one that nobody uses.
    nodes: [u8; NODES_MAX],
    /// The owner of each site's lock, plus one.
    locks: [u8; 3],
    counter: u8,
    edges: [Doing; EDGES],
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Step { edge: usize, choice: u8 },
    Expire,
}

impl Locks {
    /// The lock that a move to this taker needs.
    fn lock(&self, taker: u8) -> Option<usize> {
        match self.kind {
            Kind::TakerLock => Some(usize::from(taker)),
            Kind::DonorLockWithExpiry => Some(usize::from(DONOR)),
            Kind::Counter => None,
        }
    }

    fn start(&self, state: &mut State, edge: usize, taker: u8) -> Option<Doing> {
        if let Some(lock) = self.lock(taker) {
            if state.locks[lock] != 0 {
                return None;
            }
            state.locks[lock] = u8::try_from(edge).ok()? + 1;
        }
        if self.kind == Kind::Counter {
            let enough = usize::from(state.counter) > HARD;
            return Some(if enough {
                Doing::Swapping { taker, node: u8::MAX }
            } else {
                Doing::Done
            });
        }
        Some(Doing::Counting { taker, at: 0, seen: [false; NODES_MAX] })
    }

    fn step(&self, state: &mut State, edge: usize, choice: u8) -> Option<()> {
        state.edges[edge] = match state.edges[edge] {
            Doing::Start => self.start(state, edge, choice)?,
            Doing::Counting { taker, at, mut seen } => {
                seen[usize::from(at)] = state.nodes[usize::from(at)] == DONOR;
                if usize::from(at) + 1 < self.nodes {
                    Doing::Counting { taker, at: at + 1, seen }
                } else if seen.iter().filter(|seen| **seen).count() > HARD {
                    let chosen = seen.get(usize::from(choice)).is_some_and(|seen| *seen);
                    chosen.then_some(Doing::Swapping { taker, node: choice })?
                } else {
                    Doing::Unlocking { taker }
                }
            }
            Doing::Swapping { taker, node } => {
                // The counter names no node: any of the donor's will do.
                let node = if node == u8::MAX { choice } else { node };
                let word = state.nodes.get_mut(usize::from(node))?;
                let swapped = *word == DONOR;
                if swapped {
                    *word = taker;
                }
                match self.kind {
                    Kind::Counter if swapped => Doing::Lowering { taker },
                    Kind::Counter => Doing::Done,
                    _ => Doing::Unlocking { taker },
                }
            }
            Doing::Lowering { .. } => {
                state.counter -= 1;
                Doing::Done
            }
            Doing::Unlocking { taker } => {
                let lock = self.lock(taker)?;
                if usize::from(state.locks[lock]) == edge + 1 {
                    state.locks[lock] = 0;
                }
                Doing::Done
            }
            Doing::Done => return None,
        };
        Some(())
    }
}

impl Model for Locks {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut nodes = [u8::MAX; NODES_MAX];
        nodes[..self.nodes.min(2)].fill(DONOR);
        nodes[self.nodes.min(2)..self.nodes].fill(1);
        let edges = [Doing::Start; EDGES];
        vec![State { nodes, locks: [0; 3], counter: 2, edges }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (edge, doing) in state.edges.iter().enumerate() {
            let choices = match doing {
                Doing::Start => 1..=self.takers,
                Doing::Done => continue,
                _ => 0..=3,
            };
            actions.extend(choices.map(|choice| Action::Step { edge, choice }));
        }
        if self.kind == Kind::DonorLockWithExpiry && state.locks[usize::from(DONOR)] != 0 {
            actions.push(Action::Expire);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step { edge, choice } => self.step(&mut state, edge, choice)?,
            Action::Expire => state.locks[usize::from(DONOR)] = 0,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(FLOORS, |_, state: &State| {
            state.nodes.iter().filter(|&&site| site == DONOR).count() >= HARD
        })]
    }
}

#[test]
fn wrong_published_two_level_lock() {
    let model = Locks { kind: Kind::TakerLock, takers: 2, nodes: 2 };
    assert_broken("published two-level lock", model);
}

#[test]
fn wrong_donor_lock_with_expiry() {
    let model = Locks { kind: Kind::DonorLockWithExpiry, takers: 1, nodes: 2 };
    assert_broken("donor lock with expiry", model);
}

#[test]
fn wrong_counter_of_nodes() {
    let model = Locks { kind: Kind::Counter, takers: 1, nodes: 4 };
    assert_broken("counter of nodes", model);
}
