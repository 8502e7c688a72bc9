//! The published scheme: a loaded site takes the least loaded node of a lightly loaded one.
//!
//! ```text
//! need(T):        |T| < hard(T)                        -> floor
//!                 load(T) > high and |T| < max(T)      -> load
//! candidates(T):  free nodes, then
//!                 for donors D != T with |D| > hard(D):
//!                   load(D) < light, and load(D) without the node is not high
//!                   order: load(D), requests in flight at the node, id
//! ```
//!
//! Deviations from the paper ("Dynamic reconfigurability", section 3): every donor keeps its hard
//! guarantee, a taker never exceeds its maximum, and a donor that would be highly loaded after
//! the move gives nothing, so that two sites do not pass one node to and fro.

use crate::{CANDIDATES_MAX, Candidate, Policy};
use pool_model::{NodeView, PoolView, Reason, SiteId, SiteView};
use std::cmp::Ordering;
use std::fmt;

/// Loads at which a site counts as high and as light.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    high: f64,
    light: f64,
}

/// Why two numbers are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThresholdsError {
    high: f64,
    light: f64,
}

impl fmt::Display for ThresholdsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { high, light } = self;
        write!(f, "high load {high} and light load {light}: need 0 < light < high")
    }
}

impl std::error::Error for ThresholdsError {}

impl Thresholds {
    /// Checks that `0 < light < high`; the gap between them is the hysteresis.
    pub fn new(high: f64, light: f64) -> Result<Self, ThresholdsError> {
        let ordered = high.is_finite() && light > 0.0 && light < high;
        if ordered { Ok(Self { high, light }) } else { Err(ThresholdsError { high, light }) }
    }

    /// The load above which a site is high.
    #[must_use]
    pub const fn high(&self) -> f64 {
        self.high
    }

    /// The load below which a site is light.
    #[must_use]
    pub const fn light(&self) -> f64 {
        self.light
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { high: 1.0, light: 0.5 }
    }
}

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

    /// Whether the donor may lose this node and not want it back at once.
    fn may_give(&self, donor: &SiteView, node: &NodeView, reason: Reason) -> bool {
        if donor.nodes <= donor.terms.guarantee.hard {
            return false;
        }
        let light = donor.load() < self.thresholds.light;
        let stays_calm = donor.load_without(node.max_in_flight) <= self.thresholds.high;
        match reason {
            Reason::Load | Reason::TakeBack => light && stays_calm,
            // A guarantee goes before comfort: whoever has more than its own may give.
            Reason::Floor | Reason::Admin => true,
        }
    }
}

/// Free nodes first, then by the donor's load, then by the node's, then by id.
fn by_cost(a: &(Option<f64>, &NodeView), b: &(Option<f64>, &NodeView)) -> Ordering {
    let donor = |entry: &(Option<f64>, &NodeView)| entry.0.unwrap_or(-1.0);
    donor(a).total_cmp(&donor(b)).then(a.1.in_flight.cmp(&b.1.in_flight)).then(a.1.id.cmp(&b.1.id))
}

impl Policy for Reconf {
    fn name(&self) -> &'static str {
        "reconf"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        let site = view.site(site)?;
        if site.nodes < site.terms.guarantee.hard {
            return Some(Reason::Floor);
        }
        let loaded = site.load() > self.thresholds.high;
        (loaded && site.nodes < site.terms.guarantee.max).then_some(Reason::Load)
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        let mut found: Vec<(Option<f64>, &NodeView)> = view
            .nodes
            .iter()
            .filter(|node| node.movable && node.site != Some(taker))
            .filter_map(|node| match node.site {
                None => Some((None, node)),
                Some(id) => {
                    let donor = view.site(id)?;
                    self.may_give(donor, node, reason).then(|| (Some(donor.load()), node))
                }
            })
            .collect();
        if found.len() > CANDIDATES_MAX {
            found.select_nth_unstable_by(CANDIDATES_MAX, by_cost);
            found.truncate(CANDIDATES_MAX);
        }
        found.sort_unstable_by(by_cost);
        found.into_iter().map(|(_, node)| Candidate { node: node.id, donor: node.site }).collect()
    }
}

#[cfg(test)]
#[path = "reconf_tests.rs"]
mod tests;
