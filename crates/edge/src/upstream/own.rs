//! The sibling of our own: the request's task writes and reads the server's socket itself.
//!
//! ```text
//! ask:        write head and body as far as the socket takes them, until a head has come
//! poll_data:  hand on what the head brought with it, then what the socket brings
//! the end:    a connection on which nothing is left, in either direction, can be used again
//! ```
//!
//! Fast path: two system calls for a small exchange (one write, one read), one buffer from which
//! head and body are cut without a copy; no task, channel or box for each request. Forbidden
//! there: locks, and system calls to look at an idle connection (tokio knows whether something
//! came).
//!
//! Only where a response begins before its request has ended, a task sends the rest: the client
//! may read nothing of the response before it has sent everything.

use super::body::Decoder;
use super::chunks::Piece;
use super::head::{HeadParser, Step};
use super::send::{SendFault, Sender};
use super::{Asking, BodyFault, Connection, HeadFault, Moved, PoolLimits, Upgraded};
use crate::upload::Gate;
use bytes::{Bytes, BytesMut};
use http::response::Parts;
use http::{HeaderValue, Method, StatusCode};
use http_body::SizeHint;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::JoinHandle;

/// The first read of a connection takes so much: a head and a small page.
const READ_BYTES_MIN: usize = 8 * 1024;

/// A buffer with less room than this part of a read is renewed before it.
const ROOM_PART: usize = 4;

/// Interim responses to one request. A few hints are usual; a stream of them is a fault.
const INTERIM_MAX: usize = 100;

/// A connection whose socket is read and written by the requests themselves.
pub(crate) struct Own {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    /// Bytes that the next read may take: it grows while the socket has that many.
    read_bytes: usize,
    read_bytes_max: usize,
    /// None while a pump has it.
    sender: Option<Sender>,
    pump: Option<Pump>,
    parser: HeadParser,
    decoder: Decoder,
    interims: usize,
    has_read: bool,
    keep_alive: bool,
    /// The response is about to be given up.
    breaks: bool,
}

/// What the response is awaited for.
struct Awaits<'a> {
    /// A HEAD.
    bodiless: bool,
    /// Opened by a 100.
    gate: Option<Arc<Gate>>,
    /// Protocols that may be switched to.
    offered: Option<&'a HeaderValue>,
}

