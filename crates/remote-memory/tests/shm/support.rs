//! What the tests share: a private directory, and waiting for something that must come.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// For all that must come: far longer than it takes, on a loaded machine too.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A directory of mode 0700, as sockets must lie in one.
pub(crate) fn private_directory() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o700)).tempdir().unwrap()
}

/// Waits until `holds` does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
