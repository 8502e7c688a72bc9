//! Connections to servers: each thread keeps its own, last in, first out.
//!
//! Each connection is a task of hyper's low-level client; a request takes the connection's sender
//! out of the pool and puts it back when the response is complete. A look-up is two indexings
//! and a scan over the few servers of one node; nothing is hashed.

use crate::upload::UploadBody;
use crate::wire::{ServerWire, Traffic};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use pool_model::NodeId;
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longest response head. Servers set large cookies; more than this is a fault.
const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Servers remembered for each node. A node serves few sites; when one more comes, the server
/// that was added first is forgotten with its idle connections.
const SERVERS_PER_NODE_MAX: usize = 32;

/// How often idle connections are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A connection that a request holds.
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<UploadBody>,
    pub(crate) traffic: Rc<Traffic>,
    node: NodeId,
    address: SocketAddr,
    /// It served a request before: the server may have closed it meanwhile.
    pub(crate) reused: bool,
}

struct Idle {
    sender: SendRequest<UploadBody>,
    traffic: Rc<Traffic>,
    since: Instant,
}

struct Server {
    address: SocketAddr,
    idle: Vec<Idle>,
}

/// The settings of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) idle_max: usize,
    pub(crate) idle_time: Duration,
    pub(crate) connect_time: Duration,
    pub(crate) write_idle: Duration,
    pub(crate) buffer_bytes_max: usize,
}

/// The idle connections of one thread.
pub(crate) struct Pool {
    limits: PoolLimits,
    /// By the number of the node.
    nodes: RefCell<Vec<Vec<Server>>>,
    builder: http1::Builder,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits.buffer_bytes_max.max(RESPONSE_HEAD_BYTES_MAX));
        builder.max_header_size(RESPONSE_HEAD_BYTES_MAX);
        Self { limits, nodes: RefCell::default(), builder }
    }

    /// The connection that was used last, if one is left.
    pub(crate) fn take(&self, node: NodeId, address: SocketAddr) -> Option<Lease> {
        let mut nodes = self.nodes.borrow_mut();
        let servers = nodes.get_mut(node.index())?;
        let server = servers.iter_mut().find(|server| server.address == address)?;
        while let Some(Idle { sender, traffic, .. }) = server.idle.pop() {
            if sender.is_ready() {
                return Some(Lease { sender, traffic, node, address, reused: true });
            }
        }
        None
    }

    /// Keeps a connection whose response is complete.
    pub(crate) fn put(&self, lease: Lease) {
        if lease.sender.is_closed() {
            return;
        }
        let mut nodes = self.nodes.borrow_mut();
        if nodes.len() <= lease.node.index() {
            nodes.resize_with(lease.node.index() + 1, Vec::new);
        }
        let servers = &mut nodes[lease.node.index()];
        let place = servers.iter().position(|server| server.address == lease.address);
        let place = place.unwrap_or_else(|| {
            if servers.len() == SERVERS_PER_NODE_MAX {
                servers.remove(0);
            }
            servers.push(Server { address: lease.address, idle: Vec::new() });
            servers.len() - 1
        });
        let idle = &mut servers[place].idle;
        if idle.len() < self.limits.idle_max {
            let Lease { sender, traffic, .. } = lease;
            idle.push(Idle { sender, traffic, since: Instant::now() });
        }
    }

    /// A new connection. Its task runs until either side closes it.
    pub(crate) async fn connect(&self, node: NodeId, address: SocketAddr) -> io::Result<Lease> {
        let connecting = TcpStream::connect(address);
        let stream = tokio::time::timeout(self.limits.connect_time, connecting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))??;
        stream.set_nodelay(true)?;
        let traffic = Rc::new(Traffic::default());
        let wire = ServerWire::new(stream, Rc::clone(&traffic), self.limits.write_idle);
        let (sender, connection) =
            self.builder.handshake(TokioIo::new(wire)).await.map_err(io::Error::other)?;
        tokio::task::spawn_local(async move {
            // What goes wrong here is told to the request; an idle connection's end is no news.
            if let Err(error) = connection.await {
                tracing::trace!(%address, %error, "connection to a server ended");
            }
        });
        Ok(Lease { sender, traffic, node, address, reused: false })
    }

    /// Closes what has been idle for too long, for ever.
    pub(crate) async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            for server in self.nodes.borrow_mut().iter_mut().flatten() {
                let idle_time = self.limits.idle_time;
                server.idle.retain(|idle| {
                    now.duration_since(idle.since) < idle_time && !idle.sender.is_closed()
                });
            }
        }
    }
}
