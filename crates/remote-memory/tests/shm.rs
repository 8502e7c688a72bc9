//! Shared memory inside one process: making, serving, attaching and refusing regions.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use remote_memory::Mapped;
use remote_memory::shm::{OwnedRegion, RegionServer, attach};

const DEADLINE: Duration = Duration::from_secs(20);

fn private_directory() -> tempfile::TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

#[test]
fn a_peer_sees_what_the_owner_wrote_and_the_other_way_round() {
    let directory = private_directory();
    let path = directory.path().join("node.sock");
    let owned = Arc::new(OwnedRegion::create("node-3", 4096).unwrap());
    let server = RegionServer::bind(&path, Arc::clone(&owned)).unwrap();
    let attachment = attach(&path, DEADLINE).unwrap();
    let mapped = attachment.region();
    assert_eq!(mapped.descriptor(), owned.descriptor());

    owned.write(8, 7).unwrap();
    assert_eq!(mapped.compare_and_swap(8, 7, 9), Ok(7));
    assert_eq!(owned.read(8), Ok(9));
    assert!(attachment.owner_alive());
    drop(server);
    assert!(!attachment.owner_alive());
    assert_eq!(mapped.read(8), Ok(9));
    assert!(!path.exists());
}
