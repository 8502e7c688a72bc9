//! The pure core: who goes to which server, who waits.

use super::admit::{Admission, Measured, Placing};
use super::counts::{ClassCounts, SiteCounts};
use super::health::{HealthOptions, ejections_max};
use super::lanes::{Lanes, Waiting};
use super::node::Node;
use super::queue::{Queues, order};
use super::ranked::Ranked;
use super::service::{Service, kept_after};
use super::slow_start;
use crate::admission::CLASSES_MAX;
use crate::face::{Ask, Refusal, Verdict};
use moves::looper::{FirstDispatch, NodeSeen, SiteSeen};
use policy::choose::Balance;
use pool_model::{EdgeId, NodeId, SiteId};
use shared_state::slot::NodeSlot;
use shared_state::words::Assign;
use shared_state::{EdgeDemand, EdgeService, NodeRecord};
use std::net::SocketAddr;
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
    /// Over how long a server that came gets to its whole share; zero: at once.
    pub slow_start: Duration,
    /// How long a request waits for the server that it belongs to before it takes any.
    pub stick_wait: Duration,
    /// Its admission classes, the last one among them: 1, or up to [`CLASSES_MAX`].
    pub classes: u8,
    /// With classes: within what time requests are to be answered.
    pub objective: Option<Duration>,
}

impl SiteRules {
    /// Rules with the defaults of a settings file.
    #[must_use]
    pub fn new(site: SiteId) -> Self {
        Self {
            site,
            balance: Balance::default(),
            queue_max: 1_000,
            queue_timeout: Duration::from_secs(5),
            slow_start: Duration::ZERO,
            stick_wait: Duration::from_secs(1),
            classes: 1,
            objective: None,
        }
    }

    pub(super) fn classes(&self) -> usize {
        usize::from(self.classes).clamp(1, CLASSES_MAX)
    }
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
    pub(super) life: u32,
    /// When it was given its place.
    pub(super) since: Duration,
}

/// Somebody who waits.
pub(crate) trait Waiter {
    /// Whether nobody waits any more.
    fn is_gone(&self) -> bool;
}

/// One site.
pub(super) struct Site<W> {
    pub(super) rules: SiteRules,
    /// Who waits for any server.
    pub(super) queue: Queues<W>,
    /// Who waits for a certain one.
    pub(super) lanes: Lanes<W>,
    pub(super) arrivals: u64,
    /// Requests of this edge in flight.
    pub(super) in_flight: u32,
    /// What this edge may have in flight while other edges wait for room; none: no bound.
    pub(super) quota: Option<u32>,
    /// Its nodes, as places in `Core::nodes`, in their order.
    pub(super) nodes: Vec<usize>,
    pub(super) turn: usize,
    pub(super) ejected_any: bool,
    pub(super) counts: SiteCounts,
    /// Only with admission classes.
    pub(super) ranked: Option<Box<Ranked>>,
    service: Service,
}

impl<W: Waiter> Site<W> {
    fn new(rules: SiteRules) -> Self {
        Self {
            queue: Queues::new(rules.classes()),
            lanes: Lanes::new(),
            arrivals: 0,
            in_flight: 0,
            quota: None,
            nodes: Vec::new(),
            turn: 0,
            ejected_any: false,
            counts: SiteCounts::default(),
            service: Service::default(),
            ranked: Ranked::of(rules.classes()),
            rules,
        }
    }

    /// Requests that wait.
    pub(super) fn queued(&self) -> usize {
        self.queue.len() + self.lanes.len()
    }

    pub(super) fn forget_gone(&mut self) {
        self.queue.forget_gone();
        self.lanes.forget_gone();
    }
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
    pub(super) health: HealthOptions,
    pub(super) sites: Vec<Option<Site<W>>>,
    pub(super) nodes: Vec<Option<Node>>,
    lives: u32,
    pub(super) random: u64,
    pub(super) measured: Measured,
    pub(super) first: Vec<FirstDispatch>,
    demand: Vec<EdgeDemand>,
    /// Who waited and is refused, until the shell tells them.
    shed: Vec<(W, Refusal)>,
    /// When the last look asked for service times.
    serviced: Duration,
}

