//! A response's body on its way to the client, and what ends with it.

use crate::access_log::{Ended, Entry};
use crate::admission::class_name;
use crate::answer::Reason;
use crate::cached::Carried;
use crate::core::Core;
use crate::face::{Dispatcher, Permit, Rank, Verdict};
use crate::hosts::SiteSlot;
use crate::labels::{Labels, X_REQUEST_ID};
use crate::upload::Upload;
use crate::upstream::{Connection, Lease};
use crate::wire::{BodyState, Client};
use bytes::Bytes;
use http::HeaderMap;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use pool_model::NodeId;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// Of a stored response handed on at once: what a client takes in a fraction of the time in which
/// it must have moved at all.
const STORED_PIECE_BYTES: usize = 256 * 1024;

/// Counts one request, from its head to the end of its response.
pub(crate) struct Meter<D: Dispatcher> {
    pub(crate) core: Rc<Core<D>>,
    pub(crate) client: Rc<Client>,
    slot: Option<SiteSlot>,
    started: Instant,
    /// First digit of the response's status; 0 as long as there is none.
    class: u8,
    request_bytes: u64,
    response_bytes: u64,
    pub(crate) labels: Labels,
    /// Only with an access log.
    entry: Option<Box<Entry>>,
    /// A request of a client.
    counts: bool,
}

impl<D: Dispatcher> Meter<D> {
    pub(crate) fn new(core: Rc<Core<D>>, client: Rc<Client>, parts: &Parts) -> Self {
        client.request_begins();
        core.metrics.site(None).in_flight.add(1);
        let started = Instant::now();
        let (request_bytes, response_bytes) = (0, 0);
        let labels = Labels::new(core.shared.labels, &parts.headers, &core.chance);
        let entry = core.log.as_ref().map(|_| Box::new(Entry::new(parts)));
        let (slot, counts) = (None, true);
        Self {
            core,
            client,
            slot,
            started,
            class: 0,
            request_bytes,
            response_bytes,
            labels,
            entry,
            counts,
        }
    }

    /// For what the edge asks of its own accord: it is no client's request, and not counted.
    pub(crate) fn unseen(core: Rc<Core<D>>, client: Rc<Client>, slot: SiteSlot) -> Self {
        Self {
            core,
            client,
            slot: Some(slot),
            started: Instant::now(),
            class: 0,
            request_bytes: 0,
            response_bytes: 0,
            labels: Labels::default(),
            entry: None,
            counts: false,
        }
    }

    /// A server takes the request: the first one, or another after a failure.
    pub(crate) fn goes_to(&mut self, node: NodeId) {
        if let Some(entry) = &mut self.entry {
            entry.retries += u32::from(entry.node.is_some());
            entry.node = Some(node);
        }
    }

    /// Adds to a response what the client is to know the request by.
    pub(crate) fn label(&self, fields: &mut HeaderMap) {
        if let Some(id) = self.labels.id_value() {
            fields.insert(X_REQUEST_ID, id);
        }
    }

    /// The same for a head that is written as text.
    pub(crate) fn write_label(&self, head: &mut Vec<u8>) {
        if let Some(id) = self.labels.id() {
            for part in [X_REQUEST_ID.as_str().as_bytes(), b": ", id, b"\r\n"] {
                head.extend_from_slice(part);
            }
        }
    }

    /// So many bytes of the response's body were handed on.
    pub(crate) fn count_response(&mut self, bytes: usize) {
        self.response_bytes += bytes as u64;
    }

    /// The request belongs to this admission class.
    pub(crate) fn set_rank(&mut self, rank: Rank) {
        if let Some(entry) = &mut self.entry {
            entry.rank = rank;
        }
    }

    /// What the cache did.
    pub(crate) fn set_cache(&mut self, what: &'static str) {
        if let Some(entry) = &mut self.entry {
            entry.cache = Some(what);
        }
    }

    /// The edge answers itself.
    pub(crate) fn set_reason(&mut self, reason: Reason, text_bytes: usize) {
        if let Some(entry) = &mut self.entry {
            entry.reason = Some(reason);
            entry.text_bytes = text_bytes as u64;
        }
    }

    /// When the request's head was complete.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn slot(&self) -> Option<SiteSlot> {
        self.slot
    }

    pub(crate) fn set_slot(&mut self, slot: SiteSlot) {
        self.core.metrics.site(self.slot).in_flight.take(1);
        self.slot = Some(slot);
        self.core.metrics.site(self.slot).in_flight.add(1);
    }

    pub(crate) fn set_status(&mut self, status: http::StatusCode) {
        self.class = u8::try_from(status.as_u16() / 100).unwrap_or(0).min(5);
        if let Some(entry) = &mut self.entry {
            entry.status = status.as_u16();
            entry.first_byte = Some(self.started.elapsed());
        }
    }
}

