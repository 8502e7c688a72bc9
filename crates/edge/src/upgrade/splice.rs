//! An upgraded connection: bytes of a protocol that is not ours, passed on in both directions.
//!
//! ```text
//! client ──► server    each end of file is passed on, the other direction goes on
//! client ◄── server    nothing moved for `upgrade_idle_ms`: both are closed
//! ```
//!
//! When it is to end before its peers end it, a WebSocket gets a closing frame (1001) between two
//! frames, each way; everything else just ends. Then what peers still send is read away for a
//! while, so that nobody gets a reset.
//!
//! Fast path: one read and one write for each piece, through a buffer that all upgraded
//! connections of the thread share; only what a peer does not take at once is copied.

use super::frames::{Frames, going_away};
use super::groups::Member;
use crate::hosts::SiteSlot;
use crate::metrics::{Count, Shard};
use crate::watchdog::Watchdog;
use bytes::Bytes;
use pool_model::NodeId;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// How long peers get to end their side of a connection that is closed: a round trip to any
/// client, and the rest of a frame.
pub(crate) const CLOSE_TIME: Duration = Duration::from_secs(1);

/// What is read away at once while a connection closes.
const DISCARD_BYTES: usize = 4 * 1024;

/// The server's half of an upgraded connection, until the client's half is free.
pub(crate) struct Tunnel {
    pub(crate) server: TcpStream,
    /// What the server sent behind its 101.
    pub(crate) ahead: Bytes,
    pub(crate) is_websocket: bool,
    pub(crate) member: Member,
    pub(crate) counts: Counted,
    pub(crate) idle: Duration,
    /// A random word.
    pub(crate) mask: u32,
    /// Its share of `upgraded_max`.
    pub(crate) share: OwnedSemaphorePermit,
}

/// Counts one upgraded connection while it is open.
pub(crate) struct Counted {
    shard: Arc<Shard>,
    site: Option<SiteSlot>,
    node: NodeId,
}

impl Counted {
    pub(crate) fn new(shard: &Arc<Shard>, site: Option<SiteSlot>, node: NodeId) -> Self {
        let shard = Arc::clone(shard);
        shard.site(site).upgraded_open.add(1);
        shard.site(site).upgraded.add(1);
        let counted = Self { shard, site, node };
        counted.of_node(|count| count + 1);
        counted
    }

    fn of_node(&self, change: impl Fn(u64) -> u64) {
        let shard = &self.shard.upgraded_by_node;
        let mut counts = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let count = change(counts.remove(&self.node).unwrap_or(0));
        if count > 0 {
            counts.insert(self.node, count);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shard.site(self.site).upgraded_open.take(1);
        self.of_node(|count| count - 1);
    }
}

/// Why a direction broke.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// Nothing more comes from where it begins.
    #[error("reading failed: {0}")]
    Read(#[source] io::Error),
    /// Where it leads takes no more.
    #[error("writing failed: {0}")]
    Write(#[source] io::Error),
    /// Nothing moved for too long, or did not end in time.
    #[error("it took too long")]
    Late,
}

/// What both directions share.
struct Common<'a> {
    scratch: &'a RefCell<Vec<u8>>,
    moved: Instant,
}

/// One direction.
struct Way<'a> {
    pending: Vec<u8>,
    sent: usize,
    /// Only of a WebSocket.
    frames: Option<Frames>,
    /// The frame that says it ends.
    farewell: Vec<u8>,
    bytes: &'a Count,
    /// It is to end at the next boundary.
    ends: bool,
    /// Nothing more will be read.
    at_end: bool,
    /// The end was passed on.
    is_over: bool,
}

impl<'a> Way<'a> {
    fn new(ahead: &[u8], is_websocket: bool, farewell: Vec<u8>, bytes: &'a Count) -> Self {
        let mut frames = is_websocket.then(Frames::default);
        if let Some(frames) = &mut frames {
            frames.follow(ahead);
        }
        bytes.add(ahead.len() as u64);
        let pending = ahead.to_vec();
        let (ends, at_end, is_over) = (false, false, false);
        Self { pending, sent: 0, frames, farewell, bytes, ends, at_end, is_over }
    }