impl<W: Waiter> Core<W> {
    pub(crate) fn new(options: &DispatchOptions) -> Self {
        let last = options.sites.iter().map(|rules| rules.site.index() + 1).max().unwrap_or(0);
        let mut sites: Vec<Option<Site<W>>> = std::iter::repeat_with(|| None).take(last).collect();
        for &rules in &options.sites {
            sites[rules.site.index()] = Some(Site::new(rules));
        }
        Self {
            health: options.health,
            demand: vec![EdgeDemand::default(); last],
            sites,
            nodes: Vec::new(),
            lives: 0,
            random: u64::from(options.incarnation) | 1,
            measured: Measured::default(),
            first: Vec::new(),
            shed: Vec::new(),
            serviced: Duration::ZERO,
        }
    }

    /// Other rules for the same sites, from the next request on; who waits keeps waiting.
    pub(crate) fn set_rules(&mut self, sites: &[SiteRules], health: HealthOptions) {
        self.health = health;
        for &rules in sites {
            if let Some(site) = self.site(rules.site) {
                site.set_classes(site.rules.classes(), rules.classes());
                site.rules = rules;
            }
        }
    }

    pub(super) fn site(&mut self, site: SiteId) -> Option<&mut Site<W>> {
        self.sites.get_mut(site.index())?.as_mut()
    }

    pub(super) fn count(&mut self, site: SiteId, count: impl FnOnce(&mut SiteCounts)) {
        if let Some(state) = self.site(site) {
            count(&mut state.counts);
        }
    }

    /// Requests of this edge, by site.
    pub(crate) fn demand(&mut self) -> &[EdgeDemand] {
        for (told, site) in self.demand.iter_mut().zip(&mut self.sites) {
            let Some(site) = site else { continue };
            site.forget_gone();
            *told = EdgeDemand { queued: site.queued() as u32, in_flight: site.in_flight };
        }
        &self.demand
    }

    /// How long servers took for the requests of this edge, by site.
    pub(crate) fn service(&mut self, now: Duration, out: &mut Vec<EdgeService>) {
        let kept = kept_after(now.saturating_sub(std::mem::replace(&mut self.serviced, now)));
        out.clear();
        let look = |site: &mut Option<Site<W>>| {
            site.as_mut().map_or_else(EdgeService::default, |site| site.service.look(kept))
        };
        out.extend(self.sites.iter_mut().map(look));
    }

    /// Notes how long a request that was answered held its place.
    pub(crate) fn served(&mut self, grant: &Grant, now: Duration) {
        if let Some(state) = self.site(grant.site) {
            state.service.note(now.saturating_sub(grant.since));
        }
    }

    /// How long a request for the site waits at the most.
    pub(crate) fn queue_timeout(&mut self, site: SiteId) -> Option<Duration> {
        self.site(site).map(|site| site.rules.queue_timeout)
    }

