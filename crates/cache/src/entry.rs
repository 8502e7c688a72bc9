//! A stored response, ready to be answered.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use http::StatusCode;
use http::header::{
    AGE, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap,
    HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, RANGE,
};

use crate::conditional::Validators;
use crate::directives::{CDN_CACHE_CONTROL, Directives};
use crate::freshness::Freshness;
use crate::moment::UnixMs;
use crate::options::{Mode, Rules};
use crate::purge::Slots;
use crate::range::Wanted;
use crate::status::CacheStatus;
use crate::tags::{self, Tags};
use crate::vary::Selected;
use crate::{conditional, range, rules};

/// What the cache did, as a field.
pub(crate) const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// Fields that each answer has its own of.
const OF_EACH_ANSWER: [HeaderName; 2] = [AGE, CACHE_STATUS];

/// Fields that are about one connection, or one proxy, or one answer: never kept.
const NEVER_KEPT: [&str; 13] = [
    "age",
    "cache-status",
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];

/// A response as a client gets it.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields, with `Age`, `Cache-Status` and `Content-Length`.
    pub headers: HeaderMap,
    /// Its body; empty for HEAD.
    pub body: Bytes,
}

/// A stored response. `P`: what proves in mode `strict` that its tags were not updated since.
///
/// What a hit reads lies together, in the order in which it is read: nothing of a stored response
/// is in the processor's caches when its turn comes.
#[derive(Debug)]
#[repr(C)]
pub struct Entry<P> {
    pub(crate) selected: Selected,
    /// What purges are compared with: read before the server was asked.
    pub(crate) stamp: u64,
    /// The words of the purge table that concern it.
    pub(crate) slots: Slots,
    pub(crate) freshness: Freshness,
    pub(crate) proof: Option<P>,
    pub(crate) text: HeadText,
    pub(crate) body: Bytes,
    pub(crate) status: StatusCode,
    /// As clients get them. `Age` and `Cache-Status` are there without a value of use, so that
    /// setting them moves no other field.
    pub(crate) headers: HeaderMap,
    /// What the server said and clients do not see.
    pub(crate) hidden: HeaderMap,
    pub(crate) validators: Validators,
    /// For how long it may stand in for a failed server by its own word.
    pub(crate) stale_if_error_ms: Option<u64>,
    pub(crate) tags: Tags,
}

/// What a client wants of a stored response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client<'a> {
    pub(crate) head_only: bool,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) now: UnixMs,
}

impl<P> Entry<P> {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// When it is fresh.
    #[must_use]
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Its tags.
    #[must_use]
    pub fn tags(&self) -> &Tags {
        &self.tags
    }

    /// What proves that they were not updated since.
    #[must_use]
    pub fn proof(&self) -> Option<&P> {
        self.proof.as_ref()
    }

    /// Bytes of its body.
    #[must_use]
    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Whether this is its body.
    #[must_use]
    pub fn has_body(&self, body: &[u8]) -> bool {
        *self.body == *body
    }

    /// Whether its head can be written as text: it tells its time, which whoever sends it would
    /// have to add otherwise.
    pub(crate) fn has_text(&self) -> bool {
        self.text.get(self).is_some()
    }

    /// The fields of requests that it is found by.
    pub fn varies_by(&self) -> impl Iterator<Item = &HeaderName> {
        self.selected.names()
    }

