//! The pure core: who goes to which server, who waits.

use super::health::{Health, HealthOptions};
use crate::face::{Refusal, Verdict};
use moves::looper::{FirstDispatch, Link, NodeSeen, SiteSeen};
use policy::choose::{Balance, ServerLoad};
use pool_model::{EdgeId, NodeId, SiteId};
use shared_state::slot::{self, Enter, NodeSlot};
use shared_state::words::Assign;
use shared_state::{EdgeDemand, NodeRecord};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How the requests of one site are queued and balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteRules {
    /// The site.
    pub site: SiteId,
    /// How its servers are chosen.
    pub balance: Balance,
    /// Requests that wait in this edge at the most; one more is refused.
    pub queue_max: usize,
    /// How long a request waits at the most.
    pub queue_timeout: Duration,
}

/// What the dispatcher is made of.
#[derive(Clone, Debug)]
pub struct DispatchOptions {
    /// This edge: the number of its slots.
    pub edge: EdgeId,
    /// This edge's life, drawn at random at its start; not zero.
    pub incarnation: u32,
    /// The sites that it serves.
    pub sites: Vec<SiteRules>,
    /// When servers are ejected.
    pub health: HealthOptions,
}

/// A request that counts as in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) node: NodeId,
    pub(crate) site: SiteId,
    pub(crate) version: u32,
    pub(crate) address: SocketAddr,
    /// Which region of the node it is counted in: a restarted agent has a new one.
    life: u32,
}

/// Somebody who waits.
pub(crate) trait Waiter {
    /// Whether nobody waits any more.
    fn is_gone(&self) -> bool;
}

struct Waiting<W> {
    waiter: W,
    avoid: Vec<NodeId>,
}

struct Site<W> {
    rules: SiteRules,
    queue: VecDeque<Waiting<W>>,
    /// Requests of this edge in flight.
    in_flight: u32,
    /// What this edge may have in flight while other edges wait for room; none: no bound.
    quota: Option<u32>,
    /// Its nodes, as places in `Core::nodes`.
    nodes: Vec<usize>,
    turn: usize,
    ejected_any: bool,
}

struct Node {
    slot: NodeSlot,
    life: u32,
    assign: Assign,
    open: bool,
    link: Link,
    /// What all edges together may have at its server, as far as this one takes part.
    limit: u32,
    health: Health,
    /// The server that `health` is about: its address and how often it was started again.
    process: Option<(Ipv4Addr, u16, u16)>,
    /// The version whose first request has not been sent yet.
    awaited: Option<u32>,
}

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Granted(Grant),
    /// It waits; the flag tells whether it is the first of its queue.
    Queued {
        first: bool,
    },
    Refused(Refusal),
}

pub(crate) struct Core<W> {
    health: HealthOptions,
    sites: Vec<Option<Site<W>>>,
    nodes: Vec<Option<Node>>,
    lives: u32,
    random: u64,
    loads: Vec<ServerLoad>,
    first: Vec<FirstDispatch>,
    demand: Vec<EdgeDemand>,
}

/// First dispatches kept until a look collects them: as many as moves between two looks, of which
/// there is one; the rest is room for an administrator's.
const FIRST_DISPATCHES_MAX: usize = 64;

impl<W: Waiter> Core<W> {
    pub(crate) fn new(options: &DispatchOptions) -> Self {
        let last = options.sites.iter().map(|rules| rules.site.index() + 1).max().unwrap_or(0);
        let mut sites: Vec<Option<Site<W>>> = std::iter::repeat_with(|| None).take(last).collect();
        for &rules in &options.sites {
            sites[rules.site.index()] = Some(Site {
                rules,
                queue: VecDeque::new(),
                in_flight: 0,
                quota: None,
                nodes: Vec::new(),
                turn: 0,
                ejected_any: false,
            });
        }
        Self {
            health: options.health,
            demand: vec![EdgeDemand::default(); last],
            sites,
            nodes: Vec::new(),
            lives: 0,
            random: u64::from(options.incarnation) | 1,
            loads: Vec::new(),
            first: Vec::new(),
        }
    }

    /// Other rules for the same sites, from the next request on; who waits keeps waiting.
    pub(crate) fn set_rules(&mut self, sites: &[SiteRules], health: HealthOptions) {
        self.health = health;
        for &rules in sites {
            if let Some(site) = self.site(rules.site) {
                site.rules = rules;
            }
        }
    }

