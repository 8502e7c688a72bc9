//! Rules one by one, and against a naive twin.

use super::*;
use crate::CANDIDATES_MAX;
use pool_model::{Guarantee, NodeId, NodeTraits, NodeView, SiteTerms, SiteView};
use proptest::prelude::*;
use std::cmp::Ordering;

const NODE_CAPACITY: u32 = 8;

fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

/// A pool from (site, in flight) per node and (queued, hard, max) per site.
fn pool(nodes: &[(u16, u32)], sites: &[(u32, u16, u16)]) -> PoolView {
    let nodes = nodes
        .iter()
        .enumerate()
        .map(|(number, &(site, in_flight))| NodeView {
            id: NodeId::new(number as u16).unwrap(),
            site: SiteId::new(site).ok(),
            in_flight,
            max_in_flight: NODE_CAPACITY,
            movable: true,
            traits: NodeTraits::default(),
        })
        .collect();
    let sites = sites
        .iter()
        .enumerate()
        .map(|(number, &(queued, hard, max))| SiteView {
            id: site(number as u16 + 1),
            terms: SiteTerms::default().with_guarantee(Guarantee { hard, soft: hard, max }),
            queued,
            in_flight: 0,
            capacity: 0,
            nodes: 0,
            service_us: 0,
        })
        .collect();
    let mut view = PoolView { sites, nodes, ..PoolView::default() };
    view.sum_up();
    view
}

fn first(view: &PoolView, taker: u16) -> Option<(u16, Option<u16>)> {
    let found = Reconf::default().candidates(view, site(taker), Reason::Load);
    found.first().map(|c| (c.node.get(), c.donor.map(SiteId::get)))
}

#[test]
fn a_loaded_site_takes_the_least_loaded_node_of_the_lightest() {
    let nodes = [(1, 8), (2, 2), (2, 1), (3, 0), (3, 0)];
    let view = pool(&nodes, &[(9, 1, 9), (0, 1, 9), (0, 1, 9)]);
    assert_eq!(Reconf::default().need(&view, site(1)), Some(Reason::Load));
    assert_eq!(first(&view, 1), Some((3, Some(3))));
}

#[test]
fn a_free_node_goes_first() {
    let view = pool(&[(1, 8), (2, 0), (2, 0), (0, 3)], &[(9, 1, 9), (0, 1, 9)]);
    assert_eq!(first(&view, 1), Some((3, None)));
}

#[test]
fn a_donor_at_its_guarantee_gives_nothing() {
    let view = pool(&[(1, 8), (2, 0), (2, 0)], &[(9, 1, 9), (0, 2, 9)]);
    assert_eq!(first(&view, 1), None);
}

#[test]
fn a_donor_that_is_not_light_gives_nothing() {
    let view = pool(&[(1, 8), (2, 4), (2, 4)], &[(9, 1, 9), (0, 1, 9)]);
    assert_eq!(first(&view, 1), None);
}

#[test]
fn a_site_at_its_maximum_needs_nothing() {
    let view = pool(&[(1, 8), (2, 0), (2, 0)], &[(9, 1, 1), (0, 1, 9)]);
    assert_eq!(Reconf::default().need(&view, site(1)), None);
}

#[test]
fn a_site_below_its_guarantee_needs_a_node_without_load() {
    let view = pool(&[(2, 7), (2, 7)], &[(0, 1, 9), (9, 1, 9)]);
    assert_eq!(Reconf::default().need(&view, site(1)), Some(Reason::Floor));
    let found = Reconf::default().candidates(&view, site(1), Reason::Floor);
    assert_eq!(found.len(), 2);
}

#[test]
fn an_immovable_node_is_no_candidate() {
    let mut view = pool(&[(1, 8), (2, 0), (2, 0)], &[(9, 1, 9), (0, 1, 9)]);
    view.nodes[1].movable = false;
    assert_eq!(first(&view, 1), Some((2, Some(2))));
}

