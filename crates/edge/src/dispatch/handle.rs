//! The shell around the core: waiting, time-outs, permits.

use super::core::{Core, DispatchOptions, Grant, Outcome, SiteRules, Waiter};
use super::counts::{ClassCounts, SiteCounts};
use super::health::HealthOptions;
use crate::face::{Ask, Dispatcher, Permit, Refusal, Verdict};
use moves::looper::{FirstDispatch, Host, NodeSeen, SiteSeen, monotonic};
use pool_model::{NodeId, SiteId};
use shared_state::slot::{NodeSlot, SlotTaken};
use shared_state::words::{Assign, Lease};
use shared_state::{EdgeDemand, EdgeService, NodeRecord};
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// The dispatcher of one edge: a handle that its threads and its look loop share.
#[derive(Clone)]
pub struct Dispatch {
    shared: Arc<Shared>,
}

struct Shared {
    core: Mutex<Core<Waits>>,
    options: DispatchOptions,
    looker: OnceLock<Thread>,
    looker_sleeps: AtomicBool,
}

/// The sending half of somebody's wait.
struct Waits(oneshot::Sender<Result<NodePermit, Refusal>>);

impl Waiter for Waits {
    fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// A request in flight at a server, until it is dropped.
pub struct NodePermit {
    shared: Arc<Shared>,
    grant: Grant,
    answer: Cell<Answer>,
}

/// Whether a server has answered: then the time that it took counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    None,
    /// To be reported when the permit goes.
    Due,
    Reported,
}

