//! What the edges do, one step at a time: look, decide, run a machine, sleep.

use crate::agenda::Due;
use crate::edge::{Demand, Doing, Edge};
use crate::engine::{Simulation, Source, name};
use crate::history::Record;
use crate::memory::NodeLife;
use moves::protocol::{Look, Looked, Machine, Next, Op, Reply, Task, Word};
use moves::{Input, Work};
use pool_model::{PoolView, SiteId};
use shared_state::words::Assign;

/// Tasks and looks that one look may lead to: repairs of each site, tries, and some to spare.
const WORKS_MAX: usize = 4_096;

impl Demand for Source {
    fn queued(&self, site: SiteId) -> u32 {
        match self {
            Self::Requests(requests) => requests.queued(site),
            Self::Rates(rates) => rates.waiting(site).ceil() as u32,
        }
    }

    fn service_us(&self, site: SiteId) -> u32 {
        match self {
            Self::Requests(requests) => requests.mean_us(site),
            Self::Rates(rates) => rates.service_us(site),
        }
    }
}

impl Simulation {
    /// The next step of an edge.
    pub(crate) fn step_edge(&mut self, number: u8, life: u32) {
        let edge = &mut self.edges[usize::from(number)];
        if edge.life != life {
            return;
        }
        if self.now_ns < edge.stopped_until_ns {
            return self.agenda.plan(edge.stopped_until_ns, Due::Edge { edge: number, life });
        }
        match std::mem::replace(&mut edge.doing, Doing::Asleep) {
            Doing::Asleep => self.begin_look(number),
            Doing::Looking(look) => self.look_on(number, look),
            Doing::Waiting { task, flight } => self.go_on(number, task, flight),
            Doing::Crashed => edge.doing = Doing::Crashed,
        }
    }

    fn begin_look(&mut self, number: u8) {
        let edge = &mut self.edges[usize::from(number)];
        edge.look_ns = self.now_ns;
        if let Source::Requests(requests) = &mut self.source {
            requests.tell(self.now_ns, number);
        }
        self.pump_edge(number);
        self.look(number);
    }

    fn look(&mut self, number: u8) {
        let edge = &mut self.edges[usize::from(number)];
        edge.doing = Doing::Looking(Look::new(&edge.seen));
        self.step_after(number, self.options.transport.way_ns.0);
    }

    fn step_after(&mut self, number: u8, after_ns: u64) {
        let life = self.edges[usize::from(number)].life;
        self.agenda.plan(self.now_ns + after_ns, Due::Edge { edge: number, life });
    }

    /// Reads the next words of a look. Words whose answers are lost or late cannot be read.
    fn look_on(&mut self, number: u8, mut look: Look) {
        let trip = self.weather.trip(&self.options, &mut self.random);
        let (least, most) = self.options.transport.words_at_once;
        let words = self.random.between(u64::from(least), u64::from(most));
        let cuts = self.weather.cuts(number);
        let is_lost = !trip.answered;
        self.counts.replies_lost += u64::from(is_lost && trip.lands_ns.is_some());
        self.counts.requests_lost += u64::from(trip.lands_ns.is_none());
        let blind = |word: Word| match word {
            Word::Assign(node) => is_lost || cuts[node.index()] > 0,
            _ => is_lost,
        };
        let edge = &mut self.edges[usize::from(number)];
        let words = u32::try_from(words).unwrap_or(u32::MAX);
        if !edge.read_on(&mut look, &self.memory, words, blind) {
            edge.doing = Doing::Looking(look);
            return self.step_after(number, trip.told_ns);
        }
        match look.next() {
            Next::Op(_) | Next::Done(Looked::HomeLost) => self.sleep(number),
            Next::Done(Looked::Complete) => self.looked(number),
        }
    }

    fn looked(&mut self, number: u8) {
        self.looks += 1;
        self.history.add(self.now_ns, Record::Look { edge: number });
        if let Source::Requests(requests) = &mut self.source {
            requests.add_up(self.now_ns, self.options.slot_lease_ns);
        }
        let nonce = self.nonce();
        let edge = &mut self.edges[usize::from(number)];
        edge.judge(self.now_ns, &self.options, &self.memory, &self.source);
        let op_time_ns = self.options.transport.way_ns.1 * 2;
        let Edge { core, seen, view, .. } = edge;
        let (now_ns, policy, is_unready) = (self.now_ns, &*self.policy, &|_, _| false);
        core.looked(&Input { now_ns, seen, view, policy, is_unready, op_time_ns, nonce }, |_| true);
        self.note_loads(number);
        self.decide(number);
    }

    /// A site is loaded as long as every look finds it so: what an edge decides on is what it saw.
    fn note_loads(&mut self, number: u8) {
        if self.options.watch_every_ns.is_none() {
            return;
        }
        for site in &self.edges[usize::from(number)].view.sites {
            let is_loaded = site.load() > self.options.high_load;
            self.monitor.loaded(self.now_ns, site.id, is_loaded);
        }
    }

    fn nonce(&mut self) -> u32 {
        self.random.draw() as u32 & 0xfff
    }

