//! What becomes of a server's response.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_LOCATION, ETAG, HeaderMap, LOCATION};
use http::{Method, StatusCode};

use crate::cache::{Bypass, Cache};
use crate::conditional;
use crate::directives::number;
use crate::draft::{Answered, Draft};
use crate::entry::{self, Answer, CACHE_STATUS, Entry, HeadText};
use crate::fetch::Fetch;
use crate::fill::Fill;
use crate::key::{Key, KeyRef, Request};
use crate::merge;
use crate::moment::UnixMs;
use crate::options::{Mode, Rules};
use crate::purge::Purge;
use crate::range::{self, Cut, Wanted};
use crate::rules::{self, NotStored};
use crate::soft::Standing;
use crate::stats::Event;
use crate::status::CacheStatus;
use crate::tags::Tags;

/// A response's head, as a server sent it or a client gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
}

/// What of a server's body the client gets. A fill takes all of it in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deliver {
    /// All.
    Whole,
    /// A part: it asked for a range, and the server was asked for the whole.
    Part(Cut),
    /// Nothing: it has it, or asked for bytes behind the end.
    Nothing,
}

/// What the edge does with a server's response.
#[derive(Debug)]
pub enum Reply<P> {
    /// The client gets this; the server's body is not read.
    Answer(Answer),
    /// The client gets the server's response under this head.
    Pass {
        /// The head for the client.
        head: Head,
        /// What of the body it gets.
        deliver: Deliver,
        /// Takes the body, if the response may be kept, or says why it may not.
        fill: Result<Box<Fill<P>>, NotStored>,
    },
    /// The server must be asked once more, with this; the first response is not read. New versions
    /// are to be read before, as for a new fetch.
    Again(Box<Fetch<P>>),
}

impl<P> Cache<P> {
    /// What becomes of the response to a fetch.
    ///
    /// `prove` gives the proof that is to be kept with these tags, of versions that were read
    /// before the server was asked; `None` if they are not known. It is called in mode `strict`
    /// only. Requests that wait for this fetch are told by [`Collapse`](crate::Collapse) when the
    /// fill is finished, or at once if there is none.
    pub fn respond(
        &self,
        rules: &Rules,
        fetch: Box<Fetch<P>>,
        mut head: Head,
        now: UnixMs,
        prove: impl FnOnce(&Tags) -> Option<P>,
    ) -> Reply<P> {
        let unseen = rules::unseen(&head.headers, &fetch.client, &fetch.sent);
        if !unseen.is_empty() && !fetch.again && self.learn(fetch.key.site(), &unseen) {
            return self.again(rules, fetch);
        }
        let stored = fetch.stored.clone();
        if head.status == StatusCode::NOT_MODIFIED && fetch.conditional {
            return match stored {
                Some(stored) if stored.validators.fit(&head.headers) => {
                    let renewed = self.renew(rules, &fetch, &stored, &head.headers, now, prove);
                    Reply::Answer(renewed)
                }
                _ => self.again(rules, fetch),
            };
        }
        self.counters.count(Event::Forward(fetch.why));
        if is_failure(head.status)
            && let Some(answer) = self.stand_in(rules, &fetch, now, Some(head.status))
        {
            return Reply::Answer(answer);
        }
        let answered = Answered::new(rules, &fetch, &head, now);
        let draft = if unseen.is_empty() {
            answered.draft(prove)
        } else {
            // It is for those who send what could not be learnt.
            Err(NotStored::Vary)
        };
        let fill = draft.and_then(|draft| self.fill(rules, draft, &head.headers));
        if let Err(why) = fill {
            self.not_stored(rules, &fetch, why, now);
        }
        let status = CacheStatus {
            forward: Some(fetch.why),
            stored: fill.is_ok(),
            collapsed: fetch.collapsed,
            ttl_s: fill.as_ref().ok().map(|fill| fill.ttl_s(now)),
            ..CacheStatus::default()
        };
        entry::hide(rules, &mut head.headers);
        if fill.is_ok() && rules.mode == Mode::Strict {
            entry::ask_each_time(&mut head.headers);
        }
        let deliver = deliver(&fetch, &mut head, now);
        head.headers.append(CACHE_STATUS, status.value(&self.name));
        Reply::Pass { head, deliver, fill: fill.map(Box::new) }
    }

    /// A stored response in the place of one that no server gave; `None`: nothing may stand in.
    pub fn failed(&self, rules: &Rules, fetch: &Fetch<P>, now: UnixMs) -> Option<Answer> {
        self.counters.count(Event::Forward(fetch.why));
        self.stand_in(rules, fetch, now, None)
    }

