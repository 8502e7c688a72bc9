//! A server's response on its way into the cache and to a client, at the pace of the server.
//!
//! ```text
//! server ──► Carrier ──► Fill          those who wait for the response wait for this
//!               └──────► Pipe ──► client    may be slow, or gone
//! ```
//!
//! The carrier is a future of its own: a client that reads slowly does not keep others waiting, and
//! one that goes away does not take the response with it. What the client has not taken yet is kept
//! for it, no more than the largest response that is stored; of one that is not stored, as much as
//! [`AHEAD_BYTES_MAX`].

use super::flights::Lead;
use super::{Caching, Proof, now};
use crate::core::Core;
use crate::download::{DownloadFault, Flight};
use crate::face::Dispatcher;
use crate::upstream::Connection;
use crate::watchdog::Watchdog;
use bytes::Bytes;
use cache::{Deliver, Fill, Landing};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::time::Instant;

/// Bytes of a response that is not stored which wait for their client: a few reads of a socket.
const AHEAD_BYTES_MAX: usize = 256 * 1024;

#[derive(Debug, Default)]
struct Pipe {
    chunks: VecDeque<Bytes>,
    bytes: usize,
    /// Set once nothing more is put in.
    end: Option<Result<(), DownloadFault>>,
    /// Waits for a chunk, or the end.
    reader: Option<Waker>,
    /// Waits for room.
    writer: Option<Waker>,
    is_read: bool,
}

