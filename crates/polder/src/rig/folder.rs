//! The private folder of a rig.

use crate::runtime_dir::check_private;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The longest folder: with `/run` behind it, it stays below what a pool allows for its own.
const FOLDER_MAX_BYTES: usize = 48;

/// What the names of rigs' folders begin with.
const PREFIX: &str = "polder-rig-";
/// Locked for as long as a rig lives.
const LOCK_FILE: &str = "lock";
/// Folders looked at for leftovers: more lie in no sane folder for temporary files.
const ENTRIES_MAX: usize = 10_000;

/// A folder with mode 0700 that is removed when dropped.
#[derive(Debug)]
pub(super) struct PrivateFolder {
    folder: TempDir,
    _lock: File,
}

impl PrivateFolder {
    /// Makes one in the first of the usual places that allows it and whose name is short enough
    /// for sockets in it. Removes what killed rigs left there.
    pub(super) fn make() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
        Self::make_in(runtime.into_iter().chain(usual))
    }

    fn make_in(places: impl IntoIterator<Item = PathBuf>) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "no folder for temporary files");
        for place in places {
            match Self::make_at(&place) {
                Ok(folder) => return Ok(folder),
                Err(error) => {
                    last = io::Error::new(error.kind(), format!("{}: {error}", place.display()));
                }
            }
        }
        Err(last)
    }

    fn make_at(place: &Path) -> io::Result<Self> {
        remove_leftovers(place);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(place)?;
        if folder.path().as_os_str().len() > FOLDER_MAX_BYTES || !folder.path().is_absolute() {
            let text = format!("needs an absolute path of at most {FOLDER_MAX_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // Locked before it has its name: whoever looks for leftovers never finds it unlocked.
        let unnamed = folder.path().join("new");
        let lock = File::create(&unnamed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(&unnamed, folder.path().join(LOCK_FILE))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders whose rigs were killed: their lock is there, and nobody holds it.
fn remove_leftovers(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let path = entry.path();
        if !is_ours || check_private(&path).is_err() {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK_FILE)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // Another rig may be removing it too.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_short_and_gone_afterwards() {
        let folder = PrivateFolder::make().unwrap();
        let mode = folder.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(folder.path().as_os_str().len() <= FOLDER_MAX_BYTES);
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn places_that_do_not_fit_are_passed_over() {
        let base = tempfile::tempdir().unwrap();
        let long = base.path().join("a".repeat(60));
        fs::create_dir(&long).unwrap();
        let missing = base.path().join("missing");
        let folder =
            PrivateFolder::make_in([missing.clone(), long.clone(), "/tmp".into()]).unwrap();
        assert!(folder.path().starts_with("/tmp"));
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0, "nothing is left behind");
        let error = PrivateFolder::make_in([missing]).unwrap_err();
        assert!(error.to_string().contains("missing"));
    }

    #[test]
    fn what_a_killed_rig_left_goes_and_live_ones_stay() {
        let base = tempfile::Builder::new().prefix("p").rand_bytes(3).tempdir_in("/tmp").unwrap();
        let made = |name: &str| {
            let path = base.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
            path
        };
        let killed = made("polder-rig-killed");
        fs::write(killed.join(LOCK_FILE), "").unwrap();
        fs::create_dir(killed.join("run")).unwrap();
        let starting = made("polder-rig-starting");
        let other = made("something-else");
        fs::write(other.join(LOCK_FILE), "").unwrap();
        let first = PrivateFolder::make_at(base.path()).unwrap();
        let second = PrivateFolder::make_at(base.path()).unwrap();
        assert!(!killed.exists());
        assert!(starting.exists() && other.exists());
        assert!(first.path().exists() && second.path().exists());
    }
}
