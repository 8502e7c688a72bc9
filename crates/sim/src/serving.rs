//! Single requests on their way: to an edge, into its queue, to a node, and back.
//!
//! An edge sends a request to the node with the fewest in flight of those whose own word says that
//! they take the site's requests now, as the real one does where memory is mapped. Of several
//! edges the one whose request waits longest goes first; real edges learn of room at another's
//! nodes with their next look only.

use crate::agenda::Due;
use crate::edge::Doing;
use crate::engine::{Simulation, Source};
use crate::history::Record;
use crate::memory::NodeLife;
use crate::options::ServiceTimes;
use crate::requests::{Ending, Request};
use policy::choose::{Balance, ServerLoad};
use pool_model::{NodeId, SiteId};

impl Simulation {
    pub(crate) fn plan_arrival(&mut self, at_ns: Option<u64>) {
        if let Some(at_ns) = at_ns.filter(|&at_ns| at_ns < self.options.duration_ns) {
            self.agenda.plan(at_ns.max(self.now_ns), Due::Arrival);
        }
    }

    /// The next request comes.
    pub(crate) fn arrive(&mut self) {
        let Source::Requests(requests) = &mut self.source else { return };
        let Some(arrival) = requests.take() else { return };
        let next_ns = requests.coming.map(|next| next.at_ns);
        self.plan_arrival(next_ns);
        let site = arrival.site;
        if site.index() >= self.options.sites.len() {
            return;
        }
        self.totals.sites[site.index()].arrived += 1.0;
        self.totals.window(site, self.now_ns).arrived += 1.0;
        let first = self.service.below(u64::from(self.options.edges));
        // Clients whose edge is gone find another.
        let edges = u64::from(self.options.edges);
        let live = (0..edges)
            .map(|step| ((first + step) % edges) as u8)
            .find(|&edge| !matches!(self.edges[usize::from(edge)].doing, Doing::Crashed));
        let Source::Requests(requests) = &mut self.source else { return };
        let Some(edge) = live else {
            requests.turn_away();
            return self.ended(site, self.now_ns, Ending::Refused);
        };
        if requests.admit(self.now_ns, edge, site).is_none() {
            return self.ended(site, self.now_ns, Ending::Refused);
        }
        self.pump(site);
    }

    /// Sends what waits for a site, as far as there is room.
    pub(crate) fn pump(&mut self, site: SiteId) {
        if site.index() >= self.options.sites.len() {
            return;
        }
        while let Some(edge) = self.next_edge(site) {
            let Some(node) = self.choose(site) else { return };
            self.dispatch(edge, site, node);
        }
    }

    /// An edge that was stopped goes on with what waits at it.
    pub(crate) fn pump_edge(&mut self, number: u8) {
        for index in 0..self.options.sites.len() {
            let Ok(site) = SiteId::from_index(index) else { break };
            let Source::Requests(requests) = &self.source else { return };
            if requests.waiting(number, site) > 0 {
                self.pump(site);
            }
        }
    }

    fn next_edge(&self, site: SiteId) -> Option<u8> {
        let Source::Requests(requests) = &self.source else { return None };
        requests.oldest(site, |edge| {
            let edge = &self.edges[usize::from(edge)];
            edge.stopped_until_ns <= self.now_ns && !matches!(edge.doing, Doing::Crashed)
        })
    }

    /// The node for a site's next request, if any has room.
    fn choose(&mut self, site: SiteId) -> Option<NodeId> {
        let members = self.memory.members(site);
        let loads: &mut Vec<ServerLoad> = &mut self.loads;
        loads.clear();
        loads.extend(members.iter().map(|&node| ServerLoad {
            in_flight: self.memory.load(node),
            max_in_flight: self.options.nodes[node.index()].max_in_flight,
            open: self.memory.life(node) != NodeLife::Down,
        }));
        self.turn += 1;
        let place = Balance::LeastInFlight.choose(loads, self.turn, 0)?;
        members.get(place).copied()
    }

