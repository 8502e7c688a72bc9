//! What is run, and how long it should take.

use super::cases::{Case, CaseRound, Documents};
use super::equal::EqualRound;
use super::pools::{self, NODES, POLICIES, Scheme, minimum};
use polder::settings::PolicyName;
use std::time::Duration;

/// Burst lengths of the paper.
const SIZES: [u64; 5] = [1_024, 2_048, 4_096, 8_192, 16_384];
/// The shortest and the longest.
pub(crate) const SHORT: u64 = SIZES[0];
pub(crate) const LONG: u64 = SIZES[4];
/// Its files.
pub(crate) const FILES_BYTES: [usize; 3] = [1_024, 4_096, 16_384];
/// The one of the main numbers.
pub(crate) const FILE_BYTES: usize = FILES_BYTES[0];

/// Rotations of each burst length in the full form; the first is discarded.
const ROTATIONS: usize = 4;
/// How often each case is run with the smallest file.
const REPEATS: usize = 3;
/// In the quick form a burst is cut after so long: what a node or two serve of it tells their
/// rate as well as the whole.
const CUT: Duration = Duration::from_secs(2);

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) equal: Vec<EqualRound>,
    pub(crate) cases: Vec<CaseRound>,
    /// How long equal sites are overloaded; not at all if zero.
    pub(crate) overload: Duration,
    /// Whether traces are replayed live.
    pub(crate) live_traces: bool,
}

impl Plan {
    /// The quick form is bursts of 16K only, and each case once.
    pub(crate) fn of(quick: bool) -> Self {
        if quick { Self::quick() } else { Self::full() }
    }

    fn quick() -> Self {
        let equal =
            EqualRound { requests: LONG, body_bytes: FILE_BYTES, rotations: 2, discarded: 1 };
        let case = |case| CaseRound {
            case,
            documents: Documents::Single(FILE_BYTES),
            requests: LONG,
            cut: Some(CUT),
        };
        Self {
            equal: vec![equal],
            cases: Case::ALL.map(case).to_vec(),
            overload: Duration::ZERO,
            live_traces: false,
        }
    }

    fn full() -> Self {
        let equal = |requests, body_bytes| EqualRound {
            requests,
            body_bytes,
            rotations: ROTATIONS,
            discarded: 2,
        };
        let mut rounds = SIZES.map(|requests| equal(requests, FILE_BYTES)).to_vec();
        rounds.extend(FILES_BYTES[1..].iter().map(|&bytes| equal(LONG, bytes)));
        let single = FILES_BYTES.map(Documents::Single);
        let repeats =
            [vec![single[0]; REPEATS], single[1..].to_vec(), vec![Documents::Zipf]].concat();
        let cases = repeats.into_iter().flat_map(|documents| {
            Case::ALL.map(|case| CaseRound { case, documents, requests: LONG, cut: None })
        });
        Self {
            equal: rounds,
            cases: cases.collect(),
            overload: Duration::from_secs(60),
            live_traces: true,
        }
    }

    /// How often a scheme is rotated: that of half the nodes takes twice as long, and is only
    /// looked at beside the others.
    pub(crate) fn rotations(round: EqualRound, scheme: Scheme) -> usize {
        if scheme == Scheme::RigidSmall { round.rotations.div_ceil(2) } else { round.rotations }
    }
}

fn node_rate() -> f64 {
    pools::node(FILE_BYTES).capacity_per_second()
}

/// How long a rotation should take; seconds.
pub(crate) fn rotation_s(round: EqualRound, scheme: Scheme) -> f64 {
    2.0 * round.requests as f64 / (f64::from(scheme.usable()) * node_rate())
}

/// How long a case should take; seconds.
pub(crate) fn case_s(round: CaseRound, policy: PolicyName) -> f64 {
    let least = f64::from(minimum(policy));
    let most = f64::from(NODES) - least;
    // Of both at once the reconf policy serves each with its four, the others one after the other.
    let nodes = match (round.case, policy) {
        (Case::LowFirst, PolicyName::Reconf) | (Case::HighFirst, _) => least,
        (Case::LowFirst, _) => most,
        (Case::Together, _) => f64::from(NODES) / 2.0,
    };
    let seconds = round.requests as f64 / (nodes * node_rate());
    round.cut.map_or(seconds, |cut| seconds.min(cut.as_secs_f64()))
}

/// How long all of it should take, without traces; seconds.
pub(crate) fn expected_s(plan: &Plan) -> f64 {
    let equal = plan.equal.iter().flat_map(|&round| {
        Scheme::ALL.map(|scheme| rotation_s(round, scheme) * Plan::rotations(round, scheme) as f64)
    });
    let cases = plan.cases.iter().flat_map(|&round| POLICIES.map(|policy| case_s(round, policy)));
    equal.sum::<f64>() + cases.sum::<f64>() + plan.overload.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_form_fits_its_time_and_has_all_cases() {
        let plan = Plan::of(true);
        assert!(expected_s(&plan) < 36.0, "{}", expected_s(&plan));
        assert_eq!(plan.cases.len(), 3);
        assert!(plan.cases.iter().all(|round| round.requests == LONG));
    }

    #[test]
    fn the_full_form_has_all_lengths_files_and_repeats() {
        let plan = Plan::of(false);
        assert_eq!(plan.equal.len(), SIZES.len() + 2);
        let of = |documents| plan.cases.iter().filter(|round| round.documents == documents).count();
        assert_eq!(of(Documents::Single(FILE_BYTES)), 9);
        assert_eq!((of(Documents::Single(16_384)), of(Documents::Zipf)), (3, 3));
        assert!(plan.cases.iter().all(|round| round.cut.is_none()));
        assert!(expected_s(&plan) < 900.0, "{}", expected_s(&plan));
    }
}
