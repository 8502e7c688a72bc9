//! The life of a request: head, site, permit, attempts, response.

use crate::admission::rank_of;
use crate::answer::{Reason, Source};
use crate::attempt::{Outgoing, attempt};
use crate::cached::{self, Asked, Looked};
use crate::core::Core;
use crate::download::{Download, Flight, Meter};
use crate::face::{Ask, Dispatcher, Permit, Rank, Refusal, Stick, Verdict};
use crate::head::{Framing, Head};
use crate::hosts::{SiteSlot, host_of};
use crate::options::Options;
use crate::purge;
use crate::rate::{Limited, TooEarly};
use crate::spare;
use crate::upgrade::switch;
use crate::upload::{Upload, UploadLimits};
use crate::upstream::Lease;
use crate::wire::Client;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header, response};
use hyper::body::Incoming;
use pool_model::SiteId;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How long a refused request's small body may still take to arrive before the connection is
/// closed instead.
const DRAIN_TIME: Duration = Duration::from_millis(500);

/// How long a request waits before it goes to a node that failed it once; twice as long after two
/// failures. A busy machine's agent needs some ten milliseconds to say that its server is gone.
const SAME_NODE_PAUSE: Duration = Duration::from_millis(50);

/// Answers one request. It never fails: what goes wrong becomes an answer.
///
/// What needs no waiting is done in the call, and what is rare is boxed: hyper moves the future
/// into its place for each request, so that every byte of it costs.
pub(crate) fn serve<D: Dispatcher>(
    core: Rc<Core<D>>,
    client: Rc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Download<D>>, Infallible>> {
    let (parts, body) = request.into_parts();
    let mut meter = Meter::new(core, client, &parts);
    let mut accepted = accept(&mut meter, parts, body);
    async move {
        let outgoing = match &mut accepted {
            Ok(outgoing) => outgoing,
            Err(Rejected { refused, close }) => return Ok(refuse(meter, *refused, *close)),
        };
        let site = &meter.core.shared.options.sites[outgoing.slot.0];
        if purge::is_asked(site, &outgoing.parts.method, outgoing.head.target.path()) {
            return Ok(Box::pin(purge::answer(meter, outgoing)).await);
        }
        let want = Want::of(&mut meter, outgoing);
        let mut bypass = None;
        if meter.core.shared.caching[outgoing.slot.0].is_some() {
            match cached::look_up(&mut meter, outgoing) {
                Looked::Hit(answer) => {
                    meter.client.set_hit();
                    return Ok(cached::answered(meter, answer));
                }
                Looked::Bypass(why) => bypass = Some(why),
                Looked::Ask(lookup) => {
                    match Box::pin(cached::ask(meter, outgoing, want, lookup)).await {
                        Asked::Response(response) => return Ok(*response),
                        Asked::Bypass(back, why) => (meter, bypass) = (back, Some(why)),
                    }
                }
            }
        }
        match forward(&mut meter, outgoing, want).await {
            Ok((mut parts, flight)) => {
                if let Some(bypass) = bypass {
                    cached::passed(&meter, outgoing, bypass, &mut parts);
                }
                spare::keep(std::mem::take(&mut outgoing.parts.headers));
                set_cookie(&meter, want.stick, &flight, &mut parts);
                if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                    let share = outgoing.upgrade_share.take();
                    return Ok(Box::pin(switched(meter, parts, share, flight)).await);
                }
                Ok(pass(meter, parts, flight))
            }
            Err(refused) => {
                // A stream of HTTP/2 ends without the others.
                let close = !meter.client.is_http2 && !drain(outgoing).await;
                Ok(refuse(meter, refused, close))
            }
        }
    }
}

/// What a request asks of the dispatcher, whichever of its fields a server is to see.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    pub(crate) stick: Option<Stick>,
    rank: Rank,
}

impl Want {
    fn of<D: Dispatcher>(meter: &mut Meter<D>, outgoing: &Outgoing) -> Self {
        let stick = stick_of(meter, outgoing);
        let site = &meter.core.shared.options.sites[outgoing.slot.0];
        let rank = rank_of(&site.admission, &outgoing.parts, outgoing.head.target.path());
        meter.set_rank(rank);
        Self { stick, rank }
    }
}

/// Why a request is not answered by a server, and after what time to come back.
#[derive(Clone, Copy)]
pub(crate) struct Refused {
    reason: Reason,
    /// Where that depends on the request.
    retry_after_s: Option<u64>,
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Self {
        Self { reason, retry_after_s: None }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let retry_after_s = match refusal {
            Refusal::Shed { retry_after_s } => Some(retry_after_s.into()),
            _ => None,
        };
        Self { reason: refusal.into(), retry_after_s }
    }
}

/// A request that is not forwarded.
struct Rejected {
    refused: Refused,
    /// The connection ends with the answer: some of the body may still come.
    close: bool,
}

impl Rejected {
    fn new(refused: impl Into<Refused>, body: &Incoming) -> Self {
        Self { refused: refused.into(), close: !http_body::Body::is_end_stream(body) }
    }
}

