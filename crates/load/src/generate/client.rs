//! One keep-alive connection of a generator, and what all its requests share.
//!
//! Fast path (about 10 us of CPU per request, mostly the kernel's): one write, one read, no
//! allocation but hyper's and the header map's.

use std::cell::Cell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::report::{Connections, Failure};

const X_SITE: HeaderName = HeaderName::from_static("x-site");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An idle connection may be found closed just when a request is to be sent; then, and only while
/// nothing of the request was sent, it is sent once more on a new one.
const SENDS_MAX: usize = 2;

/// What all requests of a generator share.
pub(super) struct Plan {
    pub(super) edges: Vec<SocketAddr>,
    pub(super) sites: Vec<SitePlan>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Of closed runs, in turn; none for `uri`.
    pub(super) uris: Vec<Uri>,
    /// How many of them were taken.
    pub(super) uris_taken: Cell<usize>,
    pub(super) body: Bytes,
    pub(super) timeout: Duration,
    /// Number of the last request, when requests carry one.
    pub(super) last_id: Option<Cell<u64>>,
    pub(super) connections: Cell<Connections>,
}

pub(super) struct SitePlan {
    pub(super) host: HeaderValue,
    pub(super) expect_site: Option<HeaderValue>,
}

impl Plan {
    fn count(&self, made: u64, refused: u64) {
        let so_far = self.connections.get();
        let (made, refused) = (so_far.made + made, so_far.refused + refused);
        self.connections.set(Connections { made, refused });
    }

    /// The path of the next request of a closed run, if it is not the plan's own.
    pub(super) fn next_uri(&self) -> Option<&Uri> {
        let taken = self.uris_taken.get();
        self.uris_taken.set(taken.wrapping_add(1));
        self.uris.get(taken.checked_rem(self.uris.len())?)
    }

    fn request(&self, site: usize, uri: Option<&Uri>) -> Request<Full<Bytes>> {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(HOST, self.sites[site].host.clone());
        if let Some(last_id) = &self.last_id {
            last_id.set(last_id.get() + 1);
            headers.insert(X_REQUEST_ID, HeaderValue::from(last_id.get()));
        }
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri.unwrap_or(&self.uri).clone();
        *request.headers_mut() = headers;
        request
    }
}

/// One client: at most one connection, one request at a time.
pub(super) struct Client {
    edge: usize,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client that first tries the edge at the given place, counted round.
    pub(super) fn new(edge: usize) -> Self {
        Self { edge, sender: None }
    }

    /// Sends one request to a site, for the plan's path or another, and reads the response to its
    /// end.
    pub(super) async fn exchange(
        &mut self,
        plan: &Plan,
        site: usize,
        uri: Option<&Uri>,
    ) -> Result<(), Failure> {
        // One coarse timer per request, which tokio's wheel handles in a few hundred nanoseconds.
        let outcome = tokio::time::timeout(plan.timeout, self.send(plan, site, uri)).await;
        match outcome.unwrap_or(Err(Failure::Timeout)) {
            Ok(response) => match check(plan, site, &response) {
                // A complete response leaves the connection good for the next request.
                None => Ok(()),
                Some(failure) => Err(failure),
            },
            Err(failure) => {
                self.sender = None;
                Err(failure)
            }
        }
    }

    async fn send(
        &mut self,
        plan: &Plan,
        site: usize,
        uri: Option<&Uri>,
    ) -> Result<Response<()>, Failure> {
        for _ in 0..SENDS_MAX {
            let sender = self.connection(plan).await?;
            match sender.try_send_request(plan.request(site, uri)).await {
                Ok(response) => return read(response).await,
                Err(error) => {
                    self.sender = None;
                    if error.message().is_none() {
                        return Err(Failure::Transport);
                    }
                }
            }
        }
        Err(Failure::Transport)
    }

    /// The open connection, or a new one.
    async fn connection(&mut self, plan: &Plan) -> Result<&mut SendRequest<Full<Bytes>>, Failure> {
        let open = match self.sender.as_mut() {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !open {
            self.sender = Some(self.connect(plan).await?);
        }
        self.sender.as_mut().ok_or(Failure::Connect)
    }

    /// Connects to its edge; where that fails, to the next, each once.
    async fn connect(&mut self, plan: &Plan) -> Result<SendRequest<Full<Bytes>>, Failure> {
        for _ in 0..plan.edges.len() {
            let address = plan.edges[self.edge % plan.edges.len()];
            if let Ok(sender) = open(address).await {
                plan.count(1, 0);
                return Ok(sender);
            }
            plan.count(0, 1);
            self.edge = (self.edge + 1) % plan.edges.len();
        }
        Err(Failure::Connect)
    }
}

async fn open(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, ()> {
    let stream = TcpStream::connect(address).await.map_err(|_| ())?;
    stream.set_nodelay(true).map_err(|_| ())?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| ())?;
    tokio::task::spawn_local(async move {
        // What goes wrong on a connection is seen, and counted, by the request in flight on it.
        let _ = connection.await;
    });
    Ok(sender)
}

async fn read(response: Response<Incoming>) -> Result<Response<()>, Failure> {
    let (parts, mut body) = response.into_parts();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if frame.is_err() {
            return Err(Failure::Body);
        }
    }
    Ok(Response::from_parts(parts, ()))
}

fn check(plan: &Plan, site: usize, response: &Response<()>) -> Option<Failure> {
    if !response.status().is_success() {
        return Some(Failure::Status(response.status().as_u16()));
    }
    let expected = plan.sites[site].expect_site.as_ref()?;
    let actual = response.headers().get(X_SITE)?;
    (actual != expected).then_some(Failure::WrongSite)
}