    /// Ends this direction, at once if it stands between two frames.
    fn end(&mut self) {
        self.ends = true;
        if self.frames.as_ref().is_none_or(Frames::is_between) {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if !self.at_end && self.frames.as_ref().is_some_and(Frames::may_close) {
            self.pending.append(&mut self.farewell);
        }
        self.at_end = true;
    }

    /// Passes on what can be passed on. Ready when the end was.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut impl AsyncRead>,
        mut to: Pin<&mut impl AsyncWrite>,
        common: &mut Common<'_>,
    ) -> Poll<Result<(), Fault>> {
        loop {
            while self.sent < self.pending.len() {
                let written = to.as_mut().poll_write(cx, &self.pending[self.sent..]);
                let count = ready!(written).map_err(Fault::Write)?;
                if count == 0 {
                    let error = io::ErrorKind::WriteZero.into();
                    return Poll::Ready(Err(Fault::Write(error)));
                }
                self.sent += count;
                common.moved = Instant::now();
            }
            if self.sent > 0 {
                (self.pending, self.sent) = (Vec::new(), 0);
            }
            // Under TLS written is not sent.
            ready!(to.as_mut().poll_flush(cx)).map_err(Fault::Write)?;
            if self.at_end {
                if !self.is_over {
                    ready!(to.as_mut().poll_shutdown(cx)).map_err(Fault::Write)?;
                    self.is_over = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut scratch = common.scratch.borrow_mut();
            let mut buffer = ReadBuf::new(&mut scratch);
            ready!(from.as_mut().poll_read(cx, &mut buffer)).map_err(Fault::Read)?;
            common.moved = Instant::now();
            let piece = self.take(buffer.filled());
            let count = match to.as_mut().poll_write(cx, piece) {
                Poll::Ready(count) => count.map_err(Fault::Write)?,
                Poll::Pending => 0,
            };
            self.pending.splice(0..0, piece[count..].iter().copied());
        }
    }

    /// Whatever comes has nowhere to go.
    fn give_up(&mut self) {
        (self.pending, self.sent) = (Vec::new(), 0);
        (self.at_end, self.is_over) = (true, true);
    }

    /// What of a piece is passed on.
    fn take<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let mut count = piece.len();
        if piece.is_empty() {
            self.at_end = true;
        } else if let Some(frames) = &mut self.frames {
            if !self.ends {
                frames.follow(piece);
            } else if let Some(boundary) = frames.follow_to_end(piece) {
                count = boundary;
                self.finish();
            }
        }
        self.bytes.add(count as u64);
        &piece[..count]
    }
}

impl Tunnel {
    /// Passes bytes on until both sides have ended, or something ends it. `early` is what the
    /// client sent before it got the 101.
    pub(crate) async fn run(
        self,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        early: &[u8],
    ) {
        let Self { mut server, ahead, is_websocket, member, counts, idle, mask, share } = self;
        let group = Rc::clone(&member.group);
        let site = counts.shard.site(counts.site);
        let masked = going_away(Some(mask.to_be_bytes()));
        let mut up = Way::new(early, is_websocket, masked, &site.upgraded_bytes_in);
        let mut down = Way::new(&ahead, is_websocket, going_away(None), &site.upgraded_bytes_out);
        let mut common = Common { scratch: member.scratch(), moved: Instant::now() };
        let (mut dog, mut deadline) = (Watchdog::default(), None);
        let mut closes = pin!(group.closes.notified());
        let ended = poll_fn(|cx| {
            let called = closes.as_mut().poll(cx).is_ready() || group.closing.get();
            if called && deadline.is_none() {
                deadline = Some(Instant::now() + CLOSE_TIME);
                up.end();
                down.end();
            }
            // Neither direction waits for the other.
            let mut to_server =
                up.poll(cx, Pin::new(&mut *client), Pin::new(&mut server), &mut common);
            if let Poll::Ready(Err(Fault::Write(_))) = to_server {
                // What the server said before it closed is still to be passed on.
                up.give_up();
                to_server = Poll::Ready(Ok(()));
            }
            let to_client =
                down.poll(cx, Pin::new(&mut server), Pin::new(&mut *client), &mut common);
            match (to_server, to_client) {
                (Poll::Ready(Err(fault)), _) | (_, Poll::Ready(Err(fault))) => {
                    return Poll::Ready(Err(fault));
                }
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Ok(())),
                _ => {}
            }
            let until = deadline.unwrap_or(common.moved + idle);
            dog.poll_until(cx, until).map(|()| Err(Fault::Late))
        })
        .await;
        if let Err(fault) = &ended {
            tracing::debug!(%fault, "an upgraded connection ends");
        }
        // Both have ended by themselves: there is nobody to be spared a reset.
        if ended.is_err() || deadline.is_some() {
            discard(client, &mut server).await;
        }
        drop((counts, share, member));
    }
}

/// Ends both connections and reads away what still comes, so that neither is reset.
async fn discard(client: &mut (impl AsyncRead + AsyncWrite + Unpin), server: &mut TcpStream) {
    let reading = async {
        let _ = tokio::join!(client.shutdown(), server.shutdown());
        let (mut one, mut other) = (vec![0; DISCARD_BYTES], vec![0; DISCARD_BYTES]);
        let (mut client_open, mut server_open) = (true, true);
        while client_open || server_open {
            tokio::select! {
                read = client.read(&mut one), if client_open => {
                    client_open = matches!(read, Ok(1..));
                }
                read = server.read(&mut other), if server_open => {
                    server_open = matches!(read, Ok(1..));
                }
            }
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIME, reading).await;
}
