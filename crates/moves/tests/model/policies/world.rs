//! State and transitions.

use super::spec;
use crate::state::{FIRST_EPOCH, NODES_MAX, NOTHING, SITES_MAX, floor, node, site};
use moves::protocol::{
    Claim, DepartState, Help, Join, Machine, Next, Op, Outcome, Prepared, Reply, Seen, SiteWords,
    Task, Word, prepare,
};
use policy::{Candidate, Kind, Thresholds};
use pool_model::{
    Classes, EdgeId, Guarantee, NodeTraits, NodeView, Objective, PoolView, Priority, Reason,
    SiteTerms, SiteView,
};
use shared_state::words::{Assign, Depart};
use stateright::{Model, Property};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Requests that a node takes at once.
pub(super) const SLOTS: u32 = 8;
/// Requests that a site has: none; what makes one node hot and four light; more than any pool can
/// bear.
pub(super) const DEMANDS: [u32; 3] = [0, 12, 999];
pub(super) const EDGES_MAX: usize = 3;
/// What a server takes for a request.
pub(super) const SERVICE_US: u32 = 1_000;
/// The class that some sites can't do without.
const CLASS: Classes = Classes(1);
/// Steps within which one edge alone brings the pool to rest: three moves of a dozen steps, what is
/// pending, and the looks that find nothing more.
const SOLO_STEPS_MAX: usize = 120;

/// What the settings state of a site.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Site {
    pub(super) priority: u8,
    pub(super) hard: u16,
    pub(super) soft: u16,
    pub(super) max: u16,
    /// Whether only a node of a class can serve it.
    pub(super) picky: bool,
    /// Its objective, if it has one.
    pub(super) p99_us: u32,
}

/// What is wrong with a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    Nothing,
    /// Equals give what they hold above hard, not above soft.
    EqualsGiveBelowSoft,
    /// Soft guarantees count as floors.
    SoftIsFloor,
    /// A loaded lower priority gives beyond the taker's soft guarantee.
    BeyondSoft,
    /// Whoever holds more than hard counts as light, and as calm without a node.
    NoHysteresis,
    /// Nobody makes way for another.
    NoStage,
    /// To each site that asks, others seem to be slower than they are, so to want more than it.
    WantsIgnored,
    /// Claims are not told from each other, and nobody waits for one that is under way.
    NoClaim,
    /// The scheme without guarantees is held to those with them.
    JudgedByGuarantees,
}

/// One configuration to be searched.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) kind: Kind,
    pub(super) edges: usize,
    pub(super) sites: &'static [Site],
    /// The site (by index) where each node starts; none for a free one.
    pub(super) start: &'static [Option<usize>],
    /// The nodes of the class.
    pub(super) of_class: &'static [usize],
    pub(super) levels: &'static [u8],
    pub(super) changes: u8,
    pub(super) crashes: u8,
    /// Moves within which constant loads must come to rest.
    pub(super) moves_max: u8,
    /// Whether a node may come back to a site that it left: only where a third has a hand in it.
    pub(super) may_return: bool,
    pub(super) progress: bool,
    pub(super) wrong: Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing {
    Rest,
    /// The site words were read; and for which sites a claim was under way then.
    HalfLooked {
        words: [SiteWords; SITES_MAX],
        busy: [bool; SITES_MAX],
    },
    /// Decided, not claimed yet.
    Claim {
        claim: Claim,
        then: Task,
        changes: u8,
    },
    /// Carrying it out under a claim, or helping without one.
    Run {
        task: Task,
        claimed: Option<u8>,
        changes: u8,
    },
    Dead,
}

/// What some move did that it must not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Broken {
    hard: bool,
    rules: bool,
    rest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) nodes: [u64; NODES_MAX],
    pub(super) words: [SiteWords; SITES_MAX],
    pub(super) levels: [u8; SITES_MAX],
    pub(super) edges: [Doing; EDGES_MAX],
    /// Load changes and crashes that may still happen.
    pub(super) changes: u8,
    pub(super) crashes: u8,
    /// By donor: changes left when the pending departure was decided on.
    decided: [u8; SITES_MAX],
    /// Ghosts: moves, and sites that each node left, since the last change of a load.
    moves: u8,
    left: [u8; NODES_MAX],
    broken: Broken,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// An edge performs its next operation. Where it ends a look, the number picks what it does.
    Step {
        edge: usize,
        pick: usize,
    },
    Crash(usize),
    Load {
        site: usize,
        level: u8,
    },
}

