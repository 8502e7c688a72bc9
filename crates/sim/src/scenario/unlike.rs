//! Random pools of unlike nodes: some twice or four times as fast as others, some of classes that
//! a site needs and others lack.
//!
//! Four to six sites on ten to eighteen nodes, handed out without regard to what they are good at.
//! Each site can do without one or two of its nodes, and may have one to three more than it has.
//! Load is a fluid (requests would be the same rates with noise). After a calm second one site
//! gets more than its nodes can serve, and the others stay as light as they were; so the figure is
//! how well a policy finds the few nodes that are fit for that site. What is counted is the
//! requests of all sites that are served within their objective.

use crate::options::{NodeSpec, Options, SiteSpec};
use crate::outcome::Outcome;
use crate::random::{Random, Stream};
use crate::traffic::{RateStep, Traffic};
use crate::{OptionsError, Simulation};
use policy::Policy;
use pool_model::{Classes, Guarantee, NodeTraits, SiteId, SiteTerms};

const MS: u64 = 1_000_000;
/// What a usual node takes for a request, and how many it takes at once.
const SERVICE_NS: u64 = 5 * MS;
const SLOTS: u32 = 4;
const USUAL_PER_SECOND: f64 = 800.0;
/// Calm at first, then the burst.
const CALM_NS: u64 = 1_000 * MS;
const BURST_NS: u64 = 5_000 * MS;
/// Loads of the sites that stay light: of what they can serve.
const LIGHT: (f64, f64) = (0.05, 0.4);
/// What the loaded site gets beyond what its own nodes can serve: of what the fittest nodes that
/// light sites can spare would serve, as many as it may have.
const BURST: (f64, f64) = (0.7, 0.95);
/// Nodes that a site can do without, and that it may have more, at the most.
const SPARE_MAX: u64 = 2;
const MORE_MAX: u64 = 3;

/// A random pool.
#[derive(Clone, Debug)]
pub struct Pool {
    /// What it is made of.
    pub options: Options,
    /// Its load.
    pub steps: Vec<RateStep>,
    /// The site that gets more than it can serve.
    pub loaded: SiteId,
    /// Whether the lightest donor holds no node that is as fit for that site as the fittest which
    /// any donor can spare.
    pub lightest_is_not_fittest: bool,
}

/// The pool of a seed.
#[must_use]
pub fn pool(seed: u64) -> Pool {
    let mut random = Random::of(seed, Stream::Scenario);
    let count = random.between(4, 6) as usize;
    let sites: Vec<SiteSpec> = (0..count).map(|_| site(&mut random)).collect();
    let mut sites = sites;
    let nodes = nodes(&mut random, &sites);
    for (place, site) in sites.iter_mut().enumerate() {
        let own = nodes.iter().filter(|node| node.site.is_some_and(|s| s.index() == place));
        let own = own.count() as u16;
        let hard = own.saturating_sub(random.between(1, SPARE_MAX) as u16).max(1);
        let max = own + random.between(1, MORE_MAX) as u16;
        site.terms.guarantee = Guarantee { hard, soft: hard, max };
    }
    let options = Options {
        seed,
        edges: 2,
        duration_ns: CALM_NS + BURST_NS,
        settle_ns: 0,
        window_ns: 100 * MS,
        flow_every_ns: 5 * MS,
        queue_max: 4_000,
        ..Options::new(sites, nodes).with_pace(5, 15)
    };
    let loads: Vec<f64> =
        (0..count).map(|_| LIGHT.0 + random.unit() * (LIGHT.1 - LIGHT.0)).collect();
    let place = random.below(count as u64) as usize;
    let loaded = SiteId::from_index(place).unwrap_or(SiteId::MIN);
    let spare = spare(&options, &loads, loaded);
    let own = options.nodes.iter().filter(|node| node.site == Some(loaded)).count();
    let more = usize::from(options.sites[place].terms.guarantee.max) - own;
    let mut best: Vec<f64> = spare.iter().map(|&(_, _, per_second)| per_second).collect();
    best.sort_by(|a, b| b.total_cmp(a));
    let best: f64 = best.iter().take(more).sum();
    let of_best = BURST.0 + random.unit() * (BURST.1 - BURST.0);
    let burst = can(&options, place) + best * of_best;
    let mut steps = Vec::new();
    for (index, load) in loads.iter().enumerate() {
        let Ok(site) = SiteId::from_index(index) else { break };
        steps.push(RateStep { at_ns: 0, site, per_second: load * can(&options, index) });
    }
    steps.push(RateStep { at_ns: CALM_NS, site: loaded, per_second: burst });
    let lightest_is_not_fittest = is_unlike(&spare);
    Pool { options, steps, loaded, lightest_is_not_fittest }
}

