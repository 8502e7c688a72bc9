//! Settings as the rest of the program sees them: typed, complete, and checked.

use edge::{LogFormat, LogTarget, Network, ProxyVersion, Upstream};
pub use policy::Kind as PolicyName;
use policy::choose::Balance;
use pool_model::{Classes, NodeId, NodeTraits, SiteId, SiteTerms};
use shared_state::versions::SlotBits;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

/// Everything that one settings file says, defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How the nodes are shared.
    pub pool: Pool,
    /// Where clients connect; at least one, at most 64. The index is the edge's id.
    pub edges: Vec<Edge>,
    /// Limits and time-outs of all edges.
    pub http: Http,
    /// When a server counts as failing.
    pub health: Health,
    /// Where requests are noted.
    pub access_log: AccessLog,
    /// How roles on several machines reach each other.
    pub remote: Remote,
    /// The sites; the index is the id less one ([`SiteId::from_index`]).
    pub sites: Vec<Site>,
    /// The nodes, those of a `count` one by one; the index is the id.
    pub nodes: Vec<Node>,
    /// The names of all classes that sites or nodes have, sorted; the index is the bit in
    /// [`pool_model::Classes`].
    pub classes: Vec<String>,
}

/// `[pool]`: how the nodes are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// The pool's name.
    pub name: String,
    /// Who decides.
    pub policy: PolicyName,
    /// Whether decisions are carried out.
    pub mode: Mode,
    /// How often a busy edge looks.
    pub look_every_ms: u32,
    /// How often an idle edge looks.
    pub idle_look_every_ms: u32,
    /// How long a load must last before a move.
    pub hold_ms: u32,
    /// The load above which a site wants a node.
    pub high_load: f64,
    /// The load below which a site may give one.
    pub light_load: f64,
    /// How long requests in flight may finish after a move.
    pub drain_max_ms: u32,
    /// How long a node's heartbeat may stand still.
    pub node_dead_ms: u32,
    /// How long an edge's lease may stand still.
    pub slot_lease_ms: u32,
    /// The folder for sockets, if one is named.
    pub runtime_dir: Option<PathBuf>,
    /// Where `/metrics` is served, if at all.
    pub metrics: Option<SocketAddr>,
    /// The node whose agent holds the site record, if one is named; see [`Settings::home`].
    pub home: Option<String>,
}

/// `[remote]`: how roles on several machines reach each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// The file of the pool's key.
    pub key_file: Option<PathBuf>,
    /// Whether loopback addresses do without a key.
    pub plain_on_loopback: bool,
    /// How long an operation may take.
    pub deadline_ms: u32,
    /// How long connecting may take.
    pub connect_ms: u32,
    /// Whether agents answer edges before all else that runs on their machines.
    pub realtime: bool,
}

/// The policies, in the order of the schema.
pub(super) const POLICIES: [PolicyName; 6] = [
    PolicyName::Reconf,
    PolicyName::Rigid,
    PolicyName::ReconfP,
    PolicyName::ReconfPq,
    PolicyName::Staged,
    PolicyName::Slo,
];

/// Which terms of sites and traits of nodes a policy reads, besides `hard` and `max`, and that a
/// site's nodes can serve it at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// `priority`.
    pub priority: bool,
    /// `soft`.
    pub soft: bool,
    /// `p99_ms`.
    pub objective: bool,
    /// `capacity_pct`, and `unfit_pct` between 1 and 99.
    pub fitness: bool,
}

impl Reads {
    /// What this policy reads.
    #[must_use]
    pub const fn of(policy: PolicyName) -> Self {
        let none = Self { priority: false, soft: false, objective: false, fitness: false };
        match policy {
            PolicyName::Rigid | PolicyName::Reconf => none,
            PolicyName::ReconfP => Self { priority: true, ..none },
            PolicyName::ReconfPq => Self { priority: true, soft: true, ..none },
            PolicyName::Staged => Self { priority: true, soft: true, fitness: true, ..none },
            PolicyName::Slo => Self { priority: true, soft: true, objective: true, ..none },
        }
    }
}

/// Whether decisions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Nodes move.
    Move,
    /// Decisions are logged only.
    Observe,
}

impl Mode {
    /// The word in settings and status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Move => "move",
            Self::Observe => "observe",
        }
    }
}

/// `[[edges]]`: one edge process.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Where clients connect without TLS.
    pub listen: Vec<SocketAddr>,
    /// Where they connect with TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// Whether clients of `listen` may begin with HTTP/2.
    pub http2_plain: bool,
    /// Threads that carry requests; one for each core if none are named.
    pub threads: Option<u16>,
    /// Whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol: Vec<Network>,
}

