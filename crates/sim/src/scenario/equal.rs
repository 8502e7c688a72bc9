//! Two equal sites, both with twice the load that they can serve: nothing is to be gained, and no
//! node may move.

use crate::options::{NodeSpec, Options, SiteSpec, spread};
use crate::outcome::Outcome;
use crate::traffic::{RateStep, Traffic};
use crate::{OptionsError, Simulation};
use policy::Policy;
use pool_model::{Guarantee, NodeTraits, Objective, SiteId, SiteTerms};

const MS: u64 = 1_000_000;
/// Nodes of both together.
const NODES: u16 = 8;
/// Eight slots of 5 ms.
const NODE_PER_SECOND: f64 = 1_600.0;
/// Of what its half of the nodes can serve.
const LOAD: f64 = 2.0;

/// Runs it for so long.
///
/// # Errors
///
/// None: the pool can be simulated.
pub fn run(seed: u64, seconds: u64, policy: Box<dyn Policy>) -> Result<Outcome, OptionsError> {
    let guarantee = Guarantee { hard: 1, soft: 4, max: NODES };
    let objective = Some(Objective { p99_us: 50_000 });
    let terms = SiteTerms { objective, ..SiteTerms::default().with_guarantee(guarantee) };
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
        ..Options::new(sites, nodes).with_pace(2, 6)
    };
    let per_second = LOAD * NODE_PER_SECOND * f64::from(NODES) / 2.0;
    let steps = [SiteId::MIN, SiteId::new(2).unwrap_or(SiteId::MIN)].map(|site| RateStep {
        at_ns: 0,
        site,
        per_second,
    });
    let traffic = Traffic::poisson(seed, steps.to_vec(), options.duration_ns);
    Ok(Simulation::new(options, traffic, policy)?.run())
}
