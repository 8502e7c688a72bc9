//! What the data plane asks of whoever chooses servers.
//!
//! The data plane knows no pool: it asks a [`Dispatcher`] for a [`Permit`], sends the request to
//! the address that the permit names, tells how that went and drops the permit. Calls are
//! dispatched statically; nothing here boxes on the path of a request.

use pool_model::{NodeId, SiteId};
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;

/// Most repetitions of one request, whatever the settings say: each may cost a node's connect
/// time-out, and a client has long given up after eight of them.
pub const RETRIES_MAX: usize = 8;

/// Hands out servers. A clone is a cheap handle to the same dispatcher; every thread of an edge
/// has one, and the futures of one thread stay on that thread.
pub trait Dispatcher: Clone + Send + 'static {
    /// What one request holds while a server works on it.
    type Permit: Permit;

    /// Waits in the site's bounded queue until a server has room.
    ///
    /// Dropping the future leaves the queue.
    fn acquire(
        &self,
        site: SiteId,
        ask: Ask<'_>,
    ) -> impl Future<Output = Result<Self::Permit, Refusal>>;

    /// Whether a node is known to serve the site no more. Connections that outlive their permit,
    /// upgraded ones, are ended by it. Whoever moves no nodes never says so.
    fn has_left(&self, site: SiteId, node: NodeId) -> bool {
        let _ = (site, node);
        false
    }
}

/// What one request asks for besides a server of its site.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// The nodes that failed this very request, at most [`RETRIES_MAX`]; they are taken only
    /// where no other is left.
    pub avoid: &'a [NodeId],
    /// The server that it belongs to, if any.
    pub stick: Option<Stick>,
    /// Its admission class.
    pub rank: Rank,
}

/// The place of a request's admission class: 0 goes first. All requests of a site without classes
/// have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u8);

/// Which server a sticky request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stick {
    /// The one on this node, as long as it serves the site.
    Server(NodeId),
    /// The one that this key falls to: the same for equal keys as long as the site's servers are
    /// the same, and for most keys when one comes or goes.
    Key(u64),
}

/// Why no server was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// `queue_max` requests of the site wait already.
    QueueFull,
    /// The request waited `queue_timeout_ms` in vain.
    QueueTimeout,
    /// The site has more requests than it can answer, and more important ones go first.
    Shed {
        /// Seconds until its queue would be empty.
        retry_after_s: u8,
    },
    /// The site has no server that could ever take it.
    NoServer,
    /// The edge is about to stop.
    Draining,
}

impl Refusal {
    /// The word used in `X-Polder-Reason`, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue-full",
            Self::QueueTimeout => "queue-timeout",
            Self::Shed { .. } => "shed",
            Self::NoServer => "no-server",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Room for one request at one server. It is dropped as soon as the request has left the server:
/// its response is complete from the server's side, or the connection to it was closed.
pub trait Permit: 'static {
    /// The node that was chosen.
    fn node(&self) -> NodeId;

    /// Where its server for the site listens.
    fn address(&self) -> SocketAddr;

    /// Tells how the server did, for passive health checks. Called at most once for each attempt;
    /// not called when the client went away or sent something wrong, nor when a connection kept
    /// alive turned out to be closed (that says nothing about the server's health).
    fn report(&self, verdict: Verdict);

    /// Reports [`Verdict::Answered`] and gives the room back at once: for responses that are
    /// complete as soon as they begin.
    fn answered(self)
    where
        Self: Sized,
    {
        self.report(Verdict::Answered);
    }
}

/// How one attempt at one server went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The head of a response came, with a status below 500.
    Answered,
    /// The head of a response came, with this status, 500 or above.
    ServerError(u16),
    /// No connection: refused, unreachable, or not within `connect_timeout_ms`.
    ConnectFailed,
    /// The connection was reset or closed before the response, or the response was malformed.
    Broke,
    /// No response head within `response_header_timeout_ms`.
    TimedOut,
}