/// Checks the head and finds the site.
fn accept<D: Dispatcher>(
    meter: &mut Meter<D>,
    parts: Parts,
    body: Incoming,
) -> Result<Outgoing, Rejected> {
    let core = Rc::clone(&meter.core);
    let shared = &core.shared;
    let head = match read_head(&shared.options, &parts, &body) {
        Ok(head) => head,
        Err(reason) => return Err(Rejected::new(reason, &body)),
    };
    let Some(slot) = site_of(&core, &head) else {
        return Err(Rejected::new(Reason::UnknownSite, &body));
    };
    let caller = Rc::clone(&meter.client.caller);
    if shared.tls.requires(slot) && !caller.is_verified_for(slot) {
        return Err(Rejected::new(Reason::NoCertificate, &body));
    }
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
        framed: parts.version == Version::HTTP_2,
    };
    meter.set_slot(slot);
    if let Err(early) = within_rate(meter, slot) {
        let retry_after_s = Some(early.retry_after_s());
        let reason = match early.limited {
            Limited::Client => Reason::ClientRate,
            Limited::Site => Reason::SiteRate,
        };
        return Err(Rejected::new(Refused { reason, retry_after_s }, &body));
    }
    if exact_bytes.is_some_and(|bytes| bytes > limits.body_bytes_max) {
        return Err(Rejected::new(Reason::BodyTooLarge, &body));
    }
    let share = upgrade_share(&core, &head);
    let bodiless = matches!(head.framing, Framing::None | Framing::Length(0));
    let Some(mut outgoing) = Outgoing::new(site, parts, head, caller, slot) else {
        return Err(Rejected::new(Reason::BadRequest, &body));
    };
    outgoing.upgrade_share = match share {
        Ok(share) => share,
        Err(reason) => return Err(Rejected::new(reason, &body)),
    };
    outgoing.upload = (!bodiless).then(|| Rc::new(Upload::new(body, limits, exact_bytes)));
    outgoing.labels = meter.labels.clone();
    Ok(outgoing)
}

/// What the head means, over either protocol.
fn read_head(options: &Options, parts: &Parts, body: &Incoming) -> Result<Head, Reason> {
    if parts.headers.len() > options.headers_max {
        // In HTTP/1, hyper has said so already.
        return Err(Reason::TooManyFields);
    }
    let mut head = Head::read(parts, options.uri_bytes_max)?;
    head.upgrade = head.upgrade.filter(|_| options.upgrades);
    let ends = http_body::Body::is_end_stream(body);
    if parts.version == Version::HTTP_2 && head.framing == Framing::None && !ends {
        head.framing = Framing::Chunked;
    }
    Ok(head)
}

/// Room for one more upgraded connection, where the request may lead to one.
fn upgrade_share<D: Dispatcher>(
    core: &Core<D>,
    head: &Head,
) -> Result<Option<OwnedSemaphorePermit>, Reason> {
    if head.upgrade.is_none() {
        return Ok(None);
    }
    let share = Arc::clone(&core.shared.upgraded).try_acquire_owned();
    share.map(Some).map_err(|_| Reason::UpgradesFull)
}

/// Counts the request against the limits of its client and site.
fn within_rate<D: Dispatcher>(meter: &Meter<D>, slot: SiteSlot) -> Result<(), TooEarly> {
    match &meter.core.shared.limiters[slot.0] {
        Some(limiter) => limiter.take(meter.client.caller.address.ip(), meter.started()),
        None => Ok(()),
    }
}

/// The server that the request belongs to.
fn stick_of<D: Dispatcher>(meter: &Meter<D>, outgoing: &Outgoing) -> Option<Stick> {
    let stickiness = meter.core.shared.stickiness[meter.slot()?.0].as_ref()?;
    stickiness.of(&outgoing.parts.headers, meter.client.caller.address.ip())
}

/// Tells the client its server, if that is a new one.
pub(crate) fn set_cookie<D: Dispatcher>(
    meter: &Meter<D>,
    stick: Option<Stick>,
    flight: &Flight<D>,
    parts: &mut response::Parts,
) {
    let stickiness = meter.slot().and_then(|slot| meter.core.shared.stickiness[slot.0].as_ref());
    let is_tls = meter.client.caller.secured.is_some();
    if let Some(stickiness) = stickiness
        && let Some(cookie) = stickiness.set_cookie(stick, flight.permit.node(), is_tls)
    {
        parts.headers.append(header::SET_COOKIE, cookie);
    }
}

pub(crate) fn site_of<D: Dispatcher>(core: &Core<D>, head: &Head) -> Option<SiteSlot> {
    let sites = &core.shared.sites;
    match &head.host {
        Some(host) => sites.find(host_of(host.as_bytes())?),
        None => sites.default_site(),
    }
}

