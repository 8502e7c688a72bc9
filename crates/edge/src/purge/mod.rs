//! Those who tell of changes over HTTP: `PURGE`, `BAN` and the like, at the edge.
//!
//! ```text
//! serve ──► is_asked ──► who may ──► dialect ──► Invalidator ─ ─ ─► whoever carries it out,
//!                                     answer ◄─ ─ ─ ─ ─ ─ ─ ─ ─ ─   in a thread of its own
//! ```
//!
//! A site without [`PurgeOptions`] has no such requests: its servers get them like others. The
//! answer 200 is given when the invalidation holds everywhere: no request that arrives anywhere
//! afterwards is answered with what was stored, or asked for, before. Whatever stands in the way
//! is an answer of 400 or more, and then nobody knows.

mod dialect;
#[cfg(test)]
mod fuzz_tests;
mod keys;
mod pattern;
mod tell;

pub use tell::{Invalidated, Invalidation, Invalidations, Invalidator, PURGES_MAX, invalidations};

use crate::answer::Reason;
use crate::attempt::Outgoing;
use crate::cached::now;
use crate::download::{Download, Meter};
use crate::face::Dispatcher;
use crate::network::Network;
use crate::options::SiteOptions;
use crate::serve::{drain, end_connection, head_of, refuse_saying};
use dialect::Asked;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use subtle::ConstantTimeEq as _;

/// The response header that says how far the answer 200 may be relied on.
pub const INVALIDATION_HEADER: HeaderName = HeaderName::from_static("polder-invalidation");

/// Who may invalidate a site's responses over HTTP.
#[derive(Clone, Debug)]
pub struct PurgeOptions {
    /// The addresses that a request must come from.
    pub from: Vec<Network>,
    /// What it must carry besides.
    pub token: Option<PurgeToken>,
}

/// A secret that a request carries. It is never written anywhere.
#[derive(Clone)]
pub struct PurgeToken(Box<[u8]>);

impl PurgeToken {
    /// Of its bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Whether a request carries it. How long that takes tells nothing but lengths.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
            let (scheme, token) = value.as_bytes().split_at_checked(b"Bearer ".len())?;
            scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
        });
        let field = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let given = [bearer, field("fastly-key"), field("x-purge-token")];
        let is_it = |given: &[u8]| bool::from(given.ct_eq(&self.0));
        given.into_iter().flatten().any(is_it)
    }
}

impl fmt::Debug for PurgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PurgeToken(..)")
    }
}

