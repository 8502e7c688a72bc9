//! The nodes that a taker may have, best first: one pass over the sites, one over the nodes.
//!
//! ```text
//! best(T):  for each donor D != T: what D offers (a policy's rule)
//!           nobody who has a node that T might use offers, and no such node is free
//!             -> nothing, without a look at the nodes
//!           of the movable nodes that can serve T at all:
//!             free ones, then by (price, worth, load of D, in flight at the node, id)
//!           cut where price or worth changes: what is dearer waits for a fresh look
//! price:    class of the offer, then priority of D: the less important gives first
//! ```
//!
//! The cut is there because edges start with different donors, so that they do not fight for one
//! (`moves`): among what is returned, every node is as good as the next.
//!
//! Costs some nanoseconds for each site, and half of one for each node if there is any offer;
//! allocates a few bytes for each site.

use crate::{CANDIDATES_MAX, Candidate};
use pool_model::{NodeView, PoolView, Priority, SiteId, SiteTerms, SiteView};
use std::cmp::Ordering;

/// What kind of offer a node is; the cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Serves nobody.
    Free,
    /// Its site is lightly loaded and can spare it.
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
    /// Nodes that it can spare.
    pub(crate) light: bool,
    /// Any of its nodes at this price, whatever its load.
    pub(crate) any: Option<Price>,
}

impl Offer {
    /// Nothing at all.
    pub(crate) const NONE: Self = Self { light: false, any: None };
}

/// What a node is worth, where nodes are told apart: more for the taker first, then less for the
/// donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Worth {
    pub(crate) gain: u32,
    pub(crate) loss: u32,
}

/// A policy's rules for one taker and one reason.
pub(crate) trait Rules {
    /// Whether the fittest of what can be spared goes first, free or not; else nodes are alike,
    /// and free ones go first.
    const TELLS_APART: bool = false;

    /// What a donor other than the taker offers.
    fn offer(&self, donor: &SiteView) -> Offer;

    /// Whether a donor of light offers can spare this node.
    fn spares(&self, donor: &SiteView, node: &NodeView) -> bool;

    /// What a node is worth.
    fn worth(&self, donor: Option<&SiteView>, node: &NodeView) -> Worth {
        let _ = (donor, node);
        Worth::default()
    }
}

/// A node and what it costs.
#[derive(Clone, Copy)]
struct Found<'a> {
    price: Price,
    worth: Worth,
    load: f64,
    node: &'a NodeView,
}

impl Found<'_> {
    fn order(&self, other: &Self) -> Ordering {
        self.price
            .cmp(&other.price)
            .then(other.worth.gain.cmp(&self.worth.gain))
            .then(self.worth.loss.cmp(&other.worth.loss))
            .then(self.load.total_cmp(&other.load))
            .then(self.node.in_flight.cmp(&other.node.in_flight))
            .then(self.node.id.cmp(&other.node.id))
    }
}

/// A bit for each site number; that of 0 stands for "free".
pub(crate) struct Marks([bool; Marks::COUNT]);

impl Marks {
    /// Site numbers go up to 1,023.
    const COUNT: usize = 1 << 10;

    pub(crate) const fn new() -> Self {
        Self([false; Self::COUNT])
    }

    pub(crate) fn mark(&mut self, site: Option<SiteId>) {
        self.0[site.map_or(0, |id| usize::from(id.get())) % Self::COUNT] = true;
    }

    /// Whether a node's site is marked: a load and a look into a kilobyte, for each node of the
    /// pool, so it comes before all else.
    pub(crate) fn has(&self, node: &NodeView) -> bool {
        self.0[node.site.map_or(0, |id| usize::from(id.get())) % Self::COUNT]
    }
}

/// What all sites offer.
pub(crate) struct Offers {
    /// By the site's place.
    pub(crate) by_place: Vec<Offer>,
    /// Who offers anything; free nodes are on offer, too.
    marks: Marks,
}

