//! The cache as the edge sees it: look up, and if need be fetch, respond, finish.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode};
use pool_model::SiteId;
use quick_cache::{Equivalent as _, UnitWeighter};

use crate::disk::{Disk, Done, Handle, Recalled};
use crate::entry::{Answer, Client, Entry};
use crate::fetch::Fetch;
use crate::key::{Key, Request};
use crate::moment::UnixMs;
use crate::options::{Cookies, Limits, Mode, Rules};
use crate::purge::{Purge, Purges};
use crate::soft::Standing;
use crate::stats::{Audit, Counters, Event, Stats};
use crate::status::{CacheStatus, Forward};
use crate::store::{Store, Variants};
use crate::vary::Selected;
use crate::{conditional, directives::Directives};

/// Most fields that a site's responses may be found by: each is remembered, and sent to servers.
const VARIED_MAX: usize = 32;

/// URLs whose responses are known not to be kept.
const LASTING_MAX: usize = 16 << 10;

/// For how long that is believed: an application may change its mind, and until it is found out
/// its requests reach the servers as if there were no cache.
const LASTING_MS: u64 = 10_000;

/// What a look-up finds.
#[derive(Debug)]
pub enum Lookup<P> {
    /// Not for the cache: the request goes to a server as it is, and [`Cache::passed`] sees the
    /// response's head.
    Bypass(Bypass),
    /// There is a response. In mode `strict` its proof must hold now, or it is none: see
    /// [`Hit::proof`].
    Hit(Hit<P>),
    /// A server is to be asked, with [`Fetch::headers`].
    Fetch(Box<Fetch<P>>),
    /// The client wants it from the cache alone, and there is none: a 504.
    NotCached,
    /// The disk may hold what memory does not: see [`Cache::recall`].
    OnDisk(Box<OnDisk<P>>),
}

/// A request whose response the disk may hold.
#[derive(Debug)]
pub struct OnDisk<P> {
    key: Key,
    otherwise: Lookup<P>,
}

impl<P> OnDisk<P> {
    /// What the look-up says if the disk is not asked.
    #[must_use]
    pub fn otherwise(self) -> Lookup<P> {
        self.otherwise
    }
}

/// Why a request is not for the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bypass {
    /// As in `Cache-Status`.
    pub why: Forward,
}

/// A stored response that may be answered.
#[derive(Debug)]
pub struct Hit<P> {
    pub(crate) entry: Arc<Entry<P>>,
    /// How long its time has been over, if it has.
    stale_ms: Option<u64>,
    refresh: Option<Box<Fetch<P>>>,
}

impl<P> Hit<P> {
    /// What must hold **now**, after the request arrived, for this to be a hit at all. `None` in
    /// mode `http`: there nothing must.
    #[must_use]
    pub fn proof(&self) -> Option<&P> {
        self.entry.proof.as_ref()
    }

    /// The stored response.
    #[must_use]
    pub fn entry(&self) -> &Entry<P> {
        &self.entry
    }

    /// A fetch to be made while the client has its answer already: the response was stale, and
    /// allows its use meanwhile.
    pub fn take_refresh(&mut self) -> Option<Box<Fetch<P>>> {
        self.refresh.take()
    }
}

/// What an audit asks.
#[derive(Debug)]
pub struct Question<P> {
    /// The request to a server.
    pub fetch: Box<Fetch<P>>,
    /// The hit, with which its response is compared.
    pub entry: Arc<Entry<P>>,
}

/// One cache, for all sites and threads of an edge.
#[derive(Debug)]
pub struct Cache<P> {
    pub(crate) name: String,
    pub(crate) store: Store<P>,
    pub(crate) purges: Purges,
    pub(crate) counters: Counters,
    /// Fields that a site's `Vary` has named.
    varied: RwLock<HashMap<SiteId, Arc<[HeaderName]>>>,
    /// Hashes of keys whose responses are not kept, and until when that is believed.
    lasting: quick_cache::sync::Cache<u64, UnixMs, UnitWeighter, RandomState>,
    pub(crate) state: RandomState,
    /// Its threads end with this.
    _disk: Option<Disk<P>>,
}

