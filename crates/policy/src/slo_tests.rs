//! Rules one by one, against a naive twin, and at rest.

use super::*;
use crate::CANDIDATES_MAX;
use crate::pools::{Made, check_common, constant, drive, pool, pools, site, site_view};
use pool_model::{Guarantee, NodeId, Objective};
use proptest::prelude::*;

const POLICY: Slo = Slo { thresholds: Thresholds::DEFAULT };
const LOAD: Reason = Reason::Load;

/// A site that is to answer within 50 ms, and takes 5 ms for a request. Nodes take 8 at once.
fn timed(number: u16, demand: u32, priority: u8, bounds: [u16; 3]) -> SiteView {
    let mut view = site_view(number, demand, priority, bounds);
    view.terms.objective = Some(Objective { p99_us: 50_000 });
    view.service_us = 5_000;
    view
}

fn donors(view: &PoolView, taker: u16) -> Vec<u16> {
    let found = POLICY.candidates(view, site(taker), LOAD);
    found.into_iter().map(|c| c.donor.map_or(0, SiteId::get)).collect()
}

#[test]
fn a_site_asks_when_half_its_objective_is_spent() {
    let need = |demand| {
        let view = pool(0, &[(timed(1, demand, 0, [1, 1, 9]), 2)]);
        POLICY.need(&view, site(1))
    };
    // Two nodes take 16 at once: 80 requests are there for 25 ms.
    assert_eq!(need(80), None);
    assert_eq!(need(81), Some(LOAD));
}

#[test]
fn where_nothing_is_measured_the_load_counts() {
    let mut late = timed(1, 17, 0, [1, 1, 9]);
    assert_eq!(POLICY.need(&pool(0, &[(late, 2)]), site(1)), None);
    late.service_us = 0;
    assert_eq!(POLICY.need(&pool(0, &[(late, 2)]), site(1)), Some(LOAD));
    late.terms.objective = None;
    assert_eq!(POLICY.need(&pool(0, &[(late, 2)]), site(1)), Some(LOAD));
}

#[test]
fn no_node_is_asked_for_where_nobody_waits() {
    let slow = SiteView { service_us: 90_000, ..timed(1, 16, 0, [1, 1, 9]) };
    assert_eq!(POLICY.need(&pool(0, &[(slow, 2)]), site(1)), None);
}

#[test]
fn a_site_gives_while_its_objective_holds_without_the_node() {
    let taker = (timed(1, 999, 0, [1, 1, 9]), 1);
    // With one node of two, 40 requests take 25 ms.
    assert_eq!(donors(&pool(0, &[taker, (timed(2, 40, 9, [1, 1, 9]), 2)]), 1), [2, 2]);
    assert_eq!(donors(&pool(0, &[taker, (timed(2, 41, 9, [1, 1, 9]), 2)]), 1), []);
    // Without an objective it would count as loaded.
    assert_eq!(donors(&pool(0, &[taker, (site_view(2, 40, 9, [1, 1, 9]), 2)]), 1), []);
}

