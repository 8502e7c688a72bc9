//! A stand-in node: one capacity, shared by its servers of all sites, and its records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::record::{NodeRecord, SiteRecord, StubRecord};
use super::schedule::{Schedule, WORKERS_MAX};
use super::usage::Usage;
use crate::clock::{ThreadTask, WINDOW_NS, duration_ns, now_ns, window_of};

/// What a stand-in node can do.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Name of the node, sent as `X-Node`.
    pub name: String,
    /// Requests served at the same time, `W`.
    pub workers: u32,
    /// Time that one request takes, `t`. The capacity is `W / t` requests per second.
    pub service_time: Duration,
    /// Requests that may wait; more are answered with 503 at once.
    pub queue_max: usize,
    /// Length of a reply's body.
    pub body_bytes: usize,
}

impl NodeOptions {
    /// The node of the paper's figures: 4 workers, 2 ms, 2,000 requests per second.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            workers: 4,
            service_time: Duration::from_millis(2),
            // Far above any `max_in_flight`, far below what would hide a runaway sender.
            queue_max: 1_024,
            body_bytes: 1_024,
        }
    }

    /// `W / t`, requests per second.
    #[must_use]
    pub fn capacity_per_second(&self) -> f64 {
        f64::from(self.workers.clamp(1, WORKERS_MAX)) / self.service_time.as_secs_f64()
    }
}

/// What goes wrong on purpose, for tests. Counted, not random: "one in n" hits every n-th reply of
/// the node. Zero means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Every n-th reply is a 500.
    pub error_one_in: u64,
    /// Every n-th reply ends in the middle: half of the body, then the connection closes.
    pub truncate_one_in: u64,
    /// Every reply leaves this much later; no worker is kept busy by it.
    pub first_byte_delay: Duration,
}

/// How a reply is to be spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoil {
    Nothing,
    Error,
    Truncate,
}

/// The node's answer to an arriving request.
pub(super) enum Arrival {
    /// Reply at `reply_ns`.
    Accepted { request: InFlight, reply_ns: u64, spoil: Spoil, count: u64 },
    /// Reply 503 now.
    Refused,
}

/// One stand-in node. Shared by its listeners and by whoever reads its records.
pub struct StubNode {
    options: NodeOptions,
    core: Mutex<Core>,
}

struct Core {
    schedule: Schedule,
    faults: Faults,
    accepted: u64,
    served: u64,
    refused: u64,
    abandoned: u64,
    errors: u64,
    truncated: u64,
    in_flight: u32,
    peak_in_flight: u32,
    sites: Vec<SiteCore>,
}

struct SiteCore {
    site: String,
    served: u64,
    in_flight: u32,
    peak_in_flight: u32,
    usage: Usage,
}

impl SiteCore {
    fn named(site: &str) -> Self {
        Self {
            site: site.to_owned(),
            served: 0,
            in_flight: 0,
            peak_in_flight: 0,
            usage: Usage::default(),
        }
    }
}

impl StubNode {
    /// An idle node.
    #[must_use]
    pub fn new(options: NodeOptions) -> Arc<Self> {
        let service_ns = duration_ns(options.service_time);
        let core = Core {
            schedule: Schedule::new(options.workers, service_ns, options.queue_max),
            faults: Faults::default(),
            accepted: 0,
            served: 0,
            refused: 0,
            abandoned: 0,
            errors: 0,
            truncated: 0,
            in_flight: 0,
            peak_in_flight: 0,
            sites: Vec::new(),
        };
        Arc::new(Self { options, core: Mutex::new(core) })
    }

    /// Name, capacity and so on, as given.
    #[must_use]
    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// From the next request on, replies go wrong as `faults` says.
    pub fn set_faults(&self, faults: Faults) {
        self.core().faults = faults;
    }

    /// Counters and peaks so far, without the windows.
    #[must_use]
    pub fn record(&self) -> NodeRecord {
        self.record_since(u64::MAX)
    }

