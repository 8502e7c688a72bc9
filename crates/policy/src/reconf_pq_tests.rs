//! Rules one by one, against a naive twin, and at rest.

use super::*;
use crate::CANDIDATES_MAX;
use crate::pools::{Made, check_common, constant, drive, pool, pools, site, site_view};
use pool_model::{Guarantee, NodeId, NodeView};
use proptest::prelude::*;

const POLICY: ReconfPq = ReconfPq::new(Thresholds::DEFAULT);
const LOAD: Reason = Reason::Load;
const TAKE_BACK: Reason = Reason::TakeBack;
const FLOOR: Reason = Reason::Floor;

fn hot(number: u16, priority: u8, bounds: [u16; 3]) -> SiteView {
    site_view(number, 9_999, priority, bounds)
}

/// The donors of all candidates.
fn donors(view: &PoolView, taker: u16, reason: Reason) -> Vec<u16> {
    let found = POLICY.candidates(view, site(taker), reason);
    found.into_iter().map(|c| c.donor.map_or(0, SiteId::get)).collect()
}

fn nodes(view: &PoolView) -> Vec<u16> {
    view.sites.iter().map(|site| site.nodes).collect()
}

#[test]
fn a_need_has_its_reason() {
    let reason = |nodes: u16, demand: u32| {
        let view = pool(0, &[(site_view(1, demand, 0, [1, 2, 3]), nodes)]);
        POLICY.need(&view, site(1))
    };
    assert_eq!(reason(0, 0), Some(FLOOR));
    assert_eq!(reason(1, 8), None);
    assert_eq!(reason(1, 9), Some(TAKE_BACK));
    assert_eq!(reason(2, 17), Some(LOAD));
    assert_eq!(reason(3, 999), None);
}

