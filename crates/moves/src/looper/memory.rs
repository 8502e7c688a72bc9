//! The shared words behind the protocol's operations, mapped: each operation runs inline.

use crate::protocol::{Op, Reply, Word};
use pool_model::{NodeId, SiteId};
use shared_state::words::Phase;
use shared_state::{NodeRecord, SiteRecord};
use std::sync::atomic::{AtomicU64, Ordering};

/// The regions that this edge has mapped. What is missing is unreachable, never an error.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The home's site record.
    pub home: Option<SiteRecord>,
    /// The nodes' records, by index.
    pub nodes: Vec<Option<NodeRecord>>,
}

impl Memory {
    /// Performs one operation. Does not block; a read costs a load, a swap a locked instruction.
    pub fn perform(&self, op: Op) -> Reply {
        match op {
            Op::Read(word) => self
                .word(word)
                .map_or(Reply::Unreachable, |w| Reply::Value(w.load(Ordering::SeqCst))),
            Op::CompareAndSwap { word, expected, new } => {
                let Some(word) = self.word(word) else { return Reply::Unreachable };
                let order = (Ordering::SeqCst, Ordering::SeqCst);
                let found = match word.compare_exchange(expected, new, order.0, order.1) {
                    Ok(found) | Err(found) => found,
                };
                Reply::Swapped { found }
            }
        }
    }

    /// Whether the node's server for a site runs but does not answer, by its agent's word. One
    /// that is absent says nothing: it may be one that starts on assignment.
    pub fn is_unready(&self, node: NodeId, site: SiteId) -> bool {
        let record = self.nodes.get(node.index()).and_then(Option::as_ref);
        record.is_some_and(|record| {
            let phase = record.server(site).phase;
            matches!(phase, Phase::Starting | Phase::Failing | Phase::Stopping)
        })
    }

    /// The word, if its record is there.
    pub(super) fn word(&self, word: Word) -> Option<&AtomicU64> {
        match word {
            Word::Depart(site) => self.home.as_ref()?.depart_word(site),
            Word::Arrive(site) => self.home.as_ref()?.arrive_word(site),
            Word::Floor(site) => self.home.as_ref()?.floor_word(site),
            Word::Assign(node) => Some(self.nodes.get(node.index())?.as_ref()?.assign_word()),
        }
    }
}
