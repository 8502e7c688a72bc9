//! What an agent is told when it starts, and the limits of it.

use crate::command::{self, BadCommand};
use pool_model::{NodeId, SiteId};
use remote_memory::Mapped;
use remote_memory::tcp::ResponderSettings;
use shared_state::words::Assign;
use std::collections::BTreeSet;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Everything an agent needs to know. [`Options::new`] fills in the defaults.
#[derive(Debug)]
pub struct Options {
    /// The node.
    pub node: NodeId,
    /// Its name, for programs, logs and messages.
    pub name: String,
    /// Requests that each of its servers takes at once, counted over all edges.
    pub max_in_flight: u32,
    /// Where edges get the node's region; the folder must be ours with mode 0700.
    pub region_socket: PathBuf,
    /// Where the running servers are noted, so that the next agent finds them.
    pub state_file: PathBuf,
    /// Where the servers' output goes: `NODE-SITE.log`.
    pub log_dir: PathBuf,
    /// The address that started servers listen on.
    pub host: Ipv4Addr,
    /// The servers; at most one for each site.
    pub servers: Vec<ServerSpec>,
    /// How often they are checked, and what follows.
    pub health: Health,
    /// Time between two beats while an edge watches, in ms.
    pub beat_ms: u64,
    /// Time between two beats while nobody watches, in ms.
    pub idle_beat_ms: u64,
    /// How long requests of the last site may finish before its server is stopped, in ms.
    pub drain_max_ms: u64,
    /// How long an edge's lease may stand still before its slot is ignored, in ms.
    pub slot_lease_ms: u64,
    /// What a new region starts with; edges join a free node.
    pub initial: Assign,
    /// The memory file of a dead agent's region (see [`crate::hold_region`]): its assignment is
    /// carried over, and it is given up.
    pub adopt: Option<OwnedFd>,
    /// Where edges on other machines reach the node's region, if they do.
    pub remote: Option<RemoteService>,
}

/// The service by which edges on other machines reach the node's region.
pub struct RemoteService {
    /// Where it listens.
    pub address: SocketAddr,
    /// Who may connect, and whether its thread shall run before others.
    pub settings: ResponderSettings,
    /// Regions that are served beside the node's: the home's, if this node holds it.
    pub also: Vec<Arc<dyn Mapped>>,
}

impl fmt::Debug for RemoteService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<_> = self.also.iter().map(|one| &one.descriptor().label).collect();
        f.debug_struct("RemoteService")
            .field("address", &self.address)
            .field("settings", &self.settings)
            .field("also", &labels)
            .finish()
    }
}

impl Options {
    /// Options with the defaults of every number, without servers.
    #[must_use]
    pub fn new(node: NodeId, name: &str, runtime_dir: &std::path::Path) -> Self {
        Self {
            node,
            name: name.to_owned(),
            max_in_flight: 8,
            region_socket: runtime_dir.join(format!("node-{name}.sock")),
            state_file: runtime_dir.join(format!("node-{name}.json")),
            log_dir: runtime_dir.to_owned(),
            host: Ipv4Addr::LOCALHOST,
            servers: Vec::new(),
            health: Health::default(),
            beat_ms: 10,
            idle_beat_ms: 500,
            drain_max_ms: 30_000,
            slot_lease_ms: 50,
            initial: Assign::FREE,
            adopt: None,
            remote: None,
        }
    }

    /// Checks what would otherwise fail later, or in a child process.
    ///
    /// # Errors
    /// The first thing that is wrong, by name.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.name.is_empty() || self.name.contains(['/', '\0']) {
            return Err(OptionsError::Name { name: self.name.clone() });
        }
        let mut seen = BTreeSet::new();
        for server in &self.servers {
            if !seen.insert(server.site) {
                return Err(OptionsError::TwoServers { site: server.name.clone() });
            }
            server.check_spec()?;
        }
        let health = &self.health;
        let positive = [
            ("beat_ms", self.beat_ms),
            ("idle_beat_ms", self.idle_beat_ms),
            ("slot_lease_ms", self.slot_lease_ms),
            ("check_every_ms", health.check_every_ms),
            ("idle_check_every_ms", health.idle_check_every_ms),
            ("check_timeout_ms", health.check_timeout_ms),
            ("rise", u64::from(health.rise)),
            ("fall", u64::from(health.fall)),
            ("restart_min_ms", health.restart_min_ms),
            ("unresponsive_max_ms", health.unresponsive_max_ms),
        ];
        for (setting, given) in positive {
            if given == 0 {
                return Err(OptionsError::Zero { setting });
            }
        }
        Ok(())
    }
}

