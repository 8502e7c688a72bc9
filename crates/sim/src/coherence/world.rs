//! Everything at once: events by their time, and who they are for.

use super::Flaw;
use super::edge::{Edge, Request};
use super::options::{
    ATTACH_NS, DOWN_NS, HEALED_NS, KEPT_MAX, PREEMPTED, PREEMPTED_NS, PROBE_EVERY_NS,
    REQUEST_EVERY_NS, REQUESTS, STEP_NS,
};
use super::outcome::{Breach, Counts, Log, Note, Outcome};
use super::owner::Owner;
use super::site::{LANGUAGES, Site};
use super::table::Table;
use super::writer::{Settler, Update, Writer};
use crate::agenda::Agenda;
use crate::random::{Random, Stream};
use cache::{Mode, Rules, Source, UnixMs};

/// When the world begins, for the cache: some time in 2026.
const BEGINS: UnixMs = UnixMs(1_780_000_000_000);

const MS: u64 = 1_000_000;

/// Requests for each page at the end: two in each language, of which the second must hit.
const PROBES: usize = 2 * LANGUAGES.len();

/// An event that is due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// The next request arrives.
    Arrival,
    Request(u32),
    Leave(u32),
    Writer(usize, u32),
    Settler(usize, u32),
    /// A commit takes place.
    Commit(usize),
    /// The database notices that an update's writer is gone.
    Noticed(usize),
    Owner,
    Attach {
        edge: usize,
        life: u32,
        table: usize,
    },
    LetGo {
        edge: usize,
        table: usize,
    },
    CrashEdge(usize),
    StartEdge(usize),
    CrashAgent,
    StartAgent(u32),
    RestartOwner,
    LoseTable,
    /// No update begins any more.
    Quiet,
    /// All must be as if nothing had happened.
    Healed,
    /// A request for each page at each edge.
    Probe {
        language: usize,
        must_hit: bool,
    },
}

/// Whoever answers writers, and settles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Agent {
    pub(super) is_up: bool,
    pub(super) life: u32,
    pub(super) started_ns: u64,
}

/// The world of one seed.
#[derive(Debug)]
pub(super) struct World {
    pub(super) flaw: Flaw,
    pub(super) rules: Rules,
    pub(super) site: Site,
    pub(super) paths: Vec<String>,
    pub(super) tables: Vec<Table>,
    /// Tables before this one are lost.
    pub(super) lost_before: usize,
    /// Whether updates may begin in the newest table.
    pub(super) is_published: bool,
    pub(super) owner: Owner,
    pub(super) edges: Vec<Edge>,
    pub(super) requests: Vec<Option<Box<Request>>>,
    pub(super) writers: Vec<Writer>,
    pub(super) updates: Vec<Update>,
    /// When each began.
    pub(super) begun_ns: Vec<u64>,
    /// Updates that nobody ends any more.
    pub(super) left: Vec<usize>,
    pub(super) agent: Agent,
    pub(super) settlers: Vec<Settler>,
    pub(super) is_quiet: bool,
    probes_left: usize,
    pub(super) now_ns: u64,
    pub(super) delays: Random,
    pub(super) traffic: Random,
    pub(super) chance: Random,
    pub(super) counts: Counts,
    agenda: Agenda<Due>,
    log: Log,
    breaches: Vec<Breach>,
}

