//! The properties, checked while history is made.
//!
//! At every instant:
//!
//! - `alive(D) + failures(D) >= hard(D)`, where `failures` are the nodes that died under D so
//!   recently that some edge may still act on a look from before;
//! - a node's version grows by one with each change of its site, so each belongs to one site;
//! - moves to a site are at most the claims made for it: one event, one move;
//! - no node goes back where it came from while both sites stayed loaded and nothing else changed
//!   between them (ping-pong), unless a fault was in play.
//!
//! From time to time:
//!
//! - once faults have ended, no need that somebody could meet stays unmet (progress);
//! - every request is somewhere: waiting, in flight, or ended in a way that was told.

use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart};

/// Violations that are told; the first is what matters.
const TOLD_MAX: usize = 16;
/// In units of hold: a node that goes back within this time plays ping-pong.
const PING_PONG_HOLDS: u64 = 10;
/// In units of hold: a site that was found loaded for so long is overloaded. Chance alone makes one
/// that is nearly full look loaded and light in turn.
const LOADED_HOLDS: u64 = 5;
/// In units of hold: a need that could be met is met within this time. A bump may wait 10 holds,
/// a node that is given up some more, and two such repairs may follow each other.
const PROGRESS_HOLDS: u64 = 50;

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When, from the start of the run.
    pub at_ns: u64,
    /// What.
    pub what: String,
}

/// A node's last change of hands.
#[derive(Clone, Copy, Debug)]
struct Went {
    at_ns: u64,
    from: SiteId,
    to: SiteId,
    both_loaded: bool,
    /// Changes of either site's nodes, this one included.
    changes: (u64, u64),
}

/// What the monitor goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) hold_ns: u64,
    /// How long a look from before a failure may be acted upon.
    pub(crate) failure_counts_ns: u64,
}

/// Watches a run.
#[derive(Clone, Debug)]
pub(crate) struct Monitor {
    rules: Rules,
    hard: Vec<u16>,
    /// When nodes of a site died, oldest first.
    failures: Vec<Vec<u64>>,
    versions: Vec<u32>,
    went: Vec<Option<Went>>,
    claims: Vec<u64>,
    arrivals: Vec<u64>,
    changes: Vec<u64>,
    loaded_since_ns: Vec<Option<u64>>,
    unmet_since_ns: Vec<Option<u64>>,
    disturbed_ns: Option<u64>,
    pub(crate) violations: Vec<Violation>,
    pub(crate) violations_total: u64,
}

impl Monitor {
    pub(crate) fn new(rules: Rules, hard: Vec<u16>, nodes: usize) -> Self {
        let sites = hard.len();
        Self {
            rules,
            hard,
            failures: vec![Vec::new(); sites],
            versions: vec![0; nodes],
            went: vec![None; nodes],
            claims: vec![0; sites],
            arrivals: vec![0; sites],
            changes: vec![0; sites],
            loaded_since_ns: vec![None; sites],
            unmet_since_ns: vec![None; sites],
            disturbed_ns: None,
            violations: Vec::new(),
            violations_total: 0,
        }
    }

    /// Notes that a property does not hold.
    pub(crate) fn violated(&mut self, at_ns: u64, what: String) {
        self.violations_total += 1;
        if self.violations.len() < TOLD_MAX {
            self.violations.push(Violation { at_ns, what });
        }
    }

    /// A fault is in play.
    pub(crate) fn disturbed(&mut self, now_ns: u64) {
        self.disturbed_ns = Some(now_ns);
        self.unmet_since_ns.fill(None);
    }

    /// A node of a site died.
    pub(crate) fn node_failed(&mut self, now_ns: u64, node: NodeId, site: Option<SiteId>) {
        self.went[node.index()] = None;
        if let Some(site) = site {
            self.changes[site.index()] += 1;
            let oldest_ns = now_ns.saturating_sub(self.rules.failure_counts_ns);
            let failures = &mut self.failures[site.index()];
            failures.retain(|&at_ns| at_ns >= oldest_ns);
            failures.push(now_ns);
        }
    }

    /// A node published a new region.
    pub(crate) fn region_opened(&mut self, node: NodeId, assign: u64) {
        self.versions[node.index()] = Assign::unpack(assign).map_or(0, |assign| assign.version);
        if let Some(site) = Assign::unpack(assign).and_then(|assign| assign.site) {
            self.changes[site.index()] += 1;
        }
    }

    /// An event was claimed.
    pub(crate) fn claimed(&mut self, site: SiteId) {
        self.claims[site.index()] += 1;
    }

    /// A descriptor was written.
    pub(crate) fn described(&mut self, now_ns: u64, site: SiteId, new: u64) {
        let taker = Depart::unpack(new).pending.and_then(|departure| departure.taker);
        if !Depart::is_unset(new) && taker == Some(site) {
            self.violated(now_ns, format!("site {site} departs to itself: {new:#018x}"));
        }
    }

