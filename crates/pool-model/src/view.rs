//! What one look at the pool saw, and what a policy may ask for.

use crate::{NodeId, SiteId};
use std::fmt;

/// How many nodes a site is promised and how many it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarantee {
    /// Nodes that no move ever takes from the site.
    pub hard: u16,
    /// Nodes beyond which the site takes no more.
    pub max: u16,
}

/// Why a pair of bounds is not a guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuaranteeError {
    /// The pair that was given.
    pub given: Guarantee,
}

impl fmt::Display for GuaranteeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Guarantee { hard, max } = self.given;
        write!(f, "hard = {hard} and max = {max}: hard must be at most max")
    }
}

impl std::error::Error for GuaranteeError {}

impl Guarantee {
    /// One node for certain, no upper bound.
    pub const DEFAULT: Guarantee = Guarantee { hard: 1, max: u16::MAX };

    /// Checks that `hard <= max`.
    pub const fn new(hard: u16, max: u16) -> Result<Self, GuaranteeError> {
        let given = Self { hard, max };
        if hard > max {
            return Err(GuaranteeError { given });
        }
        Ok(given)
    }
}

impl Default for Guarantee {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One site as one look saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteView {
    /// The site.
    pub id: SiteId,
    /// Its bounds.
    pub guarantee: Guarantee,
    /// Requests that wait in the queues of all live edges.
    pub queued: u32,
    /// Requests in flight at its nodes, over all live edges.
    pub in_flight: u32,
    /// Sum of `max_in_flight` of its nodes.
    pub capacity: u32,
    /// Nodes that serve it.
    pub nodes: u16,
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
}

/// The whole pool as one look saw it. `sites` is sorted by id; so is `nodes`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolView {
    /// All sites, by id.
    pub sites: Vec<SiteView>,
    /// All nodes that can be read, by id.
    pub nodes: Vec<NodeView>,
}

impl PoolView {
    /// The view of one site. Binary search.
    #[must_use]
    pub fn site(&self, id: SiteId) -> Option<&SiteView> {
        let place = self.sites.binary_search_by_key(&id, |site| site.id).ok()?;
        self.sites.get(place)
    }

    /// The view of one node. Binary search.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&NodeView> {
        let place = self.nodes.binary_search_by_key(&id, |node| node.id).ok()?;
        self.nodes.get(place)
    }

    /// Fills `capacity`, `nodes` and `in_flight` of each site from the nodes.
    pub fn sum_up(&mut self) {
        for site in &mut self.sites {
            (site.capacity, site.nodes, site.in_flight) = (0, 0, 0);
        }
        for node in &self.nodes {
            let Some(id) = node.site else { continue };
            let Ok(place) = self.sites.binary_search_by_key(&id, |site| site.id) else { continue };
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
        SiteView { id, guarantee: Guarantee::DEFAULT, queued, in_flight, capacity, nodes: 1 }
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
    fn a_guarantee_is_ordered() {
        assert!(Guarantee::new(2, 1).is_err());
        assert_eq!(Guarantee::new(2, 2).unwrap(), Guarantee { hard: 2, max: 2 });
        let words = Guarantee::new(3, 2).unwrap_err().to_string();
        assert!(words.contains("hard = 3"), "{words}");
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
        };
        let mut view = PoolView {
            sites: vec![site(9, 3, 9), SiteView { id: two, ..site(9, 0, 9) }],
            nodes: vec![
                node(0, Some(SiteId::MIN), 2),
                node(1, Some(SiteId::MIN), 5),
                node(7, None, 0),
            ],
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
    fn urgency_is_ordered() {
        assert!(Reason::Floor < Reason::TakeBack && Reason::TakeBack < Reason::Load);
    }
}