impl<P> Cache<P> {
    /// An empty one, in memory alone.
    #[must_use]
    pub fn new(limits: &Limits) -> Self {
        Self::with(limits, None)
    }

    /// An empty one, whose memory gives up to the disk, if there is one.
    #[must_use]
    pub fn with(limits: &Limits, disk: Option<Disk<P>>) -> Self {
        let state = RandomState::new();
        let lasting = quick_cache::sync::Cache::with(
            LASTING_MAX,
            LASTING_MAX as u64,
            UnitWeighter,
            state.clone(),
            quick_cache::sync::DefaultLifecycle::default(),
        );
        Self {
            name: limits.name.clone(),
            store: Store::new(limits, disk.as_ref().map(Disk::handle)),
            purges: Purges::new(),
            counters: Counters::new(),
            varied: RwLock::new(HashMap::new()),
            lasting,
            state,
            _disk: disk,
        }
    }

    /// What there is for a request. Costs a hash, a lock for reading and a few comparisons.
    pub fn lookup(&self, rules: &Rules, request: &Request<'_>) -> Lookup<P> {
        self.find_or(rules, request, None)
    }

    fn find_or(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        recalled: Option<Arc<Variants<P>>>,
    ) -> Lookup<P> {
        if let Err(why) = is_for_cache(rules, request) {
            return self.bypass(why);
        }
        let asked = asked(rules, request);
        if asked.no_store {
            return self.bypass(Forward::Request);
        }
        let key = request.key();
        let variants = self.store.get(&key).or(recalled);
        let found = variants.as_ref().map(|variants| self.find(rules, request, variants));
        let is_new = found.is_none();
        let lookup = match found {
            Some(Found::Entry(entry, purged_ms)) => {
                self.judge(rules, request, &asked, entry, purged_ms)
            }
            Some(Found::Old(entry)) => {
                Lookup::Fetch(self.fetch(rules, request, Forward::Miss, entry))
            }
            Some(Found::Others) => {
                let fetch = self.fetch(rules, request, Forward::VaryMiss, None);
                Lookup::Fetch(fetch)
            }
            None => {
                let until = self.lasting.get(&self.state.hash_one(key));
                if until.is_some_and(|until| request.now < until) {
                    return self.bypass(Forward::Bypass);
                }
                Lookup::Fetch(self.fetch(rules, request, Forward::UriMiss, None))
            }
        };
        let lookup = match lookup {
            Lookup::Fetch(_) if asked.only_if_cached => Lookup::NotCached,
            lookup => lookup,
        };
        if is_new && self.store.disk().is_some_and(|disk| disk.has(&key)) {
            return Lookup::OnDisk(Box::new(OnDisk { key: key.to_key(), otherwise: lookup }));
        }
        lookup
    }

    /// Asks the disk. `done` is told, by this thread or another one, what to call
    /// [`Cache::recalled`] with; it is dropped if the cache is.
    pub fn recall(&self, on_disk: &OnDisk<P>, done: Done<P>) {
        if let Some(disk) = self.store.disk() {
            disk.recall(&on_disk.key.borrowed(), done);
        }
    }

    /// Looks a request up when the disk has answered. What it held is in memory from now on, or,
    /// where memory has no room, for this request alone. Again [`Lookup::OnDisk`] if something else
    /// was stored and given up meanwhile.
    pub fn recalled(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        recalled: Recalled<P>,
    ) -> Lookup<P> {
        let restored = self.store.restore(recalled);
        let own = restored.filter(|(key, _)| request.key().equivalent(key));
        self.find_or(rules, request, own.map(|(_, variants)| variants))
    }