fn site(random: &mut Random) -> SiteSpec {
    // Half of the sites want one of two classes.
    let wants = Classes([0, 0, 1, 2][random.below(4) as usize]);
    let unfit_pct = [0, 10, 25, 50][random.below(4) as usize];
    let guarantee = Guarantee { hard: 1, soft: 2, max: u16::MAX };
    let terms = SiteTerms { wants, unfit_pct, ..SiteTerms::default().with_guarantee(guarantee) };
    SiteSpec { terms, service_ns: SERVICE_NS, slow_ns: 100 * MS }
}

/// Nodes in the hands of sites that they can serve at all, two or three for each.
fn nodes(random: &mut Random, sites: &[SiteSpec]) -> Vec<NodeSpec> {
    let count = sites.len() * 5 / 2 + random.below(4) as usize;
    (0..count)
        .map(|index| {
            let place = index % sites.len();
            let capacity_pct = [50, 100, 200, 400][random.below(4) as usize];
            let mut classes = Classes(random.below(4) as u32);
            let terms = &sites[place].terms;
            if terms.unfit_pct == 0 {
                // Who can't do without a class was not given a node without it.
                classes = Classes(classes.0 | terms.wants.0);
            }
            let traits = NodeTraits { capacity_pct, classes };
            NodeSpec { traits, max_in_flight: SLOTS, site: SiteId::from_index(place).ok() }
        })
        .collect()
}

fn per_second(spec: &SiteSpec, node: &NodeSpec) -> f64 {
    USUAL_PER_SECOND * f64::from(spec.terms.fitness_pct(node.traits)) / 100.0
}

/// What a site can serve with its own nodes.
fn can(options: &Options, place: usize) -> f64 {
    let own = options.nodes.iter().filter(|node| node.site.is_some_and(|s| s.index() == place));
    own.map(|node| per_second(&options.sites[place], node)).sum()
}

/// Nodes that light donors can spare: the donor's load, the node's fitness for the loaded site,
/// and what it would serve there. A donor keeps its hard guarantee and twice its own load; the
/// nodes fittest for the loaded site go first.
fn spare(options: &Options, loads: &[f64], loaded: SiteId) -> Vec<(f64, u32, f64)> {
    let taker = &options.sites[loaded.index()];
    let mut spare = Vec::new();
    for (place, &load) in loads.iter().enumerate().filter(|&(place, _)| place != loaded.index()) {
        let donor = &options.sites[place];
        let own = options.nodes.iter().filter(|n| n.site.is_some_and(|s| s.index() == place));
        let mut own: Vec<&NodeSpec> = own.collect();
        own.sort_by_key(|node| std::cmp::Reverse(taker.terms.fitness_pct(node.traits)));
        let (mut left, mut has) = (can(options, place), own.len());
        let needs = 2.0 * load * left;
        for node in own {
            let stays = left - per_second(donor, node);
            let fitness = taker.terms.fitness_pct(node.traits);
            if has > usize::from(donor.terms.guarantee.hard) && stays >= needs && fitness > 0 {
                (left, has) = (stays, has - 1);
                spare.push((load, fitness, per_second(taker, node)));
            }
        }
    }
    spare
}

fn is_unlike(spare: &[(f64, u32, f64)]) -> bool {
    let fittest = spare.iter().map(|&(_, fitness, _)| fitness).max();
    let lightest = spare.iter().min_by(|a, b| a.0.total_cmp(&b.0)).map(|&(load, _, _)| load);
    let of_lightest = spare.iter().filter(|entry| Some(entry.0) == lightest);
    of_lightest.map(|&(_, fitness, _)| fitness).max() != fittest
}

