//! What one look at the pool saw, and what a policy may ask for.

use crate::{NodeId, NodeTraits, SiteId, SiteTerms, Stock};
use std::fmt;

/// One site as one look saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteView {
    /// The site.
    pub id: SiteId,
    /// What its settings state.
    pub terms: SiteTerms,
    /// Requests that wait in the queues of all live edges.
    pub queued: u32,
    /// Requests in flight at its nodes, over all live edges.
    pub in_flight: u32,
    /// Sum of `max_in_flight` of its nodes.
    pub capacity: u32,
    /// Nodes that serve it.
    pub nodes: u16,
    /// Mean time that its servers take for one request, in microseconds, as the edges measured
    /// it; 0 where nothing was measured yet.
    pub service_us: u32,
}

impl SiteView {
    /// `(in flight + queued) / sum of max_in_flight`; infinite for demand without any node.
    #[must_use]
    pub fn load(&self) -> f64 {
        let demand = f64::from(self.in_flight) + f64::from(self.queued);
        if demand == 0.0 {
            return 0.0;
        }
        demand / f64::from(self.capacity)
    }

    /// The load that is left on the others if a node of this capacity went away.
    #[must_use]
    pub fn load_without(&self, node_capacity: u32) -> f64 {
        Self { capacity: self.capacity.saturating_sub(node_capacity), ..*self }.load()
    }
}

/// One node as one look saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub id: NodeId,
    /// The site whose new requests it accepts.
    pub site: Option<SiteId>,
    /// Requests in flight over all live edges, those for earlier sites included.
    pub in_flight: u32,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
    /// Whether a move may name it: its agent is alive, it is not cordoned, and it is seen serving
    /// the site that it is assigned to.
    pub movable: bool,
    /// What its settings state.
    pub traits: NodeTraits,
}

/// The whole pool as one look saw it. `sites` is sorted by id; so is `nodes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// All sites, by id.
    pub sites: Vec<SiteView>,
    /// All nodes that can be read, by id.
    pub nodes: Vec<NodeView>,
    /// Which kinds of node are where.
    pub stock: Stock,
    /// Sites whose load has not been light for long enough to count as light; by id.
    pub restless: Vec<SiteId>,
}

impl PoolView {
    /// Where a site is in `sites`: at its own number where there are no gaps, which is what
    /// settings make; else by binary search.
    #[must_use]
    pub fn place(&self, id: SiteId) -> Option<usize> {
        let guess = id.index();
        if self.sites.get(guess).is_some_and(|site| site.id == id) {
            return Some(guess);
        }
        self.sites.binary_search_by_key(&id, |site| site.id).ok()
    }

    /// The view of one site.
    #[must_use]
    pub fn site(&self, id: SiteId) -> Option<&SiteView> {
        self.sites.get(self.place(id)?)
    }

    /// The view of one node. Binary search.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&NodeView> {
        let place = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        self.nodes.get(place)
    }

    /// Whether a site that looks light may only have stalled for a moment.
    #[must_use]
    pub fn is_restless(&self, id: SiteId) -> bool {
        self.restless.binary_search(&id).is_ok()
    }

    /// Fills `capacity`, `nodes` and `in_flight` of each site, and the stock, from the nodes.
    pub fn sum_up(&mut self) {
        for site in &mut self.sites {
            (site.capacity, site.nodes, site.in_flight) = (0, 0, 0);
        }
        self.stock.reset(self.sites.len());
        for node in &self.nodes {
            let place = node.site.map(|id| self.place(id));
            if place != Some(None) {
                self.stock.add(place.flatten(), node.traits.classes);
            }
            let Some(place) = place.flatten() else { continue };
            let site = &mut self.sites[place];
            site.capacity = site.capacity.saturating_add(node.max_in_flight);
            site.nodes = site.nodes.saturating_add(1);
            site.in_flight = site.in_flight.saturating_add(node.in_flight);
        }
    }
}

/// Why a node moves. The order is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The taker is below its hard guarantee.
    Floor,
    /// A person asked for it.
    Admin,
    /// The taker gets back what it had lent.
    TakeBack,
    /// The taker's load stayed high.
    Load,
}

impl Reason {
    /// The word used in logs, status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Admin => "admin",
            Self::TakeBack => "take-back",
            Self::Load => "load",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A node to be given from one site to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// The node.
    pub node: NodeId,
    /// The donor; none for a free node.
    pub from: Option<SiteId>,
    /// The taker; none to set the node free.
    pub to: Option<SiteId>,
    /// Why.
    pub reason: Reason,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(in_flight: u32, queued: u32, capacity: u32) -> SiteView {
        let id = SiteId::MIN;
        let terms = SiteTerms::default();
        SiteView { id, terms, queued, in_flight, capacity, nodes: 1, service_us: 0 }
    }

    #[test]
    fn load_is_demand_over_capacity() {
        assert_eq!(site(4, 8, 8).load(), 1.5);
        assert_eq!(site(0, 0, 0).load(), 0.0);
        assert_eq!(site(1, 0, 0).load(), f64::INFINITY);
        assert_eq!(site(4, 0, 16).load_without(8), 0.5);
        assert_eq!(site(4, 0, 8).load_without(16), f64::INFINITY);
    }

    #[test]
    fn sums_come_from_the_nodes() {
        let two = SiteId::new(2).unwrap();
        let node = |number, site, in_flight| NodeView {
            id: NodeId::new(number).unwrap(),
            site,
            in_flight,
            max_in_flight: 8,
            movable: true,
            traits: NodeTraits::default(),
        };
        let mut view = PoolView {
            sites: vec![site(9, 3, 9), SiteView { id: two, ..site(9, 0, 9) }],
            nodes: vec![
                node(0, Some(SiteId::MIN), 2),
                node(1, Some(SiteId::MIN), 5),
                node(7, None, 0),
            ],
            ..PoolView::default()
        };
        view.sum_up();
        let first = view.site(SiteId::MIN).unwrap();
        assert_eq!((first.capacity, first.nodes, first.in_flight, first.queued), (16, 2, 7, 3));
        let second = view.site(two).unwrap();
        assert_eq!((second.capacity, second.nodes, second.in_flight), (0, 0, 0));
        assert_eq!(view.node(NodeId::new(7).unwrap()).unwrap().site, None);
        assert!(view.node(NodeId::new(5).unwrap()).is_none());
    }

    #[test]
    fn a_site_is_found_with_and_without_gaps() {
        let at = |number| SiteId::new(number).unwrap();
        let sites = |numbers: &[u16]| {
            let sites = numbers.iter().map(|&number| SiteView { id: at(number), ..site(0, 0, 8) });
            PoolView { sites: sites.collect(), ..PoolView::default() }
        };
        for numbers in [&[1, 2, 3, 4][..], &[2, 3, 9], &[1, 4], &[]] {
            let view = sites(numbers);
            for number in 1..12 {
                let place = numbers.iter().position(|&other| other == number);
                assert_eq!(view.place(at(number)), place, "{number} of {numbers:?}");
                assert_eq!(
                    view.site(at(number)).map(|site| site.id.get()),
                    place.map(|p| numbers[p])
                );
            }
        }
    }

    #[test]
    fn urgency_is_ordered() {
        assert!(Reason::Floor < Reason::TakeBack && Reason::TakeBack < Reason::Load);
    }
}