impl<D: Dispatcher> Drop for Meter<D> {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        let site = self.core.metrics.site(self.slot);
        site.in_flight.take(1);
        site.requests[usize::from(self.class)].add(1);
        let duration = self.started.elapsed();
        site.record_latency(duration);
        let options = self.slot.map(|slot| &self.core.options().sites[slot.0]);
        let objective = options.and_then(|site| site.objective);
        if objective.is_some_and(|objective| duration > objective) {
            site.slower.add(1);
        }
        if self.request_bytes > 0 {
            site.request_body_bytes.add(self.request_bytes);
        }
        site.response_body_bytes.add(self.response_bytes);
        self.client.request_ends();
        if let (Some(entry), Some(log)) = (&self.entry, &self.core.log) {
            let ended = Ended {
                client: self.client.caller.address.ip().to_canonical(),
                is_tls: self.client.caller.secured.is_some(),
                site: options.map(|site| site.name.as_str()),
                class: options
                    .filter(|site| !site.admission.is_empty())
                    .map(|site| class_name(&site.admission, entry.rank)),
                labels: &self.labels,
                duration,
                bytes: self.response_bytes,
                bytes_in: self.request_bytes,
            };
            entry.write(log, &ended);
        }
    }
}

/// What a request holds of its server. Dropped without [`Flight::land`], it closes the
/// connection; either way the permit goes.
pub(crate) struct Flight<D: Dispatcher> {
    pub(crate) permit: D::Permit,
    pub(crate) lease: Lease,
    pub(crate) upload: Option<Rc<Upload>>,
    /// The server's answer is yet to be reported.
    pub(crate) answers: bool,
}

impl<D: Dispatcher> Flight<D> {
    /// The response does not come all at once: its health needs not wait for the end.
    pub(crate) fn report(&mut self) {
        if std::mem::take(&mut self.answers) {
            self.permit.report(Verdict::Answered);
        }
    }

    /// The response is complete from the server's side.
    pub(crate) fn land(self, core: &Core<D>) {
        if self.answers {
            self.permit.answered();
        } else {
            drop(self.permit);
        }
        match self.upload {
            // The exchange is over. Nobody can tell what the server makes of the rest.
            Some(upload) if !upload.is_complete() => upload.give_up(),
            _ => core.pool.put(self.lease),
        }
    }

    /// Nobody reads what is left of the response.
    pub(crate) fn leave(mut self, core: &Core<D>) {
        if self.lease.link.is_end() {
            self.land(core);
        } else {
            self.report();
        }
    }
}

/// Why a response broke off after its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DownloadFault {
    #[error("the server's response broke off")]
    Broken,
    #[error("the server's response stopped")]
    Stalled,
}

enum Kind<D: Dispatcher> {
    /// The edge's own words.
    Text(Bytes),
    /// A stored response.
    Stored(Bytes),
    /// A server's response, on its way into the cache.
    Carried(Carried),
    /// A server's response.
    Server { flight: Option<Flight<D>>, waits_since: Option<Instant> },
}

/// The body of a response.
pub(crate) struct Download<D: Dispatcher> {
    kind: Kind<D>,
    meter: Meter<D>,
}

impl<D: Dispatcher> Download<D> {
    pub(crate) fn text(text: Bytes, meter: Meter<D>) -> Self {
        meter.client.set_body(BodyState::Over);
        Self { kind: Kind::Text(text), meter }
    }

    pub(crate) fn stored(body: Bytes, meter: Meter<D>) -> Self {
        let moves = !body.is_empty();
        let state = if moves { BodyState::Client { moved: true } } else { BodyState::Over };
        meter.client.set_body(state);
        Self { kind: Kind::Stored(body), meter }
    }

    pub(crate) fn carried(carried: Carried, meter: Meter<D>) -> Self {
        let over = carried.is_end();
        let state = if over { BodyState::Over } else { BodyState::Client { moved: true } };
        meter.client.set_body(state);
        Self { kind: Kind::Carried(carried), meter }
    }

    pub(crate) fn server(flight: Flight<D>, meter: Meter<D>) -> Self {
        meter.client.set_body(BodyState::Client { moved: true });
        Self { kind: Kind::Server { flight: Some(flight), waits_since: None }, meter }
    }
}

type FrameResult = Result<Frame<Bytes>, DownloadFault>;

