//! Requests of sites with a cache: answered from it, or by a server whose response may be kept.
//!
//! ```text
//! look_up ─┬─ hit, and in mode strict its proof holds ─► answer (no dispatcher, no box, no wait)
//!          ├─ bypass ─► as without a cache, the head through `Cache::passed`
//!          └─ ask ─┬─ waits for the disk, then looks up again
//!                  ├─ waits for another request's response, then looks up again
//!                  └─ a server ─► Cache::respond ─┬─► answer (revalidated, or standing in)
//!                                                 └─► `carry`: fill and client at once
//! ```
//!
//! A site without a cache costs one comparison.

mod ask;
mod at_once;
mod audit;
mod carry;
mod control;
mod disk;
mod far;
mod flights;
mod versions;

pub(crate) use ask::{Asked, ask};
pub(crate) use at_once::answer_at_once;
pub(crate) use carry::Carried;
pub use control::{CacheControl, CachePurge, CacheReport, StoredResponse, StoredResponses};
pub(crate) use far::FarLinks;
pub use far::FarVersions;
pub use versions::{SITE_TAG, Versions, url_tag};

use crate::attempt::Outgoing;
use crate::download::{Download, Meter};
use crate::face::Dispatcher;
use crate::options::{Options, SiteOptions};
use crate::serve::{end_connection, head_of};
use cache::{Answer, Bypass, Cache, Forward, Head, Hit, Key, Limits, Lookup, Mode, Request, Rules};
use cache::{DiskLimits, Purge, Scheme, Tags, UnixMs};
use flights::Flights;
use http::{Response, response};
use pool_model::SiteId;
use shared_state::versions::Filled;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
pub(crate) use versions::Proof;

/// Bytes for each response that the table of keys is made for: a small page. The table grows by
/// itself where there are more.
const ENTRY_BYTES_EXPECTED: u64 = 16 * 1024;

/// Most that it is made for from the start: its memory is taken at once.
const ENTRIES_EXPECTED_MAX: u64 = 32 * 1024;

/// The cache of an edge, and who waits for what.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) cache: Cache<Proof>,
    pub(crate) flights: Arc<Flights>,
    limits: (Limits, Option<DiskLimits>),
}

impl Cached {
    fn new(limits: Limits, disk: Option<DiskLimits>) -> Self {
        let cache = Cache::with(&limits, disk.as_ref().and_then(disk::open));
        Self { cache, flights: Arc::default(), limits: (limits, disk) }
    }
}

/// How one site uses it.
#[derive(Clone, Debug)]
pub(crate) struct Caching {
    pub(crate) cached: Arc<Cached>,
    pub(crate) rules: Arc<Rules>,
    site: SiteId,
    /// In mode `strict`.
    versions: Option<Versions>,
}

/// Whether a site's responses are kept.
pub(crate) fn is_on(site: &SiteOptions) -> bool {
    site.cache.as_ref().is_some_and(|rules| rules.mode != Mode::Off)
}

/// The cache that these options need; what `before` holds stays where its limits do.
pub(crate) fn cached(options: &Options, before: Option<&Arc<Cached>>) -> Option<Arc<Cached>> {
    if !options.sites.iter().any(is_on) {
        return None;
    }
    let expected = (options.cache_bytes / ENTRY_BYTES_EXPECTED).clamp(1, ENTRIES_EXPECTED_MAX);
    let limits = Limits {
        memory_bytes: options.cache_bytes,
        entries_expected: usize::try_from(expected).unwrap_or(1),
        name: options.via_name.clone(),
    };
    let limits = (limits, options.cache_disk.clone());
    match before.filter(|before| before.limits == limits) {
        Some(before) => Some(Arc::clone(before)),
        None => Some(Arc::new(Cached::new(limits.0, limits.1))),
    }
}

/// How each site uses the cache, in the order of the options.
pub(crate) fn caching(options: &Options, cached: Option<&Arc<Cached>>) -> Vec<Option<Caching>> {
    let of = |site: &SiteOptions| {
        let (rules, cached) = (site.cache.as_ref().filter(|_| is_on(site))?, cached?);
        let versions = site.versions.clone().filter(|_| rules.mode == Mode::Strict);
        let (cached, rules) = (Arc::clone(cached), Arc::clone(rules));
        Some(Caching { cached, rules, site: site.id, versions })
    };
    options.sites.iter().map(of).collect()
}

/// Forgets what was stored under rules that no longer hold. To be called when all threads serve
/// under the new ones.
pub(crate) fn forget_changed(before: &Options, after: &Options, cached: Option<&Arc<Cached>>) {
    let Some(cached) = cached else { return };
    for (old, new) in before.sites.iter().zip(&after.sites) {
        if old.cache != new.cache {
            cached.cache.purge(Purge::Site(new.id));
        }
    }
}

/// The time, for the cache.
pub(crate) fn now() -> UnixMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What a first look says.
pub(crate) enum Looked {
    /// The answer.
    Hit(Answer),
    /// The request goes on as without a cache.
    Bypass(Bypass),
    /// A server, or another request, is to be asked; or there is nothing and no server may be.
    Ask(Lookup<Proof>),
}

