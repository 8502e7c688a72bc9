//! Which edges' slots count, judged by this agent's own clock.

use crate::lifecycle::Now;
use pool_model::EdgeId;
use shared_state::lease::Watch;
use shared_state::slot::{self, LiveEdges};
use shared_state::words::Assign;
use shared_state::{EDGES_MAX, NodeRecord};
use std::time::Duration;

/// The leases of all slots of one record.
pub(crate) struct Slots {
    watches: Vec<Watch>,
    patience: Duration,
}

impl Slots {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { watches: vec![Watch::default(); EDGES_MAX], patience }
    }

    /// Whether no live edge has a request of an earlier assignment at the node. A lease that is
    /// seen for the first time counts as live for the whole patience.
    pub(crate) fn are_drained(&mut self, record: &NodeRecord, assign: Assign, now: Now) -> bool {
        let mut live = LiveEdges::default();
        let edges = (EdgeId::MIN.get()..=EdgeId::MAX.get()).filter_map(|e| EdgeId::new(e).ok());
        for (edge, watch) in edges.zip(&mut self.watches) {
            if watch.is_alive(record.lease(edge).pack(), now, self.patience) {
                live = live.with(edge);
            }
        }
        slot::is_drained(record, assign, live)
    }

    /// Forgets what was seen: the leases were not looked at for a while, so an old sight says
    /// nothing about now.
    pub(crate) fn forget(&mut self) {
        self.watches.fill(Watch::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool_model::{NodeId, SiteId};
    use remote_memory::shm::OwnedRegion;
    use shared_state::slot::{Enter, NodeSlot};
    use shared_state::words::{Epoch, Lease};
    use shared_state::{NODE_REGION_BYTES, NodeHeader};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_of_the_last_site_hold_its_server_until_they_end_or_their_edge_dies() {
        let region = OwnedRegion::create("node-0", NODE_REGION_BYTES).unwrap();
        let header = NodeHeader { node: NodeId::MIN, max_in_flight: 4 };
        let site = SiteId::new(1).unwrap();
        let first = Assign { site: Some(site), stamp: Epoch::ZERO, version: 1 };
        let second = Assign { site: SiteId::new(2).ok(), stamp: Epoch::ZERO, version: 2 };
        let record = NodeRecord::publish(Arc::new(region), header, first).unwrap();
        let edge = EdgeId::new(0).unwrap();
        let lease = Lease { incarnation: 7, beat: 0 };
        let mut slot = NodeSlot::take(record.clone(), edge, 0, lease).unwrap();
        for _ in 0..2 {
            assert_eq!(slot.enter(first, 4), Enter::Entered);
        }
        record.assign_word().store(second.pack(), Ordering::SeqCst);
        let mut slots = Slots::new(ms(50));
        assert!(!slots.are_drained(&record, second, ms(1_000)));
        slot.leave(site, 1);
        slot.beat();
        assert!(!slots.are_drained(&record, second, ms(1_040)));
        slot.leave(site, 1);
        assert!(slots.are_drained(&record, second, ms(1_041)), "all have ended");
        assert_eq!(slot.enter(second, 4), Enter::Entered);
        let third = second.moved(None, Epoch::ZERO);
        record.assign_word().store(third.pack(), Ordering::SeqCst);
        assert!(!slots.are_drained(&record, third, ms(1_050)));
        assert!(slots.are_drained(&record, third, ms(1_091)), "its edge has died");
        slots.forget();
        assert!(!slots.are_drained(&record, third, ms(1_092)), "seen anew, so it may live");
    }
}
