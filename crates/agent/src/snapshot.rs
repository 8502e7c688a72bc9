//! What an agent says about itself, for `status` and for tests.

use serde::Serialize;
use std::net::SocketAddrV4;

/// One look at an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// The node's name.
    pub node: String,
    /// The agent's process.
    pub pid: u32,
    /// Whether an edge watches.
    pub watched: bool,
    /// The number of the site that the node is assigned to.
    pub assigned_site: Option<u16>,
    /// The version of the assignment.
    pub assigned_version: u32,
    /// The servers, by site.
    pub servers: Vec<ServerStatus>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStatus {
    /// The site's number.
    pub site: u16,
    /// The site's name.
    pub name: String,
    /// How it is: absent, starting, ready, failing, stopping.
    pub phase: &'static str,
    /// Whether a move to its site takes effect at once.
    pub warm: bool,
    /// Its process, if the agent started it and it runs.
    pub pid: Option<u32>,
    /// Where it listens.
    pub address: Option<SocketAddrV4>,
    /// How often it was started again.
    pub restarts: u32,
    /// What went wrong last.
    pub last_error: Option<String>,
}