impl Edge {
    /// All addresses: first those without TLS, then those with it.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listen.iter().chain(&self.tls_listen).copied()
    }
}

/// `[http]`: limits and time-outs of all edges.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// The site of requests for a host that no site names.
    pub default_site: Option<String>,
    /// What becomes of a client's forwarding headers.
    pub forwarded: Forwarded,
    /// Client connections of one edge.
    pub connections_max: u32,
    /// Header lines of one request.
    pub headers_max: u16,
    /// Bytes of a request's head.
    pub header_bytes_max: u32,
    /// Bytes of a request's target.
    pub uri_bytes_max: u32,
    /// Bytes of a request's body.
    pub body_bytes_max: u64,
    /// Whether HTTP/2 is offered by TLS.
    pub http2: bool,
    /// Requests at once on one HTTP/2 connection.
    pub http2_streams_max: u32,
    /// Bytes of one HTTP/2 request's body under way.
    pub http2_stream_window_bytes: u32,
    /// Bytes of all bodies of one HTTP/2 connection under way.
    pub http2_connection_window_bytes: u32,
    /// Requests that a client may give up on one HTTP/2 connection.
    pub http2_resets_max: u32,
    /// How long a request's head may take.
    pub header_timeout_ms: u32,
    /// How long a body may stand still.
    pub body_idle_timeout_ms: u32,
    /// How long a client's connection may wait for its next request.
    pub keep_alive_idle_ms: u32,
    /// How long a connection to a server may take.
    pub connect_timeout_ms: u32,
    /// From the end of the request to the head of its response.
    pub response_header_timeout_ms: u32,
    /// How long a body with `Expect: 100-continue` waits for the server's word.
    pub expect_wait_ms: u32,
    /// Further tries of one request.
    pub retries_max: u8,
    /// A longer body is not kept for a retry.
    pub retry_body_max_bytes: u32,
    /// Idle connections kept to one server by each thread.
    pub upstream_idle_max: u32,
    /// How long such a connection is kept.
    pub upstream_idle_ms: u32,
    /// Who speaks with the servers.
    pub upstream: Upstream,
    /// Whether clients may switch to another protocol.
    pub upgrades: bool,
    /// Upgraded connections of one edge.
    pub upgraded_max: u32,
    /// How long nothing may move on one.
    pub upgrade_idle_ms: u32,
    /// Memory of one edge for what is kept.
    pub cache_bytes: u64,
    /// Where an edge keeps what its memory has no room for, and how much.
    pub cache_disk: Option<cache::DiskLimits>,
    /// Whether requests get an id.
    pub request_id: bool,
    /// Whether requests get a place in a trace.
    pub trace: bool,
}

/// `[access_log]`: where requests are noted.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLog {
    /// Where it is written, if at all.
    pub target: Option<LogTarget>,
    /// How its lines look.
    pub format: LogFormat,
    /// Lines that may wait, for each thread of an edge.
    pub queue_max: u32,
}

/// What becomes of a client's `X-Forwarded-*` and `Forwarded`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forwarded {
    /// They are dropped and written anew.
    Rewrite,
    /// They are kept and continued.
    Append,
}

/// `[health]`: when a server counts as failing.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Failures in a row that eject a server.
    pub failures_max: u32,
    /// How long it stays ejected the first time.
    pub eject_ms: u32,
    /// The share of a site's servers that may be ejected at once.
    pub eject_max_pct: u8,
    /// How often an agent checks a server.
    pub check_every_ms: u32,
    /// How long one check may take.
    pub check_timeout_ms: u32,
    /// Checks passed in a row that make a server ready.
    pub rise: u8,
    /// Checks failed in a row that make it failing.
    pub fall: u8,
    /// A started server that passes no check for so long is replaced.
    pub unresponsive_max_ms: u32,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout_ms: u32,
}

