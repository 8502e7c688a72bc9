//! The transitions: one remote operation is one step; faults are actions with budgets.

use crate::state::{
    Budgets, Doing, EDGES_MAX, Edge, FIRST_EPOCH, HOMES, Looking, NODES_MAX, NOTHING, Node,
    SITES_MAX, State, Zombie, floor, site,
};
use moves::protocol::{Op, Reply, Word};
use pool_model::SiteId;
use shared_state::words::{Assign, Depart};
use stateright::{Model, Property};
use std::hash::{Hash, Hasher};

/// Steps within which one edge alone must make all descriptors idle, looks included.
pub(crate) const SOLO_STEPS_MAX: usize = 60;

/// One configuration to be searched.
#[derive(Clone, Debug)]
pub(crate) struct World<const FLAW: u8> {
    pub(crate) edges: usize,
    /// The hard guarantee of each site.
    pub(crate) hard: Vec<u16>,
    /// The site (by index) where each node starts.
    pub(crate) start: Vec<usize>,
    pub(crate) budgets: Budgets,
    /// Whether solo progress is checked too: it costs a hundred times the search.
    pub(crate) progress: bool,
    /// Bumps draw no nonce: a flaw of the input, not of a machine.
    pub(crate) no_nonce: bool,
    /// Nodes may also be set free.
    pub(crate) to_none: bool,
    /// The first site's guarantee after a live change.
    pub(crate) raise_to: u16,
    /// The new guarantee counts as promised once it is written: what a command may not do.
    pub(crate) promise_at_write: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// An edge performs its next operation. The choice is of donor and taker where it starts a
    /// look, and of the node where it ends one.
    Step {
        edge: usize,
        choice: usize,
    },
    /// The edge's next operation is not answered in time and stays under way.
    TimeOut(usize),
    ZombieLands,
    Crash(usize),
    NodeFails(usize),
    Wipe(usize),
    ChangeHome(usize),
    FalseUnreachable(usize),
}

impl<const FLAW: u8> World<FLAW> {
    /// Runs one edge alone, without new installs, until all descriptors of its home are idle.
    fn solo(&self, state: &State<FLAW>, edge: usize) -> bool {
        let mut state = state.clone();
        // Bumps are the repair itself; they are not what the budget is to bound here.
        state.left = Budgets { bumps: u8::MAX, ..Budgets::default() };
        for _ in 0..SOLO_STEPS_MAX {
            let words = &state.departs[usize::from(state.edges[edge].home)][..self.sites()];
            let idle = |raw: u64| !Depart::is_unset(raw) && Depart::unpack(raw).pending.is_none();
            let Some(donor) = words.iter().position(|&raw| !idle(raw)) else { return true };
            let choice = match &state.edges[edge].doing {
                Doing::Nothing => self.choice_for(donor, words[donor]),
                _ => 0,
            };
            if self.step(&mut state, edge, choice).is_none() {
                return false;
            }
        }
        false
    }

    /// The choice of pair that looks at this donor with the taker that its descriptor names.
    fn choice_for(&self, donor: usize, raw: u64) -> usize {
        let taker = Depart::unpack(raw).pending.and_then(|departure| departure.taker);
        let fits = |choice: usize| {
            let (d, t) = self.pair(choice);
            let wanted = taker.map_or(donor, SiteId::index);
            usize::from(d) == donor && (Depart::is_unset(raw) || usize::from(t) == wanted)
        };
        (0..self.pairs()).find(|&choice| fits(choice)).unwrap_or(0)
    }

    /// Ends looks that cannot lead to any operation, whatever they still read. That changes no
    /// word that anybody ever sees, so it hides no violation; it makes the space eight times
    /// smaller.
    ///
    /// No install is left, so an idle descriptor can only lead to a renewal or a bump. In the
    /// first epoch no older stamp exists to be renewed, and a newer stamp exists only where a
    /// descriptor was wiped or lives on a second home, or after this one has changed, so that
    /// the bump would miss.
    fn drop_futile(&self, state: &mut State<FLAW>) {
        let one_history = self.budgets.wipes == 0 && self.budgets.home_changes == 0;
        if state.left.installs > 0 || state.left.raises > 0 || !one_history {
            return;
        }
        for edge in &mut state.edges {
            let Doing::Looking(Looking { depart: Some(raw), .. }) = edge.doing else { continue };
            let word = Depart::unpack(raw);
            if word.pending.is_none() && word.epoch == FIRST_EPOCH {
                edge.doing = Doing::Nothing;
            }
        }
    }

    /// Whether the first site's new guarantee holds: from when it was promised, once reached.
    fn note_raise(&self, state: &mut State<FLAW>) {
        let written = state.floors[0] != floor(self.hard[0]);
        let promised = if self.promise_at_write { written } else { state.bound };
        state.reached |= promised && state.alive_and_failed(site(0)) >= usize::from(self.raise_to);
    }

    fn holds_floors(&self, state: &State<FLAW>) -> bool {
        if state.reached && state.alive_and_failed(site(0)) < usize::from(self.raise_to) {
            return false;
        }
        let met = |(index, &hard): (usize, &u16)| {
            state.alive_and_failed(site(index)) >= usize::from(hard)
        };
        self.hard.iter().enumerate().all(met)
    }
}

/// Only orders edges: one multiplication for each field, where the standard hasher would take a
/// third of the search's time. Two edges that collide are two states, which is only a waste.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Edges have no names in the protocol's words, so states that differ only in which edge does what
/// are one state. The place of an edge therefore changes along a trace.
fn sort_edges<const FLAW: u8>(state: &mut State<FLAW>) {
    let mut keys = [0; EDGES_MAX];
    for (key, edge) in keys.iter_mut().zip(&state.edges) {
        let mut hasher = Quick::default();
        edge.hash(&mut hasher);
        *key = hasher.finish();
    }
    for (low, high) in [(0, 1), (1, 2), (0, 1)] {
        if keys[low] > keys[high] {
            keys.swap(low, high);
            state.edges.swap(low, high);
        }
    }
}