/// How often servers are checked, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time between two checks of a server while an edge watches, in ms.
    pub check_every_ms: u64,
    /// The same while nobody watches, in ms; never more often than while one does. Each check
    /// costs some 100 us of CPU.
    pub idle_check_every_ms: u64,
    /// How long one check may take, in ms.
    pub check_timeout_ms: u64,
    /// Checks passed in a row that make a server ready.
    pub rise: u32,
    /// Checks failed in a row that make it failing.
    pub fall: u32,
    /// Pause before a server that died starts again, in ms; it doubles with each death.
    pub restart_min_ms: u64,
    /// The longest such pause, in ms.
    pub restart_max_ms: u64,
    /// A started server that has not passed a check for so long is replaced, in ms.
    pub unresponsive_max_ms: u64,
    /// Time between SIGTERM and SIGKILL, in ms.
    pub stop_timeout_ms: u64,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            check_every_ms: 1_000,
            idle_check_every_ms: 2_000,
            check_timeout_ms: 1_000,
            rise: 1,
            fall: 3,
            restart_min_ms: 100,
            restart_max_ms: 10_000,
            unresponsive_max_ms: 30_000,
            stop_timeout_ms: 5_000,
        }
    }
}

/// The server of one site on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSpec {
    /// The site.
    pub site: SiteId,
    /// The site's name.
    pub name: String,
    /// Where the server comes from.
    pub kind: ServerKind,
    /// What it must answer.
    pub check: Check,
}

/// Where a server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// The agent starts it.
    Command(Program),
    /// It runs anyway, here; the agent only checks it.
    Address(SocketAddrV4),
}

/// A program that the agent starts. `{port}`, `{host}`, `{node}` and `{site}` are filled in, and
/// it finds the same as `PORT`, `HOST`, `NODE` and `SITE` in its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Environment besides what the agent itself inherited; placeholders are filled in here too.
    pub env: Vec<(String, String)>,
    /// When it starts.
    pub start: Start,
}

/// When a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the agent: a move to its site takes effect at once.
    Warm,
    /// When the node is assigned to its site; it stops when the site has left and is drained.
    OnAssignment,
}

/// What a server must answer to count as running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Status 200 to 399 to a GET of this path.
    Http {
        /// The path, from the slash on.
        path: String,
    },
    /// A connection. A stopped process passes as long as the kernel accepts for it.
    Tcp,
}

impl ServerSpec {
    fn check_spec(&self) -> Result<(), OptionsError> {
        if self.name.is_empty() || self.name.contains(['/', '\0']) {
            return Err(OptionsError::Name { name: self.name.clone() });
        }
        if let Check::Http { path } = &self.check
            && !(path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic()))
        {
            let (site, path) = (self.name.clone(), path.clone());
            return Err(OptionsError::Path { site, path });
        }
        match &self.kind {
            ServerKind::Address(address) if address.port() == 0 => {
                Err(OptionsError::NoPort { site: self.name.clone() })
            }
            ServerKind::Address(_) => Ok(()),
            ServerKind::Command(program) => command::check(program)
                .map_err(|source| OptionsError::Command { site: self.name.clone(), source }),
        }
    }

    pub(crate) fn is_command(&self) -> bool {
        matches!(self.kind, ServerKind::Command(_))
    }

    /// Whether its server only runs while the node has its site.
    pub(crate) fn is_on_assignment(&self) -> bool {
        matches!(&self.kind, ServerKind::Command(p) if p.start == Start::OnAssignment)
    }
}

/// What is wrong with [`Options`].
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionsError {
    /// Names are parts of file names.
    #[error("the name {name:?} is empty or has a slash or a zero byte")]
    Name {
        /// The name.
        name: String,
    },
    /// A site has one server on a node.
    #[error("site {site} has two servers on this node")]
    TwoServers {
        /// The site.
        site: String,
    },
    /// A number that must be positive is zero.
    #[error("{setting} is zero")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// A check's path goes into a request line.
    #[error("site {site}: the check's path {path:?} must start with / and have no blank")]
    Path {
        /// The site.
        site: String,
        /// The path.
        path: String,
    },
    /// A server at an address needs a port.
    #[error("site {site}: the server's address has no port")]
    NoPort {
        /// The site.
        site: String,
    },
    /// A program cannot run.
    #[error("site {site}: {source}")]
    Command {
        /// The site.
        site: String,
        /// Why.
        source: BadCommand,
    },
}

pub(crate) fn ms(value_ms: u64) -> Duration {
    Duration::from_millis(value_ms)
}
