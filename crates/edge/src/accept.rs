//! One thread of an edge: it accepts, serves connections, and drains.

use crate::access_log::LogQueue;
use crate::admit::{Door, Protocol, admit};
use crate::core::{Core, Shared};
use crate::edge::Stage;
use crate::face::Dispatcher;
use crate::http1::serve_http1;
use crate::http2::serve_http2;
use crate::labels::Chance;
use crate::listen::Listener;
use crate::metrics::Shard;
use crate::options::Options;
use crate::tls::HANDSHAKES_MAX;
use crate::upgrade::{CLOSE_TIME, Tunnels, watch_nodes};
use crate::upstream::{Pool, PoolLimits};
use hyper::server::conn::http1;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Bytes that hyper may hold in each of its buffers: enough for full socket reads, small enough
/// that a proxied body keeps its two connections below half a mebibyte.
const BUFFER_BYTES: usize = 64 * 1024;

/// hyper's own limit on header lines, for which its parser allocates nothing.
const HEADERS_MAX_INLINE: usize = 100;

/// How long accepting pauses when the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl<D: Dispatcher> Core<D> {
    pub(crate) fn new(
        shared: Arc<Shared>,
        dispatcher: D,
        metrics: Arc<Shard>,
        log: Option<LogQueue>,
    ) -> Rc<Self> {
        let options = &shared.options;
        let buffer_bytes_max = BUFFER_BYTES.max(options.header_bytes_max);
        let limits = PoolLimits {
            upstream: options.upstream,
            idle_max: options.upstream_idle_max,
            idle_time: Duration::from_millis(options.upstream_idle_ms),
            connect_time: Duration::from_millis(options.connect_timeout_ms),
            write_idle: options.body_idle(),
            buffer_bytes_max,
        };
        let server = server(options, buffer_bytes_max);
        Rc::new(Self {
            pool: Pool::new(limits),
            server,
            shared,
            dispatcher,
            metrics,
            log,
            chance: Chance::seeded(),
            tunnels: Tunnels::new(),
            draining: Cell::new(false),
            drain: Notify::new(),
            closing: Cell::new(false),
            close: Notify::new(),
            handshakes: Semaphore::new(HANDSHAKES_MAX),
            open: Cell::new(0),
            closed: Notify::new(),
        })
    }
}

fn server(options: &Options, buffer_bytes_max: usize) -> http1::Builder {
    let mut server = http1::Builder::new();
    // ClientWire watches the time of heads, and tells a slow head from an idle connection.
    server.header_read_timeout(None);
    server.max_buf_size(buffer_bytes_max);
    server.max_header_size(options.header_bytes_max);
    if options.headers_max != HEADERS_MAX_INLINE {
        server.max_headers(options.headers_max);
    }
    server
}

/// Serves until told to stop, or until drained.
pub(crate) async fn run<D: Dispatcher>(
    core: Rc<Core<D>>,
    sockets: Vec<Listener>,
    mut stage: watch::Receiver<Stage>,
) {
    let sweeping = Rc::clone(&core);
    tokio::task::spawn_local(async move { sweeping.pool.sweep().await });
    tokio::task::spawn_local(watch_nodes(Rc::clone(&core)));
    for socket in sockets {
        tokio::task::spawn_local(accept(Rc::clone(&core), socket));
    }
    // The sender's end means the same as a stop.
    let drains = stage.wait_for(|stage| *stage != Stage::Serve).await.map(drop);
    if drains.is_err() || *stage.borrow() == Stage::Stop {
        return;
    }
    core.draining.set(true);
    core.drain.notify_waiters();
    let drained = async {
        while core.open.get() > 0 {
            core.closed.notified().await;
        }
    };
    let limit = Duration::from_millis(core.options().drain_max_ms);
    tokio::select! {
        () = drained => {}
        () = tokio::time::sleep(limit) => {
            tracing::warn!(connections = core.open.get(), "the edge stops before it is drained");
            core.tunnels.close(CLOSE_TIME * 3).await;
        }
        () = stopped(&core, stage) => {}
    }
}

