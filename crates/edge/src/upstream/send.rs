//! A request on its way into a server's socket.
//!
//! Head and first piece of the body leave in one write. Nothing is read from the client before
//! the server's socket has taken what was read before.

use super::Asking;
use crate::forward::Fields;
use crate::head::Framing;
use crate::upload::{UploadBody, UploadFault};
use crate::wire::Stall;
use bytes::{Buf, Bytes};
use http_body::Body;
use std::io::{self, IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;

/// A longer buffer for heads is not kept for the next request.
const KEPT_HEAD_BYTES_MAX: usize = 8 * 1024;

/// Why a request can't be sent completely, and no response is worth waiting for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendFault {
    #[error(transparent)]
    Body(#[from] UploadFault),
    #[error("the server stopped reading: {0}")]
    Stalled(#[source] io::Error),
}

/// What is still to be taken from the client.
enum Rest {
    /// Nothing.
    None,
    Length(UploadBody, u64),
    Chunked(UploadBody),
}

/// The sending half of a connection.
pub(crate) struct Sender {
    socket: OwnedWriteHalf,
    stall: Stall,
    /// To be written first: the head of the request or of a chunk.
    head: Vec<u8>,
    head_sent: usize,
    /// Then a piece of the body.
    piece: Bytes,
    /// Then what ends a chunk.
    tail: &'static [u8],
    rest: Rest,
    /// Something of this request was written.
    pub(crate) has_written: bool,
    /// The server takes no more; it may have answered all the same.
    gone: bool,
}

impl Sender {
    pub(crate) fn new(socket: OwnedWriteHalf, write_idle: Duration) -> Self {
        Self {
            socket,
            stall: Stall::new(write_idle),
            head: Vec::new(),
            head_sent: 0,
            piece: Bytes::new(),
            tail: &[],
            rest: Rest::None,
            has_written: false,
            gone: false,
        }
    }

    /// Puts a request's head down and remembers its body.
    pub(crate) fn begin(&mut self, asking: Asking<'_>) {
        let Asking { outgoing, forwarder, body, .. } = asking;
        if self.head.capacity() > KEPT_HEAD_BYTES_MAX {
            self.head = Vec::new();
        }
        self.clear_head();
        let target = outgoing.head.target.as_str();
        self.head.extend_from_slice(outgoing.parts.method.as_str().as_bytes());
        // An absolute form without a path leaves only its query.
        let slash = if target.starts_with(['/', '*']) { " " } else { " /" };
        self.head.extend_from_slice(slash.as_bytes());
        self.head.extend_from_slice(target.as_bytes());
        self.head.extend_from_slice(b" HTTP/1.1\r\n");
        forwarder.request(outgoing, &mut Fields::Lines(&mut self.head));
        self.head.extend_from_slice(b"\r\n");
        self.rest = match (body, outgoing.head.framing) {
            (UploadBody::Empty, _) => Rest::None,
            (body, Framing::Chunked) => Rest::Chunked(body),
            (body, Framing::Length(bytes)) => Rest::Length(body, bytes),
            (_, Framing::None) => Rest::None,
        };
        self.has_written = false;
    }

    /// The socket, when nothing is left to be sent.
    pub(crate) fn into_socket(self) -> OwnedWriteHalf {
        self.socket
    }

    /// Whether all was written.
    pub(crate) fn is_complete(&self) -> bool {
        !self.gone && matches!(self.rest, Rest::None) && self.is_written()
    }

    /// Whether there is nothing more that could be done.
    pub(crate) fn is_over(&self) -> bool {
        self.gone || self.is_complete()
    }

    fn is_written(&self) -> bool {
        self.head_sent == self.head.len() && self.piece.is_empty() && self.tail.is_empty()
    }

    fn clear_head(&mut self) {
        self.head.clear();
        self.head_sent = 0;
    }

    /// Sends what can be sent. Ready when all is, or when the server takes no more.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFault>> {
        loop {
            if self.is_over() {
                return Poll::Ready(Ok(()));
            }
            let filled = if self.piece.is_empty() && self.tail.is_empty() {
                self.poll_fill(cx)
            } else {
                Poll::Ready(Ok(()))
            };
            if let Poll::Ready(Err(fault)) = filled {
                return Poll::Ready(Err(fault.into()));
            }
            if !self.is_written() {
                ready!(self.poll_write(cx))?;
            } else if filled.is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes the next piece from the client.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadFault>> {
        let body = match &mut self.rest {
            Rest::None => return Poll::Ready(Ok(())),
            Rest::Length(body, _) | Rest::Chunked(body) => body,
        };
        let data = match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(fault)) => return Poll::Ready(Err(fault)),
            None => Bytes::new(),
        };
        // An empty piece is none: `UploadBody` hands out no empty frames.
        let last = data.is_empty() || body.is_end_stream();
        self.load(data, last)?;
        Poll::Ready(Ok(()))
    }

    fn load(&mut self, data: Bytes, last: bool) -> Result<(), UploadFault> {
        let count = data.len();
        if self.head_sent == self.head.len() {
            self.clear_head();
        }
        match &mut self.rest {
            Rest::None => return Ok(()),
            Rest::Length(_, left) => {
                // hyper has counted already.
                *left = left.checked_sub(count as u64).ok_or(UploadFault::Broken)?;
                if last && *left > 0 {
                    return Err(UploadFault::Broken);
                }
            }
            Rest::Chunked(_) => {
                if count > 0 {
                    // A Vec takes everything.
                    let _ = write!(self.head, "{count:x}\r\n");
                }
                self.tail = match (count, last) {
                    (0, _) => b"0\r\n\r\n",
                    (_, true) => b"\r\n0\r\n\r\n",
                    (_, false) => b"\r\n",
                };
            }
        }
        if last {
            self.rest = Rest::None;
        }
        self.piece = data;
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendFault>> {
        let head = &self.head[self.head_sent..];
        let socket = Pin::new(&mut self.socket);
        let written = if self.piece.is_empty() && self.tail.is_empty() {
            socket.poll_write(cx, head)
        } else {
            let parts = [head, &self.piece, self.tail].map(IoSlice::new);
            socket.poll_write_vectored(cx, &parts)
        };
        match ready!(self.stall.check(cx, written)) {
            Ok(0) => self.gone = true,
            Ok(count) => self.wrote(count),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                return Poll::Ready(Err(SendFault::Stalled(error)));
            }
            // What the server said before it closed can still be read.
            Err(_) => self.gone = true,
        }
        Poll::Ready(Ok(()))
    }

    fn wrote(&mut self, count: usize) {
        self.has_written = true;
        let of_head = count.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        let of_piece = (count - of_head).min(self.piece.len());
        self.piece.advance(of_piece);
        let of_tail = (count - of_head - of_piece).min(self.tail.len());
        self.tail = &self.tail[of_tail..];
    }
}