    /// A request arrives.
    pub(crate) fn request(
        &mut self,
        site: SiteId,
        ask: Ask<'_>,
        now: Duration,
        waiter: impl FnOnce() -> W,
    ) -> Outcome {
        let Some(state) = self.site(site) else { return Outcome::Refused(Refusal::NoServer) };
        let ask = Ask { rank: state.arrives(&ask), ..ask };
        let placing = Placing { site, ask, now, is_new: true };
        let bound = if state.queue.is_free_for(ask.rank) {
            match self.admit(placing) {
                Admission::Granted(grant) => return Outcome::Granted(grant),
                Admission::Bound(place) => Some(place),
                Admission::NoRoom => None,
            }
        } else {
            self.lane_of(placing)
        };
        let Some(state) = self.site(site) else { return Outcome::Refused(Refusal::NoServer) };
        let displaced = match state.may_wait(&ask, now) {
            Ok(displaced) => displaced,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        let first = state.queued() == 0;
        state.arrivals += 1;
        state.counts.sticky_anew += u64::from(ask.stick.is_some() && bound.is_none());
        let waiting = Waiting {
            waiter: waiter(),
            avoid: ask.avoid.to_vec(),
            order: order(ask.rank, state.arrivals),
            came: now,
            until: now + state.rules.stick_wait,
            stick: ask.stick.filter(|_| bound.is_some()),
        };
        match bound {
            Some(place) => state.lanes.insert(place, waiting),
            None => state.queue.push(waiting),
        }
        state.note_waiting(now);
        self.shed.extend(displaced);
        Outcome::Queued { first }
    }

    /// Who waited and is refused, and what they are to be told. To be asked after each call that
    /// queues a request or lets some go.
    pub(crate) fn take_shed(&mut self) -> Vec<(W, Refusal)> {
        std::mem::take(&mut self.shed)
    }

    /// A request has left its server. Returns who goes next.
    pub(crate) fn leave(&mut self, grant: &Grant, now: Duration, out: &mut Vec<(W, Grant)>) {
        if let Some(state) = self.site(grant.site) {
            state.in_flight = state.in_flight.saturating_sub(1);
            state.answered(now);
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

    /// Whether a node that can be seen is assigned to another site, or to none.
    pub(crate) fn has_left(&self, site: SiteId, node: NodeId) -> bool {
        let node = self.nodes.get(node.index()).and_then(Option::as_ref);
        node.is_some_and(|node| node.assign.site != Some(site))
    }

    /// Notes how a server did. True when this ejects it.
    pub(crate) fn report(&mut self, grant: &Grant, verdict: Verdict, now: Duration) -> bool {
        let options = self.health;
        let Some(Some(node)) = self.nodes.get_mut(grant.node.index()) else { return false };
        if node.assign.site != Some(grant.site) || node.assign.version != grant.version {
            // It says nothing about the server that stands there now.
            return false;
        }
        let failed = match verdict {
            Verdict::Answered | Verdict::ServerError(_) => {
                node.health.succeeded(now);
                if node.health.is_ejected(now) {
                    self.answered_though_ejected(grant, now);
                }
                return false;
            }
            Verdict::ConnectFailed | Verdict::Broke | Verdict::TimedOut => {
                node.health.failed(now, options)
            }
        };
        if failed && let Some(state) = self.site(grant.site) {
            state.ejected_any = true;
            state.counts.ejections += 1;
        }
        failed
    }

    /// While requests are spread over all servers, one that answers is back. An answer that was
    /// under way when its server was ejected says nothing.
    fn answered_though_ejected(&mut self, grant: &Grant, now: Duration) {
        let Some(Some(state)) = self.sites.get(grant.site.index()) else { return };
        let (serving, failing) = self.failing(state, now);
        if failing > ejections_max(serving, self.health.eject_max_pct)
            && let Some(Some(node)) = self.nodes.get_mut(grant.node.index())
        {
            node.health.came_back();
        }
    }

    /// How many servers of the site pass their checks, and how many of them fail requests.
    fn failing(&self, state: &Site<W>, now: Duration) -> (usize, usize) {
        let nodes = state.nodes.iter().filter_map(|&place| self.nodes.get(place)?.as_ref());
        let serving = nodes.filter(|node| node.is_asked());
        serving.fold((0, 0), |(serving, failing), node| {
            (serving + 1, failing + usize::from(node.health.is_ejected(now)))
        })
    }

    /// Lets go whoever waits for the site and finds room, in the order of class and arrival.
    fn pump(&mut self, site: SiteId, now: Duration, out: &mut Vec<(W, Grant)>) {
        let mut queue_blocked = false;
        if let Some(Some(state)) = self.sites.get_mut(site.index()) {
            state.lanes.unblock();
            state.shed_late(now, &mut self.shed);
        }
        // Each turn lets one go, moves one out of its lane for good, or blocks a queue.
        while let Some(state) = self.site(site) {
            let first = state.queue.first().filter(|_| !queue_blocked);
            let lane = if state.lanes.is_empty() { None } else { state.lanes.oldest() };
            match (first, lane) {
                (None, None) => return state.note_waiting(now),
                (Some(_), None) => queue_blocked = !self.pump_queue(site, now, out),
                (Some(first), Some((lane, _))) if first < lane => {
                    queue_blocked = !self.pump_queue(site, now, out);
                }
                (_, Some((_, place))) => self.pump_lane(site, place, now, out),
            }
        }
    }

    /// Lets the first of the queue go; false when nobody has room for it.
    fn pump_queue(&mut self, site: SiteId, now: Duration, out: &mut Vec<(W, Grant)>) -> bool {
        let Some(waiting) = self.site(site).and_then(|state| state.queue.pop_first()) else {
            return false;
        };
        let ask = Ask { avoid: &waiting.avoid, ..Ask::default() };
        match self.admit(Placing { site, ask, now, is_new: false }) {
            Admission::Granted(grant) => out.push((waiting.waiter, grant)),
            _ => {
                if let Some(state) = self.site(site) {
                    state.queue.put_back(waiting);
                }
                return false;
            }
        }
        true
    }

    /// Lets the first of a server's lane go, there or, where that server is gone or the request
    /// has waited long enough for it, anywhere; or blocks the lane.
    fn pump_lane(&mut self, site: SiteId, place: usize, now: Duration, out: &mut Vec<(W, Grant)>) {
        let Some(state) = self.site(site) else { return };
        let Some(mut waiting) = state.lanes.take_first(place) else { return };
        let waits = now < waiting.until;
        let stick = waiting.stick.filter(|_| waits);
        let ask = Ask { avoid: &waiting.avoid, stick, ..Ask::default() };
        let placing = Placing { site, ask, now, is_new: false };
        let own = if waits { self.admit_at(placing, place) } else { None };
        // A key whose server is gone belongs to the next one.
        let admission = own.unwrap_or_else(|| self.admit(placing));
        let strayed = stick.is_none() && matches!(admission, Admission::Granted(_));
        let Some(state) = self.site(site) else { return };
        state.counts.sticky_anew += u64::from(strayed);
        match admission {
            Admission::Granted(grant) => out.push((waiting.waiter, grant)),
            Admission::Bound(now_at) => state.lanes.block(now_at, waiting),
            Admission::NoRoom => {
                waiting.stick = None;
                state.counts.sticky_anew += 1;
                state.queue.insert(waiting);
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
        let node = Node::new(slot, self.lives, self.nodes[place].as_ref());
        self.nodes[place] = Some(node);
        self.assign_nodes();
    }

    /// The node's record that is in use.
    pub(crate) fn record(&self, node: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(node.index())?.as_ref().map(|node| node.slot.record())
    }

    /// Whether the node's server failed so many requests that it should get none for a while.
    pub(crate) fn is_failing(&self, node: NodeId, now: Duration) -> bool {
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
            changed |= node.see(seen, now);
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
        if state.see(&seen, now) {
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
            let own = state.queued() as u64 + u64::from(state.in_flight);
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

    /// What was counted for each site, and how its servers are now; by the site's index.
    pub(crate) fn counts(&self, now: Duration) -> Vec<SiteCounts> {
        let of = |site: &Option<Site<W>>| {
            let Some(site) = site else { return SiteCounts::default() };
            let (serving, failing) = self.failing(site, now);
            let spreads = failing > ejections_max(serving, self.health.eject_max_pct);
            let nodes = site.nodes.iter().filter_map(|&place| self.nodes.get(place)?.as_ref());
            let is_slow =
                |came| slow_start::part(came, now, site.rules.slow_start) < slow_start::WHOLE;
            let slow = nodes.filter(|node| node.open && node.came.is_some_and(is_slow)).count();
            SiteCounts {
                ejected: if spreads { 0 } else { failing as u32 },
                failing: failing as u32,
                slow: slow as u32,
                ..site.counts
            }
        };
        self.sites.iter().map(of).collect()
    }

    /// What was counted for each admission class; by the site's index, empty without classes.
    pub(crate) fn class_counts(&self) -> Vec<Vec<ClassCounts>> {
        let of = |site: &Option<Site<W>>| site.as_ref().map(Site::class_counts).unwrap_or_default();
        self.sites.iter().map(of).collect()
    }

    /// First requests to moved nodes since the last call.
    pub(crate) fn take_first(&mut self) -> Vec<FirstDispatch> {
        std::mem::take(&mut self.first)
    }

    /// Queued and in flight, over all sites.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let sites = || self.sites.iter().flatten();
        let queued = sites().map(Site::queued).sum();
        (queued, sites().map(|site| u64::from(site.in_flight)).sum())
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "leave_out_tests.rs"]
mod leave_out;

#[cfg(test)]
#[path = "rank_twin_tests.rs"]
mod rank_twin;

#[cfg(test)]
#[path = "stick_twin_tests.rs"]
mod stick_twin;
