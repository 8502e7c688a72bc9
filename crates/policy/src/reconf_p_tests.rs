//! Rules one by one, against a naive twin, and at rest.

use super::*;
use crate::CANDIDATES_MAX;
use crate::pools::{check_common, constant, drive, pool, pools, site, site_view};
use pool_model::NodeId;
use proptest::prelude::*;

fn first(view: &PoolView, taker: u16) -> Option<(u16, Option<u16>)> {
    let found = ReconfP::default().candidates(view, site(taker), Reason::Load);
    found.first().map(|c| (c.node.get(), c.donor.map(SiteId::get)))
}

#[test]
fn a_lower_priority_gives_however_loaded_it_is() {
    let hot = |number, priority| site_view(number, 99, priority, [1, 1, 9]);
    let view = pool(0, &[(hot(1, 1), 2), (hot(2, 0), 2)]);
    assert_eq!(first(&view, 1), Some((2, Some(2))));
    assert_eq!(first(&view, 2), None);
}

#[test]
fn the_lowest_priority_gives_first_and_light_sites_before_it() {
    let hot = |number, priority| site_view(number, 99, priority, [1, 1, 9]);
    let light = site_view(4, 1, 7, [1, 1, 9]);
    let view = pool(0, &[(hot(1, 5), 1), (hot(2, 2), 2), (hot(3, 1), 2), (light, 2)]);
    assert_eq!(first(&view, 1), Some((5, Some(4))));
    let view = pool(0, &[(hot(1, 5), 1), (hot(2, 2), 2), (hot(3, 1), 2), (light, 1)]);
    assert_eq!(first(&view, 1), Some((3, Some(3))));
}

/// Case 3 of the paper: the low priority is left with its minimum, whatever its load.
#[test]
fn a_loaded_site_starves_those_below_it() {
    let hot = |number, priority| site_view(number, 999, priority, [1, 6, 99]);
    let mut view = pool(0, &[(hot(1, 1), 4), (hot(2, 0), 4)]);
    drive(&ReconfP::default(), &mut view, &[]);
    assert_eq!(view.sites.iter().map(|site| site.nodes).collect::<Vec<_>>(), [7, 1]);
}

/// The naive twin: every rule spelled out over all nodes, nothing clever.
fn naive_best(view: &PoolView, taker: SiteId, floor: bool) -> Option<NodeId> {
    let to = view.site(taker).unwrap().terms;
    let mut all = Vec::new();
    for node in &view.nodes {
        if !node.movable || node.site == Some(taker) || to.fitness_pct(node.traits) == 0 {
            continue;
        }
        let Some(id) = node.site else {
            all.push((0, 0, 0.0, node.in_flight, node.id));
            continue;
        };
        let from = view.site(id).unwrap();
        let demand = f64::from(from.in_flight + from.queued);
        let rest = f64::from(from.capacity - node.max_in_flight);
        let calm = demand == 0.0 || demand / rest <= 1.0;
        let priority = from.terms.priority.0;
        if from.nodes <= from.terms.guarantee.hard {
            continue;
        } else if !floor && from.load() < 0.5 && calm {
            all.push((1, 0, from.load(), node.in_flight, node.id));
        } else if floor || priority < to.priority.0 {
            all.push((2, priority, from.load(), node.in_flight, node.id));
        }
    }
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.first().map(|best| best.4)
}

proptest! {
    #[test]
    fn the_best_candidate_is_the_naive_one(view in pools()) {
        for taker in &view.sites {
            for reason in [Reason::Load, Reason::Floor] {
                let found = ReconfP::default().candidates(&view, taker.id, reason);
                let naive = naive_best(&view, taker.id, reason == Reason::Floor);
                prop_assert_eq!(found.first().map(|c| c.node), naive);
                prop_assert!(found.len() <= CANDIDATES_MAX);
            }
        }
    }

    #[test]
    fn constant_loads_come_to_rest(
        view in pools(), picks in prop::collection::vec(0usize..8, 0..40),
    ) {
        let mut view = constant(view);
        for made in drive(&ReconfP::default(), &mut view, &picks) {
            check_common(&made)?;
            let Some(donor) = made.donor else { continue };
            let calm = donor.load() < 0.5 && donor.load_without(made.node.max_in_flight) <= 1.0;
            let lower = donor.terms.priority < made.taker.terms.priority;
            prop_assert!(made.reason == Reason::Floor || calm || lower);
        }
        // At rest a hot site has left the lower priorities nothing that it could use.
        for taker in view.sites.iter().filter(|s| s.load() > 1.0) {
            let useful = |node: &&NodeView| {
                node.movable && taker.terms.fitness_pct(node.traits) > 0
            };
            for donor in view.sites.iter().filter(|s| s.terms.priority < taker.terms.priority) {
                let some = view.nodes.iter().filter(useful).any(|n| n.site == Some(donor.id));
                let full = taker.nodes >= taker.terms.guarantee.max;
                prop_assert!(full || !some || donor.nodes <= donor.terms.guarantee.hard);
            }
        }
    }
}
