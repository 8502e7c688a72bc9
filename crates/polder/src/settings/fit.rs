//! Which nodes can serve which sites, where nodes differ: whether promises can be kept at once, and
//! who starts where.
//!
//! Sites that want the same classes are one kind, nodes that have the same are another, so that
//! large pools are small problems. The rest is a flow of nodes to sites:
//!
//! ```text
//! for each kind of site, the choosiest first:
//!     while it wants nodes: find a way to a kind of node that has some left, over kinds of site
//!                           that can do with others (breadth first); give as many as pass
//! no way: the kinds that the search reached want more nodes than there are for them (Hall)
//! ```

use super::model::{Node, Site};
use pool_model::{Classes, SiteId};
use std::collections::{BTreeMap, VecDeque};

/// Pairs of kinds up to which this is worked out; a search passes each a few times. Real pools
/// have a handful of kinds; what has more is checked site by site only.
const PAIRS_MAX: usize = 4_096;

/// Sites alike in what they need: classes, and whether they do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Needs {
    classes: u32,
    is_strict: bool,
}

impl Needs {
    fn of(site: &Site) -> Self {
        let classes = site.terms.wants.0;
        Self { classes, is_strict: classes != 0 && site.terms.unfit_pct == 0 }
    }

    fn can_use(self, node: Classes) -> bool {
        !self.is_strict || node.contains(Classes(self.classes))
    }

    /// Who must be served first, and what it takes first: choosy sites before those that take
    /// anything, nodes that fit before others, plain nodes before those that others may need.
    fn order(self) -> (bool, std::cmp::Reverse<u32>) {
        (!self.is_strict, std::cmp::Reverse(self.classes.count_ones()))
    }

    fn preference(self, node: Classes) -> (bool, u32) {
        (!node.contains(Classes(self.classes)), node.0.count_ones())
    }
}

/// Sites that want more nodes than can serve them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The sites, by their place.
    pub(super) sites: Vec<usize>,
    /// What they want in all.
    pub(super) wanted: usize,
    /// Nodes that can serve any of them.
    pub(super) there_are: usize,
}

struct Flow {
    needs: Vec<Needs>,
    wanted: Vec<usize>,
    nodes: Vec<Classes>,
    left: Vec<usize>,
    /// Nodes given, by kind of site and kind of node.
    given: Vec<Vec<usize>>,
}

impl Flow {
    /// None where there are too many kinds.
    fn new(sites: &[Site], nodes: &[Node], wants: impl Fn(&Site) -> u16) -> Option<Self> {
        let (mut wanted, mut left) = (BTreeMap::new(), BTreeMap::new());
        for site in sites {
            *wanted.entry(Needs::of(site)).or_insert(0) += usize::from(wants(site));
        }
        for node in nodes {
            *left.entry(node.traits.classes.0).or_insert(0) += 1;
        }
        if wanted.len() * left.len() > PAIRS_MAX {
            return None;
        }
        let mut wanted: Vec<(Needs, usize)> = wanted.into_iter().collect();
        wanted.sort_by_key(|(needs, _)| needs.order());
        let given = vec![vec![0; left.len()]; wanted.len()];
        let (needs, wanted) = wanted.into_iter().unzip();
        let (nodes, left) = left.into_iter().map(|(bits, count)| (Classes(bits), count)).unzip();
        Some(Self { needs, wanted, nodes, left, given })
    }

    /// Gives nodes until all have what they want, or tells which kinds of sites can't.
    fn fill(&mut self) -> Result<(), Vec<usize>> {
        for kind in 0..self.needs.len() {
            let mut missing = self.wanted[kind];
            while missing > 0 {
                missing -= self.give(kind, missing)?;
            }
        }
        Ok(())
    }

    /// Gives at most so many nodes to a kind of site, along one way; at least one.
    fn give(&mut self, kind: usize, most: usize) -> Result<usize, Vec<usize>> {
        // From whom each kind of site was reached, and over which kind of node.
        let mut from: Vec<Option<(usize, usize)>> = vec![None; self.needs.len()];
        let mut is_seen = vec![false; self.needs.len()];
        let mut is_node_seen = vec![false; self.nodes.len()];
        let mut queue = VecDeque::from([kind]);
        is_seen[kind] = true;
        while let Some(at) = queue.pop_front() {
            for node in self.usable(at) {
                if std::mem::replace(&mut is_node_seen[node], true) {
                    continue;
                }
                if self.left[node] > 0 {
                    return Ok(self.give_along(&from, at, node, most));
                }
                for (other, seen) in is_seen.iter_mut().enumerate() {
                    if self.given[other][node] > 0 && !std::mem::replace(seen, true) {
                        from[other] = Some((at, node));
                        queue.push_back(other);
                    }
                }
            }
        }
        Err((0..is_seen.len()).filter(|&at| is_seen[at]).collect())
    }

