//! A client's HTTP/2 connection, by hyper's server: each stream is a request of its own.
//!
//! What hyper does not watch is watched here:
//!
//! * a connection without streams ends after `keep_alive_idle_ms`, whatever else its client sends,
//!   by GOAWAY first;
//! * a client that takes nothing of a response for `body_idle_timeout_ms` loses that stream: a
//!   window that stays shut must not hold a server's connection for ever;
//! * a client that gives up its requests far more often than it takes answers (rapid reset,
//!   CVE-2023-44487) loses the connection: what it gave up may have cost a server something.
//!
//! hyper's h2 bounds the rest: streams at once, windows, the size of heads and of their frames,
//! small DATA frames, streams that are reset before they are taken, answers to PING and SETTINGS.
//!
//! hyper hands a request to the service and the stream's future to the executor right after it, in
//! one call: so the executor knows the request whose future it gets.

use crate::caller::Caller;
use crate::face::Dispatcher;
use crate::live::Live;
use crate::options::Options;
use crate::serve::serve;
use crate::stream::ClientStream;
use crate::watchdog::Watchdog;
use crate::wire::{BodyState, Client, ClientWire};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// What h2 may buffer of one response beyond its client's window.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// Streams that are reset before they are looked at: h2's own default, named here because the
/// bound on rapid resets rests on it.
const PENDING_RESETS_MAX: usize = 20;

/// The streams of one connection.
struct Streams {
    open: Cell<usize>,
    /// Since when there is none.
    idle_since: Cell<Instant>,
    /// Requests given up by the client, less those answered since; never below 0.
    given_up: Cell<u32>,
    given_up_max: u32,
    /// The request whose future the executor is about to get.
    latest: Cell<Option<Rc<Client>>>,
    /// The connection's task.
    connection: RefCell<Option<Waker>>,
    stall_max: Duration,
}

impl Streams {
    fn is_abused(&self) -> bool {
        self.given_up.get() > self.given_up_max
    }
}

/// One stream, counted.
struct Stream {
    streams: Rc<Streams>,
    client: Rc<Client>,
    /// Since when its client takes nothing of the response.
    stalled_since: Option<Instant>,
    dog: Watchdog,
}

impl Stream {
    fn new(streams: Rc<Streams>, client: Rc<Client>) -> Self {
        streams.open.update(|open| open + 1);
        Self { streams, client, stalled_since: None, dog: Watchdog::default() }
    }

    /// Ready once the future is, or has stalled.
    fn poll<F: Future<Output = ()>>(
        &mut self,
        future: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if let BodyState::Client { .. } = self.client.body() {
            self.client.set_body(BodyState::Client { moved: false });
        }
        if future.poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let now = Instant::now();
        let since = match self.client.body() {
            BodyState::Client { moved: true } => now,
            BodyState::Client { moved: false } | BodyState::Over => {
                self.stalled_since.unwrap_or(now)
            }
            BodyState::None | BodyState::Server => {
                self.stalled_since = None;
                return Poll::Pending;
            }
        };
        self.stalled_since = Some(since);
        self.dog.poll_until(cx, since + self.streams.stall_max).map(|()| {
            tracing::debug!(peer = %self.client.caller.address, "a client stopped reading");
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let streams = &self.streams;
        streams.open.update(|open| open - 1);
        streams.idle_since.set(Instant::now());
        if self.client.body() == BodyState::Over {
            streams.given_up.update(|count| count.saturating_sub(1));
            return;
        }
        streams.given_up.update(|count| count.saturating_add(1));
        if streams.is_abused()
            && let Some(connection) = streams.connection.take()
        {
            connection.wake();
        }
    }
}

/// Runs the futures of one connection's streams.
#[derive(Clone)]
struct StreamExecutor(Rc<Streams>);

impl<F: Future<Output = ()> + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        // Without a request it would be an upgrade, which `serve` never grants; an abuser's
        // request is not even begun.
        let Some(client) = self.0.latest.take().filter(|_| !self.0.is_abused()) else { return };
        let mut stream = Stream::new(Rc::clone(&self.0), client);
        tokio::task::spawn_local(async move {
            let mut future = pin!(future);
            poll_fn(|cx| stream.poll(future.as_mut(), cx)).await;
        });
    }
}

