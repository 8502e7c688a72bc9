//! What processes and groups used.

use std::fs;

/// How often a quota stopped a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods in which something ran.
    pub periods: u64,
    /// Those in which the quota was used up while more was to be done.
    pub throttled: u64,
}

impl Throttling {
    /// From a group's `cpu.stat`, which has these two alike in both versions.
    pub(crate) fn read(text: &str) -> Self {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        Self { periods: value("nr_periods"), throttled: value("nr_throttled") }
    }

    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
        }
    }
}

/// CPU time of the living threads of a process, from the scheduler's nanosecond counters; 0 for
/// one that is gone.
pub(crate) fn cpu_ns_of(process: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return 0 };
    let of = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).unwrap_or_default();
        text.split_ascii_whitespace().next().and_then(|run| run.parse::<u64>().ok()).unwrap_or(0)
    };
    threads.flatten().map(|thread| of(thread.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_tell_alike() {
        let v1 = "nr_periods 408\nnr_throttled 378\nthrottled_time 1335557534\n";
        let v2 = "usage_usec 9\nuser_usec 5\nnr_periods 408\nnr_throttled 378\n";
        let expected = Throttling { periods: 408, throttled: 378 };
        assert_eq!((Throttling::read(v1), Throttling::read(v2)), (expected, expected));
        assert_eq!(Throttling::read("nr_periods x\n"), Throttling::default());
        let more = Throttling { periods: 410, throttled: 379 };
        assert_eq!(more.since(expected), Throttling { periods: 2, throttled: 1 });
    }

    #[test]
    fn this_process_has_used_some_and_one_that_is_gone_none() {
        let mut sum = 0_u64;
        for number in 0..20_000_000_u64 {
            sum = std::hint::black_box(sum ^ number);
        }
        assert!(cpu_ns_of(std::process::id()) > 0);
        assert_eq!(cpu_ns_of(u32::MAX), 0);
    }
}
