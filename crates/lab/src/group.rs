//! Groups of processes with a CPU quota.
//!
//! ```text
//! <parent>/polder-lab-PROCESS-START-NUMBER/    one for each `Groups`
//!     n1/  cgroup.procs  cpu.max | cpu.cfs_quota_us
//!     n2/  ...
//! ```

use crate::cgroup::{Hierarchy, Version};
use crate::error::{LabError, check_name, on};
use crate::owner;
use crate::quota::Quota;
use crate::usage::{self, Throttling};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long processes of a group that goes may take to end after SIGKILL: one that is throttled
/// runs only once in a period.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at a group that empties.
const END_POLL: Duration = Duration::from_millis(5);
/// Groups of others looked at for leftovers: far above what a machine has in one place.
const ENTRIES_MAX: usize = 10_000;

/// How much more of a busy core all nodes together get than one other thread: a node stands for a
/// machine of its own, whose quota nobody else takes.
const WEIGHT: u32 = 10;

/// Groups that were made by this process so far: each has a name of its own.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A set of groups. Removed when dropped, with every process that is still in them.
#[derive(Debug)]
pub struct Groups {
    version: Version,
    path: PathBuf,
    /// The parent, if it did not hand the controller down before.
    enabled_in: Option<PathBuf>,
}

/// One group of processes that share a quota.
#[derive(Clone, Debug)]
pub struct Group {
    path: PathBuf,
    quota: Quota,
}

impl Groups {
    /// Finds a place where quotas can be given, and removes what killed runs left there.
    ///
    /// # Errors
    ///
    /// [`LabError::NoQuota`] where this process may not, with what was tried.
    pub fn make() -> Result<Self, LabError> {
        let hierarchy = Hierarchy::find().map_err(LabError::NoQuota)?;
        Self::make_in(&hierarchy)
    }

    fn make_in(hierarchy: &Hierarchy) -> Result<Self, LabError> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{number}", owner::own_name());
        let mut refusals = Vec::new();
        for parent in hierarchy.parents() {
            remove_leftovers(&parent);
            match Self::make_at(hierarchy.version, &parent, &name) {
                Ok(groups) => return Ok(groups),
                Err(error) => refusals.push(error.to_string()),
            }
        }
        Err(LabError::NoQuota(refusals.join("; ")))
    }

    fn make_at(version: Version, parent: &Path, name: &str) -> Result<Self, LabError> {
        let path = parent.join(name);
        fs::create_dir(&path).map_err(on(&path))?;
        // From here on, dropping it removes what was made.
        let mut groups = Self { version, path, enabled_in: None };
        if version == Version::V2 {
            if enable_cpu(parent)? {
                groups.enabled_in = Some(parent.to_owned());
            }
            enable_cpu(&groups.path)?;
        }
        groups.weigh()?;
        // Whether quotas are taken here shows only by giving one.
        let probe = groups.add("probe", Quota::of_core(1.0)?)?;
        fs::remove_dir(&probe.path).map_err(on(&probe.path))?;
        Ok(groups)
    }

    fn weigh(&self) -> Result<(), LabError> {
        let (file, usual) = match self.version {
            Version::V1 => ("cpu.shares", 1_024),
            Version::V2 => ("cpu.weight", 100),
        };
        let file = self.path.join(file);
        fs::write(&file, (WEIGHT * usual).to_string()).map_err(on(&file))
    }

    /// Makes a group with a quota. Nothing is in it yet.
    ///
    /// # Errors
    ///
    /// [`LabError::Name`] for a name that is none, [`LabError::Io`] when the kernel refuses.
    pub fn add(&mut self, name: &str, quota: Quota) -> Result<Group, LabError> {
        check_name(name)?;
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(on(&path))?;
        let set = |file: &str, text: String| {
            let file = path.join(file);
            fs::write(&file, text).map_err(on(&file))
        };
        match self.version {
            Version::V1 => {
                // The quota of a new group is none: the order does not matter.
                set("cpu.cfs_period_us", quota.period_us().to_string())?;
                set("cpu.cfs_quota_us", quota.quota_us().to_string())?;
            }
            Version::V2 => {
                set("cpu.max", format!("{} {}", quota.quota_us(), quota.period_us()))?;
            }
        }
        Ok(Group { path, quota })
    }

    /// Which interface the kernel offers here.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The file of a group that a process writes `0` to in order to join. `name` may hold
    /// placeholders.
    #[must_use]
    pub fn join_path(&self, name: &str) -> String {
        self.path.join(name).join("cgroup.procs").display().to_string()
    }

    /// The folder that holds the groups.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // What stays all the same goes at the next start.
        let _ = remove(&self.path);
        if let Some(parent) = &self.enabled_in {
            // Refused while another run uses it, and rightly so.
            let _ = fs::write(parent.join("cgroup.subtree_control"), "-cpu");
        }
    }
}

impl Group {
    /// Its quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// Its processes at this moment.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        processes_in(&self.path)
    }

    /// CPU time that its living processes took so far; nanoseconds. Those that ended are missing.
    #[must_use]
    pub fn cpu_ns(&self) -> u64 {
        self.processes().into_iter().map(usage::cpu_ns_of).sum()
    }

    /// How often its quota stopped it so far; zeros where the kernel does not tell.
    #[must_use]
    pub fn throttling(&self) -> Throttling {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap_or_default();
        Throttling::read(&text)
    }
}

/// Has a group of version 2 hand `cpu` down; says whether that is new.
fn enable_cpu(group: &Path) -> Result<bool, LabError> {
    let file = group.join("cgroup.subtree_control");
    let has = fs::read_to_string(&file).map_err(on(&file))?;
    if has.split_whitespace().any(|one| one == "cpu") {
        return Ok(false);
    }
    fs::write(&file, "+cpu").map_err(on(&file))?;
    Ok(true)
}

fn processes_in(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    // A process of another namespace is shown as 0.
    text.lines().filter_map(|line| line.parse().ok()).filter(|&process| process != 0).collect()
}

/// Removes the groups of runs that have ended without doing it.
fn remove_leftovers(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        if owner::is_abandoned(&entry.file_name().to_string_lossy()) {
            // Another run may be removing it too, or it may belong to somebody else.
            let _ = remove(&entry.path());
        }
    }
}

/// Ends what is in a set of groups and removes it. Blocks at most [`END_PATIENCE`].
fn remove(path: &Path) -> io::Result<()> {
    let mut groups: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(path)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            groups.push(entry.path());
        }
    }
    groups.push(path.to_owned());
    let deadline = Instant::now() + END_PATIENCE;
    for group in &groups {
        loop {
            let left = processes_in(group);
            for process in &left {
                let pid = i32::try_from(*process).ok().and_then(Pid::from_raw);
                // It may have ended just now.
                let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
            }
            // A dying process holds its group for a moment longer than it is listed.
            match fs::remove_dir(group) {
                Ok(()) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return Err(error),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => sleep(END_POLL),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