fn server(options: &Options, executor: StreamExecutor) -> http2::Builder<StreamExecutor> {
    let mut server = http2::Builder::new(executor);
    server
        .max_concurrent_streams(options.http2_streams_max)
        .initial_stream_window_size(options.http2_stream_window_bytes)
        .initial_connection_window_size(options.http2_connection_window_bytes)
        .max_header_list_size(u32::try_from(options.header_bytes_max).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    server
}

/// Serves one client until either side closes the connection.
pub(crate) async fn serve_http2<D: Dispatcher>(
    live: Rc<Live<D>>,
    stream: ClientStream,
    caller: Caller,
    share: OwnedSemaphorePermit,
) -> hyper::Result<()> {
    let core = live.core();
    let options = core.options();
    let caller = Rc::new(caller);
    let streams = Rc::new(Streams {
        open: Cell::new(0),
        idle_since: Cell::new(Instant::now()),
        given_up: Cell::new(0),
        given_up_max: options.http2_resets_max,
        latest: Cell::new(None),
        connection: RefCell::new(None),
        stall_max: options.body_idle(),
    });
    let whole = Rc::new(Client::of_streams(Rc::clone(&caller), options));
    let wire = ClientWire::new(stream, whole, options.body_idle(), share);
    let service = hyper::service::service_fn(|request| {
        let core = live.core();
        let client = Rc::new(Client::of_streams(Rc::clone(&caller), core.options()));
        streams.latest.set(Some(Rc::clone(&client)));
        // Boxed, because hyper and the executor move it from hand to hand: kilobytes each time.
        Box::pin(serve(core, client, request))
    });
    let server = server(options, StreamExecutor(Rc::clone(&streams)));
    let mut connection = pin!(server.serve_connection(TokioIo::new(wire), service));
    let mut drain = pin!(core.drain.notified());
    let mut end =
        Ending::new(Duration::from_millis(options.keep_alive_idle_ms), options.body_idle());
    poll_fn(|cx| {
        let drains = core.draining.get() || drain.as_mut().poll(cx).is_ready();
        remember(&streams.connection, cx);
        if end.begins(&streams, cx, drains) {
            connection.as_mut().graceful_shutdown();
        }
        let polled = connection.as_mut().poll(cx);
        match polled.is_pending() && end.is_over(&streams, cx) {
            // What is left of it would only be an abuser's, or nobody's.
            true => Poll::Ready(Ok(())),
            false => polled,
        }
    })
    .await
}

fn remember(place: &RefCell<Option<Waker>>, cx: &Context<'_>) {
    let mut place = place.borrow_mut();
    match &mut *place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

/// When, and how, a connection ends.
struct Ending {
    idle: Duration,
    /// What a client that was told to go may take for the end of its last response, and for
    /// saying goodbye itself.
    goodbye: Duration,
    /// When the client was told to go.
    told: Option<Instant>,
    dog: Watchdog,
}

impl Ending {
    fn new(idle: Duration, goodbye: Duration) -> Self {
        Self { idle, goodbye, told: None, dog: Watchdog::default() }
    }

    /// Whether the client must be told to go, which happens once.
    fn begins(&mut self, streams: &Streams, cx: &mut Context<'_>, drains: bool) -> bool {
        if self.told.is_some() {
            return false;
        }
        if !drains && !streams.is_abused() && !self.is_idle(streams, cx) {
            return false;
        }
        self.told = Some(Instant::now());
        true
    }

    fn is_idle(&mut self, streams: &Streams, cx: &mut Context<'_>) -> bool {
        loop {
            let busy = streams.open.get() > 0;
            let since = if busy { Instant::now() } else { streams.idle_since.get() };
            if self.dog.poll_until(cx, since + self.idle).is_pending() {
                return false;
            }
            if !busy {
                return true;
            }
        }
    }

    /// Whether the connection is cut: the client was told to go, and nothing is left to wait for.
    fn is_over(&mut self, streams: &Streams, cx: &mut Context<'_>) -> bool {
        let Some(told) = self.told else { return false };
        if streams.is_abused() {
            return true;
        }
        if streams.open.get() > 0 {
            // The end of the last one is written by this task, which so comes here again.
            return false;
        }
        let since = told.max(streams.idle_since.get());
        self.dog.poll_until(cx, since + self.goodbye).is_ready()
    }
}
