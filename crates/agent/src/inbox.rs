//! What the agent's main thread wakes up for: a ring by an edge, or a report of our own worker.
//!
//! Both change the same futex word in the record, since a thread can sleep on one word only. Our
//! own rings are counted under the same lock as the reports, so that what is left of the word are
//! the rings of edges: the sign that one of them watches.

use crate::supervisor::Report;
use remote_memory::Wake;
use shared_state::NodeRecord;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reports on their way to the main thread. Bounded by one exit and one check for each run.
pub(crate) struct Inbox {
    record: NodeRecord,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    reports: Vec<Report>,
    own_rings: u32,
    stop: bool,
    leave: bool,
}

/// What was taken out at once.
pub(crate) struct Taken {
    pub(crate) reports: Vec<Report>,
    /// The wake word before the reports were taken: the main thread sleeps while it stays.
    pub(crate) wake: u32,
    /// Rings of edges so far, modulo 2^32.
    pub(crate) edge_rings: u32,
    pub(crate) stop: bool,
    pub(crate) leave: bool,
}

impl Inbox {
    pub(crate) fn new(record: NodeRecord) -> Self {
        Self { record, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock; the values stay whole in any case.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a report; `loud` wakes the main thread for it, others wait for its next turn.
    pub(crate) fn push(&self, report: Report, loud: bool) {
        let mut inner = self.lock();
        inner.reports.push(report);
        if loud {
            self.ring(inner);
        }
    }

    /// Asks the main thread to end.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stop = true;
        self.ring(inner);
    }

    /// Asks the main thread to end and to leave everything else as it is.
    pub(crate) fn leave(&self) {
        let mut inner = self.lock();
        inner.leave = true;
        self.ring(inner);
    }

    fn ring(&self, mut inner: MutexGuard<'_, Inner>) {
        inner.own_rings = inner.own_rings.wrapping_add(1);
        self.record.ring();
        drop(inner);
        // The word lies in the record, so the kernel finds it.
        let _ = self.record.region().wake(NodeRecord::wake_index(), 1);
    }

    /// Takes everything out.
    pub(crate) fn take(&self) -> Taken {
        let mut inner = self.lock();
        let wake = self.record.wake_value();
        Taken {
            reports: std::mem::take(&mut inner.reports),
            wake,
            edge_rings: wake.wrapping_sub(inner.own_rings),
            stop: inner.stop,
            leave: inner.leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{News, Run};
    use pool_model::{NodeId, SiteId};
    use remote_memory::shm::OwnedRegion;
    use shared_state::words::Assign;
    use shared_state::{NODE_REGION_BYTES, NodeHeader};
    use std::sync::Arc;

    #[test]
    fn rings_of_edges_are_told_from_our_own() {
        let region = OwnedRegion::create("node-0", NODE_REGION_BYTES).unwrap();
        let header = NodeHeader { node: NodeId::MIN, max_in_flight: 1 };
        let record = NodeRecord::publish(Arc::new(region), header, Assign::FREE).unwrap();
        let inbox = Inbox::new(record.clone());
        let report =
            Report { site: SiteId::MIN, run: Run(1), news: News::Exited("ended".to_owned()) };
        let before = inbox.take();
        inbox.push(report.clone(), true);
        inbox.push(report, false);
        let ours = inbox.take();
        assert_eq!(ours.reports.len(), 2);
        assert_ne!(ours.wake, before.wake, "a sleeper wakes up");
        assert_eq!(ours.edge_rings, before.edge_rings, "nobody watches");
        record.ring();
        let rung = inbox.take();
        assert_ne!(rung.edge_rings, ours.edge_rings);
        assert!(rung.reports.is_empty() && !rung.stop);
        inbox.stop();
        assert!(inbox.take().stop);
    }
}
