//! Two cores: one for what is measured, one for all that makes it work; and what the scheduler
//! says about a process that runs on one of them.

use anyhow::{Context as _, bail};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;

/// Passes over the threads of a process: one that starts during the first is met by the second,
/// and whoever is started by a pinned thread is pinned.
const PIN_PASSES: usize = 2;

/// The first two cores that this program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Has what is measured, alone as far as this program is concerned.
    pub(crate) measured: usize,
    /// Has load, origins and everything else.
    pub(crate) others: usize,
}

impl Cores {
    /// Finds them.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(None).context("which cores this program may use")?;
        let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let (Some(measured), Some(others)) = (cores.next(), cores.next()) else {
            bail!("this figure needs two cores: one for what is measured, one for the load");
        };
        Ok(Self { measured, others })
    }
}

/// Keeps the calling thread, and all that it starts, on one core.
pub(crate) fn pin_this_thread(core: usize) -> anyhow::Result<()> {
    sched_setaffinity(None, &only(core)).with_context(|| format!("core {core}"))
}

/// Keeps all threads of a process on one core.
pub(crate) fn pin_process(process: u32, core: usize) -> anyhow::Result<()> {
    for _ in 0..PIN_PASSES {
        for thread in threads(process)? {
            let Some(pid) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { continue };
            match sched_setaffinity(Some(pid), &only(core)) {
                // It has ended since.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => bail!("cannot keep process {process} on core {core}: {error}"),
            }
        }
    }
    Ok(())
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}

/// The scheduler's nanosecond counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessTime {
    /// All its threads together, user and system.
    pub(crate) run_ns: u64,
    /// How long the thread that ran most could have run and found its core taken. Its own
    /// process's other threads may have had the core, for short.
    pub(crate) wait_ns: u64,
}

impl ProcessTime {
    /// So far. About 10 us for each thread.
    pub(crate) fn of(process: u32) -> anyhow::Result<Self> {
        let (mut sum, mut busiest_ns) = (Self::default(), None);
        for thread in threads(process)? {
            let path = format!("/proc/{process}/task/{thread}/schedstat");
            let Some((run_ns, wait_ns)) = fs::read_to_string(path).ok().as_deref().and_then(parse)
            else {
                continue;
            };
            sum.run_ns += run_ns;
            if busiest_ns.is_none_or(|most| run_ns > most) {
                (busiest_ns, sum.wait_ns) = (Some(run_ns), wait_ns);
            }
        }
        Ok(sum)
    }

    /// What was added since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            wait_ns: self.wait_ns.saturating_sub(earlier.wait_ns),
        }
    }
}

/// A process and all that descend from it, now.
pub(crate) fn family(process: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> =
        numbers.filter_map(|number| Some((number, parent_of(number)?))).collect();
    let mut found = vec![process];
    let mut next = 0;
    // A process has one parent, so each is found once.
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, its)| *its == parent).map(|(child, _)| child));
        next += 1;
    }
    found
}

fn parent_of(process: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last one is numbers.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn threads(process: u32) -> anyhow::Result<Vec<u32>> {
    let folder = fs::read_dir(format!("/proc/{process}/task"));
    let folder = folder.with_context(|| format!("process {process} has ended"))?;
    Ok(folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::clock::now_ns;

    #[test]
    fn work_on_a_core_shows_in_the_time_of_its_process() {
        let core = Cores::find().unwrap().others;
        let before = ProcessTime::of(std::process::id()).unwrap();
        let worker = std::thread::spawn(move || {
            pin_this_thread(core).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), only(core));
            let until = now_ns() + 60_000_000;
            while now_ns() < until {
                std::hint::black_box(0u64);
            }
            // While the thread lives: what it ran goes with it.
            ProcessTime::of(std::process::id()).unwrap()
        });
        let spent = worker.join().unwrap().since(before);
        assert!(spent.run_ns > 1_000_000, "{spent:?}");
    }

    #[test]
    fn a_family_has_children_of_children() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 600 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut byte = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut byte).unwrap();
        let family = family(std::process::id());
        let below = self::family(shell.id());
        assert!(below.len() == 2 && below.iter().all(|one| family.contains(one)), "{below:?}");
        for process in below.iter().rev() {
            let pid = Pid::from_raw(i32::try_from(*process).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
    }

    #[test]
    fn what_is_no_process_is_an_error() {
        assert!(ProcessTime::of(u32::MAX).is_err());
        assert!(pin_process(u32::MAX, 0).is_err());
        assert_eq!(parse("12 34 5\n"), Some((12, 34)));
        assert_eq!(parse("x"), None);
    }
}
