//! When a need is ripe: the rules that make one high load cause one move.
//!
//! Pure; the time comes in as nanoseconds since the shell started. What is kept here is what one
//! edge remembers from look to look. Losing it is harmless: the timers start again.
//!
//! ```text
//! hold timer of T   starts anew when T's load is not high, when the shared counter u of T
//!                   changed, when a node arrived at T, and while an arrived node is not yet
//!                   seen serving. T may be claimed once hold has passed with all looks high.
//! light donor       has been light in all looks of a hold: a stall of its clients is no reason to
//!                   take what it wants back a moment later. A donor that must give, however loaded
//!                   it is, gives at once.
//! guard             a claim whose step 2 is not sent within hold / 2 is dropped.
//! floor             needs no hold; descriptors that name T count as arrivals, and after
//!                   somebody else's claim the next waits help_after.
//! help              the same pending word in two looks that are help_after apart.
//! dead node         unreadable for node_dead.
//! bump              at most one for each site in 10 holds.
//! ```
//!
//! Only quality depends on these rules, never safety: a clock that runs wrong moves a node too
//! often or too seldom.

use crate::protocol::{DepartState, Seen};
use pool_model::{EdgeId, NodeId, Reason, SiteId};
use shared_state::words::{Arrive, Assign};

/// Holds between two bumps of one site: two groups of edges that each reach only "their" home
/// would otherwise bump against each other at full speed.
const HOLDS_BETWEEN_BUMPS: u64 = 10;

/// How often its own operation time an edge waits before it helps: a move takes four operations,
/// so a live owner is done in half of that.
const OPERATIONS_BEFORE_HELP: u64 = 8;

/// The clock's part of the rules, all in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// How often a busy edge looks (S).
    pub look_every_ns: u64,
    /// How long a load must last before a move (T).
    pub hold_ns: u64,
    /// How long a node must be unreadable before a move that names it is aborted.
    pub node_dead_ns: u64,
    /// How long the next move to a site waits for an arrived node to be seen serving.
    pub serve_wait_ns: u64,
}

impl Default for Timing {
    /// 1 ms, 2 ms, 50 ms, 1 s.
    fn default() -> Self {
        const MS: u64 = 1_000_000;
        Self {
            look_every_ns: MS,
            hold_ns: 2 * MS,
            node_dead_ns: 50 * MS,
            serve_wait_ns: 1_000 * MS,
        }
    }
}

impl Timing {
    /// Whether a claim sent at `sent_ns` is too old for step 2.
    #[must_use]
    pub const fn is_late(&self, sent_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(sent_ns) > self.hold_ns / 2
    }

    /// How long a descriptor stays pending before it is polite to help.
    #[must_use]
    pub const fn help_after_ns(&self, op_time_ns: u64) -> u64 {
        let own = op_time_ns.saturating_mul(OPERATIONS_BEFORE_HELP);
        if own > self.look_every_ns { own } else { self.look_every_ns }
    }
}

/// A site as taker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Taker {
    /// The shared counter when the hold timer started.
    counter: u64,
    /// The first of the looks that were all high.
    hot_since_ns: Option<u64>,
    /// Whether this look saw something that starts the timer anew.
    restart: bool,
    /// When somebody else's claim was first seen.
    other_claim_ns: Option<u64>,
    /// Departures under way towards it.
    coming: u16,
}

/// A site as donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Donor {
    /// The pending word of the last look, and since when it has been there.
    pending: Option<(u64, u64)>,
    /// Whether an earlier look saw it too.
    twice: bool,
    bumped_ns: Option<u64>,
    /// The first of the looks in which it was light.
    light_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    /// Site and version as last read.
    last: Option<(Option<SiteId>, u32)>,
    unreadable_since_ns: Option<u64>,
    /// Set from the arrival until the node is seen serving.
    arrived_ns: Option<u64>,
}

/// What one edge remembers from look to look.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Events {
    timing: Timing,
    edge: EdgeId,
    takers: Vec<Taker>,
    donors: Vec<Donor>,
    nodes: Vec<Node>,
    looked_before: bool,
}