impl World {
    /// The world of a seed, with one thing wrong or none.
    pub(super) fn new(seed: u64, flaw: Flaw) -> Self {
        let mut random = Random::of(seed, Stream::Scenario);
        let site = Site::draw(&mut random);
        let mut table = Table::new(random.draw() | 1);
        table.admit_hits();
        // Often the last one is on another machine than the table.
        let count = random.between(2, 3) as usize;
        let far = (random.below(2) == 0).then(|| count - 1);
        let edges = (0..count).map(|edge| Edge::new(0, far == Some(edge), Some(0))).collect();
        let rest_ns = [250, 500, 1_000][random.below(3) as usize] * MS;
        let writers = (0..random.between(2, 5)).map(|_| Writer::new(random.below(2) == 0, rest_ns));
        let rules = Rules { mode: Mode::Strict, source: Source::Linearizable, ..Rules::default() };
        let mut world = Self {
            flaw,
            rules,
            paths: (0..site.pages.len()).map(|page| format!("/{page}")).collect(),
            site,
            tables: vec![table],
            lost_before: 0,
            is_published: true,
            owner: Owner::default(),
            edges,
            requests: Vec::new(),
            writers: writers.collect(),
            updates: Vec::new(),
            begun_ns: Vec::new(),
            left: Vec::new(),
            agent: Agent { is_up: true, life: 0, started_ns: 0 },
            settlers: vec![Settler::default(); 2],
            is_quiet: false,
            probes_left: PROBES,
            now_ns: 0,
            delays: Random::of(seed, Stream::Transport),
            traffic: Random::of(seed, Stream::Traffic),
            chance: Random::of(seed, Stream::Faults),
            counts: Counts::default(),
            agenda: Agenda::default(),
            log: Log::default(),
            breaches: Vec::new(),
        };
        world.plan(&mut random);
        world
    }

    fn plan(&mut self, random: &mut Random) {
        self.after(0, Due::Arrival);
        for writer in 0..self.writers.len() {
            self.after(random.below(50 * MS), Due::Writer(writer, 0));
        }
        for settler in 0..self.settlers.len() {
            self.after(0, Due::Settler(settler, 0));
        }
        let end_ns = REQUESTS * REQUEST_EVERY_NS;
        for edge in 0..self.edges.len() {
            for _ in 0..random.below(3) {
                self.after(random.below(end_ns), Due::CrashEdge(edge));
            }
        }
        for _ in 0..random.below(4) {
            self.after(random.below(end_ns), Due::CrashAgent);
        }
        for _ in 0..random.below(3) {
            let due = if random.below(2) == 0 { Due::RestartOwner } else { Due::LoseTable };
            self.after(random.below(end_ns), due);
        }
    }

    pub(super) fn after(&mut self, after_ns: u64, due: Due) {
        self.agenda.plan(self.now_ns + after_ns, due);
    }

    /// Lives through it.
    pub(super) fn run(mut self) -> Outcome {
        while let Some((at_ns, due)) = self.agenda.next_before(u64::MAX) {
            self.now_ns = at_ns;
            if self.is_over(due) {
                break;
            }
            self.happen(due);
        }
        Outcome {
            counts: self.counts,
            breaches: self.breaches,
            history_hash: self.log.hash(),
            history_tail: self.log.tail(),
            ended_ns: self.now_ns,
        }
    }

    /// Settlers look for ever; nothing else does.
    fn is_over(&self, due: Due) -> bool {
        matches!(due, Due::Settler(..)) && self.probes_left == 0 && self.all_answered()
    }

