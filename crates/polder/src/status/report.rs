//! What a pool tells of itself: one struct, printed as a table, as JSON and as metrics.
//!
//! Each edge reports the whole pool as its last look saw it, and its own requests; the parent
//! process of `polder up` puts the reports of its edges together ([`StatusReport::merge`]).

use super::cache::CacheStatus;
use super::terms::{TermsStatus, TraitsStatus};
use super::traffic::{ClassStatus, TrafficStatus};
use crate::settings::{KeyChange, SettingsHash};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The version of the report's form; grows with each change that a reader could trip over.
pub const REPORT_VERSION: u32 = 1;

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// The pool as a whole.
    pub pool: PoolStatus,
    /// The sites, in the order of the settings.
    pub sites: Vec<SiteStatus>,
    /// The nodes, in the order of the settings.
    pub nodes: Vec<NodeStatus>,
    /// The edges, by index.
    pub edges: Vec<EdgeStatus>,
    /// What a person should know.
    pub warnings: Vec<Warning>,
}

/// The pool as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The policy's name.
    pub policy: String,
    /// `move` or `observe`.
    pub mode: String,
    /// Whether moves are paused by a person.
    pub paused: bool,
    /// The hash of its settings.
    pub settings_hash: SettingsHash,
    /// How often a busy edge looks.
    pub look_every_ms: u32,
    /// How long a load must last before a move.
    pub hold_ms: u32,
    /// How long it has been running.
    pub uptime_s: u64,
    /// Where `/metrics` is served.
    pub metrics: Option<String>,
    /// The version of the parent's program.
    #[serde(default)]
    pub program: String,
    /// The parent's process.
    #[serde(default)]
    pub pid: u32,
    /// Reloads that changed something or could have, since the pool started.
    #[serde(default)]
    pub reloads: u32,
    /// How often another program took the parent's place.
    #[serde(default)]
    pub upgrades: u32,
    /// The last change of settings or program.
    #[serde(default)]
    pub change: Option<ChangeStatus>,
    /// Keys that were set while it runs, and differ from the file: from what it said when it was
    /// read last to what holds until it is read again.
    #[serde(default)]
    pub differs: Vec<KeyChange>,
}

/// A reload, a set of a site's keys, or an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeStatus {
    /// `reload`, `site set` or `upgrade`.
    pub what: String,
    /// When it began; milliseconds since 1970.
    pub at_unix_ms: u64,
    /// How it went; none while it is under way.
    pub succeeded: Option<bool>,
    /// What was done, or why not.
    pub text: String,
}

/// One site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteStatus {
    /// Its name.
    pub name: String,
    /// Nodes that serve it.
    pub nodes: u32,
    /// Nodes that it is promised.
    pub hard: u32,
    /// Nodes that it may have; none for any number.
    pub max: Option<u32>,
    /// `(in flight + queued) / sum of max_in_flight`; none without a node.
    pub load: Option<f64>,
    /// Requests that wait, over all edges.
    pub queued: u64,
    /// Requests in flight, over all edges.
    pub in_flight: u64,
    /// Requests answered in the last second, over the edges of this report.
    pub requests_per_s: f64,
    /// Requests taken since the start.
    pub requests: u64,
    /// Of these, those that failed through no fault of the client.
    pub failed: u64,
    /// Of these, those refused with 503 because the queue was full or the wait too long.
    pub refused: u64,
    /// What the edges did with them besides.
    #[serde(default)]
    pub traffic: TrafficStatus,
    /// Its admission classes, the most important first; empty where it has none.
    #[serde(default)]
    pub classes: Vec<ClassStatus>,
    /// What else it was promised, and how that is kept.
    #[serde(default)]
    pub terms: TermsStatus,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// The site whose new requests it accepts.
    pub site: Option<String>,
    /// How often it has moved.
    #[serde(default)]
    pub version: u32,
    /// Requests in flight, over all edges and sites.
    pub in_flight: u32,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
    /// Upgraded connections, over the edges of this report: none of the above.
    pub upgraded: u64,
    /// How it is.
    pub state: NodeState,
    /// How often its servers were started again.
    pub restarts: u32,
    /// The state of its server for each site, in the order of the sites; `absent`, `starting`,
    /// `ready`, `failing` or `stopping`.
    pub servers: Vec<String>,
    /// How its agent's service for edges on other machines is scheduled: `real time`, or
    /// `normal: ` and why; none under `polder up`.
    #[serde(default)]
    pub scheduled: Option<String>,
    /// What it is.
    #[serde(default)]
    pub traits: TraitsStatus,
}

/// How a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It serves its site.
    Serving,
    /// It has no site.
    #[default]
    Free,
    /// Its server for its site is not ready.
    Waiting,
    /// It is taken out of service; requests in flight finish.
    Draining,
    /// Its agent is dead: it serves on, and takes no part in moves.
    AgentDead,
    /// Its record cannot be read.
    Unreachable,
}

