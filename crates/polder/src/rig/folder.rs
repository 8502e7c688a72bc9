//! The private folder of a rig.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The longest folder: with `/run` behind it, it stays below what a pool allows for its own.
const FOLDER_MAX_BYTES: usize = 48;

/// Makes a folder with mode 0700 that is removed when dropped: in the first of the usual places
/// that allows it and whose name is short enough for sockets in it.
pub(super) fn private_folder() -> io::Result<TempDir> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let usual = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/dev/shm")];
    folder_in(runtime.into_iter().chain(usual))
}

fn folder_in(places: impl IntoIterator<Item = PathBuf>) -> io::Result<TempDir> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no folder for temporary files");
    for place in places {
        match folder_at(&place) {
            Ok(folder) => return Ok(folder),
            Err(error) => {
                last = io::Error::new(error.kind(), format!("{}: {error}", place.display()));
            }
        }
    }
    Err(last)
}

fn folder_at(place: &Path) -> io::Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("polder-rig-")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(place)?;
    if folder.path().as_os_str().len() > FOLDER_MAX_BYTES || !folder.path().is_absolute() {
        let text = format!("needs an absolute path of at most {FOLDER_MAX_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_short_and_gone_afterwards() {
        let folder = private_folder().unwrap();
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
        std::fs::create_dir(&long).unwrap();
        let missing = base.path().join("missing");
        let folder = folder_in([missing.clone(), long.clone(), "/tmp".into()]).unwrap();
        assert!(folder.path().starts_with("/tmp"));
        assert_eq!(std::fs::read_dir(&long).unwrap().count(), 0, "nothing is left behind");
        assert!(folder_in([missing]).unwrap_err().to_string().contains("missing"));
    }
}
