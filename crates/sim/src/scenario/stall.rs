//! Two equal sites, one overloaded, one busy, whose clients all stall for some milliseconds now and
//! then: no reason to take a node from it, which it would want back at once.

use crate::options::{NodeSpec, Options, SiteSpec, spread};
use crate::outcome::Outcome;
use crate::traffic::{RateStep, Traffic};
use crate::{OptionsError, Simulation};
use policy::Policy;
use pool_model::{Guarantee, NodeTraits, SiteId, SiteTerms};

const MS: u64 = 1_000_000;
/// Nodes of both together.
const NODES: u16 = 8;
/// Eight slots of 5 ms.
const NODE_PER_SECOND: f64 = 1_600.0;
/// Of what its half of the nodes can serve: the overloaded one, and the busy one.
const LOADS: [f64; 2] = [2.0, 0.8];
/// Looks and holds in milliseconds: a stall is over long before a hold is.
const PACE: (u64, u64) = (2, 24);
/// How long a stall is, and how often there is one.
const STALL: (u64, u64) = (8 * MS, 250 * MS);

/// Runs it for so long.
///
/// # Errors
///
/// None: the pool can be simulated.
pub fn run(seed: u64, seconds: u64, policy: Box<dyn Policy>) -> Result<Outcome, OptionsError> {
    let guarantee = Guarantee { hard: 1, soft: 4, max: NODES };
    let terms = SiteTerms::default().with_guarantee(guarantee);
    let site = SiteSpec { terms, service_ns: 5 * MS, slow_ns: 50 * MS };
    let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: 8, site: None };
    let (sites, mut nodes) = (vec![site; 2], vec![node; usize::from(NODES)]);
    spread(&sites, &mut nodes);
    let options = Options {
        seed,
        edges: 2,
        queue_max: 2_000,
        duration_ns: seconds * 1_000 * MS,
        settle_ns: 0,
        ..Options::new(sites, nodes).with_pace(PACE.0, PACE.1)
    };
    let half = NODE_PER_SECOND * f64::from(NODES) / 2.0;
    let [first, second] = [SiteId::MIN, SiteId::new(2).unwrap_or(SiteId::MIN)];
    let step = |at_ns, site, load: f64| RateStep { at_ns, site, per_second: load * half };
    let mut steps = vec![step(0, first, LOADS[0]), step(0, second, LOADS[1])];
    for at_ns in (STALL.1..options.duration_ns).step_by(STALL.1 as usize) {
        steps.extend([step(at_ns, second, 0.0), step(at_ns + STALL.0, second, LOADS[1])]);
    }
    let traffic = Traffic::poisson(seed, steps, options.duration_ns);
    Ok(Simulation::new(options, traffic, policy)?.run())
}
