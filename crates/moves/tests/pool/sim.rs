//! Words, edges, load and faults under virtual time.

use moves::protocol::{Look, Looked, Machine, Next, Op, Outcome, Reply, Seen, Task, Word};
use moves::{Core, Counters, Input, Mode, Options, Timing, Work};
use policy::Reconf;
use pool_model::{
    EdgeId, Guarantee, NodeId, NodeTraits, NodeView, PoolView, SiteId, SiteTerms, SiteView,
};
use shared_state::words::{Assign, Depart};
use std::collections::HashMap;

fn terms() -> SiteTerms {
    SiteTerms::default().with_guarantee(Guarantee { hard: HARD, soft: HARD, max: NODES })
}

const EDGES: usize = 8;
const SITES: u16 = 4;
const NODES: u16 = 12;
const HARD: u16 = 1;
const MS: u64 = 1_000_000;
const TIMING: Timing =
    Timing { look_every_ns: MS, hold_ns: 2 * MS, node_dead_ns: 10 * MS, serve_wait_ns: 1_000 * MS };
/// Sites that are hot at the same time, at most.
const EVENTS_AT_ONCE: usize = 2;
/// Virtual time without a move after which the run counts as stuck.
const STUCK_NS: u64 = 2_000 * MS;
/// After a crash an edge with the same number starts anew.
const RESTART_NS: u64 = 10 * MS;
/// The longest that a lost compare-and-swap stays under way, and the longest stall.
const LATE_NS: u64 = 20 * MS;

/// One in so many operations (wipes: one in so many moves); zero for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) crash: u64,
    pub(crate) zombie: u64,
    pub(crate) stall: u64,
    pub(crate) unreachable: u64,
    pub(crate) wipe: u64,
}

impl Faults {
    pub(crate) const NONE: Faults =
        Faults { crash: 0, zombie: 0, stall: 0, unreachable: 0, wipe: 0 };
}

/// The generator of Steele, Lea and Flood ("SplitMix", 2014): small, seeded, good enough here.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    fn one_in(&mut self, times: u64) -> bool {
        times > 0 && self.below(times) == 0
    }
}

enum Doing {
    Asleep,
    Looking(Look),
    Deciding,
    Running(Task),
    Crashed,
}

struct Edge {
    core: Core,
    seen: Seen,
    view: PoolView,
    doing: Doing,
    next_ns: u64,
    look_ns: u64,
}

/// One high load of a site, from its start until it has settled after an arrival.
#[derive(Clone, Copy, Debug, Default)]
struct Event {
    hot: bool,
    moves: u64,
    cool_at_ns: Option<u64>,
}

/// A successful compare-and-swap.
#[derive(Clone, Copy, Debug)]
struct Swap {
    word: Word,
    old: u64,
    new: u64,
}

pub(crate) struct Sim {
    random: Random,
    faults: Faults,
    now_ns: u64,
    words: HashMap<Word, u64>,
    start: HashMap<Word, u64>,
    log: Vec<Swap>,
    edges: Vec<Edge>,
    zombies: Vec<(u64, Op)>,
    events: Vec<Event>,
    events_total: u64,
    surplus: u64,
    moves: u64,
    moved_ns: u64,
    gone: Counters,
    pub(crate) zombies_landed: u64,
    pub(crate) zombies_missed: u64,
    pub(crate) wipes: u64,
    crashes: u64,
}

fn site(index: usize) -> SiteId {
    SiteId::from_index(index).expect("few sites")
}

fn node(number: u16) -> NodeId {
    NodeId::new(number).expect("few nodes")
}

fn new_core(edge: usize) -> Core {
    Core::new(Options {
        edge: EdgeId::new(u8::try_from(edge).expect("few edges")).expect("few edges"),
        timing: TIMING,
        sites: vec![terms(); usize::from(SITES)],
        nodes: NODES,
        settings_version: 1,
        mode: Mode::Move,
    })
}