    /// The kinds of nodes that a kind of site can use, best first.
    fn usable(&self, kind: usize) -> Vec<usize> {
        let needs = self.needs[kind];
        let mut usable: Vec<usize> =
            (0..self.nodes.len()).filter(|&node| needs.can_use(self.nodes[node])).collect();
        usable.sort_by_key(|&node| needs.preference(self.nodes[node]));
        usable
    }

    /// `at` takes from `node`; each on the way back gives up what it had of the kind of node over
    /// which it was reached.
    fn give_along(
        &mut self,
        from: &[Option<(usize, usize)>],
        at: usize,
        node: usize,
        most: usize,
    ) -> usize {
        let mut count = most.min(self.left[node]);
        let mut step = at;
        while let Some((before, over)) = from[step] {
            count = count.min(self.given[step][over]);
            step = before;
        }
        self.left[node] -= count;
        let (mut step, mut takes) = (at, node);
        loop {
            self.given[step][takes] += count;
            let Some((before, over)) = from[step] else { return count };
            self.given[step][over] -= count;
            (step, takes) = (before, over);
        }
    }
}

/// Whether each site can have so many nodes at once; if not, sites for which it can't be.
pub(super) fn shortage(
    sites: &[Site],
    nodes: &[Node],
    wants: impl Fn(&Site) -> u16,
) -> Option<Shortage> {
    let Some(mut flow) = Flow::new(sites, nodes, &wants) else {
        return shortage_alone(sites, nodes, wants);
    };
    let short: Vec<Needs> = flow.fill().err()?.into_iter().map(|kind| flow.needs[kind]).collect();
    let is_short = |site: &&Site| short.contains(&Needs::of(site)) && wants(site) > 0;
    let can_serve = |node: &&Node| short.iter().any(|needs| needs.can_use(node.traits.classes));
    let places = sites.iter().enumerate().filter(|(_, site)| is_short(site));
    Some(Shortage {
        sites: places.map(|(place, _)| place).collect(),
        wanted: sites.iter().filter(is_short).map(|site| usize::from(wants(site))).sum(),
        there_are: nodes.iter().filter(can_serve).count(),
    })
}

/// The first site that could not have its nodes if it were alone.
fn shortage_alone(
    sites: &[Site],
    nodes: &[Node],
    wants: impl Fn(&Site) -> u16,
) -> Option<Shortage> {
    let short = |(place, site): (usize, &Site)| {
        let needs = Needs::of(site);
        let there_are = nodes.iter().filter(|node| needs.can_use(node.traits.classes)).count();
        let wanted = usize::from(wants(site));
        (wanted > there_are).then(|| Shortage { sites: vec![place], wanted, there_are })
    };
    sites.iter().enumerate().find_map(short)
}

/// Which site each node starts with: sites in their order take the first nodes that they can use
/// and that others do not need more.
pub(super) fn first_assignment(sites: &[Site], nodes: &[Node]) -> Vec<Option<SiteId>> {
    if sites.iter().all(|site| site.terms.wants == Classes::default()) {
        let wanted = sites.iter().enumerate().flat_map(|(index, site)| {
            std::iter::repeat_n(SiteId::from_index(index).ok(), usize::from(site.nodes))
        });
        return wanted.chain(std::iter::repeat(None)).take(nodes.len()).collect();
    }
    let mut wanted: Vec<u16> = sites.iter().map(|site| site.nodes).collect();
    let needs: Vec<Needs> = sites.iter().map(Needs::of).collect();
    let mut flow = Flow::new(sites, nodes, |site| site.nodes);
    // Promises that can't be kept were refused before; what is left is done in order.
    let filled = flow.as_mut().is_some_and(|flow| flow.fill().is_ok());
    let mut flow = flow.filter(|_| filled);
    let mut site_of = |node: &Node| {
        let takes =
            |place: &usize| wanted[*place] > 0 && needs[*place].can_use(node.traits.classes);
        let place = (0..sites.len()).filter(takes).find(|&place| {
            let Some(flow) = &mut flow else { return true };
            let kind = flow.needs.iter().position(|kind| *kind == needs[place]);
            let node = flow.nodes.iter().position(|kind| *kind == node.traits.classes);
            let (Some(kind), Some(node)) = (kind, node) else { return false };
            let has_some = flow.given[kind][node] > 0;
            flow.given[kind][node] -= usize::from(has_some);
            has_some
        })?;
        wanted[place] -= 1;
        SiteId::from_index(place).ok()
    };
    nodes.iter().map(&mut site_of).collect()
}
