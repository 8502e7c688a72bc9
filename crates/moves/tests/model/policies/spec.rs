//! What the rules of the policies let happen, spelled out once more and naively.

use super::world::{DEMANDS, SERVICE_US, SLOTS, Site, State, World, Wrong};
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

fn is_high(level: u8, nodes: u16) -> bool {
    load(level, nodes) > 1.0
}

/// What a new request of the site would take with so many nodes, as a share of its objective;
/// nothing for a site that has none, or where the policy does not read it.
fn delay_share(world: &World, site: usize, level: u8, nodes: u16) -> Option<f64> {
    let objective = f64::from(world.sites[site].p99_us);
    if world.kind != Kind::Slo || objective == 0.0 {
        return None;
    }
    let (demand, capacity) = (DEMANDS[usize::from(level)], u32::from(nodes) * SLOTS);
    let queue = f64::from(demand.saturating_sub(capacity));
    let rounds = if queue > 0.0 { queue / f64::from(capacity) } else { 0.0 };
    Some(f64::from(SERVICE_US) * (1.0 + rounds) / objective)
}

fn is_hot(world: &World, site: usize, level: u8, nodes: u16) -> bool {
    let late = delay_share(world, site, level, nodes).is_none_or(|share| share > 0.5);
    is_high(level, nodes) && late
}

/// Whether a site with so many nodes can spare one.
fn spares(world: &World, site: usize, level: u8, nodes: u16) -> bool {
    let calm = !is_high(level, nodes - 1);
    match delay_share(world, site, level, nodes - 1) {
        None => load(level, nodes) < 0.5 && calm,
        Some(share) => calm || share <= 0.5,
    }
}

/// Whether `taker` has an objective that it may yet keep, with less than `donor` would need, which
/// misses its own anyway.
fn is_lost_to(world: &World, state: &State, taker: usize, donor: usize) -> bool {
    let counts = counts(state);
    let share = |site: usize| delay_share(world, site, state.levels[site], counts[site]);
    // Service times are alike.
    let wants = |site: usize| {
        let demand = DEMANDS[usize::from(state.levels[site])];
        f64::from(demand) / f64::from(world.sites[site].p99_us)
    };
    share(taker).is_some()
        && share(donor).is_some_and(|share| share > 1.0)
        && wants(taker) < wants(donor)
}

/// Whether a node can serve a site.
pub(super) fn fits(world: &World, site: usize, node: usize) -> bool {
    !world.sites[site].picky || world.of_class.contains(&node)
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
    let by_objective = world.kind == Kind::Slo && to.p99_us > 0;
    let must = match world.kind {
        Kind::ReconfP if world.wrong != Wrong::JudgedByGuarantees => from.priority < to.priority,
        _ if from.priority == to.priority => {
            has > from.soft && (below_soft || is_lost_to(world, state, taker, donor))
        }
        _ => (below_soft || by_objective) && from.priority < to.priority,
    };
    have < to.hard || spares(world, donor, state.levels[donor], has) || must
}

/// Whether somebody could make way for `taker`: some `giver` has a node for it and can spare it
/// once it has another one, which `taker` can't use.
fn may_stage(world: &World, state: &State, taker: usize) -> bool {
    let counts = counts(state);
    let nodes = || state.places().take(world.start.len()).enumerate();
    let is_spare = |at: Option<usize>, giver: usize| {
        at.is_none_or(|from| {
            let is_third = from != taker && from != giver;
            let level = state.levels[from];
            is_third
                && counts[from] > world.sites[from].hard
                && spares(world, from, level, counts[from])
        })
    };
    let may_give = |giver: usize| {
        let (level, has) = (state.levels[giver], counts[giver]);
        let asks = giver != taker && has < world.sites[giver].max && !is_high(level, has);
        let holds = || nodes().any(|(n, at)| at == Some(giver) && fits(world, taker, n));
        let other = || {
            nodes().any(|(n, at)| {
                is_spare(at, giver) && fits(world, giver, n) && !fits(world, taker, n)
            })
        };
        asks && holds() && spares(world, giver, level, has + 1) && other()
    };
    world.kind == Kind::Staged && (0..world.sites.len()).any(may_give)
}

/// Whether nobody who is loaded, or below hard, could still take anything.
pub(super) fn is_at_rest(world: &World, state: &State) -> bool {
    let counts = counts(state);
    let places = || state.places().take(world.start.len()).enumerate();
    (0..world.sites.len()).all(|taker| {
        let (have, site) = (counts[taker], world.sites[taker]);
        let loaded = is_hot(world, taker, state.levels[taker], have) && have < site.max;
        let wants = have < site.hard || loaded;
        let gives = |donor: usize| donor != taker && may_take(world, state, taker, donor);
        let direct = || places().any(|(node, at)| fits(world, taker, node) && at.is_none_or(gives));
        !wants || !(direct() || may_stage(world, state, taker))
    })
}