    /// Counters and peaks so far, and the finished windows from number `since_window` on, as far
    /// back as they are kept.
    #[must_use]
    pub fn record_since(&self, since_window: u64) -> NodeRecord {
        let core = self.core();
        let present = window_of(now_ns());
        let oldest = core.sites.iter().filter_map(|site| site.usage.first()).min();
        let from = since_window.max(oldest.unwrap_or(present)).min(present);
        let busy_of = |site: &SiteCore| -> Vec<u64> {
            (from..present).map(|window| site.usage.busy_ns(window)).collect()
        };
        let sites: Vec<SiteRecord> = core
            .sites
            .iter()
            .map(|site| SiteRecord {
                site: site.site.clone(),
                served: site.served,
                in_flight: site.in_flight,
                peak_in_flight: site.peak_in_flight,
                busy_ns: busy_of(site),
            })
            .collect();
        let workers = self.options.workers.clamp(1, WORKERS_MAX);
        NodeRecord {
            node: self.options.name.clone(),
            workers,
            service_us: self.options.service_time.as_secs_f64() * 1e6,
            served: core.served,
            refused: core.refused,
            abandoned: core.abandoned,
            errors: core.errors,
            truncated: core.truncated,
            in_flight: core.in_flight,
            peak_in_flight: core.peak_in_flight,
            first_window: from,
            window_capacity_ns: u64::from(workers) * WINDOW_NS,
            sites,
        }
    }

    /// Forgets counters, peaks and windows. Requests in flight stay booked and count anew.
    pub fn reset(&self) {
        let mut core = self.core();
        core.served = 0;
        core.refused = 0;
        core.abandoned = 0;
        core.errors = 0;
        core.truncated = 0;
        core.peak_in_flight = core.in_flight;
        for site in &mut core.sites {
            site.served = 0;
            site.peak_in_flight = site.in_flight;
            site.usage = Usage::default();
        }
    }

    /// The place of a site in this node's records, made when it is new.
    pub(super) fn site_place(&self, site: &str) -> usize {
        let mut core = self.core();
        if let Some(place) = core.sites.iter().position(|known| known.site == site) {
            return place;
        }
        core.sites.push(SiteCore::named(site));
        core.sites.len() - 1
    }

    /// Books a request of the site at `place` that arrived at `now_ns`.
    pub(super) fn arrive(self: &Arc<Self>, place: usize, now_ns: u64) -> Arrival {
        let mut core = self.core();
        let Ok(booking) = core.schedule.book(now_ns) else {
            core.refused += 1;
            return Arrival::Refused;
        };
        core.accepted += 1;
        core.in_flight += 1;
        core.peak_in_flight = core.peak_in_flight.max(core.in_flight);
        let count = core.accepted;
        let faults = core.faults;
        let site = &mut core.sites[place];
        site.usage.add(booking.start_ns, booking.done_ns);
        site.in_flight += 1;
        site.peak_in_flight = site.peak_in_flight.max(site.in_flight);
        let hits = |one_in: u64| one_in != 0 && count.is_multiple_of(one_in);
        let spoil = if hits(faults.truncate_one_in) {
            Spoil::Truncate
        } else if hits(faults.error_one_in) {
            Spoil::Error
        } else {
            Spoil::Nothing
        };
        let request = InFlight { node: Arc::clone(self), place, finished: false };
        let reply_ns = booking.done_ns.saturating_add(duration_ns(faults.first_byte_delay));
        Arrival::Accepted { request, reply_ns, spoil, count }
    }

