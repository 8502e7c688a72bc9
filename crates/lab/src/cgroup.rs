//! Where groups with a CPU quota can be made: version 1 or 2, found at run time.
//!
//! Version 1 has a hierarchy for the controller `cpu`; version 2 one for all controllers, in which
//! a parent must have handed `cpu` down. Machines with both have `cpu` in one of them.

use std::fs;
use std::path::{Path, PathBuf};

/// Which interface the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`.
    V1,
    /// `cpu.max`.
    V2,
}

/// One hierarchy with the controller `cpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    /// Where it is mounted.
    pub(crate) mount: PathBuf,
    /// This process's own group.
    pub(crate) own: PathBuf,
}

impl Hierarchy {
    /// Of this process. Errors say in words what is missing.
    pub(crate) fn find() -> Result<Self, String> {
        let read =
            |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let controllers =
            |mount: &Path| fs::read_to_string(mount.join("cgroup.controllers")).unwrap_or_default();
        Self::of(&mounts, &groups, controllers)
    }

    /// The same from the text of both files and of a mount's `cgroup.controllers`. Pure.
    fn of(
        mounts: &str,
        groups: &str,
        controllers: impl Fn(&Path) -> String,
    ) -> Result<Self, String> {
        let mut mounted: Vec<Mount> = mounts.lines().filter_map(Mount::read).collect();
        // Version 1 first: a machine that has `cpu` there does not have it in version 2.
        mounted.sort_by_key(|mount| mount.version == Version::V2);
        for mount in &mounted {
            let has_cpu = || controllers(&mount.at).split_whitespace().any(|one| one == "cpu");
            if mount.version == Version::V2 && !has_cpu() {
                continue;
            }
            let own = own_path(groups, mount.version).unwrap_or("/");
            let below = own.strip_prefix(mount.root.as_str()).unwrap_or(own);
            let own = mount.at.join(below.trim_start_matches('/'));
            return Ok(Self { version: mount.version, mount: mount.at.clone(), own });
        }
        Err("no control group hierarchy with the controller cpu is mounted".to_owned())
    }

    /// Where a group may be made: beside this process, and above it up to the mount.
    pub(crate) fn parents(&self) -> Vec<PathBuf> {
        let inside = self.own.ancestors().take_while(|path| path.starts_with(&self.mount));
        let mut parents: Vec<PathBuf> = inside.map(Path::to_owned).collect();
        if parents.is_empty() {
            parents.push(self.mount.clone());
        }
        parents
    }
}

/// A mount of a hierarchy that may have `cpu`.
struct Mount {
    version: Version,
    /// The group that is seen at the mount point.
    root: String,
    at: PathBuf,
}

impl Mount {
    /// One line of `/proc/self/mountinfo`, proc_pid_mountinfo(5).
    fn read(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, at) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)?) {
            ("cgroup", options) if options.split(',').any(|option| option == "cpu") => Version::V1,
            ("cgroup2", _) => Version::V2,
            _ => return None,
        };
        let root = root.trim_end_matches('/').to_owned();
        Some(Self { version, root, at: PathBuf::from(at) })
    }
}

/// This process's path in one hierarchy: `4:cpu,cpuacct:/a` of version 1, `0::/a` of version 2.
fn own_path(groups: &str, version: Version) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let fits = match version {
            Version::V1 => controllers.split(',').any(|one| one == "cpu"),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        fits.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const V1: &str =
        "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
    const V2: &str = "35 25 0:30 / /sys/fs/cgroup/unified rw shared:12 - cgroup2 cgroup2 rw\n";
    const NONE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw,cpu\n";

    fn find(mounts: &str, groups: &str, controllers: &str) -> Result<Hierarchy, String> {
        Hierarchy::of(mounts, groups, |_| controllers.to_owned())
    }

    #[test]
    fn version_1_is_taken_where_it_has_the_controller() {
        let groups = "3:cpuset:/c\n2:cpu,cpuacct:/a/b\n0::/u\n";
        let found = find(&format!("{NONE}{V2}{V1}"), groups, "hugetlb").unwrap();
        assert_eq!(found.version, Version::V1);
        let parents = found.parents();
        let at = |path: &str| PathBuf::from(format!("/sys/fs/cgroup/cpu,cpuacct{path}"));
        assert_eq!(parents, [at("/a/b"), at("/a"), at("")]);
    }

    #[test]
    fn version_2_is_taken_where_it_has_the_controller() {
        let groups = "0::/user.slice/session\n";
        let found = find(V2, groups, "cpuset cpu io").unwrap();
        assert_eq!(found.version, Version::V2);
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/unified/user.slice/session"));
        assert!(find(V2, groups, "cpuset io").unwrap_err().contains("cpu"));
        assert!(find(NONE, groups, "cpu").is_err());
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_tree_stays_in_it() {
        let mounts = "30 25 0:26 /docker/x /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let found = find(mounts, "4:cpu:/docker/x/y\n", "").unwrap();
        assert_eq!(found.own, Path::new("/sys/fs/cgroup/cpu/y"));
        // A process outside of what is mounted has no group there, and the mount is left.
        let outside = Hierarchy { own: "/elsewhere".into(), ..found };
        assert_eq!(outside.parents(), [Path::new("/sys/fs/cgroup/cpu")]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(
            mounts in "(\\PC|\n| - | cgroup|/|,cpu){0,80}", groups in "(\\PC|\n|:|0::/){0,40}",
        ) {
            if let Ok(found) = find(&mounts, &groups, "cpu") {
                prop_assert!(!found.parents().is_empty());
            }
        }
    }
}
