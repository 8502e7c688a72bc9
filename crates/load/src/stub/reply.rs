//! Replies of a stand-in server.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::node::{Arrival, InFlight, Spoil, StubNode};
use crate::clock::now_ns;
use crate::timer::PreciseTimer;

const X_NODE: HeaderName = HeaderName::from_static("x-node");
const X_SITE: HeaderName = HeaderName::from_static("x-site");
const X_COUNT: HeaderName = HeaderName::from_static("x-count");

/// One server: a node's listener for a site, with all that its replies need.
pub(super) struct Service {
    pub(super) node: Arc<StubNode>,
    pub(super) place: usize,
    pub(super) timer: PreciseTimer,
    pub(super) node_name: HeaderValue,
    pub(super) site_name: HeaderValue,
    pub(super) body: Bytes,
}

/// Answers one request: books it, reads its body, waits for the booked time.
pub(super) async fn answer(
    service: Rc<Service>,
    request: Request<Incoming>,
) -> Result<Response<StubBody>, Infallible> {
    match service.node.arrive(service.place, now_ns()) {
        Arrival::Refused => Ok(service.refusal()),
        Arrival::Accepted { request: in_flight, reply_ns, spoil, count } => {
            let bytes = bytes_wanted(request.uri());
            if !request.body().is_end_stream() && drain(request.into_body()).await.is_err() {
                // The client broke off; hyper sends nothing on such a connection.
                return Ok(service.refusal());
            }
            service.timer.sleep_until(reply_ns).await;
            Ok(service.reply(in_flight, spoil, count, bytes))
        }
    }
}

async fn drain(mut body: Incoming) -> Result<(), hyper::Error> {
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        frame?;
    }
    Ok(())
}

/// A document of another length is asked for by its query: `?bytes=N`, up to the stub's own body.
fn bytes_wanted(uri: &Uri) -> Option<usize> {
    uri.query()?.strip_prefix("bytes=")?.parse().ok()
}

impl Service {
    fn reply(
        &self,
        in_flight: InFlight,
        spoil: Spoil,
        count: u64,
        bytes: Option<usize>,
    ) -> Response<StubBody> {
        in_flight.finish(spoil);
        let length = bytes.unwrap_or(usize::MAX).min(self.body.len());
        let body = self.body.slice(..length);
        let body = match spoil {
            Spoil::Truncate => StubBody::truncated(&body),
            Spoil::Nothing | Spoil::Error => StubBody::whole(body),
        };
        let mut response = self.named(Response::new(body));
        if spoil == Spoil::Error {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response.headers_mut().insert(X_COUNT, HeaderValue::from(count));
        response
    }

    fn refusal(&self) -> Response<StubBody> {
        let mut response = self.named(Response::new(StubBody::whole(Bytes::new())));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(1));
        response
    }

    fn named(&self, mut response: Response<StubBody>) -> Response<StubBody> {
        response.headers_mut().insert(X_NODE, self.node_name.clone());
        response.headers_mut().insert(X_SITE, self.site_name.clone());
        response
    }
}

/// A body held in memory, or one that breaks off in the middle.
pub(super) struct StubBody {
    rest: Option<Bytes>,
    length: u64,
    breaks: Break,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    Never,
    AfterPart,
    // One turn of waiting, in which the part is really sent.
    Waiting,
}

impl StubBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self { length: bytes.len() as u64, rest: Some(bytes), breaks: Break::Never }
    }

    fn truncated(bytes: &Bytes) -> Self {
        let part = bytes.slice(..bytes.len() / 2);
        // At least one byte is promised, so that even an empty body can break off.
        let length = bytes.len().max(1) as u64;
        Self { length, rest: Some(part), breaks: Break::AfterPart }
    }
}

impl Body for StubBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(bytes) = self.rest.take().filter(|bytes| !bytes.is_empty()) {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match self.breaks {
            Break::Never => Poll::Ready(None),
            Break::AfterPart => {
                self.breaks = Break::Waiting;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Break::Waiting => {
                let reason = "this reply breaks off on purpose";
                Poll::Ready(Some(Err(io::Error::other(reason))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.breaks == Break::Never && self.rest.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
