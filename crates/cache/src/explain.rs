//! What is stored for a URL, for those who ask why it is a hit or none.
//!
//! Looking changes nothing: it counts as no use, and what lies on the disk stays there.

use std::sync::Arc;

use quick_cache::Equivalent as _;

use crate::cache::Cache;
use crate::disk::{Done, Recalled};
use crate::entry::Entry;
use crate::key::KeyRef;
use crate::moment::UnixMs;
use crate::soft::Standing;

/// One stored response of a URL.
#[derive(Debug)]
pub struct Explained<P> {
    /// The response.
    pub entry: Arc<Entry<P>>,
    /// Whether it was purged, and is only still there.
    pub purged: bool,
    /// Since when it is stale by a soft purge, if there was one.
    pub stale_since: Option<UnixMs>,
}

impl<P> Cache<P> {
    /// All that memory holds for a URL.
    #[must_use]
    pub fn explain(&self, key: &KeyRef<'_>) -> Vec<Explained<P>> {
        let Some(variants) = self.store.peek(key) else { return Vec::new() };
        self.explained(&variants.entries)
    }

    /// Asks the disk what it holds for a URL, as [`Cache::recall`] does; false if it holds nothing,
    /// and then nobody is told. What it tells is for [`Cache::explain_recalled`].
    pub fn ask_disk(&self, key: &KeyRef<'_>, done: Done<P>) -> bool {
        let Some(disk) = self.store.disk().filter(|disk| disk.has(key)) else { return false };
        disk.recall(key, done);
        true
    }

    /// All that the disk said it holds for a URL; none if it could not be read.
    #[must_use]
    pub fn explain_recalled(
        &self,
        key: &KeyRef<'_>,
        recalled: &Recalled<P>,
    ) -> Option<Vec<Explained<P>>> {
        let (of, entries) = recalled.parts()?;
        // Another URL may have the same hash.
        Some(if key.equivalent(of) { self.explained(entries) } else { Vec::new() })
    }

    fn explained(&self, entries: &[Arc<Entry<P>>]) -> Vec<Explained<P>> {
        let explain = |entry: &Arc<Entry<P>>| {
            let received_at = entry.freshness.received_at;
            let standing = self.purges.standing(entry.stamp, &entry.slots, received_at);
            let stale_since = match standing {
                // What is proved by tags is of mode `strict`.
                Standing::Stale(since) if entry.proof.is_none() => Some(since),
                _ => None,
            };
            let purged = standing != Standing::Valid && stale_since.is_none();
            Explained { entry: Arc::clone(entry), purged, stale_since }
        };
        entries.iter().map(explain).collect()
    }
}