    /// The head of a response that went past the cache: an unsafe method purges what it wrote to.
    pub fn passed(&self, rules: &Rules, request: &Request<'_>, why: Bypass, head: &mut Head) {
        if rules.mode == Mode::Off {
            return;
        }
        let safe = [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE];
        let done = head.status.is_success() || head.status.is_redirection();
        if !safe.contains(request.method) && done {
            self.written(request, &head.headers);
        }
        let status = CacheStatus { forward: Some(why.why), ..CacheStatus::default() };
        entry::hide(rules, &mut head.headers);
        head.headers.append(CACHE_STATUS, status.value(&self.name));
    }

    /// The body has come to its end: the response is stored, and other requests find it from now
    /// on.
    pub fn finish(&self, rules: &Rules, fill: Fill<P>, now: UnixMs) -> Result<(), NotStored> {
        let key = fill.key().clone();
        let shows_asker = rules::shows_asker(rules, &fill.draft.client);
        let stored = fill.into_parts().and_then(|(mut draft, body, digest)| {
            entry::complete(&mut draft.headers, draft.status, &body, &digest);
            let client = std::mem::take(&mut draft.client);
            let entry = Arc::new(self.entry(draft, body));
            self.put(rules, key.clone(), &entry, &client)
        });
        if let Err(why) = stored {
            self.counters.count(Event::NotStored);
            if why.is_lasting() && !shows_asker {
                self.expect_none(&key, now);
            }
        }
        stored
    }

    fn again(&self, rules: &Rules, fetch: Box<Fetch<P>>) -> Reply<P> {
        let varied = self.varied(fetch.key.site());
        Reply::Again(Box::new(fetch.anew(rules, &varied, self.purges.stamp())))
    }

    fn fill(
        &self,
        rules: &Rules,
        draft: Draft<P>,
        headers: &HeaderMap,
    ) -> Result<Fill<P>, NotStored> {
        let limit = rules.object_max_bytes.min(self.store.entry_bytes_max() / 2);
        let expected = headers.get(CONTENT_LENGTH).and_then(|len| number(len.as_bytes()));
        if expected.is_some_and(|expected| expected > limit) {
            return Err(NotStored::TooLarge);
        }
        Ok(Fill::new(draft, expected, limit))
    }

    fn not_stored(&self, rules: &Rules, fetch: &Fetch<P>, why: NotStored, now: UnixMs) {
        if fetch.method == Method::GET {
            self.counters.count(Event::NotStored);
            if why.is_lasting() && !rules::shows_asker(rules, &fetch.client) {
                self.expect_none(&fetch.key, now);
            }
        }
    }

    /// The stored response still holds: it takes over the 304's fields, and is new.
    fn renew(
        &self,
        rules: &Rules,
        fetch: &Fetch<P>,
        stored: &Arc<Entry<P>>,
        not_modified: &HeaderMap,
        now: UnixMs,
        prove: impl FnOnce(&Tags) -> Option<P>,
    ) -> Answer {
        self.counters.count(Event::Forward(fetch.why));
        self.counters.count(Event::Renewed);
        let headers = merge::merged(&stored.as_sent(), not_modified);
        let head = Head { status: stored.status, headers };
        let answered = Answered::new(rules, fetch, &head, now);
        let draft = answered.draft(prove);
        if let Err(why) = draft {
            self.not_stored(rules, fetch, why, now);
        }
        let keeps = draft.is_ok();
        // What may not be kept is answered all the same, this once.
        let mut draft = draft.unwrap_or_else(|_| answered.unkept());
        for name in [ETAG, CONTENT_LENGTH] {
            // Those that we gave it are those of its body, which has not changed.
            if let Some(value) = stored.headers.get(&name)
                && !draft.headers.contains_key(&name)
            {
                draft.headers.insert(name, value.clone());
            }
        }
        let key = draft.key.clone();
        let entry = Arc::new(self.entry(draft, stored.body.clone()));
        let kept = keeps && self.put(rules, key, &entry, &fetch.client).is_ok();
        let status = CacheStatus {
            forward: Some(fetch.why),
            forward_status: Some(StatusCode::NOT_MODIFIED),
            stored: kept,
            collapsed: fetch.collapsed,
            ttl_s: Some(entry.freshness.ttl_s(now)),
            detail: None,
        };
        entry.answer(fetch.asker(now), status.value(&self.name))
    }

    fn entry(&self, mut draft: Draft<P>, body: Bytes) -> Entry<P> {
        entry::make_room(&mut draft.headers);
        // Tags with a proof are judged by it.
        let tags = draft.proof.is_none().then_some(&draft.tags);
        let slots = self.purges.slots(&draft.key.borrowed(), tags);
        Entry {
            status: draft.status,
            headers: draft.headers,
            text: HeadText::default(),
            hidden: draft.hidden,
            body,
            validators: draft.validators,
            freshness: draft.freshness,
            stale_if_error_ms: draft.stale_if_error_ms,
            selected: draft.selected,
            tags: draft.tags,
            proof: draft.proof,
            stamp: draft.stamp,
            slots,
        }
    }

