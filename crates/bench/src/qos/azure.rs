//! The Azure pair: two services of one provider, 60 times as fast, on eight nodes of 200
//! requests/s each. An objective of 50 ms beside every way to divide the nodes for good.

use super::pools::NODES;
use super::traces::{Feed, Replayed, SLOW_MS, folder, replay};
use load::generate::Cancel;
use polder::rig::{RigNode, RigOptions, RigSite};
use polder::settings::PolicyName;
use policy::Thresholds;
use serde::Serialize;
use sim::Arrival;
use sim::scenario::azure::{self, Pace, SERVICE_NS};
use std::time::Duration;

/// Pools that are loaded at the same time: their edges look a thousand times in a second each.
const AT_ONCE: usize = 5;
/// The sites, as the scenario orders their traces.
const SITES: [&str; 2] = ["code", "conv"];

/// Who divides the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// So many for the first site, for good.
    Split(u16),
    /// A policy moves them; half of them each at the start.
    Moving(PolicyName),
}

impl Division {
    /// First what is looked for, and what was there before it.
    fn all() -> Vec<Self> {
        let moving = [PolicyName::Slo, PolicyName::Reconf].map(Self::Moving);
        moving.into_iter().chain((1..NODES).map(Self::Split)).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Split(first) => format!("{first} + {}", NODES - first),
            Self::Moving(policy) => policy.name().to_owned(),
        }
    }

    fn policy(self) -> PolicyName {
        match self {
            Self::Split(_) => PolicyName::Rigid,
            Self::Moving(policy) => policy,
        }
    }

    fn nodes(self) -> [u16; 2] {
        let first = if let Self::Split(first) = self { first } else { NODES / 2 };
        [first, NODES - first]
    }
}

/// What became of the pair under one division.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Divided {
    #[serde(skip)]
    pub(crate) division: Division,
    pub(crate) nodes: String,
    /// Of all requests: slower than [`SLOW_MS`], or failed; percent.
    pub(crate) slow_pct: f64,
    /// Unknown of what is divided for good: none.
    pub(crate) moves: u64,
}

impl Divided {
    fn new(division: Division, slow_share: f64, moves: u64) -> Self {
        Self { division, nodes: division.name(), slow_pct: 100.0 * slow_share, moves }
    }
}

/// Both forms of the measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Azure {
    /// In virtual time.
    pub(crate) simulated: Vec<Divided>,
    /// With real stubs; empty in the quick form.
    pub(crate) live: Vec<Divided>,
    pub(crate) replayed: Vec<Replayed>,
}

/// Slow requests with an objective over those of the best fixed division.
pub(crate) fn violation_ratio(divided: &[Divided]) -> Option<f64> {
    let slo = divided.iter().find(|one| one.division == Division::Moving(PolicyName::Slo))?;
    let splits = divided.iter().filter(|one| matches!(one.division, Division::Split(_)));
    let best = splits.map(|one| one.slow_pct).reduce(f64::min)?;
    (best > 0.0).then(|| slo.slow_pct / best)
}

/// Simulates, and if wanted replays live.
pub(crate) fn measure(is_live: bool, cancel: &Cancel) -> anyhow::Result<Azure> {
    let arrivals = azure::traces(&folder())?;
    let mut azure =
        Azure { simulated: simulate(&arrivals)?, live: Vec::new(), replayed: Vec::new() };
    if is_live {
        let feed = Feed::azure()?;
        for divisions in Division::all().chunks(AT_ONCE) {
            let pool = |division: &Division| (division.name(), rig(*division));
            let replayed = replay(&feed, divisions.iter().map(pool).collect(), cancel)?;
            for (one, &division) in replayed.iter().zip(divisions) {
                let divided = Divided::new(division, one.slow_share(), one.moves as u64);
                azure.live.push(divided);
            }
            azure.replayed.extend(replayed);
        }
    }
    Ok(azure)
}

fn simulate(arrivals: &[Arrival]) -> anyhow::Result<Vec<Divided>> {
    let pace = Pace::default();
    let build = |policy: PolicyName| policy.build(Thresholds::default());
    let slo = azure::compare(arrivals, pace, build(PolicyName::Slo))?;
    let reconf = azure::run(arrivals, pace, build(PolicyName::Reconf))?;
    let moving = |policy, share, moves| Divided::new(Division::Moving(policy), share, moves);
    let mut all = vec![
        moving(PolicyName::Slo, slo.slow_share, slo.moves),
        moving(PolicyName::Reconf, reconf.slow_share(), reconf.moves_total),
    ];
    let splits = slo.statics.into_iter();
    all.extend(splits.map(|(first, share)| Divided::new(Division::Split(first), share, 0)));
    Ok(all)
}

/// The same pool with real processes.
fn rig(division: Division) -> RigOptions {
    let sites = SITES.into_iter().zip(division.nodes()).map(|(name, nodes)| {
        let site = RigSite::new(name, nodes);
        let has_objective = division.policy() == PolicyName::Slo;
        if has_objective { site.with_objective(SLOW_MS) } else { site }
    });
    let mut options = RigOptions::new("azure", sites.collect());
    options.policy = division.policy();
    let service_time = Duration::from_nanos(SERVICE_NS);
    options.node = RigNode { workers: 1, service_time, max_in_flight: 1, ..RigNode::default() };
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_fixed_division_is_what_counts() {
        let slo = Divided::new(Division::Moving(PolicyName::Slo), 0.03, 9);
        let split = |first, share| Divided::new(Division::Split(first), share, 0);
        let mut all = vec![slo, split(4, 0.08), split(5, 0.06)];
        let ratio = violation_ratio(&all).unwrap();
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
        all[2].slow_pct = 0.0;
        assert_eq!(violation_ratio(&all), None);
        assert_eq!(violation_ratio(&all[1..]), None);
    }

    #[test]
    fn all_divisions_use_all_nodes_and_leave_each_site_one() {
        assert_eq!(NODES, azure::NODES);
        assert!(azure::FILES[0].contains(SITES[0]) && azure::FILES[1].contains(SITES[1]));
        let divisions = Division::all();
        assert_eq!(divisions.len(), 9);
        for division in divisions {
            let [first, second] = division.nodes();
            assert!(first >= 1 && second >= 1 && first + second == NODES);
            assert_eq!(rig(division).nodes(), usize::from(NODES));
        }
    }
}