    /// Asks the core what to do until something must be waited for.
    fn decide(&mut self, number: u8) {
        for _ in 0..WORKS_MAX {
            let nonce = self.nonce();
            let op_time_ns = self.options.transport.way_ns.1 * 2;
            let Edge { core, seen, view, .. } = &mut self.edges[usize::from(number)];
            let (now_ns, policy, is_unready) = (self.now_ns, &*self.policy, &|_, _| false);
            let input = Input { now_ns, seen, view, policy, is_unready, op_time_ns, nonce };
            match core.next(&input) {
                Work::Run(task) => match task.next() {
                    Next::Op(op) => return self.send(number, task, op),
                    Next::Done(outcome) => core.ended(now_ns, &outcome),
                },
                Work::LookAgain => return self.look(number),
                Work::Rest => return self.sleep(number),
            }
        }
        self.monitor.violated(self.now_ns, format!("edge {number} does not come to rest"));
        self.sleep(number);
    }

    /// Until the next look is due.
    fn sleep(&mut self, number: u8) {
        let every_ns = self.options.timing.look_every_ns;
        // Clocks of edges do not keep step.
        let jitter_ns = self.random.below(every_ns / 50 + 1);
        let edge = &mut self.edges[usize::from(number)];
        edge.doing = Doing::Asleep;
        let due_ns = (edge.look_ns + every_ns).max(self.now_ns) + jitter_ns;
        self.step_after(number, due_ns - self.now_ns);
    }

    fn send(&mut self, number: u8, task: Task, op: Op) {
        let trip = self.weather.trip(&self.options, &mut self.random);
        let (Op::Read(word) | Op::CompareAndSwap { word, .. }) = op;
        let edge = &mut self.edges[usize::from(number)];
        let flight = self.flights.send(op, number, edge.incarnation_of(word), &trip);
        edge.doing = Doing::Waiting { task, flight };
        match trip.lands_ns {
            Some(lands_ns) => self.agenda.plan(self.now_ns + lands_ns, Due::Land { flight }),
            None => self.counts.requests_lost += 1,
        }
        self.counts.replies_lost += u64::from(trip.lands_ns.is_some() && !trip.answered);
        self.step_after(number, trip.told_ns);
    }

    /// An operation takes place.
    pub(crate) fn land(&mut self, flight: u32) {
        let what = self.flights.landing(flight);
        let is_late = !what.awaited;
        let reply = match what.op {
            Op::Read(word) if self.is_there(word, &what) => Reply::Value(self.memory.read(word)),
            Op::CompareAndSwap { word, expected, new } if self.is_there(word, &what) => {
                let found = self.memory.swap(word, expected, new);
                let swaps = found == expected;
                if swaps {
                    self.swapped(what.edge, word, expected, new);
                } else if is_late {
                    let record = Record::MissedLate { word: name(word), edge: what.edge };
                    self.history.add(self.now_ns, record);
                }
                self.counts.late_landed += u64::from(is_late && swaps);
                self.counts.late_missed += u64::from(is_late && !swaps);
                Reply::Swapped { found }
            }
            Op::CompareAndSwap { .. } => {
                self.counts.late_missed += u64::from(is_late);
                Reply::Unreachable
            }
            Op::Read(_) => Reply::Unreachable,
        };
        self.flights.landed(flight, reply);
    }

    /// Whether the region that an operation is for still is, and its edge reaches it.
    fn is_there(&self, word: Word, what: &crate::transport::Flight) -> bool {
        let Word::Assign(node) = word else { return true };
        self.memory.life(node) != NodeLife::Down
            && self.memory.incarnation(node) == what.incarnation
            && self.weather.cuts(what.edge)[node.index()] == 0
    }

    /// A task goes on with the answer to its operation.
    fn go_on(&mut self, number: u8, mut task: Task, flight: u32) {
        let op = self.flights.landing(flight).op;
        let reply = self.flights.take(flight);
        task.reply(reply);
        if self.dies_here(number, &task, &op, &reply) {
            return;
        }
        match task.next() {
            Next::Op(op) => self.send(number, task, op),
            Next::Done(outcome) => {
                self.edges[usize::from(number)].core.ended(self.now_ns, &outcome);
                self.decide(number);
            }
        }
    }

    /// The pool as it is at this instant, without anybody's delay.
    pub(crate) fn true_view(&self) -> PoolView {
        let mut view = PoolView::default();
        for (index, spec) in self.options.sites.iter().enumerate() {
            let Ok(id) = SiteId::from_index(index) else { break };
            let queued = match &self.source {
                Source::Requests(requests) => {
                    let at = |edge| requests.waiting(edge, id);
                    let waiting: usize = (0..self.options.edges).map(at).sum();
                    u32::try_from(waiting).unwrap_or(u32::MAX)
                }
                Source::Rates(rates) => rates.waiting(id).ceil() as u32,
            };
            let service_us = self.source.service_us(id);
            let (terms, in_flight, capacity, nodes) = (spec.terms, 0, 0, 0);
            view.sites.push(pool_model::SiteView {
                id,
                terms,
                queued,
                in_flight,
                capacity,
                nodes,
                service_us,
            });
        }
        for (index, spec) in self.options.nodes.iter().enumerate() {
            let Some(id) = crate::memory::node_at(index) else { break };
            if self.memory.life(id) != NodeLife::Up {
                continue;
            }
            let word = self.memory.read(Word::Assign(id));
            view.nodes.push(pool_model::NodeView {
                id,
                site: Assign::unpack(word).and_then(|assign| assign.site),
                in_flight: self.memory.load(id),
                max_in_flight: spec.max_in_flight,
                movable: true,
                traits: spec.traits,
            });
        }
        view.sum_up();
        view
    }
}
