//! The sockets under hyper: what hyper does not watch is watched here.
//!
//! * [`ClientWire`] knows whether its client is between requests, within a head, or waits for a
//!   response, and closes the connection when that takes too long; after an answer that ends the
//!   connection it reads on for a while, so that the client gets the answer instead of a reset
//!   (RFC 9112, 9.6); after a response that broke off it resets the connection, so that a close
//!   can never be taken for the end of a body.
//! * [`ServerWire`] counts bytes, which tells whether a request may be sent once more.
//!
//! A hit may be answered here, see `fast_path`.
//!
//! Both fail a write that makes no progress for `body_idle_timeout_ms`.
//!
//! Fast path: one clock read for each request, no allocation.

use crate::caller::Caller;
use crate::fast_path::{Answering, Owed, is_one_head};
use crate::options::Options;
use crate::stream::ClientStream;
use crate::upgrade::Tunnel;
use crate::watchdog::Watchdog;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// How long, and for how many bytes, a closed connection's client is still listened to. A second
/// covers a round trip to any client; a mebibyte covers what was under way when it was refused.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;
const LINGER_BUFFER_BYTES: usize = 4 * 1024;

/// What a client gets whose head did not come in time.
const TIMED_OUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Where a client's connection stands.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// A head is being read; it must be complete by then.
    Head(Instant),
    /// The first bytes of a head were read just now.
    Begun,
    /// A request is being served.
    Busy,
    /// A response was handed over to hyper, which has yet to write some of it.
    Ended,
    /// The response is written; the next request may begin until then.
    Idle(Instant),
}

/// What a client's socket and its requests share; with HTTP/2, each request has one of its own.
pub(crate) struct Client {
    pub(crate) caller: Rc<Caller>,
    pub(crate) is_http2: bool,
    phase: Cell<Phase>,
    reset: Cell<bool>,
    header_timeout: Duration,
    keep_alive_idle: Duration,
    body: Cell<BodyState>,
    /// The last request was answered from the cache at once.
    is_hit: Cell<bool>,
    /// What the connection becomes when the response with status 101 is written.
    pub(crate) tunnel: Cell<Option<Box<Tunnel>>>,
    /// For the one request that the connection serves at a time.
    pub(crate) dog: RefCell<Watchdog>,
}

/// Whom the response's body waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyState {
    /// There is no response yet.
    None,
    /// The client: hyper asks for more once it has room.
    Client {
        /// Some was handed over in the poll that runs, or ran last.
        moved: bool,
    },
    /// The server, or nobody.
    Server,
    /// All of it has come, or will never come.
    Over,
}

impl Client {
    pub(crate) fn new(caller: Rc<Caller>, options: &Options) -> Self {
        let until = Instant::now() + options.header_timeout();
        Self::with_phase(caller, options, false, Phase::Head(until))
    }

    /// For HTTP/2, where the socket's time is not that of one request: `http2` looks after it.
    pub(crate) fn of_streams(caller: Rc<Caller>, options: &Options) -> Self {
        Self::with_phase(caller, options, true, Phase::Busy)
    }

    fn with_phase(caller: Rc<Caller>, options: &Options, is_http2: bool, phase: Phase) -> Self {
        Self {
            caller,
            is_http2,
            phase: Cell::new(phase),
            reset: Cell::new(false),
            header_timeout: options.header_timeout(),
            keep_alive_idle: Duration::from_millis(options.keep_alive_idle_ms),
            body: Cell::new(BodyState::None),
            is_hit: Cell::new(false),
            tunnel: Cell::new(None),
            dog: RefCell::default(),
        }
    }

    pub(crate) fn body(&self) -> BodyState {
        self.body.get()
    }

    pub(crate) fn set_body(&self, state: BodyState) {
        self.body.set(state);
    }

    /// A request head is complete.
    pub(crate) fn request_begins(&self) {
        self.phase.set(Phase::Busy);
        self.is_hit.set(false);
    }

    /// The request is answered from the cache at once: so may be the next one.
    pub(crate) fn set_hit(&self) {
        self.is_hit.set(true);
    }

    /// The response is complete, or given up.
    pub(crate) fn request_ends(&self) {
        self.phase.set(Phase::Ended);
    }

    /// A response broke off: the connection must not end as if it were complete.
    pub(crate) fn break_off(&self) {
        self.reset.set(true);
    }

    /// Since when the connection waits for its next request; none while it does not.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        match self.phase.get() {
            Phase::Idle(until) => until.checked_sub(self.keep_alive_idle),
            _ => None,
        }
    }

    fn deadline(&self, flushed: bool) -> Option<Instant> {
        let phase = match self.phase.get() {
            Phase::Busy => return None,
            // Should the last bytes never be read, the write fails by its own limit.
            Phase::Ended if !flushed => return None,
            Phase::Begun => Phase::Head(Instant::now() + self.header_timeout),
            Phase::Ended => Phase::Idle(Instant::now() + self.keep_alive_idle),
            waiting => waiting,
        };
        self.phase.set(phase);
        match phase {
            Phase::Head(until) | Phase::Idle(until) => Some(until),
            _ => None,
        }
    }
}

