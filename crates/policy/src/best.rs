//! The nodes that a taker may have, best first: one pass over the sites, one over the nodes.
//!
//! ```text
//! best(T):  for each donor D != T: what D offers (the policy's rule)
//!           nobody offers, and no node is free -> nothing, without a look at the nodes
//!           of the movable nodes that can serve T at all:
//!             free ones, then by (price, load of D, in flight at the node, id)
//!           cut where the price changes: what is dearer waits for a fresh look
//! price:    class of the offer, then priority of D: the less important gives first
//! ```
//!
//! The cut is there because edges start with different donors, so that they do not fight for one
//! (`moves`): among what is returned, every node is as good as the next.
//!
//! Costs about a nanosecond for each site, and for each node if there is any offer; allocates a few
//! bytes for each site.

use crate::{CANDIDATES_MAX, Candidate, Thresholds};
use pool_model::{NodeView, PoolView, Priority, SiteId, SiteView};
use std::cmp::Ordering;

/// What kind of offer a node is; the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Serves nobody.
    Free,
    /// Its site is lightly loaded and stays calm without it.
    Light,
    /// Its site has to give it, by the first of a policy's rules for that.
    Must,
    /// The same by the second rule.
    MustLast,
}

/// How dear a node is: its class first, then the priority of its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Price {
    class: Class,
    priority: Priority,
}

impl Price {
    const FREE: Self = Self { class: Class::Free, priority: Priority(0) };
    const LIGHT: Self = Self { class: Class::Light, priority: Priority(0) };

    /// The less important the donor, the cheaper.
    pub(crate) const fn of(class: Class, donor: &SiteView) -> Self {
        Self { class, priority: donor.terms.priority }
    }

    /// Where priorities do not count.
    pub(crate) const fn alike(class: Class) -> Self {
        Self { class, priority: Priority(0) }
    }
}

/// What one donor offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Nodes without which it stays calm.
    pub(crate) light: bool,
    /// Any of its nodes at this price, whatever its load.
    pub(crate) any: Option<Price>,
}

impl Offer {
    /// Nothing at all.
    pub(crate) const NONE: Self = Self { light: false, any: None };
}

/// A node and what it costs.
#[derive(Clone, Copy)]
struct Found<'a> {
    price: Price,
    load: f64,
    node: &'a NodeView,
}

impl Found<'_> {
    fn order(&self, other: &Self) -> Ordering {
        self.price
            .cmp(&other.price)
            .then(self.load.total_cmp(&other.load))
            .then(self.node.in_flight.cmp(&other.node.in_flight))
            .then(self.node.id.cmp(&other.node.id))
    }
}

/// The best nodes for `taker`, at most [`CANDIDATES_MAX`]; `offer` says what a donor gives.
pub(crate) fn best(
    view: &PoolView,
    taker: SiteId,
    thresholds: &Thresholds,
    offer: impl Fn(&SiteView) -> Offer,
) -> Vec<Candidate> {
    let Some(terms) = view.site(taker).map(|taker| taker.terms) else { return Vec::new() };
    let mut assigned = 0;
    let mut offered = false;
    let look = |donor: &SiteView| {
        assigned += usize::from(donor.nodes);
        let offer = if donor.id == taker { Offer::NONE } else { offer(donor) };
        offered |= offer != Offer::NONE;
        offer
    };
    let offers: Vec<Offer> = view.sites.iter().map(look).collect();
    if !offered && assigned == view.nodes.len() {
        return Vec::new();
    }
    let mut found: Vec<Found<'_>> = Vec::with_capacity(CANDIDATES_MAX + 1);
    for node in &view.nodes {
        let Some(this) = judge(view, thresholds, &offers, node) else { continue };
        if terms.fitness_pct(node.traits) == 0 {
            continue;
        }
        let place = found.partition_point(|other| other.order(&this).is_lt());
        if place < CANDIDATES_MAX {
            found.truncate(CANDIDATES_MAX - 1);
            found.insert(place, this);
        }
    }
    cut(&mut found);
    found.iter().map(|f| Candidate { node: f.node.id, donor: f.node.site }).collect()
}

/// What a node costs, if it is to be had at all.
fn judge<'a>(
    view: &PoolView,
    thresholds: &Thresholds,
    offers: &[Offer],
    node: &'a NodeView,
) -> Option<Found<'a>> {
    if !node.movable {
        return None;
    }
    let Some(id) = node.site else {
        return Some(Found { price: Price::FREE, load: 0.0, node });
    };
    let place = view.place(id)?;
    let (offer, donor) = (offers[place], &view.sites[place]);
    if offer.light && thresholds.stays_calm(donor, node.max_in_flight) {
        return Some(Found { price: Price::LIGHT, load: donor.load(), node });
    }
    Some(Found { price: offer.any?, load: donor.load(), node })
}

/// Keeps what is not free only as far as it has one price.
fn cut(found: &mut Vec<Found<'_>>) {
    let Some(first) = found.iter().map(|f| f.price).find(|&price| price != Price::FREE) else {
        return;
    };
    found.retain(|f| f.price == Price::FREE || f.price == first);
}
