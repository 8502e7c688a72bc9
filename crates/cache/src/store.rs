//! Where responses lie: in memory, bounded by bytes; what is asked for again stays longest. What
//! has to go is offered to the disk, if there is one.
//!
//! Look-ups take one shard's lock for reading; what changes a URL's responses takes the lock of a
//! stripe besides, reads, and puts a whole new list in the old one's place.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pool_model::SiteId;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::{SmallVec, smallvec};

use crate::disk::{Handle, Recalled};
use crate::entry::Entry;
use crate::key::{Key, KeyRef, Request};
use crate::options::{Limits, Rules};

/// Most responses for one URL: more variants than that are attacks, or a `Vary` that helps nobody.
pub(crate) const VARIANTS_MAX: usize = 32;

/// Least bytes of a shard: a response must fit into one.
const SHARD_BYTES_MIN: u64 = 32 << 20;

/// Most shards: beyond, threads of one machine hardly meet.
const SHARDS_MAX: u64 = 16;

/// Locks of those who write: many more than threads.
const STRIPES: usize = 64;

/// The table's own words for one URL.
const SLOT_BYTES: u64 = 160;

/// Responses for one URL: most have one, which is then found without another step.
pub(crate) type Entries<P> = SmallVec<[Arc<Entry<P>>; 1]>;

/// All responses for one URL, the newest first.
#[derive(Debug)]
pub(crate) struct Variants<P> {
    pub(crate) entries: Entries<P>,
    pub(crate) bytes: u64,
    /// A number that no others have.
    pub(crate) content: u64,
}

