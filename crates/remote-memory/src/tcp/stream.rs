//! A connected socket with what waits on both sides of it: the same for requester and responder.
//!
//! **This is a hot path**: one `recv` and one `send` for whatever has gathered, no allocation
//! once the buffers have grown to their use.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::channel::Channel;
use super::error::WireError;
use super::record::{RECORD_HEADER_BYTES, first_record};

/// Bytes taken from a socket at once: a whole record of any length, so that one system call is
/// enough for it.
pub(super) const RECEIVE_BYTES: usize = 66 * 1024;
/// Received bytes that may wait for the space of their answers; beyond, the socket is not read.
const RECEIVED_MAX_BYTES: usize = 2 * RECEIVE_BYTES;
/// Space that an idle connection keeps; longer buffers are given back when they empty.
const IDLE_BUFFER_BYTES: usize = 8 * 1024;

/// A peer that says nothing is asked for a sign of life after this time, and given up after three
/// unanswered ones: a machine that vanished does not hold its place for ever.
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEP_ALIVE_TRIES: u32 = 3;
/// Bytes on their way that are not acknowledged for so long break the connection.
const UNACKNOWLEDGED_MAX_MS: u32 = 30_000;

/// How a connection ends.
#[derive(Debug)]
pub(super) enum End {
    /// The other side closed it.
    Closed,
    /// The kernel says why.
    System(io::Error),
    /// The other side made no sense.
    Wire(WireError),
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

/// The socket and its buffers. Nothing here blocks.
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    received: Vec<u8>,
    /// How much of `received` was taken.
    taken: usize,
    /// Records to send.
    pub(super) out: Vec<u8>,
    /// How much of `out` was sent.
    sent: usize,
}

impl Stream {
    /// Takes over a socket: no blocking, no waiting for more bytes before sending.
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
        rustix::net::sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
        rustix::net::sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_EVERY)?;
        rustix::net::sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_TRIES)?;
        rustix::net::sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MAX_MS)?;
        Ok(Self { socket, received: Vec::new(), taken: 0, out: Vec::new(), sent: 0 })
    }

    /// Bytes that wait to be sent.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Whether more bytes may be received.
    pub(super) fn has_room(&self) -> bool {
        self.received.len() - self.taken < RECEIVED_MAX_BYTES
    }

    /// Receives once, by way of `scratch`. Returns how many bytes, or nothing if there are none.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<Option<usize>, End> {
        match self.socket.read(scratch) {
            Ok(0) => Err(End::Closed),
            Ok(length) => {
                self.received.drain(..self.taken);
                self.taken = 0;
                self.received.extend_from_slice(&scratch[..length]);
                Ok(Some(length))
            }
            Err(error) if is_pause(&error) => Ok(None),
            Err(error) => Err(End::System(error)),
        }
    }

    /// What was received and not taken.
    pub(super) fn received(&self) -> &[u8] {
        &self.received[self.taken..]
    }

    /// Takes bytes that were looked at.
    pub(super) fn take(&mut self, length: usize) {
        self.taken += length;
        debug_assert!(self.taken <= self.received.len(), "took more than was received");
        if self.taken == self.received.len() {
            self.taken = 0;
            clear(&mut self.received);
        }
    }

    /// Opens the first record that was received, if it is whole, and returns its length with the
    /// message; [`Stream::take`] the length afterwards.
    pub(super) fn next<'a>(
        &'a self,
        channel: &'a mut Channel,
    ) -> Result<Option<(usize, &'a [u8])>, WireError> {
        let received = self.received();
        let Some(length) = first_record(received)? else { return Ok(None) };
        let end = RECORD_HEADER_BYTES + length;
        let message = channel.open(&received[RECORD_HEADER_BYTES..end])?;
        Ok(Some((end, message)))
    }

    /// Sends as much as the socket takes. True if nothing is left.
    pub(super) fn flush(&mut self) -> Result<bool, End> {
        // Each turn sends at least a byte, or ends.
        while self.sent < self.out.len() {
            match self.socket.write(&self.out[self.sent..]) {
                Ok(0) => return Err(End::Closed),
                Ok(length) => self.sent += length,
                Err(error) if is_pause(&error) => {
                    self.out.drain(..self.sent);
                    self.sent = 0;
                    return Ok(false);
                }
                Err(error) => return Err(End::System(error)),
            }
        }
        self.sent = 0;
        clear(&mut self.out);
        Ok(true)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(IDLE_BUFFER_BYTES);
}