    /// Its own bytes of memory, roughly: that of a head's fields is counted as their text and the
    /// table's words.
    pub(crate) fn bytes(&self) -> u64 {
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            name.as_str().len() + value.len() + 2 * size_of::<HeaderValue>()
        };
        let head: usize = self.headers.iter().map(field).sum();
        let own = self.selected.bytes() + self.tags.bytes() + 4 * self.slots.len();
        // The head once more, as text.
        let text: usize =
            self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        (size_of::<Self>() + head + text + own + self.body.len()) as u64
    }

    /// The fields as the server sent them, but for those of one connection.
    pub(crate) fn as_sent(&self) -> HeaderMap {
        let mut sent = self.headers.clone();
        for name in self.hidden.keys().chain(&[AGE, CACHE_STATUS]) {
            sent.remove(name);
        }
        sent.extend(self.hidden.clone());
        if self.validators.etag.is_none() {
            sent.remove(ETAG);
        }
        sent
    }

    /// For how long after its time it may stand in for a failed server.
    pub(crate) fn stands_in_ms(&self, rules: &Rules) -> u64 {
        if self.freshness.never_stale {
            return 0;
        }
        self.stale_if_error_ms.unwrap_or(u64::MAX).min(rules.stale_if_error_ms)
    }

    /// The answer to a client that asks for it: whole, in part, or that the client has it already.
    pub(crate) fn answer(&self, client: Client<'_>, cache_status: HeaderValue) -> Answer {
        let mut answer = self.choose(client);
        let age = self.freshness.age_ms(client.now) / 1_000;
        answer.headers.insert(AGE, HeaderValue::from(age));
        answer.headers.insert(CACHE_STATUS, cache_status);
        if client.head_only {
            answer.body = Bytes::new();
        }
        answer
    }

    /// The same for a GET, written as HTTP/1.1 has it: status line and fields. The whole body is
    /// lent: counting who has it costs a hit a piece of memory that nothing else of it reads.
    pub(crate) fn write(
        &self,
        client: Client<'_>,
        cache_status: &CacheStatus,
        cache: &str,
        head: &mut Vec<u8>,
    ) -> (StatusCode, Cow<'_, Bytes>) {
        let asks_less = [IF_NONE_MATCH, IF_MODIFIED_SINCE, RANGE];
        let asks_less = asks_less.iter().any(|name| client.headers.contains_key(name));
        let (status, body) = match self.text.get(self) {
            Some(text) if !asks_less => {
                head.extend_from_slice(text);
                (self.status, Cow::Borrowed(&self.body))
            }
            _ => {
                let answer = self.choose(client);
                write_head(answer.status, &answer.headers, head);
                (answer.status, Cow::Owned(answer.body))
            }
        };
        let age = self.freshness.age_ms(client.now) / 1_000;
        write!(head, "age: {age}\r\ncache-status: ").expect(TAKES_ALL);
        cache_status.write(cache, head).expect(TAKES_ALL);
        head.extend_from_slice(b"\r\n");
        (status, body)
    }

    fn choose(&self, client: Client<'_>) -> Answer {
        let whole = || Answer {
            status: self.status,
            headers: self.headers.clone(),
            body: self.body.clone(),
        };
        if self.status != StatusCode::OK {
            return whole();
        }
        let now_s = client.now.seconds();
        if conditional::client_has(client.headers, &self.headers, now_s) {
            let headers = conditional::not_modified(&self.headers);
            return Answer { status: StatusCode::NOT_MODIFIED, headers, body: Bytes::new() };
        }
        let len = self.body.len() as u64;
        let wanted = range::wanted(client.headers, &self.headers, len, now_s);
        if wanted == Wanted::All || client.head_only {
            return whole();
        }
        let mut answer = whole();
        part(wanted, len, &mut answer.status, &mut answer.headers);
        answer.body = match wanted {
            Wanted::Part(begin, end) => range::Cut::new(begin, end).cut(&self.body),
            _ => Bytes::new(),
        };
        answer
    }
}

/// The head of a whole answer as text, without `Age` and `Cache-Status`: made when it is first
/// wanted, since most responses are never asked for again.
#[derive(Debug, Default)]
pub(crate) struct HeadText(OnceLock<Option<Box<[u8]>>>);

impl HeadText {
    /// None where no `Date` is among the fields.
    fn get<P>(&self, entry: &Entry<P>) -> Option<&[u8]> {
        let text = self.0.get_or_init(|| {
            let mut text = Vec::new();
            write_head(entry.status, &entry.headers, &mut text);
            entry.headers.contains_key(DATE).then(|| text.into_boxed_slice())
        });
        text.as_deref()
    }
}

/// A vector takes all that is written to it.
const TAKES_ALL: &str = "a vector takes all text";

