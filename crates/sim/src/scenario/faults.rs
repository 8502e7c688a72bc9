//! A small pool in which everything breaks.
//!
//! Eight nodes, three edges, two to four sites with guarantees and priorities drawn from the seed;
//! look 20 ms, hold 60 ms, a network between the machines. Loads change every few seconds; ten
//! faults come in the first 45 s, some of them at once; a crash in mid-move waits for a move, which
//! may be later. In the last 15 s one site has more than its share: whatever was broken must have
//! been mended, and the site be helped.

use crate::fault::plan;
use crate::options::{NodeSpec, Options, SiteSpec, Transport, spread};
use crate::outcome::Outcome;
use crate::random::{Random, Stream};
use crate::traffic::{RateStep, Traffic};
use crate::{OptionsError, Simulation};
use moves::Timing;
use policy::Policy;
use pool_model::{Guarantee, NodeTraits, Priority, SiteId, SiteTerms};

/// Faults in each run.
pub const FAULTS: usize = 10;
/// Simulated time of each run, without what is still served afterwards.
pub const SECONDS: u64 = 60;
/// Nodes.
pub const NODES: u16 = 8;
/// Edges.
pub const EDGES: u8 = 3;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Faults come between these.
const FAULTS_NS: (u64, u64) = (2 * SECOND, 45 * SECOND);
/// Two slots of 20 ms: a node serves 100 requests in a second.
const NODE_PER_SECOND: f64 = 100.0;
const SERVICE_NS: u64 = 20 * MS;
const SLOTS: u32 = 2;

/// The pool of a seed.
#[must_use]
pub fn options(seed: u64) -> Options {
    let mut random = Random::of(seed, Stream::Scenario);
    let count = random.between(2, 4);
    let sites: Vec<SiteSpec> = (0..count)
        .map(|_| {
            let hard = random.between(1, 2) as u16;
            let soft = hard + random.below(3) as u16;
            let max = if random.below(2) == 0 { NODES } else { soft + random.below(3) as u16 };
            let guarantee = Guarantee { hard, soft, max: max.max(soft) };
            let priority = Priority(random.below(3) as u8);
            let terms = SiteTerms { priority, ..SiteTerms::default().with_guarantee(guarantee) };
            SiteSpec { terms, service_ns: SERVICE_NS, slow_ns: 200 * MS }
        })
        .collect();
    let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: SLOTS, site: None };
    let mut nodes = vec![node; usize::from(NODES)];
    spread(&sites, &mut nodes);
    Options {
        seed,
        edges: EDGES,
        timing: Timing {
            look_every_ns: 20 * MS,
            hold_ns: 60 * MS,
            node_dead_ns: 100 * MS,
            serve_wait_ns: SECOND,
        },
        transport: Transport::NETWORK,
        slot_lease_ns: 400 * MS,
        queue_max: 500,
        duration_ns: SECONDS * SECOND,
        // One node serves in it what three full queues hold.
        settle_ns: 30 * SECOND,
        watch_every_ns: Some(20 * MS),
        ..Options::new(sites, nodes)
    }
}

/// The traffic of a seed.
#[must_use]
pub fn traffic(options: &Options) -> Traffic {
    let mut random = Random::of(options.seed, Stream::Scenario);
    // Not the draws that made the pool.
    let mut random = Random::of(random.draw(), Stream::Traffic);
    let count = options.sites.len();
    let share = f64::from(NODES) * NODE_PER_SECOND / count as f64;
    let mut steps = Vec::new();
    for index in 0..count {
        let Ok(site) = SiteId::from_index(index) else { break };
        let mut at_ns = 0;
        while at_ns < FAULTS_NS.1 {
            let of_share = [0.05, 0.2, 0.5, 0.9, 1.3, 2.5][random.below(6) as usize];
            steps.push(RateStep { at_ns, site, per_second: of_share * share });
            at_ns += random.between(1_000, 6_000) * MS;
        }
    }
    let hot = random.below(count as u64) as usize;
    for index in 0..count {
        let Ok(site) = SiteId::from_index(index) else { break };
        let per_second = share * if index == hot { 2.5 } else { 0.15 };
        steps.push(RateStep { at_ns: FAULTS_NS.1, site, per_second });
    }
    Traffic::poisson(options.seed, steps, options.duration_ns)
}

/// Runs a seed with so many faults.
///
/// # Errors
///
/// None: the pool of every seed can be simulated.
pub fn run(seed: u64, faults: usize, policy: Box<dyn Policy>) -> Result<Outcome, OptionsError> {
    let options = options(seed);
    let faults = plan(&options, faults, FAULTS_NS.0, FAULTS_NS.1);
    let traffic = traffic(&options);
    Ok(Simulation::new(options, traffic, policy)?.with_faults(faults).run())
}
