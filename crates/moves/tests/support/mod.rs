//! What tests of the look loop share: a host that only pretends to have requests.

use moves::looper::{
    Answer, Command, Commander, FirstDispatch, Host, LoopStatus, NodeSeen, SiteSeen, monotonic,
};
use pool_model::{EdgeId, NodeId, SiteId};
use shared_state::slot::{NodeSlot, SlotTaken};
use shared_state::words::{Assign, Lease};
use shared_state::{EdgeDemand, EdgeService, NodeRecord};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

pub(crate) fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

/// Says that it has what the test wants; keeps what it was told.
#[derive(Clone, Default)]
pub(crate) struct Pretend {
    pub(crate) queued: Arc<[AtomicU64; 2]>,
    pub(crate) looker: Arc<Mutex<Option<Thread>>>,
    pub(crate) slots: Arc<Mutex<Vec<NodeSlot>>>,
    pub(crate) edge: u8,
    pub(crate) moved: Arc<Mutex<Vec<NodeId>>>,
    pub(crate) first: Vec<FirstDispatch>,
    /// What it measured of the first site.
    pub(crate) service: Arc<Mutex<EdgeService>>,
}

impl Pretend {
    pub(crate) fn queue(&self, at: u16, queued: u64) {
        self.queued[site(at).index()].store(queued, Ordering::SeqCst);
        if let Some(looker) = &*self.looker.lock().unwrap() {
            looker.unpark();
        }
    }
}

impl Host for Pretend {
    fn looker(&mut self, thread: Thread) {
        *self.looker.lock().unwrap() = Some(thread);
    }

    fn sleeps(&mut self, _sleeps: bool) {}

    fn is_busy(&mut self) -> bool {
        self.queued.iter().any(|queued| queued.load(Ordering::SeqCst) > 0)
    }

    fn demand(&mut self, out: &mut Vec<EdgeDemand>) {
        out.clear();
        out.extend(self.queued.iter().map(|queued| EdgeDemand {
            queued: queued.load(Ordering::SeqCst) as u32,
            in_flight: 0,
        }));
    }

    fn service(&mut self, _now: Duration, out: &mut Vec<EdgeService>) {
        out.clear();
        out.push(*self.service.lock().unwrap());
    }

    fn attached(&mut self, record: NodeRecord, expected: u64) -> Result<(), SlotTaken> {
        let lease = Lease { incarnation: u32::from(self.edge) + 1, beat: 0 };
        let edge = EdgeId::new(self.edge).unwrap();
        self.slots.lock().unwrap().push(NodeSlot::take(record, edge, expected, lease)?);
        Ok(())
    }

    fn looked(&mut self, _nodes: &[Option<NodeSeen>], _sites: &[SiteSeen]) {
        self.slots.lock().unwrap().iter_mut().for_each(NodeSlot::beat);
    }

    fn moved(&mut self, node: NodeId, assign: Assign, _limit: u32) {
        self.moved.lock().unwrap().push(node);
        self.first.push(FirstDispatch { node, version: assign.version, at: monotonic() });
    }

    fn first_dispatches(&mut self) -> Vec<FirstDispatch> {
        std::mem::take(&mut self.first)
    }
}

pub(crate) fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn status(commander: &Commander) -> LoopStatus {
    match commander.ask(Command::Status { moves_from: 0 }, PATIENCE).unwrap() {
        Answer::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}
