//! One look, judged: who is alive, what the host and the policy get to see.

use super::host::{Link, NodeSeen, SiteSeen};
use super::memory::Memory;
use super::reach::Reach;
use super::service::ServiceSum;
use super::shortfall::{NodeAt, Shortfalls};
use super::status::{EdgeState, NodeState, SiteState};
use crate::protocol::Seen;
use pool_model::{EdgeId, NodeId, NodeTraits, NodeView, PoolView, SiteId, SiteTerms, SiteView};
use shared_state::lease::Watch;
use shared_state::slot::{LiveEdges, node_load};
use shared_state::words::{Assign, Server};
use shared_state::{EDGES_MAX, NodeRecord, Service};
use std::time::Duration;

/// A node's agent counts as dead when its beat has not changed for this many of the periods that
/// it promised: one beat may be late by a whole period on a busy machine.
const BEATS_MISSED_MAX: u32 = 3;

/// A site's load below which the pool is calm: far enough from any load that a policy acts on,
/// that it is not passed without a request that waits.
const CALM_LOAD_MAX: f64 = 0.25;

/// What is remembered of one node from look to look.
#[derive(Clone, Copy, Debug, Default)]
struct Track {
    beat: Watch,
    /// Whether the connection to its agent is open.
    connected: bool,
    alive: bool,
    /// Its agent is dead and its server does not answer: it counts for no site.
    lost: bool,
    cordoned: bool,
    serving: bool,
}

/// What the settings state of all sites and of all nodes, each by its index.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) sites: Vec<SiteTerms>,
    pub(super) nodes: Vec<NodeTraits>,
}

/// The pool as this edge sees it.
#[derive(Debug)]
pub(super) struct Pool {
    edge: EdgeId,
    settings_hash: u64,
    slot_lease: Duration,
    node_dead: Duration,
    terms: Terms,
    tracks: Vec<Track>,
    leases: [Watch; EDGES_MAX],
    /// The leases of edges on each node's slots.
    slots: Vec<[Watch; EDGES_MAX]>,
    live: LiveEdges,
    /// Some live edge, or the home, has other settings.
    pub(super) settings_differ: bool,
    pub(super) seen: Seen,
    pub(super) view: PoolView,
    pub(super) nodes: Vec<Option<NodeSeen>>,
    pub(super) sites: Vec<SiteSeen>,
    shortfalls: Shortfalls,
}

impl Pool {
    pub(super) fn new(
        edge: EdgeId,
        settings_hash: u64,
        (slot_lease, node_dead): (Duration, Duration),
        terms: Terms,
    ) -> Self {
        let count = terms.nodes.len();
        let sites = u16::try_from(terms.sites.len()).unwrap_or(u16::MAX);
        let nodes = u16::try_from(count).unwrap_or(u16::MAX);
        Self {
            edge,
            settings_hash,
            slot_lease,
            node_dead,
            tracks: vec![Track::default(); count],
            leases: [Watch::default(); EDGES_MAX],
            slots: vec![[Watch::default(); EDGES_MAX]; count],
            live: LiveEdges::default(),
            settings_differ: false,
            seen: Seen::new(sites, nodes),
            view: PoolView::default(),
            nodes: vec![None; count],
            sites: vec![SiteSeen::default(); terms.sites.len()],
            shortfalls: Shortfalls::default(),
            terms,
        }
    }

    /// Judges by other settings from the next look on; the sites are the same.
    pub(super) fn update(
        &mut self,
        settings_hash: u64,
        (slot_lease, node_dead): (Duration, Duration),
        terms: Terms,
    ) {
        (self.slot_lease, self.node_dead) = (slot_lease, node_dead);
        (self.settings_hash, self.terms) = (settings_hash, terms);
    }

    /// The connection to a node's agent was opened or lost.
    pub(super) fn connected(&mut self, node: NodeId, connected: bool) {
        if let Some(track) = self.tracks.get_mut(node.index()) {
            track.connected = connected;
            if connected {
                track.beat = Watch::default();
                self.slots[node.index()] = [Watch::default(); EDGES_MAX];
            }
        }
    }

    /// Whether, by the last look, no request waits anywhere and every site has room for many more.
    pub(super) fn is_calm(&self) -> bool {
        self.view.sites.iter().all(|site| site.queued == 0 && site.load() < CALM_LOAD_MAX)
    }

