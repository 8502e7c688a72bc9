//! The largest pool: 10,000 nodes, 500 sites, 50 edges that look every 100 ms.
//!
//! Load is a fluid. Each site is loaded to 40 %; now and then it gets so much for some seconds that
//! it needs half as many nodes again. Each look reads the assignment and the load word of every
//! node, and runs the policy.

use crate::options::{NodeSpec, Options, SiteSpec, spread};
use crate::outcome::Outcome;
use crate::random::{Random, Stream};
use crate::traffic::{RateStep, Traffic};
use crate::{OptionsError, Simulation};
use policy::Policy;
use pool_model::{Guarantee, NodeTraits, SiteId, SiteTerms};

/// Nodes.
pub const NODES: usize = 10_000;
/// Sites.
pub const SITES: usize = 500;
/// Edges.
pub const EDGES: u8 = 50;

const MS: u64 = 1_000_000;
/// Eight slots of 5 ms, 20 nodes for each site.
const SITE_PER_SECOND: f64 = 1_600.0 * NODES as f64 / SITES as f64;
/// Of its nodes, usually and in a burst.
const LOADS: (f64, f64) = (0.4, 1.5);
/// Rest between two bursts of a site, and the length of one.
const REST_MS: (u64, u64) = (5_000, 60_000);
const BURST_MS: (u64, u64) = (1_000, 4_000);

/// Runs it for so many simulated seconds; tells after each.
///
/// # Errors
///
/// None: the pool can be simulated.
pub fn run(
    seed: u64,
    seconds: u64,
    policy: Box<dyn Policy>,
    told: impl FnMut(u64),
) -> Result<Outcome, OptionsError> {
    let terms = SiteTerms::default().with_guarantee(Guarantee { hard: 2, soft: 20, max: 40 });
    let site = SiteSpec { terms, service_ns: 5 * MS, slow_ns: 50 * MS };
    let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: 8, site: None };
    let (sites, mut nodes) = (vec![site; SITES], vec![node; NODES]);
    spread(&sites, &mut nodes);
    let options = Options {
        seed,
        edges: EDGES,
        duration_ns: seconds * 1_000 * MS,
        settle_ns: 0,
        ..Options::new(sites, nodes).with_pace(100, 200)
    };
    let steps = steps(seed, options.duration_ns);
    Ok(Simulation::new(options, Traffic::Rates(steps), policy)?.run_watched(told))
}

fn steps(seed: u64, duration_ns: u64) -> Vec<RateStep> {
    let mut random = Random::of(seed, Stream::Scenario);
    let mut steps = Vec::new();
    for index in 0..SITES {
        let Ok(site) = SiteId::from_index(index) else { break };
        steps.push(RateStep { at_ns: 0, site, per_second: LOADS.0 * SITE_PER_SECOND });
        // Some begin soon, so that a short run has bursts too.
        let mut at_ns = random.between(0, REST_MS.1) * MS;
        while at_ns < duration_ns {
            steps.push(RateStep { at_ns, site, per_second: LOADS.1 * SITE_PER_SECOND });
            at_ns += random.between(BURST_MS.0, BURST_MS.1) * MS;
            steps.push(RateStep { at_ns, site, per_second: LOADS.0 * SITE_PER_SECOND });
            at_ns += random.between(REST_MS.0, REST_MS.1) * MS;
        }
    }
    steps
}