impl PurgeOptions {
    fn check(&self, from: IpAddr, headers: &HeaderMap) -> Result<(), Refusal> {
        if !self.from.iter().any(|network| network.contains(from)) {
            let words = format!("{from} may not invalidate: see `purge` of this site\n");
            return Err((Reason::PurgeDenied, words));
        }
        match &self.token {
            Some(token) if !token.is_in(headers) => {
                let words = "send the token as `Authorization: Bearer TOKEN`, `Fastly-Key: TOKEN` \
                             or `X-Purge-Token: TOKEN`\n";
                Err((Reason::PurgeToken, words.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

type Refusal = (Reason, String);

/// Whether the edge answers a request itself because it tells of changes.
pub(crate) fn is_asked(site: &SiteOptions, method: &Method, path: &str) -> bool {
    site.purge.is_some() && dialect::is_spoken(method, path)
}

/// Answers a request that [`is_asked`].
pub(crate) async fn answer<D: Dispatcher>(
    mut meter: Meter<D>,
    outgoing: &Outgoing,
) -> Response<Download<D>> {
    let done = carry_out(&meter, outgoing).await;
    let close = !drain(outgoing).await && !meter.client.is_http2;
    match done {
        Ok(()) => {
            meter.set_cache("purge");
            let (mut parts, ()) = Response::new(()).into_parts();
            let headers = &mut parts.headers;
            headers.insert(INVALIDATION_HEADER, HeaderValue::from_static("acknowledged"));
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            end_connection(&meter, headers, close);
            let parts = head_of(&mut meter, parts);
            let body = format!("{{\"status\":\"ok\",\"id\":\"{}\"}}\n", id());
            Response::from_parts(parts, Download::stored(body.into(), meter))
        }
        Err((reason, words)) => {
            let mut response = refuse_saying(meter, reason.into(), words.into(), close);
            if reason == Reason::PurgeToken {
                let bearer = HeaderValue::from_static("Bearer");
                response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            }
            response
        }
    }
}

/// A name for an invalidation; nobody can ask for it, but clients of CDNs read it.
fn id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", now().0, COUNT.fetch_add(1, Ordering::Relaxed))
}

async fn carry_out<D: Dispatcher>(meter: &Meter<D>, outgoing: &Outgoing) -> Result<(), Refusal> {
    let options = &meter.core.shared.options;
    let site = &options.sites[outgoing.slot.0];
    let (method, headers) = (&outgoing.parts.method, &outgoing.parts.headers);
    let from = outgoing.caller.address.ip().to_canonical();
    let Some(purge) = &site.purge else {
        return Err((Reason::PurgeDenied, "this site takes no purges\n".to_owned()));
    };
    purge.check(from, headers)?;
    let bad = |words: String| (Reason::BadPurge, words + "\n");
    let target = &outgoing.head.target;
    let body = match &outgoing.upload {
        Some(upload) if dialect::wants_body(method, target.path(), headers) => {
            keys::body(upload).await
        }
        _ => Ok(Vec::new()),
    };
    let asked = body
        .and_then(|body| dialect::read(&site.name, method, target.path(), headers, &body))
        .map_err(|wrong| bad(wrong.to_string()))?;
    let is_soft = dialect::is_soft(headers, &asked);
    let what = match asked {
        Asked::Everything => Invalidated::Everything,
        Asked::Tags(tags) => Invalidated::Tags(tags),
        Asked::Url => {
            let authority =
                outgoing.host.to_str().map_err(|_| bad("the host is no text".into()))?;
            let path_and_query = target.as_str().to_owned();
            Invalidated::Url { authority: authority.to_owned(), path_and_query }
        }
    };
    let told = match &options.invalidator {
        Some(invalidator) => invalidator.tell(site.id, what, is_soft).await,
        None => Err("nobody here can carry it out"),
    };
    told.map_err(|why| (Reason::PurgeFailed, format!("not invalidated: {why}\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn a_token_comes_in_three_fields_and_nothing_else_counts() {
        let token = PurgeToken::new(b"correct horse");
        for (name, value, is_it) in [
            ("authorization", "Bearer correct horse", true),
            ("authorization", "bearer correct horse", true),
            ("authorization", "Basic correct horse", false),
            ("authorization", "correct horse", false),
            ("authorization", "Bearer", false),
            ("fastly-key", "correct horse", true),
            ("x-purge-token", "correct horse", true),
            ("x-purge-token", "correct horsf", false),
            ("x-purge-token", "correct hors", false),
            ("x-purge-token", "", false),
            ("cookie", "correct horse", false),
        ] {
            assert_eq!(token.is_in(&headers(name, value)), is_it, "{name}: {value}");
        }
        assert_eq!(format!("{token:?}"), "PurgeToken(..)");
    }

    #[test]
    fn both_the_address_and_the_token_must_be_right() {
        let from = vec!["10.0.0.0/8".parse().unwrap()];
        let options = PurgeOptions { from, token: Some(PurgeToken::new(b"t")) };
        let check = |from: &str, value| {
            let checked = options.check(from.parse().unwrap(), &headers("x-purge-token", value));
            checked.map_err(|(reason, _)| reason)
        };
        assert_eq!(check("10.1.2.3", "t"), Ok(()));
        assert_eq!(check("::ffff:10.1.2.3", "t"), Ok(()));
        assert_eq!(check("10.1.2.3", "u"), Err(Reason::PurgeToken));
        assert_eq!(check("11.1.2.3", "t"), Err(Reason::PurgeDenied));
        let open = PurgeOptions { token: None, ..options.clone() };
        assert_eq!(open.check("10.0.0.1".parse().unwrap(), &HeaderMap::new()), Ok(()));
    }
}
