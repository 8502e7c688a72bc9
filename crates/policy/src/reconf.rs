//! The published scheme: a loaded site takes the least loaded node of a lightly loaded one.
//!
//! ```text
//! need(T):        |T| < hard(T)                        -> floor
//!                 load(T) > high and |T| < max(T)      -> load
//! candidates(T):  free nodes, then
//!                 for donors D != T with |D| > hard(D):
//!                   load(D) < light, and load(D) without the node is not high
//!                   order: load(D), requests in flight at the node, id
//!                 for the reason floor: any node of a donor above its hard guarantee
//!                 never a node that can't serve T
//! ```
//!
//! Deviations from the paper ("Dynamic reconfigurability", section 3): every donor keeps its hard
//! guarantee, a taker never exceeds its maximum, and a donor that would be highly loaded after
//! the move gives nothing, so that two sites do not pass one node to and fro.

use crate::best::{Class, Offer, Price, Rules, best};
use crate::{Candidate, Policy, Thresholds};
use pool_model::{NodeView, PoolView, Reason, SiteId, SiteView};

/// The policy `reconf`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reconf {
    thresholds: Thresholds,
}

impl Reconf {
    /// With these thresholds.
    #[must_use]
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds }
    }
}

/// The needs of the schemes that know no soft guarantee.
pub(crate) fn plain_need(thresholds: &Thresholds, view: &PoolView, site: SiteId) -> Option<Reason> {
    let site = view.site(site)?;
    let guarantee = site.terms.guarantee;
    if site.nodes < guarantee.hard {
        return Some(Reason::Floor);
    }
    (site.nodes < guarantee.max && thresholds.is_hot(site)).then_some(Reason::Load)
}

impl Policy for Reconf {
    fn name(&self) -> &'static str {
        "reconf"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        plain_need(&self.thresholds, view, site)
    }

    fn is_light(&self, view: &PoolView, site: SiteId) -> bool {
        view.site(site).is_some_and(|site| self.thresholds.is_light(site))
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        best(view, taker, &Share { thresholds: &self.thresholds, reason })
    }
}

struct Share<'a> {
    thresholds: &'a Thresholds,
    reason: Reason,
}

impl Rules for Share<'_> {
    fn offer(&self, donor: &SiteView) -> Offer {
        if donor.nodes <= donor.terms.guarantee.hard {
            return Offer::NONE;
        }
        match self.reason {
            Reason::Load | Reason::TakeBack => {
                Offer { light: self.thresholds.is_light(donor), any: None }
            }
            // A guarantee goes before comfort: whoever has more than its own may give.
            Reason::Floor | Reason::Admin => {
                Offer { light: false, any: Some(Price::alike(Class::Must)) }
            }
        }
    }

    fn spares(&self, donor: &SiteView, node: &NodeView) -> bool {
        self.thresholds.stays_calm(donor, node.max_in_flight)
    }
}

#[cfg(test)]
#[path = "reconf_tests.rs"]
mod tests;
