//! Whether a run was disturbed: threads that could have run and found no CPU free.

use load::clock::ThreadTime;
use polder::rig::{CpuSnapshot, Part};
use serde::Serialize;

/// Threads that waited longer than this were disturbed; percent of the time.
pub(crate) const WAIT_PCT_MAX: f64 = 5.0;

/// What a piece of a run cost, and how long its threads waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// CPU time of the generator; microseconds per request.
    pub(crate) generator_us: f64,
    /// CPU time of the edges, looks included; microseconds per request.
    pub(crate) edge_us: f64,
    /// CPU time of the stubs; microseconds per request.
    pub(crate) stub_us: f64,
    /// The share of the time that the thread which waited longest for a CPU waited; percent.
    pub(crate) wait_pct: f64,
}

impl Cost {
    /// Of `requests` requests: the rig's processes, and the generator's thread.
    pub(crate) fn of(requests: u64, rig: &CpuSnapshot, generator: ThreadTime) -> Self {
        let per = |run_ns: u64| run_ns as f64 / 1e3 / requests.max(1) as f64;
        let elapsed_ns = rig.seconds() * 1e9;
        let own_wait = 100.0 * generator.wait_ns as f64 / elapsed_ns.max(1.0);
        Self {
            generator_us: per(generator.run_ns),
            edge_us: per(rig.part(Part::Edge).total.run_ns),
            stub_us: per(rig.part(Part::Stub).total.run_ns),
            // The scheduler's clock runs on while a virtual machine stands still; ours does not.
            wait_pct: rig.wait_pct_worst().max(own_wait).min(100.0),
        }
    }

    /// Whether its threads waited so long that the numbers beside it are to be doubted.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.wait_pct > WAIT_PCT_MAX
    }
}

/// A note for a piece of a run that was disturbed.
pub(crate) fn note(worst_wait_pct: f64) -> Option<String> {
    (worst_wait_pct > WAIT_PCT_MAX).then(|| {
        format!(
            "disturbed: threads waited for a CPU for up to {worst_wait_pct:.0} % of the time \
             (more than {WAIT_PCT_MAX:.0} %)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_beyond_the_limit_are_noted() {
        assert_eq!(note(4.9), None);
        assert!(note(12.3).unwrap().contains("12 %"));
        let waited = ThreadTime { run_ns: 5_000, wait_ns: 0 };
        let cost = Cost::of(5, &CpuSnapshot::default(), waited);
        assert!((cost.generator_us - 1.0).abs() < 1e-9);
        assert!(!cost.is_disturbed());
        assert!(Cost { wait_pct: 6.0, ..cost }.is_disturbed());
    }
}