    /// The answer of a hit, which counts as one. In mode `strict` its proof was found to hold since
    /// the request arrived.
    pub fn hit(&self, rules: &Rules, request: &Request<'_>, hit: &Hit<P>) -> Answer {
        self.counters.count(Event::Hit);
        let status = Self::status_of(rules, request, hit);
        hit.entry.answer(client(request), status.value(&self.name))
    }

    /// What is stored for a GET, if that may be answered as it is by [`Cache::hit_written`];
    /// nothing is counted. `holds`: whether a proof holds now; a hit with a proof is one that does.
    pub fn hit_now(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        holds: impl FnOnce(&P) -> bool,
    ) -> Option<Hit<P>> {
        is_for_cache(rules, request).ok().filter(|()| *request.method == Method::GET)?;
        let asked = asked(rules, request);
        if asked.no_store {
            return None;
        }
        let variants = self.store.get(&request.key())?;
        let entry = variants.newest_for(rules, request)?;
        // One after the other with nothing between: what both read may be in no cache of the
        // processor, and so comes at the same time.
        let is_proved = entry.proof.as_ref().map_or(rules.mode != Mode::Strict, holds);
        let is_purged = !self.purges.is_valid(entry.stamp, &entry.slots);
        if !is_proved || is_purged || !entry.has_text() {
            return None;
        }
        match self.judge(rules, request, &asked, Arc::clone(entry), None) {
            Lookup::Hit(hit) if hit.refresh.is_none() => Some(hit),
            _ => None,
        }
    }

