//! Watches the files below a folder, for static servers whose writers tell nobody (inotify).
//!
//! ```text
//! open:     a watch on each folder, then all of it is told as changed
//! event:    the path is told; of a new folder after it is watched itself, and all below it
//! no watch: what can't be watched is told at each tick, as if it changed all the time
//! lost:     after an overflow everything is watched anew, and told
//! ```
//!
//! So whoever voids what is told serves nothing that is older than a tick: half a second, and
//! mostly some milliseconds. A path stands for itself and all that is below it. Not seen are writes
//! through a mapping of a file that stays open or through a hard link elsewhere, and those of other
//! machines to a shared file system; what is known to be shared is told at each tick too, and so is
//! what lies behind a symbolic link.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often what can't be watched is told. Half of what a changed file may take.
pub const TICK: Duration = Duration::from_millis(500);

/// Between two tries to watch what could not be watched.
const RETRY: Duration = Duration::from_secs(10);

/// Events of one moment are told together: a file that is written in pieces has one for each.
const GATHER: Duration = Duration::from_millis(5);

/// Most folders of one root: a KiB each, in the kernel and here.
pub const FOLDERS_MAX: usize = 65_536;

/// Most paths that are told one by one; more are told as all.
const CHANGED_MAX: usize = 4_096;

/// Bytes of events that are read at once.
const BUFFER_BYTES: usize = 16 << 10;

/// Reads before what was gathered is told, in a storm of events.
const READS_MAX: usize = 64;

/// Paths whose trouble is logged one by one, between two openings.
const TOLD_MAX: usize = 20;

/// File systems that other machines write to: NFS, SMB (three), Ceph, 9P, AFS, and FUSE, behind
/// which anything may be.
const SHARED: [u64; 8] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997, 0x5346_414f, 0x6573_5546];

/// A folder and all below it, watched. Blocks, so that it needs a thread of its own.
#[derive(Debug)]
pub struct Watch {
    root: PathBuf,
    folders_max: usize,
    tree: Option<Tree>,
    next_tick: Instant,
    next_retry: Instant,
    /// Why the root could not be watched, as it was logged last.
    trouble: Option<String>,
}

impl Watch {
    /// Of a folder that may come later. Nothing is watched before the first [`Watch::changes`].
    #[must_use]
    pub fn new(root: &Path, folders_max: usize) -> Self {
        let now = Instant::now();
        let (root, tree, trouble) = (root.to_owned(), None, None);
        Self { root, folders_max, tree, next_tick: now, next_retry: now + RETRY, trouble }
    }

    /// Waits for changes, no longer than a tick, and adds what changed: paths below the root, each
    /// with a `/` before each name; the root is empty.
    pub fn changes(&mut self, changed: &mut BTreeSet<Vec<u8>>) {
        if self.open(changed) {
            return;
        }
        let Some(tree) = &mut self.tree else {
            changed.insert(Vec::new());
            thread::sleep(self.next_tick.saturating_duration_since(Instant::now()));
            self.next_tick = Instant::now() + TICK;
            return;
        };
        let is_whole = match tree.wait(self.next_tick) {
            Ok(true) => {
                thread::sleep(GATHER);
                tree.read(changed)
            }
            Ok(false) => Ok(()),
            Err(error) => Err(Lost::Io(error)),
        };
        if let Err(lost) = is_whole {
            tracing::warn!("{}: {lost}; all of it is read anew", self.root.display());
            self.tree = None;
            changed.insert(Vec::new());
            return;
        }
        let now = Instant::now();
        if now >= self.next_retry {
            self.next_retry = now + RETRY;
            tree.retry();
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            changed.extend(tree.unwatched.iter().cloned());
        }
        if changed.len() > CHANGED_MAX {
            *changed = BTreeSet::from([Vec::new()]);
        }
    }

