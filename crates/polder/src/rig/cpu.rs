//! CPU time of the processes of a rig, from the scheduler's nanosecond counters.
//!
//! `/proc/PID/task/TID/schedstat` tells how long a thread ran and how long it could have run but
//! found no CPU free. A thread that ended takes its time with it; those of a rig live as long as
//! it does.

use load::clock::{ThreadTime, now_ns};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Most processes of one pool that are looked at: far above any rig's.
const PROCESSES_MAX: usize = 4_096;

/// What a process of a rig is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Stands in for all servers.
    Stub,
    /// `up`: holds the site record, and the records of nodes without agents.
    Parent,
    /// Carries requests and looks.
    Edge,
    /// Helps on one node.
    Agent,
}

impl Part {
    /// As shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stub => "stub",
            Self::Parent => "parent",
            Self::Edge => "edge",
            Self::Agent => "agent",
        }
    }
}

/// CPU time of all processes of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartTime {
    /// Processes.
    pub processes: usize,
    /// All their threads together.
    pub total: ThreadTime,
    /// The longest that one of the threads waited for a CPU; nanoseconds.
    pub wait_ns_worst: u64,
}

/// CPU times at one moment, or between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSnapshot {
    at_ns: u64,
    threads: BTreeMap<(Part, u32, u32), ThreadTime>,
}

impl CpuSnapshot {
    /// Of the processes given, now. Does not block; about 10 us for each thread.
    #[must_use]
    pub fn of(processes: &[(Part, u32)]) -> Self {
        let mut threads = BTreeMap::new();
        for &(part, process) in processes.iter().take(PROCESSES_MAX) {
            for thread in numbers_in(format!("/proc/{process}/task")) {
                let path = format!("/proc/{process}/task/{thread}/schedstat");
                if let Some(time) = fs::read_to_string(path).ok().and_then(|text| parse(&text)) {
                    threads.insert((part, process, thread), time);
                }
            }
        }
        Self { at_ns: now_ns(), threads }
    }

    /// What was added since `earlier`. Threads that began meanwhile count from their start.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let added = |(key, time): (&(Part, u32, u32), &ThreadTime)| {
            let before = earlier.threads.get(key).copied().unwrap_or_default();
            (*key, time.since(before))
        };
        let threads = self.threads.iter().map(added).collect();
        Self { at_ns: self.at_ns.saturating_sub(earlier.at_ns), threads }
    }

    /// Of a difference: how long it lasted; seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.at_ns as f64 / 1e9
    }

    /// All processes of one kind together.
    #[must_use]
    pub fn part(&self, part: Part) -> PartTime {
        let mut time = PartTime::default();
        let mut last = None;
        for (&(_, process, _), thread) in self.threads.iter().filter(|(key, _)| key.0 == part) {
            if last.replace(process) != Some(process) {
                time.processes += 1;
            }
            time.total.run_ns += thread.run_ns;
            time.total.wait_ns += thread.wait_ns;
            time.wait_ns_worst = time.wait_ns_worst.max(thread.wait_ns);
        }
        time
    }

    /// Of a difference: the share of a core that the processes of one kind took; percent.
    #[must_use]
    pub fn core_pct(&self, part: Part) -> f64 {
        100.0 * self.part(part).total.run_ns as f64 / self.at_ns.max(1) as f64
    }

    /// Of a difference: the share of the time in which the thread that waited longest for a CPU
    /// waited; percent.
    #[must_use]
    pub fn wait_pct_worst(&self) -> f64 {
        let worst = self.threads.values().map(|time| time.wait_ns).max().unwrap_or(0);
        100.0 * worst as f64 / self.at_ns.max(1) as f64
    }
}

/// The processes of a pool: `up` itself and its children.
pub(super) fn pool_processes(parent: u32) -> Vec<(Part, u32)> {
    let mut found = vec![(Part::Parent, parent)];
    for process in numbers_in("/proc") {
        if parent_of(process) != Some(parent) {
            continue;
        }
        let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        match line.split(|&byte| byte == 0).nth(1) {
            Some(b"edge-process") => found.push((Part::Edge, process)),
            Some(b"agent-process") => found.push((Part::Agent, process)),
            _ => {}
        }
    }
    found
}

fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last one is numbers.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn numbers_in(folder: impl AsRef<Path>) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn parse(text: &str) -> Option<ThreadTime> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let (run_ns, wait_ns) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(ThreadTime { run_ns, wait_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_a_process_shows_under_its_part() {
        let me = [(Part::Edge, std::process::id())];
        let before = CpuSnapshot::of(&me);
        let until = now_ns() + 60_000_000;
        while now_ns() < until {
            std::hint::black_box(0u64);
        }
        let spent = CpuSnapshot::of(&me).since(&before);
        assert_eq!(spent.part(Part::Edge).processes, 1);
        assert_eq!(spent.part(Part::Agent), PartTime::default());
        assert!(spent.seconds() >= 0.06);
        assert!(spent.core_pct(Part::Edge) > 1.0, "{spent:?}");
        assert!(spent.wait_pct_worst() >= 0.0);
    }

    #[test]
    fn times_are_added_up_and_the_worst_wait_is_kept() {
        let time = |run_ns, wait_ns| ThreadTime { run_ns, wait_ns };
        let threads = BTreeMap::from([
            ((Part::Edge, 1, 1), time(100, 5)),
            ((Part::Edge, 1, 2), time(200, 9)),
            ((Part::Agent, 7, 7), time(40, 0)),
        ]);
        let earlier = BTreeMap::from([((Part::Edge, 1, 1), time(60, 5))]);
        let later = CpuSnapshot { at_ns: 3_000, threads };
        let spent = later.since(&CpuSnapshot { at_ns: 2_000, threads: earlier });
        let edge = spent.part(Part::Edge);
        assert_eq!((edge.processes, edge.total.run_ns, edge.wait_ns_worst), (1, 240, 9));
        assert!((spent.core_pct(Part::Agent) - 4.0).abs() < 1e-9);
        assert!((spent.wait_pct_worst() - 0.9).abs() < 1e-9);
    }

    #[test]
    fn this_test_has_a_parent_and_a_process_that_is_gone_has_no_time() {
        assert!(parent_of(std::process::id()).is_some());
        assert_eq!(parent_of(u32::MAX), None);
        let gone = CpuSnapshot::of(&[(Part::Stub, u32::MAX)]);
        assert_eq!(gone.part(Part::Stub).processes, 0);
        let found = pool_processes(std::process::id());
        assert_eq!(found, [(Part::Parent, std::process::id())], "no edges run here");
    }
}