#[test]
fn a_node_that_cant_serve_the_taker_is_no_candidate() {
    let mut view = pool(&[(1, 8), (2, 0), (2, 1)], &[(9, 3, 9), (0, 1, 9)]);
    view.sites[0].terms.wants = pool_model::Classes(1);
    view.nodes[2].traits.classes = pool_model::Classes(1);
    view.sum_up();
    for reason in [Reason::Load, Reason::Floor] {
        let found = Reconf::default().candidates(&view, site(1), reason);
        assert_eq!(found.iter().map(|c| c.node.get()).collect::<Vec<_>>(), [2], "{reason}");
    }
}

/// The naive twin: every rule spelled out over all nodes, nothing clever.
fn naive_best(view: &PoolView, taker: SiteId) -> Option<NodeId> {
    let mut best: Option<(f64, u32, NodeId)> = None;
    for node in &view.nodes {
        let cost = match node.site {
            Some(id) if id == taker => continue,
            None => -1.0,
            Some(id) => {
                let donor = view.site(id).unwrap();
                let demand = f64::from(donor.in_flight + donor.queued);
                let rest = f64::from(donor.capacity - NODE_CAPACITY);
                let calm = demand == 0.0 || demand / rest <= 1.0;
                if donor.nodes <= donor.terms.guarantee.hard || donor.load() >= 0.5 || !calm {
                    continue;
                }
                donor.load()
            }
        };
        let this = (cost, node.in_flight, node.id);
        if best.is_none_or(|b| this.partial_cmp(&b) == Some(Ordering::Less)) {
            best = Some(this);
        }
    }
    best.map(|(_, _, id)| id)
}

proptest! {
    #[test]
    fn the_best_candidate_is_the_naive_one(
        nodes in proptest::collection::vec((0u16..=4, 0u32..=8), 1..24),
        sites in proptest::collection::vec((0u32..40, 0u16..3, 3u16..9), 4),
    ) {
        let view = pool(&nodes, &sites);
        for taker in 1..=4 {
            let found = Reconf::default().candidates(&view, site(taker), Reason::Load);
            prop_assert_eq!(found.first().map(|c| c.node), naive_best(&view, site(taker)));
            prop_assert!(found.len() <= CANDIDATES_MAX);
        }
    }

    #[test]
    fn no_answer_breaks_a_guarantee(
        nodes in proptest::collection::vec((0u16..=4, 0u32..=8), 1..24),
        sites in proptest::collection::vec((0u32..40, 0u16..3, 3u16..9), 4),
    ) {
        let view = pool(&nodes, &sites);
        for reason in [Reason::Load, Reason::Floor, Reason::Admin, Reason::TakeBack] {
            for candidate in Reconf::default().candidates(&view, site(1), reason) {
                if let Some(donor) = candidate.donor.and_then(|id| view.site(id)) {
                    prop_assert!(donor.nodes > donor.terms.guarantee.hard);
                    prop_assert!(donor.id != site(1));
                }
            }
        }
    }

    #[test]
    fn a_node_is_not_passed_to_and_fro(
        donor_loads in proptest::collection::vec(0u32..=4, 2..16),
        queued in 0u32..8,
    ) {
        let mut nodes: Vec<_> = donor_loads.into_iter().map(|load| (2, load)).collect();
        nodes.push((1, NODE_CAPACITY));
        let mut view = pool(&nodes, &[(1, 1, 99), (queued, 1, 99)]);
        let policy = Reconf::default();
        prop_assert_eq!(policy.need(&view, site(1)), Some(Reason::Load));
        let Some(best) = policy.candidates(&view, site(1), Reason::Load).first().copied() else {
            return Ok(());
        };
        let place = best.node.index();
        view.nodes[place].site = Some(site(1));
        // What the donor had in flight there ends at the donor's server; its demand is the same.
        let moved = view.nodes[place].in_flight;
        view.sum_up();
        view.sites[1].queued += moved;
        prop_assert_eq!(policy.need(&view, site(2)), None);
    }
}
