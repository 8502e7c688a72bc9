//! Connections to servers: each thread keeps its own, last in, first out.
//!
//! What travels over a connection is the matter of a [`Connection`], of which there are two
//! siblings: `own` reads and writes the socket in the request's own task, `by_hyper` gives it to
//! a task of hyper's low-level client. [`Upstream`] chooses; both take what `forward` makes of
//! heads, and must answer alike.
//!
//! A look-up is two indexings and a scan over the few servers of one node; nothing is hashed.

mod body;
mod by_hyper;
mod chunks;
#[cfg(test)]
mod fuzz_tests;
mod head;
mod own;
mod send;

pub(crate) use head::find_end;

use crate::attempt::Outgoing;
use crate::forward::Forwarder;
use crate::proxy_header::{Announced, write};
use crate::upload::{Gate, UploadBody};
use bytes::Bytes;
use http::response::Parts;
use http_body::SizeHint;
use pool_model::NodeId;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Longest response head. Servers set large cookies; more than this is a fault.
const RESPONSE_HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most field lines of a response head: what hyper's parser takes without an allocation.
const RESPONSE_FIELDS_MAX: usize = 100;

/// Servers remembered for each node. A node serves few sites; when one more comes, the server
/// that was added first is forgotten with its idle connections.
const SERVERS_PER_NODE_MAX: usize = 32;

/// How often idle connections are looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Who speaks HTTP/1.1 with the servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Upstream {
    /// The edge itself, in the task of each request.
    #[default]
    Own,
    /// hyper's low-level client, with a task for each connection.
    Hyper,
}

/// A request on its way to a server.
pub(crate) struct Asking<'a> {
    pub(crate) outgoing: &'a Outgoing,
    pub(crate) forwarder: &'a Forwarder,
    pub(crate) body: UploadBody,
    /// Opened when the server says 100.
    pub(crate) gate: Option<Arc<Gate>>,
}

/// Whether bytes went over a connection since its last request began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) read: bool,
    pub(crate) written: bool,
}

/// A connection on which the server has switched to another protocol.
pub(crate) struct Upgraded {
    pub(crate) stream: TcpStream,
    /// What the server sent behind its 101.
    pub(crate) ahead: Bytes,
}

/// Why no response head came.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeadFault {
    /// It can't be understood, or in more than one way.
    #[error("the head of the response is malformed or ambiguous")]
    Malformed,
    /// The connection ended, or the request's body did.
    #[error("no response: {0}")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why a response's body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's response broke off")]
pub(crate) struct BodyFault;

/// A connection to a server. It serves one request at a time: `ask` once, then `poll_data` until
/// the end. Dropped anywhere in between, it closes.
pub(crate) trait Connection: Sized {
    /// Takes a connected socket over.
    async fn open(stream: TcpStream, limits: &PoolLimits) -> io::Result<Self>;

    /// Whether nothing is left of the last request, and the server has neither closed nor said
    /// anything since.
    fn is_open(&self) -> bool;

    /// Whether another request can be sent at once.
    fn is_ready(&self) -> bool;

    /// Sends a request; ready with the response's head, as the client gets it.
    async fn ask(&mut self, asking: Asking<'_>) -> Result<Parts, HeadFault>;

    /// The socket, after a response with status 101.
    async fn into_upgraded(self) -> io::Result<Upgraded>;

    /// What happened since the last call of `ask`.
    fn moved(&self) -> Moved;

    /// The next piece of the response's body; trailers are dropped. The request's body goes on
    /// being sent, should it not have ended before the response began.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>>;

    /// Whether the response is known to be complete.
    fn is_end(&self) -> bool;

    /// What is left of the response's body.
    fn size_hint(&self) -> SizeHint;
}

/// A connection of either sibling.
pub(crate) enum Link {
    Own(Box<own::Own>),
    Hyper(Box<by_hyper::ByHyper>),
}

macro_rules! either {
    ($link:expr, $one:ident => $call:expr) => {
        match $link {
            Link::Own($one) => $call,
            Link::Hyper($one) => $call,
        }
    };
}

impl Connection for Link {
    async fn open(stream: TcpStream, limits: &PoolLimits) -> io::Result<Self> {
        Ok(match limits.upstream {
            Upstream::Own => Self::Own(Box::new(own::Own::open(stream, limits).await?)),
            Upstream::Hyper => {
                Self::Hyper(Box::new(by_hyper::ByHyper::open(stream, limits).await?))
            }
        })
    }

    fn is_open(&self) -> bool {
        either!(self, one => one.is_open())
    }

    fn is_ready(&self) -> bool {
        either!(self, one => one.is_ready())
    }

    async fn ask(&mut self, asking: Asking<'_>) -> Result<Parts, HeadFault> {
        either!(self, one => one.ask(asking).await)
    }