/// One frame of a server's response.
fn poll_server<D: Dispatcher>(
    kind: &mut Kind<D>,
    meter: &mut Meter<D>,
    cx: &mut Context<'_>,
) -> Poll<Option<FrameResult>> {
    let Kind::Server { flight, waits_since } = kind else { return Poll::Ready(None) };
    let Some(flying) = flight else { return Poll::Ready(None) };
    let fault = match flying.lease.link.poll_data(cx) {
        Poll::Ready(Some(Ok(data))) => {
            *waits_since = None;
            meter.response_bytes += data.len() as u64;
            meter.client.set_body(BodyState::Client { moved: true });
            if flying.lease.link.is_end() {
                land(flight, meter);
            } else {
                flying.report();
            }
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(None) => {
            land(flight, meter);
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Err(_))) => DownloadFault::Broken,
        Poll::Pending => {
            flying.report();
            let since = *waits_since.get_or_insert_with(Instant::now);
            let deadline = since + meter.core.options().body_idle();
            match meter.client.dog.borrow_mut().poll_until(cx, deadline) {
                Poll::Ready(()) => DownloadFault::Stalled,
                Poll::Pending => {
                    meter.client.set_body(BodyState::Server);
                    return Poll::Pending;
                }
            }
        }
    };
    flying.report();
    *flight = None;
    Poll::Ready(Some(Err(cut(meter, fault))))
}

/// The client must not take what it has for the whole.
fn cut<D: Dispatcher>(meter: &mut Meter<D>, fault: DownloadFault) -> DownloadFault {
    let peer = meter.client.caller.address;
    tracing::warn!(%peer, %fault, "a response is cut");
    meter.client.set_body(BodyState::Over);
    if let Some(entry) = &mut meter.entry {
        entry.is_cut = true;
    }
    meter.client.break_off();
    fault
}

/// The next piece of a stored response.
fn next_stored<D: Dispatcher>(body: &mut Bytes, meter: &mut Meter<D>) -> Option<FrameResult> {
    if body.is_empty() {
        return None;
    }
    let piece = body.split_to(body.len().min(STORED_PIECE_BYTES));
    moved(&piece, body.is_empty(), meter);
    Some(Ok(Frame::data(piece)))
}

/// The next piece of a response on its way into the cache.
fn poll_carried<D: Dispatcher>(
    carried: &mut Carried,
    meter: &mut Meter<D>,
    cx: &mut Context<'_>,
) -> Poll<Option<FrameResult>> {
    match carried.poll_next(cx) {
        Poll::Ready(Some(Ok(piece))) => {
            moved(&piece, carried.is_end(), meter);
            Poll::Ready(Some(Ok(Frame::data(piece))))
        }
        Poll::Ready(Some(Err(fault))) => Poll::Ready(Some(Err(cut(meter, fault)))),
        Poll::Ready(None) => {
            meter.client.set_body(BodyState::Over);
            Poll::Ready(None)
        }
        Poll::Pending => {
            meter.client.set_body(BodyState::Server);
            Poll::Pending
        }
    }
}

fn moved<D: Dispatcher>(piece: &Bytes, is_last: bool, meter: &mut Meter<D>) {
    meter.response_bytes += piece.len() as u64;
    let more = BodyState::Client { moved: true };
    meter.client.set_body(if is_last { BodyState::Over } else { more });
}

fn land<D: Dispatcher>(flight: &mut Option<Flight<D>>, meter: &mut Meter<D>) {
    let Some(flight) = flight.take() else { return };
    meter.request_bytes = flight.upload.as_ref().map_or(0, |upload| upload.passed_bytes());
    meter.client.set_body(BodyState::Over);
    flight.land(&meter.core);
}

impl<D: Dispatcher> Body for Download<D> {
    type Data = Bytes;
    type Error = DownloadFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, DownloadFault>>> {
        let this = self.get_mut();
        if let Kind::Text(text) = &mut this.kind {
            let text = std::mem::take(text);
            return Poll::Ready((!text.is_empty()).then(|| Ok(Frame::data(text))));
        }
        match &mut this.kind {
            Kind::Stored(body) => return Poll::Ready(next_stored(body, &mut this.meter)),
            Kind::Carried(carried) => return poll_carried(carried, &mut this.meter, cx),
            Kind::Text(_) | Kind::Server { .. } => {}
        }
        poll_server(&mut this.kind, &mut this.meter, cx)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Text(text) | Kind::Stored(text) => text.is_empty(),
            Kind::Carried(carried) => carried.is_end(),
            Kind::Server { flight, .. } => {
                flight.as_ref().is_none_or(|flight| flight.lease.link.is_end())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Text(text) | Kind::Stored(text) => SizeHint::with_exact(text.len() as u64),
            Kind::Carried(carried) => {
                carried.left().map_or_else(SizeHint::default, SizeHint::with_exact)
            }
            Kind::Server { flight: Some(flight), .. } => flight.lease.link.size_hint(),
            Kind::Server { flight: None, .. } => SizeHint::with_exact(0),
        }
    }
}

impl<D: Dispatcher> Drop for Download<D> {
    fn drop(&mut self) {
        let Kind::Server { flight, .. } = &mut self.kind else { return };
        match flight {
            // hyper asks a body without frames for none.
            Some(flying) if flying.lease.link.is_end() => land(flight, &mut self.meter),
            Some(flying) => flying.report(),
            None => {}
        }
    }
}
impl<D: Dispatcher> Unpin for Download<D> {}
