//! Where responses lie: in memory, bounded by bytes; what is asked for again stays longest.
//!
//! Look-ups take one shard's lock for reading; what changes a URL's responses takes the lock of a
//! stripe besides, reads, and puts a whole new list in the old one's place.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::entry::Entry;
use crate::key::{Key, KeyRef};
use crate::options::Limits;

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

/// All responses for one URL, the newest first.
#[derive(Debug)]
pub(crate) struct Variants<P> {
    pub(crate) entries: Box<[Arc<Entry<P>>]>,
    bytes: u64,
}

#[derive(Debug, Clone)]
struct Bytes;

impl<P> Weighter<Key, Arc<Variants<P>>> for Bytes {
    fn weight(&self, key: &Key, variants: &Arc<Variants<P>>) -> u64 {
        SLOT_BYTES + key.text_bytes() as u64 + variants.bytes
    }
}

/// Counts what has to go.
#[derive(Debug, Clone, Default)]
struct Evicted(Arc<AtomicU64>);

impl<P> Lifecycle<Key, Arc<Variants<P>>> for Evicted {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Key, variants: Arc<Variants<P>>) {
        self.0.fetch_add(variants.entries.len() as u64, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Store<P> {
    memory: Cache<Key, Arc<Variants<P>>, Bytes, RandomState, Evicted>,
    evicted: Evicted,
    stripes: [Mutex<()>; STRIPES],
    state: RandomState,
    entry_bytes_max: u64,
}

impl<P> Store<P> {
    pub(crate) fn new(limits: &Limits) -> Self {
        let shards = (limits.memory_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let options = OptionsBuilder::new()
            .shards(usize::try_from(shards).expect("at most SHARDS_MAX"))
            .weight_capacity(limits.memory_bytes)
            .estimated_items_capacity(limits.entries_expected.max(1))
            .build()
            .expect("both capacities are set");
        let (evicted, state) = (Evicted::default(), RandomState::new());
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
        let at = usize::try_from(self.state.hash_one(&key) % STRIPES as u64);
        let stripe = &self.stripes[at.expect("less than STRIPES")];
        let _alone = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.memory.peek(&key.borrowed());
        let old = old.as_ref().map_or(&[][..], |old| &old.entries);
        let others = old.iter().filter(|other| !replaces(other)).take(VARIANTS_MAX - 1).cloned();
        let mut entries = vec![entry];
        let mut bytes = entries[0].bytes();
        for other in others {
            if bytes + other.bytes() <= self.entry_bytes_max {
                bytes += other.bytes();
                entries.push(other);
            }
        }
        let entries = entries.into_boxed_slice();
        self.memory.insert(key, Arc::new(Variants { entries, bytes }));
    }

    pub(crate) fn remove(&self, key: &KeyRef<'_>) {
        self.memory.remove(key);
    }

    /// Forgets all for which this does not hold.
    pub(crate) fn retain(&self, holds: impl Fn(&Key, &Entry<P>) -> bool) {
        let any = |key: &Key, all: &Arc<Variants<P>>| all.entries.iter().any(|one| holds(key, one));
        self.memory.retain(any);
    }

    /// How many URLs, bytes, and evictions so far.
    pub(crate) fn held(&self) -> (u64, u64, u64) {
        let evicted = self.evicted.0.load(Ordering::Relaxed);
        (self.memory.len() as u64, self.memory.weight(), evicted)
    }
}
