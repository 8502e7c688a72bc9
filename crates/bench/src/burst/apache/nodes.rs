//! Nodes with a share of a core each, and what each of them serves alone.

use anyhow::{Context as _, ensure};
use lab::{Apache, ApacheOptions, ApacheProgram, ApacheServer, Group, Groups, Quota};
use load::generate::{Generator, GeneratorOptions, SiteTarget};
use load::stats::median;
use polder::rig::{RigNode, RigOptions, RigServers};
use serde::Serialize;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

/// How long each node is measured: 80 periods of its quota.
const CAPACITY_FOR: Duration = Duration::from_millis(400);
/// A node that used less of its quota under load was kept from it by the machine.
const USED_PCT_MIN: f64 = 98.0;
/// Tries to measure a node undisturbed.
const CAPACITY_TRIES_MAX: usize = 3;
/// Servers that have just started are left alone until all of them together take less than this
/// share of a core ...
const SETTLED_CORES: f64 = 0.02;
/// ... within such a time ...
const SETTLE_WINDOW: Duration = Duration::from_millis(100);
/// ... but no longer than this: the measurement then shows that they are not.
const SETTLE_WINDOWS_MAX: usize = 50;

/// The nodes of one pool.
pub(crate) struct Nodes {
    pool: &'static str,
    apache: Apache,
    /// With their names.
    groups: Vec<(String, Group)>,
}

/// What one node served alone, with as many requests in flight as edges send it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct NodeCapacity {
    pub(super) node: String,
    pub(super) per_second: f64,
    /// CPU time of Apache; microseconds per request.
    pub(super) cpu_us: f64,
    /// Of its quota.
    pub(super) used_pct: f64,
    /// Periods in which the quota stopped it, of those in which it ran.
    pub(super) throttled_pct: f64,
}

impl Nodes {
    /// Groups and configuration; no server runs yet.
    pub(crate) fn make(
        pool: &'static str,
        count: usize,
        program: &ApacheProgram,
        options: &ApacheOptions,
        groups: &mut Groups,
        quota: Quota,
    ) -> anyhow::Result<Self> {
        let apache = Apache::prepare(program, options)?;
        let mut made = Vec::new();
        for name in (0..count).map(RigOptions::node_name) {
            let group = groups.add(&group_name(pool, &name), quota)?;
            made.push((name, group));
        }
        Ok(Self { pool, apache, groups: made })
    }

    /// What agents start.
    pub(crate) fn servers(&self, groups: &Groups) -> RigServers {
        let join_path = groups.join_path(&group_name(self.pool, "{node}"));
        RigServers::Command(self.apache.command(&join_path))
    }

    pub(super) fn quota(&self) -> Quota {
        self.groups[0].1.quota()
    }

    /// CPU time of all servers so far.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.groups.iter().map(|(_, group)| group.cpu_ns()).sum()
    }

    /// Blocks until servers that have just started are idle, or for five seconds.
    fn settle(&self) {
        for _ in 0..SETTLE_WINDOWS_MAX {
            let before_ns = self.cpu_ns();
            sleep(SETTLE_WINDOW);
            let spent_ns = self.cpu_ns().saturating_sub(before_ns) as f64;
            if spent_ns < SETTLED_CORES * SETTLE_WINDOW.as_nanos() as f64 {
                return;
            }
        }
    }

    /// Loads one server of each node in turn. Blocks for [`CAPACITY_FOR`] for each, and again for
    /// one that the machine kept from its quota.
    pub(super) fn capacities(&self, path: &str) -> anyhow::Result<Vec<NodeCapacity>> {
        self.settle();
        let servers = self.apache.servers()?;
        let mut capacities = Vec::new();
        for (node, group) in &self.groups {
            let server = servers.iter().find(|server| server.node == *node);
            let server = server.with_context(|| format!("node {node} has no server"))?;
            let mut best = capacity(server, group, path)?;
            for _ in 1..CAPACITY_TRIES_MAX {
                if best.used_pct >= USED_PCT_MIN {
                    break;
                }
                let again = capacity(server, group, path)?;
                best = if again.used_pct > best.used_pct { again } else { best };
            }
            capacities.push(best);
        }
        Ok(capacities)
    }
}

fn group_name(pool: &str, node: &str) -> String {
    format!("{pool}-{node}")
}

fn capacity(server: &ApacheServer, group: &Group, path: &str) -> anyhow::Result<NodeCapacity> {
    let address = SocketAddr::from(([127, 0, 0, 1], server.port));
    let site = SiteTarget::served_as("node.test", &server.site);
    let mut options = GeneratorOptions::new(vec![address], vec![site]);
    options.in_flight = usize::try_from(RigNode::default().max_in_flight)?;
    path.clone_into(&mut options.path);
    let mut generator = Generator::new(options)?;
    let before = (group.cpu_ns(), group.throttling());
    let run = generator.closed(0, CAPACITY_FOR)?;
    let cpu_ns = group.cpu_ns().saturating_sub(before.0) as f64;
    let throttling = group.throttling().since(before.1);
    let total = run.total();
    let (node, failures) = (&server.node, &total.failures);
    ensure!(failures.total() == 0 && total.ok > 0, "node {node} alone failed: {failures}");
    let quota_ns = run.seconds() * 1e9 * group.quota().cores();
    Ok(NodeCapacity {
        node: node.clone(),
        per_second: run.throughput_per_second(),
        cpu_us: cpu_ns / 1e3 / total.ok as f64,
        used_pct: 100.0 * cpu_ns / quota_ns.max(1.0),
        throttled_pct: 100.0 * throttling.throttled as f64 / throttling.periods.max(1) as f64,
    })
}

/// What a node of this quota serves if a request costs what it costs in the median of all nodes.
pub(super) fn stated_per_second(quota: Quota, capacities: &[&NodeCapacity]) -> Option<f64> {
    let costs: Vec<f64> = capacities.iter().map(|one| one.cpu_us).collect();
    median(&costs).filter(|&cpu_us| cpu_us > 0.0).map(|cpu_us| quota.cores() * 1e6 / cpu_us)
}

/// How far a node is from what it should serve; percent.
pub(super) fn deviation_pct(stated_per_second: f64, capacity: &NodeCapacity) -> f64 {
    100.0 * (capacity.per_second / stated_per_second - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_follows_from_quota_and_cost() {
        let node = |per_second, cpu_us| NodeCapacity {
            node: "n1".into(),
            per_second,
            cpu_us,
            used_pct: 100.0,
            throttled_pct: 100.0,
        };
        let nodes = [node(1_000.0, 200.0), node(990.0, 202.0), node(900.0, 198.0)];
        let all: Vec<&NodeCapacity> = nodes.iter().collect();
        let stated = stated_per_second(Quota::of_core(0.2).unwrap(), &all).unwrap();
        assert!((stated - 1_000.0).abs() < 1e-9);
        assert!((deviation_pct(stated, &nodes[2]) + 10.0).abs() < 1e-9);
        assert_eq!(stated_per_second(Quota::of_core(0.2).unwrap(), &[]), None);
    }
}
