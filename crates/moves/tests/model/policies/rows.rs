//! The rows, and the wrong variants.

use super::world::{PROMISED, REST, RULES, Site, World, Wrong};
use crate::search::{assert_broken_in, assert_complete, assert_complete_on_demand};
use policy::Kind;

const fn terms(priority: u8, hard: u16, soft: u16) -> Site {
    Site { priority, hard, soft, max: 4, picky: false, p99_us: 0 }
}

const fn picky(site: Site) -> Site {
    Site { picky: true, ..site }
}

const fn within(site: Site, p99_us: u32) -> Site {
    Site { p99_us, ..site }
}

/// Two sites of unlike priority that are promised more than there is.
const UNLIKE: [Site; 2] = [terms(1, 1, 3), terms(0, 1, 3)];
/// Two equal ones that are promised half each.
const EQUAL: [Site; 2] = [terms(0, 1, 2), terms(0, 1, 2)];
/// Two of unlike priority that are promised no more than they start with.
const LITTLE: [Site; 2] = [terms(1, 1, 2), terms(0, 1, 2)];
/// One above two equal ones.
const THREE: [Site; 3] = [terms(1, 1, 2), terms(0, 0, 1), terms(0, 0, 1)];

const TWO_EACH: [Option<usize>; 4] = [Some(0), Some(0), Some(1), Some(1)];
const MOSTLY_LAST: [Option<usize>; 4] = [Some(0), Some(1), Some(1), Some(1)];

const HOT: u8 = 2;
const IDLE: u8 = 0;

/// Two edges, two sites, two changes of a load, one crash.
const TWO_SITES: World = World {
    kind: Kind::ReconfPq,
    edges: 2,
    sites: &UNLIKE,
    start: &TWO_EACH,
    of_class: &[],
    levels: &[IDLE, HOT],
    changes: 2,
    crashes: 1,
    moves_max: 3,
    may_return: false,
    progress: true,
    wrong: Wrong::Nothing,
};

/// Three sites: more to be chosen from, so one change.
const THREE_SITES: World = World {
    sites: &THREE,
    start: &[Some(0), Some(1), Some(1), Some(2)],
    levels: &[HOT, HOT, IDLE],
    changes: 1,
    moves_max: 6,
    may_return: true,
    ..TWO_SITES
};

#[test]
fn row_18_two_priorities() {
    assert_complete("row 18, with progress", TWO_SITES);
}

#[test]
fn row_19_two_equals() {
    let world = World { sites: &EQUAL, start: &MOSTLY_LAST, levels: &[IDLE, HOT], ..TWO_SITES };
    assert_complete("row 19, with progress", world);
}

#[test]
fn row_20_one_above_two_equals() {
    assert_complete("row 20, with progress", THREE_SITES);
}

#[test]
fn row_21_a_site_below_hard_and_a_free_node() {
    const SITES: [Site; 3] = [terms(1, 1, 2), terms(0, 1, 1), terms(0, 1, 2)];
    let start = &[Some(0), Some(0), Some(1), None];
    let world = World { sites: &SITES, start, levels: &[HOT, IDLE, HOT], ..THREE_SITES };
    assert_complete("row 21, with progress", world);
}

#[test]
fn row_22_reconf_p() {
    let world = World { sites: &LITTLE, kind: Kind::ReconfP, ..TWO_SITES };
    assert_complete("row 22, with progress", world);
}

#[test]
fn row_23_three_edges() {
    let world = World { edges: 3, progress: false, ..THREE_SITES };
    assert_complete_on_demand("row 23", world);
}

#[test]
fn row_24_reconf_p_with_three_sites() {
    let world = World { kind: Kind::ReconfP, changes: 2, progress: false, ..THREE_SITES };
    assert_complete_on_demand("row 24", world);
}

/// The first site can use two nodes only; the second, at its hard guarantee, holds one of them.
const ONE_IS_PICKY: World = World {
    kind: Kind::Staged,
    sites: &[picky(terms(0, 1, 2)), terms(0, 1, 1), terms(0, 0, 1)],
    start: &[Some(0), Some(1), Some(2), Some(2)],
    of_class: &[0, 1],
    levels: &[HOT, IDLE, IDLE],
    ..THREE_SITES
};

