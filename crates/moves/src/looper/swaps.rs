//! When the compare-and-swaps took place by which this edge moved nodes.
//!
//! A move counts from one instant on, that of its third step, which nobody can read off a clock.
//! What can be told is a moment before it and one after it. The histories of several edges are
//! put together from these: whoever asks whether a site was ever below its guarantee must not be
//! misled by a thread that had to wait between its swap and its note of it.

use super::monotonic;
use super::nanos;
use crate::MoveRecord;
use crate::protocol::{Op, Reply, Word};
use pool_model::NodeId;
use shared_state::words::Assign;

/// The swaps of one look.
#[derive(Debug, Default)]
pub(super) struct Swaps(Vec<Swap>);

#[derive(Debug)]
struct Swap {
    node: NodeId,
    version: u32,
    within_ns: (u64, u64),
}

impl Swaps {
    /// Performs an operation, and notes when it took place if it moves a node.
    pub(super) fn perform(&mut self, op: Op, perform: impl FnOnce(Op) -> Reply) -> Reply {
        let Some((node, version, expected)) = moving(&op) else { return perform(op) };
        let before = nanos(monotonic());
        let reply = perform(op);
        if reply == (Reply::Swapped { found: expected }) {
            self.0.push(Swap { node, version, within_ns: (before, nanos(monotonic())) });
        }
        reply
    }

    /// Between which moments of [`monotonic`] the move of a record took effect.
    pub(super) fn of(&self, record: &MoveRecord) -> Option<(u64, u64)> {
        let is_its =
            |swap: &&Swap| swap.node == record.node && Some(swap.version) == record.version;
        self.0.iter().find(is_its).map(|swap| swap.within_ns)
    }

    /// Forgets the swaps of a look whose records are noted.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The node, its next version and the expected word of a swap that gives a node to another site.
/// A renewed stamp is no move: the version stays.
fn moving(op: &Op) -> Option<(NodeId, u32, u64)> {
    let Op::CompareAndSwap { word: Word::Assign(node), expected, new } = *op else { return None };
    let (before, after) = (Assign::unpack(expected)?, Assign::unpack(new)?);
    (before.version != after.version).then_some((node, after.version, expected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ending;
    use pool_model::{Reason, SiteId};
    use shared_state::words::Epoch;

    fn record(version: u32) -> MoveRecord {
        MoveRecord {
            at_ns: 0,
            node: NodeId::MIN,
            from: None,
            to: None,
            reason: Reason::Load,
            load: 0.0,
            version: Some(version),
            took_ns: 0,
            ending: Ending::Moved,
            request: None,
        }
    }

    #[test]
    fn only_a_swap_that_moved_a_node_is_noted() {
        let mut swaps = Swaps::default();
        let before = Assign { version: 4, ..Assign::FREE };
        let (moved, renewed) =
            (before.moved(Some(SiteId::MIN), Epoch::ZERO), before.renewed(Epoch::new(1, 1)));
        let op = |new: Assign| Op::CompareAndSwap {
            word: Word::Assign(NodeId::MIN),
            expected: before.pack(),
            new: new.pack(),
        };
        let found = |word: Assign| Reply::Swapped { found: word.pack() };
        swaps.perform(op(renewed), |_| found(before));
        swaps.perform(op(moved), |_| found(renewed));
        swaps.perform(op(moved), |_| Reply::Unknown);
        swaps.perform(Op::Read(Word::Assign(NodeId::MIN)), |_| Reply::Value(before.pack()));
        assert_eq!(swaps.of(&record(5)), None);
        let start = nanos(monotonic());
        swaps.perform(op(moved), |_| found(before));
        let (from, to) = swaps.of(&record(5)).unwrap();
        assert!(start <= from && from <= to && to <= nanos(monotonic()));
        assert_eq!(swaps.of(&record(4)), None);
        swaps.clear();
        assert_eq!(swaps.of(&record(5)), None);
    }
}