    /// A node's word was swapped; `alive` is how many nodes each site has now. True if the node
    /// changed hands.
    pub(crate) fn swapped(
        &mut self,
        now_ns: u64,
        node: NodeId,
        (old, new): (u64, u64),
        alive: impl Fn(SiteId) -> u16,
    ) -> bool {
        let (Some(old), Some(new)) = (Assign::unpack(old), Assign::unpack(new)) else {
            self.violated(now_ns, format!("node {node}: {old:#018x} -> {new:#018x}"));
            return false;
        };
        let step = u32::from(old.site != new.site);
        let last = std::mem::replace(&mut self.versions[node.index()], new.version);
        if old.version != last || new.version != last + step {
            self.violated(
                now_ns,
                format!("node {node}: version {last} is followed by {}", new.version),
            );
        }
        if step == 0 {
            return false;
        }
        if let Some(donor) = old.site {
            self.changes[donor.index()] += 1;
            self.check_floor(now_ns, donor, alive(donor));
        }
        if let Some(taker) = new.site {
            self.changes[taker.index()] += 1;
            self.arrivals[taker.index()] += 1;
            self.unmet_since_ns[taker.index()] = None;
            let (arrivals, claims) = (self.arrivals[taker.index()], self.claims[taker.index()]);
            if arrivals > claims {
                let what = format!("site {taker}: {arrivals} moves, but {claims} claims");
                self.violated(now_ns, what);
            }
        }
        self.check_ping_pong(now_ns, node, (old.site, new.site));
        true
    }

    fn check_floor(&mut self, now_ns: u64, site: SiteId, alive: u16) {
        let oldest_ns = now_ns.saturating_sub(self.rules.failure_counts_ns);
        let recent = |&&at_ns: &&u64| at_ns >= oldest_ns;
        let failures = self.failures[site.index()].iter().filter(recent).count();
        let hard = self.hard[site.index()];
        if usize::from(alive) + failures < usize::from(hard) {
            let what = format!(
                "site {site}: {alive} nodes alive and {failures} failed are below hard = {hard}"
            );
            self.violated(now_ns, what);
        }
    }

    fn check_ping_pong(
        &mut self,
        now_ns: u64,
        node: NodeId,
        (from, to): (Option<SiteId>, Option<SiteId>),
    ) {
        let (Some(from), Some(to)) = (from, to) else {
            self.went[node.index()] = None;
            return;
        };
        let long_ns = LOADED_HOLDS * self.rules.hold_ns;
        let loaded = |site: SiteId| {
            self.loaded_since_ns[site.index()].is_some_and(|since_ns| now_ns >= since_ns + long_ns)
        };
        let both_loaded = loaded(from) && loaded(to);
        let changes = (self.changes[from.index()], self.changes[to.index()]);
        let last =
            self.went[node.index()].replace(Went { at_ns: now_ns, from, to, both_loaded, changes });
        let Some(last) = last else { return };
        let soon = now_ns - last.at_ns < PING_PONG_HOLDS * self.rules.hold_ns;
        let back = (last.from, last.to) == (to, from);
        // Nothing else came or went: each side counts this change as its next.
        let alone = (last.changes.0 + 1, last.changes.1 + 1) == (changes.1, changes.0);
        let calm = self.is_calm_since(last.at_ns);
        if soon && back && alone && calm && last.both_loaded && both_loaded {
            let what = format!("node {node} went from site {to} to {from} and back (ping-pong)");
            self.violated(now_ns, what);
        }
    }

    /// Whether no fault was in play for some time before an instant, and none after.
    fn is_calm_since(&self, at_ns: u64) -> bool {
        let settled_ns = PROGRESS_HOLDS * self.rules.hold_ns;
        self.disturbed_ns.is_none_or(|last_ns| last_ns + settled_ns <= at_ns)
    }

    /// Whether a site is loaded, as some look found it.
    pub(crate) fn loaded(&mut self, now_ns: u64, site: SiteId, is_loaded: bool) {
        let since_ns = &mut self.loaded_since_ns[site.index()];
        *since_ns = is_loaded.then(|| since_ns.unwrap_or(now_ns));
    }

    /// Whether a site has a need that could be met now.
    pub(crate) fn unmet(&mut self, now_ns: u64, site: SiteId, is_unmet: bool) {
        let since_ns = &mut self.unmet_since_ns[site.index()];
        *since_ns = is_unmet.then(|| since_ns.unwrap_or(now_ns));
        let Some(since) = *since_ns else { return };
        let for_ns = now_ns - since;
        if for_ns > PROGRESS_HOLDS * self.rules.hold_ns {
            *since_ns = None;
            let what = format!(
                "site {site}: a node could be had, and none came for {} ms",
                for_ns / 1_000_000
            );
            self.violated(now_ns, what);
        }
    }
}

#[cfg(test)]
#[path = "monitor_tests.rs"]
mod tests;
