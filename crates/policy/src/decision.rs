//! One whole decision, as the edges' core makes it in a look, and pools in which it is dear.
//!
//! Nothing here is part of a decision; it is what `bench -- simulate` times and tests bound. Like
//! all of this crate it reads no clock: who calls it does.

use crate::{Candidate, Policy};
use pool_model::{
    Classes, Guarantee, NodeId, NodeTraits, NodeView, PoolView, Priority, Reason, SiteId,
    SiteTerms, SiteView,
};

/// Requests that a node takes at once in these pools.
const SLOTS: u32 = 8;

/// Asks for the need of every site, and then, the most urgent first, for candidates and a
/// stage until there is a move: the worst that one look costs. The taker's candidate.
pub fn decide(policy: &dyn Policy, view: &PoolView) -> Option<(SiteId, Candidate)> {
    let sites = view.sites.iter();
    let needs = sites.filter_map(|site| Some((policy.need(view, site.id)?, site)));
    let mut needs: Vec<(Reason, &SiteView)> = needs.collect();
    needs
        .sort_unstable_by_key(|(reason, site)| (*reason, u8::MAX - site.terms.priority.0, site.id));
    needs.into_iter().find_map(|(reason, site)| {
        let best = policy.candidates(view, site.id, reason).first().copied();
        if let Some(stage) = policy.stage(view, site.id, reason, best) {
            return Some((stage.to, stage.candidate));
        }
        best.map(|best| (site.id, best))
    })
}

/// What makes a decision dear, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// Some sites are loaded, some light: the first that asks is given a node.
    Usual,
    /// All sites are loaded, and each has what it was promised: all ask, nobody gives.
    AllLoaded,
    /// Nine of ten sites are loaded and want a class of node that the light ones don't have: all
    /// ask, and nobody can give.
    NothingFits,
    /// The same, where the loaded want two classes, and the light sites have nodes of each but none
    /// of both.
    HalfFits,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Usual, Self::AllLoaded, Self::NothingFits, Self::HalfFits];

    /// A pool of so many nodes, dealt out to so many sites (at least one); the same for the same
    /// seed.
    #[must_use]
    pub fn pool(self, nodes: u16, sites: u16, seed: u64) -> PoolView {
        let mut draw = Draw(seed);
        let mut view = PoolView::default();
        for index in 0..usize::from(sites.max(1)) {
            let Ok(id) = SiteId::from_index(index) else { break };
            view.sites.push(self.site(id, &mut draw));
        }
        for number in 0..nodes {
            let Ok(id) = NodeId::new(number) else { break };
            let at = &view.sites[usize::from(number) % view.sites.len()];
            let light = at.queued == 0;
            // Whoever wants classes was given nodes of them.
            let classes = match self {
                Self::HalfFits if light => Classes(1 << draw.below(2)),
                _ => at.terms.wants,
            };
            let traits = NodeTraits { classes, ..NodeTraits::default() };
            view.nodes.push(NodeView {
                id,
                site: Some(at.id),
                in_flight: if light { draw.below(2) } else { SLOTS },
                max_in_flight: SLOTS,
                movable: true,
                traits,
            });
        }
        view.sum_up();
        view
    }

    fn site(self, id: SiteId, draw: &mut Draw) -> SiteView {
        let loaded = match self {
            Self::Usual => draw.below(2) == 0,
            Self::AllLoaded => true,
            Self::NothingFits | Self::HalfFits => !id.index().is_multiple_of(10),
        };
        let wants = match self {
            Self::NothingFits if loaded => Classes(0b01),
            Self::HalfFits if loaded => Classes(0b11),
            _ => Classes::default(),
        };
        let terms = SiteTerms {
            guarantee: Guarantee { hard: 1, soft: 2, max: u16::MAX },
            priority: Priority(u8::from(self == Self::Usual && draw.below(4) == 0)),
            wants,
            ..SiteTerms::default()
        };
        let queued = if loaded { 1 + draw.below(100) } else { 0 };
        let (in_flight, capacity, nodes, service_us) = (0, 0, 0, 1_000);
        SiteView { id, terms, queued, in_flight, capacity, nodes, service_us }
    }
}

/// The generator of Steele, Lea and Flood ("SplitMix", 2014): small, and seeded by the caller.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(bound.max(1))) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Thresholds};

    #[test]
    fn the_cases_are_what_they_say() {
        for kind in Kind::ALL.into_iter().filter(|&kind| kind != Kind::Rigid) {
            let policy = kind.build(Thresholds::default());
            let decided = |case: Case| {
                let view = case.pool(1_000, 100, 3);
                let asks = view.sites.iter().filter(|s| policy.need(&view, s.id).is_some());
                (asks.count(), decide(&*policy, &view).is_some())
            };
            let (asks, found) = decided(Case::Usual);
            assert!((20..80).contains(&asks) && found, "{kind}");
            assert_eq!(decided(Case::AllLoaded), (100, false), "{kind}");
            assert_eq!(decided(Case::NothingFits), (90, false), "{kind}");
            assert_eq!(decided(Case::HalfFits), (90, false), "{kind}");
        }
    }
}