    /// Judges who is alive, after the site words were read and before the nodes are counted.
    /// `failing` says whether requests to a node fail.
    pub(super) fn judge(
        &mut self,
        reach: &Reach,
        now: Duration,
        mut failing: impl FnMut(NodeId) -> bool,
    ) {
        let memory = &reach.memory;
        self.judge_edges(memory, now);
        for index in 0..self.tracks.len() {
            let Some(Some(record)) = memory.nodes.get(index) else {
                self.seen.counted[index] = false;
                // A record that was in use is given up; the host must not go on with it.
                if let Some(seen) = &mut self.nodes[index] {
                    (seen.assign, seen.open) = (None, false);
                }
                continue;
            };
            let link = reach.link(index);
            if !link.is_fresh() {
                self.judge_absent(index, link, now, &mut failing);
                continue;
            }
            let assign = self.seen.nodes[index].and_then(Assign::unpack);
            let node = record.header().node;
            self.strike_out(index, record, reach, now);
            let track = &mut self.tracks[index];
            let promised = record.beat_period() * BEATS_MISSED_MAX;
            let patience = self.node_dead.max(promised);
            track.alive = track.beat.is_alive(record.beat(), now, patience) && track.connected;
            track.lost = !track.alive && failing(node);
            track.cordoned = memory.home.as_ref().is_some_and(|home| home.is_cordoned(node));
            let takes = |a: Assign| a.site.is_none_or(|site| record.takes(site, a));
            track.serving = assign.is_some_and(takes);
            self.seen.counted[index] = track.alive && !track.cordoned;
            let (open, limit) = (track.serving && !track.cordoned, reach.limit(index, assign));
            self.nodes[index] = Some(NodeSeen { assign, open, link, limit });
        }
        self.fill_view(memory);
        self.note_shortfalls(now);
    }

    fn note_shortfalls(&mut self, now: Duration) {
        let all = self.tracks.iter().zip(0_u16..);
        let nodes = all.filter_map(|(track, number)| {
            let node = NodeId::new(number).ok()?;
            let assign = self.seen.assign(node);
            let site = assign.and_then(|assign| assign.site).filter(|_| !track.lost);
            // An agent that stops leaves no assignment, and beats for some time yet.
            Some((node, NodeAt { site, alive: track.alive && assign.is_some() }))
        });
        let of = |site: &SiteView| (site.nodes, site.terms.guarantee.hard);
        self.shortfalls.looked(now, nodes, self.view.sites.iter().map(of));
    }

    /// A node elsewhere whose agent does not answer does not move. It goes on as it was seen last,
    /// unless its machine does not answer either: then it soon counts for no site.
    fn judge_absent(
        &mut self,
        index: usize,
        link: Link,
        now: Duration,
        failing: &mut impl FnMut(NodeId) -> bool,
    ) {
        let track = &mut self.tracks[index];
        track.alive = false;
        let is_failing = NodeId::new(index as u16).is_ok_and(failing);
        let is_silent = link == Link::Silent && track.beat.unchanged_for(now) > self.node_dead;
        track.lost = is_failing || is_silent;
        self.seen.counted[index] = false;
        if let Some(seen) = &mut self.nodes[index] {
            seen.link = link;
        }
    }

    /// Edges whose lease in the home's record changes; without a home, those last known.
    fn judge_edges(&mut self, memory: &Memory, now: Duration) {
        let Some(home) = &memory.home else { return };
        let mut live = LiveEdges::default();
        let mut differ = home.settings_hash() != self.settings_hash;
        for index in 0..EDGES_MAX {
            let Some(edge) = u8::try_from(index).ok().and_then(|n| EdgeId::new(n).ok()) else {
                break;
            };
            let row = home.edge_row(edge);
            let watch = &mut self.leases[index];
            let alive = watch.is_alive(row.lease.pack(), now, self.slot_lease);
            if edge == self.edge || (alive && row.lease.incarnation != 0) {
                live = live.with(edge);
                differ |= edge != self.edge && row.settings_hash != self.settings_hash;
            }
        }
        (self.live, self.settings_differ) = (live, differ);
    }

    /// Strikes out edges whose lease on the node has expired; who is left counts.
    fn strike_out(&mut self, index: usize, record: &NodeRecord, reach: &Reach, now: Duration) {
        let leases = &mut self.slots[index];
        for edge in record.edges().iter().filter(|&edge| reach.has_read(index, edge)) {
            let lease = record.lease(edge).pack();
            let alive = leases[edge.index()].is_alive(lease, now, self.slot_lease);
            if !alive && edge != self.edge {
                record.set_edge(edge, false);
            }
        }
    }

