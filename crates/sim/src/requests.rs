//! Single requests: who waits where, what is in flight, what became of each.
//!
//! Arithmetic only; the engine says when something happens. A node serves at most
//! `max_in_flight` requests at once, those of its earlier site included: a move makes no capacity.

use crate::options::Options;
use crate::traffic::Arrival;
use pool_model::{NodeId, SiteId};
use std::collections::VecDeque;

/// How often a request is tried whose node died: as often as an edge does.
const TRIES_MAX: u8 = 4;
/// Weight of the newest service time in the mean: some tens of requests decide.
const MEAN_WEIGHT: f64 = 1.0 / 32.0;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Served = 0,
    Refused = 1,
    Failed = 2,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) arrived_ns: u64,
    pub(crate) started_ns: u64,
    pub(crate) site: SiteId,
    pub(crate) edge: u8,
    /// Where it is in flight.
    pub(crate) node: Option<NodeId>,
    /// Its edge is gone: nobody waits for the answer.
    pub(crate) orphan: bool,
    pub(crate) tries: u8,
    /// Grows with each attempt: an answer to an earlier one is void.
    pub(crate) attempt: u32,
}

/// All requests under way.
pub(crate) struct Requests {
    stream: Box<dyn Iterator<Item = Arrival> + Send>,
    pub(crate) coming: Option<Arrival>,
    slab: Vec<Request>,
    free: Vec<u32>,
    /// By edge, then by site.
    queues: Vec<VecDeque<u32>>,
    at_node: Vec<Vec<u32>>,
    sites: usize,
    queue_max: usize,
    /// What each edge told when it looked last, and when that was.
    told: Vec<u32>,
    told_ns: Vec<u64>,
    /// Sums of what live edges told.
    queued: Vec<u32>,
    mean_us: Vec<f64>,
    pub(crate) arrived: u64,
    pub(crate) ended: u64,
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("under_way", &self.under_way()).finish_non_exhaustive()
    }
}

impl Requests {
    pub(crate) fn new(
        options: &Options,
        mut stream: Box<dyn Iterator<Item = Arrival> + Send>,
    ) -> Self {
        let (edges, sites) = (usize::from(options.edges), options.sites.len());
        Self {
            coming: stream.next(),
            stream,
            slab: Vec::new(),
            free: Vec::new(),
            queues: vec![VecDeque::new(); edges * sites],
            at_node: vec![Vec::new(); options.nodes.len()],
            sites,
            queue_max: options.queue_max,
            told: vec![0; edges * sites],
            told_ns: vec![0; edges],
            queued: vec![0; sites],
            mean_us: vec![0.0; sites],
            arrived: 0,
            ended: 0,
        }
    }

    fn queue(&self, edge: u8, site: SiteId) -> usize {
        usize::from(edge) * self.sites + site.index()
    }

    /// Requests that have come and not ended.
    pub(crate) fn under_way(&self) -> u64 {
        self.arrived - self.ended
    }

    /// Requests that wait or are in flight, counted one by one; to be compared.
    pub(crate) fn counted(&self) -> u64 {
        let waiting: usize = self.queues.iter().map(VecDeque::len).sum();
        let in_flight: usize = self.at_node.iter().map(Vec::len).sum();
        (waiting + in_flight) as u64
    }

    /// Requests of a site that wait at one edge.
    pub(crate) fn waiting(&self, edge: u8, site: SiteId) -> usize {
        self.queues[self.queue(edge, site)].len()
    }

    /// Takes the next arrival off the stream.
    pub(crate) fn take(&mut self) -> Option<Arrival> {
        let next = self.stream.next();
        std::mem::replace(&mut self.coming, next)
    }

    /// A request comes to an edge. None if its queue is full.
    pub(crate) fn admit(&mut self, now_ns: u64, edge: u8, site: SiteId) -> Option<u32> {
        self.arrived += 1;
        let queue = self.queue(edge, site);
        if self.queues[queue].len() >= self.queue_max {
            self.ended += 1;
            return None;
        }
        let request = Request {
            arrived_ns: now_ns,
            started_ns: 0,
            site,
            edge,
            node: None,
            orphan: false,
            tries: 0,
            attempt: 0,
        };
        let id = match self.free.pop() {
            Some(id) => {
                let place = &mut self.slab[id as usize];
                let attempt = place.attempt + 1;
                *place = Request { attempt, ..request };
                id
            }
            None => {
                self.slab.push(request);
                u32::try_from(self.slab.len() - 1).expect("fewer than 2^32 requests under way")
            }
        };
        self.queues[queue].push_back(id);
        Some(id)
    }

    /// No edge is there.
    pub(crate) fn turn_away(&mut self) {
        (self.arrived, self.ended) = (self.arrived + 1, self.ended + 1);
    }