    fn dispatch(&mut self, edge: u8, site: SiteId, node: NodeId) {
        let Source::Requests(requests) = &mut self.source else { return };
        let (request, attempt) = requests.dispatch(self.now_ns, edge, site, node);
        self.memory.set_load(node, self.memory.load(node) + 1);
        let spec = &self.options.sites[site.index()];
        let fitness = spec.terms.fitness_pct(self.options.nodes[node.index()].traits);
        // A node that cannot serve the site at all is as slow as one of a hundredth: policies
        // never give it, but settings may say so of where it starts.
        let usual_ns = spec.service_ns as f64 * 100.0 / f64::from(fitness.max(1));
        let takes_ns = match self.options.service_times {
            ServiceTimes::Fixed => usual_ns,
            ServiceTimes::Exponential => usual_ns * self.service.exponential(),
        };
        let due_ns = self.now_ns + (takes_ns as u64).max(1);
        self.agenda.plan(due_ns, Due::Served { request, attempt });
    }

    /// A node is done with a request.
    pub(crate) fn serve(&mut self, request: u32, attempt: u32) {
        let Source::Requests(requests) = &mut self.source else { return };
        let Some(done) = requests.served(request, attempt, self.now_ns) else { return };
        let Some(node) = done.node else { return };
        self.memory.set_load(node, self.memory.load(node).saturating_sub(1));
        let ending = if done.orphan { Ending::Failed } else { Ending::Served };
        self.ended(done.site, done.arrived_ns, ending);
        // Its place is free for whom it serves now.
        if let Some(site) = self.memory.site(node) {
            self.pump(site);
        }
    }

    /// A request has its end.
    fn ended(&mut self, site: SiteId, arrived_ns: u64, ending: Ending) {
        let took_ns = self.now_ns - arrived_ns;
        let record = Record::Ended { site: site.get(), how: ending as u8, took_ns };
        self.history.add(self.now_ns, record);
        let is_slow =
            ending != Ending::Served || took_ns > self.options.sites[site.index()].slow_ns;
        self.totals.window(site, arrived_ns).slow += f64::from(u8::from(is_slow));
        let totals = &mut self.totals.sites[site.index()];
        totals.slow += f64::from(u8::from(is_slow));
        match ending {
            Ending::Served => {
                totals.served += 1.0;
                totals.latency.record_ns(took_ns);
                self.totals.window(site, self.now_ns).served += 1.0;
            }
            Ending::Refused => totals.refused += 1.0,
            Ending::Failed => totals.failed += 1.0,
        }
    }

    /// A node is gone, and what was in flight there.
    pub(crate) fn lose_node(&mut self, node: NodeId) {
        let Source::Requests(requests) = &mut self.source else { return };
        let (lost, retried) = requests.node_died(node);
        self.memory.set_load(node, 0);
        let site = self.memory.site(node);
        if let Some(site) = site.filter(|site| site.index() < self.options.sites.len()) {
            self.totals.sites[site.index()].retried += retried as f64;
        }
        self.fail(&lost);
        for index in 0..self.options.sites.len() {
            if let Ok(site) = SiteId::from_index(index) {
                self.pump(site);
            }
        }
    }

    /// An edge is gone, and the clients that were connected to it.
    pub(crate) fn lose_edge(&mut self, number: u8) {
        let Source::Requests(requests) = &mut self.source else { return };
        let lost = requests.edge_died(number);
        self.fail(&lost);
    }

    fn fail(&mut self, lost: &[Request]) {
        for request in lost {
            self.ended(request.site, request.arrived_ns, Ending::Failed);
        }
    }

    /// What has not ended when the run does: told, and slow.
    pub(crate) fn count_left(&mut self) {
        match &self.source {
            Source::Requests(requests) => {
                for request in requests.left() {
                    let totals = &mut self.totals.sites[request.site.index()];
                    totals.left += 1.0;
                    totals.slow += 1.0;
                    self.totals.window(request.site, request.arrived_ns).slow += 1.0;
                }
            }
            Source::Rates(rates) => {
                for (index, totals) in self.totals.sites.iter_mut().enumerate() {
                    totals.left = SiteId::from_index(index).map_or(0.0, |site| rates.waiting(site));
                }
            }
        }
    }
}
