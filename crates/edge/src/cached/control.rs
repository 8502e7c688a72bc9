//! The cache of an edge for those who look at it and purge it, from any thread.

use super::{Cached, Proof, Versions, disk};
use crate::core::Shared;
use crate::hosts::host_of;
use cache::{Explained, KeyRef, Purge, Stats, UnixMs};
use http::Uri;
use pool_model::SiteId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachePurge {
    /// All responses for one absolute URL of a site.
    Url(SiteId, String),
    /// All of a site that carry this tag.
    Tag(SiteId, String),
    /// All of a site.
    Site(SiteId),
    /// Everything.
    All,
}

impl CachePurge {
    /// As the cache takes it; none if a URL is none.
    fn parts(&self) -> Option<Purge<'_>> {
        Some(match self {
            Self::Url(site, url) => Purge::Url(KeyRef::of_url(*site, url)?),
            Self::Tag(site, tag) => Purge::Tag(*site, tag.as_bytes()),
            Self::Site(site) => Purge::Site(*site),
            Self::All => Purge::All,
        })
    }
}

/// What a cache holds and has done, and who waits at this moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheReport {
    /// Counts since the cache was made: the first site that has one, or another limit, makes it.
    pub stats: Stats,
    /// Responses that are fetched for more than their own client.
    pub flights: u64,
    /// Requests that wait for them.
    pub waiting: u64,
}

/// One stored response, for those who ask why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// Its status.
    pub status: u16,
    /// Seconds since its server made it.
    pub age_s: u64,
    /// Seconds for which it is still fresh; negative: since when it is not.
    pub ttl_s: i64,
    /// Whether it was purged, and is only still there.
    pub purged: bool,
    /// Whether it is stale because of a soft purge.
    pub purged_softly: bool,
    /// Whether its tags hold now, in mode `strict` and where that can be told at once.
    pub holds: Option<bool>,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// The fields of requests that it is found by.
    pub varies_by: Vec<String>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Whether it lies on the disk, or is on its way there, and no longer in memory.
    pub on_disk: bool,
}

/// What is stored for a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponses {
    /// The newest first.
    pub responses: Vec<StoredResponse>,
    /// The disk holds something, and has not said in time what, or it could not be read.
    pub is_unread: bool,
}

/// Reaches the cache of an edge, whichever it has at the time.
#[derive(Clone, Debug, Default)]
pub struct CacheControl(Arc<Mutex<Option<Arc<Shared>>>>);

impl CacheControl {
    /// The edge serves under these from now on.
    pub(crate) fn set(&self, shared: &Arc<Shared>) {
        *self.lock() = Some(Arc::clone(shared));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Shared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self) -> Option<Arc<Cached>> {
        self.lock().as_ref()?.cached.clone()
    }

    /// The site that an absolute URL belongs to; none if it is no URL, or no site has its host.
    #[must_use]
    pub fn site_of(&self, url: &str) -> Option<SiteId> {
        let url: Uri = url.parse().ok()?;
        let shared = self.lock().clone()?;
        let found = shared.sites.find(host_of(url.authority()?.as_str().as_bytes())?);
        Some(shared.options.sites[found?.0].id)
    }

    fn versions(&self, site: SiteId) -> Option<Versions> {
        let shared = self.lock().clone()?;
        let mut sites = shared.options.sites.iter();
        sites.find(|options| options.id == site)?.versions.clone()
    }

    /// Sites with a cache.
    #[must_use]
    pub fn sites(&self) -> Vec<SiteId> {
        let Some(shared) = self.lock().clone() else { return Vec::new() };
        let sites = shared.options.sites.iter().filter(|site| super::is_on(site));
        sites.map(|site| site.id).collect()
    }

    /// What it holds and has done; none while no site has a cache.
    #[must_use]
    pub fn report(&self) -> Option<CacheReport> {
        let cached = self.get()?;
        let (flights, waiting) = cached.flights.held();
        let stats = cached.cache.stats();
        Some(CacheReport { stats, flights: flights as u64, waiting: waiting as u64 })
    }

    /// Makes what was stored, or asked for, before now invalid; whether this says anything: a URL
    /// may be none.
    #[must_use]
    pub fn purge(&self, what: &CachePurge) -> bool {
        let Some(purge) = what.parts() else { return false };
        if let Some(cached) = self.get() {
            cached.cache.purge(purge);
        }
        true
    }

    /// The same, but that it goes on as stale, for sites that allow the use of what is; not in mode
    /// `strict`, where this is a purge like others.
    #[must_use]
    pub fn purge_softly(&self, what: &CachePurge) -> bool {
        let Some(purge) = what.parts() else { return false };
        if let Some(cached) = self.get() {
            cached.cache.purge_softly(purge, super::now());
        }
        true
    }

    /// What is stored for an absolute URL of a site; none if it is no URL. Waits for the disk where
    /// memory holds nothing, and leaves there what lies there.
    pub async fn explain(&self, site: SiteId, url: &str) -> Option<StoredResponses> {
        let key = KeyRef::of_url(site, url)?;
        let Some(cached) = self.get() else { return Some(StoredResponses::default()) };
        let (now, versions) = (super::now(), self.versions(site));
        let of = |one: Explained<Proof>, on_disk| stored(&one, versions.as_ref(), now, on_disk);
        let in_memory = cached.cache.explain(&key);
        if !in_memory.is_empty() {
            let responses = in_memory.into_iter().map(|one| of(one, false)).collect();
            return Some(StoredResponses { responses, is_unread: false });
        }
        Some(match disk::explain(&cached.cache, &key).await {
            Some(all) => {
                let responses = all.into_iter().map(|one| of(one, true)).collect();
                StoredResponses { responses, is_unread: false }
            }
            None => StoredResponses { responses: Vec::new(), is_unread: true },
        })
    }
}

fn stored(
    one: &Explained<Proof>,
    versions: Option<&Versions>,
    now: UnixMs,
    on_disk: bool,
) -> StoredResponse {
    let (entry, freshness) = (&one.entry, one.entry.freshness());
    let tag = |tag: &[u8]| String::from_utf8_lossy(tag).into_owned();
    StoredResponse {
        status: entry.status().as_u16(),
        age_s: freshness.age_ms(now) / 1_000,
        ttl_s: freshness.left_s(now, one.stale_since.map(|since| now.since_ms(since))),
        purged: one.purged,
        purged_softly: one.stale_since.is_some(),
        holds: entry.proof().and_then(|proof| versions?.holds_now(proof)),
        body_bytes: entry.body_bytes() as u64,
        varies_by: entry.varies_by().map(ToString::to_string).collect(),
        tags: entry.tags().iter().map(tag).collect(),
        on_disk,
    }
}