impl State {
    /// Where each node is.
    pub(super) fn places(&self) -> impl Iterator<Item = Option<usize>> {
        self.nodes.iter().map(|&raw| Some(Assign::unpack(raw)?.site?.index()))
    }

    /// Sites for which a live edge carries out a claim.
    fn busy(&self) -> [bool; SITES_MAX] {
        let mut busy = [false; SITES_MAX];
        for doing in &self.edges {
            if let Doing::Run { claimed: Some(site), .. } = doing {
                busy[usize::from(*site)] = true;
            }
        }
        busy
    }
}

impl World {
    /// What the policy is given; `taker` is for whom, where a variant makes a difference of it.
    fn view(&self, state: &State, taker: Option<usize>) -> PoolView {
        let mut view = PoolView::default();
        for (index, terms) in self.sites.iter().enumerate() {
            let Site { priority, mut hard, mut soft, max, picky, p99_us } = *terms;
            let mut service_us = SERVICE_US;
            let mut queued = DEMANDS[usize::from(state.levels[index])];
            let other = taker.filter(|&taker| taker != index);
            match self.wrong {
                Wrong::EqualsGiveBelowSoft if other.is_some() => soft = hard,
                Wrong::SoftIsFloor if other.is_some() => hard = soft,
                Wrong::BeyondSoft if other.is_none() => soft = max,
                Wrong::NoHysteresis if other.is_some() => queued = 0,
                Wrong::WantsIgnored if other.is_some() => service_us *= 100,
                _ => {}
            }
            let guarantee = Guarantee { hard, soft, max };
            let priority = Priority(priority);
            let terms = SiteTerms {
                guarantee,
                priority,
                objective: (p99_us > 0).then_some(Objective { p99_us }),
                wants: if picky { CLASS } else { Classes::default() },
                ..SiteTerms::default()
            };
            let (in_flight, capacity, nodes) = (0, 0, 0);
            let id = site(index);
            view.sites.push(SiteView { id, terms, queued, in_flight, capacity, nodes, service_us });
        }
        for (number, at) in state.places().take(self.start.len()).enumerate() {
            let is_of_it = self.of_class.contains(&number);
            let classes = if is_of_it { CLASS } else { Classes::default() };
            view.nodes.push(NodeView {
                id: node(number),
                site: at.map(site),
                in_flight: 0,
                max_in_flight: SLOTS,
                movable: true,
                traits: NodeTraits { classes, ..NodeTraits::default() },
            });
        }
        view.sum_up();
        view
    }

    /// The words as a look has them whose site words are these and whose node words are of now.
    fn seen(&self, state: &State, words: &[SiteWords; SITES_MAX]) -> Seen {
        let nodes = self.start.len();
        Seen {
            sites: words[..self.sites.len()].to_vec(),
            nodes: state.nodes[..nodes].iter().map(|&raw| Some(raw)).collect(),
            counted: vec![true; nodes],
        }
    }

    /// What an edge may do at the end of this look.
    fn options(
        &self,
        state: &State,
        words: &[SiteWords; SITES_MAX],
        was_busy: &[bool; SITES_MAX],
    ) -> Vec<Doing> {
        let seen = self.seen(state, words);
        let mut options = Vec::new();
        let mut coming = [false; SITES_MAX];
        for (index, of) in self.sites.iter().enumerate().map(|(index, _)| (index, site(index))) {
            if let DepartState::Pending(_, departure) = seen.depart(of) {
                if let Some(taker) = departure.taker {
                    coming[taker.index()] = true;
                }
                let help = Help::plan(&seen, of, true);
                let changes = state.decided[index];
                options.extend(help.map(|help| Doing::Run {
                    task: Task::Help(help),
                    claimed: None,
                    changes,
                }));
            }
        }
        let policy = self.kind.build(Thresholds::DEFAULT);
        let busy = state.busy();
        let mut takers: Vec<(Reason, Priority, usize)> = Vec::new();
        for (index, _) in self.sites.iter().enumerate() {
            let claimed = busy[index] || was_busy[index];
            let waits = coming[index] || (self.wrong != Wrong::NoClaim && claimed);
            let view = self.view(state, Some(index));
            let reason = policy.need(&view, site(index)).filter(|_| !waits);
            takers.extend(reason.map(|reason| (reason, view.sites[index].terms.priority, index)));
        }
        // The most urgent first; the checker tries the others too.
        takers
            .sort_by_key(|&(reason, priority, index)| (reason, std::cmp::Reverse(priority), index));
        for (reason, _, taker) in takers {
            let view = self.view(state, Some(taker));
            let mut candidates = policy.candidates(&view, site(taker), reason);
            let mut to = taker;
            let best = candidates.first().copied();
            let stage = policy.stage(&view, site(taker), reason, best);
            if let Some(stage) = stage.filter(|_| self.wrong != Wrong::NoStage) {
                (to, candidates) = (stage.to.index(), vec![stage.candidate]);
            }
            let plans = candidates.iter().filter_map(|c| self.plan(&seen, to, reason, c));
            let changes = state.changes;
            options.extend(plans.map(|(claim, then)| Doing::Claim { claim, then, changes }));
        }
        options
    }

