//! The pool as one edge sees it, for `status`, metrics and tests.

use super::host::{FirstDispatch, Link};
use super::shortfall::BelowHard;
use crate::record::{Counters, MoveRecord};
use pool_model::{EdgeId, NodeId, SiteId, SiteTerms};
use shared_state::words::Phase;
use shared_state::{AgentStatus, EdgeRow, Service};
use std::time::Duration;

/// One site.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteState {
    /// The site.
    pub id: SiteId,
    /// What its settings state.
    pub terms: SiteTerms,
    /// Nodes that serve it.
    pub nodes: u16,
    /// Requests that wait, over all live edges.
    pub queued: u32,
    /// Requests in flight, over all live edges.
    pub in_flight: u32,
    /// Sum of `max_in_flight` of its nodes.
    pub capacity: u32,
    /// The load.
    pub load: f64,
    /// Mean time that its servers take for one request, in microseconds, as live edges measured it;
    /// 0 where nothing was measured yet.
    pub service_us: u32,
    /// How long it was below its hard guarantee, as this edge saw it.
    pub below_hard: BelowHard,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeState {
    /// The node.
    pub id: NodeId,
    /// Whether its region is mapped, or mirrored.
    pub attached: bool,
    /// How its record is read.
    pub link: Link,
    /// Whether its agent beats.
    pub alive: bool,
    /// Whether a person took it out of service.
    pub cordoned: bool,
    /// Its site.
    pub site: Option<SiteId>,
    /// The version of its assignment.
    pub version: u32,
    /// Requests in flight, over all live edges.
    pub in_flight: u32,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
    /// Whether it was seen serving its site.
    pub serving: bool,
    /// How its servers are, by the sites' index.
    pub servers: Vec<Phase>,
    /// How often these were started again, together.
    pub restarts: u32,
    /// How its service for edges elsewhere is scheduled.
    pub service: Service,
    /// What its agent tells of the machine.
    pub machine: Option<AgentStatus>,
}

/// One edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeState {
    /// The edge.
    pub id: EdgeId,
    /// What it tells about itself.
    pub row: EdgeRow,
    /// Whether its settings for the pool are this edge's.
    pub same_settings: bool,
}

/// One attempt at a move, with what followed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveLine {
    /// The attempt.
    pub record: MoveRecord,
    /// Between which moments this edge's compare-and-swap gave the node to its new site,
    /// nanoseconds of [`monotonic`](super::monotonic); none where it did not.
    pub swapped_ns: Option<(u64, u64)>,
    /// When this edge sent the first request to the node under the new version, nanoseconds of
    /// [`monotonic`](super::monotonic).
    pub first_dispatch_ns: Option<u64>,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopStatus {
    /// Which policy decides.
    pub policy: String,
    /// Whether decisions are only logged.
    pub observe: bool,
    /// Whether a person has paused all moves.
    pub paused: bool,
    /// Whether edges disagree about the settings; then nobody moves.
    pub settings_differ: bool,
    /// Whether the home's record is reached.
    pub home: bool,
    /// All sites.
    pub sites: Vec<SiteState>,
    /// All nodes.
    pub nodes: Vec<NodeState>,
    /// Live edges.
    pub edges: Vec<EdgeState>,
    /// Attempts at moves by this edge, oldest first.
    pub moves: Vec<MoveLine>,
    /// First requests that this edge sent to moved nodes, whichever edge moved them; oldest first.
    /// Empty where moves were not asked for.
    pub first_dispatches: Vec<FirstDispatch>,
    /// How many attempts there ever were.
    pub moves_total: u64,
    /// Counts since the start.
    pub counters: Counters,
    /// CPU time of one look, averaged.
    pub look_cost: Duration,
    /// The interval in force while busy.
    pub look_every: Duration,
    /// The interval in force now.
    pub look_every_now: Duration,
    /// Whether that is longer than the settings say.
    pub stretched: bool,
    /// What of the shared memory cannot be used, in words, with its place.
    pub faults: Vec<String>,
}
