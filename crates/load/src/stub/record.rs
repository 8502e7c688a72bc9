//! What a stub tells about itself: plain data, also sent as JSON by the control endpoint.

use serde::{Deserialize, Serialize};

use crate::clock::WINDOW_NS;

/// A window counts as fully used when the workers were booked for this share of it.
pub const FULLY_USED_SHARE: f64 = 0.95;

/// Records of all nodes of one stub server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StubRecord {
    /// Width of a window; nanoseconds.
    pub window_ns: u64,
    /// CPU time of the stub's thread so far; nanoseconds.
    pub cpu_ns: u64,
    /// Time the stub's thread waited for a CPU so far; nanoseconds.
    pub cpu_wait_ns: u64,
    /// In the order in which the nodes were given.
    pub nodes: Vec<NodeRecord>,
}

/// Records of one node since its start or the last reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Name of the node.
    pub node: String,
    /// Requests served at the same time.
    pub workers: u32,
    /// Service time of a request; microseconds.
    pub service_us: f64,
    /// Requests answered with 200 as they should be.
    pub served: u64,
    /// Requests answered with 503 because the queue was full.
    pub refused: u64,
    /// Requests whose client went away before the reply.
    pub abandoned: u64,
    /// Replies with status 500, on purpose.
    pub errors: u64,
    /// Replies cut off in the middle, on purpose.
    pub truncated: u64,
    /// Requests between arrival and reply now, over all sites.
    pub in_flight: u32,
    /// The most requests in flight at any moment, over all sites.
    pub peak_in_flight: u32,
    /// Number of the first window in each site's `busy_ns` (see [`crate::clock::window_of`]).
    pub first_window: u64,
    /// Booked time of a window in which all workers are busy throughout; nanoseconds.
    pub window_capacity_ns: u64,
    /// One record per site that the node has a listener for.
    pub sites: Vec<SiteRecord>,
}

/// Records of a node's server of one site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiteRecord {
    /// Name of the site.
    pub site: String,
    /// Requests answered with 200.
    pub served: u64,
    /// Requests in flight now.
    pub in_flight: u32,
    /// The most requests in flight at any moment.
    pub peak_in_flight: u32,
    /// Booked time of the workers in each finished window from `first_window` on; nanoseconds.
    pub busy_ns: Vec<u64>,
}

impl NodeRecord {
    /// Booked share of the node in one window, 0 to 1, over all sites; 0 outside what is kept.
    #[must_use]
    pub fn busy_share(&self, window: u64) -> f64 {
        let busy: u64 = self.sites.iter().map(|site| self.busy_ns(site, window)).sum();
        busy as f64 / self.window_capacity_ns.max(1) as f64
    }

    /// Booked share of the node for one site in one window, 0 to 1.
    #[must_use]
    pub fn busy_share_of(&self, site: &str, window: u64) -> f64 {
        let busy = self.sites.iter().find(|known| known.site == site);
        busy.map_or(0.0, |site| {
            self.busy_ns(site, window) as f64 / self.window_capacity_ns.max(1) as f64
        })
    }

    fn busy_ns(&self, site: &SiteRecord, window: u64) -> u64 {
        let offset = window.checked_sub(self.first_window).and_then(|at| usize::try_from(at).ok());
        offset.and_then(|at| site.busy_ns.get(at)).copied().unwrap_or(0)
    }
}

impl StubRecord {
    /// The record of one node.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.iter().find(|node| node.node == name)
    }

    /// Nodes that were fully used in each window from `from_window` up to, not including,
    /// `to_window`.
    #[must_use]
    pub fn fully_used_nodes(&self, from_window: u64, to_window: u64) -> Vec<usize> {
        (from_window..to_window)
            .map(|window| {
                let full = |node: &&NodeRecord| node.busy_share(window) >= FULLY_USED_SHARE;
                self.nodes.iter().filter(full).count()
            })
            .collect()
    }

    /// Share of the windows in which at least `usable` nodes were fully used at once; 0 when there
    /// is no window.
    #[must_use]
    pub fn share_of_full_use(&self, usable: usize, from_window: u64, to_window: u64) -> f64 {
        let counts = self.fully_used_nodes(from_window, to_window);
        let full = counts.iter().filter(|&&count| count >= usable).count();
        if counts.is_empty() { 0.0 } else { full as f64 / counts.len() as f64 }
    }

    /// Nodes that worked for a site in each window: those booked for it at all.
    #[must_use]
    pub fn nodes_in_use(&self, site: &str, from_window: u64, to_window: u64) -> Vec<usize> {
        (from_window..to_window)
            .map(|window| {
                let used = |node: &&NodeRecord| node.busy_share_of(site, window) > 0.0;
                self.nodes.iter().filter(used).count()
            })
            .collect()
    }

    /// Seconds of one window.
    #[must_use]
    pub fn window_seconds(&self) -> f64 {
        (if self.window_ns == 0 { WINDOW_NS } else { self.window_ns }) as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, red: &[u64], blue: &[u64]) -> NodeRecord {
        let site = |site: &str, busy: &[u64]| SiteRecord {
            site: site.to_owned(),
            busy_ns: busy.to_vec(),
            ..SiteRecord::default()
        };
        NodeRecord {
            node: name.to_owned(),
            workers: 1,
            first_window: 100,
            window_capacity_ns: 1_000,
            sites: vec![site("red", red), site("blue", blue)],
            ..NodeRecord::default()
        }
    }

    #[test]
    fn full_use_counts_all_sites_of_a_node_together() {
        let record = StubRecord {
            nodes: vec![
                node("n0", &[500, 1_000, 0], &[450, 0, 100]),
                node("n1", &[0, 960, 949], &[0, 0, 0]),
            ],
            ..StubRecord::default()
        };
        assert_eq!(record.fully_used_nodes(100, 103), [1, 2, 0]);
        assert!((record.share_of_full_use(2, 100, 103) - 1.0 / 3.0).abs() < 1e-9);
        assert!((record.share_of_full_use(1, 99, 103) - 0.5).abs() < 1e-9);
        assert_eq!(record.nodes_in_use("red", 100, 103), [1, 2, 1]);
        assert_eq!(record.nodes_in_use("blue", 100, 103), [1, 0, 1]);
        assert_eq!(record.share_of_full_use(1, 5, 5), 0.0);
        assert_eq!(record.node("n1").map(|node| node.busy_share(101)), Some(0.96));
        assert_eq!(record.node("n2"), None);
    }
}
