//! Groups of this machine, and trees in plain folders that stand in for version 2.

use super::*;
use std::process::{Child, Command};

/// A tree of version 2 in a plain folder: what is written can be read back; nothing is limited.
fn fake(version: Version) -> (tempfile::TempDir, Hierarchy) {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    let mount = folder.path().to_owned();
    (folder, Hierarchy { version, mount, own })
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

#[test]
fn a_quota_is_written_in_the_words_of_version_2() {
    let (_folder, hierarchy) = fake(Version::V2);
    let path = hierarchy.own.join("x");
    fs::create_dir(&path).unwrap();
    let mut groups = Groups { version: Version::V2, path, enabled_in: None };
    groups.weigh().unwrap();
    assert_eq!(fs::read_to_string(groups.path().join("cpu.weight")).unwrap(), "1000");
    let group = groups.add("n1", Quota::of_core(0.2).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(group.path.join("cpu.max")).unwrap(), "1000 5000");
    assert!(groups.join_path("{node}").ends_with("/own/x/{node}/cgroup.procs"));
    assert!(matches!(groups.add("../n1", group.quota()), Err(LabError::Name(..))));
}

#[test]
fn version_2_hands_the_controller_down_only_where_it_must() {
    let (_folder, hierarchy) = fake(Version::V2);
    let control = hierarchy.own.join("cgroup.subtree_control");
    fs::write(&control, "cpuset cpu").unwrap();
    assert!(!enable_cpu(&hierarchy.own).unwrap());
    assert_eq!(fs::read_to_string(&control).unwrap(), "cpuset cpu");
    fs::write(&control, "cpuset").unwrap();
    assert!(enable_cpu(&hierarchy.own).unwrap());
    assert_eq!(fs::read_to_string(&control).unwrap(), "+cpu");
}

#[test]
fn where_nothing_is_allowed_all_that_was_tried_is_told() {
    let (_folder, hierarchy) = fake(Version::V2);
    // Neither folder has the control files of a group.
    let error = Groups::make_in(&hierarchy).unwrap_err();
    assert!(error.is_lack(), "{error}");
    let text = error.to_string();
    assert!(text.contains("/own/cgroup.subtree_control") && text.contains("; "), "{text}");
    assert_eq!(fs::read_dir(&hierarchy.own).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_limited_group_gets_its_share_and_no_more() {
    let Some(mut groups) = real() else { return };
    let group = groups.add("n1", Quota::of_core(0.2).unwrap()).unwrap();
    let script = format!("echo 0 >{}; while :; do :; done", groups.join_path("n1"));
    let mut busy = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    while group.processes().is_empty() {
        sleep(END_POLL);
    }
    let (before, from) = (group.cpu_ns(), Instant::now());
    sleep(Duration::from_millis(600));
    let used = (group.cpu_ns() - before) as f64 / from.elapsed().as_nanos() as f64;
    // A busy machine may give it less; a period may be counted twice.
    assert!(used < 0.25, "{used}");
    assert!(group.throttling().throttled > 10, "{:?}", group.throttling());
    assert_eq!(group.processes(), [busy.id()]);
    let path = groups.path().to_owned();
    drop(groups);
    assert!(!path.exists());
    assert!(!busy.wait().unwrap().success(), "it was killed");
}

#[test]
fn what_a_killed_run_left_goes_and_what_a_living_one_has_stays() {
    let Some(groups) = real() else { return };
    let parent = groups.path().parent().unwrap();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let left = parent.join(format!("polder-lab-{}-1-0", ended.id()));
    fs::create_dir(&left).unwrap();
    fs::create_dir(left.join("n1")).unwrap();
    let mut stray = sleeper();
    fs::write(left.join("n1/cgroup.procs"), stray.id().to_string()).unwrap();
    let Some(next) = real() else { panic!("there were groups before") };
    assert!(!left.exists());
    assert!(!stray.wait().unwrap().success(), "it was killed");
    assert!(groups.path().exists() && next.path().exists());
}

/// Groups of this machine; where it gives none, says so.
fn real() -> Option<Groups> {
    match Groups::make() {
        Ok(groups) => Some(groups),
        Err(error) if error.is_lack() => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