/// Fails a write that makes no progress.
pub(crate) struct Stall {
    limit: Duration,
    since: Option<Instant>,
    dog: Watchdog,
}

impl Stall {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, since: None, dog: Watchdog::default() }
    }

    /// Passes a write's outcome on, or fails it with `TimedOut`.
    pub(crate) fn check(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        self.dog
            .poll_until(cx, since + self.limit)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped reading")))
    }
}

/// A client's socket.
pub(crate) struct ClientWire {
    /// Taken only by `drop`.
    stream: Option<ClientStream>,
    /// What was read of the next request before the connection was parked.
    ahead: Bytes,
    client: Rc<Client>,
    dog: Watchdog,
    stall: Stall,
    /// Hits may be answered by it before hyper reads them.
    answering: Option<Rc<dyn Answering>>,
    /// hyper has been given whole requests, and no byte behind them.
    at_boundary: bool,
    /// What is yet to be written of such an answer: nothing is read before.
    owed: Option<Box<Owed>>,
    /// The client has closed, or the socket failed: nobody is there to linger for.
    gone: bool,
    /// The connection's share of `connections_max`.
    share: Option<OwnedSemaphorePermit>,
}

impl ClientWire {
    pub(crate) fn new(
        stream: ClientStream,
        client: Rc<Client>,
        write_idle: Duration,
        share: OwnedSemaphorePermit,
    ) -> Self {
        let stall = Stall::new(write_idle);
        let (dog, share) = (Watchdog::default(), Some(share));
        let (stream, ahead, answering, owed) = (Some(stream), Bytes::new(), None, None);
        let (at_boundary, gone) = (true, false);
        Self { stream, ahead, client, dog, stall, answering, at_boundary, owed, gone, share }
    }

    /// Has hits answered before hyper reads them, where that can be.
    pub(crate) fn answer_by(&mut self, answering: Rc<dyn Answering>) {
        self.answering = Some(answering);
    }

    /// Has these bytes read once more.
    pub(crate) fn unread(&mut self, bytes: Bytes) {
        self.at_boundary = bytes.is_empty();
        self.ahead = bytes;
    }

    /// On a connection that is parked: ready with whether its client has sent something, or with
    /// false once it has waited too long.
    pub(crate) fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let tcp = self.stream.as_ref().expect(TAKEN).tcp();
        if !self.ahead.is_empty() || tcp.poll_read_ready(cx).is_ready() {
            return Poll::Ready(true);
        }
        let Some(deadline) = self.client.deadline(true) else { return Poll::Ready(true) };
        self.dog.poll_until(cx, deadline).map(|()| false)
    }

    /// Another protocol follows: it has no heads whose time is watched, and its own limit on a
    /// client that does not read.
    pub(crate) fn upgrade(&mut self, write_idle: Duration) {
        self.client.request_begins();
        self.stall = Stall::new(write_idle);
    }

    fn time_out(&mut self, cx: &mut Context<'_>) -> io::Error {
        // This phase follows a flush, so that these bytes can't get into an earlier response. A
        // full socket loses only the courtesy.
        if let (Phase::Head(_), Some(stream)) = (self.client.phase.get(), &mut self.stream) {
            let _ = Pin::new(&mut *stream).poll_write(cx, TIMED_OUT);
            let _ = Pin::new(stream).poll_flush(cx);
        }
        io::Error::new(io::ErrorKind::TimedOut, "no request in time")
    }
}

/// The stream is taken out only by `drop`.
const TAKEN: &str = "the stream is there until the wire is dropped";

impl AsyncRead for ClientWire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        loop {
            ready!(this.poll_owed(cx))?;
            let read = if this.ahead.is_empty() {
                Pin::new(this.stream.as_mut().expect(TAKEN)).poll_read(cx, buffer)
            } else {
                let count = this.ahead.len().min(buffer.remaining());
                buffer.put_slice(&this.ahead.split_to(count));
                Poll::Ready(Ok(()))
            };
            return match read {
                Poll::Ready(Ok(())) if buffer.filled().len() > before => {
                    if this.answer(cx, &buffer.filled()[before..])? {
                        buffer.set_filled(before);
                        continue;
                    }
                    if let Phase::Idle(_) = this.client.phase.get() {
                        this.client.phase.set(Phase::Begun);
                    }
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(result) => {
                    this.gone = true;
                    Poll::Ready(result)
                }
                Poll::Pending => {
                    let Some(deadline) = this.client.deadline(false) else { return Poll::Pending };
                    this.dog.poll_until(cx, deadline).map(|()| Err(this.time_out(cx)))
                }
            };
        }
    }
}