/// Looks a request up.
pub(crate) fn look_up<D: Dispatcher>(meter: &mut Meter<D>, outgoing: &Outgoing) -> Looked {
    let core = Rc::clone(&meter.core);
    let Some(caching) = &core.shared.caching[outgoing.slot.0] else {
        return Looked::Bypass(Bypass { why: Forward::Bypass });
    };
    // A server hears of the certificate that its client has shown, and no answer tells for whom
    // it is.
    let is_known = outgoing.caller.is_verified_for(outgoing.slot);
    let Some(request) = caching.request(outgoing).filter(|_| !is_known) else {
        meter.set_cache(Forward::Request.token());
        return Looked::Bypass(Bypass { why: Forward::Request });
    };
    match caching.cached.cache.lookup(&caching.rules, &request) {
        Lookup::Hit(hit) => match caching.holds_now(&hit) {
            Some(true) => Looked::Hit(answer(caching, meter, outgoing, &request, hit)),
            Some(false) => Looked::Ask(caching.cached.cache.refused(&caching.rules, &request, hit)),
            None => Looked::Ask(Lookup::Hit(hit)),
        },
        Lookup::Bypass(bypass) => {
            meter.set_cache(bypass.why.token());
            Looked::Bypass(bypass)
        }
        lookup => Looked::Ask(lookup),
    }
}

fn answer<D: Dispatcher>(
    caching: &Caching,
    meter: &mut Meter<D>,
    outgoing: &Outgoing,
    request: &Request<'_>,
    mut hit: Hit<Proof>,
) -> Answer {
    match hit.take_refresh() {
        None => meter.set_cache("hit"),
        Some(fetch) => {
            meter.set_cache("stale");
            ask::refresh(caching, meter, outgoing, fetch);
        }
    }
    audit::sample(caching, meter, outgoing, request, &hit);
    caching.cached.cache.hit(&caching.rules, request, &hit)
}

impl Caching {
    /// Whether a hit is one, as far as that can be told at once.
    fn holds_now(&self, hit: &Hit<Proof>) -> Option<bool> {
        hit.proof().map_or(Some(true), |proof| self.proves(proof))
    }

    fn proves(&self, proof: &Proof) -> Option<bool> {
        self.versions.as_ref().map_or(Some(false), |versions| versions.holds_now(proof))
    }

    /// Whether a hit is one.
    async fn holds(&self, far: &FarLinks, hit: &Hit<Proof>) -> bool {
        match (hit.proof(), &self.versions) {
            (None, _) => true,
            (Some(proof), Some(versions)) => versions.holds(far, proof).await,
            (Some(_), None) => false,
        }
    }

    /// What a response will be proved by; awaited before its server is asked.
    async fn fill(&self, far: &FarLinks) -> Option<Filled> {
        self.versions.as_ref()?.fill(far).await
    }

    /// The proof of a response with these tags, if what was read before allows one.
    fn prove(&self, filled: Option<Filled>, key: &Key, tags: &Tags) -> Option<Proof> {
        Some(Proof::new(self.versions.as_ref()?.bits(), filled?, key, tags))
    }

    /// The request as the cache sees it; none if its host is no text.
    fn request<'a>(&self, outgoing: &'a Outgoing) -> Option<Request<'a>> {
        self.request_at(outgoing, now())
    }

    /// The same for a request that arrived then.
    fn request_at<'a>(&self, outgoing: &'a Outgoing, now: UnixMs) -> Option<Request<'a>> {
        let is_tls = outgoing.caller.secured.is_some();
        Some(Request {
            site: self.site,
            method: &outgoing.parts.method,
            scheme: if is_tls { Scheme::Https } else { Scheme::Http },
            authority: outgoing.host.to_str().ok()?,
            path_and_query: outgoing.head.target.as_str(),
            headers: &outgoing.parts.headers,
            now,
            waited: false,
        })
    }
}

/// The head of a response that went past the cache.
pub(crate) fn passed<D: Dispatcher>(
    meter: &Meter<D>,
    outgoing: &Outgoing,
    bypass: Bypass,
    parts: &mut response::Parts,
) {
    let Some(caching) = &meter.core.shared.caching[outgoing.slot.0] else { return };
    let Some(request) = caching.request(outgoing) else { return };
    let headers = std::mem::take(&mut parts.headers);
    let mut head = Head { status: parts.status, headers };
    caching.cached.cache.passed(&caching.rules, &request, bypass, &mut head);
    parts.headers = head.headers;
}

/// Answers a client without a server.
pub(crate) fn answered<D: Dispatcher>(
    mut meter: Meter<D>,
    answer: Answer,
) -> Response<Download<D>> {
    let (mut parts, ()) = Response::new(()).into_parts();
    (parts.status, parts.headers) = (answer.status, answer.headers);
    end_connection(&meter, &mut parts.headers, false);
    let parts = head_of(&mut meter, parts);
    Response::from_parts(parts, Download::stored(answer.body, meter))
}
