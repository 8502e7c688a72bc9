//! What one decision costs: the policy alone, on a view of 1,000 nodes and 100 sites.
//!
//! A decision is what a look asks for: whether each site needs a node, and, for one site after the
//! other that does, who would give one, until somebody would.

use load::stats::Spread;
use policy::{Kind, Policy, Thresholds};
use pool_model::{
    Classes, Guarantee, NodeId, NodeTraits, NodeView, Objective, PoolView, Priority, SiteId,
    SiteTerms, SiteView,
};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

const NODES: u16 = 1_000;
const SITES: u16 = 100;
/// Slots of a node.
const SLOTS: u32 = 8;
/// One in so many sites is loaded.
const LOADED_ONE_IN: u64 = 10;
/// Views that are decided on, each some times, of which the least counts: what else the machine
/// does only adds.
const VIEWS: u64 = 200;
const TIMES: u32 = 5;

/// The cost of one policy's decisions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    pub(crate) policy: &'static str,
    /// Of all views; microseconds.
    pub(crate) median_us: f64,
    pub(crate) low_us: f64,
    pub(crate) high_us: f64,
    /// Where every node is in use and none is to be had: all sites that need one ask in vain.
    pub(crate) median_in_vain_us: f64,
    /// Views on which some node would move.
    pub(crate) with_move: u64,
    pub(crate) views: u64,
}

/// A generator of our own: views must be the same wherever this runs.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A pool of unlike nodes and sites; a tenth of the sites is loaded.
fn view(seed: u64) -> PoolView {
    let mut random = Random(seed);
    let mut view = PoolView::default();
    for number in 1..=SITES {
        let hard = 1 + random.below(3) as u16;
        let soft = hard + random.below(8) as u16;
        let is_loaded = random.below(LOADED_ONE_IN) == 0;
        let terms = SiteTerms {
            guarantee: Guarantee { hard, soft, max: u16::MAX },
            priority: Priority(random.below(4) as u8),
            objective: Some(Objective { p99_us: 50_000 }),
            wants: Classes([0, 0, 1, 2][random.below(4) as usize]),
            unfit_pct: [0, 25, 50][random.below(3) as usize],
        };
        let Ok(id) = SiteId::new(number) else { break };
        view.sites.push(SiteView {
            id,
            terms,
            queued: if is_loaded { 100 + random.below(1_000) as u32 } else { 0 },
            in_flight: 0,
            capacity: 0,
            nodes: 0,
            service_us: 5_000,
        });
    }
    for number in 0..NODES {
        let Ok(id) = NodeId::new(number) else { break };
        let place = usize::from(number % SITES);
        let is_loaded = view.sites[place].queued > 0;
        let classes = Classes(random.below(4) as u32);
        view.nodes.push(NodeView {
            id,
            site: SiteId::from_index(place).ok(),
            in_flight: if is_loaded { SLOTS } else { random.below(u64::from(SLOTS)) as u32 },
            max_in_flight: SLOTS,
            movable: true,
            traits: NodeTraits { capacity_pct: [50, 100, 200][random.below(3) as usize], classes },
        });
    }
    view.sum_up();
    view
}

/// The same with every node full, and nobody less important or above its guarantee.
fn full(view: &PoolView) -> PoolView {
    let mut full = view.clone();
    for site in &mut full.sites {
        site.terms.priority = Priority::default();
        site.terms.guarantee = Guarantee { hard: 1, soft: u16::MAX, max: u16::MAX };
    }
    full.nodes.iter_mut().for_each(|node| node.in_flight = node.max_in_flight);
    full.sum_up();
    full
}

/// One decision: whether some node would move.
fn decide(policy: &dyn Policy, view: &PoolView) -> bool {
    let need = |site: &SiteView| policy.need(view, site.id).map(|reason| (site.id, reason));
    let needs: Vec<_> = view.sites.iter().filter_map(need).collect();
    needs.into_iter().any(|(site, reason)| !policy.candidates(view, site, reason).is_empty())
}

/// Measures every policy. Blocks for some seconds.
pub(super) fn measure() -> Vec<Decision> {
    let views: Vec<PoolView> = (1..=VIEWS).map(view).collect();
    Kind::ALL.into_iter().map(|kind| of_policy(kind, &views)).collect()
}

fn of_policy(kind: Kind, views: &[PoolView]) -> Decision {
    let policy = kind.build(Thresholds::default());
    let with_move = views.iter().filter(|view| decide(&*policy, view)).count() as u64;
    let usual = time_us(&*policy, views);
    let full: Vec<PoolView> = views.iter().map(full).collect();
    let in_vain = time_us(&*policy, &full);
    let of = |value: fn(Spread) -> f64| usual.map_or(f64::NAN, value);
    Decision {
        policy: kind.name(),
        median_us: of(|spread| spread.median),
        low_us: of(|spread| spread.low),
        high_us: of(|spread| spread.high),
        median_in_vain_us: in_vain.map_or(f64::NAN, |spread| spread.median),
        with_move,
        views: views.len() as u64,
    }
}

/// How long decisions on these views take; microseconds.
fn time_us(policy: &dyn Policy, views: &[PoolView]) -> Option<Spread> {
    let one = |view: &PoolView| {
        let times = (0..TIMES).map(|_| {
            let start = Instant::now();
            black_box(decide(black_box(policy), black_box(view)));
            start.elapsed().as_secs_f64() * 1e6
        });
        times.fold(f64::INFINITY, f64::min)
    };
    Spread::of(&views.iter().map(one).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_as_large_as_said_and_most_call_for_a_move() {
        let view = view(1);
        assert_eq!((view.nodes.len(), view.sites.len()), (1_000, 100));
        let policy = Kind::Reconf.build(Thresholds::default());
        let moving = (1..=20).filter(|&seed| decide(&*policy, &super::view(seed))).count();
        assert!(moving >= 15, "{moving}");
        assert!(!decide(&*Kind::Rigid.build(Thresholds::default()), &view));
        let asked = |kind: Kind| decide(&*kind.build(Thresholds::default()), &full(&view));
        assert!(!asked(Kind::Reconf) && !asked(Kind::ReconfPq), "nothing is to be had");
    }
}
