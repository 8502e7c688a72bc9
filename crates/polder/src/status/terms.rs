//! What a site was promised and whether it has it; what a node is.

use serde::{Deserialize, Serialize};

/// A site's terms, and how they are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TermsStatus {
    /// The larger goes first.
    pub priority: u8,
    /// Nodes that it gets back when it is loaded.
    pub soft: u32,
    /// Whether it has its hard guarantee now.
    pub hard_met: bool,
    /// Whether it has its soft guarantee now. A site that is not loaded may well do without.
    pub soft_met: bool,
    /// For how long it was below its hard guarantee.
    pub below_hard: BelowHardStatus,
    /// Its objective: 99 of 100 requests are answered within this time.
    pub p99_ms: Option<u32>,
    /// Requests that took longer than its objective, over the edges of this report.
    pub slower: u64,
    /// Mean time that its servers take for one request, from the grant of a place to the end of the
    /// response, over all edges; none where nothing was measured yet.
    pub service_ms: Option<f64>,
    /// Classes that a node needs to serve it well.
    pub classes: Vec<String>,
    /// What other nodes do for it, in percent.
    pub unfit_pct: u8,
}

/// For how long a site was below its hard guarantee since the edge started that has looked for
/// longest, by cause; seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BelowHardStatus {
    /// Why it is now, if it is: `unmet`, `node` or `move`.
    pub now: Option<String>,
    /// It had not had so many nodes since the edge started, or since the guarantee was raised.
    pub unmet_s: f64,
    /// Nodes of it had died, were stopped, or were not reached.
    pub node_s: f64,
    /// Nodes that lived were given to others. The protocol of moves rules that out.
    pub move_s: f64,
}

impl TermsStatus {
    /// Adds what another edge counts and has seen.
    pub(super) fn add(&mut self, other: &Self) {
        self.slower += other.slower;
        let (own, other) = (&mut self.below_hard, &other.below_hard);
        own.unmet_s = own.unmet_s.max(other.unmet_s);
        own.node_s = own.node_s.max(other.node_s);
        own.move_s = own.move_s.max(other.move_s);
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraitsStatus {
    /// How much it serves in a given time, in percent of a usual node.
    pub capacity_pct: u16,
    /// What kinds of node it is.
    pub classes: Vec<String>,
}

impl Default for TraitsStatus {
    fn default() -> Self {
        Self { capacity_pct: 100, classes: Vec::new() }
    }
}

impl TraitsStatus {
    /// Whether it is like any other.
    pub(super) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}