    fn all_answered(&self) -> bool {
        self.requests.iter().all(Option::is_none)
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Arrival => self.arrival(),
            Due::Request(id) => self.advance(id),
            Due::Leave(id) => self.leave(id),
            Due::Writer(writer, life) => self.write(writer, life),
            Due::Settler(settler, life) => self.settle(settler, life),
            Due::Commit(update) => self.committed(update),
            Due::Noticed(update) => self.noticed(update),
            Due::Owner => self.look(),
            Due::Attach { edge, life, table } => self.attach(edge, life, table),
            Due::LetGo { edge, table } => self.let_go(edge, table),
            Due::CrashEdge(edge) => {
                self.crash_edge(edge);
                let after_ns = self.down_ns();
                self.after(after_ns, Due::StartEdge(edge));
            }
            Due::StartEdge(edge) => self.start_edge(edge),
            Due::CrashAgent => {
                if self.agent.is_up {
                    self.crash_agent(false);
                    self.start_agent_soon();
                }
            }
            Due::StartAgent(life) => self.start_agent(life),
            Due::RestartOwner => self.restart_owner(),
            Due::LoseTable => self.lose_table(),
            Due::Quiet => {
                self.is_quiet = true;
                self.after(HEALED_NS, Due::Healed);
            }
            Due::Healed => self.healed(),
            Due::Probe { language, must_hit } => self.probe(language, must_hit),
        }
    }

    fn arrival(&mut self) {
        let up: Vec<usize> = (0..self.edges.len()).filter(|&edge| self.edges[edge].is_up).collect();
        let page = self.site.popular(&mut self.traffic);
        let language = self.traffic.below(LANGUAGES.len() as u64) as usize;
        let at = self.traffic.below(up.len() as u64) as usize;
        if let Some(&edge) = up.get(at) {
            self.arrive(edge, page, language, false);
        }
        if self.counts.requests < REQUESTS {
            let after_ns = (self.traffic.exponential() * REQUEST_EVERY_NS as f64) as u64;
            self.after(after_ns, Due::Arrival);
        } else {
            self.after(0, Due::Quiet);
        }
    }

    fn start_edge(&mut self, edge: usize) {
        if self.edges[edge].is_up {
            return;
        }
        self.edges[edge].is_up = true;
        self.note(Note::Edge { edge, is_up: true });
        if self.is_published {
            self.attach_soon(edge);
        }
    }

    pub(super) fn start_agent_soon(&mut self) {
        let after_ns = self.down_ns();
        self.after(after_ns, Due::StartAgent(self.agent.life));
    }

    fn start_agent(&mut self, life: u32) {
        if self.agent.is_up || self.agent.life != life || !self.is_published {
            return;
        }
        self.agent.is_up = true;
        self.agent.started_ns = self.now_ns;
        self.note(Note::Agent { is_up: true });
        for settler in 0..self.settlers.len() {
            self.after(0, Due::Settler(settler, life));
        }
    }

    /// Some time after the last fault.
    fn healed(&mut self) {
        let newest = self.tables.len() - 1;
        let kept = |table: &usize| *table >= self.lost_before;
        let at_rest = (0..=newest).filter(kept).all(|table| self.tables[table].is_at_rest());
        if !at_rest || !self.tables[newest].is_open() || !self.left.is_empty() {
            let (left, held) = (&self.left, self.tables[newest].held());
            self.violated(format!("left behind all faults: {left:?}, {held:?}"));
        }
        if !self.all_answered() {
            self.violated("a request is not answered".to_owned());
        }
        for (at, language) in (0..PROBES).map(|at| (at, at / 2)) {
            let probe = Due::Probe { language, must_hit: at % 2 == 1 };
            self.after(at as u64 * PROBE_EVERY_NS, probe);
        }
    }

    fn probe(&mut self, language: usize, must_hit: bool) {
        self.probes_left -= 1;
        let pages = (0..self.site.pages.len()).filter(|&page| self.site.pages[page].is_kept());
        let pages: Vec<usize> = pages.collect();
        for edge in 0..self.edges.len() {
            for &page in &pages {
                self.arrive(edge, page, language, must_hit);
            }
        }
    }

    fn down_ns(&mut self) -> u64 {
        self.delays.between(DOWN_NS.0, DOWN_NS.1)
    }

    /// Until a thread's next operation.
    pub(super) fn step_ns(&mut self) -> u64 {
        if self.delays.below(PREEMPTED) == 0 {
            self.counts.preemptions += 1;
            return self.delays.between(PREEMPTED_NS.0, PREEMPTED_NS.1);
        }
        self.delays.between(STEP_NS.0, STEP_NS.1)
    }

    /// The time, as the cache knows it.
    pub(super) fn unix(&self) -> UnixMs {
        UnixMs(BEGINS.0 + self.now_ns / MS)
    }

    pub(super) fn note(&mut self, note: Note) {
        self.log.add(self.now_ns, note);
    }

    pub(super) fn violated(&mut self, what: String) {
        self.log.freeze();
        if self.breaches.len() < KEPT_MAX {
            self.breaches.push(Breach { at_ns: self.now_ns, what });
        }
    }
}

const _: () = assert!(ATTACH_NS.1 + DOWN_NS.1 < HEALED_NS);