impl ClientWire {
    /// Answers what was just read, if it is a hit and hyper knows nothing of it.
    fn answer(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<bool> {
        let Some(answering) = self.answering.clone().filter(|_| self.at_boundary) else {
            return Ok(false);
        };
        if let Phase::Busy | Phase::Begun = self.client.phase.get() {
            self.at_boundary = false;
            return Ok(false);
        }
        if self.client.is_hit.get() {
            let mut sent = Ok(());
            let mut send = |head: &[u8], body: &Bytes| sent = self.send(cx, head, body);
            if answering.answer(bytes, &mut send) {
                return sent.map(|()| true);
            }
        }
        self.at_boundary = answering.is_on() && is_one_head(bytes);
        Ok(false)
    }

    /// Writes an answer, as far as the socket takes it.
    fn send(&mut self, cx: &mut Context<'_>, head: &[u8], body: &Bytes) -> io::Result<()> {
        let parts = [IoSlice::new(head), IoSlice::new(body)];
        let stream = Pin::new(self.stream.as_mut().expect(TAKEN));
        let written = stream.poll_write_vectored(cx, &parts);
        let taken = match self.wrote(cx, written) {
            Poll::Ready(taken) => taken?,
            Poll::Pending => 0,
        };
        if taken < head.len() + body.len() {
            self.owed = Some(Box::new(Owed::rest(head, body, taken)));
        }
        Ok(())
    }

    /// Ready when nothing is left to write of an answer.
    fn poll_owed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(mut owed) = self.owed.take() {
            let stream = Pin::new(self.stream.as_mut().expect(TAKEN));
            let written = stream.poll_write_vectored(cx, &owed.slices());
            let written = self.wrote(cx, written);
            if let Poll::Ready(Ok(taken)) = written {
                owed.advance(taken);
            }
            self.owed = (!owed.is_empty()).then_some(owed);
            if ready!(written)? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // The end of a long response may still be on its way: the idle time starts after it.
        if let Phase::Idle(_) = self.client.phase.get() {
            self.client.phase.set(Phase::Ended);
        }
        let written = self.stall.check(cx, written);
        self.gone |= matches!(written, Poll::Ready(Err(_)));
        written
    }
}

impl AsyncWrite for ClientWire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.as_mut().expect(TAKEN)).poll_write(cx, bytes);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(self.stream.as_mut().expect(TAKEN)).poll_write_vectored(cx, bytes);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().expect(TAKEN).is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Under TLS, bytes may be encrypted and not yet written.
        let flushed = Pin::new(self.stream.as_mut().expect(TAKEN)).poll_flush(cx);
        let checked = self.stall.check(cx, flushed.map_ok(|()| 0));
        self.gone |= matches!(checked, Poll::Ready(Err(_)));
        ready!(checked)?;
        // hyper flushes here only when it has nothing left to write. After a response it does not
        // read again if the last read found nothing: without this nobody would wake it when the
        // idle time is over.
        if let Phase::Ended = self.client.phase.get()
            && self.owed.is_none()
            && let Some(deadline) = self.client.deadline(true)
        {
            let _ = self.dog.poll_until(cx, deadline);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_owed(cx))?;
        Pin::new(self.stream.as_mut().expect(TAKEN)).poll_shutdown(cx)
    }
}

impl Drop for ClientWire {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        if self.client.reset.get() {
            // Without it a close-delimited body would look complete. It fails only where the
            // socket is gone anyway.
            let _ = socket2::SockRef::from(stream.tcp()).set_linger(Some(Duration::ZERO));
        } else if !self.gone
            && let Some(share) = self.share.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tokio::task::spawn_local(linger(stream, share));
        }
    }
}

/// Says that no more will come, then reads what the client still sends.
async fn linger(mut stream: ClientStream, share: OwnedSemaphorePermit) {
    let lingering = async {
        let _ = stream.shutdown().await;
        let mut tcp = stream.into_tcp();
        let mut buffer = [0_u8; LINGER_BUFFER_BYTES];
        let mut total = 0;
        while total < LINGER_BYTES_MAX {
            match tcp.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => total += count,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME, lingering).await;
    drop(share);
}

/// Bytes that went over a connection to a server.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) read_bytes: Cell<u64>,
    pub(crate) written_bytes: Cell<u64>,
}

/// A server's socket under hyper's client.
pub(crate) struct ServerWire {
    stream: TcpStream,
    traffic: Rc<Traffic>,
    stall: Stall,
}

impl ServerWire {
    pub(crate) fn new(stream: TcpStream, traffic: Rc<Traffic>, write_idle: Duration) -> Self {
        Self { stream, traffic, stall: Stall::new(write_idle) }
    }

    fn wrote(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = written {
            self.traffic.written_bytes.update(|sum| sum + count as u64);
        }
        self.stall.check(cx, written)
    }
}

impl ServerWire {
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }
}

impl AsyncRead for ServerWire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let count = buffer.filled().len() - before;
        self.traffic.read_bytes.update(|sum| sum + count as u64);
        read
    }
}

impl AsyncWrite for ServerWire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