    fn site(&mut self, site: SiteId) -> Option<&mut Site<W>> {
        self.sites.get_mut(site.index())?.as_mut()
    }

    /// Requests of this edge, by site.
    pub(crate) fn demand(&mut self) -> &[EdgeDemand] {
        for (told, site) in self.demand.iter_mut().zip(&mut self.sites) {
            let Some(site) = site else { continue };
            site.queue.retain(|waiting| !waiting.waiter.is_gone());
            *told = EdgeDemand { queued: site.queue.len() as u32, in_flight: site.in_flight };
        }
        &self.demand
    }

    /// How long a request for the site waits at the most.
    pub(crate) fn queue_timeout(&mut self, site: SiteId) -> Option<Duration> {
        self.site(site).map(|site| site.rules.queue_timeout)
    }

    /// A request arrives.
    pub(crate) fn request(
        &mut self,
        site: SiteId,
        avoid: &[NodeId],
        now: Duration,
        waiter: impl FnOnce() -> W,
    ) -> Outcome {
        let Some(state) = self.site(site) else { return Outcome::Refused(Refusal::NoServer) };
        if state.queue.iter().all(|waiting| waiting.waiter.is_gone()) {
            state.queue.clear();
            if let Some(grant) = self.admit(site, avoid, now) {
                return Outcome::Granted(grant);
            }
        }
        let Some(state) = self.site(site) else { return Outcome::Refused(Refusal::NoServer) };
        if state.queue.len() >= state.rules.queue_max {
            state.queue.retain(|waiting| !waiting.waiter.is_gone());
        }
        if state.queue.len() >= state.rules.queue_max {
            return Outcome::Refused(Refusal::QueueFull);
        }
        let first = state.queue.is_empty();
        state.queue.push_back(Waiting { waiter: waiter(), avoid: avoid.to_vec() });
        Outcome::Queued { first }
    }

    /// Chooses a server with room and counts the request in.
    fn admit(&mut self, site: SiteId, avoid: &[NodeId], now: Duration) -> Option<Grant> {
        let state = self.sites.get(site.index())?.as_ref()?;
        if state.quota.is_some_and(|quota| state.in_flight >= quota) {
            return None;
        }
        let (balance, turn) = (state.rules.balance, state.turn);
        self.measure(site, avoid, now);
        // Each failed try closes one server, so there are no more tries than servers.
        for _ in 0..self.loads.len() {
            self.random = xorshift(self.random);
            let chosen = balance.choose(&self.loads, turn, self.random)?;
            if let Some(grant) = self.enter(site, chosen, now) {
                let state = self.site(site)?;
                state.turn = chosen + 1;
                state.in_flight += 1;
                return Some(grant);
            }
            self.loads[chosen].open = false;
        }
        None
    }

    /// Reads what each server of the site has, over all edges, straight from memory.
    fn measure(&mut self, site: SiteId, avoid: &[NodeId], now: Duration) {
        self.loads.clear();
        let Some(Some(state)) = self.sites.get(site.index()) else { return };
        let ejected_any = state.ejected_any;
        for &place in &state.nodes {
            let Some(Some(node)) = self.nodes.get(place) else {
                self.loads.push(ServerLoad { in_flight: 0, max_in_flight: 0, open: false });
                continue;
            };
            let record = node.slot.record();
            let header = record.header();
            let avoided = avoid.contains(&header.node);
            let silent = node.link == Link::Silent;
            let ejected = silent || (ejected_any && node.health.is_ejected(now));
            self.loads.push(ServerLoad {
                in_flight: slot::server_load(record, Some(site), record.edges()),
                max_in_flight: node.limit,
                open: node.open && !avoided && !ejected,
            });
        }
        if self.loads.iter().any(|server| server.open) {
            return;
        }
        // All are ejected or have failed this request: a doubtful server is better than none.
        for (server, &place) in self.loads.iter_mut().zip(&state.nodes) {
            let node = self.nodes.get(place).and_then(Option::as_ref);
            server.open = node.is_some_and(|node| node.open);
        }
    }