/// `[[sites]]`: one site.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Its host names, lower case; `*.` in front stands for all names below.
    pub hosts: Vec<String>,
    /// What the policy knows of it.
    pub terms: SiteTerms,
    /// How many nodes it starts with.
    pub nodes: u16,
    /// Which server takes the next request.
    pub balance: Balance,
    /// Requests that may wait at one edge.
    pub queue_max: u32,
    /// How long one may wait.
    pub queue_timeout_ms: u32,
    /// The program that serves it on a node, with placeholders; empty for none.
    pub command: Vec<String>,
    /// When the program starts.
    pub start: Start,
    /// How a server is checked.
    pub check: Check,
    /// Its certificate, if it has one.
    pub tls: Option<SiteTls>,
    /// Whether, and how, a server is told of the client.
    pub proxy_protocol_out: Option<ProxyVersion>,
    /// Over how long a server that came gets to its whole share.
    pub slow_start_ms: u32,
    /// Which requests go to one server.
    pub sticky: Option<Sticky>,
    /// How many requests each edge lets in.
    pub rate: edge::RateOptions,
    /// Which of its requests go first.
    pub admission: Vec<edge::ClassRule>,
    /// Its version table, if it has one.
    pub tags: Option<Tags>,
    /// What the edges keep of its responses.
    pub cache: Arc<cache::Rules>,
    /// Who may invalidate them over HTTP.
    pub purge: Option<Purge>,
}

/// Who may invalidate a site's responses over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The addresses that a request must come from.
    pub from: Vec<Network>,
    /// A file with what it must carry besides.
    pub token_file: Option<PathBuf>,
}

/// A site's version table, and who may tell of changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// How many words it has.
    pub words: SlotBits,
    /// A socket for writers of other users, beside that in the pool's folder.
    pub socket: Option<PathBuf>,
    /// The group that may use that socket: a name or a number; else its owner alone.
    pub group: Option<String>,
    /// Where it is served over TCP.
    pub listen: Option<SocketAddr>,
    /// How edges read it.
    pub read: TagsRead,
    /// The files of its static servers, whose changes are watched.
    pub files: Option<Files>,
}

/// The files of a site's static servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The folder with them.
    pub root: PathBuf,
    /// Where they lie in the site's URLs.
    pub at: String,
}

/// How edges read a version table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagsRead {
    /// In memory that they map.
    #[default]
    Memory,
    /// Over TCP.
    Tcp,
}

/// `tls` of a site: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTls {
    /// The certificate with those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show a certificate.
    pub client_certificate: ClientCertificate,
}

/// Whether clients of a site show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientCertificate {
    /// They are not asked.
    Off,
    /// They may.
    Optional,
    /// They must.
    Required,
}

impl ClientCertificate {
    /// The word in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

/// `sticky` of a site: which requests go to one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// By what.
    pub by: StickyBy,
    /// How long a request waits for its server.
    pub wait_ms: u32,
}

/// What requests to one server have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StickyBy {
    /// A cookie that the edge sets.
    Cookie {
        /// Its name.
        name: String,
        /// The file of the secret that it is made from.
        key_file: Option<PathBuf>,
    },
    /// Their part of a hash.
    Hash(edge::HashBy),
}

/// When a site's program starts on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// At once, on each node.
    Warm,
    /// When the node is assigned to the site.
    OnAssignment,
}

/// How a server is checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// A connection passes.
    Tcp,
    /// A response of 200 to 399 to a GET of this path passes.
    Path(String),
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
    /// What the policy knows of it.
    pub traits: NodeTraits,
    /// Where its agent serves its record to edges on other machines, if it does.
    pub address: Option<SocketAddr>,
    /// Where its servers come from.
    pub servers: Servers,
}

/// Where a node's servers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Servers {
    /// An agent starts the sites' programs, which listen on this address.
    Agent {
        /// An address of the node's machine; a loopback address if the node has no address.
        host: Ipv4Addr,
    },
    /// They run anyway, one address for each site, in the order of the sites.
    Addresses(Vec<SocketAddrV4>),
}

impl Settings {
    /// A site by its name.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<(SiteId, &Site)> {
        let index = self.sites.iter().position(|site| site.name == name)?;
        Some((SiteId::from_index(index).ok()?, &self.sites[index]))
    }

    /// A node by its name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<(NodeId, &Node)> {
        let index = self.nodes.iter().position(|node| node.name == name)?;
        Some((NodeId::new(u16::try_from(index).ok()?).ok()?, &self.nodes[index]))
    }

    /// Which site each node starts with, in the order of the nodes: the first site takes the
    /// first nodes that it can use, and so on, as far as others do not need them more; those left
    /// over are free.
    #[must_use]
    pub fn first_assignment(&self) -> Vec<Option<SiteId>> {
        super::fit::first_assignment(&self.sites, &self.nodes)
    }

    /// The names of a set of classes.
    pub fn class_names(&self, classes: Classes) -> impl Iterator<Item = &str> {
        let is_in = move |(place, _): &(usize, &String)| classes.0 >> place & 1 == 1;
        self.classes.iter().enumerate().filter(is_in).map(|(_, name)| name.as_str())
    }
}