    /// Folders that are watched, and paths that can't be.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        self.tree.as_ref().map_or((0, 1), |tree| (tree.folders.len(), tree.unwatched.len()))
    }

    /// Sees to it that what is watched is what the root's path leads to; true if all of it is
    /// watched anew.
    fn open(&mut self, changed: &mut BTreeSet<Vec<u8>>) -> bool {
        let found = fs::metadata(&self.root).map(|found| (found.dev(), found.ino()));
        if let (Some(tree), Ok(found)) = (&self.tree, &found)
            && tree.identity == *found
        {
            return false;
        }
        self.tree = None;
        changed.insert(Vec::new());
        let opened = found.and_then(|found| Tree::open(&self.root, found, self.folders_max));
        match opened {
            Ok(tree) => {
                let (folders, not) = (tree.folders.len(), tree.unwatched.len());
                let root = self.root.display();
                tracing::info!("{root}: {folders} folders are watched, {not} paths are not");
                (self.tree, self.trouble) = (Some(tree), None);
            }
            Err(error) => {
                let text = error.to_string();
                if self.trouble.as_ref() != Some(&text) {
                    let root = self.root.display();
                    tracing::warn!("{root} can't be watched: {text}; nothing of it is kept");
                    self.trouble = Some(text);
                }
            }
        }
        self.tree.is_some()
    }
}

/// Why events are missing.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("more changed at once than the kernel notes")]
    Overflow,
    #[error("its file system is gone")]
    Unmounted,
    #[error("{0}")]
    Io(Errno),
}

#[derive(Debug)]
struct Tree {
    events: OwnedFd,
    root: PathBuf,
    identity: (u64, u64),
    /// Other machines may write to it.
    is_shared: bool,
    folders_max: usize,
    folders: HashMap<i32, Vec<u8>>,
    watches: BTreeMap<Vec<u8>, i32>,
    /// What changes unseen.
    unwatched: BTreeSet<Vec<u8>>,
    told: usize,
}

impl Tree {
    fn open(root: &Path, identity: (u64, u64), folders_max: usize) -> io::Result<Self> {
        let mut tree = Self {
            events: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?,
            root: root.to_owned(),
            identity,
            is_shared: false,
            folders_max,
            folders: HashMap::new(),
            watches: BTreeMap::new(),
            unwatched: BTreeSet::new(),
            told: 0,
        };
        let system = rustix::fs::statfs(root)?.f_type;
        if SHARED.contains(&u64::try_from(system).unwrap_or(0)) {
            tree.is_shared = true;
            tree.give_up(Vec::new(), &"other machines may write to its file system");
        }
        tree.add(Vec::new());
        Ok(tree)
    }

    fn at(&self, path: &[u8]) -> PathBuf {
        let below = path.strip_prefix(b"/").unwrap_or(path);
        self.root.join(OsStr::from_bytes(below))
    }

    /// It is told at each tick from now on.
    fn give_up(&mut self, path: Vec<u8>, why: &dyn std::fmt::Display) {
        if self.unwatched.contains(&path) {
            return;
        }
        self.told += 1;
        if self.told <= TOLD_MAX {
            let shown = self.at(&path);
            let shown = shown.display();
            tracing::warn!(
                "{shown} can't be watched ({why}): what is below it is kept for a moment"
            );
        }
        self.unwatched.insert(path);
    }

