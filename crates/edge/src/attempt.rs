//! One attempt to have a request answered by one server, and whether another is allowed.
//!
//! Rule 5 of the design: a request survives the loss of a node, unless its response had begun, or
//! some of it had been sent and its method is not idempotent or its body too long to be kept.

use crate::answer::Reason;
use crate::caller::Caller;
use crate::core::Core;
use crate::face::{Dispatcher, Permit, Verdict};
use crate::head::{Framing, Head};
use crate::hosts::SiteSlot;
use crate::labels::Labels;
use crate::options::SiteOptions;
use crate::proxy_header::Announced;
use crate::upload::{Gate, Upload, UploadBody, UploadFault};
use crate::upstream::{Asking, Connection, HeadFault, Lease, Route};
use crate::wire::Client;
use http::request::Parts;
use http::{HeaderValue, Method, response};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A request that was taken, in a form that can be sent more than once.
pub(crate) struct Outgoing {
    pub(crate) parts: Parts,
    pub(crate) head: Head,
    pub(crate) host: HeaderValue,
    pub(crate) caller: Rc<Caller>,
    pub(crate) slot: SiteSlot,
    pub(crate) upload: Option<Rc<Upload>>,
    pub(crate) labels: Labels,
    /// What a connection to the server must have begun with.
    pub(crate) announced: Option<Announced>,
    /// A share of `upgraded_max`, if the server may switch to another protocol.
    pub(crate) upgrade_share: Option<OwnedSemaphorePermit>,
}

impl Outgoing {
    /// A request without a body, as it came. None where neither it nor its site names a host.
    pub(crate) fn new(
        site: &SiteOptions,
        parts: Parts,
        head: Head,
        caller: Rc<Caller>,
        slot: SiteSlot,
    ) -> Option<Self> {
        let host = head.host.clone().or_else(|| main_host(site))?;
        let announced = match (site.proxy_protocol_out, caller.ends) {
            (Some(version), Some(ends)) => Some(Announced { version, ends }),
            _ => None,
        };
        let (upload, labels, upgrade_share) = (None, Labels::default(), None);
        Some(Self { parts, head, host, caller, slot, upload, labels, announced, upgrade_share })
    }

    fn asking<'a, D: Dispatcher>(&'a self, core: &'a Core<D>) -> Asking<'a> {
        let gate = self.head.expects_continue.then(|| Arc::new(Gate::default()));
        let body = match &self.upload {
            Some(upload) => upload.attempt(gate.clone()),
            None => UploadBody::Empty,
        };
        Asking { outgoing: self, forwarder: &core.shared.forwarder, body, gate }
    }

    /// Whether the request may be sent to another server after this failure.
    pub(crate) fn may_repeat(&self, failure: &Failure) -> bool {
        let harmless = !failure.sent || is_idempotent(&self.parts.method);
        let complete = self.upload.as_ref().is_none_or(|upload| upload.is_replayable());
        failure.repeatable && harmless && complete
    }

    fn fault(&self) -> Option<UploadFault> {
        self.upload.as_ref().and_then(|upload| upload.fault())
    }

    fn is_sent(&self) -> bool {
        self.head.framing == Framing::None
            || self.upload.as_ref().is_none_or(|upload| upload.is_complete())
    }
}

/// What an HTTP/1.0 request without a host is sent on with.
fn main_host(site: &SiteOptions) -> Option<HeaderValue> {
    let host = site.hosts.iter().find(|host| !host.starts_with('*')).unwrap_or(&site.name);
    HeaderValue::from_str(host).ok()
}

/// Methods that may be sent twice (RFC 9110, 9.2.2).
fn is_idempotent(method: &Method) -> bool {
    matches!(
        *method,
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    )
}

/// Why an attempt brought no response.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    /// What it says about the server, if anything.
    pub(crate) verdict: Option<Verdict>,
    /// Some of the request went over the connection.
    pub(crate) sent: bool,
    /// No response had begun, and the client is not the cause.
    pub(crate) repeatable: bool,
    /// A kept connection turned out to be closed: the same server deserves a fresh one.
    pub(crate) stale: bool,
}