impl NodeState {
    /// As shown.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Free => "free",
            Self::Waiting => "waiting",
            Self::Draining => "draining",
            Self::AgentDead => "agent-dead",
            Self::Unreachable => "unreachable",
        }
    }
}

/// One edge.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Its number.
    pub edge: u32,
    /// Its process.
    pub pid: u32,
    /// Where clients connect.
    pub listen: Vec<String>,
    /// Whether it answered.
    pub alive: bool,
    /// Client connections.
    pub connections: u64,
    /// Requests answered in the last second.
    pub requests_per_s: f64,
    /// How long the median look of the last second took.
    pub look_us: f64,
    /// The interval between looks at present.
    pub look_every_ms: f64,
    /// The look loop's share of a core in the last second, in percent.
    pub look_cpu_pct: f64,
    /// The hash of its settings.
    pub settings_hash: SettingsHash,
    /// Moves that it carried out since its start.
    pub moves: u64,
    /// How long its process has been running.
    #[serde(default)]
    pub age_s: u64,
    /// The version of its program.
    #[serde(default)]
    pub program: String,
    /// Whether it takes no more requests and ends once those in flight are done.
    #[serde(default)]
    pub leaving: bool,
    /// TLS handshakes that were completed.
    pub tls_handshakes: u64,
    /// TLS handshakes that failed.
    pub tls_failures: u64,
    /// Its connections that were upgraded to another protocol.
    pub upgraded: u64,
    /// Connections closed because they did not begin with a header of the PROXY protocol.
    pub proxy_headers_refused: u64,
    /// Lines of the access log that were dropped.
    pub access_log_dropped: u64,
    /// Its cache, where a site has one.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
}

/// Something that a person should know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Warning {
    /// Edges have different settings: none of them moves nodes.
    SettingsDiffer {
        /// One of those that differ from the first.
        edge: u32,
        /// Its hash.
        hash: SettingsHash,
    },
    /// Looking costs too much of a core, and is done less often.
    LookStretched {
        /// The edge.
        edge: u32,
        /// How often it looks.
        look_every_ms: f64,
        /// How often it should.
        wanted_ms: f64,
    },
    /// A site has fewer nodes than it was promised.
    BelowHard {
        /// The site.
        site: String,
        /// What it has.
        nodes: u32,
        /// What it was promised.
        hard: u32,
    },
    /// An edge does not answer.
    EdgeDead {
        /// The edge.
        edge: u32,
    },
    /// An agent does not beat.
    AgentDead {
        /// Its node.
        node: String,
    },
    /// A server's checks fail.
    ServerFailing {
        /// The node.
        node: String,
        /// The site.
        site: String,
    },
    /// Servers of a site pass their checks and fail requests.
    RequestsFail {
        /// The site.
        site: String,
        /// The edge that sees it.
        edge: u32,
        /// How many servers.
        failing: u32,
        /// How many of them get no requests for a while.
        ejected: u32,
    },
    /// Something else, in words.
    Other {
        /// The words.
        text: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SettingsDiffer { edge, hash } => write!(
                f,
                "edge {edge} has other settings (hash {hash}): no edge moves nodes until they agree"
            ),
            Self::LookStretched { edge, look_every_ms, wanted_ms } => write!(
                f,
                "edge {edge} looks every {look_every_ms:.1} ms instead of {wanted_ms:.1}: a look \
                 costs too much here"
            ),
            Self::BelowHard { site, nodes, hard } => {
                write!(f, "site {site} has {nodes} of the {hard} nodes that it was promised")
            }
            Self::EdgeDead { edge } => write!(f, "edge {edge} does not answer"),
            Self::AgentDead { node } => {
                write!(f, "the agent of node {node} is dead: it serves on, and does not move")
            }
            Self::ServerFailing { node, site } => {
                write!(f, "the server for {site} on node {node} fails its checks")
            }
            Self::RequestsFail { site, edge, failing, ejected: 0 } => write!(
                f,
                "{failing} servers of {site} fail requests at edge {edge}: too many to leave out, \
                 so they get requests all the same"
            ),
            Self::RequestsFail { site, edge, failing, .. } => write!(
                f,
                "{failing} servers of {site} fail requests at edge {edge}, which leaves them out \
                 for a while"
            ),
            Self::Other { text } => f.write_str(text),
        }
    }
}