    fn plan(
        &self,
        seen: &Seen,
        taker: usize,
        reason: Reason,
        candidate: &Candidate,
    ) -> Option<(Claim, Task)> {
        let taker = site(taker);
        let task = match candidate.donor {
            None => Task::Join(Join::plan(seen, candidate.node, taker).ok()?),
            Some(donor) => match prepare(seen, donor, Some(taker), candidate.node) {
                Prepared::Ready(attempt) => Task::Attempt(attempt),
                _ => return None,
            },
        };
        Some((Claim::new(seen, taker, EdgeId::MIN, reason), task))
    }

    /// Carries out an operation and judges it, where it is the one that moves a node.
    fn perform(&self, state: &mut State, op: Op, changes: u8) -> Reply {
        let (Op::Read(word) | Op::CompareAndSwap { word, .. }) = op;
        let place = match word {
            Word::Depart(site) => &mut state.words[site.index()].depart,
            Word::Arrive(site) => &mut state.words[site.index()].arrive,
            Word::Floor(site) => &mut state.words[site.index()].floor,
            Word::Assign(node) => &mut state.nodes[node.index()],
        };
        let Op::CompareAndSwap { expected, new, .. } = op else { return Reply::Value(*place) };
        let found = *place;
        if found == expected {
            match word {
                Word::Assign(node) => self.judge(state, node.index(), new, changes),
                Word::Depart(site) if Depart::unpack(new).pending.is_some() => {
                    state.words[site.index()].depart = new;
                    state.decided[site.index()] = changes;
                }
                _ => *place = new,
            }
        }
        Reply::Swapped { found }
    }

    fn judge(&self, state: &mut State, number: usize, new: u64, changes: u8) {
        let at = |raw: u64| Some(Assign::unpack(raw)?.site?.index());
        let (from, to) = (at(state.nodes[number]), at(new));
        let (Some(to), true) = (to, from != to) else { return };
        // What was decided before a load changed is judged by floors only.
        let constant = changes == state.changes;
        let returned = !self.may_return && state.left[number] & (1 << to) != 0;
        if let Some(from) = from {
            state.broken.hard |= spec::counts(state)[from] <= self.sites[from].hard;
            state.broken.rules |= constant && !spec::may_take(self, state, to, from);
            state.broken.rules |= !spec::fits(self, to, number);
            state.left[number] |= u8::from(constant) << from;
        }
        state.moves += u8::from(constant);
        state.broken.rest |= constant && (returned || state.moves > self.moves_max);
        state.nodes[number] = new;
    }

    /// One step of one edge.
    pub(super) fn step(&self, state: &mut State, edge: usize, pick: usize) -> Option<()> {
        let doing = std::mem::replace(&mut state.edges[edge], Doing::Rest);
        state.edges[edge] = match doing {
            Doing::Dead => return None,
            Doing::Rest => Doing::HalfLooked { words: state.words, busy: state.busy() },
            Doing::HalfLooked { words, busy } => {
                let mut options = self.options(state, &words, &busy);
                if options.is_empty() {
                    Doing::Rest
                } else if pick < options.len() {
                    options.swap_remove(pick)
                } else {
                    return None;
                }
            }
            Doing::Claim { mut claim, then, changes } => {
                let taker = claim.taker().index();
                let Next::Op(op) = claim.next() else { return None };
                let reply = self.perform(state, op, changes);
                claim.reply(reply);
                let won = matches!(claim.next(), Next::Done(Outcome::Claimed { .. }));
                let claimed = u8::try_from(taker).ok();
                if won || self.wrong == Wrong::NoClaim {
                    Doing::Run { task: then, claimed, changes }
                } else {
                    Doing::Rest
                }
            }
            Doing::Run { mut task, claimed, changes } => {
                if let Next::Op(op) = task.next() {
                    let reply = self.perform(state, op, changes);
                    task.reply(reply);
                }
                match task.next() {
                    Next::Op(_) => Doing::Run { task, claimed, changes },
                    Next::Done(
                        Outcome::Moved { close: Some(close), .. }
                        | Outcome::CasMissedLate { close: Some(close), .. },
                    ) => {
                        // The node has arrived: the claim has done its work.
                        Doing::Run { task: Task::Close(close), claimed: None, changes }
                    }
                    Next::Done(_) => Doing::Rest,
                }
            }
        };
        Some(())
    }