    /// Puts a response in the place of the one for the same requests.
    fn put(
        &self,
        rules: &Rules,
        key: Key,
        entry: &Arc<Entry<P>>,
        client: &HeaderMap,
    ) -> Result<(), NotStored> {
        if !self.purges.is_valid(entry.stamp, &entry.slots) {
            return Err(NotStored::Purged);
        }
        let replaces = |other: &Entry<P>| {
            other.selected.is_for(rules, client) || self.standing(rules, other) == Standing::Gone
        };
        self.store.put(key, Arc::clone(entry), replaces);
        self.counters.count(Event::Stored);
        Ok(())
    }

    fn stand_in(
        &self,
        rules: &Rules,
        fetch: &Fetch<P>,
        now: UnixMs,
        failed: Option<StatusCode>,
    ) -> Option<Answer> {
        let stored = fetch.stored.as_ref()?;
        let purged_ms = match self.standing(rules, stored) {
            Standing::Valid => None,
            Standing::Stale(since) => Some(now.since_ms(since)),
            Standing::Gone => return None,
        };
        let stale_ms = stored.freshness.stale_for_ms(now).max(purged_ms.unwrap_or(0));
        if stale_ms >= stored.stands_in_ms(rules) {
            return None;
        }
        self.counters.count(Event::StoodIn);
        let status = CacheStatus {
            forward: Some(fetch.why),
            forward_status: failed,
            collapsed: fetch.collapsed,
            ttl_s: Some(stored.freshness.left_s(now, purged_ms)),
            detail: Some("stale-if-error"),
            ..CacheStatus::default()
        };
        Some(stored.answer(fetch.asker(now), status.value(&self.name)))
    }

    /// An unsafe method was done: what it wrote to is purged, and what its response names of the
    /// same origin (RFC 9111, 4.4).
    fn written(&self, request: &Request<'_>, headers: &HeaderMap) {
        let key = request.key();
        self.purge(Purge::Url(key));
        for name in [LOCATION, CONTENT_LOCATION] {
            let target = headers.get(name).and_then(|value| value.to_str().ok());
            let Some(url) = target.and_then(|target| resolve(&key, target)) else { continue };
            if let Some(other) = KeyRef::of_url(key.site(), &url)
                && other.same_origin(&key)
            {
                self.purge(Purge::Url(other));
            }
        }
    }
}

/// Statuses in whose place a stale response may be answered (RFC 5861, 4).
fn is_failure(status: StatusCode) -> bool {
    [500, 502, 503, 504].contains(&status.as_u16())
}

/// What of the body the client gets, and the head that goes with it.
fn deliver<P>(fetch: &Fetch<P>, head: &mut Head, now: UnixMs) -> Deliver {
    if head.status != StatusCode::OK {
        return Deliver::Whole;
    }
    let now_s = now.seconds();
    if conditional::client_has(&fetch.client, &head.headers, now_s) {
        head.status = StatusCode::NOT_MODIFIED;
        head.headers = conditional::not_modified(&head.headers);
        return Deliver::Nothing;
    }
    let len = head.headers.get(CONTENT_LENGTH).and_then(|len| number(len.as_bytes()));
    let Some(len) = len.filter(|_| fetch.method == Method::GET) else { return Deliver::Whole };
    let wanted = range::wanted(&fetch.client, &head.headers, len, now_s);
    entry::part(wanted, len, &mut head.status, &mut head.headers);
    match wanted {
        Wanted::All => Deliver::Whole,
        Wanted::Part(begin, end) => Deliver::Part(Cut::new(begin, end)),
        Wanted::Nothing => Deliver::Nothing,
    }
}

/// The absolute URL that a reference of a response means; `None` where that cannot be told.
fn resolve(key: &KeyRef<'_>, target: &str) -> Option<String> {
    if target.contains("://") {
        return Some(target.to_owned());
    }
    let (scheme, authority) = (key.scheme().as_str(), key.authority());
    if let Some(rest) = target.strip_prefix("//") {
        return Some(format!("{scheme}://{rest}"));
    }
    let path = key.path_and_query().split('?').next()?;
    let path = match target {
        "" => key.path_and_query().to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        query if query.starts_with('?') => format!("{path}{query}"),
        relative => format!("{}{relative}", &path[..=path.rfind('/')?]),
    };
    Some(format!("{scheme}://{authority}{}", without_dots(&path)))
}

/// A path whose `.` and `..` are resolved (RFC 3986, 5.2.4).
fn without_dots(target: &str) -> String {
    let (path, query) = target.find(['?', '#']).map_or((target, ""), |at| target.split_at(at));
    let mut parts: Vec<&str> = Vec::new();
    let mut left = path.split('/').skip(1).peekable();
    while let Some(part) = left.next() {
        match part {
            ".." => {
                parts.pop();
            }
            "." => {}
            part => {
                parts.push(part);
                continue;
            }
        }
        if left.peek().is_none() {
            parts.push("");
        }
    }
    format!("/{}{query}", parts.join("/"))
}
