//! Random pools for the tests of the policies, and what becomes of them under constant loads.

use crate::{Candidate, Policy, Stage};
use pool_model::{
    Classes, Guarantee, NodeId, NodeTraits, NodeView, Objective, PoolView, Priority, Reason,
    SiteId, SiteTerms, SiteView,
};
use proptest::prelude::*;
use std::cmp::Reverse;

/// The class that some sites want and some nodes have.
pub(crate) const GPU: Classes = Classes(1);

/// Moves after which a pool under constant loads counts as one that never rests, for each node
/// and site. The longest runs seen need a tenth of it.
const MOVES_MAX_EACH: usize = 4;

pub(crate) fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

/// A site with this demand, priority, and hard, soft and max.
pub(crate) fn site_view(number: u16, demand: u32, priority: u8, bounds: [u16; 3]) -> SiteView {
    let [hard, soft, max] = bounds;
    let guarantee = Guarantee::new(hard, soft, max).unwrap();
    let terms = SiteTerms { guarantee, priority: Priority(priority), ..SiteTerms::default() };
    let (in_flight, capacity, nodes, service_us) = (0, 0, 0, 0);
    SiteView { id: site(number), terms, queued: demand, in_flight, capacity, nodes, service_us }
}

/// A usual node of a site (0: free).
pub(crate) fn node_view(number: u16, at: u16, capacity: u32) -> NodeView {
    NodeView {
        id: NodeId::new(number).unwrap(),
        site: SiteId::new(at).ok(),
        in_flight: 0,
        max_in_flight: capacity,
        movable: true,
        traits: NodeTraits::default(),
    }
}

/// A pool of sites, and of so many nodes of capacity 8 for each (the first: free).
pub(crate) fn pool(free: u16, sites: &[(SiteView, u16)]) -> PoolView {
    let mut view = PoolView::default();
    let at = sites.iter().map(|(site, nodes)| (site.id.get(), *nodes));
    for (at, count) in [(0, free)].into_iter().chain(at) {
        for _ in 0..count {
            view.nodes.push(node_view(view.nodes.len() as u16, at, 8));
        }
    }
    view.sites = sites.iter().map(|(site, _)| *site).collect();
    view.sum_up();
    view
}

prop_compose! {
    fn a_site(number: u16)(
        demand in 0u32..90, priority in 0u8..3, hard in 0u16..3, soft in 0u16..4, max in 0u16..9,
        wants in prop::bool::weighted(0.2), unfit_pct in prop::sample::select(vec![0u8, 50]),
        p99_us in prop::option::of(5_000u32..60_000), service_us in 0u32..20_000,
    ) -> SiteView {
        let mut view = site_view(number, demand, priority, [hard, hard + soft, hard + soft + max]);
        view.terms.wants = if wants { GPU } else { Classes::default() };
        view.terms.unfit_pct = unfit_pct;
        view.terms.objective = p99_us.map(|p99_us| Objective { p99_us });
        view.service_us = service_us;
        view
    }
}

prop_compose! {
    fn a_node(sites: u16)(
        at in 0..=sites, capacity in prop::sample::select(vec![4u32, 8]), in_flight in 0u32..9,
        movable in prop::bool::weighted(0.9), gpu in prop::bool::weighted(0.3),
    ) -> NodeView {
        let mut view = NodeView { movable, in_flight, ..node_view(0, at, capacity) };
        view.traits.classes = if gpu { GPU } else { Classes::default() };
        view
    }
}

/// Pools of unlike sites and nodes.
pub(crate) fn pools() -> impl Strategy<Value = PoolView> {
    (2u16..=4).prop_flat_map(|count| {
        let sites: Vec<_> = (1..=count).map(a_site).collect();
        let nodes = prop::collection::vec(a_node(count), 1..20);
        (sites, nodes).prop_map(|(sites, mut nodes)| {
            for (number, node) in nodes.iter_mut().enumerate() {
                node.id = NodeId::new(number as u16).unwrap();
            }
            let mut view = PoolView { sites, nodes, ..PoolView::default() };
            view.sum_up();
            view
        })
    })
}

/// The same with the demand of a site as a constant, wherever its nodes are.
pub(crate) fn constant(mut view: PoolView) -> PoolView {
    for node in &mut view.nodes {
        node.in_flight = 0;
    }
    view.sum_up();
    view
}

/// A move, with the views that it was decided on.
pub(crate) struct Made {
    pub(crate) taker: SiteView,
    pub(crate) donor: Option<SiteView>,
    pub(crate) reason: Reason,
    pub(crate) node: NodeView,
    /// For whom the move is the first of two.
    pub(crate) stage_of: Option<SiteId>,
}

/// What may be done next for one need.
pub(crate) struct Due {
    pub(crate) reason: Reason,
    pub(crate) taker: SiteView,
    pub(crate) candidate: Candidate,
    pub(crate) stage_of: Option<SiteId>,
}

/// What may be done next: the most urgent need first.
pub(crate) fn due(policy: &dyn Policy, view: &PoolView) -> Vec<Due> {
    let needs = view.sites.iter().filter_map(|s| Some((policy.need(view, s.id)?, *s)));
    let mut needs: Vec<_> = needs.collect();
    needs.sort_by_key(|(reason, site)| (*reason, Reverse(site.terms.priority), site.id));
    let first = |(reason, site): (Reason, SiteView)| {
        let best = policy.candidates(view, site.id, reason).first().copied();
        if let Some(Stage { to, candidate }) = policy.stage(view, site.id, reason, best) {
            let taker = *view.site(to).unwrap();
            return Some(Due { reason, taker, candidate, stage_of: Some(site.id) });
        }
        Some(Due { reason, taker: site, candidate: best?, stage_of: None })
    };
    needs.into_iter().filter_map(first).collect()
}

/// Moves the first candidate of a need until nobody gets anything: of the most urgent need, or
/// where `picks` has a number of whichever it says, as several edges might. Panics if it never
/// ends.
pub(crate) fn drive(policy: &dyn Policy, view: &mut PoolView, picks: &[usize]) -> Vec<Made> {
    let limit = MOVES_MAX_EACH * view.nodes.len() * view.sites.len();
    let mut made = Vec::new();
    loop {
        let due = due(policy, view);
        if due.is_empty() {
            return made;
        }
        assert!(made.len() < limit, "no rest after {limit} moves: {view:#?}");
        let pick = picks.get(made.len()).map_or(0, |pick| pick % due.len());
        let Due { reason, taker, candidate, stage_of } = due[pick];
        let Candidate { node, donor } = candidate;
        let place = view.nodes.iter().position(|n| n.id == node).unwrap();
        let node = view.nodes[place];
        assert_eq!(node.site, donor);
        let donor = donor.map(|id| *view.site(id).unwrap());
        made.push(Made { taker, donor, reason, node, stage_of });
        view.nodes[place].site = Some(taker.id);
        view.sum_up();
    }
}

/// What must hold of each move under every policy.
pub(crate) fn check_common(made: &Made) -> Result<(), TestCaseError> {
    let Made { taker, donor, node, reason, stage_of } = made;
    prop_assert!(node.movable);
    prop_assert!(taker.terms.fitness_pct(node.traits) > 0, "can't serve");
    prop_assert!(taker.nodes < taker.terms.guarantee.max, "beyond max");
    prop_assert!(donor.is_none_or(|donor| donor.nodes > donor.terms.guarantee.hard), "hard");
    let below_hard = taker.nodes < taker.terms.guarantee.hard;
    prop_assert!(stage_of.is_some() || below_hard == (*reason == Reason::Floor));
    Ok(())
}
