//! What the look loop and its host tell each other.

use pool_model::NodeId;
use shared_state::slot::SlotTaken;
use shared_state::words::Assign;
use shared_state::{EdgeDemand, EdgeService, NodeRecord};
use std::thread::Thread;
use std::time::Duration;

/// What a look saw of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSeen {
    /// Its assignment; none when its region was given up.
    pub assign: Option<Assign>,
    /// Whether it takes new requests at all (not cordoned, its server answers).
    pub open: bool,
    /// How its record is read.
    pub link: Link,
    /// Requests that all edges together may have at its server, as far as this edge takes part:
    /// the node's `max_in_flight` where its record is mapped, else what one look can know.
    pub limit: u32,
}

/// How a node's record is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// It is mapped: its words are the node's own.
    #[default]
    Mapped,
    /// It is elsewhere: its words are those of the last look.
    Mirrored,
    /// It is elsewhere, and its machine does not answer: new requests go to others, if there are
    /// any.
    Silent,
    /// It is elsewhere, and its agent has ended or starts again. Its servers may be well.
    Gone,
}

impl Link {
    /// Whether words are the node's own, or those of the last look.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Mapped | Self::Mirrored)
    }
}

/// What a look saw of one site in the other live edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteSeen {
    /// Their requests, queued and in flight.
    pub others_demand: u64,
    /// Their requests that wait.
    pub others_queued: u64,
    /// How many of them have requests that wait and none in flight.
    pub others_starving: u64,
}

/// The first request that went to a node after it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstDispatch {
    /// The node.
    pub node: NodeId,
    /// The version of its assignment.
    pub version: u32,
    /// When, by [`monotonic`](super::monotonic).
    pub at: Duration,
}

/// Whoever sends requests to nodes: the built-in edge, or a driver of another proxy. All calls
/// come from the loop's thread and must not block.
pub trait Host: Send {
    /// The thread to unpark when the first request queues. Called once.
    fn looker(&mut self, thread: Thread);

    /// The loop is about to sleep for long and wants to be woken (true), or is awake.
    fn sleeps(&mut self, sleeps: bool);

    /// Whether a request is queued or in flight.
    fn is_busy(&mut self) -> bool;

    /// What this edge has of each site, by the site's index.
    fn demand(&mut self, out: &mut Vec<EdgeDemand>);

    /// What this edge measured of each site's servers, by the site's index; asked once a look,
    /// after [`Host::demand`]. Who measures nothing leaves it empty.
    fn service(&mut self, _now: Duration, out: &mut Vec<EdgeService>) {
        out.clear();
    }

    /// Whether requests to this node fail at present. Asked about nodes whose agent is dead: if
    /// their server has died with it, nobody else tells.
    fn is_failing(&mut self, _node: NodeId) -> bool {
        false
    }

    /// A node's region was found; the host takes its slot there, whose lease word was `expected`.
    fn attached(&mut self, record: NodeRecord, expected: u64) -> Result<(), SlotTaken>;

    /// What a look saw, by the nodes' and the sites' index.
    fn looked(&mut self, nodes: &[Option<NodeSeen>], sites: &[SiteSeen]);

    /// A move of this edge took effect; `limit` is as in [`NodeSeen`].
    fn moved(&mut self, node: NodeId, assign: Assign, limit: u32);

    /// First requests to moved nodes since the last call.
    fn first_dispatches(&mut self) -> Vec<FirstDispatch>;
}