impl Pipe {
    fn end(&mut self, how: Result<(), DownloadFault>) {
        if self.end.is_none() {
            self.end = Some(how);
        }
        wake(&mut self.reader);
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The client's end. Dropped, the carrier goes on without it, if it has another purpose.
#[derive(Debug)]
pub(crate) struct Carried {
    pipe: Rc<RefCell<Pipe>>,
    /// Bytes that are still to come, where that is known.
    left: Option<u64>,
    /// The end that is a fault was seen, and what came before it could be flushed.
    breaks: bool,
}

impl Carried {
    /// The next piece.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, DownloadFault>>> {
        let mut pipe = self.pipe.borrow_mut();
        if let Some(chunk) = pipe.chunks.pop_front() {
            pipe.bytes -= chunk.len();
            self.left = self.left.map(|left| left.saturating_sub(chunk.len() as u64));
            wake(&mut pipe.writer);
            return Poll::Ready(Some(Ok(chunk)));
        }
        match pipe.end {
            Some(Ok(())) => Poll::Ready(None),
            // hyper flushes when there is nothing more for the moment, and never after a fault.
            Some(Err(_)) if !self.breaks => {
                self.breaks = true;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Err(fault)) => Poll::Ready(Some(Err(fault))),
            None => {
                pipe.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether all of it was taken.
    pub(crate) fn is_end(&self) -> bool {
        let pipe = self.pipe.borrow();
        pipe.chunks.is_empty() && pipe.end == Some(Ok(()))
    }

    /// Bytes that are still to come, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.left
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let mut pipe = self.pipe.borrow_mut();
        pipe.is_read = false;
        (pipe.chunks, pipe.bytes) = (VecDeque::new(), 0);
        wake(&mut pipe.writer);
    }
}

/// Reads a server's response to its end.
pub(crate) struct Carrier<D: Dispatcher> {
    core: Rc<Core<D>>,
    caching: Caching,
    flight: Option<Flight<D>>,
    fill: Option<Box<Fill<Proof>>>,
    lead: Option<Lead>,
    deliver: Deliver,
    pipe: Rc<RefCell<Pipe>>,
    dog: Watchdog,
    since: Option<Instant>,
}

impl<D: Dispatcher> Carrier<D> {
    /// With a lead only where there is a fill.
    pub(crate) fn new(
        core: &Rc<Core<D>>,
        caching: Caching,
        flight: Flight<D>,
        fill: Option<Box<Fill<Proof>>>,
        lead: Option<Lead>,
        deliver: Deliver,
    ) -> (Self, Carried) {
        let left = match &deliver {
            Deliver::Whole => flight.lease.link.size_hint().exact(),
            Deliver::Part(cut) => Some(cut.left_bytes()),
            Deliver::Nothing => Some(0),
        };
        let pipe = Pipe { is_read: true, ..Pipe::default() };
        let pipe = Rc::new(RefCell::new(pipe));
        if deliver == Deliver::Nothing {
            pipe.borrow_mut().end(Ok(()));
        }
        let carried = Carried { pipe: Rc::clone(&pipe), left, breaks: false };
        let carrier = Self {
            core: Rc::clone(core),
            caching,
            flight: Some(flight),
            fill,
            lead,
            deliver,
            pipe,
            dog: Watchdog::default(),
            since: None,
        };
        (carrier, carried)
    }

    /// Takes what is there already, and goes on as a task of its own if that is not all.
    pub(crate) fn start(mut self) {
        let mut nobody = Context::from_waker(Waker::noop());
        // A task is polled with its own waker before it waits for anything.
        if Pin::new(&mut self).poll(&mut nobody).is_pending() {
            tokio::task::spawn_local(self);
        }
    }

    /// The next piece, or that there is none.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, DownloadFault>> {
        let Some(flight) = &mut self.flight else { return Poll::Ready(Ok(None)) };
        match flight.lease.link.poll_data(cx) {
            Poll::Ready(Some(Ok(data))) => {
                self.since = None;
                Poll::Ready(Ok(Some(data)))
            }
            Poll::Ready(None) => Poll::Ready(Ok(None)),
            Poll::Ready(Some(Err(_))) => Poll::Ready(Err(DownloadFault::Broken)),
            Poll::Pending => {
                flight.report();
                let since = *self.since.get_or_insert_with(Instant::now);
                let deadline = since + self.core.options().body_idle();
                self.dog.poll_until(cx, deadline).map(|()| Err(DownloadFault::Stalled))
            }
        }
    }

    /// Whether there is somebody to read for, and room.
    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.fill.is_some() {
            return Poll::Ready(true);
        }
        let mut pipe = self.pipe.borrow_mut();
        if !pipe.is_read || pipe.end.is_some() {
            return Poll::Ready(false);
        }
        if pipe.bytes < AHEAD_BYTES_MAX {
            return Poll::Ready(true);
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn take(&mut self, chunk: &Bytes) {
        if let Some(fill) = &mut self.fill
            && !fill.push(chunk)
        {
            self.store();
        }
        if self.flight.as_ref().is_some_and(|flight| flight.lease.link.is_end()) {
            // Before the client has the last byte, and asks again.
            self.land();
        }
        let mut pipe = self.pipe.borrow_mut();
        let ends = match &mut self.deliver {
            Deliver::Whole => {
                deliver(&mut pipe, chunk.clone());
                false
            }
            Deliver::Part(cut) => {
                deliver(&mut pipe, cut.cut(chunk));
                cut.left_bytes() == 0
            }
            Deliver::Nothing => true,
        };
        if ends || self.flight.is_none() {
            pipe.end(Ok(()));
        }
    }

    /// The response is complete: it is stored, and others find it.
    fn land(&mut self) {
        if let Some(flight) = self.flight.take() {
            flight.land(&self.core);
        }
        self.store();
    }

    /// Ends the fill, and tells those who wait.
    fn store(&mut self) {
        let Some(fill) = self.fill.take() else { return };
        let caching = &self.caching;
        let stored = caching.cached.cache.finish(&caching.rules, *fill, now());
        if let Some(lead) = self.lead.take() {
            lead.land(Landing::of(stored));
        }
    }

    /// The response broke off.
    fn fail(&mut self, fault: DownloadFault) {
        tracing::warn!(%fault, "a response for the cache is cut");
        if let Some(mut flight) = self.flight.take() {
            flight.report();
        }
        self.fill = None;
        if let Some(lead) = self.lead.take() {
            lead.land(Landing::NotStored);
        }
        self.pipe.borrow_mut().end(Err(fault));
    }
}

fn deliver(pipe: &mut Pipe, chunk: Bytes) {
    if pipe.is_read && !chunk.is_empty() {
        pipe.bytes += chunk.len();
        pipe.chunks.push_back(chunk);
        wake(&mut pipe.reader);
    }
}

impl<D: Dispatcher> Unpin for Carrier<D> {}

impl<D: Dispatcher> Future for Carrier<D> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        while this.flight.is_some() {
            match std::task::ready!(this.poll_wanted(cx)) {
                true => {}
                false => {
                    // Nobody wants the rest; the connection closes.
                    this.flight.take().iter_mut().for_each(Flight::report);
                    break;
                }
            }
            match std::task::ready!(this.poll_piece(cx)) {
                Ok(Some(chunk)) => this.take(&chunk),
                Ok(None) => {
                    this.land();
                    this.pipe.borrow_mut().end(Ok(()));
                }
                Err(fault) => this.fail(fault),
            }
        }
        Poll::Ready(())
    }
}
