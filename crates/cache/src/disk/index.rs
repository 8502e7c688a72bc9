//! What lies on the disk, what is on its way there, and what has to go: pure, without files.
//!
//! ```text
//! offer ──► Waiting ──► next_write ──► Writing ──► written ──► Kept ──► out of the limit: doomed
//!              └─ recall: at once ─────────┘                     └──── recall: a reader's turn
//! ```
//!
//! What is stored anew in memory is forgotten here; what is recalled stays, and is not written
//! again when memory gives it up unchanged. The file that was offered or recalled the longest ago
//! goes first. Each write has a number of its own, which is part of its file's name: a file that is
//! to be removed is never one that is being written.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use pool_model::SiteId;

use crate::key::Key;
use crate::store::Variants;

/// Bytes that a file takes at least, and by which its length is rounded up: a block.
const BLOCK_BYTES: u64 = 4 << 10;

/// Bytes that wait to be written, beyond which what memory gives up is gone: a second of a slow
/// disk.
const WAITING_BYTES_MAX: u64 = 64 << 20;

/// URLs on the disk, of 100 bytes each here.
const URLS_MAX: usize = 4 << 20;

/// The number of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Serial(pub(super) u64);

/// A file: the hash of its URL, and the number of its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct File {
    pub(super) hash: u64,
    pub(super) serial: Serial,
}

/// What is stored for one URL.
#[derive(Debug)]
pub(super) struct Stored<P> {
    pub(super) key: Key,
    pub(super) variants: Arc<Variants<P>>,
}

impl<P> Clone for Stored<P> {
    fn clone(&self) -> Self {
        Self { key: self.key.clone(), variants: Arc::clone(&self.variants) }
    }
}

#[derive(Debug)]
enum State<P> {
    /// To be written.
    Waiting(Stored<P>),
    /// Its file is being written.
    Writing(Stored<P>),
    /// It lies in its file.
    Kept,
}

#[derive(Debug)]
struct Slot<P> {
    serial: Serial,
    /// What it holds: that of [`Variants`].
    content: u64,
    /// When it was last used, as a number.
    used: u64,
    site: SiteId,
    /// Those that wait, or those of its file.
    bytes: u64,
    state: State<P>,
}

/// What there is of a URL.
#[derive(Debug)]
pub(super) enum Recall<P> {
    /// This, without reading.
    Here(Serial, Stored<P>),
    /// Its file is to be read.
    Read(File),
    Nothing,
}

/// Counts and sizes for those who look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) urls: u64,
    pub(super) bytes: u64,
    /// URLs that are to be written, or are being.
    pub(super) waiting: u64,
    pub(super) waiting_bytes: u64,
    pub(super) evicted: u64,
    pub(super) dropped: u64,
}

#[derive(Debug)]
pub(super) struct Index<P> {
    slots: HashMap<u64, Slot<P>>,
    /// Files in the order of their uses.
    kept: BTreeMap<u64, u64>,
    waiting: VecDeque<File>,
    doomed: Vec<(File, u64)>,
    next: u64,
    bytes_max: u64,
    held: Held,
}