    /// The same as [`Cache::hit`] of what [`Cache::hit_now`] found, written as HTTP/1.1 has it: the
    /// status line and all fields, each with its end of line. The empty line is left to the caller.
    pub fn hit_written<'h>(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        hit: &'h Hit<P>,
        head: &mut Vec<u8>,
    ) -> (StatusCode, Cow<'h, Bytes>) {
        self.counters.count(Event::Hit);
        let status = Self::status_of(rules, request, hit);
        hit.entry.write(client(request), &status, &self.name, head)
    }

    fn status_of(rules: &Rules, request: &Request<'_>, hit: &Hit<P>) -> CacheStatus {
        CacheStatus {
            forward: request.waited.then_some(Forward::Miss),
            collapsed: request.waited,
            ttl_s: Some(hit.entry.freshness.left_s(request.now, hit.stale_ms)),
            detail: match () {
                () if hit.stale_ms.is_some() => Some("stale"),
                () if hit.entry.proof.is_some() => Some(rules.source.label()),
                () => None,
            },
            ..CacheStatus::default()
        }
    }

    /// What is in the place of a hit whose proof did not hold: a fetch, or nothing for a client
    /// that wants it from the cache alone.
    pub fn refused(&self, rules: &Rules, request: &Request<'_>, hit: Hit<P>) -> Lookup<P> {
        self.counters.count(Event::Refused);
        if asked(rules, request).only_if_cached {
            return Lookup::NotCached;
        }
        Lookup::Fetch(self.fetch(rules, request, Forward::Miss, Some(hit.entry)))
    }

    /// The question by which a hit is audited, and what is compared; nothing for a request that
    /// shows who asks.
    #[must_use]
    pub fn audit(&self, rules: &Rules, request: &Request<'_>, hit: &Hit<P>) -> Option<Question<P>> {
        let fetch = self.fetch(rules, request, Forward::Miss, None);
        let entry = Arc::clone(&hit.entry);
        fetch.is_shared().then_some(Question { fetch, entry })
    }

    /// Counts what an audit has brought.
    pub fn audited(&self, said: Audit) {
        self.counters.count(Event::Audited(said));
    }

    /// Makes what was stored, or asked for, before now invalid.
    pub fn purge(&self, what: Purge<'_>) {
        self.counters.count(Event::Purged);
        self.purges.purge(what);
        // The words decide; this gives the memory back.
        match what {
            Purge::Url(key) => self.store.remove(&key),
            Purge::Tag(..) => {}
            Purge::Site(site) => self.store.forget(Some(site)),
            Purge::All => self.store.forget(None),
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (urls, bytes, evicted) = self.store.held();
        let disk = self.store.disk().map(Handle::stats);
        Stats { urls, bytes, evicted, disk, ..self.counters.read() }
    }

    fn bypass(&self, why: Forward) -> Lookup<P> {
        self.counters.count(Event::Forward(why));
        Lookup::Bypass(Bypass { why })
    }

    /// The newest response that is for this request.
    fn find(&self, rules: &Rules, request: &Request<'_>, variants: &Variants<P>) -> Found<P> {
        let Some(entry) = variants.newest_for(rules, request) else { return Found::Others };
        let purged_ms = match self.standing(rules, entry) {
            Standing::Valid => None,
            Standing::Stale(since) => Some(request.now.since_ms(since)),
            Standing::Gone => return Found::Old(None),
        };
        // The site may have become strict since.
        if rules.mode == Mode::Strict && entry.proof.is_none() {
            return Found::Old(Some(Arc::clone(entry)));
        }
        Found::Entry(Arc::clone(entry), purged_ms)
    }

    /// `purged_ms`: how long ago a soft purge was, if one was.
    fn judge(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        asked: &Directives,
        entry: Arc<Entry<P>>,
        purged_ms: Option<u64>,
    ) -> Lookup<P> {
        let (freshness, now) = (&entry.freshness, request.now);
        let (age_ms, left_s) = (freshness.age_ms(now), freshness.left_s(now, purged_ms));
        let ms = |seconds: u64| seconds.saturating_mul(1_000);
        let too_old = asked.max_age.is_some_and(|max| age_ms > ms(max) || max == 0)
            || asked.min_fresh.is_some_and(|min| left_s < i64::try_from(min).unwrap_or(i64::MAX))
            || asked.no_cache.is_whole();
        if too_old {
            return Lookup::Fetch(self.fetch(rules, request, Forward::Request, Some(entry)));
        }
        if purged_ms.is_none() && freshness.is_fresh(now) {
            return Lookup::Hit(Hit { entry, stale_ms: None, refresh: None });
        }
        let stale_ms = freshness.stale_for_ms(now).max(purged_ms.unwrap_or(0));
        let may = !freshness.never_stale && rules.mode == Mode::Http;
        if may && asked.max_stale.is_some_and(|max| stale_ms <= ms(max)) {
            return Lookup::Hit(Hit { entry, stale_ms: Some(stale_ms), refresh: None });
        }
        let fetch = self.fetch(rules, request, Forward::Stale, Some(Arc::clone(&entry)));
        if may && stale_ms < freshness.while_revalidate_ms {
            return Lookup::Hit(Hit { entry, stale_ms: Some(stale_ms), refresh: Some(fetch) });
        }
        Lookup::Fetch(fetch)
    }

    fn fetch(
        &self,
        rules: &Rules,
        request: &Request<'_>,
        why: Forward,
        stored: Option<Arc<Entry<P>>>,
    ) -> Box<Fetch<P>> {
        // Before the server is asked, so that no purge from now on is missed.
        let stamp = self.purges.stamp();
        let key = request.key();
        let meaning = self.meaning(rules, request);
        let flight = self.state.hash_one((key, request.method == Method::HEAD, meaning));
        let varied = self.varied(request.site);
        let is_valid = |entry: &Arc<Entry<P>>| self.purges.is_valid(entry.stamp, &entry.slots);
        let purged = stored.as_ref().is_some_and(|entry| !is_valid(entry));
        let mut fetch = Fetch::new(rules, request, why, stored, stamp, flight);
        fetch.purged = purged;
        fetch.prepare(rules, &varied);
        Box::new(fetch)
    }

    /// What tells requests for this URL apart, as far as is known: by its newest response, or by
    /// the site's settings alone, so that nobody waits for a first response for another user.
    fn meaning(&self, rules: &Rules, request: &Request<'_>) -> Option<Vec<u8>> {
        let variants = self.store.peek(&request.key());
        if let Some(newest) = variants.as_ref().and_then(|variants| variants.entries.first()) {
            return Some(newest.selected.meaning_of(rules, request.headers));
        }
        let keyed = Selected::of(rules, request.headers, &HeaderMap::new()).ok()?;
        Some(keyed.meaning_of(rules, request.headers))
    }

    /// Fields that responses of a site are found by.
    pub(crate) fn varied(&self, site: SiteId) -> Arc<[HeaderName]> {
        let all = self.varied.read().unwrap_or_else(PoisonError::into_inner);
        all.get(&site).cloned().unwrap_or_default()
    }

    /// Remembers fields that a `Vary` of a site has named; whether there was room for them.
    pub(crate) fn learn(&self, site: SiteId, names: &[HeaderName]) -> bool {
        let mut all = self.varied.write().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(site).or_default();
        let mut more = known.to_vec();
        more.extend(names.iter().filter(|name| !known.contains(name)).cloned());
        if more.len() > VARIED_MAX {
            return false;
        }
        *known = more.into();
        true
    }

    /// Remembers for a while that a URL's responses are not kept.
    pub(crate) fn expect_none(&self, key: &Key, now: UnixMs) {
        let until = UnixMs(now.0.saturating_add(LASTING_MS));
        self.lasting.insert(self.hash(&key.borrowed()), until);
    }

    pub(crate) fn hash(&self, what: &impl Hash) -> u64 {
        self.state.hash_one(what)
    }
}