impl Events {
    /// For sites 1 to `sites` and nodes 0 to `nodes - 1`.
    #[must_use]
    pub fn new(timing: Timing, edge: EdgeId, sites: u16, nodes: u16) -> Self {
        Self {
            timing,
            edge,
            takers: vec![Taker::default(); usize::from(sites)],
            donors: vec![Donor::default(); usize::from(sites)],
            nodes: vec![Node::default(); usize::from(nodes)],
            looked_before: false,
        }
    }

    /// Goes by other times from now on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// The times it goes by.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// Takes in one look. `serving` says whether a node was seen serving the site that it is
    /// assigned to. Allocates nothing; linear in sites and nodes.
    pub fn looked(&mut self, now_ns: u64, seen: &Seen, serving: impl Fn(NodeId) -> bool) {
        self.looked_sites(now_ns, seen);
        self.looked_nodes(now_ns, seen, serving);
        self.looked_before = true;
    }

    fn looked_sites(&mut self, now_ns: u64, seen: &Seen) {
        for taker in &mut self.takers {
            (taker.restart, taker.coming) = (false, 0);
        }
        for index in 0..self.takers.len().min(seen.sites.len()) {
            let Ok(site) = SiteId::from_index(index) else { break };
            let arrive = Arrive::unpack(seen.site(site).arrive);
            let taker = &mut self.takers[index];
            if arrive.counter != taker.counter {
                (taker.counter, taker.restart) = (arrive.counter, true);
                let others = self.looked_before && arrive.claimer != Some(self.edge);
                taker.other_claim_ns = others.then_some(now_ns);
            }
            let state = seen.depart(site);
            let donor = &mut self.donors[index];
            let DepartState::Pending(_, departure) = state else {
                (donor.pending, donor.twice) = (None, false);
                continue;
            };
            let raw = seen.site(site).depart;
            match donor.pending {
                Some((word, _)) if word == raw => donor.twice = true,
                _ => (donor.pending, donor.twice) = (Some((raw, now_ns)), false),
            }
            let named = departure.taker.and_then(|taker| self.takers.get_mut(taker.index()));
            if let Some(taker) = named {
                taker.coming = taker.coming.saturating_add(1);
            }
        }
    }