impl Own {
    /// Reads once; how many bytes came, 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < self.read_bytes / ROOM_PART {
            self.buffer.reserve(self.read_bytes);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let count = ready!(pin!(self.socket.read_buf(&mut self.buffer)).poll(cx))?;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(self.read_bytes_max);
        }
        self.has_read |= count > 0;
        Poll::Ready(Ok(count))
    }

    fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        awaits: &Awaits<'_>,
    ) -> Poll<Result<Parts, HeadFault>> {
        let sent = self.poll_send(cx);
        loop {
            if let Some(parts) = self.take_head(awaits)? {
                return Poll::Ready(Ok(parts));
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) => {
                    let end = io::Error::from(io::ErrorKind::UnexpectedEof);
                    return Poll::Ready(Err(HeadFault::Broken(end.into())));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => {
                    return Poll::Ready(Err(HeadFault::Broken(error.into())));
                }
                Poll::Pending => break,
            }
        }
        match sent {
            Poll::Ready(Err(fault)) => Poll::Ready(Err(HeadFault::Broken(fault.into()))),
            _ => Poll::Pending,
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFault>> {
        match &mut self.sender {
            Some(sender) => sender.poll_send(cx),
            None => Poll::Pending,
        }
    }

    /// The head, once it is complete.
    fn take_head(&mut self, awaits: &Awaits<'_>) -> Result<Option<Parts>, HeadFault> {
        loop {
            match self.parser.next(&mut self.buffer, awaits.bodiless, awaits.offered)? {
                Step::More => return Ok(None),
                Step::Interim(status) => {
                    self.interims += 1;
                    if self.interims > INTERIM_MAX {
                        return Err(HeadFault::Malformed);
                    }
                    if let (StatusCode::CONTINUE, Some(gate)) = (status, &awaits.gate) {
                        gate.open();
                    }
                }
                Step::Final(answer) => {
                    self.decoder = answer.decoder;
                    self.keep_alive = answer.keep_alive;
                    return Ok(Some(answer.parts));
                }
            }
        }
    }

    /// After a large response: an idle connection must not keep its buffer, and the next response
    /// need not be large.
    fn shrink(&mut self) {
        if self.read_bytes > READ_BYTES_MIN && self.buffer.is_empty() {
            (self.buffer, self.read_bytes) = (BytesMut::new(), READ_BYTES_MIN);
        }
    }

    /// Ends a response that broke off, but not before what came of it could be flushed: hyper
    /// flushes when the body has nothing more for the moment, and never after a fault.
    fn poll_break(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        self.breaks = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Looks after what is still to be sent while the response comes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Result<(), BodyFault> {
        if let Some(pump) = &self.pump {
            match pump.poll(cx) {
                Poll::Pending => {}
                Poll::Ready(sender) => {
                    self.pump = None;
                    self.sender = Some(sender.ok_or(BodyFault)?);
                }
            }
        } else if let Some(sender) = self.sender.take_if(|sender| !sender.is_over()) {
            self.pump = Some(Pump::start(sender));
        }
        Ok(())
    }
}

impl Connection for Own {
    async fn open(stream: TcpStream, limits: &PoolLimits) -> io::Result<Self> {
        let (socket, sending) = stream.into_split();
        Ok(Self {
            socket,
            buffer: BytesMut::new(),
            read_bytes: READ_BYTES_MIN,
            read_bytes_max: limits.buffer_bytes_max,
            sender: Some(Sender::new(sending, limits.write_idle)),
            pump: None,
            parser: HeadParser::default(),
            decoder: Decoder::End,
            interims: 0,
            has_read: false,
            keep_alive: true,
            breaks: false,
        })
    }

    fn is_open(&self) -> bool {
        let silent = || {
            let read = self.socket.try_read(&mut [0]);
            matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        };
        self.keep_alive
            && self.decoder.is_end()
            && self.buffer.is_empty()
            && self.sender.as_ref().is_some_and(Sender::is_complete)
            && silent()
    }

    fn is_ready(&self) -> bool {
        self.is_open()
    }

    async fn ask(&mut self, asking: Asking<'_>) -> Result<Parts, HeadFault> {
        let outgoing = asking.outgoing;
        let awaits = Awaits {
            bodiless: outgoing.parts.method == Method::HEAD,
            gate: asking.gate.clone(),
            offered: outgoing.head.upgrade.as_ref(),
        };
        (self.interims, self.has_read, self.keep_alive) = (0, false, false);
        if let Some(sender) = &mut self.sender {
            sender.begin(asking);
        }
        poll_fn(|cx| self.poll_head(cx, &awaits)).await
    }

    async fn into_upgraded(self) -> io::Result<Upgraded> {
        let Some(sender) = self.sender else {
            return Err(io::Error::other("the request is still being sent"));
        };
        let stream = self.socket.reunite(sender.into_socket()).map_err(io::Error::other)?;
        Ok(Upgraded { stream, ahead: self.buffer.freeze() })
    }

    fn moved(&self) -> Moved {
        let written = self.sender.as_ref().is_none_or(|sender| sender.has_written);
        Moved { read: self.has_read, written }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        if self.breaks {
            return Poll::Ready(Some(Err(BodyFault)));
        }
        if self.pump.is_some() {
            self.poll_rest(cx)?;
        }
        loop {
            match self.decoder.next(&mut self.buffer) {
                Ok(Piece::Data(data)) => {
                    if self.decoder.is_end() {
                        self.shrink();
                    } else {
                        self.poll_rest(cx)?;
                    }
                    return Poll::Ready(Some(Ok(data)));
                }
                Ok(Piece::End) => {
                    self.shrink();
                    return Poll::Ready(None);
                }
                Ok(Piece::More) => {}
                Err(_) => return self.poll_break(cx),
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(0)) if self.decoder.finish() => return Poll::Ready(None),
                Poll::Ready(Ok(0) | Err(_)) => return self.poll_break(cx),
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => {
                    self.poll_rest(cx)?;
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end(&self) -> bool {
        self.decoder.is_end()
    }

    fn size_hint(&self) -> SizeHint {
        match self.decoder {
            Decoder::End => SizeHint::with_exact(0),
            Decoder::Length(bytes) => SizeHint::with_exact(bytes),
            Decoder::Chunked(_) | Decoder::Close => SizeHint::default(),
        }
    }
}

/// A task that sends the rest of a request while its response comes.
struct Pump {
    task: JoinHandle<()>,
    shared: Rc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// How it ended: with all sent, or not.
    outcome: Cell<Option<Result<Sender, SendFault>>>,
    reader: Cell<Option<Waker>>,
}

impl Pump {
    fn start(mut sender: Sender) -> Self {
        let shared = Rc::new(Shared::default());
        let ours = Rc::clone(&shared);
        let task = tokio::task::spawn_local(async move {
            let sent = poll_fn(|cx| sender.poll_send(cx)).await;
            ours.outcome.set(Some(sent.map(|()| sender)));
            if let Some(reader) = ours.reader.take() {
                reader.wake();
            }
        });
        Self { task, shared }
    }

    /// Ready with the sender when it has sent all, with none when it failed.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Sender>> {
        match self.shared.outcome.take() {
            Some(Ok(sender)) => Poll::Ready(Some(sender)),
            Some(Err(fault)) => {
                tracing::debug!(%fault, "a request broke off after its response began");
                Poll::Ready(None)
            }
            None => {
                self.shared.reader.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.task.abort();
    }
}