/// One move, as the log keeps it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MoveRecord {
    /// When it took effect; milliseconds since 1970, by the edge's clock. For people only.
    pub at_unix_ms: u64,
    /// The node.
    pub node: String,
    /// The donor; none for a free node.
    pub from: Option<String>,
    /// The taker; none to set it free.
    pub to: Option<String>,
    /// Why: `load`, `floor`, `take-back` or `admin`; or `freed`: its assignment was noise, and it
    /// was set free; whose it had been isn't known, so there is neither donor nor taker.
    pub reason: String,
    /// The taker's load when it was decided.
    pub load: Option<f64>,
    /// The edge that made it.
    pub edge: u32,
    /// From the look that decided to the first request at the moved node, in milliseconds; none if
    /// none came.
    pub move_ms: Option<f64>,
    /// Whether it was only decided, not made (mode `observe`).
    pub observed_only: bool,
    /// The look that decided, nanoseconds of the machine's monotonic clock. For figures.
    #[serde(default)]
    pub decided_ns: u64,
    /// When it took effect, by the same clock.
    #[serde(default)]
    pub effect_ns: u64,
    /// The first request to the moved node, by the same clock.
    #[serde(default)]
    pub first_dispatch_ns: Option<u64>,
    /// How often the node has moved, this move included.
    #[serde(default)]
    pub version: Option<u32>,
    /// A moment before it took effect and one after it, by the same clock: as near as can be told.
    #[serde(default)]
    pub swapped_ns: Option<(u64, u64)>,
}

impl StatusReport {
    /// One report of several edges' reports. What all of them see alike is taken from the one
    /// that looked most often of late; what each counts for itself is added up. `None` for none.
    #[must_use]
    pub fn merge(mut reports: Vec<Self>) -> Option<Self> {
        reports.sort_by_key(|report| report.edges.first().map_or(u32::MAX, |edge| edge.edge));
        let busiest = reports
            .iter()
            .enumerate()
            .min_by(|(_, one), (_, other)| one.look_every_ms().total_cmp(&other.look_every_ms()))
            .map(|(place, _)| place)?;
        let mut merged = reports.swap_remove(busiest);
        for report in reports {
            for (site, other) in merged.sites.iter_mut().zip(&report.sites) {
                site.requests_per_s += other.requests_per_s;
                site.requests += other.requests;
                site.failed += other.failed;
                site.refused += other.refused;
                site.traffic.add(&other.traffic);
                ClassStatus::add_all(&mut site.classes, &other.classes);
                site.terms.add(&other.terms);
            }
            for (node, other) in merged.nodes.iter_mut().zip(&report.nodes) {
                node.upgraded += other.upgraded;
            }
            merged.pool.uptime_s = merged.pool.uptime_s.max(report.pool.uptime_s);
            merged.pool.paused |= report.pool.paused;
            merged.edges.extend(report.edges);
            for warning in report.warnings {
                if !merged.warnings.contains(&warning) {
                    merged.warnings.push(warning);
                }
            }
        }
        merged.edges.sort_by_key(|edge| edge.edge);
        merged.warn_of_difference();
        Some(merged)
    }

    fn look_every_ms(&self) -> f64 {
        self.edges.first().map_or(f64::INFINITY, |edge| edge.look_every_ms)
    }

    fn warn_of_difference(&mut self) {
        let Some(first) = self.edges.first() else { return };
        let differs = |edge: &&EdgeStatus| edge.settings_hash != first.settings_hash;
        if let Some(edge) = self.edges.iter().find(differs) {
            let (edge, hash) = (edge.edge, edge.settings_hash);
            let warning = Warning::SettingsDiffer { edge, hash };
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }

    /// Why the pool is not healthy; empty if it is. `/healthz` answers by this.
    #[must_use]
    pub fn ailments(&self) -> Vec<String> {
        let mut ailments: Vec<String> = self
            .sites
            .iter()
            .filter(|site| site.nodes < site.hard)
            .map(|site| format!("site {} has {} of {} nodes", site.name, site.nodes, site.hard))
            .collect();
        if !self.edges.iter().any(|edge| edge.alive) {
            ailments.push("no edge is alive".into());
        }
        ailments
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn reports_of_edges_become_one() {
        let first = example();
        let mut second = example();
        second.edges[0].edge = 7;
        second.edges[0].look_every_ms = 0.5;
        second.sites[0].queued = 99;
        second.edges[0].settings_hash = SettingsHash(5);
        (second.sites[0].terms.slower, second.sites[0].terms.below_hard.node_s) = (7, 2.5);
        let merged = StatusReport::merge(vec![second, first.clone()]).unwrap();
        assert_eq!(merged.edges.iter().map(|edge| edge.edge).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(merged.sites[0].requests, 2 * first.sites[0].requests);
        assert_eq!(merged.sites[0].terms.slower, 7);
        assert_eq!(merged.sites[0].terms.below_hard.node_s, 2.5);
        // The busier edge's view holds for what both see.
        assert_eq!(merged.sites[0].queued, 99);
        let differ = Warning::SettingsDiffer { edge: 7, hash: SettingsHash(5) };
        assert!(merged.warnings.contains(&differ));
        assert!(StatusReport::merge(vec![]).is_none());
    }

    #[test]
    fn a_report_survives_json() {
        let report = example();
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<StatusReport>(&text).unwrap(), report);
    }

    #[test]
    fn ailments_are_told() {
        let mut report = example();
        assert_eq!(report.ailments(), Vec::<String>::new());
        report.sites[0].nodes = 0;
        report.edges[0].alive = false;
        assert_eq!(report.ailments(), ["site shop has 0 of 1 nodes", "no edge is alive"]);
    }
}
