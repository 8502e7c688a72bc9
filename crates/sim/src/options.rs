//! What a simulated pool is made of.

use moves::Timing;
use pool_model::{NodeTraits, SiteId, SiteTerms};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A site: what its settings state, and how long a usual node takes for one of its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SiteSpec {
    /// Guarantees, priority, objective, wanted classes.
    pub terms: SiteTerms,
    /// Time that a usual node takes for one request; not zero.
    pub service_ns: u64,
    /// Requests slower than this count as slow.
    pub slow_ns: u64,
}

/// A node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeSpec {
    /// Capacity and classes.
    pub traits: NodeTraits,
    /// Requests that it takes at once, of whatever site; not zero.
    pub max_in_flight: u32,
    /// Whom it serves at the start.
    pub site: Option<SiteId>,
}

/// How long a request takes at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceTimes {
    /// Always the same.
    #[default]
    Fixed,
    /// Exponentially distributed.
    Exponential,
}

/// How remote words are reached. Each operation takes a random time within the bounds, each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transport {
    /// One way, shortest and longest.
    pub way_ns: (u64, u64),
    /// After this an operation without an answer counts as lost. It may still land.
    pub deadline_ns: u64,
    /// Words that one step of a look reads at one instant, fewest and most. Fewer let more happen
    /// between two reads; more cost less.
    pub words_at_once: (u32, u32),
}

impl Transport {
    /// Shared memory: fast, and nothing gets lost.
    pub const SHARED_MEMORY: Self =
        Self { way_ns: (25, 250), deadline_ns: 50 * MS, words_at_once: (1_000, 20_000) };
    /// A network between machines.
    pub const NETWORK: Self =
        Self { way_ns: (15 * US, 120 * US), deadline_ns: 5 * MS, words_at_once: (1, 8) };
}

/// A simulated pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Decides every draw.
    pub seed: u64,
    /// Edges, 1 to 64.
    pub edges: u8,
    /// Sites 1, 2, ...
    pub sites: Vec<SiteSpec>,
    /// Nodes 0, 1, ...
    pub nodes: Vec<NodeSpec>,
    /// Look, hold, and the other times of the rules.
    pub timing: Timing,
    /// How words are reached.
    pub transport: Transport,
    /// After which time the words of an edge that does not look count for nothing.
    pub slot_lease_ns: u64,
    /// Requests of one site that wait at one edge; more are refused.
    pub queue_max: usize,
    /// How service times vary.
    pub service_times: ServiceTimes,
    /// Load above which a site is loaded, as the policy sees it; for the properties.
    pub high_load: f64,
    /// Traffic comes for so long.
    pub duration_ns: u64,
    /// Then at most so long for what still waits.
    pub settle_ns: u64,
    /// Length of one entry of the series over time.
    pub window_ns: u64,
    /// With rates: how often they act.
    pub flow_every_ns: u64,
    /// How often the properties that need time are checked; none to check only what is checked at
    /// every instant.
    pub watch_every_ns: Option<u64>,
}

impl Options {
    /// Nodes that serve as many requests at once as `max_in_flight` says, spread evenly over equal
    /// sites with a service time of 5 ms; look 1 ms, hold 2 ms, one edge, one minute.
    #[must_use]
    pub fn new(sites: Vec<SiteSpec>, nodes: Vec<NodeSpec>) -> Self {
        Self {
            seed: 1,
            edges: 1,
            sites,
            nodes,
            timing: Timing::default(),
            transport: Transport::SHARED_MEMORY,
            slot_lease_ns: 50 * MS,
            queue_max: 100_000,
            service_times: ServiceTimes::Fixed,
            high_load: 1.0,
            duration_ns: 60_000 * MS,
            settle_ns: 60_000 * MS,
            window_ns: 1_000 * MS,
            flow_every_ns: 10 * MS,
            watch_every_ns: None,
        }
    }

    /// Looks every `look_ms`, holds for `hold_ms`.
    #[must_use]
    pub fn with_pace(mut self, look_ms: u64, hold_ms: u64) -> Self {
        (self.timing.look_every_ns, self.timing.hold_ns) = (look_ms * MS, hold_ms * MS);
        self.slot_lease_ns = (20 * look_ms * MS).max(50 * MS);
        self
    }
}

/// Gives each site its hard guarantee of the nodes that serve it best, then all others in turn.
pub fn spread(sites: &[SiteSpec], nodes: &mut [NodeSpec]) {
    for node in nodes.iter_mut() {
        node.site = None;
    }
    let mut have = vec![0_u16; sites.len()];
    // Rounds: each site in turn takes its fittest free node while it is below its guarantee.
    for below_hard in [true, false] {
        loop {
            let mut given = false;
            for (index, site) in sites.iter().enumerate() {
                let bounds = site.terms.guarantee;
                let most = if below_hard { bounds.hard } else { bounds.max };
                let Ok(id) = SiteId::from_index(index) else { break };
                if have[index] >= most {
                    continue;
                }
                let fitness = |node: &NodeSpec| site.terms.fitness_pct(node.traits);
                let free = nodes.iter_mut().filter(|node| node.site.is_none());
                let best = free.filter(|node| fitness(node) > 0).rev().max_by_key(|n| fitness(n));
                if let Some(node) = best {
                    (node.site, given) = (Some(id), true);
                    have[index] += 1;
                }
            }
            if !given {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool_model::Guarantee;

    #[test]
    fn nodes_are_spread_by_guarantee_and_then_evenly() {
        let terms = |hard| SiteTerms::default().with_guarantee(Guarantee::hard(hard));
        let site = |hard| SiteSpec { terms: terms(hard), service_ns: 1, slow_ns: 1 };
        let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: 1, site: None };
        let mut nodes = vec![node; 8];
        spread(&[site(4), site(1)], &mut nodes);
        let of = |n| nodes.iter().filter(|node| node.site == SiteId::new(n).ok()).count();
        assert_eq!((of(1), of(2)), (6, 2));
        assert!(nodes.iter().all(|node| node.site.is_some()));
    }
}
