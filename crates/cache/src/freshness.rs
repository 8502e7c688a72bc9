//! How long a response is fresh, and how old it is (RFC 9111, 4.2).

use http::header::{AGE, DATE, EXPIRES, HeaderMap, LAST_MODIFIED};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::date;
use crate::directives::{Directives, number};
use crate::moment::UnixMs;
use crate::options::{Mode, Rules};

/// Part of the time since `Last-Modified` for which a response may be taken as fresh: what RFC 9111
/// (4.2.2) calls typical.
const HEURISTIC_PART: u64 = 10;

/// Most of what is guessed so: a day, since it is a guess.
const HEURISTIC_MAX_S: u64 = 86_400;

/// Statuses that may be fresh without saying so (RFC 9110, 15.1), but for 206, which is not kept.
const HEURISTIC_STATUSES: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// When a response is fresh, and what it allows beyond. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How long it is fresh, from its making on.
    pub lifetime_ms: u64,
    /// How old it was when it came here.
    pub age_at_receipt_ms: u64,
    /// When it came here.
    pub received_at: UnixMs,
    /// The server must be asked at each use.
    pub no_cache: bool,
    /// Whether it may be used after its time in no case.
    pub never_stale: bool,
    /// How long after its time it may be used while the server is asked.
    pub while_revalidate_ms: u64,
}

impl Freshness {
    /// How old it is now.
    #[must_use]
    pub const fn age_ms(&self, now: UnixMs) -> u64 {
        self.age_at_receipt_ms.saturating_add(now.since_ms(self.received_at))
    }

    /// Whether it may be used now without a question.
    #[must_use]
    pub const fn is_fresh(&self, now: UnixMs) -> bool {
        !self.no_cache && self.age_ms(now) < self.lifetime_ms
    }

    /// How long its time has been over; 0 while it is fresh.
    #[must_use]
    pub const fn stale_for_ms(&self, now: UnixMs) -> u64 {
        self.age_ms(now).saturating_sub(self.lifetime_ms)
    }

    /// Seconds that are left; negative after.
    #[must_use]
    pub fn ttl_s(&self, now: UnixMs) -> i64 {
        let left = i128::from(self.lifetime_ms) - i128::from(self.age_ms(now));
        i64::try_from(left.div_euclid(1_000)).unwrap_or(i64::MAX)
    }

    /// Seconds that are left, for what is stale for so long, if it is; a purge may have made it so.
    #[must_use]
    pub fn left_s(&self, now: UnixMs, stale_ms: Option<u64>) -> i64 {
        let over_s = |stale_ms: u64| i64::try_from(stale_ms.div_ceil(1_000)).unwrap_or(i64::MAX);
        let left_s = self.ttl_s(now);
        stale_ms.map_or(left_s, |stale_ms| left_s.min(-over_s(stale_ms)))
    }
}

/// When a response came, and what was asked when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) requested_at: UnixMs,
    pub(crate) received_at: UnixMs,
}

/// What a response's head says of its freshness. `tagged`: it is proved by tags besides.
pub(crate) fn judge(
    rules: &Rules,
    status: StatusCode,
    headers: &HeaderMap,
    directives: &Directives,
    times: Times,
    tagged: bool,
) -> Freshness {
    let now_s = times.received_at.seconds();
    let date_s = single(headers, &DATE).and_then(|value| date::parse(value, now_s));
    let explicit_s = explicit_lifetime_s(headers, directives, date_s, now_s);
    let lifetime_ms = match explicit_s {
        Some(seconds) => seconds.saturating_mul(1_000),
        None if tagged && rules.mode == Mode::Strict => rules.strict_lifetime_ms,
        None if rules.heuristics => heuristic_s(status, headers, directives, date_s, now_s) * 1_000,
        None => 0,
    };
    let no_cache = directives.no_cache.is_whole();
    let never_stale = no_cache
        || directives.must_revalidate
        || directives.proxy_revalidate
        || directives.s_maxage.is_some();
    let allowed = rules.stale_while_revalidate && rules.mode == Mode::Http && !never_stale;
    let while_revalidate_s =
        directives.stale_while_revalidate.filter(|_| allowed).unwrap_or_default();
    Freshness {
        lifetime_ms: lifetime_ms.min(rules.lifetime_max_ms),
        age_at_receipt_ms: age_at_receipt_ms(headers, date_s, times),
        received_at: times.received_at,
        no_cache,
        never_stale,
        while_revalidate_ms: while_revalidate_s.saturating_mul(1_000),
    }
}

/// Whether a response says itself for how long it is fresh.
pub(crate) fn is_explicit(headers: &HeaderMap, directives: &Directives) -> bool {
    let expires = !directives.targeted && headers.contains_key(EXPIRES);
    directives.max_age.is_some() || directives.s_maxage.is_some() || expires
}

/// Whether a status may be fresh without saying so.
pub(crate) fn is_heuristic(status: StatusCode) -> bool {
    HEURISTIC_STATUSES.contains(&status.as_u16())
}

/// `s-maxage`, `max-age`, `Expires`, in this order (RFC 9111, 4.2.1).
fn explicit_lifetime_s(
    headers: &HeaderMap,
    directives: &Directives,
    date_s: Option<u64>,
    now_s: u64,
) -> Option<u64> {
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Some(seconds);
    }
    if directives.targeted || !headers.contains_key(EXPIRES) {
        return None;
    }
    // A date that is none, or several, are in the past.
    let expires_s = single(headers, &EXPIRES).and_then(|value| date::parse(value, now_s));
    Some(expires_s.unwrap_or(0).saturating_sub(date_s.unwrap_or(now_s)))
}

fn heuristic_s(
    status: StatusCode,
    headers: &HeaderMap,
    directives: &Directives,
    date_s: Option<u64>,
    now_s: u64,
) -> u64 {
    if !is_heuristic(status) && !directives.public {
        return 0;
    }
    let modified_s = single(headers, &LAST_MODIFIED).and_then(|value| date::parse(value, now_s));
    let Some(modified_s) = modified_s else { return 0 };
    let since_s = date_s.unwrap_or(now_s).saturating_sub(modified_s);
    (since_s / HEURISTIC_PART).min(HEURISTIC_MAX_S)
}

/// The corrected initial age of RFC 9111, 4.2.3.
fn age_at_receipt_ms(headers: &HeaderMap, date_s: Option<u64>, times: Times) -> u64 {
    let apparent_s = date_s.map_or(0, |date_s| times.received_at.seconds().saturating_sub(date_s));
    let said_s = headers.get(AGE).and_then(first_number).unwrap_or(0);
    let delay_ms = times.received_at.since_ms(times.requested_at);
    apparent_s.saturating_mul(1_000).max(said_s.saturating_mul(1_000).saturating_add(delay_ms))
}

/// The first of several numbers; `None` if that is none.
fn first_number(value: &HeaderValue) -> Option<u64> {
    number(value.as_bytes().split(|&byte| byte == b',').next()?.trim_ascii())
}

/// The only value of a field.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.all(|other| other == first).then_some(first)
}

#[cfg(test)]
#[path = "freshness_tests.rs"]
mod tests;
