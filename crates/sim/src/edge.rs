//! One edge: the real look, the real decision core, and what it remembers of the pool.

use crate::memory::{Memory, NodeLife};
use crate::options::Options;
use moves::protocol::{Look, Op, Reply, Seen, Task, Word};
use moves::{Core, Mode};
use pool_model::{EdgeId, NodeView, PoolView, SiteId, SiteView};
use shared_state::words::Assign;

/// The settings version that all edges carry: settings do not change in a run.
const SETTINGS_VERSION: u32 = 1;

/// What an edge is at.
#[derive(Debug)]
pub(crate) enum Doing {
    /// Until the next look.
    Asleep,
    Looking(Look),
    /// An operation of a task is under way.
    Waiting {
        task: Task,
        flight: u32,
    },
    /// Its process is gone.
    Crashed,
}

/// An edge.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) core: Core,
    pub(crate) seen: Seen,
    pub(crate) view: PoolView,
    pub(crate) doing: Doing,
    /// Grows with each start of its process: what was planned for an earlier life is void.
    pub(crate) life: u32,
    /// When the present look began.
    pub(crate) look_ns: u64,
    /// It is stopped until then.
    pub(crate) stopped_until_ns: u64,
    /// The region of each node that it has opened.
    attached: Vec<u32>,
    /// When each node was last seen beating.
    fresh_ns: Vec<u64>,
    /// Nodes whose assignment and load it has read.
    pub(crate) node_reads: u64,
}

/// What a view takes from the traffic.
pub(crate) trait Demand {
    /// Requests of a site that wait, as the live edges told.
    fn queued(&self, site: SiteId) -> u32;
    /// Mean service time of a site.
    fn service_us(&self, site: SiteId) -> u32;
}

fn new_core(options: &Options, number: u8) -> Core {
    Core::new(moves::Options {
        edge: EdgeId::new(number).expect("options were checked: at most 64 edges"),
        timing: options.timing,
        sites: options.sites.iter().map(|site| site.terms).collect(),
        nodes: u16::try_from(options.nodes.len()).unwrap_or(u16::MAX),
        settings_version: SETTINGS_VERSION,
        mode: Mode::Move,
    })
}

impl Edge {
    /// A process that has seen nothing yet.
    pub(crate) fn new(options: &Options, number: u8, now_ns: u64) -> Self {
        let sites = u16::try_from(options.sites.len()).unwrap_or(u16::MAX);
        let nodes = u16::try_from(options.nodes.len()).unwrap_or(u16::MAX);
        let site = |(index, spec): (usize, &crate::SiteSpec)| {
            let id = SiteId::from_index(index).ok()?;
            let terms = spec.terms;
            let (in_flight, capacity, nodes, queued, service_us) = (0, 0, 0, 0, 0);
            Some(SiteView { id, terms, queued, in_flight, capacity, nodes, service_us })
        };
        let sites_view = options.sites.iter().enumerate().filter_map(site).collect();
        Self {
            core: new_core(options, number),
            seen: Seen::new(sites, nodes),
            view: PoolView {
                sites: sites_view,
                nodes: Vec::with_capacity(options.nodes.len()),
                ..PoolView::default()
            },
            doing: Doing::Asleep,
            life: 0,
            look_ns: now_ns,
            stopped_until_ns: 0,
            attached: vec![1; options.nodes.len()],
            fresh_ns: vec![now_ns; options.nodes.len()],
            node_reads: 0,
        }
    }

    /// Its process starts again: everything that it remembered is gone.
    pub(crate) fn restart(&mut self, options: &Options, number: u8, now_ns: u64) {
        let (life, node_reads) = (self.life, self.node_reads);
        *self = Self { life, node_reads, ..Self::new(options, number, now_ns) };
    }

    /// Reads the next words of its look, at this instant; `blind` names what it cannot reach.
    /// True when the look is over.
    pub(crate) fn read_on(
        &mut self,
        look: &mut Look,
        memory: &Memory,
        words: u32,
        blind: impl Fn(Word) -> bool,
    ) -> bool {
        for _ in 0..words {
            let moves::protocol::Next::Op(Op::Read(word)) = look.next() else { return true };
            let reply = if blind(word) || !self.reaches(memory, word) {
                Reply::Unreachable
            } else {
                Reply::Value(memory.read(word))
            };
            look.reply(&mut self.seen, reply);
        }
        matches!(look.next(), moves::protocol::Next::Done(_))
    }

    /// Whether a word's memory answers this edge; opens a new region for the next look.
    fn reaches(&mut self, memory: &Memory, word: Word) -> bool {
        let Word::Assign(node) = word else { return true };
        let now = memory.incarnation(node);
        let opened = std::mem::replace(&mut self.attached[node.index()], now);
        opened == now && memory.life(node) != NodeLife::Down
    }

    /// The region that an operation of this edge is for.
    pub(crate) fn incarnation_of(&self, word: Word) -> u32 {
        if let Word::Assign(node) = word { self.attached[node.index()] } else { 0 }
    }

    /// Judges who is alive, and fills the view: one pass over the nodes, no allocation. For each
    /// node that was read, its load word is read too.
    pub(crate) fn judge(
        &mut self,
        now_ns: u64,
        options: &Options,
        memory: &Memory,
        demand: &impl Demand,
    ) {
        let node_dead_ns = options.timing.node_dead_ns;
        for site in &mut self.view.sites {
            (site.in_flight, site.capacity, site.nodes) = (0, 0, 0);
            site.queued = demand.queued(site.id);
            site.service_us = demand.service_us(site.id);
        }
        self.view.nodes.clear();
        self.view.stock.reset(self.view.sites.len());
        let specs = options.nodes.iter().zip(&self.seen.nodes);
        let tracks = self.seen.counted.iter_mut().zip(&mut self.fresh_ns);
        for (index, ((spec, &raw), (counted, fresh_ns))) in specs.zip(tracks).enumerate() {
            let Some((raw, id)) = raw.zip(crate::memory::node_at(index)) else {
                *counted = false;
                continue;
            };
            if memory.life(id) == NodeLife::Up {
                *fresh_ns = now_ns;
            }
            *counted = now_ns - *fresh_ns < node_dead_ns;
            self.node_reads += 1;
            let in_flight = memory.load(id);
            let site = Assign::unpack(raw).and_then(|assign| assign.site);
            let max_in_flight = spec.max_in_flight;
            let (movable, traits) = (*counted, spec.traits);
            self.view.nodes.push(NodeView { id, site, in_flight, max_in_flight, movable, traits });
            self.view.stock.add(site.map(SiteId::index), traits.classes);
            if let Some(site) = site.and_then(|site| self.view.sites.get_mut(site.index())) {
                site.in_flight += in_flight;
                site.capacity += max_in_flight;
                site.nodes += 1;
            }
        }
    }
}