/// Closes connections that wait for a request as soon as that is wanted; ready with the stop.
async fn stopped<D: Dispatcher>(core: &Core<D>, mut stage: watch::Receiver<Stage>) {
    let closes = stage.wait_for(|stage| *stage != Stage::Drain).await.map(|stage| *stage);
    if matches!(closes, Ok(Stage::Close)) {
        core.closing.set(true);
        core.close.notify_waiters();
        let _ = stage.wait_for(|stage| *stage == Stage::Stop).await;
    }
}

/// Accepts until the edge drains; then what the kernel had accepted already, and no more.
async fn accept<D: Dispatcher>(core: Rc<Core<D>>, socket: Listener) {
    let door = socket.door;
    let listener = match TcpListener::from_std(socket.tcp) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listening socket can't be used");
            return;
        }
    };
    // A drain that came before this task first ran notifies nobody.
    if !core.draining.get() {
        tokio::select! {
            () = accept_all(&core, &listener, door) => {}
            () = core.drain.notified() => {}
        }
    }
    let shares = &core.shared.connections;
    while let Ok(share) = Arc::clone(shares).try_acquire_owned()
        && let Some((stream, peer)) = accepted_already(&listener).await
    {
        spawn(&core, stream, peer, door, share);
    }
}

/// At most a backlog of them: the queue is not refilled faster than it is emptied here.
async fn accepted_already(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    poll_fn(|cx| match listener.poll_accept(cx) {
        Poll::Ready(Ok(accepted)) => Poll::Ready(Some(accepted)),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn accept_all<D: Dispatcher>(core: &Rc<Core<D>>, listener: &TcpListener, door: Door) {
    let shares = &core.shared.connections;
    // Beyond `connections_max` clients wait in the kernel's queue. Never closed, see `Shared`.
    while let Ok(share) = Arc::clone(shares).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => spawn(core, stream, peer, door, share),
            Err(error) => {
                tracing::warn!(%error, "a connection can't be accepted");
                // A client that is gone again costs nothing; a missing descriptor needs time.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

fn spawn<D: Dispatcher>(
    core: &Rc<Core<D>>,
    stream: TcpStream,
    peer: SocketAddr,
    door: Door,
    share: OwnedSemaphorePermit,
) {
    core.metrics.connections_accepted.add(1);
    let open = Open::new(Rc::clone(core));
    tokio::task::spawn_local(connection(open, stream, peer, door, share));
}

/// One open client connection, counted.
struct Open<D: Dispatcher>(Rc<Core<D>>);

impl<D: Dispatcher> Open<D> {
    fn new(core: Rc<Core<D>>) -> Self {
        core.open.update(|open| open + 1);
        core.metrics.connections_open.add(1);
        Self(core)
    }
}

impl<D: Dispatcher> Drop for Open<D> {
    fn drop(&mut self) {
        self.0.open.update(|open| open - 1);
        self.0.metrics.connections_open.take(1);
        self.0.closed.notify_one();
    }
}

/// Serves one client until either side closes the connection.
async fn connection<D: Dispatcher>(
    open: Open<D>,
    tcp: TcpStream,
    peer: SocketAddr,
    door: Door,
    share: OwnedSemaphorePermit,
) {
    let core = Rc::clone(&open.0);
    let visitor = match admit(&core, tcp, peer, door).await {
        Ok(visitor) => visitor,
        Err(error) => {
            tracing::debug!(%peer, %error, "a client did not get in");
            return;
        }
    };
    // Boxed, so that an HTTP/1.1 connection's task is not as large as one of HTTP/2.
    let ended = match visitor.protocol {
        Protocol::Http1 => Box::pin(serve_http1(core, visitor.stream, visitor.caller, share)).await,
        Protocol::Http2 => Box::pin(serve_http2(core, visitor.stream, visitor.caller, share)).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a client's connection broke");
    }
}
