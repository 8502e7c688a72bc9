//! The sibling over hyper's low-level client: a task for each connection, channels between it
//! and the requests.

use super::{
    Asking, BodyFault, Connection, HeadFault, Moved, PoolLimits, RESPONSE_HEAD_BYTES_MAX, Upgraded,
};
use crate::forward::{self, Fields};
use crate::upload::UploadBody;
use crate::wire::{ServerWire, Traffic};
use bytes::Bytes;
use http::response;
use http::{HeaderMap, Request, StatusCode, Uri, Version};
use http_body::{Body, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Parts, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A connection that belongs to a task of hyper's.
pub(crate) struct ByHyper {
    sender: SendRequest<UploadBody>,
    incoming: Option<Incoming>,
    traffic: Rc<Traffic>,
    /// Bytes read and written when the last request began.
    mark: (u64, u64),
    /// Brings the socket when the task has ended without a fault, as after an upgrade.
    rest: oneshot::Receiver<Parts<TokioIo<ServerWire>>>,
}

fn request(asking: Asking<'_>) -> Request<UploadBody> {
    let Asking { outgoing, forwarder, body, gate } = asking;
    let mut request = Request::new(body);
    *request.method_mut() = outgoing.parts.method.clone();
    *request.uri_mut() = Uri::from(outgoing.head.target.clone());
    *request.version_mut() = Version::HTTP_11;
    let mut fields = HeaderMap::with_capacity(outgoing.parts.headers.len() + Fields::ADDED);
    forwarder.request(outgoing, &mut Fields::Map(&mut fields));
    *request.headers_mut() = fields;
    if let Some(gate) = gate {
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                gate.open();
            }
        });
    }
    request
}

impl Connection for ByHyper {
    async fn open(stream: TcpStream, limits: &PoolLimits) -> io::Result<Self> {
        let traffic = Rc::new(Traffic::default());
        let wire = ServerWire::new(stream, Rc::clone(&traffic), limits.write_idle);
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits.buffer_bytes_max.max(RESPONSE_HEAD_BYTES_MAX));
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX);
        let (sender, connection) =
            builder.handshake(TokioIo::new(wire)).await.map_err(io::Error::other)?;
        let (ended, rest) = oneshot::channel();
        tokio::task::spawn_local(async move {
            match connection.without_shutdown().await {
                // Nobody waits for it unless there was an upgrade.
                Ok(parts) => drop(ended.send(parts)),
                // What goes wrong here is told to the request; an idle connection's end is no
                // news.
                Err(error) => tracing::trace!(%error, "connection to a server ended"),
            }
        });
        Ok(Self { sender, incoming: None, traffic, mark: (0, 0), rest })
    }

    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    async fn ask(&mut self, asking: Asking<'_>) -> Result<response::Parts, HeadFault> {
        self.mark = (self.traffic.read_bytes.get(), self.traffic.written_bytes.get());
        let offered = asking.outgoing.head.upgrade.as_ref();
        let sent = self.sender.send_request(request(asking)).await;
        let (mut parts, incoming) = match sent {
            Ok(response) => response.into_parts(),
            Err(error) if error.is_parse() => return Err(HeadFault::Malformed),
            Err(error) => return Err(HeadFault::Broken(error.into())),
        };
        parts.headers = forward::response(parts.status, &parts.headers, offered)?;
        self.incoming = Some(incoming);
        Ok(parts)
    }

    async fn into_upgraded(self) -> io::Result<Upgraded> {
        let parts = self.rest.await.map_err(io::Error::other)?;
        Ok(Upgraded { stream: parts.io.into_inner().into_stream(), ahead: parts.read_buf })
    }

    fn moved(&self) -> Moved {
        Moved {
            read: self.traffic.read_bytes.get() > self.mark.0,
            written: self.traffic.written_bytes.get() > self.mark.1,
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(None) };
        loop {
            return match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    Poll::Ready(Some(Ok(data)))
                }
                Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(BodyFault))),
                Poll::Ready(None) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
        }
    }

    fn is_end(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}
