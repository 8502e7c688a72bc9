//! A question to a server, on behalf of one client or several.

use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap};
use http::{HeaderName, Method};

use crate::collapse::FlightId;
use crate::entry::{Client, Entry};
use crate::key::{Key, Request};
use crate::moment::UnixMs;
use crate::options::{Cookies, Mode, Rules};
use crate::status::Forward;
use crate::{conditional, forward};

/// What a server is to be asked, and what is known when it answers.
#[derive(Debug)]
pub struct Fetch<P> {
    pub(crate) key: Key,
    pub(crate) method: Method,
    pub(crate) why: Forward,
    /// What is stored, and does not hold without a question.
    pub(crate) stored: Option<Arc<Entry<P>>>,
    /// As the client sent them.
    pub(crate) client: HeaderMap,
    /// As the server gets them.
    pub(crate) sent: HeaderMap,
    /// Whether they ask about what is stored.
    pub(crate) conditional: bool,
    pub(crate) stamp: u64,
    pub(crate) flight: FlightId,
    pub(crate) requested_at: UnixMs,
    pub(crate) collapsed: bool,
    /// Whether the server sees who asks.
    pub(crate) personal: bool,
    /// Whether this is the second question for the same client.
    pub(crate) again: bool,
    /// Whether what is stored was purged softly.
    pub(crate) purged: bool,
}

impl<P> Fetch<P> {
    /// To be prepared.
    pub(crate) fn new(
        rules: &Rules,
        request: &Request<'_>,
        why: Forward,
        stored: Option<Arc<Entry<P>>>,
        stamp: u64,
        flight: u64,
    ) -> Self {
        let cookies = matches!(rules.cookies, Cookies::ByVary | Cookies::Bypass);
        let personal = request.headers.contains_key(AUTHORIZATION)
            || (cookies && request.headers.contains_key(COOKIE));
        Self {
            key: request.key().to_key(),
            method: request.method.clone(),
            why,
            stored,
            client: request.headers.clone(),
            sent: HeaderMap::new(),
            conditional: false,
            stamp,
            flight: FlightId(flight),
            requested_at: request.now,
            collapsed: request.waited,
            personal,
            again: false,
            purged: false,
        }
    }

    /// The fields of the request to the server; the edge adds its own, such as `X-Forwarded-For`.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.sent
    }

    /// What its response will be found by.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Why a server is asked.
    #[must_use]
    pub fn why(&self) -> Forward {
        self.why
    }

    /// Requests with the same one may wait for one response (see [`Collapse`](crate::Collapse)).
    #[must_use]
    pub fn flight(&self) -> FlightId {
        self.flight
    }

    /// Whether others may wait for its response, and it for that of others. Those to HEAD are not
    /// kept, those to authorised requests and to cookies seldom: who waits would wait for nothing.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.method == Method::GET && !self.again && !self.personal
    }

    /// Makes the fields for the server.
    pub(crate) fn prepare(&mut self, rules: &Rules, varied: &[HeaderName]) {
        self.sent = forward::prepare(rules, &self.client, varied);
        self.conditional = self.ask(rules);
    }

    /// Adds conditions; whether there are any.
    ///
    /// None where what is stored was updated or purged: servers tell versions apart by a second and
    /// a length, so the new one may look like the old one to them. In mode `strict`, and after a
    /// soft purge, none that a server does not warrant byte for byte.
    fn ask(&mut self, rules: &Rules) -> bool {
        let Some(entry) = &self.stored else { return false };
        if self.method != Method::GET || self.why == Forward::Miss {
            return false;
        }
        let strong = rules.mode == Mode::Strict || self.purged;
        conditional::ask(&entry.validators, strong, &mut self.sent)
    }

    /// The same question without conditions, and with what a `Vary` has asked for.
    pub(crate) fn anew(mut self, rules: &Rules, varied: &[HeaderName], stamp: u64) -> Self {
        self.stored = None;
        self.again = true;
        self.stamp = stamp;
        self.prepare(rules, varied);
        self
    }

    pub(crate) fn asker(&self, now: UnixMs) -> Client<'_> {
        let head_only = self.method == Method::HEAD;
        Client { head_only, headers: &self.client, now }
    }
}
