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

/// A move that prepares another: with one node more, `to` can spare a fitter one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stage {
    /// The site that gets the node.
    pub to: SiteId,
    /// The node, and from whom.
    pub candidate: Candidate,
}

/// A way to share the pool. Calls are pure and do not block.
pub trait Policy: Send {
    /// The name used in settings and status.
    fn name(&self) -> &'static str;

    /// Whether the site wants a node now, and why. `Reason::Floor` needs no holding time.
    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason>;

    /// Whether the site's load is so light that others may have nodes of it for no other reason.
    /// Where that must last before it counts, the caller asks at each look, and names the sites of
    /// which it hasn't lasted in [`PoolView::restless`]; false where it counts at once.
    fn is_light(&self, view: &PoolView, site: SiteId) -> bool {
        let _ = (view, site);
        false
    }

    /// Nodes that the taker may have, best first, at most [`CANDIDATES_MAX`]; empty when none
    /// may be taken. A wrong or stale answer may be unwise, never unsafe: the move protocol
    /// checks the donor's floor again.
    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate>;

    /// A move to another site, to be made before any for this taker, because what the taker can
    /// have after it is so much better than `direct`, the best that it can have now. Asked after
    /// [`Policy::candidates`]; none where a policy knows no such moves.
    fn stage(
        &self,
        view: &PoolView,
        taker: SiteId,
        reason: Reason,
        direct: Option<Candidate>,
    ) -> Option<Stage> {
        let _ = (view, taker, reason, direct);
        None
    }
}