impl Sim {
    /// Nodes are spread evenly and carry no stamps; the site words are empty, as after the start
    /// of a home.
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut words = HashMap::new();
        for index in 0..usize::from(SITES) {
            let site = site(index);
            for word in [Word::Depart(site), Word::Arrive(site), Word::Floor(site)] {
                words.insert(word, 0);
            }
        }
        for number in 0..NODES {
            let assign = Assign { site: Some(site(usize::from(number % SITES))), ..Assign::FREE };
            words.insert(Word::Assign(node(number)), assign.pack());
        }
        let mut random = Random(seed);
        let edge = |index: usize| Edge {
            core: new_core(index),
            seen: Seen::new(SITES, NODES),
            view: PoolView::default(),
            doing: Doing::Asleep,
            next_ns: random.below(MS),
            look_ns: 0,
        };
        let edges = (0..EDGES).map(edge).collect();
        Self {
            faults,
            now_ns: 0,
            start: words.clone(),
            words,
            log: Vec::new(),
            edges,
            zombies: Vec::new(),
            events: vec![Event::default(); usize::from(SITES)],
            events_total: 0,
            surplus: 0,
            moves: 0,
            moved_ns: 0,
            gone: Counters::default(),
            zombies_landed: 0,
            zombies_missed: 0,
            wipes: 0,
            crashes: 0,
            random,
        }
    }

    /// Runs until so many nodes have moved. Fails when a floor breaks or nothing moves any more.
    pub(crate) fn run_until_moves(&mut self, moves: u64) {
        while self.moves < moves || self.events.iter().any(|event| event.hot) {
            let stuck = self.now_ns > self.moved_ns + STUCK_NS;
            assert!(!stuck, "nothing moves since {} ns: {}", self.moved_ns, self.summary());
            if self.moves < moves {
                self.start_event();
            }
            let due = |edge: &usize| self.edges[*edge].next_ns;
            let edge = (0..EDGES).min_by_key(due).expect("edges");
            self.now_ns = self.now_ns.max(self.edges[edge].next_ns);
            self.land_zombies();
            self.settle();
            self.act(edge);
        }
    }

    fn start_event(&mut self) {
        if self.events.iter().filter(|event| event.hot).count() >= EVENTS_AT_ONCE {
            return;
        }
        // About one try in a hundred microseconds of virtual time succeeds: gaps vary.
        if !self.random.one_in(400) {
            return;
        }
        let index = self.random.below(u64::from(SITES)) as usize;
        if !self.events[index].hot && self.can_give(index) {
            self.events[index] = Event { hot: true, moves: 0, cool_at_ns: None };
            self.events_total += 1;
            self.moved_ns = self.now_ns;
        }
    }

    /// Whether the sites that are not hot can give a node to this one and to each hot one.
    fn can_give(&self, taker: usize) -> bool {
        let hot = self.events.iter().filter(|event| event.hot).count();
        let gives = |&index: &usize| index != taker && !self.events[index].hot;
        let spare = |index: usize| self.nodes_of(site(index)) - usize::from(HARD);
        (0..usize::from(SITES)).filter(gives).map(spare).sum::<usize>() > hot
    }

    /// Loads that a node has come for go down after a while shorter than a hold.
    fn settle(&mut self) {
        for event in &mut self.events {
            if event.cool_at_ns.is_some_and(|at| at <= self.now_ns) {
                (event.hot, event.cool_at_ns) = (false, None);
            }
        }
    }

    fn land_zombies(&mut self) {
        let now_ns = self.now_ns;
        let due: Vec<Op> =
            self.zombies.extract_if(.., |(at, _)| *at <= now_ns).map(|(_, op)| op).collect();
        for op in due {
            let Op::CompareAndSwap { expected, .. } = op else { continue };
            if self.perform(op) == (Reply::Swapped { found: expected }) {
                self.zombies_landed += 1;
            } else {
                self.zombies_missed += 1;
            }
        }
    }

    /// One step of one edge.
    fn act(&mut self, index: usize) {
        let now_ns = self.now_ns;
        let mut next_ns = now_ns + 50 + self.random.below(250);
        let doing = std::mem::replace(&mut self.edges[index].doing, Doing::Asleep);
        self.edges[index].doing = match doing {
            Doing::Asleep => {
                self.edges[index].look_ns = now_ns;
                Doing::Looking(Look::new(&self.edges[index].seen))
            }
            Doing::Looking(look) => self.look_on(index, look),
            Doing::Deciding => {
                let nonce = self.random.draw() as u32 & 0xfff;
                let edge = &mut self.edges[index];
                let input = input(now_ns, &edge.seen, &edge.view, nonce);
                match edge.core.next(&input) {
                    Work::Run(task) => Doing::Running(task),
                    Work::LookAgain => Doing::Looking(Look::new(&edge.seen)),
                    Work::Rest => {
                        next_ns = edge.look_ns + MS + self.random.below(MS / 20);
                        Doing::Asleep
                    }
                }
            }
            Doing::Running(task) => self.run_on(index, task),
            Doing::Crashed => {
                self.edges[index].core = new_core(index);
                Doing::Asleep
            }
        };
        if self.random.one_in(self.faults.crash) {
            self.crash(index);
            next_ns = now_ns + RESTART_NS;
        }
        if self.random.one_in(self.faults.stall) {
            next_ns = now_ns + self.random.below(LATE_NS);
        }
        self.edges[index].next_ns = next_ns;
    }

    fn crash(&mut self, index: usize) {
        self.crashes += 1;
        self.gone = sum(self.gone, self.edges[index].core.counters());
        self.edges[index].doing = Doing::Crashed;
    }

    fn look_on(&mut self, index: usize, mut look: Look) -> Doing {
        if let Next::Op(op) = look.next() {
            let reply = self.answer(op);
            look.reply(&mut self.edges[index].seen, reply);
        }
        match look.next() {
            Next::Op(_) => Doing::Looking(look),
            Next::Done(Looked::HomeLost) => Doing::Asleep,
            Next::Done(Looked::Complete) => {
                let view = self.view(&self.edges[index].seen);
                let edge = &mut self.edges[index];
                edge.view = view;
                let input = input(self.now_ns, &edge.seen, &edge.view, 0);
                edge.core.looked(&input, |_| true);
                Doing::Deciding
            }
        }
    }

    fn run_on(&mut self, index: usize, mut task: Task) -> Doing {
        if let Next::Op(op) = task.next() {
            let reply = self.answer(op);
            task.reply(reply);
        }
        let Next::Done(outcome) = task.next() else { return Doing::Running(task) };
        if let Outcome::Moved { node, to, version, .. } = outcome {
            assert!(to.is_some() && version > 0, "{node} moved to {to:?} as {version}");
        }
        self.edges[index].core.ended(self.now_ns, &outcome);
        Doing::Deciding
    }

    /// Performs an operation, unless a fault gets in between.
    fn answer(&mut self, op: Op) -> Reply {
        let swaps = matches!(op, Op::CompareAndSwap { .. });
        if swaps && self.random.one_in(self.faults.zombie) {
            let at_ns = self.now_ns + self.random.below(LATE_NS);
            self.zombies.push((at_ns, op));
            return Reply::Unknown;
        }
        if self.random.one_in(self.faults.unreachable) {
            return Reply::Unreachable;
        }
        self.perform(op)
    }

    fn perform(&mut self, op: Op) -> Reply {
        match op {
            Op::Read(word) => Reply::Value(self.words[&word]),
            Op::CompareAndSwap { word, expected, new } => {
                let place = self.words.get_mut(&word).expect("a word of the pool");
                let found = *place;
                if found == expected {
                    *place = new;
                    self.log.push(Swap { word, old: expected, new });
                    self.swapped(word, expected, new);
                }
                Reply::Swapped { found }
            }
        }
    }

    /// Follows a node that changed hands; checks the floors at this instant.
    fn swapped(&mut self, word: Word, old: u64, new: u64) {
        if !matches!(word, Word::Assign(_)) {
            return;
        }
        let site_of = |raw| Assign::unpack(raw).and_then(|assign: Assign| assign.site);
        if site_of(old) == site_of(new) {
            return;
        }
        (self.moves, self.moved_ns) = (self.moves + 1, self.now_ns);
        for index in 0..usize::from(SITES) {
            let left = self.nodes_of(site(index));
            assert!(left >= usize::from(HARD), "{word:?} left site {} with {left}", site(index));
        }
        let Some(taker) = site_of(new) else { return };
        let event = &mut self.events[taker.index()];
        event.moves += 1;
        if event.moves == 1 && event.hot {
            event.cool_at_ns = Some(self.now_ns + self.random.below(TIMING.hold_ns * 8 / 10));
        } else {
            self.surplus += 1;
        }
        if self.random.one_in(self.faults.wipe) {
            self.wipe();
        }
    }

    /// All site words are lost; compare-and-swaps on them that are under way stay under way.
    fn wipe(&mut self) {
        self.wipes += 1;
        for (&word, value) in &mut self.words {
            if !matches!(word, Word::Assign(_)) && *value != 0 {
                self.log.push(Swap { word, old: *value, new: 0 });
                *value = 0;
            }
        }
    }

    fn nodes_of(&self, site: SiteId) -> usize {
        let of = |number: u16| {
            let raw = self.words[&Word::Assign(node(number))];
            Assign::unpack(raw).and_then(|assign| assign.site)
        };
        (0..NODES).filter(|&number| of(number) == Some(site)).count()
    }

    /// What the policy is shown: hot sites queue, the others rest.
    fn view(&self, seen: &Seen) -> PoolView {
        let site_view = |index: usize| SiteView {
            id: site(index),
            terms: terms(),
            service_us: 0,
            queued: if self.events[index].hot { 1_000 } else { 0 },
            in_flight: 0,
            capacity: 0,
            nodes: 0,
        };
        let node_view = |number: u16| {
            let site = seen.assign(node(number))?.site;
            let id = node(number);
            let traits = NodeTraits::default();
            Some(NodeView { id, site, in_flight: 0, max_in_flight: 8, movable: true, traits })
        };
        let sites = (0..usize::from(SITES)).map(site_view).collect();
        let nodes = (0..NODES).filter_map(node_view).collect();
        let mut view = PoolView { sites, nodes, ..PoolView::default() };
        view.sum_up();
        view
    }

    /// Plays the log again: every swap continues the history of its word, and every version of a
    /// node belongs to one site.
    pub(crate) fn replay(&self) {
        let mut words = self.start.clone();
        let mut owners: HashMap<(NodeId, u32), Option<SiteId>> = HashMap::new();
        for swap in &self.log {
            let place = words.get_mut(&swap.word).expect("a word of the pool");
            assert_eq!(*place, swap.old, "{swap:?} does not continue the history");
            *place = swap.new;
            match swap.word {
                Word::Assign(node) => {
                    let (old, new) = (Assign::unpack(swap.old), Assign::unpack(swap.new));
                    let (Some(old), Some(new)) = (old, new) else { panic!("{swap:?}") };
                    let step = u32::from(old.site != new.site);
                    assert_eq!(new.version, old.version + step, "{swap:?}");
                    let owner = *owners.entry((node, new.version)).or_insert(new.site);
                    assert_eq!(owner, new.site, "two sites for one version: {swap:?}");
                }
                Word::Depart(site) => {
                    let pending = Depart::unpack(swap.new).pending;
                    let taker = pending.and_then(|departure| departure.taker);
                    assert_ne!(taker, Some(site), "{swap:?}");
                }
                Word::Arrive(_) | Word::Floor(_) => {}
            }
        }
        assert_eq!(words, self.words);
    }

    /// Moves for each event.
    pub(crate) fn moves_per_event(&self) -> f64 {
        self.moves as f64 / self.events_total as f64
    }

    /// Moves beyond the first of an event, or without one.
    pub(crate) fn surplus_events(&self) -> u64 {
        self.surplus
    }

    /// Counts of all edges, the crashed ones included.
    pub(crate) fn counters(&self) -> Counters {
        self.edges.iter().fold(self.gone, |all, edge| sum(all, edge.core.counters()))
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} moves, {} events, {} surplus, {} s, {} swaps, {} crashes, {} wipes, \
             zombies {} landed {} missed, {:?}",
            self.moves,
            self.events_total,
            self.surplus,
            self.now_ns / 1_000_000_000,
            self.log.len(),
            self.crashes,
            self.wipes,
            self.zombies_landed,
            self.zombies_missed,
            self.counters()
        )
    }
}

fn input<'a>(now_ns: u64, seen: &'a Seen, view: &'a PoolView, nonce: u32) -> Input<'a> {
    static POLICY: std::sync::LazyLock<Reconf> = std::sync::LazyLock::new(Reconf::default);
    let is_unready = &|_, _| false;
    Input { now_ns, seen, view, policy: &*POLICY, is_unready, op_time_ns: 200, nonce }
}

fn sum(a: Counters, b: Counters) -> Counters {
    Counters {
        looks: a.looks + b.looks,
        claims: a.claims + b.claims,
        claims_lost: a.claims_lost + b.claims_lost,
        moves: a.moves + b.moves,
        installs_lost: a.installs_lost + b.installs_lost,
        late_moves: a.late_moves + b.late_moves,
        cas_missed_late: a.cas_missed_late + b.cas_missed_late,
        helps: a.helps + b.helps,
        bumps: a.bumps + b.bumps,
        renewed: a.renewed + b.renewed,
        floors_set: a.floors_set + b.floors_set,
        bad_words: a.bad_words + b.bad_words,
        unsettled: a.unsettled + b.unsettled,
    }
}