    // A panic while the lock is held is impossible short of a bug in this file, and the counters
    // stay usable even then.
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StubRecord {
    /// Records of `nodes` and of the thread that serves them.
    pub(super) fn of(nodes: &[Arc<StubNode>], task: ThreadTask, since_window: u64) -> Self {
        let time = task.time();
        Self {
            window_ns: WINDOW_NS,
            cpu_ns: time.run_ns,
            cpu_wait_ns: time.wait_ns,
            nodes: nodes.iter().map(|node| node.record_since(since_window)).collect(),
        }
    }
}

/// A request between its arrival and its reply. Dropping it unfinished means that the client went
/// away; the worker's time stays booked, as it would be spent in a real server.
pub(super) struct InFlight {
    node: Arc<StubNode>,
    place: usize,
    finished: bool,
}

impl InFlight {
    /// The reply is handed over for sending.
    pub(super) fn finish(mut self, spoil: Spoil) {
        self.finished = true;
        let mut core = self.node.core();
        match spoil {
            Spoil::Nothing => {
                core.served += 1;
                core.sites[self.place].served += 1;
            }
            Spoil::Error => core.errors += 1,
            Spoil::Truncate => core.truncated += 1,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut core = self.node.core();
        core.in_flight = core.in_flight.saturating_sub(1);
        if !self.finished {
            core.abandoned += 1;
        }
        let site = &mut core.sites[self.place];
        site.in_flight = site.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(queue_max: usize) -> Arc<StubNode> {
        StubNode::new(NodeOptions { queue_max, ..NodeOptions::named("n0") })
    }

    fn accept(node: &Arc<StubNode>, place: usize, now: u64) -> (InFlight, u64, Spoil) {
        match node.arrive(place, now) {
            Arrival::Accepted { request, reply_ns, spoil, .. } => (request, reply_ns, spoil),
            Arrival::Refused => panic!("there is room"),
        }
    }

    #[test]
    fn the_capacity_is_the_nodes_and_peaks_are_the_sites() {
        let node = node(8);
        let (red, blue) = (node.site_place("red"), node.site_place("blue"));
        assert_eq!(node.site_place("red"), red);
        let start = now_ns();
        let mut open = Vec::new();
        let mut replies = Vec::new();
        for step in 0..8 {
            let place = if step % 2 == 0 { red } else { blue };
            let (request, reply_ns, _) = accept(&node, place, start);
            open.push(request);
            replies.push(reply_ns);
        }
        // Four workers for both sites: the second four wait for the first.
        assert!(replies[..4].iter().all(|&at| at == start + 2_000_000));
        assert!(replies[4..].iter().all(|&at| at == start + 4_000_000));
        let record = node.record();
        assert_eq!((record.in_flight, record.peak_in_flight), (8, 8));
        assert_eq!(record.sites[red].peak_in_flight, 4);
        open.into_iter().for_each(|request| request.finish(Spoil::Nothing));
        let record = node.record();
        assert_eq!((record.served, record.in_flight, record.abandoned), (8, 0, 0));
        assert_eq!(record.sites[blue].served, 4);
    }

    #[test]
    fn refused_abandoned_and_spoiled_requests_are_counted_apart() {
        let node = node(0);
        node.set_faults(Faults { error_one_in: 3, truncate_one_in: 4, ..Faults::default() });
        let place = node.site_place("red");
        let mut spoils = Vec::new();
        for _ in 0..4 {
            let (request, _, spoil) = accept(&node, place, 0);
            spoils.push(spoil);
            request.finish(spoil);
        }
        assert_eq!(spoils, [Spoil::Nothing, Spoil::Nothing, Spoil::Error, Spoil::Truncate]);
        assert!(matches!(node.arrive(place, 0), Arrival::Refused));
        drop(accept(&node, place, 2_000_000));
        let record = node.record();
        assert_eq!((record.served, record.errors, record.truncated), (2, 1, 1));
        assert_eq!((record.refused, record.abandoned), (1, 1));
        node.reset();
        let record = node.record();
        assert_eq!((record.served, record.refused, record.abandoned), (0, 0, 0));
    }

    #[test]
    fn a_delayed_first_byte_keeps_no_worker_busy() {
        let node = node(0);
        node.set_faults(Faults { first_byte_delay: Duration::from_millis(5), ..Faults::default() });
        let place = node.site_place("red");
        let (_request, reply_ns, _) = accept(&node, place, 0);
        assert_eq!(reply_ns, 7_000_000);
        for _ in 0..3 {
            accept(&node, place, 0);
        }
        assert!(matches!(node.arrive(place, 1_999_999), Arrival::Refused));
        accept(&node, place, 2_000_000);
    }
}