    fn enter(&mut self, site: SiteId, chosen: usize, now: Duration) -> Option<Grant> {
        let place = *self.sites.get(site.index())?.as_ref()?.nodes.get(chosen)?;
        let node = self.nodes.get_mut(place)?.as_mut()?;
        let server = node.slot.record().server(site);
        if !server.is_ready() {
            return None;
        }
        let header = node.slot.record().header();
        match node.slot.enter(node.assign, node.limit) {
            Enter::Entered => {}
            Enter::Full => return None,
            Enter::Moved(now) => {
                // The look will say where it went; until then it takes nothing from this site.
                node.open = false;
                node.slot.follow(now.unwrap_or(Assign::FREE));
                return None;
            }
        }
        let version = node.assign.version;
        if node.awaited == Some(version) {
            node.awaited = None;
            if self.first.len() < FIRST_DISPATCHES_MAX {
                self.first.push(FirstDispatch { node: header.node, version, at: now });
            }
        }
        let address = SocketAddr::from((server.address, server.port));
        Some(Grant { node: header.node, site, version, address, life: node.life })
    }

    /// A request has left its server. Returns who goes next.
    pub(crate) fn leave(&mut self, grant: &Grant, now: Duration, out: &mut Vec<(W, Grant)>) {
        if let Some(state) = self.site(grant.site) {
            state.in_flight = state.in_flight.saturating_sub(1);
        }
        let mut next = grant.site;
        if let Some(Some(node)) = self.nodes.get_mut(grant.node.index()) {
            if node.life == grant.life {
                node.slot.leave(grant.site, grant.version);
            } else {
                node.slot.leave_earlier(grant.site);
            }
            next = node.assign.site.unwrap_or(next);
        }
        self.pump(grant.site, now, out);
        if next != grant.site {
            self.pump(next, now, out);
        }
    }

    /// Notes how a server did. True when this ejects it.
    pub(crate) fn report(&mut self, grant: &Grant, verdict: Verdict, now: Duration) -> bool {
        let options = self.health;
        let Some(Some(node)) = self.nodes.get_mut(grant.node.index()) else { return false };
        let failed = match verdict {
            Verdict::Answered | Verdict::ServerError(_) => {
                node.health.succeeded();
                return false;
            }
            Verdict::ConnectFailed | Verdict::Broke | Verdict::TimedOut => {
                node.health.failed(now, options)
            }
        };
        if failed && let Some(state) = self.site(grant.site) {
            state.ejected_any = true;
        }
        failed
    }

    /// Lets go whoever waits for the site and finds room, in the order of arrival.
    fn pump(&mut self, site: SiteId, now: Duration, out: &mut Vec<(W, Grant)>) {
        while let Some(state) = self.site(site) {
            let Some(waiting) = state.queue.pop_front() else { return };
            if waiting.waiter.is_gone() {
                continue;
            }
            match self.admit(site, &waiting.avoid, now) {
                Some(grant) => out.push((waiting.waiter, grant)),
                None => {
                    if let Some(state) = self.site(site) {
                        state.queue.push_front(waiting);
                    }
                    return;
                }
            }
        }
    }

    /// A node's region was found: its slot is taken. Any earlier region of the node is forgotten;
    /// requests that were counted there are counted here, since their servers live on, unless
    /// what stands there is noise by now.
    pub(crate) fn attach(&mut self, mut slot: NodeSlot) {
        let place = slot.record().header().node.index();
        if self.nodes.len() <= place {
            self.nodes.resize_with(place + 1, || None);
        }
        let before = self.nodes[place].as_ref();
        if let Some(before) = before.filter(|before| before.slot.record().check().is_ok()) {
            slot.carry(&before.slot.counts());
        }
        self.lives = self.lives.wrapping_add(1);
        let assign = slot.record().assign().unwrap_or(Assign::FREE);
        self.nodes[place] = Some(Node {
            slot,
            life: self.lives,
            assign,
            open: false,
            link: Link::Mapped,
            limit: 0,
            health: Health::default(),
            process: None,
            awaited: None,
        });
        self.assign_nodes();
    }

    /// The node's record that is in use.
    pub(crate) fn record(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(node.index())?.as_ref().map(|node| node.slot.record())
    }

    /// Whether the node's server failed so many requests that it gets none for a while.
    pub(crate) fn is_ejected(&self, node: NodeId, now: Duration) -> bool {
        let node = self.nodes.get(node.index()).and_then(Option::as_ref);
        node.is_some_and(|node| node.health.is_ejected(now))
    }

    /// One look: follows moves, shares room, lets go who now finds some.
    pub(crate) fn looked(
        &mut self,
        nodes: &[Option<NodeSeen>],
        sites: &[SiteSeen],
        now: Duration,
        out: &mut Vec<(W, Grant)>,
    ) {
        let mut changed = false;
        for (node, seen) in self.nodes.iter_mut().zip(nodes) {
            let (Some(node), Some(seen)) = (node, seen) else { continue };
            if seen.assign.is_some() {
                node.slot.beat();
            }
            changed |= node.see(seen);
        }
        if changed {
            self.assign_nodes();
        }
        self.share_room(sites, now);
        self.pump_all(now, out);
    }

