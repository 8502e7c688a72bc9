//! Who gets how many nodes when only it is loaded, and when all are: found by asking the policy
//! itself, move by move, as edges do.
//!
//! ```text
//! start     nodes as the settings give them out
//! loaded    far more requests wait than any number of nodes could take
//! repeat    ask the policy for the needs of all sites; the most urgent one that can be met takes
//!           the best node, as long as its donor keeps `hard` and it stays within `max`
//! ```

use crate::settings::Settings;
use policy::Policy;
use pool_model::{NodeId, NodeView, PoolView, Reason, SiteId, SiteView};
use std::cmp::Reverse;

/// Larger pools are not worked out: each move asks for all sites and looks at all nodes.
const NODES_MAX: usize = 256;
const SITES_MAX: usize = 64;

/// Moves after which it will not come to rest: some times around for every node.
const MOVES_MAX_PER_NODE: usize = 8;

/// Requests that wait for a loaded site: above any load that is worth a node.
const QUEUED: u32 = 10_000_000;

/// What one site gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// Nodes when no other site has requests.
    pub(super) alone: usize,
    /// Nodes when all sites are loaded.
    pub(super) all_loaded: usize,
}

/// The shares of all sites, in their order; none where the pool is too large to be worked out, or
/// where nodes would go to and fro.
pub(super) fn shares(settings: &Settings, policy: &dyn Policy) -> Option<Vec<Share>> {
    if settings.nodes.len() > NODES_MAX || settings.sites.len() > SITES_MAX {
        return None;
    }
    let all = nodes_at_rest(settings, policy, |_| true)?;
    let share = |(place, all_loaded): (usize, usize)| {
        let alone = nodes_at_rest(settings, policy, |site| site.index() == place)?;
        Some(Share { alone: alone[place], all_loaded })
    };
    all.into_iter().enumerate().map(share).collect()
}

/// How many nodes each site has when nobody can take one any more.
fn nodes_at_rest(
    settings: &Settings,
    policy: &dyn Policy,
    is_loaded: impl Fn(SiteId) -> bool,
) -> Option<Vec<usize>> {
    let mut view = start(settings);
    for _ in 0..MOVES_MAX_PER_NODE * settings.nodes.len() {
        load(&mut view, &is_loaded);
        let Some((node, to)) = next_move(&view, policy) else {
            return Some(view.sites.iter().map(|site| usize::from(site.nodes)).collect());
        };
        let moved = view.nodes.iter_mut().find(|one| one.id == node);
        moved?.site = Some(to);
    }
    None
}

fn start(settings: &Settings) -> PoolView {
    let site = |(index, site): (usize, &crate::settings::Site)| {
        let (id, terms) = (SiteId::from_index(index).ok()?, site.terms);
        let (queued, in_flight, capacity, nodes, service_us) = (0, 0, 0, 0, 0);
        Some(SiteView { id, terms, queued, in_flight, capacity, nodes, service_us })
    };
    let assigned = settings.first_assignment();
    let node = |((node, site), number): ((&crate::settings::Node, &Option<SiteId>), u16)| {
        let id = NodeId::new(number).ok()?;
        let (max_in_flight, traits) = (node.max_in_flight, node.traits);
        Some(NodeView { id, site: *site, in_flight: 0, max_in_flight, movable: true, traits })
    };
    PoolView {
        sites: settings.sites.iter().enumerate().filter_map(site).collect(),
        nodes: settings.nodes.iter().zip(&assigned).zip(0..).filter_map(node).collect(),
        ..PoolView::default()
    }
}

fn load(view: &mut PoolView, is_loaded: &impl Fn(SiteId) -> bool) {
    for node in &mut view.nodes {
        let is_busy = node.site.is_some_and(is_loaded);
        node.in_flight = if is_busy { node.max_in_flight } else { 0 };
    }
    for site in &mut view.sites {
        site.queued = if is_loaded(site.id) { QUEUED } else { 0 };
    }
    view.sum_up();
}

/// The first move that an edge would make.
fn next_move(view: &PoolView, policy: &dyn Policy) -> Option<(NodeId, SiteId)> {
    let need = |site: &SiteView| Some((policy.need(view, site.id)?, *site));
    let mut needs: Vec<(Reason, SiteView)> = view.sites.iter().filter_map(need).collect();
    needs
        .sort_by_key(|(reason, site)| (*reason, Reverse(site.terms.priority), site.nodes, site.id));
    let may_give = |donor: Option<SiteId>| {
        let donor = donor.and_then(|donor| view.site(donor));
        donor.is_none_or(|donor| donor.nodes > donor.terms.guarantee.hard)
    };
    needs.into_iter().find_map(|(reason, site)| {
        let candidates = policy.candidates(view, site.id, reason);
        let taken = candidates.into_iter().find(|candidate| may_give(candidate.donor))?;
        (site.nodes < site.terms.guarantee.max).then_some((taken.node, site.id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;
    use policy::{Reconf, Rigid};

    fn of(policy: &dyn Policy, sites: &[&str], nodes: usize) -> Option<Vec<(usize, usize)>> {
        let mut text = format!("[[nodes]]\nname = 'n'\ncount = {nodes}\n");
        for (number, lines) in sites.iter().enumerate() {
            text += &format!("[[sites]]\nname = 's{number}'\nhosts = ['s{number}']\n{lines}\n");
            text += "command = ['serve', '{port}']\n";
        }
        let settings = parse("x", &text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        let shares = shares(&settings.settings, policy)?;
        Some(shares.iter().map(|share| (share.alone, share.all_loaded)).collect())
    }

    #[test]
    fn the_policy_itself_says_who_gets_what() {
        let sites = ["nodes = 3\nhard = 2", "nodes = 3\nmax = 5", "nodes = 1"];
        assert_eq!(of(&Rigid, &sites, 8).unwrap(), [(3, 3), (3, 3), (1, 1)]);
        // Alone, a site gets what the others are not promised; when all are loaded nobody gives,
        // and the free node goes to who has least.
        assert_eq!(of(&Reconf::default(), &sites, 8).unwrap(), [(6, 3), (5, 3), (5, 2)]);
    }

    /// Gives every node to whoever asks, whoever has it.
    struct Greedy;

    impl Policy for Greedy {
        fn name(&self) -> &'static str {
            "greedy"
        }

        fn need(&self, _: &PoolView, _: SiteId) -> Option<Reason> {
            Some(Reason::Load)
        }

        fn candidates(&self, view: &PoolView, taker: SiteId, _: Reason) -> Vec<policy::Candidate> {
            let others = view.nodes.iter().filter(|node| node.site != Some(taker));
            others.map(|node| policy::Candidate { node: node.id, donor: node.site }).collect()
        }
    }

    #[test]
    fn a_policy_that_never_rests_and_a_huge_pool_have_no_shares() {
        assert_eq!(of(&Greedy, &["hard = 0", "hard = 0"], 3), None);
        assert_eq!(of(&Rigid, &["", ""], NODES_MAX + 1), None);
        assert_eq!(of(&Rigid, &[""], NODES_MAX), Some(vec![(1, 1)]));
    }
}
