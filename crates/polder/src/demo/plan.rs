//! Which load is made when, and how the demo's time is shared out. Pure: the same seed and times
//! give the same traffic.

use crate::rig::{RigOptions, RigSite};
use crate::settings::PolicyName;
use std::time::Duration;

/// The sites, and the nodes that each starts with.
pub(super) const SITES: [(&str, u16); 3] = [("shop", 3), ("news", 3), ("video", 2)];
/// Nodes that one site can have while each other keeps one: what over-provisioning gives to every
/// site for itself.
pub(super) const NODES_USABLE: u16 = 6;
/// Edges of each pool.
pub(super) const EDGES: u8 = 2;
/// Requests to each site that come all the time, besides the bursts; per second. Enough that a
/// quiet site's latencies can be told, and below 3 % of what one node takes.
pub(super) const TRICKLE_PER_SITE: u32 = 50;

/// Bursts while somebody watches last about so long: a person can follow them.
pub(super) const BURST_WATCHED: Duration = Duration::from_millis(2_200);
/// Bursts of the comparison last about so long: some hundred times what a move takes, and short
/// enough that each round has several.
pub(super) const BURST_COMPARED: Duration = Duration::from_millis(400);
/// Rounds of the comparison: the fewest with a median and a spread.
pub(super) const ROUNDS: u32 = 3;
/// Before a pool's first round each of its sites gets load for so long, which does not count:
/// connections are made.
pub(super) const WARM_UP_PER_SITE: Duration = Duration::from_millis(100);

/// Most bursts of one plan: an hour of the longer ones.
const BURSTS_MAX: u32 = 1_800;
/// The longest burst is so many times as long as the shortest.
const LENGTHS_VARY: f64 = 3.0;
/// Of the demo's time so much is for watching; the comparison and starting pools take the rest.
const WATCHED_SHARE: f64 = 0.55;
/// However slowly the pool started, a burst to each site is watched.
const WATCHED_MIN: Duration = Duration::from_secs(3);
/// Kept free at the end for stopping pools and drawing the plot.
const END_RESERVE: Duration = Duration::from_millis(600);
/// Around each run of the comparison: reading counters, connecting, last responses.
const RUN_OVERHEAD: Duration = Duration::from_millis(60);
/// The shortest and longest run of the comparison: three bursts that are long against a move; and
/// what keeps a plot readable.
const RUN_MIN: Duration = Duration::from_millis(240);
const RUN_MAX: Duration = Duration::from_secs(60);

/// How nodes are given to sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Each node stays where it started.
    Rigid,
    /// The same nodes, and they move to the loaded site.
    Polder,
    /// Each site has as many nodes as `Polder` could give it, for itself alone.
    OverProvisioned,
}

impl Scheme {
    pub(super) const ALL: [Self; 3] = [Self::Rigid, Self::Polder, Self::OverProvisioned];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rigid => "rigid",
            Self::Polder => "polder",
            Self::OverProvisioned => "over-provisioned",
        }
    }

    /// A pool for it. They differ in policy and nodes only.
    pub(super) fn rig(self) -> RigOptions {
        let nodes = |own: u16| if self == Self::OverProvisioned { NODES_USABLE } else { own };
        let sites = SITES.map(|(name, own)| RigSite::new(name, nodes(own)));
        let mut options = RigOptions::new("demo", sites.to_vec());
        options.edges = EDGES;
        if self != Self::Polder {
            options.policy = PolicyName::Rigid;
        }
        options
    }
}

/// Clients that all want one site, for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Burst {
    /// Its place in [`SITES`].
    pub(super) site: usize,
    pub(super) length: Duration,
}

/// Bursts of about `typical` each, `total` together. Every three of them go to the three sites in
/// some order, and no two that follow each other to the same one.
pub(super) fn bursts(seed: u64, total: Duration, typical: Duration) -> Vec<Burst> {
    let sites = SITES.len() as u32;
    let rotations = total.as_secs_f64() / typical.as_secs_f64() / f64::from(sites);
    let rotations = (rotations.round() as u32).clamp(1, BURSTS_MAX / sites);
    let mut random = Random(seed);
    let mut order: Vec<usize> = Vec::new();
    for _ in 0..rotations {
        let before = order.last().copied();
        let mut rotation: Vec<usize> = (0..SITES.len()).collect();
        for place in (1..rotation.len()).rev() {
            rotation.swap(place, random.below(place as u64 + 1) as usize);
        }
        if rotation.first().copied() == before {
            rotation.rotate_left(1);
        }
        order.append(&mut rotation);
    }
    let weights: Vec<f64> =
        order.iter().map(|_| 1.0 + (LENGTHS_VARY - 1.0) * random.share()).collect();
    let whole: f64 = weights.iter().sum();
    let length = |weight: f64| total.mul_f64(weight / whole);
    order
        .iter()
        .zip(weights)
        .map(|(&site, weight)| Burst { site, length: length(weight) })
        .collect()
}