    /// A move of this edge took effect: the node serves its new site from now on.
    pub(crate) fn moved(
        &mut self,
        node: NodeId,
        assign: Assign,
        limit: u32,
        now: Duration,
        out: &mut Vec<(W, Grant)>,
    ) {
        let Some(Some(state)) = self.nodes.get_mut(node.index()) else { return };
        let open = assign.site.is_some_and(|site| state.slot.record().takes(site, assign));
        let seen = NodeSeen { assign: Some(assign), open, link: state.link, limit };
        if state.see(&seen) {
            self.assign_nodes();
        }
        self.pump_all(now, out);
    }

    fn pump_all(&mut self, now: Duration, out: &mut Vec<(W, Grant)>) {
        for place in 0..self.sites.len() {
            if let Ok(site) = SiteId::from_index(place) {
                self.pump(site, now, out);
            }
        }
    }

    /// Lists each site's nodes anew.
    fn assign_nodes(&mut self) {
        for site in self.sites.iter_mut().flatten() {
            site.nodes.clear();
        }
        for (place, node) in self.nodes.iter().enumerate() {
            let site = node.as_ref().and_then(|node| node.assign.site);
            if let Some(Some(site)) = site.and_then(|id| self.sites.get_mut(id.index())) {
                site.nodes.push(place);
            }
        }
    }

    /// While another edge's queue of a site is not empty, each edge keeps to its part of the
    /// site's room, in proportion to its demand. Parts are rounded up, so that no room is lost;
    /// but whoever has something in flight leaves a place to each edge that waits and has nothing,
    /// or the part of one with much demand would be all there is, for as long as that lasts. The
    /// limit itself is kept by the slots.
    fn share_room(&mut self, sites: &[SiteSeen], now: Duration) {
        for (place, state) in self.sites.iter_mut().enumerate() {
            let Some(state) = state else { continue };
            let seen = sites.get(place).copied().unwrap_or_default();
            let own = state.queue.len() as u64 + u64::from(state.in_flight);
            let room: u64 = state
                .nodes
                .iter()
                .filter_map(|&node| self.nodes.get(node)?.as_ref())
                .map(|node| u64::from(node.slot.record().header().max_in_flight))
                .sum();
            let all = own + seen.others_demand;
            state.quota = (seen.others_queued > 0 && all > 0).then(|| {
                let part = (room * own).div_ceil(all).max(1);
                let left = match state.in_flight {
                    0 => part,
                    _ => part.min(room.saturating_sub(seen.others_starving)),
                };
                left.try_into().unwrap_or(u32::MAX)
            });
            state.ejected_any = state.nodes.iter().any(|&node| {
                let node = self.nodes.get(node).and_then(Option::as_ref);
                node.is_some_and(|node| node.health.is_ejected(now))
            });
        }
    }

    /// First requests to moved nodes since the last call.
    pub(crate) fn take_first(&mut self) -> Vec<FirstDispatch> {
        std::mem::take(&mut self.first)
    }

    /// Queued and in flight, over all sites.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let sites = || self.sites.iter().flatten();
        let queued = sites().map(|site| site.queue.len()).sum();
        (queued, sites().map(|site| u64::from(site.in_flight)).sum())
    }
}

impl Node {
    /// Takes over what a look saw; true when the node serves another site or version.
    fn see(&mut self, seen: &NodeSeen) -> bool {
        let Some(assign) = seen.assign else {
            // The region was given up: nothing more is sent there until the new one is found.
            self.open = false;
            return false;
        };
        (self.open, self.link, self.limit) = (seen.open, seen.link, seen.limit);
        let moved = assign.site != self.assign.site || assign.version != self.assign.version;
        self.assign = assign;
        self.slot.follow(assign);
        let server = assign.site.map(|site| self.slot.record().server(site));
        let process = server.map(|server| (server.address, server.port, server.restarts));
        if process != self.process {
            // What another server did, or one before it, says nothing about this one.
            (self.process, self.health) = (process, Health::default());
        }
        if moved {
            self.awaited = Some(assign.version);
        }
        moved
    }
}

/// Marsaglia's xorshift: enough to draw two servers, and a seed reproduces a run.
fn xorshift(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ x << 17
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
