//! What a run showed.

use crate::monitor::Violation;
use load::stats::Latency;
use moves::Counters;
use pool_model::{NodeId, SiteId};

/// Moves that are kept one by one; beyond, only their number is.
pub const MOVES_KEPT_MAX: usize = 100_000;

/// What became of a site's requests. With rates these are amounts, not whole numbers.
#[derive(Clone, Debug, Default)]
pub struct SiteTotals {
    /// Requests that came.
    pub arrived: f64,
    /// Answered in full.
    pub served: f64,
    /// Of all that came: later than the site's `slow_ns`, or never.
    pub slow: f64,
    /// Refused because the queue was full, or because no edge was there.
    pub refused: f64,
    /// Lost with their edge, or after as many tries as are made.
    pub failed: f64,
    /// Asked again at another node, because theirs died.
    pub retried: f64,
    /// Still waiting or in flight at the end.
    pub left: f64,
    /// From arrival to response; empty with rates.
    pub latency: Latency,
    /// Time for which the site had fewer nodes than its hard guarantee.
    pub below_hard_ns: u64,
    /// Time for which it had fewer than its soft guarantee.
    pub below_soft_ns: u64,
}

impl SiteTotals {
    /// Share of the requests that were answered in time; 1 without requests.
    #[must_use]
    pub fn in_time(&self) -> f64 {
        if self.arrived > 0.0 { 1.0 - self.slow / self.arrived } else { 1.0 }
    }
}

/// One window of time at one site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    /// Requests that came.
    pub arrived: f64,
    /// Requests that were answered.
    pub served: f64,
    /// Of those that came in it: slow, or never answered.
    pub slow: f64,
    /// Nodes, on average.
    pub nodes: f64,
}

/// A node that changed hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// When.
    pub at_ns: u64,
    /// Which node.
    pub node: NodeId,
    /// From whom; none for a free node.
    pub from: Option<SiteId>,
    /// To whom; none to be free.
    pub to: Option<SiteId>,
}

/// What went wrong on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Faults that began, or lay in wait for a move.
    pub faults: u64,
    /// Edges that died.
    pub crashes: u64,
    /// Of those: between the steps of a move.
    pub crashes_in_mid_move: u64,
    /// Edges that were stopped for a while.
    pub pauses: u64,
    /// Nodes that died.
    pub node_failures: u64,
    /// Agents that restarted while their servers went on.
    pub agent_restarts: u64,
    /// Times that all site words were lost.
    pub wipes: u64,
    /// Operations that never arrived.
    pub requests_lost: u64,
    /// Operations that took place, unknown to who asked.
    pub replies_lost: u64,
    /// Compare-and-swaps that took place after their deadline.
    pub late_landed: u64,
    /// Compare-and-swaps that arrived after their deadline and missed.
    pub late_missed: u64,
}

impl FaultCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        self.faults += other.faults;
        self.crashes += other.crashes;
        self.crashes_in_mid_move += other.crashes_in_mid_move;
        self.pauses += other.pauses;
        self.node_failures += other.node_failures;
        self.agent_restarts += other.agent_restarts;
        self.wipes += other.wipes;
        self.requests_lost += other.requests_lost;
        self.replies_lost += other.replies_lost;
        self.late_landed += other.late_landed;
        self.late_missed += other.late_missed;
    }
}

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// By site.
    pub sites: Vec<SiteTotals>,
    /// By site, over time.
    pub windows: Vec<Vec<Window>>,
    /// The first [`MOVES_KEPT_MAX`] moves.
    pub moves: Vec<Moved>,
    /// All moves.
    pub moves_total: u64,
    /// When the last node moved, if one did.
    pub last_move_ns: Option<u64>,
    /// Looks of all edges.
    pub looks: u64,
    /// Nodes whose assignment and load word were read, summed over all looks.
    pub node_reads: u64,
    /// Counts of all edges, dead ones included.
    pub counters: Counters,
    /// Faults.
    pub faults: FaultCounts,
    /// Properties that did not hold; the first few.
    pub violations: Vec<Violation>,
    /// How often a property did not hold.
    pub violations_total: u64,
    /// One number for all that happened.
    pub history_hash: u64,
    /// What was recorded, looks included.
    pub history_records: u64,
    /// The last lines of the history.
    pub history_tail: Vec<String>,
    /// When the run ended.
    pub ended_ns: u64,
}

