//! A connected socket with what waits on both sides of it: the same for requester and responder.
//!
//! **This is a hot path**: one `recv` and one `send` for whatever has gathered, no allocation
//! once the buffers have grown to their use.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{RecvFlags, SendFlags};

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
    /// How long the kernel lets a receiver sleep, if that was set.
    sleep: Duration,
}

impl Stream {
    /// Takes over a socket: no blocking, no waiting for more bytes before sending.
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, KEEP_ALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&socket, KEEP_ALIVE_EVERY)?;
        sockopt::set_tcp_keepcnt(&socket, KEEP_ALIVE_TRIES)?;
        sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MAX_MS)?;
        Ok(Self {
            socket,
            received: Vec::new(),
            taken: 0,
            out: Vec::new(),
            sent: 0,
            sleep: Duration::ZERO,
        })
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
        self.receive_with(scratch, RecvFlags::DONTWAIT)
    }

    /// Receives once, and sleeps until there is something, about `most` or up to half of it; for
    /// sockets that may block. One system call where asking first would take two.
    pub(super) fn receive_asleep(
        &mut self,
        scratch: &mut [u8],
        most: Duration,
    ) -> Result<Option<usize>, End> {
        if self.sleep > most || self.sleep < most / 2 {
            // Less than asked for, so that the next calls, with less time left, need no change.
            let sleep = most * 3 / 4;
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(sleep))
                .map_err(|errno| End::System(errno.into()))?;
            self.sleep = sleep;
        }
        self.receive_with(scratch, RecvFlags::empty())
    }

    fn receive_with(&mut self, scratch: &mut [u8], flags: RecvFlags) -> Result<Option<usize>, End> {
        match rustix::net::recv(&self.socket, &mut *scratch, flags) {
            Ok((0, _)) => Err(End::Closed),
            Ok((length, _)) => {
                self.received.drain(..self.taken);
                self.taken = 0;
                self.received.extend_from_slice(&scratch[..length]);
                Ok(Some(length))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(errno) => Err(End::System(errno.into())),
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
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &self.out[self.sent..], flags) {
                Ok(0) => return Err(End::Closed),
                Ok(length) => self.sent += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.out.drain(..self.sent);
                    self.sent = 0;
                    return Ok(false);
                }
                Err(errno) => return Err(End::System(errno.into())),
            }
        }
        self.sent = 0;
        clear(&mut self.out);
        Ok(true)
    }
}

fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(IDLE_BUFFER_BYTES);
}