impl<P> Variants<P> {
    /// These, as something new.
    pub(crate) fn new(entries: Entries<P>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self::again(entries, NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The newest that is for this request.
    pub(crate) fn newest_for(
        &self,
        rules: &Rules,
        request: &Request<'_>,
    ) -> Option<&Arc<Entry<P>>> {
        self.entries.iter().find(|entry| entry.selected.is_for(rules, request.headers))
    }

    /// What had this number.
    pub(crate) fn again(entries: Entries<P>, content: u64) -> Self {
        let bytes = entries.iter().map(|entry| entry.bytes()).sum();
        Self { entries, bytes, content }
    }
}

#[derive(Debug, Clone)]
struct Bytes;

impl<P> Weighter<Key, Arc<Variants<P>>> for Bytes {
    fn weight(&self, key: &Key, variants: &Arc<Variants<P>>) -> u64 {
        SLOT_BYTES + key.text_bytes() as u64 + variants.bytes
    }
}

/// Counts what has to go, and offers it to the disk.
#[derive(Debug)]
struct Evicted<P> {
    count: Arc<AtomicU64>,
    disk: Option<Handle<P>>,
}

impl<P> Clone for Evicted<P> {
    fn clone(&self) -> Self {
        Self { count: Arc::clone(&self.count), disk: self.disk.clone() }
    }
}

/// What one insertion has driven out. It goes on its way when this is dropped, and the lock of the
/// shard is free.
#[derive(Debug)]
struct DrivenOut<P> {
    all: Vec<(Key, Arc<Variants<P>>)>,
    disk: Option<Handle<P>>,
}

impl<P> Default for DrivenOut<P> {
    fn default() -> Self {
        Self { all: Vec::new(), disk: None }
    }
}

impl<P> Drop for DrivenOut<P> {
    fn drop(&mut self) {
        let Some(disk) = &self.disk else { return };
        for (key, variants) in self.all.drain(..) {
            disk.offer(key, variants);
        }
    }
}

impl<P> Lifecycle<Key, Arc<Variants<P>>> for Evicted<P> {
    type RequestState = DrivenOut<P>;

    fn on_evict(&self, out: &mut DrivenOut<P>, key: Key, variants: Arc<Variants<P>>) {
        self.count.fetch_add(variants.entries.len() as u64, Ordering::Relaxed);
        let Some(disk) = &self.disk else { return };
        out.disk.get_or_insert_with(|| disk.clone());
        out.all.push((key, variants));
    }
}

#[derive(Debug)]
pub(crate) struct Store<P> {
    memory: Cache<Key, Arc<Variants<P>>, Bytes, RandomState, Evicted<P>>,
    evicted: Evicted<P>,
    stripes: [Mutex<()>; STRIPES],
    state: RandomState,
    entry_bytes_max: u64,
}

impl<P> Store<P> {
    pub(crate) fn new(limits: &Limits, disk: Option<Handle<P>>) -> Self {
        let shards = (limits.memory_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let options = OptionsBuilder::new()
            .shards(usize::try_from(shards).expect("at most SHARDS_MAX"))
            .weight_capacity(limits.memory_bytes)
            .estimated_items_capacity(limits.entries_expected.max(1))
            .build()
            .expect("both capacities are set");
        let evicted = Evicted { count: Arc::default(), disk };
        let state = RandomState::new();
        let memory = Cache::with_options(options, Bytes, state.clone(), evicted.clone());
        let entry_bytes_max = memory.shard_capacity() / 2;
        let stripes = [const { Mutex::new(()) }; STRIPES];
        Self { memory, evicted, stripes, state, entry_bytes_max }
    }

    pub(crate) fn get(&self, key: &KeyRef<'_>) -> Option<Arc<Variants<P>>> {
        self.memory.get(key)
    }

    /// The same, without counting it as a use.
    pub(crate) fn peek(&self, key: &KeyRef<'_>) -> Option<Arc<Variants<P>>> {
        self.memory.peek(key)
    }

    /// Most bytes that one response may have.
    pub(crate) fn entry_bytes_max(&self) -> u64 {
        self.entry_bytes_max
    }

    /// Stores a response, in the place of those that `replaces` says it stands for.
    pub(crate) fn put(&self, key: Key, entry: Arc<Entry<P>>, replaces: impl Fn(&Entry<P>) -> bool) {
        let _alone = self.alone(&key);
        let old = self.memory.peek(&key.borrowed());
        let old = old.as_ref().map_or(&[][..], |old| &*old.entries);
        let others = old.iter().filter(|other| !replaces(other)).take(VARIANTS_MAX - 1).cloned();
        let mut entries: Entries<P> = smallvec![entry];
        let mut bytes = entries[0].bytes();
        for other in others {
            if bytes + other.bytes() <= self.entry_bytes_max {
                bytes += other.bytes();
                entries.push(other);
            }
        }
        if let Some(disk) = &self.evicted.disk {
            disk.forget(&key.borrowed());
        }
        self.memory.insert(key, Arc::new(Variants::new(entries)));
    }

    /// Puts back what the disk had, unless something was stored meanwhile; what is put back.
    pub(crate) fn restore(&self, recalled: Recalled<P>) -> Option<(Key, Arc<Variants<P>>)> {
        let disk = self.evicted.disk.as_ref()?;
        let _alone = self.alone(recalled.key()?);
        let (key, variants) = disk.used(recalled)?;
        if self.memory.peek(&key.borrowed()).is_none() {
            self.memory.insert(key.clone(), Arc::clone(&variants));
        }
        Some((key, variants))
    }

    fn alone(&self, key: &Key) -> MutexGuard<'_, ()> {
        let at = usize::try_from(self.state.hash_one(key) % STRIPES as u64);
        let stripe = &self.stripes[at.expect("less than STRIPES")];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn disk(&self) -> Option<&Handle<P>> {
        self.evicted.disk.as_ref()
    }

    pub(crate) fn remove(&self, key: &KeyRef<'_>) {
        self.memory.remove(key);
        if let Some(disk) = &self.evicted.disk {
            disk.forget(key);
        }
    }

    /// Forgets a site, or all.
    pub(crate) fn forget(&self, site: Option<SiteId>) {
        self.memory.retain(|key, _| site.is_some_and(|site| key.site() != site));
        if let Some(disk) = &self.evicted.disk {
            disk.forget_all(site);
        }
    }

    /// How many URLs, bytes, and evictions so far.
    pub(crate) fn held(&self) -> (u64, u64, u64) {
        let evicted = self.evicted.count.load(Ordering::Relaxed);
        (self.memory.len() as u64, self.memory.weight(), evicted)
    }
}