impl Outcome {
    /// Requests of all sites.
    #[must_use]
    pub fn arrived(&self) -> f64 {
        self.sites.iter().map(|site| site.arrived).sum()
    }

    /// Slow ones among them.
    #[must_use]
    pub fn slow(&self) -> f64 {
        self.sites.iter().map(|site| site.slow).sum()
    }

    /// Share of all requests that were slow; 0 without requests.
    #[must_use]
    pub fn slow_share(&self) -> f64 {
        let arrived = self.arrived();
        if arrived > 0.0 { self.slow() / arrived } else { 0.0 }
    }
}

/// Adds the counts of two edges.
pub(crate) fn sum(a: &mut Counters, b: Counters) {
    a.looks += b.looks;
    a.claims += b.claims;
    a.claims_lost += b.claims_lost;
    a.moves += b.moves;
    a.installs_lost += b.installs_lost;
    a.late_moves += b.late_moves;
    a.cas_missed_late += b.cas_missed_late;
    a.helps += b.helps;
    a.bumps += b.bumps;
    a.renewed += b.renewed;
    a.floors_set += b.floors_set;
    a.bad_words += b.bad_words;
    a.unsettled += b.unsettled;
}

/// Totals and windows while a run goes on.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    pub(crate) sites: Vec<SiteTotals>,
    pub(crate) windows: Vec<Vec<Window>>,
    pub(crate) moves: Vec<Moved>,
    pub(crate) moves_total: u64,
    pub(crate) last_move_ns: Option<u64>,
    window_ns: u64,
    /// By site: how many nodes it has, and since when.
    held: Vec<(u16, u64)>,
    bounds: Vec<(u16, u16)>,
}

impl Totals {
    pub(crate) fn new(options: &crate::Options) -> Self {
        let sites = options.sites.len();
        let span_ns = options.duration_ns + options.settle_ns;
        let count = usize::try_from(span_ns / options.window_ns.max(1) + 1).unwrap_or(1);
        let bounds = |site: &crate::SiteSpec| {
            let guarantee = site.terms.guarantee;
            (guarantee.hard, guarantee.soft)
        };
        Self {
            sites: vec![SiteTotals::default(); sites],
            windows: vec![vec![Window::default(); count]; sites],
            moves: Vec::new(),
            moves_total: 0,
            last_move_ns: None,
            window_ns: options.window_ns.max(1),
            held: vec![(0, 0); sites],
            bounds: options.sites.iter().map(bounds).collect(),
        }
    }

    /// The window of a time at a site.
    pub(crate) fn window(&mut self, site: SiteId, at_ns: u64) -> &mut Window {
        let windows = &mut self.windows[site.index()];
        let last = windows.len() - 1;
        let place = usize::try_from(at_ns / self.window_ns).unwrap_or(last).min(last);
        &mut windows[place]
    }

    /// A site has so many nodes from now on.
    pub(crate) fn holds(&mut self, now_ns: u64, site: SiteId, nodes: u16) {
        let (had, mut from_ns) = std::mem::replace(&mut self.held[site.index()], (nodes, now_ns));
        let (hard, soft) = self.bounds[site.index()];
        let totals = &mut self.sites[site.index()];
        let for_ns = now_ns - from_ns;
        totals.below_hard_ns += if had < hard { for_ns } else { 0 };
        totals.below_soft_ns += if had < soft { for_ns } else { 0 };
        let window_ns = self.window_ns;
        while from_ns < now_ns {
            let until_ns = ((from_ns / window_ns + 1) * window_ns).min(now_ns);
            let share = (until_ns - from_ns) as f64 / window_ns as f64;
            self.window(site, from_ns).nodes += share * f64::from(had);
            from_ns = until_ns;
        }
    }

    /// A node changed hands.
    pub(crate) fn moved(&mut self, moved: Moved) {
        (self.moves_total, self.last_move_ns) = (self.moves_total + 1, Some(moved.at_ns));
        if self.moves.len() < MOVES_KEPT_MAX {
            self.moves.push(moved);
        }
    }
}
