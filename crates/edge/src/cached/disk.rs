//! The disk tier of the cache, for requests: who waits for a file waits in its own task.

use super::{Caching, Proof};
use crate::attempt::Outgoing;
use cache::{Cache, Codec, Disk, DiskLimits, Explained, KeyRef, Lookup};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a request waits for the disk before it goes on as if nothing were there: a spinning
/// disk that is busy, and less than a person calls a delay.
const RECALL_MAX: Duration = Duration::from_millis(500);

/// How long somebody who asks why waits for it: an edge's answer is awaited for longer.
const EXPLAIN_MAX: Duration = Duration::from_secs(2);

const CODEC: Codec<Proof> = Codec { write: Proof::write, read: Proof::read };

/// The tier; without one the cache goes on in memory alone.
pub(super) fn open(limits: &DiskLimits) -> Option<Disk<Proof>> {
    let (folder, bytes) = (limits.folder.display(), limits.bytes);
    match Disk::open(limits, CODEC) {
        Ok(disk) => {
            tracing::info!("the cache keeps up to {bytes} bytes in {folder}");
            Some(disk)
        }
        Err(error) => {
            tracing::error!(%error, "the cache keeps nothing in {folder}, and goes on in memory");
            None
        }
    }
}

/// Looks a request up once more when the disk has said what it holds.
pub(super) async fn look_up(
    caching: &Caching,
    outgoing: &Outgoing,
    waited: bool,
    on_disk: Box<cache::OnDisk<Proof>>,
) -> Lookup<Proof> {
    let cache = &caching.cached.cache;
    let (tell, told) = oneshot::channel();
    // Whoever asked may have left meanwhile.
    cache.recall(&on_disk, Box::new(move |recalled| drop(tell.send(recalled))));
    let Ok(Ok(recalled)) = tokio::time::timeout(RECALL_MAX, told).await else {
        return on_disk.otherwise();
    };
    let Some(request) = caching.request(outgoing) else { return on_disk.otherwise() };
    let request = cache::Request { waited, ..request };
    match cache.recalled(&caching.rules, &request, recalled) {
        // Others are storing and giving up the same; a server knows for sure.
        Lookup::OnDisk(again) => again.otherwise(),
        lookup => lookup,
    }
}

/// What the disk holds for a URL, and goes on to hold; none if it has not said so in time, or could
/// not be read.
pub(super) async fn explain(
    cache: &Cache<Proof>,
    key: &KeyRef<'_>,
) -> Option<Vec<Explained<Proof>>> {
    let (tell, told) = oneshot::channel();
    // Whoever asked may have left meanwhile.
    if !cache.ask_disk(key, Box::new(move |recalled| drop(tell.send(recalled)))) {
        return Some(Vec::new());
    }
    let recalled = tokio::time::timeout(EXPLAIN_MAX, told).await.ok()?.ok()?;
    cache.explain_recalled(key, &recalled)
}