    /// Watches a folder and all below it. First the watch, then the look at what is there: what
    /// comes in between is seen twice.
    fn add(&mut self, path: Vec<u8>) {
        let mut left = vec![path];
        while let Some(path) = left.pop() {
            match self.add_one(&path) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(why) => {
                    self.give_up(path, &why);
                    continue;
                }
            }
            let Err(error) = self.look(&path, &mut left) else { continue };
            if error.kind() != io::ErrorKind::NotFound {
                self.give_up(path, &error);
            }
        }
    }

    /// Whether it is a folder that is still there.
    fn add_one(&mut self, path: &[u8]) -> Result<bool, String> {
        if self.folders.len() >= self.folders_max {
            return Err(format!("more than {} folders", self.folders_max));
        }
        let mut flags = WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MODIFY
            | WatchFlags::MOVE
            | WatchFlags::ONLYDIR;
        if !path.is_empty() {
            flags |= WatchFlags::DONT_FOLLOW;
        }
        match inotify::add_watch(&self.events, self.at(path), flags) {
            Ok(watch) => match self.folders.get(&watch) {
                Some(other) if other != path => Err("it is mounted at a second place".to_owned()),
                _ => {
                    self.folders.insert(watch, path.to_owned());
                    self.watches.insert(path.to_owned(), watch);
                    Ok(true)
                }
            },
            // The event of its end follows.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(Errno::NOSPC) => Err("fs.inotify.max_user_watches is used up".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// What is in a folder.
    fn look(&mut self, path: &[u8], folders: &mut Vec<Vec<u8>>) -> io::Result<()> {
        for found in fs::read_dir(self.at(path))? {
            let found = found?;
            let below = join(path, found.file_name().as_bytes());
            match found.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(below),
                Ok(kind) if kind.is_symlink() => self.give_up(below, &"a symbolic link"),
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.give_up(below, &error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A folder, or a file, is no longer there.
    fn remove(&mut self, path: &[u8]) {
        let mut below = path.to_owned();
        below.push(b'/');
        let is_below = |other: &Vec<u8>| other == path || other.starts_with(&below);
        self.unwatched.retain(|other| !is_below(other));
        let range = self.watches.range(path.to_owned()..);
        // `/a-b` lies between `/a` and `/a/b`.
        let range = range.take_while(|(other, _)| other.starts_with(path));
        let gone: Vec<_> = range
            .filter(|(other, _)| is_below(other))
            .map(|(other, watch)| (other.clone(), *watch))
            .collect();
        for (path, watch) in gone {
            self.watches.remove(&path);
            self.folders.remove(&watch);
            // It may have ended by itself.
            let _ = inotify::remove_watch(&self.events, watch);
        }
    }

    /// Tries what could not be watched once more.
    fn retry(&mut self) {
        let is_folder =
            |path: &&Vec<u8>| fs::symlink_metadata(self.at(path)).is_ok_and(|found| found.is_dir());
        if self.is_shared {
            return;
        }
        let again: Vec<_> = self.unwatched.iter().filter(is_folder).cloned().collect();
        for path in again {
            self.unwatched.remove(&path);
            self.add(path);
        }
    }

    /// Takes the events that are there.
    fn read(&mut self, changed: &mut BTreeSet<Vec<u8>>) -> Result<(), Lost> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        for _ in 0..READS_MAX {
            let mut seen = Vec::new();
            let mut reader = inotify::Reader::new(&self.events, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => {
                        let name = event.file_name().map(|name| name.to_bytes().to_vec());
                        seen.push((event.wd(), event.events(), name));
                    }
                    Err(Errno::AGAIN) if seen.is_empty() => return Ok(()),
                    Err(Errno::AGAIN | Errno::INTR) => break,
                    Err(error) => return Err(Lost::Io(error)),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
            for (watch, events, name) in seen {
                self.take(watch, events, name.as_deref(), changed)?;
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        watch: i32,
        events: ReadFlags,
        name: Option<&[u8]>,
        changed: &mut BTreeSet<Vec<u8>>,
    ) -> Result<(), Lost> {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return Err(Lost::Overflow);
        }
        if events.contains(ReadFlags::UNMOUNT) {
            return Err(Lost::Unmounted);
        }
        // Of one that has been removed meanwhile.
        let Some(folder) = self.folders.get(&watch) else { return Ok(()) };
        let Some(name) = name else {
            changed.insert(folder.clone());
            if events.contains(ReadFlags::IGNORED) {
                let folder = folder.clone();
                self.folders.remove(&watch);
                self.watches.remove(&folder);
            }
            return Ok(());
        };
        let path = join(folder, name);
        let comes = events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
        let goes = events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
        if comes || goes {
            self.remove(&path);
        }
        if comes && events.contains(ReadFlags::ISDIR) {
            self.add(path.clone());
        } else if comes && fs::symlink_metadata(self.at(&path)).is_ok_and(|it| it.is_symlink()) {
            self.give_up(path.clone(), &"a symbolic link");
        }
        changed.insert(path);
        Ok(())
    }

    /// Whether there are events before this moment.
    fn wait(&self, until: Instant) -> Result<bool, Errno> {
        let left = until.saturating_duration_since(Instant::now());
        let left = left.try_into().expect("a tick fits");
        match poll(&mut [PollFd::new(&self.events, PollFlags::IN)], Some(&left)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    [folder, b"/", name].concat()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