#[test]
fn an_objective_reaches_into_lower_priorities_down_to_hard() {
    let lower = site_view(2, 999, 0, [2, 4, 9]);
    let mut view = pool(0, &[(timed(1, 999, 1, [1, 1, 6]), 1), (lower, 4)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(view.sites[1].nodes, 2);
    // Only as far as the objective asks.
    let mut view = pool(0, &[(timed(1, 90, 1, [1, 1, 6]), 1), (lower, 4)]);
    drive(&POLICY, &mut view, &[]);
    assert_eq!(view.sites[0].nodes, 3);
}

/// Rule 3: a flood at one site does not take its neighbour along.
#[test]
fn who_is_lost_gives_to_an_equal_that_wants_less() {
    let small = timed(1, 100, 0, [1, 1, 9]);
    let flooded = timed(2, 2_000, 0, [1, 1, 9]);
    assert_eq!(donors(&pool(0, &[(small, 1), (flooded, 7)]), 1), [2; 4]);
    assert_eq!(donors(&pool(0, &[(small, 1), (flooded, 7)]), 2), []);
    // Not where the other still keeps its objective, nor below its soft guarantee.
    assert_eq!(donors(&pool(0, &[(small, 1), (timed(2, 400, 0, [1, 1, 9]), 7)]), 1), []);
    let promised = timed(2, 2_000, 0, [1, 7, 9]);
    assert_eq!(donors(&pool(0, &[(small, 1), (promised, 7)]), 1), []);
}

#[test]
fn two_equal_floods_leave_nodes_where_they_are() {
    let flooded = |number| timed(number, 2_000, 0, [1, 1, 9]);
    let view = pool(0, &[(flooded(1), 2), (flooded(2), 6)]);
    assert_eq!([donors(&view, 1), donors(&view, 2)], [vec![], vec![]]);
}

/// What the twin makes of a site: whether it is hot with so much capacity, and how late.
fn late(of: &SiteView, capacity: u32) -> (bool, Option<f64>) {
    let demand = f64::from(of.in_flight + of.queued);
    let load = if demand == 0.0 { 0.0 } else { demand / f64::from(capacity) };
    let Some(Objective { p99_us }) = of.terms.objective.filter(|_| of.service_us > 0) else {
        return (load > 1.0, None);
    };
    let delay = f64::from(of.service_us) * load.max(1.0);
    let share = delay / f64::from(p99_us);
    (load > 1.0 && share > 0.5 + 1e-9, Some(share))
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
        let Guarantee { hard, soft, .. } = from.terms.guarantee;
        if from.nodes <= hard {
            continue;
        }
        let (mine, theirs) = (to.terms.priority.0, from.terms.priority.0);
        let (_, my_share) = late(to, to.capacity);
        let (_, share) = late(from, from.capacity);
        let timed = share.is_some();
        let calm = !late(from, from.capacity - node.max_in_flight).0;
        let wants_soft = reason == Reason::TakeBack && to.nodes < to.terms.guarantee.soft;
        let wants = |of: &SiteView| {
            let demand = f64::from(of.in_flight + of.queued);
            demand * f64::from(of.service_us) / f64::from(of.terms.objective.unwrap().p99_us)
        };
        let saves = || share.is_some_and(|s| s > 1.0) && wants(to) < wants(from);
        let class = match (reason, theirs.cmp(&mine)) {
            (Reason::Floor, _) if from.nodes > soft => (1, theirs),
            (Reason::Floor, _) => (2, theirs),
            _ if calm && (timed || from.load() < 0.5) => (1, 0),
            (_, Ordering::Less) if wants_soft || my_share.is_some() => (2, theirs),
            (_, Ordering::Equal) if wants_soft && from.nodes > soft => (3, theirs),
            (_, Ordering::Equal) if my_share.is_some() && from.nodes > soft && saves() => {
                (3, theirs)
            }
            _ => continue,
        };
        all.push((class.0, class.1, from.load(), node.in_flight, node.id));
    }
    all.sort_by(|a, b| a.partial_cmp(b).unwrap());
    all.first().map(|best| best.4)
}

fn check_rules(made: &Made) -> Result<(), TestCaseError> {
    check_common(made)?;
    let (taker, Some(donor)) = (made.taker, made.donor) else { return Ok(()) };
    let equal = donor.terms.priority == taker.terms.priority;
    let kept = donor.nodes > donor.terms.guarantee.soft;
    let thresholds = &Thresholds::DEFAULT;
    let usual = Guaranteed { thresholds, taker: &taker, reason: made.reason };
    let spared = Timely { usual }.spares(&donor, &made.node);
    let lower = donor.terms.priority < taker.terms.priority;
    prop_assert!(made.reason == Reason::Floor || spared || lower || (equal && kept));
    Ok(())
}

proptest! {
    #[test]
    fn the_best_candidate_is_the_naive_one(view in pools()) {
        for taker in &view.sites {
            for reason in [LOAD, Reason::TakeBack, Reason::Floor] {
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
        // At rest nobody is late while a free node could help, or a site that can spare one.
        for taker in view.sites.iter().filter(|s| POLICY.is_hot(s)) {
            let full = taker.nodes >= taker.terms.guarantee.max;
            let found = POLICY.candidates(&view, taker.id, LOAD);
            prop_assert!(full || found.is_empty());
        }
    }
}
