//! A request's body on its way to a server.
//!
//! The body streams: a frame is read from the client when the server's connection asks for one.
//! As long as no response has begun, and the body is small, its frames are also kept, so that
//! another attempt can send them again. `Expect: 100-continue` holds the body back until the
//! server's own 100 arrives; hyper sends the client its 100 when the first frame is asked for.
//!
//! Trailers are dropped: nothing behind a reverse proxy may rely on them (RFC 9110, 6.5.1).

use crate::watchdog::Watchdog;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Most frames kept for a second attempt: a body cut into tiny chunks must not cost more memory
/// for its frames than for its bytes.
const KEPT_FRAMES_MAX: usize = 64;

/// The longest body that is read away to keep a refused request's connection: about what is
/// under way already when the refusal is decided.
const DRAINED_BYTES_MAX: u64 = 64 * 1024;

/// Why a body can't be sent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UploadFault {
    /// Longer than the site allows.
    #[error("the request body is too large")]
    TooLarge,
    /// The client sent nothing for too long.
    #[error("the request body stopped")]
    Stalled,
    /// The client went away, or its chunks are malformed.
    #[error("the request body is broken")]
    Broken,
    /// Nobody wants the rest: a newer attempt runs, or the response is complete.
    #[error("the request body is not wanted any more")]
    Unwanted,
}

/// Limits of one body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadLimits {
    pub(crate) body_bytes_max: u64,
    pub(crate) keep_bytes_max: usize,
    pub(crate) idle: Duration,
    pub(crate) expect_wait: Duration,
    /// HTTP/2 says where the body ends, whatever stands in it.
    pub(crate) framed: bool,
}

/// Opens when the server says 100 (hyper's callback must be `Send`).
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.open.store(true, Ordering::Release);
        if let Some(waker) = self.lock().take() {
            waker.wake();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct State {
    incoming: Incoming,
    limits: UploadLimits,
    /// Frames already read; none where the body is too long to keep.
    kept: Option<Vec<Bytes>>,
    kept_bytes: usize,
    total_bytes: u64,
    /// The client has sent everything.
    complete: bool,
    has_trailers: bool,
    fault: Option<UploadFault>,
    /// The attempt whose body may read on.
    attempt: u32,
    /// The first kept frame that this attempt has not sent.
    next: usize,
    waker: Option<Waker>,
    gate: Option<(Arc<Gate>, Option<Instant>)>,
    waits_since: Option<Instant>,
    dog: Watchdog,
}

/// The body of one request, over all attempts to send it.
pub(crate) struct Upload {
    state: RefCell<State>,
    exact_bytes: Option<u64>,
    /// When a frame was last handed on.
    progress: Cell<Option<Instant>>,
    passed_bytes: Cell<u64>,
}

impl Upload {
    pub(crate) fn new(incoming: Incoming, limits: UploadLimits, exact_bytes: Option<u64>) -> Self {
        let keep = exact_bytes.is_none_or(|bytes| bytes <= limits.keep_bytes_max as u64);
        let state = State {
            incoming,
            limits,
            kept: keep.then(Vec::new),
            kept_bytes: 0,
            total_bytes: 0,
            complete: false,
            has_trailers: false,
            fault: None,
            attempt: 0,
            next: 0,
            waker: None,
            gate: None,
            waits_since: None,
            dog: Watchdog::default(),
        };
        Self {
            state: RefCell::new(state),
            exact_bytes,
            progress: Cell::new(None),
            passed_bytes: Cell::new(0),
        }
    }

    /// The body for one more attempt; that of an earlier one fails from now on.
    pub(crate) fn attempt(self: &Rc<Self>, gate: Option<Arc<Gate>>) -> UploadBody {
        let mut state = self.state.borrow_mut();
        state.attempt += 1;
        state.next = 0;
        state.gate = gate.map(|gate| (gate, None));
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        UploadBody::Stream { upload: Rc::clone(self), attempt: state.attempt }
    }

    /// Whether all that was read of the body, if anything, can be sent once more.
    pub(crate) fn is_replayable(&self) -> bool {
        let state = self.state.borrow();
        state.kept.is_some() || state.total_bytes == 0
    }

    /// A response has begun: the body will not be sent again.
    pub(crate) fn forget_kept(&self) {
        let mut state = self.state.borrow_mut();
        // A frame that the running attempt has yet to send must stay.
        if state.all_kept_sent() {
            state.kept = None;
        }
    }

    pub(crate) fn fault(&self) -> Option<UploadFault> {
        self.state.borrow().fault
    }

    /// Whether the connection should end with this request, see `State::end_with`.
    pub(crate) fn has_trailers(&self) -> bool {
        self.state.borrow().has_trailers
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state.borrow().complete
    }

    /// Reads the rest of a small body away, so that the connection can serve another request.
    /// Ready with whether that worked.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.borrow_mut();
        if self.exact_bytes.is_none_or(|bytes| bytes > DRAINED_BYTES_MAX) || state.fault.is_some() {
            return Poll::Ready(state.complete);
        }
        loop {
            if state.complete {
                return Poll::Ready(true);
            }
            match ready!(state.poll_client(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) => return Poll::Ready(false),
                None => return Poll::Ready(true),
            }
        }
    }

    /// What is still to be sent is not wanted: the running attempt fails.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.borrow_mut();
        state.attempt += 1;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub(crate) fn progress(&self) -> Option<Instant> {
        self.progress.get()
    }

    /// Bytes handed on so far, repetitions included.
    pub(crate) fn passed_bytes(&self) -> u64 {
        self.passed_bytes.get()
    }
}

