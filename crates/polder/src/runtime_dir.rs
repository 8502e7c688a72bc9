//! The folder of one running pool: its sockets, its lock, its copy of the settings.
//!
//! It belongs to one user (mode 0700), because whoever reaches the sockets in it controls the
//! pool. A folder that somebody else owns, or may enter, is refused, and so is a symbolic link in
//! its place: under a temporary folder anybody may have put it there.

use crate::settings::RUNTIME_DIR_MAX_BYTES;
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket that commands reach a running pool by.
pub const CONTROL_SOCKET: &str = "control.sock";
/// The file that a running pool holds locked.
const LOCK_FILE: &str = "lock";
/// How files end that tell a run what one before it left undecided: they outlast both.
pub(crate) const MARK_EXTENSION: &str = "mark";
/// A search for running pools ([`Base::running`]) holds each lock for microseconds; a try that
/// meets one is repeated.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// Entries looked at when running pools are searched: more lie in no sane temporary folder, and
/// the search must end.
const ENTRIES_MAX: usize = 100_000;

/// Why a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// Its path is too long for sockets in it.
    #[error(
        "{path}: longer than {RUNTIME_DIR_MAX_BYTES} bytes, too long for the sockets in it; \
         set `runtime_dir` in [pool]"
    )]
    TooLong {
        /// The folder.
        path: PathBuf,
    },
    /// Somebody else could use what lies in it.
    #[error("{path}: {why}; remove it, or set another `runtime_dir` in [pool]")]
    NotPrivate {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A pool runs there already.
    #[error("a pool runs with {path} already; stop it, or give this one another `name` in [pool]")]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{path}: {cause}")]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// The folder of a pool that runs in this process. The lock goes when this is dropped, or when the
/// process dies, whatever way it dies.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    lock: File,
}

impl RuntimeDir {
    /// Makes the folder if need be, and takes it for this process.
    pub fn take(path: PathBuf) -> Result<Self, RuntimeDirError> {
        if path.as_os_str().len() > RUNTIME_DIR_MAX_BYTES {
            return Err(RuntimeDirError::TooLong { path });
        }
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        if let Err(cause) = made.or_else(ignore_existing) {
            return Err(RuntimeDirError::Io { path, cause });
        }
        check_private(&path)?;
        let lock = lock(&path)?;
        Ok(Self { path, lock })
    }

    /// The folder that another program took in this process, with the file that it holds locked.
    pub(crate) fn resume(path: PathBuf, lock: File) -> Self {
        Self { path, lock }
    }

    /// The file that is held locked, for the next program in this process.
    pub(crate) fn lock(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what an earlier run left behind, as after a kill: all but the lock and the marks of
    /// version tables. Plain files and sockets only; a folder that somebody put there stays.
    pub fn clear(&self) -> Result<(), RuntimeDirError> {
        let failed = |path: &Path, cause| RuntimeDirError::Io { path: path.to_owned(), cause };
        for entry in fs::read_dir(&self.path).map_err(|cause| failed(&self.path, cause))? {
            let entry = entry.map_err(|cause| failed(&self.path, cause))?;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_mark =
                Path::new(&entry.file_name()).extension() == Some(MARK_EXTENSION.as_ref());
            if entry.file_name() != LOCK_FILE && !is_mark && !is_folder {
                fs::remove_file(entry.path()).map_err(|cause| failed(&entry.path(), cause))?;
            }
        }
        Ok(())
    }
}

fn ignore_existing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}

/// Refuses a folder that is not this user's alone.
pub fn check_private(path: &Path) -> Result<(), RuntimeDirError> {
    let found = fs::symlink_metadata(path)
        .map_err(|cause| RuntimeDirError::Io { path: path.to_owned(), cause })?;
    let why = if found.file_type().is_symlink() {
        "it is a symbolic link"
    } else if !found.is_dir() {
        "it is not a folder"
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        "it belongs to another user"
    } else if found.mode() & 0o077 != 0 {
        "other users may enter it (its mode must be 0700)"
    } else {
        return Ok(());
    };
    Err(RuntimeDirError::NotPrivate { path: path.to_owned(), why })
}

