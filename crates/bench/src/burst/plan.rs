//! What is run in which order, and what of it counts.

use super::scenario::{A, B, Scenario, Scheme};
use polder::rig::RigNode;

/// Burst lengths of the paper.
pub(crate) const SIZES: [u64; 6] = [512, 1_024, 2_048, 4_096, 8_192, 16_384];
/// The shortest and the longest.
pub(crate) const SHORT: u64 = SIZES[0];
pub(crate) const LONG: u64 = SIZES[5];

/// Rotations of each size in the full form; the first is discarded.
const ROTATIONS: usize = 4;
/// Of the shortest bursts more, since each is over in a blink.
const ROTATIONS_SHORT: usize = 7;

/// Rotations of one size; the schemes take turns after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Requests in a burst.
    pub(crate) requests: u64,
    /// Rotations of every scheme.
    pub(crate) rotations: usize,
    /// Sites that get a burst in each rotation.
    pub(crate) sites: usize,
    /// Bursts at the beginning that do not count.
    pub(crate) discarded_bursts: usize,
}

/// One scenario with its rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) scenario: Scenario,
    pub(crate) rounds: Vec<Round>,
}

/// The quick form is scenario B with 24 bursts of 512 and four of 16K for each scheme, the first
/// of each discarded; the full form is everything, the first rotation of each size discarded.
pub(crate) fn plans(quick: bool) -> Vec<Plan> {
    if quick {
        let sites = B.sites();
        let round = |requests, rotations| Round { requests, rotations, sites, discarded_bursts: 1 };
        return vec![Plan { scenario: B, rounds: vec![round(SHORT, 6), round(LONG, 1)] }];
    }
    let plan = |scenario: Scenario| {
        let round = |&requests: &u64| Round {
            requests,
            rotations: if requests == SHORT { ROTATIONS_SHORT } else { ROTATIONS },
            sites: scenario.sites(),
            discarded_bursts: scenario.sites(),
        };
        Plan { scenario, rounds: SIZES.iter().map(round).collect() }
    };
    vec![plan(A), plan(B)]
}

/// How long a rotation should take, for the progress bar only; seconds.
pub(crate) fn expected_s(scenario: &Scenario, scheme: Scheme, requests: u64) -> f64 {
    let rate = RigNode::default().capacity_per_second();
    let nodes = scenario.nodes_under(scheme);
    let of = |&nodes: &u16| match scheme {
        Scheme::Reconf => requests as f64 / (f64::from(scenario.usable) * rate),
        _ => requests as f64 / (f64::from(nodes) * rate),
    };
    nodes.iter().map(of).sum()
}

/// The same for everything.
pub(crate) fn expected_total_s(plans: &[Plan]) -> f64 {
    let round = |scenario: &Scenario, round: &Round| -> f64 {
        let of = |scheme| expected_s(scenario, scheme, round.requests) * round.rotations as f64;
        Scheme::ALL.into_iter().map(of).sum()
    };
    let plan = |plan: &Plan| -> f64 { plan.rounds.iter().map(|r| round(&plan.scenario, r)).sum() };
    plans.iter().map(plan).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_form_is_24_short_and_4_long_bursts_and_fits_its_time() {
        let plans = plans(true);
        let bursts = |round: &Round| round.rotations * plans[0].scenario.sites();
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].rounds.iter().map(bursts).collect::<Vec<_>>(), [24, 4]);
        assert!(expected_total_s(&plans) < 40.0, "{}", expected_total_s(&plans));
    }

    #[test]
    fn the_full_form_keeps_three_rotations_of_each_size() {
        let plans = plans(false);
        assert_eq!(plans.len(), 2);
        for plan in &plans {
            assert_eq!(plan.rounds.len(), SIZES.len());
            for round in &plan.rounds {
                assert!(round.rotations - round.discarded_bursts / plan.scenario.sites() >= 3);
            }
        }
        assert!(expected_total_s(&plans) < 600.0);
    }

    #[test]
    fn five_nodes_of_2_000_a_second_take_16k_in_under_two_seconds() {
        let seconds = expected_s(&B, Scheme::Reconf, LONG);
        assert!((seconds - 4.0 * 1.638_4).abs() < 1e-6, "{seconds}");
    }
}
