//! What a whole decision of a policy costs: here, because crate `policy` knows no clock.

use policy::decision::{Case, decide};
use policy::{Kind, Thresholds};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What a decision on 1,000 nodes and 100 sites may take here at most. Measured are 10 to 60 us on
/// a quiet core; a busy core may stop the test for a while, so the best of some counts, and this
/// build isn't optimised: the bound says only that nothing is quadratic.
const BOUND: Duration = Duration::from_millis(5);

#[test]
fn a_decision_is_fast_in_the_worst_case() {
    for kind in Kind::ALL {
        let policy = kind.build(Thresholds::default());
        for case in Case::ALL {
            let view = case.pool(1_000, 100, 7);
            let once = |_| {
                let start = Instant::now();
                black_box(decide(&*policy, black_box(&view)));
                start.elapsed()
            };
            let best = (0..20).map(once).min().unwrap();
            assert!(best < BOUND, "{kind}, {case:?}: {best:?}");
        }
    }
}