impl<P> Index<P> {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            slots: HashMap::new(),
            kept: BTreeMap::new(),
            waiting: VecDeque::new(),
            doomed: Vec::new(),
            next: 0,
            bytes_max,
            held: Held::default(),
        }
    }

    pub(super) fn held(&self) -> Held {
        Held { urls: self.slots.len() as u64, ..self.held }
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.slots.contains_key(&hash)
    }

    /// Takes what memory gives up; false if there is no room for it now.
    pub(super) fn offer(&mut self, hash: u64, stored: Stored<P>) -> bool {
        if self.slots.get(&hash).is_some_and(|slot| slot.content == stored.variants.content) {
            self.touch(hash);
            return true;
        }
        self.forget(hash);
        let bytes = stored.variants.bytes;
        let is_full = self.held.waiting_bytes + bytes > WAITING_BYTES_MAX;
        if is_full || self.slots.len() >= URLS_MAX || blocks(bytes) > self.bytes_max {
            self.held.dropped += 1;
            return false;
        }
        let used = self.number();
        let (serial, content, site) = (Serial(used), stored.variants.content, stored.key.site());
        self.held.waiting_bytes += bytes;
        self.held.waiting += 1;
        let state = State::Waiting(stored);
        self.slots.insert(hash, Slot { serial, content, used, site, bytes, state });
        self.waiting.push_back(File { hash, serial });
        true
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// It was used.
    fn touch(&mut self, hash: u64) {
        let used = self.number();
        let Some(slot) = self.slots.get_mut(&hash) else { return };
        if self.kept.remove(&slot.used).is_some() {
            self.kept.insert(used, hash);
        }
        slot.used = used;
    }

    /// Nothing of this URL is here from now on.
    pub(super) fn forget(&mut self, hash: u64) {
        if let Some(slot) = self.slots.remove(&hash) {
            self.left(hash, &slot);
        }
    }

    /// The same of all URLs of a site, or of all sites.
    pub(super) fn forget_all(&mut self, site: Option<SiteId>) {
        let is_gone = |slot: &Slot<P>| site.is_none_or(|site| slot.site == site);
        let gone: Vec<_> = self.slots.extract_if(|_, slot| is_gone(slot)).collect();
        for (hash, slot) in gone {
            self.left(hash, &slot);
        }
    }

    /// A slot is out of the table.
    fn left(&mut self, hash: u64, slot: &Slot<P>) {
        let serial = slot.serial;
        match slot.state {
            State::Waiting(_) => {
                self.held.waiting -= 1;
                self.held.waiting_bytes -= slot.bytes;
            }
            // The writer will find that nobody wants it.
            State::Writing(_) => self.held.waiting -= 1,
            State::Kept => {
                self.kept.remove(&slot.used);
                self.doomed.push((File { hash, serial }, slot.bytes));
            }
        }
    }

    /// What is to be written next.
    pub(super) fn next_write(&mut self) -> Option<(File, Stored<P>)> {
        while let Some(file) = self.waiting.pop_front() {
            let slot = self.slots.get_mut(&file.hash).filter(|slot| slot.serial == file.serial);
            let Some(slot) = slot else { continue };
            if let State::Waiting(stored) = &slot.state {
                let stored = stored.clone();
                self.held.waiting_bytes -= slot.bytes;
                slot.state = State::Writing(stored.clone());
                return Some((file, stored));
            }
        }
        None
    }

    /// Makes room for a file that is being written; false if it is larger than all the room there
    /// is. The files that must be removed before it is written are doomed then.
    pub(super) fn reserve(&mut self, file_bytes: u64) -> bool {
        let bytes = blocks(file_bytes);
        if bytes > self.bytes_max {
            return false;
        }
        self.make_room(bytes);
        self.held.bytes += bytes;
        true
    }

    /// Dooms files until what is left and these bytes are within the limit.
    fn make_room(&mut self, bytes: u64) {
        let doomed: u64 = self.doomed.iter().map(|(_, bytes)| bytes).sum();
        let mut left = self.held.bytes - doomed;
        while left + bytes > self.bytes_max {
            let Some(doomed) = self.doom_oldest() else { return };
            left -= doomed;
        }
    }

    fn doom_oldest(&mut self) -> Option<u64> {
        let (_, hash) = self.kept.pop_first()?;
        let slot = self.slots.remove(&hash).expect("what is kept has a slot");
        self.held.evicted += 1;
        self.doomed.push((File { hash, serial: slot.serial }, slot.bytes));
        Some(slot.bytes)
    }

    pub(super) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Files that the writer removes before it writes anything.
    pub(super) fn take_doomed(&mut self) -> Vec<File> {
        let doomed = std::mem::take(&mut self.doomed);
        self.held.bytes -= doomed.iter().map(|(_, bytes)| bytes).sum::<u64>();
        doomed.into_iter().map(|(file, _)| file).collect()
    }

    /// A file for which there was room is written.
    pub(super) fn written(&mut self, file: File, file_bytes: u64) {
        let bytes = blocks(file_bytes);
        match self.slots.get_mut(&file.hash).filter(|slot| slot.serial == file.serial) {
            Some(slot) => {
                (slot.state, slot.bytes) = (State::Kept, bytes);
                self.kept.insert(slot.used, file.hash);
                self.held.waiting -= 1;
            }
            None => self.doomed.push((file, bytes)),
        }
    }

    /// A file for which there was room is not written: the disk is full, or fails. As much is
    /// given up, so that another finds room if it is full.
    pub(super) fn not_written(&mut self, file: File, file_bytes: u64) {
        let bytes = blocks(file_bytes);
        self.held.bytes -= bytes;
        self.lost(file);
        let mut freed = 0;
        while freed < bytes {
            let Some(doomed) = self.doom_oldest() else { return };
            freed += doomed;
        }
    }

    /// Whether a file is still that of its URL.
    pub(super) fn is_here(&self, file: File) -> bool {
        self.slots.get(&file.hash).is_some_and(|slot| slot.serial == file.serial)
    }

    /// What a file should hold is not there.
    pub(super) fn lost(&mut self, file: File) {
        if self.is_here(file) {
            self.forget(file.hash);
        }
    }

    /// What there is of a URL.
    pub(super) fn recall(&self, hash: u64) -> Recall<P> {
        let Some(slot) = self.slots.get(&hash) else { return Recall::Nothing };
        match &slot.state {
            State::Waiting(stored) | State::Writing(stored) => {
                Recall::Here(slot.serial, stored.clone())
            }
            State::Kept => Recall::Read(File { hash, serial: slot.serial }),
        }
    }

    /// What was recalled is used, if it is still here: nothing of the URL was stored meanwhile.
    pub(super) fn used(&mut self, file: File) -> bool {
        let is_here = self.is_here(file);
        if is_here {
            self.touch(file.hash);
        }
        is_here
    }

    /// What a file holds, as [`Variants`] says it.
    pub(super) fn content(&self, file: File) -> Option<u64> {
        self.slots
            .get(&file.hash)
            .filter(|slot| slot.serial == file.serial)
            .map(|slot| slot.content)
    }

    /// Whether everything is written and removed.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let is_kept = |slot: &Slot<P>| matches!(slot.state, State::Kept);
        self.doomed.is_empty() && self.slots.values().all(is_kept)
    }

    /// For tests and debug builds: the counts are those of what is there.
    pub(super) fn check_invariants(&self) {
        let bytes = |is: fn(&State<P>) -> bool| -> u64 {
            self.slots.values().filter(|slot| is(&slot.state)).map(|slot| slot.bytes).sum()
        };
        let waiting = bytes(|state| matches!(state, State::Waiting(_)));
        assert_eq!(self.held.waiting_bytes, waiting, "bytes that wait");
        let kept = bytes(|state| matches!(state, State::Kept));
        let doomed: u64 = self.doomed.iter().map(|(_, bytes)| bytes).sum();
        assert!(kept + doomed <= self.held.bytes, "bytes of files");
        for (used, hash) in &self.kept {
            assert_eq!(self.slots.get(hash).map(|slot| slot.used), Some(*used), "{hash}");
        }
        let unwritten = |slot: &&Slot<P>| !matches!(slot.state, State::Kept);
        let unwritten = self.slots.values().filter(unwritten).count();
        assert_eq!(self.held.waiting, unwritten as u64, "URLs that wait");
    }
}

/// Bytes that a file takes of the disk.
fn blocks(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
