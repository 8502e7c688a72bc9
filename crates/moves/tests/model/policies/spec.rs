//! What the rules of `reconf_p` and `reconf_pq` let happen, spelled out once more and naively.

use super::world::{DEMANDS, SLOTS, Site, State, World, Wrong};
use crate::state::SITES_MAX;
use policy::Kind;

/// How many nodes each site has.
pub(super) fn counts(state: &State) -> [u16; SITES_MAX] {
    let mut counts = [0; SITES_MAX];
    for at in state.places().flatten() {
        counts[at] += 1;
    }
    counts
}

fn load(level: u8, nodes: u16) -> f64 {
    let demand = f64::from(DEMANDS[usize::from(level)]);
    if demand == 0.0 { 0.0 } else { demand / f64::from(u32::from(nodes) * SLOTS) }
}

pub(super) fn is_hot(level: u8, nodes: u16) -> bool {
    load(level, nodes) > 1.0
}

/// Whether a site with so many nodes is light, and not hot without one of them.
fn is_calm(level: u8, nodes: u16) -> bool {
    load(level, nodes) < 0.5 && !is_hot(level, nodes - 1)
}

/// Whether the rules let `taker` have a node of `donor`.
pub(super) fn may_take(world: &World, state: &State, taker: usize, donor: usize) -> bool {
    let counts = counts(state);
    let (to, from): (Site, Site) = (world.sites[taker], world.sites[donor]);
    let (have, has) = (counts[taker], counts[donor]);
    if has <= from.hard || have >= to.max {
        return false;
    }
    let below_soft = have < to.soft;
    let must = match world.kind {
        Kind::ReconfP if world.wrong != Wrong::JudgedByGuarantees => from.priority < to.priority,
        _ if from.priority == to.priority => below_soft && has > from.soft,
        _ => below_soft && from.priority < to.priority,
    };
    have < to.hard || is_calm(state.levels[donor], has) || must
}

/// Whether nobody who is loaded, or below hard, could still take anything.
pub(super) fn is_at_rest(world: &World, state: &State) -> bool {
    let counts = counts(state);
    let free = state.places().take(world.start.len()).any(|at| at.is_none());
    let sites = 0..world.sites.len();
    sites.clone().all(|taker| {
        let (have, site) = (counts[taker], world.sites[taker]);
        let wants = have < site.hard || (is_hot(state.levels[taker], have) && have < site.max);
        let others = || sites.clone().filter(|&donor| donor != taker);
        !wants || !(free || others().any(|donor| may_take(world, state, taker, donor)))
    })
}
