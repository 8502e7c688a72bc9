//! The machine's monotonic clock, and what the scheduler says about a thread.
//!
//! `CLOCK_MONOTONIC` is one clock for all processes of a machine, so window numbers computed here
//! agree between a stub and a generator in different processes.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Width of a window of time in which work is counted: the paper's figures use 10 ms.
pub const WINDOW_NS: u64 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Nanoseconds since an arbitrary point, the same for all processes of this machine.
///
/// Does not block; costs no system call where the kernel offers its vDSO.
#[must_use]
pub fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    // The clocks used here start at zero and cannot be set, so neither field is negative.
    now.tv_sec.unsigned_abs() * SECOND_NS + now.tv_nsec.unsigned_abs()
}

/// Number of the 10 ms window that holds the time `at_ns`.
#[must_use]
pub fn window_of(at_ns: u64) -> u64 {
    at_ns / WINDOW_NS
}

/// A duration in nanoseconds; saturates at 584 years.
#[must_use]
pub fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Names a thread of this process to the kernel, so that its CPU time can be read by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTask(i32);

impl ThreadTask {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Time that the thread ran and waited so far; zeros when the thread is gone or the kernel
    /// keeps no scheduler statistics. Exact for the calling thread; for another it may lack what
    /// that thread ran since the last tick of the kernel.
    #[must_use]
    pub fn time(self) -> ThreadTime {
        let mut time = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.0))
            .ok()
            .and_then(|text| ThreadTime::parse(&text))
            .unwrap_or_default();
        if self == Self::current() {
            time.run_ns = clock_ns(ClockId::ThreadCPUTime);
        }
        time
    }
}

/// The scheduler's nanosecond counters of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Nanoseconds on a CPU, user and system together.
    pub run_ns: u64,
    /// Nanoseconds in which the thread could have run but no CPU was free.
    pub wait_ns: u64,
}

impl ThreadTime {
    /// What was added since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let run_ns = fields.next()?.parse().ok()?;
        let wait_ns = fields.next()?.parse().ok()?;
        Some(Self { run_ns, wait_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_forward_and_windows_follow_it() {
        let first = now_ns();
        let second = now_ns();
        assert!(second >= first);
        assert_eq!(window_of(WINDOW_NS - 1), 0);
        assert_eq!(window_of(WINDOW_NS), 1);
    }

    #[test]
    fn work_of_this_thread_shows_in_its_run_time() {
        let task = ThreadTask::current();
        let before = task.time();
        let until = now_ns() + 30_000_000;
        while now_ns() < until {
            std::hint::black_box(0u64);
        }
        let spent = task.time().since(before);
        assert!(spent.run_ns > 1_000_000, "30 ms of work must show: {spent:?}");
    }

    #[test]
    fn malformed_statistics_are_refused() {
        assert_eq!(ThreadTime::parse("12 34 5\n"), Some(ThreadTime { run_ns: 12, wait_ns: 34 }));
        assert_eq!(ThreadTime::parse("12"), None);
        assert_eq!(ThreadTime::parse("a b"), None);
    }
}