    /// The look as the policy sees it.
    fn fill_view(&mut self, memory: &Memory) {
        self.view.nodes.clear();
        let all = self.tracks.iter().zip(&memory.nodes).zip(&self.terms.nodes);
        for ((track, record), &traits) in all {
            let Some(record) = record.as_ref().filter(|_| !track.lost) else { continue };
            let header = record.header();
            let assign = self.seen.assign(header.node);
            self.view.nodes.push(NodeView {
                id: header.node,
                site: assign.and_then(|assign| assign.site),
                in_flight: node_load(record, record.edges()),
                max_in_flight: header.max_in_flight,
                movable: track.alive && !track.cordoned && track.serving,
                traits,
            });
        }
        self.view.sites.clear();
        for (index, &terms) in self.terms.sites.iter().enumerate() {
            let Ok(id) = SiteId::from_index(index) else { break };
            let (mut queued, mut others) = (0_u32, SiteSeen::default());
            let mut service = ServiceSum::default();
            if let Some(home) = &memory.home {
                for edge in self.live.iter() {
                    let demand = home.demand(edge, id);
                    queued = queued.saturating_add(demand.queued);
                    service.add(home.service(edge, id));
                    if edge != self.edge {
                        others.others_demand += demand.total();
                        others.others_queued += u64::from(demand.queued);
                        others.others_starving += u64::from(demand.is_starving());
                    }
                }
            }
            self.sites[index] = others;
            let service_us = service.mean_us();
            let (in_flight, capacity, nodes) = (0, 0, 0);
            let site = SiteView { id, terms, queued, in_flight, capacity, nodes, service_us };
            self.view.sites.push(site);
        }
        self.view.sum_up();
    }

    /// Whether a node was seen serving the site that it is assigned to.
    pub(super) fn is_serving(&self, node: NodeId) -> bool {
        self.tracks.get(node.index()).is_some_and(|track| track.serving)
    }

    pub(super) fn site_states(&self) -> Vec<SiteState> {
        let state = |site: &SiteView| SiteState {
            below_hard: self.shortfalls.of(site.id.index()),
            id: site.id,
            terms: site.terms,
            nodes: site.nodes,
            queued: site.queued,
            in_flight: site.in_flight,
            capacity: site.capacity,
            load: site.load(),
            service_us: site.service_us,
        };
        self.view.sites.iter().map(state).collect()
    }

    pub(super) fn node_states(&self, reach: &Reach) -> Vec<NodeState> {
        let ids = (0..self.tracks.len()).filter_map(|n| NodeId::new(u16::try_from(n).ok()?).ok());
        let state = |(id, track): (NodeId, &Track)| {
            let record = reach.memory.nodes.get(id.index()).and_then(Option::as_ref);
            let assign = record.and_then(NodeRecord::assign);
            let site = assign.and_then(|assign| assign.site);
            let servers = self.servers(record);
            NodeState {
                id,
                attached: record.is_some(),
                link: reach.link(id.index()),
                alive: track.alive,
                cordoned: track.cordoned,
                site,
                version: assign.map_or(0, |assign| assign.version),
                in_flight: record.map_or(0, |record| node_load(record, record.edges())),
                max_in_flight: record.map_or(0, |record| record.header().max_in_flight),
                serving: track.serving,
                restarts: servers.iter().map(|server| u32::from(server.restarts)).sum(),
                servers: servers.iter().map(|server| server.phase).collect(),
                service: record.map_or(Service::None, NodeRecord::service),
                machine: record.and_then(|record| record.status().ok()),
            }
        };
        ids.zip(&self.tracks).map(state).collect()
    }

    fn servers(&self, record: Option<&NodeRecord>) -> Vec<Server> {
        let server = |site: &SiteView| record.map_or(Server::ABSENT, |r| r.server(site.id));
        self.view.sites.iter().map(server).collect()
    }

    pub(super) fn edge_states(&self, memory: &Memory) -> Vec<EdgeState> {
        let Some(home) = &memory.home else { return Vec::new() };
        let state = |id| {
            let row = home.edge_row(id);
            EdgeState { id, row, same_settings: row.settings_hash == self.settings_hash }
        };
        self.live.iter().map(state).collect()
    }
}