    /// Whether one edge alone brings the pool to rest, with what everybody was promised.
    fn solo(&self, state: &State, edge: usize) -> bool {
        let mut state = state.clone();
        (state.moves, state.left) = (0, [0; NODES_MAX]);
        for (other, doing) in state.edges.iter_mut().enumerate() {
            if other != edge {
                *doing = Doing::Dead;
            }
        }
        // A look that is half done may still wait for an edge that is gone.
        if let Doing::HalfLooked { busy, .. } = &mut state.edges[edge] {
            *busy = [false; SITES_MAX];
        }
        for _ in 0..SOLO_STEPS_MAX {
            let looked = matches!(state.edges[edge], Doing::HalfLooked { .. });
            if self.step(&mut state, edge, 0).is_none() {
                return false;
            }
            if looked && state.edges[edge] == Doing::Rest {
                return spec::is_at_rest(self, &state);
            }
        }
        false
    }

    fn live(&self, state: &State) -> impl Iterator<Item = usize> {
        (0..EDGES_MAX).filter(|&edge| state.edges[edge] != Doing::Dead)
    }
}

/// States that differ only in which edge does what are one state.
fn sort_edges(edges: &mut [Doing; EDGES_MAX]) {
    edges.sort_by_cached_key(|doing| {
        let mut hasher = DefaultHasher::new();
        doing.hash(&mut hasher);
        hasher.finish()
    });
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut nodes = [NOTHING; NODES_MAX];
        for (raw, &at) in nodes.iter_mut().zip(self.start) {
            *raw = Assign { site: at.map(site), stamp: FIRST_EPOCH, version: 0 }.pack();
        }
        let mut words = [SiteWords::default(); SITES_MAX];
        for (words, terms) in words.iter_mut().zip(self.sites) {
            let depart = Depart::opened(FIRST_EPOCH).pack();
            *words = SiteWords { depart, arrive: 0, floor: floor(terms.hard) };
        }
        let mut levels = [0; SITES_MAX];
        levels[..self.levels.len()].copy_from_slice(self.levels);
        let live = |edge| if edge < self.edges { Doing::Rest } else { Doing::Dead };
        vec![State {
            nodes,
            words,
            levels,
            edges: std::array::from_fn(live),
            changes: self.changes,
            crashes: self.crashes,
            decided: [0; SITES_MAX],
            moves: 0,
            left: [0; NODES_MAX],
            broken: Broken::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.rest {
            return;
        }
        for edge in self.live(state) {
            let picks = match &state.edges[edge] {
                Doing::HalfLooked { words, busy } => self.options(state, words, busy).len().max(1),
                _ => 1,
            };
            actions.extend((0..picks).map(|pick| Action::Step { edge, pick }));
            if state.crashes > 0 {
                actions.push(Action::Crash(edge));
            }
        }
        if state.changes > 0 {
            for index in 0..self.sites.len() {
                let levels = (0..).take(DEMANDS.len()).filter(|&l| l != state.levels[index]);
                actions.extend(levels.map(|level| Action::Load { site: index, level }));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Step { edge, pick } => self.step(&mut state, edge, pick)?,
            Action::Crash(edge) => {
                state.crashes -= 1;
                state.edges[edge] = Doing::Dead;
            }
            Action::Load { site, level } => {
                state.changes -= 1;
                state.levels[site] = level;
                (state.moves, state.left) = (0, [0; NODES_MAX]);
            }
        }
        sort_edges(&mut state.edges);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(HARD, |_: &Self, state: &State| !state.broken.hard),
            Property::always(RULES, |_: &Self, state: &State| !state.broken.rules),
            Property::always(REST, |_: &Self, state: &State| !state.broken.rest),
            Property::always(PROMISED, |world: &Self, state: &State| {
                !world.progress || world.live(state).all(|edge| world.solo(state, edge))
            }),
        ]
    }
}

pub(super) const HARD: &str = "no move takes a site below hard";
pub(super) const RULES: &str = "every move is one that the rules allow";
pub(super) const REST: &str = "while loads are constant, nodes come to rest and do not return";
pub(super) const PROMISED: &str = "one live edge alone gives everybody what the rules promise";
