//! The life of a request: head, site, permit, attempts, response.

use crate::answer::{Reason, Source};
use crate::attempt::{Outgoing, attempt};
use crate::core::Core;
use crate::download::{Download, Flight, Meter};
use crate::face::{Dispatcher, Permit, Refusal, Verdict};
use crate::head::{Framing, Head};
use crate::hosts::{SiteSlot, host_of};
use crate::options::SiteOptions;
use crate::proxy_header::Announced;
use crate::upload::{Upload, UploadLimits};
use crate::upstream::Lease;
use crate::wire::Client;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header, response};
use hyper::body::Incoming;
use pool_model::{NodeId, SiteId};
use std::convert::Infallible;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

/// How long a refused request's small body may still take to arrive before the connection is
/// closed instead.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// How long a request waits before it goes to a node that failed it once; twice as long after two
/// failures. A busy machine's agent needs some ten milliseconds to say that its server is gone.
const SAME_NODE_PAUSE: Duration = Duration::from_millis(50);

/// Answers one request. It never fails: what goes wrong becomes an answer.
pub(crate) async fn serve<D: Dispatcher>(
    core: Rc<Core<D>>,
    client: Rc<Client>,
    client_value: HeaderValue,
    request: Request<Incoming>,
) -> Result<Response<Download<D>>, Infallible> {
    let (parts, body) = request.into_parts();
    let mut meter = Meter::new(core, client, &parts);
    let outgoing = match accept(&mut meter, client_value, parts, body) {
        Ok(outgoing) => outgoing,
        Err(Rejected { reason, body }) => {
            let close = !http_body::Body::is_end_stream(&body);
            return Ok(refuse(meter, reason, close));
        }
    };
    match forward(&mut meter, &outgoing).await {
        Ok((parts, flight)) => Ok(pass(meter, parts, flight)),
        Err(reason) => {
            let close = !drain(&outgoing).await;
            Ok(refuse(meter, reason, close))
        }
    }
}

/// A request that is not forwarded.
struct Rejected {
    reason: Reason,
    body: Incoming,
}

/// Checks the head and finds the site.
fn accept<D: Dispatcher>(
    meter: &mut Meter<D>,
    client_value: HeaderValue,
    parts: Parts,
    body: Incoming,
) -> Result<Outgoing, Rejected> {
    let shared = &meter.core.shared;
    let head = match Head::read(&parts, shared.options.uri_bytes_max) {
        Ok(head) => head,
        Err(reason) => return Err(Rejected { reason, body }),
    };
    let Some(slot) = site_of(&meter.core, &head) else {
        return Err(Rejected { reason: Reason::UnknownSite, body });
    };
    let site = &shared.options.sites[slot.0];
    let exact_bytes = match head.framing {
        Framing::Length(bytes) => Some(bytes),
        Framing::None | Framing::Chunked => None,
    };
    let limits = UploadLimits {
        body_bytes_max: site.body_bytes_max,
        keep_bytes_max: shared.options.retry_body_max_bytes,
        idle: shared.options.body_idle(),
        expect_wait: Duration::from_millis(shared.options.expect_wait_ms),
    };
    let host = head.host.clone().or_else(|| main_host(site));
    let announced = match (site.proxy_protocol_out, meter.client.ends) {
        (Some(version), Some(ends)) => Some(Announced { version, ends }),
        _ => None,
    };
    meter.set_slot(slot);
    if exact_bytes.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(Rejected { reason: Reason::BodyTooLarge, body });
    }
    let Some(host) = host else { return Err(Rejected { reason: Reason::BadRequest, body }) };
    let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
    let upload = (!bodiless).then(|| Rc::new(Upload::new(body, limits, exact_bytes)));
    let labels = meter.labels.clone();
    Ok(Outgoing { parts, head, host, client_value, upload, labels, announced })
}

fn site_of<D: Dispatcher>(core: &Core<D>, head: &Head) -> Option<SiteSlot> {
    let sites = &core.shared.sites;
    match &head.host {
        Some(host) => sites.find(host_of(host.as_bytes())?),
        None => sites.default_site(),
    }
}

/// What an HTTP/1.0 request without a host is sent on with.
fn main_host(site: &SiteOptions) -> Option<HeaderValue> {
    let host = site.hosts.iter().find(|host| !host.starts_with('*')).unwrap_or(&site.name);
    HeaderValue::from_str(host).ok()
}