/// Runs a pool under a policy.
///
/// # Errors
///
/// None: the pool of every seed can be simulated.
pub fn run(pool: &Pool, policy: Box<dyn Policy>) -> Result<Outcome, OptionsError> {
    let traffic = Traffic::Rates(pool.steps.clone());
    Ok(Simulation::new(pool.options.clone(), traffic, policy)?.run())
}

/// Requests of all sites that were served within the objective.
#[must_use]
pub fn served_in_time(outcome: &Outcome) -> f64 {
    outcome.arrived() - outcome.slow()
}

/// What one pool showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Its seed.
    pub seed: u64,
    /// Requests served within the objective: the first policy's over the second's.
    pub ratio: f64,
    /// See [`Pool::lightest_is_not_fittest`].
    pub lightest_is_not_fittest: bool,
}

/// Runs a pool under two policies.
///
/// # Errors
///
/// None: the pool of every seed can be simulated.
pub fn compare(
    seed: u64,
    first: Box<dyn Policy>,
    second: Box<dyn Policy>,
) -> Result<Compared, OptionsError> {
    let pool = pool(seed);
    let of = |policy| run(&pool, policy).map(|outcome| served_in_time(&outcome));
    let (first, second) = (of(first)?, of(second)?);
    let lightest_is_not_fittest = pool.lightest_is_not_fittest;
    Ok(Compared { seed, ratio: first / second.max(1.0), lightest_is_not_fittest })
}

/// Many pools.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// How many.
    pub pools: usize,
    /// The least ratio of all.
    pub least: f64,
    /// The median of all.
    pub median: f64,
    /// Pools whose lightest donor is not the fittest.
    pub unlike: usize,
    /// The median of those.
    pub median_unlike: f64,
}

/// Sums up; all ratios are NaN without pools.
#[must_use]
pub fn summary(all: &[Compared]) -> Summary {
    let median = |only: fn(&Compared) -> bool| {
        let mut ratios: Vec<f64> =
            all.iter().filter(|one| only(one)).map(|one| one.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        (ratios.len(), ratios.get(ratios.len() / 2).copied().unwrap_or(f64::NAN))
    };
    let (pools, of_all) = median(|_| true);
    let (unlike, median_unlike) = median(|one| one.lightest_is_not_fittest);
    let least = all.iter().map(|one| one.ratio).fold(f64::NAN, f64::min);
    Summary { pools, least, median: of_all, unlike, median_unlike }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{Kind, Thresholds};

    #[test]
    fn pools_are_real_and_many_have_a_lightest_donor_that_is_not_the_fittest() {
        let pools: Vec<Pool> = (0..200).map(pool).collect();
        for pool in &pools {
            pool.options.check().unwrap();
            for node in &pool.options.nodes {
                let site = &pool.options.sites[node.site.unwrap().index()];
                assert!(site.terms.fitness_pct(node.traits) > 0);
            }
        }
        let unlike = pools.iter().filter(|pool| pool.lightest_is_not_fittest).count();
        assert!((40..180).contains(&unlike), "{unlike} of 200");
    }

    #[test]
    fn a_policy_beside_itself_is_as_good() {
        let policy = || Kind::ReconfPq.build(Thresholds::default());
        let compared = compare(3, policy(), policy()).unwrap();
        assert_eq!(compared.ratio, 1.0);
    }

    #[test]
    fn the_fittest_node_serves_more_and_never_less() {
        let of = |kind: Kind| kind.build(Thresholds::default());
        let one = |seed| compare(seed, of(Kind::Staged), of(Kind::ReconfPq)).unwrap();
        let all: Vec<Compared> = (1..=100).map(one).collect();
        let summary = summary(&all);
        println!("{summary:?}");
        assert!(summary.least >= 0.98, "{summary:?}");
        assert!(summary.median_unlike >= 1.1 && summary.unlike >= 20, "{summary:?}");
    }
}
