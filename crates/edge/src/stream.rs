//! What a client's bytes come over: a socket, plain or under TLS.

use bytes::Bytes;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A response of up to so many bytes, head and body, is copied together before it is written: one
/// `send` costs the kernel less than a `writev` of two parts, by more than the copy of a page.
const GATHERED_BYTES_MAX: usize = 4 * 1024;

thread_local! {
    static GATHERED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A client's socket, with bytes that were read to find out what it speaks.
#[derive(Debug)]
pub(crate) struct Socket {
    tcp: TcpStream,
    ahead: Bytes,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream) -> Self {
        Self { tcp, ahead: Bytes::new() }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Reads until `enough` says so of what came, at most `bytes_max`; then all of it can be read
    /// again. An error where the client ends before.
    pub(crate) async fn read_ahead(
        &mut self,
        bytes_max: usize,
        enough: impl Fn(&[u8]) -> bool,
    ) -> io::Result<&[u8]> {
        let mut bytes = Vec::with_capacity(bytes_max);
        while bytes.len() < bytes_max && !enough(&bytes) {
            let left = bytes_max - bytes.len();
            if (&mut *self).take(left as u64).read_buf(&mut bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        // What an earlier call left is behind what this one took.
        let rest = std::mem::take(&mut self.ahead);
        self.ahead = match rest.is_empty() {
            true => bytes.into(),
            false => [&bytes[..], &rest[..]].concat().into(),
        };
        Ok(&self.ahead)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.tcp).poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(count));
        if self.ahead.is_empty() {
            // An empty slice would still keep what it was cut from.
            self.ahead = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length: usize = bytes.iter().map(|part| part.len()).sum();
        if length > GATHERED_BYTES_MAX {
            return Pin::new(&mut self.tcp).poll_write_vectored(cx, bytes);
        }
        GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            bytes.iter().for_each(|part| gathered.extend_from_slice(part));
            Pin::new(&mut self.tcp).poll_write(cx, gathered)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A client's stream.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Plain(Socket),
    Tls(Box<TlsStream<Socket>>),
}

impl ClientStream {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket.tcp(),
            Self::Tls(stream) => stream.get_ref().0.tcp(),
        }
    }

    /// The socket alone, once nothing is to be read or written under TLS any more.
    pub(crate) fn into_tcp(self) -> TcpStream {
        match self {
            Self::Plain(socket) => socket.tcp,
            Self::Tls(stream) => stream.into_inner().0.tcp,
        }
    }
}

macro_rules! either {
    ($stream:expr, $one:ident => $call:expr) => {
        match $stream {
            ClientStream::Plain($one) => $call,
            ClientStream::Tls($one) => $call,
        }
    };
}

impl AsyncRead for ClientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(&mut *self, one => Pin::new(one).poll_read(cx, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self, one => Pin::new(one).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self, one => Pin::new(one).poll_write_vectored(cx, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, one => one.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, one => Pin::new(one).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, one => Pin::new(one).poll_shutdown(cx))
    }
}
