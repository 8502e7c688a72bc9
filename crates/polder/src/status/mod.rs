//! What a running pool tells of itself, and how it is shown.

mod cache;
mod render;
mod report;
mod terms;
mod traffic;

pub use cache::{CacheStatus, DiskStatus};
pub use render::{moves_table, status_text};
pub use report::{
    ChangeStatus, EdgeStatus, MoveRecord, NodeState, NodeStatus, PoolStatus, REPORT_VERSION,
    SiteStatus, StatusReport, Warning,
};
pub use terms::{BelowHardStatus, TermsStatus, TraitsStatus};
pub use traffic::{ClassStatus, TrafficStatus};

/// A small pool for tests.
#[cfg(test)]
pub(crate) fn example() -> StatusReport {
    let site = |name: &str, nodes| SiteStatus {
        name: name.into(),
        nodes,
        hard: 1,
        max: (name == "shop").then_some(4),
        load: Some(0.75),
        queued: 3,
        in_flight: 9,
        requests_per_s: 1_234.4,
        requests: 5_000,
        failed: 1,
        refused: 2,
        traffic: TrafficStatus::default(),
        classes: Vec::new(),
        terms: TermsStatus { soft: 1, hard_met: true, soft_met: true, ..TermsStatus::default() },
    };
    let node = |name: &str, site: Option<&str>, state| NodeStatus {
        name: name.into(),
        site: site.map(str::to_owned),
        version: 2,
        in_flight: 4,
        max_in_flight: 8,
        upgraded: 3,
        state,
        restarts: 1,
        servers: vec!["ready".into(), "starting".into()],
        scheduled: None,
        traits: TraitsStatus::default(),
    };
    StatusReport {
        version: REPORT_VERSION,
        pool: PoolStatus {
            name: "pool".into(),
            policy: "reconf".into(),
            mode: "move".into(),
            look_every_ms: 1,
            hold_ms: 2,
            uptime_s: 3_700,
            metrics: Some("127.0.0.1:9100".into()),
            ..PoolStatus::default()
        },
        sites: vec![site("shop", 1), site("blog", 1)],
        nodes: vec![
            node("n1", Some("shop"), NodeState::Serving),
            node("n2", Some("blog"), NodeState::Draining),
            node("n3", None, NodeState::Free),
        ],
        edges: vec![EdgeStatus {
            edge: 0,
            pid: 42,
            listen: vec!["127.0.0.1:8080".into()],
            alive: true,
            connections: 64,
            requests_per_s: 2_468.8,
            look_us: 3.5,
            look_every_ms: 1.0,
            look_cpu_pct: 1.9,
            moves: 12,
            ..EdgeStatus::default()
        }],
        warnings: vec![Warning::AgentDead { node: "n3".into() }],
    }
}