enum Found<P> {
    /// With the milliseconds since a soft purge, if there was one.
    Entry(Arc<Entry<P>>, Option<u64>),
    /// It is for this request, and cannot be a hit; the server may be asked about it.
    Old(Option<Arc<Entry<P>>>),
    /// None is for this request.
    Others,
}

/// Who asks, for the answer.
pub(crate) fn client<'a>(request: &Request<'a>) -> Client<'a> {
    Client { head_only: request.method == Method::HEAD, headers: request.headers, now: request.now }
}

/// Whether a request may be answered from the cache, and its response kept.
fn is_for_cache(rules: &Rules, request: &Request<'_>) -> Result<(), Forward> {
    if rules.mode == Mode::Off {
        return Err(Forward::Bypass);
    }
    if request.method != Method::GET && request.method != Method::HEAD {
        return Err(Forward::Method);
    }
    let headers = request.headers;
    let cookies = rules.cookies == Cookies::Bypass && headers.contains_key(http::header::COOKIE);
    let body = headers.contains_key(http::header::TRANSFER_ENCODING)
        || headers.get(http::header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    let other = headers.contains_key(http::header::UPGRADE);
    if cookies || body || other || conditional::needs_server(headers) {
        return Err(Forward::Request);
    }
    Ok(())
}

/// What the client's `Cache-Control` asks for, if the site heeds it.
fn asked(rules: &Rules, request: &Request<'_>) -> Directives {
    if !rules.client_directives || !has_directives(request.headers) {
        return Directives::default();
    }
    let mut asked = Directives::of(request.headers);
    // RFC 9111, 5.4: for clients of long ago.
    let pragma = request.headers.get(http::header::PRAGMA);
    if !request.headers.contains_key(http::header::CACHE_CONTROL)
        && pragma.is_some_and(|pragma| pragma.as_bytes().eq_ignore_ascii_case(b"no-cache"))
    {
        asked.no_cache = crate::directives::Scope::Whole;
    }
    asked
}

fn has_directives(headers: &HeaderMap) -> bool {
    headers.contains_key(http::header::CACHE_CONTROL) || headers.contains_key(http::header::PRAGMA)
}