    /// The one that waits longest for a site at the edges that may dispatch.
    pub(crate) fn oldest(&self, site: SiteId, mut may: impl FnMut(u8) -> bool) -> Option<u8> {
        let edges = self.queues.len() / self.sites.max(1);
        let heads = (0..edges).filter_map(|edge| {
            let edge = u8::try_from(edge).ok()?;
            let head = *self.queues[self.queue(edge, site)].front()?;
            Some((self.slab[head as usize].arrived_ns, edge))
        });
        heads.filter(|&(_, edge)| may(edge)).min().map(|(_, edge)| edge)
    }

    /// Sends the first of a queue to a node; gives its number and attempt.
    pub(crate) fn dispatch(
        &mut self,
        now_ns: u64,
        edge: u8,
        site: SiteId,
        node: NodeId,
    ) -> (u32, u32) {
        let queue = self.queue(edge, site);
        let id = self.queues[queue].pop_front().expect("the queue was seen not empty");
        let request = &mut self.slab[id as usize];
        (request.node, request.started_ns) = (Some(node), now_ns);
        (request.tries, request.attempt) = (request.tries + 1, request.attempt + 1);
        self.at_node[node.index()].push(id);
        (id, request.attempt)
    }

    /// A node is done with an attempt; the request, unless it was taken away in between.
    pub(crate) fn served(&mut self, id: u32, attempt: u32, now_ns: u64) -> Option<Request> {
        let request = self.slab[id as usize];
        let node = request.node.filter(|_| request.attempt == attempt)?;
        self.at_node[node.index()].retain(|&other| other != id);
        self.drop_request(id);
        let took_us = (now_ns - request.started_ns) as f64 / 1e3;
        let mean = &mut self.mean_us[request.site.index()];
        *mean += if *mean == 0.0 { took_us } else { (took_us - *mean) * MEAN_WEIGHT };
        Some(request)
    }

    fn drop_request(&mut self, id: u32) {
        self.slab[id as usize].node = None;
        self.free.push(id);
        self.ended += 1;
    }

    /// A node died: what was in flight there waits again, in front; what was tried too often, or
    /// has no edge any more, is given back.
    pub(crate) fn node_died(&mut self, node: NodeId) -> (Vec<Request>, u64) {
        let ids = std::mem::take(&mut self.at_node[node.index()]);
        let (mut lost, mut retried) = (Vec::new(), 0);
        for id in ids.into_iter().rev() {
            let request = &mut self.slab[id as usize];
            request.node = None;
            request.attempt += 1;
            let request = *request;
            if request.orphan || request.tries >= TRIES_MAX {
                self.drop_request(id);
                lost.push(request);
            } else {
                let queue = self.queue(request.edge, request.site);
                self.queues[queue].push_front(id);
                retried += 1;
            }
        }
        (lost, retried)
    }

    /// An edge died: what waited there is lost with its clients' connections; what is in flight
    /// occupies its node to the end.
    pub(crate) fn edge_died(&mut self, edge: u8) -> Vec<Request> {
        let mut lost = Vec::new();
        for site in 0..self.sites {
            let queue = usize::from(edge) * self.sites + site;
            while let Some(id) = self.queues[queue].pop_front() {
                lost.push(self.slab[id as usize]);
                self.drop_request(id);
            }
        }
        for ids in &self.at_node {
            for &id in ids {
                let request = &mut self.slab[id as usize];
                request.orphan |= request.edge == edge;
            }
        }
        lost
    }

    /// An edge writes how many wait at it.
    pub(crate) fn tell(&mut self, now_ns: u64, edge: u8) {
        self.told_ns[usize::from(edge)] = now_ns;
        for site in 0..self.sites {
            let queue = usize::from(edge) * self.sites + site;
            self.told[queue] = u32::try_from(self.queues[queue].len()).unwrap_or(u32::MAX);
        }
    }

    /// Adds up what the edges told that looked within `lease_ns`.
    pub(crate) fn add_up(&mut self, now_ns: u64, lease_ns: u64) {
        self.queued.fill(0);
        for (edge, &told_ns) in self.told_ns.iter().enumerate() {
            if now_ns - told_ns < lease_ns {
                let told = &self.told[edge * self.sites..(edge + 1) * self.sites];
                self.queued.iter_mut().zip(told).for_each(|(sum, &told)| *sum += told);
            }
        }
    }

    /// The sum of a site, as added up last.
    pub(crate) fn queued(&self, site: SiteId) -> u32 {
        self.queued[site.index()]
    }

    /// The moving mean of a site's service times.
    pub(crate) fn mean_us(&self, site: SiteId) -> u32 {
        self.mean_us[site.index()].round() as u32
    }

    /// All that have not ended.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Request> {
        let waiting = self.queues.iter().flatten();
        waiting.chain(self.at_node.iter().flatten()).map(|&id| &self.slab[id as usize])
    }
}