impl Failure {
    fn of_client(fault: UploadFault) -> Self {
        let reason = match fault {
            UploadFault::TooLarge => Reason::BodyTooLarge,
            UploadFault::Stalled => Reason::ClientTimeout,
            UploadFault::Broken | UploadFault::Unwanted => Reason::BrokenBody,
        };
        Self { reason, verdict: None, sent: true, repeatable: false, stale: false }
    }

    fn of_connect() -> Self {
        let verdict = Some(Verdict::ConnectFailed);
        let reason = Reason::ConnectFailed;
        Self { reason, verdict, sent: false, repeatable: true, stale: false }
    }
}

/// Sends the request to the permit's server; `fresh` demands a new connection.
pub(crate) async fn attempt<D: Dispatcher>(
    core: &Core<D>,
    client: &Client,
    permit: &D::Permit,
    outgoing: &Outgoing,
    fresh: bool,
) -> Result<(response::Parts, Lease), Failure> {
    let (node, address) = (permit.node(), permit.address());
    let route = Route { node, address, announced: outgoing.announced };
    let kept = if fresh { None } else { core.pool.take(route) };
    let mut lease = if let Some(lease) = kept {
        core.metrics.upstream_reused.add(1);
        lease
    } else {
        // Boxed: most requests find a connection, and need no room for this.
        let connected = Box::pin(core.pool.connect(route)).await;
        connected.map_err(|error| {
            tracing::debug!(%node, %address, %error, "no connection to a server");
            Failure::of_connect()
        })?
    };
    if !lease.reused {
        core.metrics.upstream_opened.add(1);
    }
    let limit = Duration::from_millis(core.options().response_header_timeout_ms);
    let answer = {
        let sending = pin!(lease.link.ask(outgoing.asking(core)));
        in_time(sending, client, outgoing, limit).await
    };
    match answer {
        Some(Ok(parts)) => Ok((parts, lease)),
        Some(Err(fault)) => {
            let failure = explain(&fault, &lease, outgoing);
            tracing::debug!(%node, %address, %fault, ?failure, "an attempt failed");
            Err(failure)
        }
        None => {
            let verdict = Some(Verdict::TimedOut);
            let reason = Reason::ServerTimeout;
            let repeatable = !lease.link.moved().read;
            Err(Failure { reason, verdict, sent: true, repeatable, stale: false })
        }
    }
}

/// Waits for the response's head; none when there was no progress for `limit`. While the client
/// is still sending, its own time-outs apply.
async fn in_time<F: Future>(
    mut sending: Pin<&mut F>,
    client: &Client,
    outgoing: &Outgoing,
    limit: Duration,
) -> Option<F::Output> {
    let mut since = Instant::now();
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(result) = sending.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            let progress = outgoing.upload.as_ref().and_then(|upload| upload.progress());
            since = since.max(progress.unwrap_or(since));
            if client.dog.borrow_mut().poll_until(cx, since + limit).is_pending() {
                return Poll::Pending;
            }
            if outgoing.is_sent() {
                return Poll::Ready(None);
            }
            since = Instant::now();
        }
    })
    .await
}

fn explain(fault: &HeadFault, lease: &Lease, outgoing: &Outgoing) -> Failure {
    if let Some(fault) = outgoing.fault() {
        return Failure::of_client(fault);
    }
    let moved = lease.link.moved();
    let sent = moved.written;
    let malformed = matches!(fault, HeadFault::Malformed);
    if moved.read || malformed {
        let reason = if malformed { Reason::BadResponse } else { Reason::ServerBroke };
        let verdict = Some(Verdict::Broke);
        return Failure { reason, verdict, sent, repeatable: false, stale: false };
    }
    let stale = lease.reused;
    let verdict = (!stale).then_some(Verdict::Broke);
    Failure { reason: Reason::ServerBroke, verdict, sent, repeatable: true, stale }
}
