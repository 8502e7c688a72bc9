//! The folder of one process, and its files.
//!
//! ```text
//! FOLDER/polder-PID-NUMBER/   mode 0700, locked (flock) for as long as its process lives
//!     HASH-SERIAL             what is kept of one URL
//!     writing                 the file that is being written; it gets its name when it is whole
//! ```
//!
//! Folders that nobody has locked are those of dead processes, and the next one that starts removes
//! them: what they hold was stored under purges that nobody remembers. So no file outlives its
//! process's knowledge, and none needs to reach the platter (no fsync).

use std::fs::{self, DirBuilder, File as OpenFile, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::index::File;

const PREFIX: &str = "polder-";

/// Where a file is written before it has its name.
const WRITING: &str = "writing";

/// Tries to make a folder: another process that starts may take a new one for a dead one's.
const TRIES: usize = 8;

/// What is read and written of files; tests put one in its place that fails.
pub(super) trait Files: Send + Sync + 'static {
    /// Writes a whole file, or leaves none.
    fn write(&self, file: File, bytes: &[u8]) -> io::Result<()>;
    /// Reads a whole file.
    fn read(&self, file: File) -> io::Result<Bytes>;
    fn remove(&self, file: File) -> io::Result<()>;
    /// Removes what dead processes left.
    fn clean(&self) {}
}

/// A folder that is this process's alone; removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _lock: OpenFile,
}

impl Folder {
    /// Makes one below `parent`, which is made if need be.
    pub(super) fn create(parent: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        for _ in 0..TRIES {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                // Of a process that had this number in another container.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            let Ok(lock) = OpenFile::open(&path) else { continue };
            let is_mine = lock.try_lock().is_ok() && is_at(&lock, &path);
            if is_mine {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(io::Error::other("others remove what is made there"))
    }

    fn at(&self, file: File) -> PathBuf {
        self.path.join(format!("{:016x}-{:x}", file.hash, file.serial.0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays is removed at the next start.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl Files for Folder {
    fn write(&self, file: File, bytes: &[u8]) -> io::Result<()> {
        let writing = self.path.join(WRITING);
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o600);
        let written = open.open(&writing).and_then(|mut open| open.write_all(bytes));
        let named = written.and_then(|()| fs::rename(&writing, self.at(file)));
        if named.is_err() {
            // It would take room that is needed.
            let _ = fs::remove_file(&writing);
        }
        named
    }

    fn read(&self, file: File) -> io::Result<Bytes> {
        let mut open = OpenFile::open(self.at(file))?;
        let mut bytes = Vec::new();
        let expected = open.metadata()?.len();
        bytes.try_reserve_exact(usize::try_from(expected).unwrap_or(0))?;
        open.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }

    fn remove(&self, file: File) -> io::Result<()> {
        fs::remove_file(self.at(file))
    }

    fn clean(&self) {
        // What cannot be removed is not ours to remove, or stays for the next start.
        let _ = self.path.parent().map_or(Ok(()), sweep);
    }
}

/// Removes the folders of dead processes.
fn sweep(parent: &Path) -> io::Result<()> {
    for found in fs::read_dir(parent)? {
        let found = found?;
        let is_ours = found.file_name().to_string_lossy().starts_with(PREFIX);
        if !is_ours || !found.file_type()?.is_dir() {
            continue;
        }
        let path = found.path();
        let Ok(lock) = OpenFile::open(&path) else { continue };
        if lock.try_lock().is_ok() && is_at(&lock, &path) {
            // One that stays is no reason to leave the others.
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

/// Whether an open folder is still the one of that path.
fn is_at(open: &OpenFile, path: &Path) -> bool {
    let of = |found: fs::Metadata| (found.dev(), found.ino());
    match (open.metadata(), fs::symlink_metadata(path)) {
        (Ok(open), Ok(found)) => of(open) == of(found),
        _ => false,
    }
}