/// Two equals; the second can wait for twice as long.
const OBJECTIVES: World = World {
    kind: Kind::Slo,
    sites: &[within(terms(0, 1, 1), 3_000), within(terms(0, 1, 1), 6_000)],
    ..TWO_SITES
};

#[test]
fn row_25_staged() {
    assert_complete("row 25, with progress", ONE_IS_PICKY);
}

#[test]
fn row_26_slo() {
    assert_complete("row 26, with progress", OBJECTIVES);
}

#[test]
fn row_27_slo_above_one_without_an_objective() {
    const SITES: [Site; 3] = [within(terms(1, 1, 1), 3_000), terms(0, 1, 2), terms(0, 0, 1)];
    let world = World { kind: Kind::Slo, sites: &SITES, crashes: 0, ..THREE_SITES };
    assert_complete("row 27, with progress", world);
}

/// Nobody makes way: who can use two nodes only is left with one.
#[test]
fn wrong_staged_without_stages() {
    let world = World { wrong: Wrong::NoStage, ..ONE_IS_PICKY };
    assert_broken_in("staged: no stages", world, PROMISED);
}

#[test]
fn wrong_staged_without_hysteresis() {
    let world = World { wrong: Wrong::NoHysteresis, levels: &[HOT, HOT, IDLE], ..ONE_IS_PICKY };
    assert_broken_in("staged: taken from the loaded", world, RULES);
}

/// Two overloaded equals each take for lost what the other has.
#[test]
fn wrong_wants_are_not_compared() {
    let world = World { wrong: Wrong::WantsIgnored, levels: &[HOT, HOT], changes: 0, ..OBJECTIVES };
    assert_broken_in("slo: the greater want goes first", world.clone(), RULES);
    assert_broken_in("slo: ping-pong", world, REST);
}

/// Both are overloaded, and each takes from the other what it was promised itself.
#[test]
fn wrong_equals_give_below_their_soft() {
    const PROMISED_ALL: [Site; 2] = [terms(0, 1, 3), terms(0, 1, 3)];
    let world = World { sites: &PROMISED_ALL, levels: &[HOT, HOT], changes: 0, ..TWO_SITES };
    let sound = world.clone();
    assert_complete("both overloaded", sound);
    let wrong = World { wrong: Wrong::EqualsGiveBelowSoft, ..world };
    assert_broken_in("equals give below their soft", wrong.clone(), RULES);
    assert_broken_in("equals give below their soft: ping-pong", wrong, REST);
}

#[test]
fn wrong_soft_guarantees_are_floors() {
    let world = World { start: &MOSTLY_LAST, wrong: Wrong::SoftIsFloor, ..TWO_SITES };
    assert_broken_in("soft counts as a floor", world, PROMISED);
}

#[test]
fn wrong_a_loaded_lower_priority_gives_beyond_soft() {
    let world = World { sites: &LITTLE, wrong: Wrong::BeyondSoft, ..TWO_SITES };
    assert_broken_in("beyond soft", world, RULES);
}

#[test]
fn wrong_no_hysteresis() {
    let world = World { sites: &EQUAL, wrong: Wrong::NoHysteresis, ..TWO_SITES };
    assert_broken_in("no hysteresis: taken from the loaded", world.clone(), RULES);
    assert_broken_in("no hysteresis: ping-pong", world, REST);
}

/// Two edges meet one need twice.
#[test]
fn wrong_claims_are_not_told_apart() {
    let world = World { wrong: Wrong::NoClaim, start: &MOSTLY_LAST, ..THREE_SITES };
    assert_broken_in("no claim", world, RULES);
}

/// What `reconf_p` does is what `reconf_pq` must not do: it starves whoever is below.
#[test]
fn wrong_reconf_p_by_the_rules_of_reconf_pq() {
    let wrong = Wrong::JudgedByGuarantees;
    let world = World { sites: &LITTLE, kind: Kind::ReconfP, wrong, ..TWO_SITES };
    assert_broken_in("reconf_p starves", world, RULES);
}
