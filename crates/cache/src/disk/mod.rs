//! The disk tier: what memory gives up lies in files, and comes back when it is asked for.
//!
//! ```text
//! memory full ──► offer ──► writer (a thread) ──► a file
//! look-up ──► Lookup::OnDisk ──► Cache::recall ──► reader (a thread) ──► Cache::recalled
//!                                                  └─ damaged: no file, a miss
//! ```
//!
//! The only part of this crate that does I/O, and it does it in threads of its own: who looks up,
//! stores or recalls takes a short lock and never waits for a disk. What is offered faster than the
//! disk writes is given up. A response that comes back is judged as if it had been in memory all
//! the time: its stamp and its proof came with it.

mod folder;
mod index;
mod record;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use pool_model::SiteId;

use crate::entry::Entry;
use crate::key::{Key, KeyRef};
use crate::store::Variants;
use folder::{Files, Folder};
use index::{File, Index, Recall, Serial, Stored};
pub use record::Codec;

/// Threads that read files: with two, one slow read does not hold up all.
const READERS: usize = 2;

/// URLs whose files are to be read at once: beyond, a server is faster than the disk.
const READS_MAX: usize = 1_024;

/// Where a tier lies, and how much it may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskLimits {
    /// Made if it is missing, with mode 0700. Several processes may share it: each has a folder of
    /// its own below it.
    pub folder: PathBuf,
    /// Bytes of the files of this process, each in whole blocks of 4 KiB.
    pub bytes: u64,
}

/// What a tier holds and has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// URLs that something is kept for.
    pub urls: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// URLs among them that wait to be written.
    pub waiting: u64,
    /// URLs whose responses came back to memory.
    pub recalled: u64,
    /// Files written.
    pub written: u64,
    /// URLs that had to make room for others.
    pub evicted: u64,
    /// URLs that memory gave up faster than they could be written.
    pub dropped: u64,
    /// Files that were not whole or not unchanged, or could not be read: removed.
    pub damaged: u64,
    /// Files that could not be written: the disk is full, or fails.
    pub failed: u64,
}

/// What a recall has found.
#[derive(Debug)]
pub struct Recalled<P> {
    file: File,
    found: Option<Stored<P>>,
}

impl<P> Recalled<P> {
    pub(crate) fn key(&self) -> Option<&Key> {
        self.found.as_ref().map(|stored| &stored.key)
    }

    pub(crate) fn parts(&self) -> Option<(&Key, &[Arc<Entry<P>>])> {
        self.found.as_ref().map(|stored| (&stored.key, &*stored.variants.entries))
    }
}

/// Told when a recall has an answer, by a thread that must not wait.
pub type Done<P> = Box<dyn FnOnce(Recalled<P>) + Send>;

/// A disk tier.
#[derive(Debug)]
pub struct Disk<P> {
    shared: Arc<Shared<P>>,
}

#[derive(Debug)]
struct Shared<P> {
    desk: Mutex<Desk<P>>,
    /// The writer sleeps here.
    to_write: Condvar,
    /// The readers sleep here.
    to_read: Condvar,
    codec: Codec<P>,
    state: RandomState,
    recalled: AtomicU64,
    written: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicU64,
}

struct Desk<P> {
    index: Index<P>,
    reads: Vec<File>,
    /// Who wants what is read; a file that is being read too.
    waiting: HashMap<Serial, Vec<Done<P>>>,
    ends: bool,
}

impl<P> std::fmt::Debug for Desk<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (held, reads, ends) = (self.index.held(), self.reads.len(), self.ends);
        f.debug_struct("Desk")
            .field("held", &held)
            .field("reads", &reads)
            .field("ends", &ends)
            .finish()
    }
}

