//! What a rig is made of.

use super::stub_process::StubAddresses;
use crate::settings::PolicyName;
use load::generate::Cancel;
use std::path::PathBuf;
use std::time::Duration;

/// One site of a rig.
#[derive(Clone, Debug, PartialEq)]
pub struct RigSite {
    /// Its name; its host name is `NAME.test`.
    pub name: String,
    /// Nodes that it starts with.
    pub nodes: u16,
    /// Nodes that it never falls below by a move.
    pub hard: u16,
    /// Nodes that it gets back when it is loaded; `hard` when `None`.
    pub soft: Option<u16>,
    /// Its importance; the larger number goes first.
    pub priority: u8,
    /// What it promises its clients, for the policy `slo`; milliseconds.
    pub p99_ms: Option<u32>,
}

impl RigSite {
    /// A site with `nodes` nodes that keeps at least one.
    #[must_use]
    pub fn new(name: impl Into<String>, nodes: u16) -> Self {
        Self { name: name.into(), nodes, hard: 1, soft: None, priority: 0, p99_ms: None }
    }

    /// The same with this importance.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }

    /// The same with these guarantees.
    #[must_use]
    pub fn with_guarantee(self, hard: u16, soft: u16) -> Self {
        Self { hard, soft: Some(soft), ..self }
    }

    /// The same with this objective.
    #[must_use]
    pub fn with_objective(self, p99_ms: u32) -> Self {
        Self { p99_ms: Some(p99_ms), ..self }
    }

    /// The host name that requests for it carry.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.test", self.name)
    }
}

/// What every node of a rig can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RigNode {
    /// Requests served at the same time, `W`.
    pub workers: u32,
    /// Time that one request takes, `t`.
    pub service_time: Duration,
    /// Requests that edges send it at once.
    pub max_in_flight: u32,
    /// Length of a response's body.
    pub body_bytes: usize,
}

impl Default for RigNode {
    /// 2,000 requests per second: 4 workers, 2 ms; 8 requests at once; 1 KiB, as in the paper.
    fn default() -> Self {
        let service_time = Duration::from_millis(2);
        Self { workers: 4, service_time, max_in_flight: 8, body_bytes: 1_024 }
    }
}

impl RigNode {
    /// `W / t`, requests per second.
    #[must_use]
    pub fn capacity_per_second(&self) -> f64 {
        f64::from(self.workers) / self.service_time.as_secs_f64()
    }
}

/// Where a rig's servers come from.
#[derive(Clone, Debug, PartialEq)]
pub enum RigServers {
    /// One stub process serves all nodes and sites; the nodes have no agents.
    OneStub,
    /// Each node has an agent process, which starts a stub for each site.
    Agents,
    /// The same, but this program is started, with the placeholders of a site's `command`.
    Command(Vec<String>),
    /// Servers that run anyway, such as the stubs of another rig; the nodes have no agents.
    At(StubAddresses),
}

/// How clients reach the edges of a rig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RigFront {
    /// HTTP/1.1 in plain text.
    #[default]
    Http1,
    /// HTTP/2 too, in plain text, by prior knowledge.
    Http2,
    /// TLS only.
    Tls {
        /// The certificate of all sites, a PEM file.
        certificate: PathBuf,
        /// Its key, a PEM file.
        key: PathBuf,
    },
}

/// What a rig is made of.
#[derive(Clone, Debug)]
pub struct RigOptions {
    /// The pool's name, for logs.
    pub name: String,
    /// The sites; the pool has as many nodes as they start with together.
    pub sites: Vec<RigSite>,
    /// What every node can do.
    pub node: RigNode,
    /// Who decides on moves.
    pub policy: PolicyName,
    /// How clients reach the edges.
    pub front: RigFront,
    /// Edge processes.
    pub edges: u8,
    /// Threads of each edge; the product's default when `None`.
    pub threads: Option<u16>,
    /// How often a busy edge looks; the product's default when `None`.
    pub look_every_ms: Option<u32>,
    /// How long a load must last before a move; the product's default when `None`.
    pub hold_ms: Option<u32>,
    /// Requests that may wait for a site at one edge: enough that a burst is never refused.
    pub queue_max: u32,
    /// Where the servers come from.
    pub servers: RigServers,
    /// Further settings, as `--set` takes them: `pool.light_load=0.4`.
    pub overrides: Vec<String>,
    /// Ends the wait for a rig that starts.
    pub cancel: Cancel,
}

impl RigOptions {
    /// One edge of one thread, `reconf`, stub nodes of 2,000 requests per second, and the
    /// product's defaults for the rest.
    #[must_use]
    pub fn new(name: impl Into<String>, sites: Vec<RigSite>) -> Self {
        Self {
            name: name.into(),
            sites,
            node: RigNode::default(),
            policy: PolicyName::Reconf,
            front: RigFront::default(),
            edges: 1,
            threads: Some(1),
            look_every_ms: None,
            hold_ms: None,
            queue_max: 10_000,
            servers: RigServers::OneStub,
            overrides: Vec::new(),
            cancel: Cancel::default(),
        }
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.sites.iter().map(|site| usize::from(site.nodes)).sum()
    }

    /// The name of a node by its place.
    #[must_use]
    pub fn node_name(index: usize) -> String {
        format!("n{}", index + 1)
    }
}
