//! Peers and owners of another user. The test weakens the outer barriers (the directory's and
//! the socket's mode) on purpose: the check of the user must hold alone.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use remote_memory::shm::{OwnedRegion, RegionServer, ShmError, attach};
use tempfile::TempDir;

use crate::processes::Part;
use crate::support::{DEADLINE, private_directory};

/// The user without rights of most systems.
const NOBODY: u32 = 65534;

/// A copy of this test program that nobody can run, wherever the original lies; or nothing, said
/// aloud, where we cannot become nobody.
fn program_for_nobody() -> Option<(TempDir, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can start a process of another user");
        return None;
    }
    let directory = private_directory();
    set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let program = directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let runs = Command::new(&program).arg("--list").uid(NOBODY).gid(NOBODY).output();
    if !runs.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: user {NOBODY} cannot run programs in {}", directory.path().display());
        return None;
    }
    Some((directory, program))
}

#[test]
fn a_peer_of_another_user_is_refused() {
    let Some((_keep, program)) = program_for_nobody() else { return };
    let directory = private_directory();
    let socket = directory.path().join("root.sock");
    let region = Arc::new(OwnedRegion::create("root", 64).unwrap());
    let _server = RegionServer::bind(&socket, region).unwrap();
    let stranger = |part: &str| {
        let mut command = Command::new(&program);
        Part::start_as(part, &socket, command.uid(NOBODY).gid(NOBODY)).finish()
    };
    let said = stranger("stranger");
    assert!(said.iter().any(|line| line.contains("ACCESS") || line.contains("13")), "{said:?}");

    set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
    let said = stranger("stranger");
    assert!(said.iter().any(|line| line.contains("reason: OtherUser")), "{said:?}");
    assert!(attach(&socket, DEADLINE).is_ok(), "the owner's own user still may");
}

#[test]
fn a_region_of_another_user_is_not_trusted() {
    let Some((_keep, program)) = program_for_nobody() else { return };
    let directory = private_directory();
    chown(directory.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let socket = directory.path().join("nobody.sock");
    let mut command = Command::new(&program);
    let _owner = Part::start_as("owner", &socket, command.uid(NOBODY).gid(NOBODY));
    // We are root and could reach it; that is no reason to believe it.
    let error = attach(&socket, DEADLINE).err();
    let Some(ShmError::OtherUser { uid, .. }) = error else { panic!("{error:?}") };
    assert_eq!(uid, NOBODY);
    // Nor do we serve in a directory that is theirs.
    let region = Arc::new(OwnedRegion::create("root", 64).unwrap());
    let error = RegionServer::bind(directory.path().join("root.sock"), region).err();
    assert!(matches!(error, Some(ShmError::DirectoryNotPrivate { .. })), "{error:?}");
}