/// Attempts, until one is answered or no other is allowed.
async fn forward<D: Dispatcher>(
    meter: &mut Meter<D>,
    outgoing: &Outgoing,
) -> Result<(response::Parts, Flight<D>), Reason> {
    let core = &*Rc::clone(&meter.core);
    let slot = meter.slot().ok_or(Reason::UnknownSite)?;
    let site = core.options().sites[slot.0].id;
    let counts = core.metrics.site(Some(slot));
    let mut failed = Vec::new();
    loop {
        let permit = acquire(&core.dispatcher, site, &failed).await.map_err(Reason::from)?;
        meter.goes_to(permit.node());
        let failure = match at_server(meter, &permit, outgoing).await {
            Ok((parts, lease)) => {
                let upload = outgoing.upload.clone();
                return Ok((parts, Flight { permit, lease, upload }));
            }
            Err(failure) => failure,
        };
        if let Some(verdict) = failure.verdict {
            permit.report(verdict);
        }
        if failure.reason == Reason::ConnectFailed {
            counts.connect_failures.add(1);
        }
        if failed.len() == core.options().retries_max || !outgoing.may_repeat(&failure) {
            return Err(failure.reason);
        }
        counts.retries.add(1);
        failed.push(permit.node());
    }
}

/// A server that has not failed this request. Where no other is left, the one that has gets time:
/// its agent sees within a few milliseconds that it died; then the request waits for its successor
/// in the queue.
async fn acquire<D: Dispatcher>(
    dispatcher: &D,
    site: SiteId,
    failed: &[NodeId],
) -> Result<D::Permit, Refusal> {
    let permit = dispatcher.acquire(site, failed).await?;
    let failures = failed.iter().filter(|&&node| node == permit.node()).count();
    let Some(pause) = u32::try_from(failures).ok().filter(|&failures| failures > 0) else {
        return Ok(permit);
    };
    drop(permit);
    tokio::time::sleep(SAME_NODE_PAUSE * pause).await;
    dispatcher.acquire(site, failed).await
}

/// One server: over a kept connection, and should that one turn out to be closed, over a new one.
async fn at_server<D: Dispatcher>(
    meter: &Meter<D>,
    permit: &D::Permit,
    outgoing: &Outgoing,
) -> Result<(response::Parts, Lease), crate::attempt::Failure> {
    let (core, client) = (&*meter.core, &*meter.client);
    match attempt(core, client, permit, outgoing, false).await {
        Err(failure) if failure.stale && outgoing.may_repeat(&failure) => {
            core.metrics.site(meter.slot()).retries.add(1);
            attempt(core, client, permit, outgoing, true).await
        }
        result => result,
    }
}

/// Hands a server's response on.
fn pass<D: Dispatcher>(
    mut meter: Meter<D>,
    mut parts: response::Parts,
    flight: Flight<D>,
) -> Response<Download<D>> {
    let status = parts.status;
    flight.permit.report(match status.as_u16() {
        server_error @ 500.. => Verdict::ServerError(server_error),
        _ => Verdict::Answered,
    });
    if let Some(upload) = &flight.upload {
        upload.forget_kept();
        if upload.has_trailers() {
            parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    meter.set_status(status);
    meter.label(&mut parts.headers);
    parts.version = http::Version::HTTP_11;
    Response::from_parts(parts, Download::server(flight, meter))
}

/// Reads the rest of a small request body away; whether nothing of it is left. A client that
/// waits for a 100 must not get one with a refusal.
async fn drain(outgoing: &Outgoing) -> bool {
    let Some(upload) = &outgoing.upload else { return true };
    if outgoing.head.expects_continue {
        return upload.is_complete();
    }
    // An attempt that is not quite dead must not read beside us.
    upload.give_up();
    let drained = poll_fn(|cx| upload.poll_drain(cx));
    tokio::time::timeout(DRAIN_TIME, drained).await.unwrap_or(false)
}

/// The edge's own answer.
fn refuse<D: Dispatcher>(
    mut meter: Meter<D>,
    reason: Reason,
    close: bool,
) -> Response<Download<D>> {
    let peer = meter.client.peer;
    if reason.source() == Source::Server {
        tracing::warn!(%peer, %reason, "a request failed");
    } else {
        tracing::debug!(%peer, %reason, "a request was refused");
    }
    meter.core.metrics.site(meter.slot()).refusals[reason.index()].add(1);
    meter.set_status(reason.status());
    let (mut parts, text) = reason.answer().into_parts();
    meter.set_reason(reason, text.len());
    meter.label(&mut parts.headers);
    if close {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Response::from_parts(parts, Download::text(text, meter))
}
