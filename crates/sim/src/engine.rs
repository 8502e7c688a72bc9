//! The run: events in the order of virtual time.

use crate::agenda::{Agenda, Due};
use crate::edge::{Doing, Edge};
use crate::fault::{Fault, Step};
use crate::history::{History, Record};
use crate::memory::{Memory, node_at};
use crate::monitor::{Monitor, Rules};
use crate::options::Options;
use crate::outcome::{FaultCounts, Moved, Outcome, Totals, sum};
use crate::random::{Random, Stream};
use crate::rates::Rates;
use crate::requests::Requests;
use crate::traffic::Traffic;
use crate::transport::{Flights, Weather};
use moves::Counters;
use moves::protocol::Word;
use policy::Policy;
use policy::choose::ServerLoad;
use pool_model::{NodeId, SiteId};
use shared_state::words::Assign;

/// Nodes that a pool may have here: as many as the words can name, in round numbers.
pub const NODES_MAX: usize = 10_000;
/// Sites that a pool may have here.
pub const SITES_MAX: usize = 500;
/// Edges that a pool may have here.
pub const EDGES_MAX: usize = 50;

/// Why a pool cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// Too few or too many of something.
    #[error("{what}: 1 to {most} can be simulated, not {given}")]
    Count {
        /// Of what.
        what: &'static str,
        /// At most.
        most: usize,
        /// What was asked for.
        given: usize,
    },
    /// The guarantees need more nodes than there are.
    #[error("the sum of hard is {hard}, but there are {nodes} nodes")]
    TooFewNodes {
        /// Sum of the hard guarantees.
        hard: usize,
        /// Nodes.
        nodes: usize,
    },
    /// A time or a limit that must not be zero is.
    #[error("{0} must not be zero")]
    Zero(&'static str),
}

impl Options {
    /// Refuses what cannot be simulated.
    ///
    /// # Errors
    ///
    /// [`OptionsError`], naming what is wrong.
    pub fn check(&self) -> Result<(), OptionsError> {
        let counts = [
            ("nodes", NODES_MAX, self.nodes.len()),
            ("sites", SITES_MAX, self.sites.len()),
            ("edges", EDGES_MAX, usize::from(self.edges)),
        ];
        for (what, most, given) in counts {
            if given == 0 || given > most {
                return Err(OptionsError::Count { what, most, given });
            }
        }
        let hard = |site: &crate::SiteSpec| usize::from(site.terms.guarantee.hard);
        let hard = self.sites.iter().map(hard).sum();
        if hard > self.nodes.len() {
            return Err(OptionsError::TooFewNodes { hard, nodes: self.nodes.len() });
        }
        let zero = [
            ("a service time", self.sites.iter().any(|site| site.service_ns == 0)),
            ("max_in_flight", self.nodes.iter().any(|node| node.max_in_flight == 0)),
            ("look_every", self.timing.look_every_ns == 0),
            ("the duration", self.duration_ns == 0),
            ("the window", self.window_ns == 0),
            ("the step of rates", self.flow_every_ns == 0),
            ("the words of a look's step", self.transport.words_at_once.0 == 0),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((what, _)) => Err(OptionsError::Zero(what)),
            None => Ok(()),
        }
    }
}

/// How requests come.
#[derive(Debug)]
pub(crate) enum Source {
    Requests(Requests),
    Rates(Rates),
}

/// A pool under virtual time.
pub struct Simulation {
    pub(crate) options: Options,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) now_ns: u64,
    pub(crate) agenda: Agenda<Due>,
    pub(crate) random: Random,
    pub(crate) memory: Memory,
    pub(crate) edges: Vec<Edge>,
    pub(crate) flights: Flights,
    pub(crate) weather: Weather,
    pub(crate) source: Source,
    pub(crate) service: Random,
    pub(crate) faults: Vec<Fault>,
    pub(crate) monitor: Monitor,
    pub(crate) history: History,
    pub(crate) totals: Totals,
    pub(crate) counts: FaultCounts,
    /// Counters of cores that are gone.
    pub(crate) gone: Counters,
    pub(crate) looks: u64,
    /// Counts dispatches: ties go round.
    pub(crate) turn: usize,
    /// Faults that lie in wait for a step of a move.
    pub(crate) armed: Vec<(u16, Step)>,
    /// What the choice of a server sees; made once, reused.
    pub(crate) loads: Vec<ServerLoad>,
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation").field("now_ns", &self.now_ns).finish_non_exhaustive()
    }
}