impl<P: Send + Sync + 'static> Disk<P> {
    /// Makes the folder, and starts the threads; one of them removes what dead processes left.
    pub fn open(limits: &DiskLimits, codec: Codec<P>) -> io::Result<Self> {
        Self::over(&Arc::new(Folder::create(&limits.folder)?), limits.bytes, codec)
    }

    fn over(files: &Arc<impl Files>, bytes: u64, codec: Codec<P>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            desk: Mutex::new(Desk {
                index: Index::new(bytes),
                reads: Vec::new(),
                waiting: HashMap::new(),
                ends: false,
            }),
            to_write: Condvar::new(),
            to_read: Condvar::new(),
            codec,
            state: RandomState::new(),
            recalled: AtomicU64::new(0),
            written: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        // Dropped on the way out, it ends the threads that have begun.
        let disk = Self { shared };
        let (shared, own) = (Arc::clone(&disk.shared), Arc::clone(files));
        start("cache-writer", move || {
            own.clean();
            shared.write_all(&*own);
        })?;
        for _ in 0..READERS {
            let (shared, own) = (Arc::clone(&disk.shared), Arc::clone(files));
            start("cache-reader", move || shared.read_all(&*own))?;
        }
        Ok(disk)
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

impl<P> Disk<P> {
    pub(crate) fn handle(&self) -> Handle<P> {
        Handle(Arc::clone(&self.shared))
    }
}

impl<P> Drop for Disk<P> {
    fn drop(&mut self) {
        let waiting = {
            let mut desk = self.shared.lock();
            desk.ends = true;
            desk.reads.clear();
            std::mem::take(&mut desk.waiting)
        };
        drop(waiting);
        // Each thread ends after the file that it is at; the last one removes the folder. Who drops
        // this may serve, and does not wait.
        self.shared.to_write.notify_all();
        self.shared.to_read.notify_all();
    }
}

/// What the store and the cache know of a tier.
#[derive(Debug)]
pub(crate) struct Handle<P>(Arc<Shared<P>>);

impl<P> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P> Handle<P> {
    fn hash(&self, key: &KeyRef<'_>) -> u64 {
        self.0.state.hash_one(key)
    }

    /// Memory gives this up.
    pub(crate) fn offer(&self, key: Key, variants: Arc<Variants<P>>) {
        let hash = self.hash(&key.borrowed());
        self.0.lock().index.offer(hash, Stored { key, variants });
        self.0.to_write.notify_one();
    }

    /// Whether there may be something: a look-up in a table.
    pub(crate) fn has(&self, key: &KeyRef<'_>) -> bool {
        let hash = self.hash(key);
        self.0.lock().index.has(hash)
    }

    pub(crate) fn forget(&self, key: &KeyRef<'_>) {
        let hash = self.hash(key);
        let mut desk = self.0.lock();
        desk.index.forget(hash);
        // It is called for all that is stored, most of which was never here.
        if desk.index.has_doomed() {
            self.0.to_write.notify_one();
        }
    }

    pub(crate) fn forget_all(&self, site: Option<SiteId>) {
        self.0.lock().index.forget_all(site);
        self.0.to_write.notify_one();
    }

    /// Says what is kept of a URL, at once or when it is read. Dropped without a word if the tier
    /// ends.
    pub(crate) fn recall(&self, key: &KeyRef<'_>, done: Done<P>) {
        let hash = self.hash(key);
        let mut desk = self.0.lock();
        let nothing = File { hash, serial: Serial(u64::MAX) };
        let recalled = match desk.index.recall(hash) {
            Recall::Here(serial, stored) => {
                Recalled { file: File { hash, serial }, found: Some(stored) }
            }
            Recall::Read(file) if desk.may_read(file) => {
                let Desk { waiting, reads, .. } = &mut *desk;
                let all = waiting.entry(file.serial).or_default();
                if all.is_empty() {
                    reads.push(file);
                }
                all.push(done);
                drop(desk);
                self.0.to_read.notify_one();
                return;
            }
            Recall::Read(_) | Recall::Nothing => Recalled { file: nothing, found: None },
        };
        drop(desk);
        done(recalled);
    }

    /// What goes to memory: what was found, unless it is no longer the newest of its URL.
    pub(crate) fn used(&self, recalled: Recalled<P>) -> Option<(Key, Arc<Variants<P>>)> {
        let stored = recalled.found?;
        if !self.0.lock().index.used(recalled.file) {
            return None;
        }
        self.0.recalled.fetch_add(1, Ordering::Relaxed);
        Some((stored.key, stored.variants))
    }

    pub(crate) fn stats(&self) -> DiskStats {
        let held = self.0.lock().index.held();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskStats {
            urls: held.urls,
            bytes: held.bytes,
            waiting: held.waiting,
            recalled: count(&self.0.recalled),
            written: count(&self.0.written),
            evicted: held.evicted,
            dropped: held.dropped,
            damaged: count(&self.0.damaged),
            failed: count(&self.0.failed),
        }
    }
}

impl<P> Desk<P> {
    fn may_read(&self, file: File) -> bool {
        !self.ends && (self.waiting.len() < READS_MAX || self.waiting.contains_key(&file.serial))
    }
}

impl<P> Shared<P> {
    fn lock(&self) -> MutexGuard<'_, Desk<P>> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer: removes what has to go, then writes.
    fn write_all(&self, files: &impl Files) {
        let mut desk = self.lock();
        while !desk.ends {
            let doomed = desk.index.take_doomed();
            if !doomed.is_empty() {
                drop(desk);
                remove(files, &doomed);
                desk = self.lock();
                continue;
            }
            let Some((file, stored)) = desk.index.next_write() else {
                desk = self.to_write.wait(desk).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(desk);
            self.write(files, file, &stored);
            desk = self.lock();
        }
    }

    fn write(&self, files: &impl Files, file: File, stored: &Stored<P>) {
        let entries = stored.variants.entries.iter().map(|entry| &**entry);
        let bytes = record::encode(self.codec, &stored.key, entries);
        let length = bytes.len() as u64;
        let doomed = {
            let mut desk = self.lock();
            if !desk.index.reserve(length) {
                desk.index.lost(file);
                return;
            }
            desk.index.take_doomed()
        };
        remove(files, &doomed);
        let written = files.write(file, &bytes);
        let index = &mut self.lock().index;
        if written.is_ok() {
            self.written.fetch_add(1, Ordering::Relaxed);
            index.written(file, length);
        } else {
            self.failed.fetch_add(1, Ordering::Relaxed);
            index.not_written(file, length);
        }
        if cfg!(debug_assertions) {
            index.check_invariants();
        }
    }

    /// A reader.
    fn read_all(&self, files: &impl Files) {
        let mut desk = self.lock();
        while !desk.ends {
            let Some(file) = desk.reads.pop() else {
                desk = self.to_read.wait(desk).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(desk);
            let bytes = files.read(file).ok();
            let found = bytes.and_then(|bytes| record::decode(self.codec, &bytes));
            desk = self.lock();
            let content = desk.index.content(file);
            let found = found.zip(content).map(|((key, entries), content)| {
                let entries = entries.into_iter().map(Arc::new).collect();
                Stored { key, variants: Arc::new(Variants::again(entries, content)) }
            });
            if found.is_none() && desk.index.is_here(file) {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                desk.index.lost(file);
                self.to_write.notify_one();
            }
            let told = desk.waiting.remove(&file.serial).unwrap_or_default();
            drop(desk);
            for done in told {
                done(Recalled { file, found: found.clone() });
            }
            desk = self.lock();
        }
    }
}

fn remove(files: &impl Files, doomed: &[File]) {
    for &file in doomed {
        // What cannot be removed now is removed with the folder.
        let _ = files.remove(file);
    }
}

#[cfg(test)]
mod tests;
