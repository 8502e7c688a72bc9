//! One thread of an edge: it accepts, serves connections, and drains.

use crate::access_log::LogQueue;
use crate::core::{Core, Shared};
use crate::edge::Stage;
use crate::face::Dispatcher;
use crate::forward::client_value;
use crate::labels::Chance;
use crate::listen::BACKLOG;
use crate::live::{Change, Live};
use crate::metrics::Shard;
use crate::options::Options;
use crate::proxy_header::Ends;
use crate::proxy_in::{NoHeader, read_header};
use crate::serve::serve;
use crate::upstream::{Pool, PoolLimits};
use crate::wire::{Client, ClientWire};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, watch};

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
            draining: Rc::default(),
            drain: Rc::default(),
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
            draining: Rc::clone(&self.draining),
            drain: Rc::clone(&self.drain),
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
    sockets: Vec<StdListener>,
    changes: UnboundedReceiver<Change>,
    mut stage: watch::Receiver<Stage>,
) {
    let sweeping = Rc::clone(&core.pool);
    tokio::task::spawn_local(async move { sweeping.sweep().await });
    let live = Live::new(Rc::clone(&core));
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
        }
        _ = stage.wait_for(|stage| *stage == Stage::Stop) => {}
    }
}

/// Accepts until the edge drains; then what the kernel had accepted already, and no more: at most
/// a full queue, for another edge with the same socket may let more in all the time.
async fn accept<D: Dispatcher>(live: Rc<Live<D>>, socket: StdListener) {
    let listener = match TcpListener::from_std(socket) {
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
            () = accept_all(&live, &listener) => {}
            () = core.drain.notified() => {}
        }
    }
    let shares = &core.shared.connections;
    for _ in 0..BACKLOG {
        let Ok(share) = Arc::clone(shares).try_acquire_owned() else { return };
        let Some((stream, peer)) = accepted_already(&listener).await else { return };
        spawn(&live, stream, peer, share);
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

async fn accept_all<D: Dispatcher>(live: &Rc<Live<D>>, listener: &TcpListener) {
    let shares = &live.core().shared.connections;
    // Beyond `connections_max` clients wait in the kernel's queue. Never closed, see `Shared`.
    while let Ok(share) = Arc::clone(shares).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => spawn(live, stream, peer, share),
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
    share: OwnedSemaphorePermit,
) {
    let core = live.core();
    core.metrics.connections_accepted.add(1);
    tokio::task::spawn_local(connection(Rc::clone(live), Open::new(core), stream, peer, share));
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

/// Whom a connection is served for; none where it must be closed.
async fn client_of<D: Dispatcher>(
    core: &Core<D>,
    stream: &mut TcpStream,
    peer: SocketAddr,
) -> Option<(SocketAddr, Option<Ends>)> {
    let options = core.options();
    let announces = options.sites.iter().any(|site| site.proxy_protocol_out.is_some());
    let own = if announces { stream.local_addr().ok() } else { None };
    let own = own.map(|destination| Ends { source: peer, destination });
    if !options.proxy_protocol.iter().any(|network| network.contains(peer.ip())) {
        return Some((peer, own));
    }
    // The box keeps what is needed here out of the connection's long life.
    let header = Box::pin(read_header(stream, options.header_timeout()));
    let read = tokio::select! {
        read = header => read,
        // As a connection without a request: nobody waits for it.
        () = core.drain.notified() => return None,
    };
    match read {
        Ok(Some(ends)) => Some((ends.source, Some(ends))),
        Ok(None) => Some((peer, own)),
        Err(NoHeader::Ended) => None,
        Err(error) => {
            core.metrics.proxy_headers_refused.add(1);
            tracing::debug!(%peer, %error, "a connection without its PROXY header is closed");
            None
        }
    }
}

/// Serves one client until either side closes the connection.
async fn connection<D: Dispatcher>(
    live: Rc<Live<D>>,
    open: Open<D>,
    stream: TcpStream,
    peer: SocketAddr,
    share: OwnedSemaphorePermit,
) {
    let core = Rc::clone(&open.0);
    let options = core.options();
    let mut stream = stream;
    let Some((peer, ends)) = client_of(&core, &mut stream, peer).await else { return };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "a client went away at once");
        return;
    }
    let idle = Duration::from_millis(options.keep_alive_idle_ms);
    let mut client = Client::new(peer, options.header_timeout(), idle);
    client.ends = ends;
    let client = Rc::new(client);
    let client_value = client_value(peer.ip());
    let wire = ClientWire::new(stream, Rc::clone(&client), options.body_idle(), share);
    let service = hyper::service::service_fn(|request| {
        serve(live.core(), Rc::clone(&client), client_value.clone(), request)
    });
    // Who was accepted while the edge drains still gets one answer.
    let mut told = core.draining.get();
    let mut server = core.server.clone();
    server.keep_alive(!told);
    let mut connection = pin!(server.serve_connection(TokioIo::new(wire), service));
    let mut drain = pin!(core.drain.notified());
    let mut listens = false;
    let ended = poll_fn(|cx| {
        // The waker is the task's, so that once is enough; the flag says the rest.
        if !listens {
            listens = true;
            let _ = drain.as_mut().poll(cx);
        }
        if core.draining.get() && !told {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    if let Err(error) = ended.await {
        tracing::debug!(%peer, %error, "a client's connection broke");
    }
}
