//! The rows, and the wrong variants.

use super::world::{PROMISED, REST, RULES, Site, World, Wrong};
use crate::search::{assert_broken_in, assert_complete, assert_complete_on_demand};
use policy::Kind;

const fn terms(priority: u8, hard: u16, soft: u16) -> Site {
    Site { priority, hard, soft, max: 4 }
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
