//! Priorities and guarantees: a loaded site gets its soft guarantee, and beyond it what is spare.
//!
//! ```text
//! need(T):        |T| < hard(T)                                    -> floor
//!                 load(T) > high and |T| < soft(T)                 -> take-back
//!                 load(T) > high and |T| < max(T)                  -> load
//! candidates(T):  free nodes, then of donors D != T with |D| > hard(D):
//!   floor         1. |D| > soft(D)    2. any;   each: the lowest priority first
//!   take-back     1. load(D) < light, and load(D) without the node is not high
//!                 2. priority(D) < priority(T), however loaded D is; the lowest first
//!                 3. priority(D) = priority(T) and |D| > soft(D), however loaded D is
//!   load          1. only
//!                 order within each: load(D), requests in flight at the node, id
//!                 never a node that can't serve T
//! ```
//!
//! Take-back is how a node that was lent comes home: whoever took it while its site was light had
//! no claim to it. A site can't be starved by a loaded one above it: that takes only up to its own
//! soft guarantee, and never what the donor's hard guarantee holds.
//!
//! Deviations from "Priorities and QoS" (section 3.2.2, "with prioritization and QoS"): beyond its
//! soft guarantee a loaded site still takes nodes that are light (the paper stops there, and leaves
//! them idle); equal priorities, of which the paper does not speak, get back from each other what
//! the other holds above its own soft guarantee; `max` bounds a site; and a light donor that would
//! be highly loaded after the move keeps its node.
//!
//! Nodes are not passed to and fro (`reconf_pq_tests` drives random pools to their rest):
//!
//! - A light donor stays calm, so it wants nothing back.
//! - A loaded donor of lower priority can't take from the taker, which was high a node ago and so
//!   isn't light and calm without that node.
//! - A loaded donor of equal priority keeps its soft guarantee, so it has no take-back to make, and
//!   for mere load it may take from light sites only. Two equal sites that are both overloaded
//!   come to rest as soon as none is below soft while the other is above.

use crate::best::{Class, Offer, Price, Rules, best};
use crate::{Candidate, Policy, Thresholds};
use pool_model::{NodeView, PoolView, Reason, SiteId, SiteView};

/// The policy `reconf_pq`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReconfPq {
    thresholds: Thresholds,
}

impl ReconfPq {
    /// With these thresholds.
    #[must_use]
    pub const fn new(thresholds: Thresholds) -> Self {
        Self { thresholds }
    }
}

/// The rules for one taker.
pub(crate) struct Guaranteed<'a> {
    pub(crate) thresholds: &'a Thresholds,
    pub(crate) taker: &'a SiteView,
    pub(crate) reason: Reason,
}

impl Rules for Guaranteed<'_> {
    fn offer(&self, donor: &SiteView) -> Offer {
        let Self { taker, reason, .. } = *self;
        let guarantee = donor.terms.guarantee;
        if donor.nodes <= guarantee.hard {
            return Offer::NONE;
        }
        let above_soft = donor.nodes > guarantee.soft;
        let (mine, theirs) = (taker.terms.priority, donor.terms.priority);
        let any = match reason {
            Reason::Floor | Reason::Admin if above_soft => Some(Class::Must),
            Reason::Floor | Reason::Admin => Some(Class::MustLast),
            // The taker may have reached its soft guarantee since its need was found.
            Reason::TakeBack if taker.nodes >= taker.terms.guarantee.soft => None,
            Reason::TakeBack if theirs < mine => Some(Class::Must),
            Reason::TakeBack if theirs == mine && above_soft => Some(Class::MustLast),
            Reason::TakeBack | Reason::Load => None,
        };
        let light = match reason {
            Reason::Floor | Reason::Admin => false,
            Reason::TakeBack | Reason::Load => self.thresholds.is_light(donor),
        };
        Offer { light, any: any.map(|class| Price::of(class, donor)) }
    }

    fn spares(&self, donor: &SiteView, node: &NodeView) -> bool {
        self.thresholds.stays_calm(donor, node.max_in_flight)
    }
}

/// The needs of the schemes that know guarantees, of a site that is hot or not.
pub(crate) fn guaranteed_need(site: &SiteView, is_hot: impl Fn() -> bool) -> Option<Reason> {
    let guarantee = site.terms.guarantee;
    if site.nodes < guarantee.hard {
        return Some(Reason::Floor);
    }
    if site.nodes >= guarantee.max || !is_hot() {
        return None;
    }
    Some(if site.nodes < guarantee.soft { Reason::TakeBack } else { Reason::Load })
}

impl Policy for ReconfPq {
    fn name(&self) -> &'static str {
        "reconf_pq"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        let site = view.site(site)?;
        guaranteed_need(site, || self.thresholds.is_hot(site))
    }

    fn is_light(&self, view: &PoolView, site: SiteId) -> bool {
        view.site(site).is_some_and(|site| self.thresholds.is_light(site))
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        let Some(site) = view.site(taker) else { return Vec::new() };
        best(view, taker, &Guaranteed { thresholds: &self.thresholds, taker: site, reason })
    }
}

#[cfg(test)]
#[path = "reconf_pq_tests.rs"]
mod tests;