impl Simulation {
    /// A pool at rest.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] for a pool that cannot be simulated.
    pub fn new(
        options: Options,
        traffic: Traffic,
        policy: Box<dyn Policy>,
    ) -> Result<Self, OptionsError> {
        options.check()?;
        let hard = options.sites.iter().map(|site| site.terms.guarantee.hard).collect();
        let timing = options.timing;
        let failure_counts_ns = timing.node_dead_ns
            + 4 * timing.look_every_ns
            + 4 * options.transport.deadline_ns
            + crate::fault::PAUSE_MAX_NS
            + crate::transport::LATE_MAX_NS;
        let rules = Rules { hold_ns: timing.hold_ns, failure_counts_ns };
        let edges = (0..options.edges).map(|number| Edge::new(&options, number, 0)).collect();
        let source = match traffic {
            Traffic::Requests(stream) => Source::Requests(Requests::new(&options, stream)),
            Traffic::Rates(steps) => Source::Rates(Rates::new(&options, steps)),
        };
        Ok(Self {
            now_ns: 0,
            agenda: Agenda::default(),
            random: Random::of(options.seed, Stream::Transport),
            service: Random::of(options.seed ^ 0x5e7, Stream::Traffic),
            memory: Memory::new(&options),
            edges,
            flights: Flights::default(),
            weather: Weather::new(usize::from(options.edges), options.nodes.len()),
            source,
            faults: Vec::new(),
            monitor: Monitor::new(rules, hard, options.nodes.len()),
            history: History::default(),
            totals: Totals::new(&options),
            counts: FaultCounts::default(),
            gone: Counters::default(),
            looks: 0,
            turn: 0,
            armed: Vec::new(),
            loads: Vec::new(),
            policy,
            options,
        })
    }

    /// Lets these faults come.
    #[must_use]
    pub fn with_faults(mut self, faults: Vec<Fault>) -> Self {
        self.faults = faults;
        self
    }

    /// Runs to the end.
    #[must_use]
    pub fn run(self) -> Outcome {
        self.run_watched(|_| {})
    }

    /// Runs to the end; tells after each window of time how far it is.
    #[must_use]
    pub fn run_watched(mut self, mut told: impl FnMut(u64)) -> Outcome {
        self.start();
        let end_ns = self.options.duration_ns;
        let mut until_ns = 0;
        while until_ns < end_ns {
            until_ns = (until_ns + self.options.window_ns).min(end_ns);
            // The last step of rates ends with the traffic, and is part of it.
            self.run_until(if until_ns == end_ns { until_ns + 1 } else { until_ns });
            told(until_ns);
        }
        let last_ns = end_ns + self.options.settle_ns;
        while until_ns < last_ns && self.is_unsettled() {
            until_ns = (until_ns + self.options.timing.look_every_ns).min(last_ns);
            self.run_until(until_ns);
        }
        self.finish(until_ns)
    }

    fn start(&mut self) {
        for index in 0..self.options.sites.len() {
            self.holds(SiteId::from_index(index).ok());
        }
        for number in 0..self.options.edges {
            let at_ns = self.random.below(self.options.timing.look_every_ns);
            self.agenda.plan(at_ns, Due::Edge { edge: number, life: 0 });
        }
        match &self.source {
            Source::Requests(requests) => self.plan_arrival(requests.coming.map(|a| a.at_ns)),
            Source::Rates(_) => self.agenda.plan(self.options.flow_every_ns, Due::Flow),
        }
        for (index, fault) in self.faults.iter().enumerate() {
            let index = u16::try_from(index).expect("some tens of faults");
            self.agenda.plan(fault.at_ns, Due::Fault { index });
        }
        if let Some(every_ns) = self.options.watch_every_ns {
            self.agenda.plan(every_ns, Due::Watch);
        }
    }

    fn run_until(&mut self, until_ns: u64) {
        while let Some((at_ns, due)) = self.agenda.next_before(until_ns) {
            self.now_ns = at_ns;
            match due {
                Due::Edge { edge, life } => self.step_edge(edge, life),
                Due::Land { flight } => self.land(flight),
                Due::Arrival => self.arrive(),
                Due::Served { request, attempt } => self.serve(request, attempt),
                Due::Flow => self.flow(),
                Due::Fault { index } => self.begin_fault(index),
                Due::Mend { index } => self.end_fault(index),
                Due::Watch => self.watch(),
            }
        }
        self.now_ns = until_ns;
    }

    fn is_unsettled(&self) -> bool {
        match &self.source {
            Source::Requests(requests) => requests.under_way() > 0,
            Source::Rates(rates) => {
                let sites =
                    (0..self.options.sites.len()).filter_map(|i| SiteId::from_index(i).ok());
                sites.map(|site| rates.waiting(site)).any(|waiting| waiting > 0.0)
            }
        }
    }

    fn flow(&mut self) {
        let Source::Rates(rates) = &mut self.source else { return };
        rates.flow(self.now_ns, &self.options, &mut self.memory, &mut self.totals);
        for index in 0..self.options.sites.len() {
            let Ok(site) = SiteId::from_index(index) else { break };
            let requests = rates.waiting(site).ceil() as u64;
            if requests > 0 {
                self.history.add(self.now_ns, Record::Waiting { site: site.get(), requests });
            }
        }
        self.agenda.plan(self.now_ns + self.options.flow_every_ns, Due::Flow);
    }