fn lock(folder: &Path) -> Result<File, RuntimeDirError> {
    let path = folder.join(LOCK_FILE);
    let io_error = |cause| RuntimeDirError::Io { path: path.clone(), cause };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(Mode::from_bits_truncate(0o600).bits())
        .open(&path)
        .map_err(io_error)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            Err(cause) => return Err(io_error(cause.into())),
        }
    }
    Err(RuntimeDirError::InUse { path: folder.to_owned() })
}

/// Whether a process holds the folder's lock.
fn is_in_use(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(LOCK_FILE)) else { return false };
    let tried = rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared);
    matches!(tried, Err(Errno::WOULDBLOCK))
}

/// Where the folders of this user's pools lie by default, and what their names start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    folder: PathBuf,
    prefix: String,
}

impl Base {
    /// `$XDG_RUNTIME_DIR/polder-NAME`, or `polder-UID-NAME` in the temporary folder.
    #[must_use]
    pub fn of_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let xdg = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        Self::choose(xdg, std::env::temp_dir(), uid)
    }

    fn choose(xdg: Option<PathBuf>, temporary: PathBuf, uid: u32) -> Self {
        match xdg.filter(|folder| folder.is_absolute() && folder.is_dir()) {
            Some(folder) => Self { folder, prefix: "polder-".into() },
            None => Self { folder: temporary, prefix: format!("polder-{uid}-") },
        }
    }

    /// The same in a folder of one's own, for tests.
    #[cfg(test)]
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), prefix: "polder-".into() }
    }

    /// The folder of a pool.
    #[must_use]
    pub fn of_pool(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}{name}", self.prefix))
    }

    /// The names of pools that run, in order.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .take(ENTRIES_MAX)
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let pool = name.strip_prefix(&self.prefix)?.to_owned();
                let folder = self.of_pool(&pool);
                (check_private(&folder).is_ok() && is_in_use(&folder)).then_some(pool)
            })
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_is_private_and_taken_once() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("polder-a");
        let taken = RuntimeDir::take(path.clone()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let refused = RuntimeDir::take(path.clone()).unwrap_err();
        assert!(matches!(refused, RuntimeDirError::InUse { .. }), "{refused}");
        drop(taken);
        RuntimeDir::take(path).unwrap();
    }

    #[test]
    fn what_others_may_touch_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        let link = base.path().join("link");
        let private = base.path().join("private");
        fs::DirBuilder::new().mode(0o700).create(&private).unwrap();
        std::os::unix::fs::symlink(&private, &link).unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, words) in [(open, "0700"), (link, "symbolic link"), (file, "not a folder")] {
            let refused = RuntimeDir::take(path).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_long_path_is_refused_with_advice() {
        let refused = RuntimeDir::take(PathBuf::from(format!("/{}", "a".repeat(64)))).unwrap_err();
        assert!(refused.to_string().contains("set `runtime_dir`"), "{refused}");
    }

    #[test]
    fn what_a_killed_run_left_is_cleared() {
        let base = tempfile::tempdir().unwrap();
        let taken = RuntimeDir::take(base.path().join("p")).unwrap();
        fs::write(taken.path().join("control.sock"), "").unwrap();
        fs::create_dir(taken.path().join("mine")).unwrap();
        taken.clear().unwrap();
        assert!(!taken.path().join("control.sock").exists());
        assert!(taken.path().join("mine").exists() && taken.path().join(LOCK_FILE).exists());
    }

    #[test]
    fn running_pools_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let base = Base::choose(Some(folder.path().to_owned()), "/tmp".into(), 7);
        assert_eq!(base.running(), Vec::<String>::new());
        let _two = RuntimeDir::take(base.of_pool("two")).unwrap();
        let _one = RuntimeDir::take(base.of_pool("one")).unwrap();
        drop(RuntimeDir::take(base.of_pool("gone")).unwrap());
        assert_eq!(base.running(), ["one", "two"]);
    }

    #[test]
    fn without_a_runtime_folder_the_user_is_in_the_name() {
        let base = Base::choose(None, "/tmp".into(), 7);
        assert_eq!(base.of_pool("x"), Path::new("/tmp/polder-7-x"));
        let relative = Base::choose(Some("run".into()), "/tmp".into(), 7);
        assert_eq!(relative, base);
    }
}
