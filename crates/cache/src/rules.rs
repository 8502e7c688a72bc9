//! Which responses may be kept for others (RFC 9111, 3), and what is never shared.

use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, COOKIE, HeaderMap, HeaderName, SET_COOKIE, VARY,
};
use http::{Method, StatusCode};

use crate::conditional::Validators;
use crate::directives::{Directives, Scope};
use crate::forward;
use crate::freshness::{self, Freshness};
use crate::options::{Cookies, Rules};
use crate::tags::TooManyTags;
use crate::vary;

/// Statuses that this cache knows all about, for `must-understand`: those of RFC 9110, but 206.
const UNDERSTOOD: [u16; 16] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 404, 405, 410, 414, 500, 501];

/// Why a response is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotStored {
    /// Only responses to GET are.
    #[error("not a response to GET")]
    Method,
    /// 206, 304, and what is no final status.
    #[error("its status is not for a cache")]
    Status,
    /// The request or the response forbids it.
    #[error("no-store")]
    NoStore,
    /// It is for one user.
    #[error("private")]
    Private,
    /// The request was authorised, and the response does not say that others may have it.
    #[error("the request was authorised")]
    Authorization,
    /// It sets a cookie, and does not say that others may have it.
    #[error("it sets a cookie")]
    SetCookie,
    /// The request had cookies, which the response is not found by.
    #[error("the request had cookies")]
    Cookie,
    /// It is for no other request.
    #[error("Vary names everything")]
    Vary,
    /// It has more tags than can be kept.
    #[error(transparent)]
    Tags(#[from] TooManyTags),
    /// It has no tags, in mode `strict`.
    #[error("it has no tags")]
    Untagged,
    /// It has tags, and the versions before the fetch are not known.
    #[error("the versions of its tags are not known")]
    NotProved,
    /// It is not fresh, and has nothing to ask with whether it still holds.
    #[error("it is neither fresh nor has it a validator")]
    NoUse,
    /// Its body is larger than the site's limit.
    #[error("its body is too large")]
    TooLarge,
    /// Its body ended early, or late.
    #[error("its body was not as long as it said")]
    Length,
    /// It was purged, or its URL written to, while it was on its way.
    #[error("it was purged while it was fetched")]
    Purged,
}

impl NotStored {
    /// Whether the next response for this URL will hardly be kept either, so that requests for it
    /// need not wait for each other.
    #[must_use]
    pub const fn is_lasting(self) -> bool {
        matches!(
            self,
            Self::NoStore
                | Self::Private
                | Self::SetCookie
                | Self::Vary
                | Self::Tags(_)
                | Self::Untagged
                | Self::NoUse
                | Self::TooLarge
        )
    }
}

/// A response's head, with what is known of its request.
pub(crate) struct Judged<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) method: &'a Method,
    pub(crate) request: &'a HeaderMap,
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) directives: &'a Directives,
}

impl Judged<'_> {
    /// Whether it may be kept at all, tags and use aside.
    pub(crate) fn check(&self) -> Result<(), NotStored> {
        let said = self.directives;
        if *self.method != Method::GET {
            return Err(NotStored::Method);
        }
        let (status, headers) = (self.status, self.headers);
        let partial = [StatusCode::PARTIAL_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        let unknown = said.must_understand && !UNDERSTOOD.contains(&status.as_u16());
        if status.is_informational() || partial || unknown {
            return Err(NotStored::Status);
        }
        let asked = self.rules.client_directives && Directives::of(self.request).no_store;
        if asked || (said.no_store && !said.must_understand) {
            return Err(NotStored::NoStore);
        }
        if said.private.is_whole() {
            return Err(NotStored::Private);
        }
        let for_all = said.public || said.s_maxage.is_some();
        if self.request.contains_key(AUTHORIZATION) && !for_all && !said.must_revalidate {
            return Err(NotStored::Authorization);
        }
        let named = |scope: &Scope| scope.fields().contains(&SET_COOKIE);
        let omitted = named(&said.private) || named(&said.no_cache);
        if headers.contains_key(SET_COOKIE) && !for_all && !omitted {
            return Err(NotStored::SetCookie);
        }
        let varied = vary::names(headers).map_err(|_| NotStored::Vary)?;
        if self.sees_cookies() && self.request.contains_key(COOKIE) && !varied.contains(&COOKIE) {
            return Err(NotStored::Cookie);
        }
        let heuristic = freshness::is_heuristic(status) || said.public;
        if !freshness::is_explicit(headers, said) && !heuristic && !said.no_cache.is_whole() {
            return Err(NotStored::NoUse);
        }
        Ok(())
    }

    /// Whether the server saw the cookies as the client sent them.
    fn sees_cookies(&self) -> bool {
        matches!(self.rules.cookies, Cookies::ByVary | Cookies::Bypass)
    }

    /// Whether a kept response would ever be used.
    pub(crate) fn check_use(&self, freshness: &Freshness) -> Result<(), NotStored> {
        let now = freshness.received_at;
        let stands_in = self.rules.stale_if_error_ms > 0 && !freshness.never_stale;
        let used = freshness.is_fresh(now)
            || Validators::of(self.headers).any()
            || (stands_in && freshness.lifetime_ms > 0)
            || freshness.while_revalidate_ms > 0;
        if used { Ok(()) } else { Err(NotStored::NoUse) }
    }
}

/// Whether a server sees who asks: that it lets nobody keep its answer then says nothing of its
/// answers to others.
pub(crate) fn shows_asker(rules: &Rules, client: &HeaderMap) -> bool {
    let shows_cookies = match &rules.cookies {
        Cookies::ByVary | Cookies::Bypass => client.contains_key(COOKIE),
        Cookies::Ignored => false,
        Cookies::Keyed(keyed) => vary::keyed_cookies(client, keyed).is_some(),
    };
    shows_cookies || client.contains_key(AUTHORIZATION)
}

/// The fields that the response names as not to be kept.
pub(crate) fn omitted(directives: &Directives) -> impl Iterator<Item = &HeaderName> {
    directives.private.fields().iter().chain(directives.no_cache.fields())
}

/// The fields of the client's that a `Vary` names and that the server did not see, though it could.
pub(crate) fn unseen(headers: &HeaderMap, client: &HeaderMap, sent: &HeaderMap) -> Vec<HeaderName> {
    if !headers.contains_key(VARY) {
        return Vec::new();
    }
    let names = vary::names(headers).unwrap_or_default();
    // Cookies and codings go by rules of their own.
    let own = |name: &HeaderName| {
        *name == COOKIE || *name == ACCEPT_ENCODING || forward::is_withheld(name)
    };
    let lost =
        |name: &HeaderName| client.contains_key(name) && !sent.contains_key(name) && !own(name);
    names.into_iter().filter(lost).collect()
}
