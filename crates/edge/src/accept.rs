//! One thread of an edge: it accepts, serves connections, and drains.

use crate::access_log::LogQueue;
use crate::admit::{Door, Protocol, admit};
use crate::core::{Core, Shared};
use crate::edge::Stage;
use crate::face::Dispatcher;
use crate::http1::serve_http1;
use crate::http2::serve_http2;
use crate::labels::Chance;
use crate::listen::{BACKLOG, Listener};
use crate::live::{Change, Live};
use crate::metrics::Shard;
use crate::options::Options;
use crate::tls::HANDSHAKES_MAX;
use crate::upgrade::{CLOSE_TIME, Tunnels, watch_nodes};
use crate::upstream::{Pool, PoolLimits};
use hyper::server::conn::http1;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

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
        Rc::new(Self {
            pool: Rc::new(Pool::new(pool_limits(&shared.options))),
            server: server(&shared.options),
            shared,
            dispatcher,
            metrics,
            log: log.map(Rc::new),
            chance: Rc::new(Chance::seeded()),
            tunnels: Tunnels::new(),
            far: Rc::default(),
            audits: Rc::default(),
            draining: Rc::default(),
            drain: Rc::default(),
            closing: Rc::default(),
            close: Rc::default(),
            handshakes: Rc::new(Semaphore::new(HANDSHAKES_MAX)),
            open: Rc::default(),
            closed: Rc::default(),
        })
    }

    /// The same thread's part under other options.
    pub(crate) fn under(&self, shared: Arc<Shared>) -> Rc<Self> {
        self.pool.set_limits(pool_limits(&shared.options));
        Rc::new(Self {
            pool: Rc::clone(&self.pool),
            server: server(&shared.options),
            shared,
            dispatcher: self.dispatcher.clone(),
            metrics: Arc::clone(&self.metrics),
            log: self.log.clone(),
            chance: Rc::clone(&self.chance),
            tunnels: Rc::clone(&self.tunnels),
            far: Rc::clone(&self.far),
            audits: Rc::clone(&self.audits),
            draining: Rc::clone(&self.draining),
            drain: Rc::clone(&self.drain),
            closing: Rc::clone(&self.closing),
            close: Rc::clone(&self.close),
            handshakes: Rc::clone(&self.handshakes),
            open: Rc::clone(&self.open),
            closed: Rc::clone(&self.closed),
        })
    }
}

fn buffer_bytes_max(options: &Options) -> usize {
    BUFFER_BYTES.max(options.header_bytes_max)
}

fn pool_limits(options: &Options) -> PoolLimits {
    PoolLimits {
        upstream: options.upstream,
        idle_max: options.upstream_idle_max,
        idle_time: Duration::from_millis(options.upstream_idle_ms),
        connect_time: Duration::from_millis(options.connect_timeout_ms),
        write_idle: options.body_idle(),
        buffer_bytes_max: buffer_bytes_max(options),
    }
}

fn server(options: &Options) -> http1::Builder {
    let mut server = http1::Builder::new();
    // ClientWire watches the time of heads, and tells a slow head from an idle connection.
    server.header_read_timeout(None);
    server.max_buf_size(buffer_bytes_max(options));
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
    changes: UnboundedReceiver<Change>,
    mut stage: watch::Receiver<Stage>,
) {
    let sweeping = Rc::clone(&core.pool);
    tokio::task::spawn_local(async move { sweeping.sweep().await });
    let live = Live::new(Rc::clone(&core));
    tokio::task::spawn_local(watch_nodes(Rc::clone(&live)));
    tokio::task::spawn_local(Rc::clone(&live).follow(changes));
    for socket in sockets {
        tokio::task::spawn_local(accept(Rc::clone(&live), socket));
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
    let limit = Duration::from_millis(live.core().options().drain_max_ms);
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

/// Accepts until the edge drains; then what the kernel had accepted already, and no more: at most
/// a full queue, for another edge with the same socket may let more in all the time.
async fn accept<D: Dispatcher>(live: Rc<Live<D>>, socket: Listener) {
    let door = socket.door;
    let listener = match TcpListener::from_std(socket.tcp) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listening socket can't be used");
            return;
        }
    };
    let core = live.core();
    // A drain that came before this task first ran notifies nobody.
    if !core.draining.get() {
        tokio::select! {
            () = accept_all(&live, &listener, door) => {}
            () = core.drain.notified() => {}
        }
    }
    let shares = &core.shared.connections;
    for _ in 0..BACKLOG {
        let Ok(share) = Arc::clone(shares).try_acquire_owned() else { return };
        let Some((stream, peer)) = accepted_already(&listener).await else { return };
        spawn(&live, stream, peer, door, share);
    }
}

/// Whoever waits already.
async fn accepted_already(listener: &TcpListener) -> Option<(TcpStream, SocketAddr)> {
    poll_fn(|cx| match listener.poll_accept(cx) {
        Poll::Ready(Ok(accepted)) => Poll::Ready(Some(accepted)),
        Poll::Ready(Err(_)) | Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn accept_all<D: Dispatcher>(live: &Rc<Live<D>>, listener: &TcpListener, door: Door) {
    let shares = &live.core().shared.connections;
    // Beyond `connections_max` clients wait in the kernel's queue. Never closed, see `Shared`.
    while let Ok(share) = Arc::clone(shares).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => spawn(live, stream, peer, door, share),
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
    live: &Rc<Live<D>>,
    stream: TcpStream,
    peer: SocketAddr,
    door: Door,
    share: OwnedSemaphorePermit,
) {
    let core = live.core();
    core.metrics.connections_accepted.add(1);
    let open = Open::new(core);
    tokio::task::spawn_local(connection(Rc::clone(live), open, stream, peer, door, share));
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
    live: Rc<Live<D>>,
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
        Protocol::Http1 => Box::pin(serve_http1(live, visitor.stream, visitor.caller, share)).await,
        Protocol::Http2 => Box::pin(serve_http2(live, visitor.stream, visitor.caller, share)).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a client's connection broke");
    }
}
