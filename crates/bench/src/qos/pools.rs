//! The pools of the figure: nodes, sites, and who decides on moves.

use polder::rig::{RigNode, RigOptions, RigSite};
use polder::settings::PolicyName;
use std::time::Duration;

/// Requests that a node serves at once, and the time of each: 1,600 requests/s. Eight nodes make
/// 12,800, for which edge, stubs and load take less than one core together.
pub(crate) const WORKERS: u32 = 4;
const SERVICE_TIME: Duration = Duration::from_micros(2_500);
/// Rounds of requests that a node of the cases takes at once: 10 ms of work, so that one that has
/// a site for itself is busy whatever its edge and clients are kept from for a moment.
const ROUNDS: u32 = 4;
/// Nodes of all pools but `rigid-large`.
pub(crate) const NODES: u16 = 8;
/// Of `rigid-large`: as many for each site as the other pools could ever give one of two.
const NODES_LARGE: u16 = 14;

/// The two sites, the important one first.
pub(crate) const SITES: [&str; 2] = ["high", "low"];
pub(crate) const HIGH: usize = 0;
pub(crate) const LOW: usize = 1;

/// What the papers guarantee to each site.
pub(crate) const HARD: u16 = 2;
pub(crate) const SOFT: u16 = 6;
/// What `reconf` and `reconf_p` leave to each site: as published.
pub(crate) const MINIMUM_PUBLISHED: u16 = 1;

/// A node whose documents have so many bytes.
pub(crate) fn node(body_bytes: usize) -> RigNode {
    let workers = WORKERS;
    RigNode { workers, service_time: SERVICE_TIME, max_in_flight: 2 * workers, body_bytes }
}

/// Who shares the nodes between two equal sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Four nodes for each site.
    RigidSmall,
    /// Seven for each.
    RigidLarge,
    /// Eight that move.
    Reconf,
}

impl Scheme {
    pub(crate) const ALL: [Self; 3] = [Self::RigidSmall, Self::RigidLarge, Self::Reconf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RigidSmall => "rigid-small",
            Self::RigidLarge => "rigid-large",
            Self::Reconf => "reconf",
        }
    }

    pub(crate) fn nodes(self) -> u16 {
        if self == Self::RigidLarge { NODES_LARGE } else { NODES }
    }

    /// Nodes that a site which alone is loaded can have.
    pub(crate) fn usable(self) -> u16 {
        if self == Self::Reconf { NODES - MINIMUM_PUBLISHED } else { self.nodes() / 2 }
    }

    pub(crate) fn rig(self, body_bytes: usize) -> RigOptions {
        let site = |name: &str| RigSite::new(name, self.nodes() / 2);
        let mut options = RigOptions::new(self.name(), SITES.map(site).to_vec());
        options.node = node(body_bytes);
        options.policy = if self == Self::Reconf { PolicyName::Reconf } else { PolicyName::Rigid };
        options
    }
}

/// The policies that the cases compare.
pub(crate) const POLICIES: [PolicyName; 3] =
    [PolicyName::Reconf, PolicyName::ReconfP, PolicyName::ReconfPq];

/// Nodes that a site is left under a policy: the hard guarantee of the settings.
pub(crate) fn minimum(policy: PolicyName) -> u16 {
    if policy == PolicyName::ReconfPq { HARD } else { MINIMUM_PUBLISHED }
}

/// Two sites of different priority on eight nodes, four for each at the start.
pub(crate) fn prioritised(policy: PolicyName, body_bytes: usize) -> RigOptions {
    let site = |place: usize| {
        let site = RigSite::new(SITES[place], NODES / 2);
        let site = match policy {
            PolicyName::Reconf | PolicyName::Rigid => site,
            _ => site.with_priority(if place == HIGH { 1 } else { 0 }),
        };
        if policy == PolicyName::ReconfPq { site.with_guarantee(HARD, SOFT) } else { site }
    };
    let mut options = RigOptions::new(policy.name(), vec![site(HIGH), site(LOW)]);
    options.node = RigNode { max_in_flight: ROUNDS * WORKERS, ..node(body_bytes) };
    options.policy = policy;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_have_the_nodes_of_the_paper() {
        let nodes = Scheme::ALL.map(|scheme| (scheme.rig(1_024).nodes(), scheme.usable()));
        assert_eq!(nodes, [(8, 4), (14, 7), (8, 7)]);
    }

    #[test]
    fn only_the_guarantees_differ_between_the_policies_of_the_cases() {
        let told = |policy| {
            let options = prioritised(policy, 1_024);
            let high = &options.sites[HIGH];
            assert_eq!((options.nodes(), options.policy), (8, policy));
            assert_eq!(high.hard, minimum(policy));
            (high.hard, high.soft, high.priority, options.sites[LOW].priority)
        };
        assert_eq!(POLICIES.map(told), [(1, None, 0, 0), (1, None, 1, 0), (2, Some(6), 1, 0)]);
    }

    #[test]
    fn nodes_have_one_capacity_and_more_to_do_in_the_cases() {
        let node = node(1_024);
        assert!((node.capacity_per_second() - 1_600.0).abs() < 1e-6);
        let in_case = prioritised(PolicyName::Reconf, 1_024).node;
        assert_eq!((node.max_in_flight, in_case.max_in_flight), (8, 16));
        assert_eq!(RigNode { max_in_flight: 8, ..in_case }, node);
    }
}