#[test]
fn a_loaded_lower_priority_gives_only_up_to_the_takers_soft() {
    let mut view = pool(0, &[(hot(1, 1, [2, 6, 99]), 2), (hot(2, 0, [2, 6, 99]), 6)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(nodes(&view), [6, 2]);
    let mut view = pool(0, &[(hot(1, 1, [2, 5, 99]), 2), (hot(2, 0, [2, 6, 99]), 6)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(nodes(&view), [5, 3]);
}

#[test]
fn a_light_site_gives_up_to_the_takers_maximum() {
    let light = site_view(2, 0, 9, [1, 6, 99]);
    let mut view = pool(0, &[(hot(1, 0, [1, 2, 5]), 2), (light, 6)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(nodes(&view), [5, 3]);
}

#[test]
fn what_was_lent_comes_back_from_an_equal_and_stays_then() {
    let mut view = pool(0, &[(site_view(1, 0, 0, [1, 3, 99]), 4), (hot(2, 0, [1, 3, 99]), 2)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(nodes(&view), [1, 5], "lent while light");
    view.sites[0].queued = 9_999;
    let made = drive(&POLICY, &mut view, &[]);
    assert_eq!(nodes(&view), [3, 3], "taken back up to soft");
    assert!(made.iter().all(|made| made.reason == TAKE_BACK));
    // Both are overloaded, and both have what they were promised: nothing moves any more.
    for taker in [1, 2] {
        assert_eq!(donors(&view, taker, LOAD), []);
    }
}

#[test]
fn two_equal_overloaded_sites_move_nothing() {
    let view = pool(0, &[(hot(1, 0, [1, 1, 99]), 4), (hot(2, 0, [1, 1, 99]), 4)]);
    let due = crate::pools::due(&POLICY, &view);
    assert!(due.is_empty());
}

#[test]
fn light_sites_go_before_lower_priorities_before_equals() {
    let sites = |light_nodes, lower_nodes| {
        let light = site_view(2, 1, 9, [1, 1, 99]);
        let taker = (hot(1, 5, [1, 9, 99]), 1);
        let lower = [(hot(3, 4, [1, 1, 99]), lower_nodes), (hot(4, 3, [1, 1, 99]), lower_nodes)];
        let equal = (hot(5, 5, [1, 1, 99]), 2);
        pool(0, &[taker, (light, light_nodes), lower[0], lower[1], equal])
    };
    assert_eq!(donors(&sites(2, 2), 1, TAKE_BACK), [2, 2]);
    assert_eq!(donors(&sites(1, 2), 1, TAKE_BACK), [4, 4]);
    assert_eq!(donors(&sites(1, 1), 1, TAKE_BACK), [5, 5]);
}

#[test]
fn below_hard_takes_first_from_above_soft_then_from_the_lowest() {
    let taker = (site_view(1, 0, 0, [1, 1, 9]), 0);
    let above = (hot(2, 9, [1, 1, 9]), 2);
    let below = [(hot(3, 5, [1, 4, 9]), 3), (hot(4, 3, [1, 4, 9]), 3)];
    assert_eq!(donors(&pool(0, &[taker, above, below[0], below[1]]), 1, FLOOR), [2, 2]);
    assert_eq!(donors(&pool(0, &[taker, below[0], below[1]]), 1, FLOOR), [4, 4, 4]);
    assert_eq!(donors(&pool(1, &[taker, below[0], below[1]]), 1, FLOOR)[0], 0);
}

/// The naive twin: every rule spelled out over all nodes, nothing clever.
fn naive_best(view: &PoolView, taker: SiteId, reason: Reason) -> Option<NodeId> {
    let to = view.site(taker).unwrap();
    let mut all = Vec::new();
    for node in &view.nodes {
        if !node.movable || node.site == Some(taker) || to.terms.fitness_pct(node.traits) == 0 {
            continue;
        }
        let Some(id) = node.site else {
            all.push((0, 0, 0.0, node.in_flight, node.id));
            continue;
        };
        let from = view.site(id).unwrap();
        let (mine, theirs) = (to.terms.priority.0, from.terms.priority.0);
        let Guarantee { hard, soft, .. } = from.terms.guarantee;
        if from.nodes <= hard {
            continue;
        }
        let demand = f64::from(from.in_flight + from.queued);
        let rest = f64::from(from.capacity - node.max_in_flight);
        let calm = from.load() < 0.5 && (demand == 0.0 || demand / rest <= 1.0);
        let wants_soft = reason == TAKE_BACK && to.nodes < to.terms.guarantee.soft;
        let class = match reason {
            FLOOR if from.nodes > soft => (1, theirs),
            FLOOR => (2, theirs),
            _ if calm => (1, 0),
            _ if wants_soft && theirs < mine => (2, theirs),
            _ if wants_soft && theirs == mine && from.nodes > soft => (3, theirs),
            _ => continue,
        };
        all.push((class.0, class.1, from.load(), node.in_flight, node.id));
    }
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.first().map(|best| best.4)
}

/// Whether the rules let this move happen.
fn check_rules(made: &Made) -> Result<(), TestCaseError> {
    check_common(made)?;
    let (taker, Some(donor)) = (made.taker, made.donor) else { return Ok(()) };
    if made.reason == FLOOR {
        return Ok(());
    }
    prop_assert_eq!(made.reason == TAKE_BACK, taker.nodes < taker.terms.guarantee.soft);
    let calm = donor.load() < 0.5 && donor.load_without(made.node.max_in_flight) <= 1.0;
    let (mine, theirs) = (taker.terms.priority, donor.terms.priority);
    let lent = theirs == mine && donor.nodes > donor.terms.guarantee.soft;
    // No starvation: who is loaded gives up to the taker's soft only, to no lower priority, and
    // to no equal one what its own soft guarantee holds.
    prop_assert!(calm || (made.reason == TAKE_BACK && (theirs < mine || lent)));
    Ok(())
}

fn useful_at(view: &PoolView, taker: &SiteView, at: Option<SiteId>) -> bool {
    let useful = |n: &NodeView| n.movable && taker.terms.fitness_pct(n.traits) > 0;
    view.nodes.iter().any(|node| node.site == at && useful(node))
}

/// At rest a loaded site has its soft guarantee, unless nobody has what it may take.
fn check_rest(view: &PoolView) -> Result<(), TestCaseError> {
    for taker in &view.sites {
        let Guarantee { hard, soft, .. } = taker.terms.guarantee;
        let wants = taker.nodes < hard || (taker.nodes < soft && taker.load() > 1.0);
        if !wants {
            continue;
        }
        prop_assert!(!useful_at(view, taker, None), "a free node is left");
        for donor in view.sites.iter().filter(|donor| donor.id != taker.id) {
            let Guarantee { hard, soft, .. } = donor.terms.guarantee;
            let bound = match donor.terms.priority.cmp(&taker.terms.priority) {
                _ if taker.nodes < taker.terms.guarantee.hard => hard,
                std::cmp::Ordering::Less => hard,
                std::cmp::Ordering::Equal => soft,
                std::cmp::Ordering::Greater => u16::MAX,
            };
            let none = !useful_at(view, taker, Some(donor.id));
            prop_assert!(none || donor.nodes <= bound, "{:?} could give", donor.id);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn the_best_candidate_is_the_naive_one(view in pools()) {
        for taker in &view.sites {
            for reason in [LOAD, TAKE_BACK, FLOOR] {
                let found = POLICY.candidates(&view, taker.id, reason);
                let naive = naive_best(&view, taker.id, reason);
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
        for made in drive(&POLICY, &mut view, &picks) {
            check_rules(&made)?;
        }
        check_rest(&view)?;
    }

    /// Between two sites a node that has left does not come back while loads are constant.
    #[test]
    fn between_two_sites_no_node_returns(view in pools()) {
        let mut view = constant(view);
        for node in &mut view.nodes {
            node.site = node.site.filter(|site| site.get() <= 2);
        }
        view.sites.truncate(2);
        view.sum_up();
        let mut left = std::collections::HashSet::new();
        for made in drive(&POLICY, &mut view, &[]) {
            prop_assert!(!left.contains(&(made.node.id, made.taker.id)));
            left.extend(made.donor.map(|donor| (made.node.id, donor.id)));
        }
    }
}