impl Dispatch {
    /// A dispatcher without nodes.
    #[must_use]
    pub fn new(options: DispatchOptions) -> Self {
        let core = Mutex::new(Core::new(&options));
        let shared = Shared {
            core,
            options,
            looker: OnceLock::new(),
            looker_sleeps: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Serves the same sites by other rules from the next request on.
    pub fn update(&self, sites: &[SiteRules], health: HealthOptions) {
        self.shared.lock().set_rules(sites, health);
    }

    /// The record of a node that is in use.
    #[must_use]
    pub fn record(&self, node: NodeId) -> Option<NodeRecord> {
        self.shared.lock().record(node).cloned()
    }

    /// Requests that wait and requests in flight, over all sites.
    #[must_use]
    pub fn totals(&self) -> (usize, u64) {
        self.shared.lock().totals()
    }

    /// What was counted for each site, by its index.
    #[must_use]
    pub fn counts(&self) -> Vec<SiteCounts> {
        self.shared.lock().counts(monotonic())
    }

    /// What was counted for each admission class, by the site's index; empty without classes.
    #[must_use]
    pub fn class_counts(&self) -> Vec<Vec<ClassCounts>> {
        self.shared.lock().class_counts()
    }
}

impl Host for Dispatch {
    fn looker(&mut self, thread: Thread) {
        let _ = self.shared.looker.set(thread);
    }

    fn sleeps(&mut self, sleeps: bool) {
        self.shared.looker_sleeps.store(sleeps, Ordering::SeqCst);
    }

    fn is_busy(&mut self) -> bool {
        let (queued, in_flight) = self.totals();
        queued > 0 || in_flight > 0
    }

    fn demand(&mut self, out: &mut Vec<EdgeDemand>) {
        out.clear();
        out.extend_from_slice(self.shared.lock().demand());
    }

    fn service(&mut self, now: Duration, out: &mut Vec<EdgeService>) {
        self.shared.lock().service(now, out);
    }

    fn is_failing(&mut self, node: NodeId) -> bool {
        self.shared.lock().is_failing(node, monotonic())
    }

    fn attached(&mut self, record: NodeRecord, expected: u64) -> Result<(), SlotTaken> {
        let options = &self.shared.options;
        let lease = Lease { incarnation: options.incarnation, beat: 1 };
        let slot = NodeSlot::take(record, options.edge, expected, lease)?;
        self.shared.lock().attach(slot);
        Ok(())
    }

    fn looked(&mut self, nodes: &[Option<NodeSeen>], sites: &[SiteSeen]) {
        let now = monotonic();
        self.shared.change(|core, out| core.looked(nodes, sites, now, out));
    }

    fn moved(&mut self, node: NodeId, assign: Assign, limit: u32) {
        let now = monotonic();
        self.shared.change(|core, out| core.moved(node, assign, limit, now, out));
    }

    fn first_dispatches(&mut self) -> Vec<FirstDispatch> {
        self.shared.lock().take_first()
    }
}

/// Tells those who waited in vain.
fn tell(shed: Vec<(Waits, Refusal)>) {
    for (waiter, refusal) in shed {
        // It may have stopped waiting.
        drop(waiter.0.send(Err(refusal)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core<Waits>> {
        // A panic in the core is a broken invariant of one call; the counts lie in shared memory.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the core, then, without its lock, wakes whoever was let go.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Core<Waits>, &mut Vec<(Waits, Grant)>)) {
        let mut out = Vec::new();
        let shed = {
            let mut core = self.lock();
            change(&mut core, &mut out);
            core.take_shed()
        };
        tell(shed);
        for (waiter, grant) in out {
            let permit = NodePermit::new(self, grant);
            // Whoever stopped waiting hands the permit back by dropping it.
            drop(waiter.0.send(Ok(permit)));
        }
    }

    fn wake_looker(&self) {
        if self.looker_sleeps.swap(false, Ordering::SeqCst)
            && let Some(looker) = self.looker.get()
        {
            looker.unpark();
        }
    }
}

impl Dispatcher for Dispatch {
    type Permit = NodePermit;

    async fn acquire(&self, site: SiteId, ask: Ask<'_>) -> Result<NodePermit, Refusal> {
        let mut receiver = None;
        let (outcome, shed) = {
            let mut core = self.shared.lock();
            let outcome = core.request(site, ask, monotonic(), || {
                let (sender, waits) = oneshot::channel();
                receiver = Some(waits);
                Waits(sender)
            });
            (outcome, core.take_shed())
        };
        tell(shed);
        match (outcome, receiver) {
            (Outcome::Granted(grant), _) => Ok(NodePermit::new(&self.shared, grant)),
            (Outcome::Queued { .. }, Some(waits)) => {
                self.shared.wake_looker();
                let limit = self.shared.lock().queue_timeout(site).unwrap_or_default();
                match tokio::time::timeout(limit, waits).await {
                    Ok(Ok(decided)) => decided,
                    Ok(Err(_)) => Err(Refusal::Draining),
                    Err(_) => Err(Refusal::QueueTimeout),
                }
            }
            (Outcome::Refused(refusal), _) => Err(refusal),
            (Outcome::Queued { .. }, None) => Err(Refusal::NoServer),
        }
    }

    fn has_left(&self, site: SiteId, node: NodeId) -> bool {
        self.shared.lock().has_left(site, node)
    }
}

impl NodePermit {
    fn new(shared: &Arc<Shared>, grant: Grant) -> Self {
        Self { shared: Arc::clone(shared), grant, answer: Cell::new(Answer::None) }
    }
}

impl Permit for NodePermit {
    fn node(&self) -> NodeId {
        self.grant.node
    }

    fn address(&self) -> SocketAddr {
        self.grant.address
    }

    fn report(&self, verdict: Verdict) {
        if verdict == Verdict::Answered {
            self.answer.set(Answer::Reported);
        }
        let now = monotonic();
        if self.shared.lock().report(&self.grant, verdict, now) {
            let (node, address) = (self.grant.node.get(), self.grant.address);
            tracing::warn!(node, %address, ?verdict, "server ejected");
        }
    }

    fn answered(self) {
        self.answer.set(Answer::Due);
    }
}

impl Drop for NodePermit {
    fn drop(&mut self) {
        let (shared, grant) = (Arc::clone(&self.shared), self.grant);
        let answer = self.answer.get();
        shared.change(|core, out| {
            let now = monotonic();
            if answer == Answer::Due {
                core.report(&grant, Verdict::Answered, now);
            }
            if answer != Answer::None {
                core.served(&grant, now);
            }
            core.leave(&grant, now, out);
        });
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
