//! The auditor of mode `strict`: of some hits it asks a server too, and compares.
//!
//! ```text
//! a hit: its words hold ─► answered ─► a server is asked ─► do the words still hold?
//!                                                            no: something changed, says nothing
//!                                                            yes: the same response, or a proven
//!                                                            violation of what the site promises
//! ```
//!
//! A violation means that a change was not told, or that a page depends on something that none of
//! its tags stands for: the edge itself cannot find that out in any other way.

use super::ask::alike;
use super::{Caching, Proof, now};
use crate::attempt::Outgoing;
use crate::download::{Flight, Meter};
use crate::face::Dispatcher;
use crate::serve::{Want, forward, judge};
use crate::upstream::Connection as _;
use crate::wire::Client;
use bytes::BytesMut;
use cache::{Audit, Entry, Fetch, Hit, Question, Request};
use http::StatusCode;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

/// What the setting counts in.
const MILLION: u64 = 1_000_000;

/// Audits under way on one thread: what comes beyond them is not audited, so that slow servers get
/// no more to do.
const AUDITS_MAX: usize = 4;

/// Audits this hit, if chance says so.
pub(super) fn sample<D: Dispatcher>(
    caching: &Caching,
    meter: &Meter<D>,
    outgoing: &Outgoing,
    request: &Request<'_>,
    hit: &Hit<Proof>,
) {
    let share = u64::from(caching.rules.audit_per_million);
    if share == 0 || hit.proof().is_none() || meter.core.chance.next() % MILLION >= share {
        return;
    }
    let audits = Rc::clone(&meter.core.audits);
    if Rc::strong_count(&audits) > AUDITS_MAX + 1 {
        return;
    }
    let Some(question) = caching.cached.cache.audit(&caching.rules, request, hit) else { return };
    let Question { fetch, entry } = question;
    let core = Rc::clone(&meter.core);
    let client = Client::of_streams(Rc::clone(&outgoing.caller), core.options());
    let meter = Meter::unseen(core, Rc::new(client), outgoing.slot);
    let (caching, outgoing) = (caching.clone(), alike(outgoing));
    tokio::task::spawn_local(async move {
        let said = audit(&caching, meter, outgoing, &fetch, &entry).await;
        if said == Audit::Violation {
            let (key, tags) = (fetch.key().to_string(), entry.tags().len());
            tracing::error!(key, tags, "a page has changed, and nobody told its tags");
        }
        caching.cached.cache.audited(said);
        drop(audits);
    });
}

async fn audit<D: Dispatcher>(
    caching: &Caching,
    mut meter: Meter<D>,
    mut outgoing: Outgoing,
    fetch: &Fetch<Proof>,
    entry: &Arc<Entry<Proof>>,
) -> Audit {
    outgoing.parts.headers.clone_from(fetch.headers());
    let asked = forward(&mut meter, &outgoing, Want::default()).await;
    let Ok((parts, mut flight)) = asked else { return Audit::Nothing };
    judge(&mut flight, parts.status);
    let is_same = compare(&meter, flight, parts.status, entry).await;
    let holds = match (entry.proof(), &caching.versions) {
        (Some(proof), Some(versions)) => versions.holds(&meter.core.far, proof).await,
        _ => false,
    };
    let is_fresh = entry.freshness().is_fresh(now());
    match is_same {
        Some(true) => Audit::Same,
        Some(false) if holds && is_fresh => Audit::Violation,
        _ => Audit::Nothing,
    }
}

/// Whether a server says what is stored; nothing where its response breaks off or is an error of
/// the moment.
async fn compare<D: Dispatcher>(
    meter: &Meter<D>,
    mut flight: Flight<D>,
    status: StatusCode,
    entry: &Entry<Proof>,
) -> Option<bool> {
    if status != entry.status() {
        flight.leave(&meter.core);
        return (!status.is_server_error()).then_some(false);
    }
    let idle = meter.core.options().body_idle();
    let mut body = BytesMut::new();
    // Ends with the body, or once it is longer than what is stored.
    loop {
        let next = poll_fn(|cx| flight.lease.link.poll_data(cx));
        match tokio::time::timeout(idle, next).await {
            Ok(Some(Ok(data))) => body.extend_from_slice(&data),
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => {
                flight.report();
                return None;
            }
        }
        if body.len() > entry.body_bytes() {
            flight.leave(&meter.core);
            return Some(false);
        }
    }
    flight.land(&meter.core);
    Some(entry.has_body(&body))
}
