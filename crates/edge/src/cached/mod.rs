//! Requests of sites with a cache: answered from it, or by a server whose response may be kept.
//!
//! ```text
//! look_up ─┬─ hit ────────────────────────────────► answer     (no dispatcher, no box, no wait)
//!          ├─ bypass ─► as without a cache, the head through `Cache::passed`
//!          └─ ask ─┬─ waits for another request's response, then looks up again
//!                  └─ a server ─► Cache::respond ─┬─► answer (revalidated, or standing in)
//!                                                 └─► `carry`: fill and client at once
//! ```
//!
//! A site without a cache costs one comparison.

mod ask;
mod carry;
mod control;
mod flights;
mod proof_tags;

pub(crate) use ask::{Asked, ask};
pub(crate) use carry::Carried;
pub use control::{CacheControl, CachePurge, CacheReport, StoredResponse};
pub use proof_tags::{SITE_TAG, url_tag, without_usual_port};

use crate::attempt::Outgoing;
use crate::download::{Download, Meter};
use crate::face::Dispatcher;
use crate::options::{Options, SiteOptions};
use crate::serve::{end_connection, head_of};
use cache::{Answer, Bypass, Cache, Forward, Head, Limits, Lookup, Mode, Request, Rules, Scheme};
use cache::{Purge, UnixMs};
use flights::Flights;
use http::{Response, response};
use pool_model::SiteId;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes for each response that the table of keys is made for: a small page. The table grows by
/// itself where there are more.
const ENTRY_BYTES_EXPECTED: u64 = 16 * 1024;

/// Most that it is made for from the start: its memory is taken at once.
const ENTRIES_EXPECTED_MAX: u64 = 32 * 1024;

/// What proves an entry of mode `strict`, in which no site can be yet.
#[derive(Debug)]
pub(crate) enum Proof {}

/// The cache of an edge, and who waits for what.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) cache: Cache<Proof>,
    pub(crate) flights: Arc<Flights>,
    limits: Limits,
}

impl Cached {
    fn new(limits: Limits) -> Self {
        Self { cache: Cache::new(&limits), flights: Arc::default(), limits }
    }
}

/// How one site uses it.
#[derive(Clone, Debug)]
pub(crate) struct Caching {
    pub(crate) cached: Arc<Cached>,
    pub(crate) rules: Arc<Rules>,
    site: SiteId,
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
    match before.filter(|before| before.limits == limits) {
        Some(before) => Some(Arc::clone(before)),
        None => Some(Arc::new(Cached::new(limits))),
    }
}

/// How each site uses the cache, in the order of the options.
pub(crate) fn caching(options: &Options, cached: Option<&Arc<Cached>>) -> Vec<Option<Caching>> {
    let of = |site: &SiteOptions| {
        let (rules, cached) = (site.cache.as_ref().filter(|_| is_on(site))?, cached?);
        Some(Caching { cached: Arc::clone(cached), rules: Arc::clone(rules), site: site.id })
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
        Lookup::Hit(mut hit) => match hit.take_refresh() {
            None => {
                meter.set_cache("hit");
                Looked::Hit(caching.cached.cache.hit(&caching.rules, &request, &hit))
            }
            Some(fetch) => {
                meter.set_cache("stale");
                ask::refresh(caching, meter, outgoing, fetch);
                Looked::Hit(caching.cached.cache.hit(&caching.rules, &request, &hit))
            }
        },
        Lookup::Bypass(bypass) => {
            meter.set_cache(bypass.why.token());
            Looked::Bypass(bypass)
        }
        lookup => Looked::Ask(lookup),
    }
}

impl Caching {
    /// The request as the cache sees it; none if its host is no text.
    fn request<'a>(&self, outgoing: &'a Outgoing) -> Option<Request<'a>> {
        let is_tls = outgoing.caller.secured.is_some();
        Some(Request {
            site: self.site,
            method: &outgoing.parts.method,
            scheme: if is_tls { Scheme::Https } else { Scheme::Http },
            authority: outgoing.host.to_str().ok()?,
            path_and_query: outgoing.head.target.as_str(),
            headers: &outgoing.parts.headers,
            now: now(),
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
