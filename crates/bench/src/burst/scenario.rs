//! The two shared data centers of the paper, and the three ways to run each.

use polder::rig::{RigOptions, RigSite};
use polder::settings::PolicyName;

/// How nodes are given to sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scheme {
    /// Each node stays where it started.
    Rigid,
    /// Nodes move to the loaded site.
    Reconf,
    /// Each site has as many nodes as `Reconf` could give it, for itself alone.
    OverProvisioned,
}

impl Scheme {
    pub(crate) const ALL: [Self; 3] = [Self::Rigid, Self::Reconf, Self::OverProvisioned];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rigid => "rigid",
            Self::Reconf => "reconf",
            Self::OverProvisioned => "over-provisioned",
        }
    }
}

/// Sites and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Nodes that each site starts with.
    pub(crate) nodes: &'static [u16],
    /// Nodes that one site can have while each other keeps one: what `OverProvisioned` gives to
    /// every site.
    pub(crate) usable: u16,
}

/// Three sites, 3:3:2.
pub(crate) const A: Scenario = Scenario { name: "A", nodes: &[3, 3, 2], usable: 6 };
/// Four sites, 2:2:2:2.
pub(crate) const B: Scenario = Scenario { name: "B", nodes: &[2, 2, 2, 2], usable: 5 };

impl Scenario {
    /// Sites.
    pub(crate) fn sites(&self) -> usize {
        self.nodes.len()
    }

    /// The name of a site by its place.
    pub(crate) fn site_name(index: usize) -> String {
        format!("site{}", index + 1)
    }

    /// In words, for headings.
    pub(crate) fn title(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(u16::to_string).collect();
        format!("{}: {} sites with {} nodes", self.name, self.sites(), nodes.join(":"))
    }

    /// Nodes of each site under a scheme.
    pub(crate) fn nodes_under(&self, scheme: Scheme) -> Vec<u16> {
        match scheme {
            Scheme::OverProvisioned => vec![self.usable; self.sites()],
            _ => self.nodes.to_vec(),
        }
    }

    /// A pool for it. Look, hold, thresholds and edge are the product's defaults in all of them.
    pub(crate) fn rig(&self, scheme: Scheme) -> RigOptions {
        let nodes = self.nodes_under(scheme);
        let site = |(index, &nodes): (usize, &u16)| RigSite::new(Self::site_name(index), nodes);
        let mut options =
            RigOptions::new(scheme.name(), nodes.iter().enumerate().map(site).collect());
        options.policy = match scheme {
            Scheme::Reconf => PolicyName::Reconf,
            _ => PolicyName::Rigid,
        };
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_usable_leaves_every_other_site_one_node() {
        for scenario in [A, B] {
            let all: u16 = scenario.nodes.iter().sum();
            assert_eq!(usize::from(scenario.usable), usize::from(all) - (scenario.sites() - 1));
        }
    }

    #[test]
    fn schemes_differ_in_policy_and_nodes_only() {
        let [rigid, reconf, over] = Scheme::ALL.map(|scheme| B.rig(scheme));
        assert_eq!((rigid.nodes(), reconf.nodes(), over.nodes()), (8, 8, 20));
        assert_eq!(rigid.policy, PolicyName::Rigid);
        assert_eq!(over.policy, PolicyName::Rigid);
        assert_eq!(reconf.policy, PolicyName::Reconf);
        assert_eq!((rigid.node, rigid.hold_ms, rigid.threads), (over.node, None, reconf.threads));
        assert_eq!(A.title(), "A: 3 sites with 3:3:2 nodes");
    }
}