impl<const FLAW: u8> Model for World<FLAW> {
    type State = State<FLAW>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        let dead = Node { alive: false, assign: NOTHING };
        let mut nodes = [dead; NODES_MAX];
        for (node, &at) in nodes.iter_mut().zip(&self.start) {
            let assign = Assign { site: Some(site(at)), stamp: FIRST_EPOCH, version: 0 };
            *node = Node { alive: true, assign: assign.pack() };
        }
        let mut departs = [[0; SITES_MAX]; HOMES];
        departs[0][..self.sites()].fill(Depart::opened(FIRST_EPOCH).pack());
        let edges = std::array::from_fn::<_, EDGES_MAX, _>(|index| Edge {
            home: 0,
            doing: if index < self.edges { Doing::Nothing } else { Doing::Dead },
        });
        let (installs, departures) = ([0; SITES_MAX], [0; SITES_MAX]);
        let left = self.budgets;
        let floors = std::array::from_fn(|index| self.hard.get(index).copied().map_or(0, floor));
        vec![State {
            nodes,
            departs,
            floors,
            bound: false,
            reached: false,
            edges,
            zombie: None,
            left,
            installs,
            departures,
        }]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        let left = &state.left;
        for (edge, Edge { doing, .. }) in state.edges.iter().enumerate() {
            if *doing == Doing::Dead {
                continue;
            }
            let worth = |choice: &usize| self.is_worth(left, doing, *choice);
            let choices = (0..self.choices(doing)).filter(worth);
            actions.extend(choices.map(|choice| Action::Step { edge, choice }));
            let op = doing.next_op();
            let swaps = matches!(op, Some(Op::CompareAndSwap { .. }));
            if swaps && left.zombies > 0 && state.zombie.is_none() {
                actions.push(Action::TimeOut(edge));
            }
            let on_node = match op {
                Some(Op::Read(word) | Op::CompareAndSwap { word, .. }) => {
                    matches!(word, Word::Assign(node) if state.nodes[node.index()].alive)
                }
                None => false,
            };
            if on_node && left.false_unreachable > 0 {
                actions.push(Action::FalseUnreachable(edge));
            }
            if left.crashes > 0 {
                actions.push(Action::Crash(edge));
            }
            if left.home_changes > 0 {
                actions.push(Action::ChangeHome(edge));
            }
        }
        if state.zombie.is_some() {
            actions.push(Action::ZombieLands);
        }
        if left.failures > 0 {
            let alive = (0..self.nodes()).filter(|&index| state.nodes[index].alive);
            actions.extend(alive.map(Action::NodeFails));
        }
        if left.wipes > 0 {
            let written = |home: &usize| state.departs[*home].iter().any(|&raw| raw != 0);
            actions.extend((0..HOMES).filter(written).map(Action::Wipe));
        }
    }

    fn next_state(&self, last: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut state = last.clone();
        match action {
            Action::Step { edge, choice } => self.step(&mut state, edge, choice)?,
            Action::TimeOut(edge) => {
                let op = state.edges[edge].doing.next_op()?;
                state.zombie = Some(Zombie { home: state.edges[edge].home, op });
                state.left.zombies -= 1;
                self.fault(&mut state, edge, Reply::Unknown);
            }
            Action::ZombieLands => {
                let Zombie { home, op } = state.zombie.take()?;
                state.perform(home, op);
            }
            Action::Crash(edge) => {
                state.left.crashes -= 1;
                state.edges[edge] = Edge { home: 0, doing: Doing::Dead };
            }
            Action::NodeFails(index) => {
                state.left.failures -= 1;
                let site = Assign::unpack(state.nodes[index].assign)?.site;
                // Nobody reads it any more: only where it was counts.
                let assign = Assign { site, ..Assign::FREE }.pack();
                state.nodes[index] = Node { alive: false, assign };
            }
            Action::Wipe(home) => {
                state.left.wipes -= 1;
                state.departs[home] = [0; SITES_MAX];
            }
            Action::ChangeHome(edge) => {
                state.left.home_changes -= 1;
                let home = 1 - state.edges[edge].home;
                state.edges[edge] = Edge { home, doing: Doing::Nothing };
            }
            Action::FalseUnreachable(edge) => {
                state.left.false_unreachable -= 1;
                self.fault(&mut state, edge, Reply::Unreachable);
            }
        }
        self.note_raise(&mut state);
        self.drop_futile(&mut state);
        sort_edges(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let floors =
            Property::always(FLOORS, |world: &Self, state: &Self::State| world.holds_floors(state));
        let departures = Property::always(DEPARTURES, |_: &Self, state: &Self::State| {
            state.departures.iter().zip(&state.installs).all(|(left, installed)| left <= installed)
        });
        let progress = Property::always(PROGRESS, |world: &Self, state: &Self::State| {
            let live = |&edge: &usize| state.edges[edge].doing != Doing::Dead;
            !world.progress || (0..EDGES_MAX).filter(live).all(|edge| world.solo(state, edge))
        });
        vec![floors, departures, progress]
    }
}

pub(crate) const FLOORS: &str = "alive + failed nodes of a site are at least hard";
pub(crate) const DEPARTURES: &str = "departures are at most installs";
pub(crate) const PROGRESS: &str = "one live edge alone makes all descriptors idle within 60 steps";
