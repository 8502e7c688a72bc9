//! What is kept about moves for logs, status and metrics.

use crate::protocol::{Outcome, Refusal};
use pool_model::{NodeId, Reason, SiteId};
use std::collections::VecDeque;

/// Records kept: some seconds of moves at full speed, a few tens of kilobytes.
pub const RECORDS_MAX: usize = 1_024;

/// How an attempt at a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// The node serves the taker.
    Moved,
    /// Mode `observe`: it would have been tried.
    WouldMove,
    /// This edge carried out what another one had begun.
    Helped,
    /// A newer epoch aborted what another edge had begun.
    Aborted,
    /// The clock showed that the claim was too old to go on (stalled edge).
    DroppedLate,
    /// All tries lost against other edges' departures.
    LostInstall,
    /// The free node was taken first.
    LostJoin,
    /// Step 3 missed: a helper was faster, or the move was aborted.
    CasMissedLate,
    /// No answer in time; the next look shows whether it took place.
    Unsettled,
    /// Memory could not be reached.
    Unreachable,
    /// The protocol or the pool does not allow it.
    Refused(Refusal),
    /// A request by a person was not done within its time.
    TimedOut,
    /// The node's word named no site of the pool: noise was written there. It is free now, with the
    /// version after the one that the noise held; whose it was before isn't known.
    Freed,
}

impl Ending {
    /// The word used in logs, status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::WouldMove => "would-move",
            Self::Helped => "helped",
            Self::Aborted => "aborted",
            Self::DroppedLate => "dropped-late",
            Self::LostInstall => "lost-install",
            Self::LostJoin => "lost-join",
            Self::CasMissedLate => "cas-missed-late",
            Self::Unsettled => "unsettled",
            Self::Unreachable => "unreachable",
            Self::Refused(refusal) => refusal.name(),
            Self::TimedOut => "timed-out",
            Self::Freed => "freed",
        }
    }
}

/// One attempt at a move, as the edge that made it saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveRecord {
    /// When it ended, on the shell's clock.
    pub at_ns: u64,
    /// The node.
    pub node: NodeId,
    /// The donor; none for a free node.
    pub from: Option<SiteId>,
    /// The taker; none to set it free.
    pub to: Option<SiteId>,
    /// Why.
    pub reason: Reason,
    /// The load of the taker in the look that decided; 0 where there is none.
    pub load: f64,
    /// The version of the node's assignment afterwards, where it is known.
    pub version: Option<u32>,
    /// From the look that completed `hold` (or found the request) to the end.
    pub took_ns: u64,
    /// How it ended.
    pub ending: Ending,
    /// The request of a person that it answers.
    pub request: Option<u64>,
}

/// The latest records, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Records {
    ring: VecDeque<MoveRecord>,
    total: u64,
}

impl Records {
    /// Adds a record; drops the oldest when full.
    pub fn push(&mut self, record: MoveRecord) {
        if self.ring.len() >= RECORDS_MAX {
            self.ring.pop_front();
        }
        self.ring.push_back(record);
        self.total += 1;
    }

    /// How many there ever were; the ring holds the last [`RECORDS_MAX`] of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The records after the first `from` ones ever made, as far as they are still kept.
    pub fn since(&self, from: u64) -> impl Iterator<Item = &MoveRecord> {
        let first_kept = self.total - self.ring.len() as u64;
        let skip = usize::try_from(from.saturating_sub(first_kept)).unwrap_or(usize::MAX);
        self.ring.iter().skip(skip)
    }
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Looks taken in.
    pub looks: u64,
    /// Claims that were ours.
    pub claims: u64,
    /// Claims that another edge had before us.
    pub claims_lost: u64,
    /// Nodes moved by this edge's own compare-and-swap, joins and help included.
    pub moves: u64,
    /// Installs that missed because the donor's word had changed.
    pub installs_lost: u64,
    /// Claims dropped because this edge was stalled for more than half a hold.
    pub late_moves: u64,
    /// Compare-and-swaps of step 3 that came too late and missed, as they must.
    pub cas_missed_late: u64,
    /// Descriptors of others carried out or closed.
    pub helps: u64,
    /// New epochs given.
    pub bumps: u64,
    /// Nodes whose stamp was renewed.
    pub renewed: u64,
    /// Guarantees written.
    pub floors_set: u64,
    /// Words in the latest look that nobody writes (a gauge, not a sum).
    pub bad_words: u64,
    /// Operations without an answer in time.
    pub unsettled: u64,
}

impl Counters {
    /// Counts how a machine ended.
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let counters = self;
        match outcome {
            Outcome::Claimed { .. } => counters.claims += 1,
            Outcome::LostClaim { .. } => counters.claims_lost += 1,
            Outcome::Moved { .. } => counters.moves += 1,
            Outcome::LostInstall { .. } => counters.installs_lost += 1,
            Outcome::CasMissedLate { .. } => counters.cas_missed_late += 1,
            Outcome::Helped { moved, .. } => {
                counters.helps += 1;
                counters.moves += u64::from(moved.is_some());
            }
            Outcome::Bumped { .. } => counters.bumps += 1,
            Outcome::Renewed { renewed, .. } => counters.renewed += u64::from(*renewed),
            Outcome::FloorSet { .. } => counters.floors_set += 1,
            Outcome::Unsettled { .. } => counters.unsettled += 1,
            _ => {}
        }
    }
}
