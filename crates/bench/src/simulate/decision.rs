//! What one decision costs: the policy alone, on pools of 1,000 nodes and 100 sites.
//!
//! [`policy::decision`] says what a decision is, and in which pools it is dear.

use load::stats::Spread;
use policy::decision::{Case, decide};
use policy::{Kind, Policy, Thresholds};
use pool_model::PoolView;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

const NODES: u16 = 1_000;
const SITES: u16 = 100;
/// Pools that are decided on, each some times, of which the least counts: what else the machine
/// does only adds.
const VIEWS: u64 = 100;
const TIMES: u32 = 5;

/// The cost of one policy's decisions in one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decision {
    pub(crate) policy: &'static str,
    pub(crate) case: &'static str,
    /// Of all pools; microseconds.
    pub(crate) median_us: f64,
    pub(crate) low_us: f64,
    pub(crate) high_us: f64,
    /// Pools in which some node would move.
    pub(crate) with_move: u64,
    pub(crate) views: u64,
}

const fn name(case: Case) -> &'static str {
    match case {
        Case::Usual => "usual",
        Case::AllLoaded => "all are loaded",
        Case::NothingFits => "nothing fits",
        Case::HalfFits => "half fits",
    }
}

/// Measures every policy in every case. Blocks for some seconds.
pub(super) fn measure() -> Vec<Decision> {
    let mut decisions = Vec::new();
    for case in Case::ALL {
        let views: Vec<PoolView> = (1..=VIEWS).map(|seed| case.pool(NODES, SITES, seed)).collect();
        decisions.extend(Kind::ALL.into_iter().map(|kind| of_policy(kind, case, &views)));
    }
    decisions
}

fn of_policy(kind: Kind, case: Case, views: &[PoolView]) -> Decision {
    let policy = kind.build(Thresholds::default());
    let with_move = views.iter().filter(|view| decide(&*policy, view).is_some()).count() as u64;
    let spread = time_us(&*policy, views);
    let of = |value: fn(Spread) -> f64| spread.map_or(f64::NAN, value);
    Decision {
        policy: kind.name(),
        case: name(case),
        median_us: of(|spread| spread.median),
        low_us: of(|spread| spread.low),
        high_us: of(|spread| spread.high),
        with_move,
        views: views.len() as u64,
    }
}

/// How long decisions on these pools take; microseconds.
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
    fn every_policy_is_timed_in_every_case() {
        let views = vec![Case::Usual.pool(NODES, SITES, 1)];
        let decision = of_policy(Kind::ReconfPq, Case::Usual, &views);
        assert_eq!((decision.with_move, decision.views), (1, 1));
        assert!(decision.median_us > 0.0);
        let rigid = of_policy(Kind::Rigid, Case::Usual, &views);
        assert_eq!(rigid.with_move, 0);
    }
}
