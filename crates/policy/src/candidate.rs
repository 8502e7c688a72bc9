//! The face that all policies share.

use pool_model::{NodeId, PoolView, Reason, SiteId};

/// Candidates that a policy names for one need. A move that finds its first three nodes taken
/// waits for a fresh look anyway, so more than this are never tried.
pub const CANDIDATES_MAX: usize = 4;

/// A node that may be taken, and from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Its site; none for a free node.
    pub donor: Option<SiteId>,
}

/// A way to share the pool. Calls are pure and do not block.
pub trait Policy: Send {
    /// The name used in settings and status.
    fn name(&self) -> &'static str;

    /// Whether the site wants a node now, and why. `Reason::Floor` needs no holding time.
    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason>;

    /// Nodes that the taker may have, best first, at most [`CANDIDATES_MAX`]; empty when none
    /// may be taken. A wrong or stale answer may be unwise, never unsafe: the move protocol
    /// checks the donor's floor again.
    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate>;
}