impl State {
    fn all_kept_sent(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| self.next >= kept.len())
    }

    /// Whether the body is still held back for the server's 100.
    fn poll_gate(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((gate, until)) = &mut self.gate else { return Poll::Ready(()) };
        *gate.lock() = Some(cx.waker().clone());
        if !gate.open.load(Ordering::Acquire) {
            let wait = self.limits.expect_wait;
            let until = *until.get_or_insert_with(|| Instant::now() + wait);
            ready!(self.dog.poll_until(cx, until));
        }
        self.gate = None;
        Poll::Ready(())
    }

    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, UploadFault>>> {
        loop {
            match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.waits_since = None;
                    let data = match frame.into_data() {
                        Ok(data) => data,
                        Err(other) => match self.end_with(&other) {
                            Ok(()) => continue,
                            Err(fault) => return Poll::Ready(Some(Err(fault))),
                        },
                    };
                    if !data.is_empty() {
                        return Poll::Ready(Some(self.take(data)));
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    return Poll::Ready(Some(Err(UploadFault::Broken)));
                }
                Poll::Ready(None) => {
                    self.complete = true;
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let since = *self.waits_since.get_or_insert_with(Instant::now);
                    ready!(self.dog.poll_until(cx, since + self.limits.idle));
                    return Poll::Ready(Some(Err(UploadFault::Stalled)));
                }
            }
        }
    }

    /// hyper stops reading trailers at an empty line ended by a bare LF, but skips all up to the
    /// next real one. What it skipped may be a request to somebody else: a section without a
    /// field is refused, and no request follows one with fields.
    fn end_with(&mut self, frame: &Frame<Bytes>) -> Result<(), UploadFault> {
        if self.limits.framed {
            return Ok(());
        }
        self.has_trailers = true;
        match frame.trailers_ref() {
            Some(fields) if fields.is_empty() => Err(UploadFault::Broken),
            _ => Ok(()),
        }
    }

    fn take(&mut self, data: Bytes) -> Result<Bytes, UploadFault> {
        self.total_bytes += data.len() as u64;
        if self.total_bytes > self.limits.body_bytes_max {
            return Err(UploadFault::TooLarge);
        }
        self.kept_bytes += data.len();
        if let Some(kept) = &mut self.kept {
            if self.kept_bytes <= self.limits.keep_bytes_max && kept.len() < KEPT_FRAMES_MAX {
                kept.push(data.clone());
            } else {
                self.kept = None;
            }
        }
        self.complete = self.incoming.is_end_stream();
        Ok(data)
    }
}

/// The body of one attempt, as hyper's client takes it.
pub(crate) enum UploadBody {
    /// No body.
    Empty,
    /// The client's body.
    Stream { upload: Rc<Upload>, attempt: u32 },
}

impl Body for UploadBody {
    type Data = Bytes;
    type Error = UploadFault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadFault>>> {
        let Self::Stream { upload, attempt } = &*self else { return Poll::Ready(None) };
        let mut state = upload.state.borrow_mut();
        if state.attempt != *attempt {
            return Poll::Ready(Some(Err(UploadFault::Unwanted)));
        }
        if let Some(fault) = state.fault {
            return Poll::Ready(Some(Err(fault)));
        }
        state.waker = Some(cx.waker().clone());
        ready!(state.poll_gate(cx));
        let kept = state.kept.as_ref().and_then(|kept| kept.get(state.next)).cloned();
        let data = match kept {
            Some(data) => data,
            None if state.complete => return Poll::Ready(None),
            None => match ready!(state.poll_client(cx)) {
                Some(Ok(data)) => data,
                Some(Err(fault)) => {
                    state.fault = Some(fault);
                    return Poll::Ready(Some(Err(fault)));
                }
                None => return Poll::Ready(None),
            },
        };
        state.next += 1;
        upload.progress.set(Some(Instant::now()));
        upload.passed_bytes.update(|sum| sum + data.len() as u64);
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        let Self::Stream { upload, attempt } = self else { return true };
        let state = upload.state.borrow();
        state.attempt == *attempt && state.complete && state.all_kept_sent()
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Stream { upload, .. } => {
                upload.exact_bytes.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