/// Writes a status line and fields, but for those that each answer has its own of.
fn write_head(status: StatusCode, headers: &HeaderMap, text: &mut Vec<u8>) {
    let reason = status.canonical_reason().unwrap_or("");
    write!(text, "HTTP/1.1 {} {reason}\r\n", status.as_str()).expect(TAKES_ALL);
    for (name, value) in headers.iter().filter(|(name, _)| !OF_EACH_ANSWER.contains(name)) {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
}

/// Makes the head of a whole response that of a part of it.
pub(crate) fn part(wanted: Wanted, len: u64, status: &mut StatusCode, headers: &mut HeaderMap) {
    let (range, part) = match wanted {
        Wanted::All => return,
        Wanted::Part(begin, end) => (format!("bytes {begin}-{}/{len}", end - 1), end - begin),
        Wanted::Nothing => (format!("bytes */{len}"), 0),
    };
    *status = match wanted {
        Wanted::Nothing => StatusCode::RANGE_NOT_SATISFIABLE,
        _ => StatusCode::PARTIAL_CONTENT,
    };
    headers.insert(CONTENT_RANGE, HeaderValue::try_from(range).expect("digits and signs"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(part));
}

/// The fields of a response that are kept: as clients get them, and those that they do not see.
pub(crate) fn kept(
    rules: &Rules,
    headers: &HeaderMap,
    directives: &Directives,
) -> (HeaderMap, HeaderMap) {
    let named = headers.get_all(CONNECTION).iter();
    let named = named.flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
    let named: Vec<&[u8]> = named.map(<[u8]>::trim_ascii).collect();
    let (mut kept, mut hidden) = (HeaderMap::with_capacity(headers.len() + 4), HeaderMap::new());
    for (name, value) in headers {
        let of_connection =
            named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str().as_bytes()));
        let omitted = rules::omitted(directives).any(|omitted| omitted == name);
        if of_connection || omitted || NEVER_KEPT.contains(&name.as_str()) {
            continue;
        }
        let of_tags = !rules.tags_to_clients && tags::is_field(name);
        let replaced = *name == CACHE_CONTROL || *name == CDN_CACHE_CONTROL;
        if of_tags || (rules.mode == Mode::Strict && replaced) {
            hidden.append(name, value.clone());
        } else {
            kept.append(name, value.clone());
        }
    }
    if rules.mode == Mode::Strict {
        ask_each_time(&mut kept);
    }
    (kept, hidden)
}

/// Removes the fields that are for this cache alone. `CDN-Cache-Control` goes on to caches before
/// this one, as RFC 9213 (3.1) has it, but not in mode `strict`: nobody would tell them of updates.
pub(crate) fn hide(rules: &Rules, headers: &mut HeaderMap) {
    if rules.mode == Mode::Strict {
        headers.remove(CDN_CACHE_CONTROL);
    }
    if !rules.tags_to_clients {
        for field in &tags::FIELDS {
            headers.remove(field);
        }
    }
}

/// Makes clients ask at each use, since nobody tells them of an update. It costs a 304.
pub(crate) fn ask_each_time(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// Makes room for the fields that each answer sets.
pub(crate) fn make_room(headers: &mut HeaderMap) {
    headers.insert(AGE, HeaderValue::from_static("0"));
    headers.insert(CACHE_STATUS, HeaderValue::from_static(""));
}

/// Sets what the kept head says of the body that came: its length, and a strong entity tag where
/// the server gave none.
pub(crate) fn complete(headers: &mut HeaderMap, status: StatusCode, body: &Bytes, digest: &[u8]) {
    if status != StatusCode::NO_CONTENT {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    if status == StatusCode::OK && !headers.contains_key(ETAG) {
        let mut tag = String::with_capacity(2 + 2 * digest.len());
        tag.push('"');
        for byte in digest {
            for half in [byte >> 4, byte & 15] {
                tag.push(char::from_digit(u32::from(half), 16).expect("a half of a byte"));
            }
        }
        tag.push('"');
        headers.insert(ETAG, HeaderValue::try_from(tag).expect("digits within quotes"));
    }
}
