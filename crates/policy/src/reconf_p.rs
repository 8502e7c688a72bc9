//! Priorities as published: a loaded site takes from whoever is less important.
//!
//! ```text
//! need(T):        |T| < hard(T)                        -> floor
//!                 load(T) > high and |T| < max(T)      -> load
//! candidates(T):  free nodes, then of donors D != T with |D| > hard(D):
//!                   1. load(D) < light, and load(D) without the node is not high
//!                   2. priority(D) < priority(T), however loaded D is; the lowest first
//!                 order within each: load(D), requests in flight at the node, id
//!                 for the reason floor: any node of a donor above its hard guarantee, the lowest
//!                 priority first
//!                 never a node that can't serve T
//! ```
//!
//! There is no soft guarantee: a site that stays loaded takes from the lower priorities all that
//! they hold above their hard guarantees. That is the starvation for which the paper names
//! `reconf_pq` as the cure.
//!
//! Deviations from "Priorities and QoS" (section 3.2.2, "with prioritization"): the paper's
//! minimum of one node is the site's hard guarantee, which is one unless it is set; a taker never
//! exceeds its maximum; light nodes go before those of lower priorities; and a light donor that
//! would be highly loaded after the move keeps its node.
//!
//! It ends for constant loads: a light donor stays calm, so it never takes the node back; a loaded
//! one gives to higher priorities only. Seen from the highest priority downwards, what a level
//! lacks only shrinks once the levels above it rest.

use crate::best::{Class, Offer, Price, Rules, best};
use crate::reconf::plain_need;
use crate::{Candidate, Policy, Thresholds};
use pool_model::{NodeView, PoolView, Priority, Reason, SiteId, SiteView};

/// The policy `reconf_p`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReconfP {
    thresholds: Thresholds,
}

impl ReconfP {
    /// With these thresholds.
    #[must_use]
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds }
    }
}

impl Policy for ReconfP {
    fn name(&self) -> &'static str {
        "reconf_p"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        plain_need(&self.thresholds, view, site)
    }

    fn is_light(&self, view: &PoolView, site: SiteId) -> bool {
        view.site(site).is_some_and(|site| self.thresholds.is_light(site))
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        let Some(priority) = view.site(taker).map(|taker| taker.terms.priority) else {
            return Vec::new();
        };
        best(view, taker, &Prioritised { thresholds: &self.thresholds, priority, reason })
    }
}

struct Prioritised<'a> {
    thresholds: &'a Thresholds,
    /// The taker's.
    priority: Priority,
    reason: Reason,
}

impl Rules for Prioritised<'_> {
    fn offer(&self, donor: &SiteView) -> Offer {
        if donor.nodes <= donor.terms.guarantee.hard {
            return Offer::NONE;
        }
        let must = || Price::of(Class::Must, donor);
        match self.reason {
            Reason::Load | Reason::TakeBack => Offer {
                light: self.thresholds.is_light(donor),
                any: (donor.terms.priority < self.priority).then(must),
            },
            Reason::Floor | Reason::Admin => Offer { light: false, any: Some(must()) },
        }
    }

    fn spares(&self, donor: &SiteView, node: &NodeView) -> bool {
        self.thresholds.stays_calm(donor, node.max_in_flight)
    }
}

#[cfg(test)]
#[path = "reconf_p_tests.rs"]
mod tests;