    fn looked_nodes(&mut self, now_ns: u64, seen: &Seen, serving: impl Fn(NodeId) -> bool) {
        for index in 0..self.nodes.len().min(seen.nodes.len()) {
            let node = &mut self.nodes[index];
            let Some(assign) = seen.nodes[index].and_then(Assign::unpack) else {
                let since_ns = *node.unreadable_since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) >= self.timing.node_dead_ns {
                    node.arrived_ns = None;
                }
                continue;
            };
            node.unreadable_since_ns = None;
            let last = (assign.site, assign.version);
            if node.last != Some(last) {
                let arrived = self.looked_before && assign.site.is_some();
                node.arrived_ns = arrived.then_some(now_ns);
                node.last = Some(last);
            }
            let Some(arrived_ns) = node.arrived_ns else { continue };
            // This look still restarts the timer: the next move needs a fresh one after it.
            if let Some(taker) = assign.site.and_then(|site| self.takers.get_mut(site.index())) {
                taker.restart = true;
            }
            let waited_ns = now_ns.saturating_sub(arrived_ns);
            let number = u16::try_from(index).ok().and_then(|n| NodeId::new(n).ok());
            if number.is_none_or(&serving) || waited_ns >= self.timing.serve_wait_ns {
                node.arrived_ns = None;
            }
        }
    }

    /// Tells what the policy said about a site in this look, and asks whether the need is ripe.
    /// To be called once for each site after each look. `nodes` is how many the site has, `hard`
    /// what it must have.
    pub fn ripe(&mut self, now_ns: u64, op_time_ns: u64, site: SiteId, need: &Need) -> bool {
        let timing = self.timing;
        let Some(taker) = self.takers.get_mut(site.index()) else { return false };
        match need.reason {
            None => {
                taker.hot_since_ns = None;
                false
            }
            Some(Reason::Admin) => true,
            Some(Reason::Floor) => {
                taker.hot_since_ns = None;
                let waiting = taker.other_claim_ns.is_some_and(|claim_ns| {
                    now_ns.saturating_sub(claim_ns) < timing.help_after_ns(op_time_ns)
                });
                let short = need.nodes.saturating_add(taker.coming) < need.hard;
                short && !waiting
            }
            Some(Reason::Load | Reason::TakeBack) => {
                if taker.restart {
                    taker.hot_since_ns = None;
                }
                let since_ns = *taker.hot_since_ns.get_or_insert(now_ns);
                now_ns > since_ns && now_ns - since_ns >= timing.hold_ns
            }
        }
    }

    /// Tells whether a site was light in this look, and asks whether that has yet to last. To be
    /// called once for each site after each look.
    pub fn is_restless(&mut self, now_ns: u64, site: SiteId, is_light: bool) -> bool {
        let Some(donor) = self.donors.get_mut(site.index()) else { return false };
        if !is_light {
            donor.light_since_ns = None;
            return false;
        }
        let since_ns = *donor.light_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) < self.timing.hold_ns
    }

    /// Lets `by_ns` pass without the clock moving on, and forgets how much longer ago something
    /// was than any rule asks for. It keeps the model checker's space finite; the rules go by
    /// differences of times only.
    #[doc(hidden)]
    pub fn age(&mut self, now_ns: u64, by_ns: u64) {
        let hold_ns = self.timing.hold_ns;
        let older = |since: u64| since.saturating_sub(by_ns).max(now_ns.saturating_sub(hold_ns));
        for taker in &mut self.takers {
            taker.hot_since_ns = taker.hot_since_ns.map(older);
            taker.other_claim_ns = taker.other_claim_ns.map(older);
            (taker.restart, taker.coming) = (false, 0);
        }
        for node in &mut self.nodes {
            node.arrived_ns = node.arrived_ns.map(older);
        }
    }

    /// Notes that this edge claimed: the event is spent, the timer starts anew.
    pub fn claimed(&mut self, site: SiteId, counter: u64) {
        if let Some(taker) = self.takers.get_mut(site.index()) {
            taker.counter = counter;
            taker.hot_since_ns = None;
        }
    }

    /// Starts a site's timer anew without a claim: where a move was only logged.
    pub fn restart(&mut self, site: SiteId) {
        if let Some(taker) = self.takers.get_mut(site.index()) {
            taker.hot_since_ns = None;
        }
    }

    /// Departures under way towards a site, as the last look saw them.
    #[must_use]
    pub fn coming(&self, site: SiteId) -> u16 {
        self.takers.get(site.index()).map_or(0, |taker| taker.coming)
    }

    /// Whether it is polite to help the departure that is pending at a site.
    #[must_use]
    pub fn may_help(&self, now_ns: u64, op_time_ns: u64, site: SiteId) -> bool {
        let Some(donor) = self.donors.get(site.index()) else { return false };
        let Some((_, since_ns)) = donor.pending else { return false };
        donor.twice && now_ns.saturating_sub(since_ns) >= self.timing.help_after_ns(op_time_ns)
    }

    /// Whether a node has been unreadable for so long that it is given up.
    #[must_use]
    pub fn is_dead(&self, now_ns: u64, node: NodeId) -> bool {
        let track = self.nodes.get(node.index()).copied().unwrap_or_default();
        let since_ns = track.unreadable_since_ns;
        since_ns.is_some_and(|since| now_ns.saturating_sub(since) >= self.timing.node_dead_ns)
    }

    /// Whether some node cannot be read but is not given up yet: a site record is not rebuilt
    /// meanwhile, because that node may carry its newest stamp.
    #[must_use]
    pub fn some_unread(&self, now_ns: u64) -> bool {
        self.nodes.iter().any(|node| {
            node.unreadable_since_ns
                .is_some_and(|since| now_ns.saturating_sub(since) < self.timing.node_dead_ns)
        })
    }

    /// Whether a site may be bumped now; if so, notes that it was.
    pub fn take_bump(&mut self, now_ns: u64, site: SiteId) -> bool {
        let gap_ns = self.timing.hold_ns.saturating_mul(HOLDS_BETWEEN_BUMPS);
        let Some(donor) = self.donors.get_mut(site.index()) else { return false };
        let allowed = donor.bumped_ns.is_none_or(|last| now_ns.saturating_sub(last) >= gap_ns);
        if allowed {
            donor.bumped_ns = Some(now_ns);
        }
        allowed
    }
}

/// What the policy said about one site in one look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Need {
    /// Why the site wants a node; none if it does not.
    pub reason: Option<Reason>,
    /// Nodes that it has.
    pub nodes: u16,
    /// Nodes that it must have.
    pub hard: u16,
}