/// One short burst to each site.
pub(super) fn warm_up() -> Vec<Burst> {
    (0..SITES.len()).map(|site| Burst { site, length: WARM_UP_PER_SITE }).collect()
}

/// How long the watched part lasts when of `total` so much has passed.
pub(super) fn watched(total: Duration, elapsed: Duration) -> Duration {
    total.mul_f64(WATCHED_SHARE).saturating_sub(elapsed).max(WATCHED_MIN)
}

/// How long each run of the comparison lasts when so much of the demo's time is left.
pub(super) fn run_length(left: Duration) -> Duration {
    let runs = ROUNDS * Scheme::ALL.len() as u32;
    let each = left.saturating_sub(END_RESERVE) / runs;
    each.saturating_sub(RUN_OVERHEAD).clamp(RUN_MIN, RUN_MAX)
}

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `limit`, which is small: that some values are more likely by 2^-60 does not matter.
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    proptest! {
        #[test]
        fn bursts_reach_every_site_in_turn_and_fill_the_time(
            seed: u64,
            total_ms in 240u64..600_000,
            typical_ms in 100u64..5_000,
        ) {
            let total = Duration::from_millis(total_ms);
            let plan = bursts(seed, total, Duration::from_millis(typical_ms));
            prop_assert!(plan.len() >= SITES.len() && plan.len() <= BURSTS_MAX as usize);
            prop_assert!(plan.windows(2).all(|two| two[0].site != two[1].site));
            for rotation in plan.chunks(SITES.len()) {
                let mut sites: Vec<usize> = rotation.iter().map(|burst| burst.site).collect();
                sites.sort_unstable();
                prop_assert_eq!(sites, vec![0, 1, 2]);
            }
            let sum: Duration = plan.iter().map(|burst| burst.length).sum();
            let off = sum.abs_diff(total);
            prop_assert!(off < Duration::from_micros(10), "{sum:?} of {total:?}");
            let lengths = || plan.iter().map(|burst| burst.length.as_secs_f64());
            let longest = lengths().fold(0.0, f64::max);
            let shortest = lengths().fold(f64::INFINITY, f64::min);
            prop_assert!(longest <= shortest * LENGTHS_VARY * 1.001);
        }
    }

    #[test]
    fn a_seed_gives_its_traffic_again_and_another_seed_another() {
        let of = |seed| bursts(seed, MINUTE, BURST_WATCHED);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_minute_is_half_watched_and_the_rest_compares() {
        assert_eq!(watched(MINUTE, MINUTE), WATCHED_MIN);
        let watched = watched(MINUTE, Duration::from_millis(300));
        assert!((30..36).contains(&watched.as_secs()));
        let left = MINUTE - watched - Duration::from_secs(3);
        let run = run_length(left);
        assert!(run > Duration::from_secs(2));
        let all = (run + RUN_OVERHEAD) * ROUNDS * 3;
        assert!(all < left && all > left.mul_f64(0.9));
        assert_eq!(run_length(Duration::ZERO), RUN_MIN);
        assert_eq!(run_length(Duration::MAX), RUN_MAX);
    }

    #[test]
    fn schemes_differ_in_policy_and_nodes_only() {
        let [rigid, polder, over] = Scheme::ALL.map(Scheme::rig);
        assert_eq!((rigid.nodes(), polder.nodes(), over.nodes()), (8, 8, 18));
        assert_eq!(rigid.policy, PolicyName::Rigid);
        assert_eq!(polder.policy, PolicyName::Reconf);
        assert_eq!(over.policy, PolicyName::Rigid);
        assert_eq!((rigid.node, rigid.edges, rigid.queue_max), (over.node, 2, polder.queue_max));
        let others = SITES.len() as u16 - 1;
        assert_eq!(usize::from(NODES_USABLE + others), polder.nodes());
        let trickle = f64::from(TRICKLE_PER_SITE);
        assert!(trickle < 0.03 * rigid.node.capacity_per_second());
    }
}
