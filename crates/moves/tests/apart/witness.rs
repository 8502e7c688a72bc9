//! Regions that note each successful compare-and-swap of the protocol's words, and check at that
//! instant what must always hold.

use pool_model::SiteId;
use remote_memory::shm::OwnedRegion;
use remote_memory::{AccessError, Mapped, RegionDescriptor};
use shared_state::NodeRecord;
use shared_state::words::{Assign, Depart};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a region is, for the witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    Home,
    Node(u16),
}

/// Sees every swap of every region, one after the other.
pub(crate) struct Witness {
    hard: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Where each node's assignment lies.
    assigns: HashMap<u16, Arc<OwnedRegion>>,
    /// Which site each version of a node belongs to.
    owners: HashMap<(u16, u64, u32), Option<SiteId>>,
    moves: u64,
    wrong: Vec<String>,
}

impl Witness {
    pub(crate) fn new(hard: usize) -> Arc<Self> {
        Arc::new(Self { hard, inner: Mutex::default() })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this is the node's region.
    pub(crate) fn watch(&self, node: u16, region: &Arc<OwnedRegion>) {
        self.lock().assigns.insert(node, Arc::clone(region));
    }

    /// Moves that took effect.
    pub(crate) fn moves(&self) -> u64 {
        self.lock().moves
    }

    /// Fails if anything was ever wrong.
    pub(crate) fn verdict(&self) {
        let wrong = &self.lock().wrong;
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

impl Inner {
    fn site_of(&self, node: u16) -> Option<SiteId> {
        let record = NodeRecord::open(self.assigns.get(&node)?.clone()).ok()?;
        record.assign()?.site
    }

    /// A node's assignment was swapped.
    fn assigned(&mut self, hard: usize, node: u16, life: u64, words: (u64, u64)) {
        let (Some(old), Some(new)) = (Assign::unpack(words.0), Assign::unpack(words.1)) else {
            return self.wrong.push(format!("node {node} was given up by an edge: {words:x?}"));
        };
        let step = u32::from(old.site != new.site);
        if new.version != old.version + step {
            self.wrong.push(format!("node {node}: {old:?} became {new:?}"));
        }
        let owner = *self.owners.entry((node, life, new.version)).or_insert(new.site);
        if owner != new.site {
            self.wrong.push(format!("node {node}: {owner:?} and {new:?} under one version"));
        }
        if step == 0 {
            return;
        }
        self.moves += 1;
        let Some(donor) = old.site else { return };
        let nodes: Vec<u16> = self.assigns.keys().copied().collect();
        let left = nodes.into_iter().filter(|&node| self.site_of(node) == Some(donor)).count();
        if left < hard {
            self.wrong.push(format!("node {node} left site {donor} with {left}"));
        }
    }

    fn departed(&mut self, words: (u64, u64)) {
        let (old, new) = (Depart::unpack(words.0), Depart::unpack(words.1));
        let is_install = new.pending.is_some();
        if is_install && (old.pending.is_some() || old.epoch != new.epoch) {
            self.wrong.push(format!("installed over {old:?}: {new:?}"));
        }
    }
}

/// A region under the eyes of a witness.
pub(crate) struct Seen {
    pub(crate) region: Arc<OwnedRegion>,
    pub(crate) whose: Whose,
    pub(crate) witness: Arc<Witness>,
    /// Where the home's `depart` words lie, in bytes.
    pub(crate) departs: Vec<u64>,
    /// Where a node's assignment lies, in bytes.
    pub(crate) assign: u64,
}

impl Mapped for Seen {
    fn descriptor(&self) -> &RegionDescriptor {
        self.region.descriptor()
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    fn compare_and_swap(&self, at: u64, expected: u64, new: u64) -> Result<u64, AccessError> {
        let mut inner = self.witness.lock();
        let word = self.region.word(at)?;
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let found = match word.compare_exchange(expected, new, order.0, order.1) {
            Ok(found) => found,
            Err(found) => return Ok(found),
        };
        let life = self.region.descriptor().incarnation.0;
        match self.whose {
            Whose::Node(node) if at == self.assign => {
                inner.assigned(self.witness.hard, node, life, (expected, new));
            }
            Whose::Home if self.departs.contains(&at) => inner.departed((expected, new)),
            _ => {}
        }
        Ok(found)
    }
}