    async fn into_upgraded(self) -> io::Result<Upgraded> {
        either!(self, one => one.into_upgraded().await)
    }

    fn moved(&self) -> Moved {
        either!(self, one => one.moved())
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyFault>>> {
        either!(self, one => one.poll_data(cx))
    }

    fn is_end(&self) -> bool {
        either!(self, one => one.is_end())
    }

    fn size_hint(&self) -> SizeHint {
        either!(self, one => one.size_hint())
    }
}

/// Where a connection leads, and for whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub(crate) node: NodeId,
    pub(crate) address: SocketAddr,
    /// The server was told a client's address: nobody else's requests may go this way.
    pub(crate) announced: Option<Announced>,
}

/// A connection that a request holds.
pub(crate) struct Lease {
    pub(crate) link: Link,
    route: Route,
    /// It served a request before: the server may have closed it meanwhile.
    pub(crate) reused: bool,
}

struct Idle {
    link: Link,
    /// When connections were last looked through before it became idle.
    since: Instant,
    announced: Option<Announced>,
}

struct Server {
    address: SocketAddr,
    idle: Vec<Idle>,
}

/// The settings of a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) upstream: Upstream,
    pub(crate) idle_max: usize,
    pub(crate) idle_time: Duration,
    pub(crate) connect_time: Duration,
    pub(crate) write_idle: Duration,
    pub(crate) buffer_bytes_max: usize,
}

/// The idle connections of one thread.
pub(crate) struct Pool {
    limits: Cell<PoolLimits>,
    /// When idle connections were last looked through: as exact as their time needs to be.
    looked: Cell<Instant>,
    /// By the number of the node.
    nodes: RefCell<Vec<Vec<Server>>>,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Self {
        let looked = Cell::new(Instant::now());
        Self { limits: Cell::new(limits), looked, nodes: RefCell::default() }
    }

    /// Other limits from now on; connections that are there stay.
    pub(crate) fn set_limits(&self, limits: PoolLimits) {
        self.limits.set(limits);
    }

    /// The connection that was used last, if one is left.
    pub(crate) fn take(&self, route: Route) -> Option<Lease> {
        let mut nodes = self.nodes.borrow_mut();
        let servers = nodes.get_mut(route.node.index())?;
        let server = servers.iter_mut().find(|server| server.address == route.address)?;
        let fits = |idle: &Idle| idle.announced == route.announced;
        // Where nothing is announced this is the last one.
        while let Some(place) = server.idle.iter().rposition(fits) {
            let Idle { link, .. } = server.idle.remove(place);
            if link.is_ready() {
                return Some(Lease { link, route, reused: true });
            }
        }
        None
    }

    /// Keeps a connection whose response is complete, if it can serve another.
    pub(crate) fn put(&self, lease: Lease) {
        if !lease.link.is_open() {
            return;
        }
        let Route { node, address, announced } = lease.route;
        let mut nodes = self.nodes.borrow_mut();
        if nodes.len() <= node.index() {
            nodes.resize_with(node.index() + 1, Vec::new);
        }
        let servers = &mut nodes[node.index()];
        let place = servers.iter().position(|server| server.address == address);
        let place = place.unwrap_or_else(|| {
            if servers.len() == SERVERS_PER_NODE_MAX {
                servers.remove(0);
            }
            servers.push(Server { address, idle: Vec::new() });
            servers.len() - 1
        });
        let idle = &mut servers[place].idle;
        let idle_max = self.limits.get().idle_max;
        // What was made for a client that is gone by now makes room for what is in use.
        if announced.is_some() && idle.len() == idle_max && !idle.is_empty() {
            idle.remove(0);
        }
        if idle.len() < idle_max {
            idle.push(Idle { link: lease.link, since: self.looked.get(), announced });
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self, route: Route) -> io::Result<Lease> {
        let limits = self.limits.get();
        let connecting = async {
            let mut stream = TcpStream::connect(route.address).await?;
            if let Some(Announced { version, ends }) = &route.announced {
                stream.write_all(&write(*version, ends)).await?;
            }
            Ok::<_, io::Error>(stream)
        };
        let stream = tokio::time::timeout(limits.connect_time, connecting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection in time"))??;
        stream.set_nodelay(true)?;
        let link = Link::open(stream, &limits).await?;
        Ok(Lease { link, route, reused: false })
    }

    /// Closes what has been idle for too long, for ever.
    pub(crate) async fn sweep(&self) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.looked.set(now);
            for server in self.nodes.borrow_mut().iter_mut().flatten() {
                let idle_time = self.limits.get().idle_time;
                server.idle.retain(|idle| {
                    now.duration_since(idle.since) < idle_time && idle.link.is_open()
                });
            }
        }
    }
}