    /// Notes how many nodes a site has.
    fn holds(&mut self, site: Option<SiteId>) {
        let Some(site) = site.filter(|site| site.index() < self.options.sites.len()) else {
            return;
        };
        self.totals.holds(self.now_ns, site, self.memory.alive(site));
        if let Source::Rates(rates) = &mut self.source {
            rates.changed(site);
        }
    }

    /// A site's nodes changed without a move.
    pub(crate) fn nodes_changed(&mut self, site: Option<SiteId>) {
        self.holds(site);
        if let Some(site) = site {
            self.pump(site);
        }
    }

    /// A compare-and-swap took place.
    pub(crate) fn swapped(&mut self, edge: u8, word: Word, old: u64, new: u64) {
        let record = Record::Swap { word: name(word), old, new, edge };
        self.history.add(self.now_ns, record);
        match word {
            Word::Arrive(site) => self.monitor.claimed(site),
            Word::Depart(site) => self.monitor.described(self.now_ns, site, new),
            Word::Floor(_) => {}
            Word::Assign(node) => self.node_swapped(node, old, new),
        }
    }

    fn node_swapped(&mut self, node: NodeId, old: u64, new: u64) {
        let memory = &self.memory;
        let alive = |site: SiteId| memory.alive(site);
        if !self.monitor.swapped(self.now_ns, node, (old, new), alive) {
            return;
        }
        let site = |word| Assign::unpack(word).and_then(|assign: Assign| assign.site);
        let (from, to) = (site(old), site(new));
        self.totals.moved(Moved { at_ns: self.now_ns, node, from, to });
        self.holds(from);
        self.nodes_changed(to);
    }

    /// Checks what needs time to be checked, against the pool as it truly is.
    fn watch(&mut self) {
        if let Source::Requests(requests) = &self.source
            && requests.counted() != requests.under_way()
        {
            let (there, due) = (requests.counted(), requests.under_way());
            let what = format!("{due} requests have not ended, but {there} wait or are in flight");
            self.monitor.violated(self.now_ns, what);
        }
        let view = self.true_view();
        for index in 0..self.options.sites.len() {
            let Ok(site) = SiteId::from_index(index) else { break };
            let reason = self.policy.need(&view, site);
            let is_unmet = !self.weather.is_disturbed()
                && reason.is_some_and(|why| !self.policy.candidates(&view, site, why).is_empty());
            self.monitor.unmet(self.now_ns, site, is_unmet);
        }
        if self.weather.is_disturbed() {
            self.monitor.disturbed(self.now_ns);
        }
        let every_ns = self.options.watch_every_ns.unwrap_or(u64::MAX / 2);
        self.agenda.plan(self.now_ns.saturating_add(every_ns), Due::Watch);
    }

    fn finish(mut self, until_ns: u64) -> Outcome {
        self.now_ns = until_ns;
        for index in 0..self.options.sites.len() {
            self.holds(SiteId::from_index(index).ok());
        }
        self.count_left();
        let mut counters = self.gone;
        self.edges.iter().for_each(|edge| sum(&mut counters, edge.core.counters()));
        Outcome {
            sites: self.totals.sites,
            windows: self.totals.windows,
            moves: self.totals.moves,
            moves_total: self.totals.moves_total,
            last_move_ns: self.totals.last_move_ns,
            looks: self.looks,
            node_reads: self.edges.iter().map(|edge| edge.node_reads).sum(),
            counters,
            faults: self.counts,
            violations: self.monitor.violations,
            violations_total: self.monitor.violations_total,
            history_hash: self.history.hash(),
            history_records: self.history.len(),
            history_tail: self.history.tail(),
            ended_ns: until_ns,
        }
    }

    /// An edge dies now.
    pub(crate) fn crash_edge(&mut self, number: u8) {
        let edge = &mut self.edges[usize::from(number)];
        if matches!(edge.doing, Doing::Crashed) {
            return;
        }
        if let Doing::Waiting { flight, .. } = edge.doing {
            self.flights.abandon(flight);
        }
        edge.doing = Doing::Crashed;
        edge.life += 1;
        sum(&mut self.gone, edge.core.counters());
        self.counts.crashes += 1;
        self.lose_edge(number);
    }

    /// Its process starts again.
    pub(crate) fn restart_edge(&mut self, number: u8) {
        let edge = &mut self.edges[usize::from(number)];
        if !matches!(edge.doing, Doing::Crashed) {
            return;
        }
        edge.restart(&self.options, number, self.now_ns);
        let life = edge.life;
        self.agenda.plan(self.now_ns, Due::Edge { edge: number, life });
    }

    /// All nodes, by number.
    pub(crate) fn node(&self, number: u16) -> Option<NodeId> {
        node_at(usize::from(number)).filter(|node| node.index() < self.options.nodes.len())
    }
}

/// A word's kind and place, for the history.
pub(crate) fn name(word: Word) -> (char, u16) {
    match word {
        Word::Depart(site) => ('d', site.get()),
        Word::Arrive(site) => ('a', site.get()),
        Word::Floor(site) => ('f', site.get()),
        Word::Assign(node) => ('n', node.get()),
    }
}