/// Attempts, until one is answered or no other is allowed.
pub(crate) async fn forward<D: Dispatcher>(
    meter: &mut Meter<D>,
    outgoing: &Outgoing,
    want: Want,
) -> Result<(response::Parts, Flight<D>), Refused> {
    let core = &*Rc::clone(&meter.core);
    let slot = meter.slot().ok_or(Reason::UnknownSite)?;
    let site = core.options().sites[slot.0].id;
    let Want { stick, rank } = want;
    let counts = core.metrics.site(Some(slot));
    let mut failed = Vec::new();
    loop {
        let ask = Ask { avoid: &failed, stick, rank };
        let permit = acquire(&core.dispatcher, site, ask).await?;
        meter.goes_to(permit.node());
        let failure = match at_server(meter, &permit, outgoing).await {
            Ok((parts, lease)) => {
                let upload = outgoing.upload.clone();
                return Ok((parts, Flight { permit, lease, upload, answers: false }));
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
            return Err(failure.reason.into());
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
    ask: Ask<'_>,
) -> Result<D::Permit, Refusal> {
    let permit = dispatcher.acquire(site, ask).await?;
    let failures = ask.avoid.iter().filter(|&&node| node == permit.node()).count();
    let Some(pause) = u32::try_from(failures).ok().filter(|&failures| failures > 0) else {
        return Ok(permit);
    };
    drop(permit);
    tokio::time::sleep(SAME_NODE_PAUSE * pause).await;
    dispatcher.acquire(site, ask).await
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

/// What the head of a response says about its server.
pub(crate) fn judge<D: Dispatcher>(flight: &mut Flight<D>, status: StatusCode) {
    match status.as_u16() {
        server_error @ 500.. => flight.permit.report(Verdict::ServerError(server_error)),
        _ => flight.answers = true,
    }
}

/// Hands a server's response on.
fn pass<D: Dispatcher>(
    mut meter: Meter<D>,
    mut parts: response::Parts,
    mut flight: Flight<D>,
) -> Response<Download<D>> {
    judge(&mut flight, parts.status);
    if let Some(upload) = &flight.upload {
        upload.forget_kept();
    }
    let closes = flight.upload.as_ref().is_some_and(|upload| upload.has_trailers());
    end_connection(&meter, &mut parts.headers, closes);
    let parts = head_of(&mut meter, parts);
    Response::from_parts(parts, Download::server(flight, meter))
}

/// Goes on with a server that switches to another protocol.
async fn switched<D: Dispatcher>(
    mut meter: Meter<D>,
    parts: response::Parts,
    share: Option<OwnedSemaphorePermit>,
    flight: Flight<D>,
) -> Response<Download<D>> {
    match switch(&meter, share, flight, &parts.headers).await {
        Ok(()) => {
            let head = head_of(&mut meter, parts);
            Response::from_parts(head, Download::text(Bytes::new(), meter))
        }
        Err(reason) => refuse(meter, reason.into(), true),
    }
}

/// A server's head as the client gets it.
pub(crate) fn head_of<D: Dispatcher>(
    meter: &mut Meter<D>,
    mut parts: response::Parts,
) -> response::Parts {
    meter.set_status(parts.status);
    meter.label(&mut parts.headers);
    parts.version = Version::HTTP_11;
    parts
}

/// Says in a response whether the connection ends with it. HTTP/2 has GOAWAY for that.
pub(crate) fn end_connection<D: Dispatcher>(
    meter: &Meter<D>,
    headers: &mut HeaderMap,
    closes: bool,
) {
    if meter.client.is_http2 {
        headers.remove(header::CONNECTION);
    } else if closes || meter.core.draining.get() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Reads the rest of a small request body away; whether nothing of it is left. A client that
/// waits for a 100 must not get one with a refusal.
pub(crate) async fn drain(outgoing: &Outgoing) -> bool {
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
pub(crate) fn refuse<D: Dispatcher>(
    meter: Meter<D>,
    refused: Refused,
    close: bool,
) -> Response<Download<D>> {
    let text = refused.reason.text();
    refuse_saying(meter, refused, Bytes::from_static(text.as_bytes()), close)
}

/// The same in other words.
pub(crate) fn refuse_saying<D: Dispatcher>(
    mut meter: Meter<D>,
    refused: Refused,
    text: Bytes,
    close: bool,
) -> Response<Download<D>> {
    let Refused { reason, retry_after_s } = refused;
    let peer = meter.client.caller.address;
    if reason.source() == Source::Server {
        tracing::warn!(%peer, %reason, "a request failed");
    } else {
        tracing::debug!(%peer, %reason, "a request was refused");
    }
    meter.core.metrics.site(meter.slot()).refusals[reason.index()].add(1);
    meter.set_status(reason.status());
    let (mut parts, _) = reason.answer().into_parts();
    meter.set_reason(reason, text.len());
    if let Some(seconds) = retry_after_s {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    meter.label(&mut parts.headers);
    end_connection(&meter, &mut parts.headers, close);
    Response::from_parts(parts, Download::text(text, meter))
}
