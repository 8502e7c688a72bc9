//! The handle on a simulated network: regions, owners, connections and time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::queue_pair::{QueuePair, lock};
use super::settings::{Faults, RegionSettings};
use super::world::{Region, Statistics, World, nanos};
use crate::mapped::{AccessError, check_access};
use crate::region::{
    AtomicPath, Incarnation, RegionDescriptor, RemoteKey, WORD_BYTES, label_is_valid,
    length_is_valid,
};
use crate::remote::Capabilities;

/// A network with its owners and their regions. Clones are handles on the same one.
#[derive(Clone)]
pub struct Network {
    world: Arc<Mutex<World>>,
}

impl Network {
    /// A network without regions, at time 0. The seed decides everything that is drawn.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self { world: Arc::new(Mutex::new(World::new(seed, faults))) }
    }

    /// Changes delays and faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.world).faults = faults;
    }

    /// Makes a region of zero words, with a new key and incarnation. Nothing is returned if
    /// length or label is outside its limits.
    pub fn add_region(&self, settings: &RegionSettings) -> Option<RegionDescriptor> {
        if !length_is_valid(settings.length_bytes) || !label_is_valid(&settings.label) {
            return None;
        }
        let length_words = usize::try_from(settings.length_bytes / WORD_BYTES).ok()?;
        let mut world = lock(&self.world);
        let descriptor = RegionDescriptor {
            key: RemoteKey(world.random.next().max(1)),
            incarnation: Incarnation(world.random.next().max(1)),
            length_bytes: settings.length_bytes,
            atomic_path: settings.atomic_path,
            label: settings.label.clone(),
        };
        let region = Region {
            descriptor: descriptor.clone(),
            access: settings.access,
            words: vec![0; length_words],
        };
        world.regions.insert(descriptor.key, region);
        Some(descriptor)
    }

    /// The owner ends: its region is gone, and its key is stale from now on.
    pub fn crash_owner(&self, key: RemoteKey) {
        lock(&self.world).regions.remove(&key);
    }

    /// The owner's own view of its region.
    pub fn owner(&self, key: RemoteKey) -> Owner {
        Owner { world: Arc::clone(&self.world), key }
    }

    /// Connects a peer to all regions, at once.
    pub fn connect(&self, capabilities: Capabilities) -> QueuePair {
        QueuePair::new(Arc::clone(&self.world), capabilities)
    }

    /// Virtual time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(lock(&self.world).now_ns)
    }

    /// Lets so much time pass, with all that happens in it.
    pub fn advance(&self, time: Duration) {
        let mut world = lock(&self.world);
        let end_ns = world.now_ns.saturating_add(nanos(time));
        // Each batch plans a bounded number of events, and nothing is submitted meanwhile.
        while world.next_event_ns().is_some_and(|at_ns| at_ns <= end_ns) {
            world.run_next();
        }
        world.now_ns = end_ns;
    }

    /// Lets time pass until the next event has happened; false if there is none.
    pub fn run_next(&self) -> bool {
        lock(&self.world).run_next()
    }

    /// Lets time pass until nothing is to come: zombies have landed, and deadlines are over.
    pub fn settle(&self) {
        // Bounded as in `advance`.
        while self.run_next() {}
    }

    /// What happened so far.
    pub fn statistics(&self) -> Statistics {
        lock(&self.world).statistics
    }

    /// A number over all that happened, when and in which order: equal for equal runs.
    pub fn fingerprint(&self) -> u64 {
        lock(&self.world).fingerprint()
    }
}

/// Why the owner's processor may not do something with its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// The owner has crashed.
    #[error("the region is gone")]
    Gone,
    /// The region's atomics go through an adapter, and the processor's would be lost among them.
    #[error("the region's atomics go through an adapter, the processor's would be lost")]
    OtherAtomicPath,
    /// There is no such word.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// An owner's processor at work on its own region. It needs no time.
pub struct Owner {
    world: Arc<Mutex<World>>,
    key: RemoteKey,
}

impl Owner {
    /// Reads a word.
    ///
    /// # Errors
    /// The region is gone or has no such word.
    pub fn read(&self, offset_bytes: u64) -> Result<u64, OwnerError> {
        self.with_word(offset_bytes, |word| *word)
    }

    /// Writes a word. In a region of an adapter's path only words that nobody compares or adds
    /// to may be written so.
    ///
    /// # Errors
    /// The region is gone or has no such word.
    pub fn write(&self, offset_bytes: u64, value: u64) -> Result<(), OwnerError> {
        self.with_word(offset_bytes, |word| *word = value)
    }

    /// Writes `new` if the word holds `expected`, and returns the value found.
    ///
    /// # Errors
    /// The region is gone, has no such word, or its atomics go through an adapter.
    pub fn compare_and_swap(
        &self,
        offset_bytes: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, OwnerError> {
        self.check_path()?;
        self.with_word(offset_bytes, |word| {
            let found = *word;
            if found == expected {
                *word = new;
            }
            found
        })
    }

    /// Adds to the word, modulo 2^64, and returns the value found.
    ///
    /// # Errors
    /// The region is gone, has no such word, or its atomics go through an adapter.
    pub fn fetch_and_add(&self, offset_bytes: u64, addend: u64) -> Result<u64, OwnerError> {
        self.check_path()?;
        self.with_word(offset_bytes, |word| {
            let found = *word;
            *word = found.wrapping_add(addend);
            found
        })
    }

    fn check_path(&self) -> Result<(), OwnerError> {
        let world = lock(&self.world);
        let region = world.regions.get(&self.key).ok_or(OwnerError::Gone)?;
        match region.descriptor.atomic_path {
            AtomicPath::Cpu => Ok(()),
            AtomicPath::Adapter(_) => Err(OwnerError::OtherAtomicPath),
        }
    }

    fn with_word<R>(
        &self,
        offset_bytes: u64,
        act: impl FnOnce(&mut u64) -> R,
    ) -> Result<R, OwnerError> {
        let mut world = lock(&self.world);
        let region = world.regions.get_mut(&self.key).ok_or(OwnerError::Gone)?;
        check_access(region.descriptor.length_bytes, offset_bytes, WORD_BYTES)?;
        Ok(act(&mut region.words[(offset_bytes / WORD_BYTES) as usize]))
    }
}
