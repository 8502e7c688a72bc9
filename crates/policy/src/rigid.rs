//! Nothing moves.

use crate::{Candidate, Policy};
use pool_model::{PoolView, Reason, SiteId};

/// Every node stays with the site that it was given to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rigid;

impl Policy for Rigid {
    fn name(&self) -> &'static str {
        "rigid"
    }

    fn need(&self, _view: &PoolView, _site: SiteId) -> Option<Reason> {
        None
    }

    fn candidates(&self, _view: &PoolView, _taker: SiteId, _reason: Reason) -> Vec<Candidate> {
        Vec::new()
    }
}