/// What each site offers, and the free nodes; none if that is nothing. Where `terms` are given, who
/// has no node that could serve a site with such terms counts as one who offers nothing.
pub(crate) fn offers<R: Rules>(
    view: &PoolView,
    taker: SiteId,
    terms: Option<&SiteTerms>,
    rules: &R,
) -> Option<Offers> {
    let kinds = terms.map(|terms| view.stock.fit_for(terms));
    let may_serve = |place| kinds.is_none_or(|kinds| view.stock.has(place, kinds));
    let mut assigned = 0;
    let mut any = false;
    let mut by_place = Vec::with_capacity(view.sites.len());
    let mut marks = Marks::new();
    for (place, donor) in view.sites.iter().enumerate() {
        assigned += usize::from(donor.nodes);
        let may_give = donor.id != taker && may_serve(Some(place));
        let mut offer = if may_give { rules.offer(donor) } else { Offer::NONE };
        offer.light &= !view.is_restless(donor.id);
        if offer != Offer::NONE {
            any = true;
            marks.mark(Some(donor.id));
        }
        by_place.push(offer);
    }
    marks.mark(None);
    let any_free = assigned < view.nodes.len() && may_serve(None);
    (any || any_free).then_some(Offers { by_place, marks })
}

/// The best nodes for `taker`, at most [`CANDIDATES_MAX`].
pub(crate) fn best<R: Rules>(view: &PoolView, taker: SiteId, rules: &R) -> Vec<Candidate> {
    let Some(terms) = view.site(taker).map(|taker| taker.terms) else { return Vec::new() };
    let Some(offers) = offers(view, taker, Some(&terms), rules) else { return Vec::new() };
    let mut found: Vec<Found<'_>> = Vec::new();
    for node in view.nodes.iter().filter(|node| offers.marks.has(node)) {
        if !node.movable || terms.fitness_pct(node.traits) == 0 {
            continue;
        }
        let Some(this) = judge(view, &offers, rules, node) else { continue };
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
fn judge<'a, R: Rules>(
    view: &PoolView,
    offers: &Offers,
    rules: &R,
    node: &'a NodeView,
) -> Option<Found<'a>> {
    let Some(id) = node.site else {
        let price = if R::TELLS_APART { Price::LIGHT } else { Price::FREE };
        return Some(Found { price, worth: rules.worth(None, node), load: 0.0, node });
    };
    let place = view.place(id)?;
    let (offer, donor) = (offers.by_place[place], &view.sites[place]);
    let spared = offer.light && rules.spares(donor, node);
    let price = if spared { Price::LIGHT } else { offer.any? };
    Some(Found { price, worth: rules.worth(Some(donor), node), load: donor.load(), node })
}

/// Keeps what is not free only as far as it is as good as the first of it.
fn cut(found: &mut Vec<Found<'_>>) {
    let Some(first) = found.iter().find(|f| f.price != Price::FREE).copied() else { return };
    let same = |f: &Found<'_>| (f.price, f.worth) == (first.price, first.worth);
    found.retain(|f| f.price == Price::FREE || same(f));
}

#[cfg(test)]
mod tests {
    use crate::pools::pools;
    use crate::{Kind, Thresholds};
    use pool_model::{Classes, PoolView, Reason, Stock};
    use proptest::prelude::*;

    proptest! {
        /// Without a stock, the nodes themselves are looked at, as a naive policy would.
        #[test]
        fn the_stock_changes_no_decision(
            view in pools(),
            more in prop::collection::vec(0u32..4, 24),
        ) {
            let mut view = view;
            for (site, classes) in view.sites.iter_mut().zip(&more) {
                site.terms.wants = Classes(site.terms.wants.0 | classes << 1);
            }
            for (node, classes) in view.nodes.iter_mut().zip(&more[4..]) {
                node.traits.classes = Classes(node.traits.classes.0 | classes << 1);
            }
            view.sum_up();
            let naive = PoolView { stock: Stock::default(), ..view.clone() };
            for kind in Kind::ALL {
                let policy = kind.build(Thresholds::default());
                for site in &view.sites {
                    for reason in [Reason::Floor, Reason::Admin, Reason::TakeBack, Reason::Load] {
                        let found = policy.candidates(&view, site.id, reason);
                        let twin = policy.candidates(&naive, site.id, reason);
                        prop_assert_eq!(&found, &twin, "{} {:?}", kind, reason);
                        for best in [None, found.first().copied()] {
                            let stage = policy.stage(&view, site.id, reason, best);
                            let twin = policy.stage(&naive, site.id, reason, best);
                            prop_assert_eq!(stage, twin, "{} {:?}", kind, reason);
                        }
                    }
                }
            }
        }
    }
}
