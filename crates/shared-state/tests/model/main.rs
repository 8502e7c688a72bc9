//! The version table under the model checker: the machines of production, one word at a time.
#![allow(clippy::unwrap_used)]
#![cfg(not(loom))]

mod memory;
mod search;
mod world;

use memory::Breach;
use search::{assert_broken_in, assert_complete, assert_complete_on_demand};
use world::{Budgets, COUNTS, FRESH, REPAIR, Rules, World};

const NONE: Budgets = Budgets { crashes: 0, settles: 0, kills: 0, restarts: 0 };

/// One tag, one writer, one reader, nothing goes wrong.
const SMALL: World = World {
    rules: Rules::Sound,
    writers: &[0b01],
    readers: 1,
    page: 0b01,
    slots: [0, 1],
    settlers: 0,
    budgets: NONE,
    repair: true,
};

#[test]
fn row_01_one_tag_two_writers() {
    let world = World { writers: &[0b01, 0b01], ..SMALL };
    assert_complete("row 1", world);
}

#[test]
fn row_02_two_tags_two_writers() {
    let world = World { writers: &[0b01, 0b11], page: 0b11, ..SMALL };
    assert_complete("row 2", world);
}

#[test]
fn row_03_a_writer_dies() {
    let budgets = Budgets { crashes: 1, settles: 1, ..NONE };
    let world = World { writers: &[0b01, 0b01], settlers: 1, budgets, ..SMALL };
    assert_complete("row 3", world);
}

#[test]
fn row_04_two_tags_on_one_word() {
    let budgets = Budgets { crashes: 1, settles: 1, ..NONE };
    let writers = &[0b01, 0b10];
    let world = World { writers, slots: [0, 0], settlers: 1, budgets, ..SMALL };
    assert_complete("row 4", world);
}

#[test]
fn row_05_writers_and_settlers_die() {
    let budgets = Budgets { crashes: 2, settles: 2, ..NONE };
    let world =
        World { writers: &[0b01, 0b01], readers: 0, settlers: 2, budgets, repair: false, ..SMALL };
    assert_complete("row 5", world);
}

#[test]
fn row_06_a_settled_writer_goes_on() {
    let budgets = Budgets { settles: 2, kills: 1, ..NONE };
    let world = World { writers: &[0b01], settlers: 2, budgets, ..SMALL };
    assert_complete("row 6", world);
}

#[test]
fn row_07_a_new_table() {
    let budgets = Budgets { crashes: 1, settles: 1, restarts: 1, ..NONE };
    let world = World { settlers: 1, budgets, ..SMALL };
    assert_complete("row 7", world);
}

#[test]
fn row_08_two_writers_two_readers() {
    let world = World { writers: &[0b01, 0b01], readers: 2, repair: false, ..SMALL };
    assert_complete_on_demand("row 8", world);
}

#[test]
fn row_09_a_dead_writer_is_settled_twice() {
    let budgets = Budgets { crashes: 1, settles: 2, ..NONE };
    let world = World { writers: &[0b01, 0b01], settlers: 1, budgets, ..SMALL };
    assert_complete_on_demand("row 9", world);
}

#[test]
fn row_10_two_tags_a_death_a_reader() {
    let budgets = Budgets { crashes: 1, settles: 1, ..NONE };
    let writers = &[0b01, 0b11];
    let world = World { writers, page: 0b11, settlers: 1, budgets, repair: false, ..SMALL };
    assert_complete_on_demand("row 10", world);
}

#[test]
fn row_11_three_writers_one_dies() {
    let budgets = Budgets { crashes: 1, settles: 1, ..NONE };
    let writers = &[0b01, 0b01, 0b01];
    let world = World { writers, readers: 0, settlers: 1, budgets, repair: false, ..SMALL };
    assert_complete_on_demand("row 11", world);
}

#[test]
fn wrong_bump_before_commit() {
    let world = World { rules: Rules::BumpBeforeCommit, repair: false, ..SMALL };
    assert_broken_in("bump before commit", world, FRESH);
}

#[test]
fn wrong_bump_after_commit() {
    let world = World { rules: Rules::BumpAfterCommit, repair: false, ..SMALL };
    assert_broken_in("bump after commit", world, FRESH);
}

#[test]
fn wrong_version_taken_with_the_response() {
    let world = World { rules: Rules::VersionWithResponse, repair: false, ..SMALL };
    assert_broken_in("version with the response", world, FRESH);
}

/// A writer dies, and one settler comes.
const DEATH: Budgets = Budgets { crashes: 1, settles: 1, kills: 0, restarts: 0 };

#[test]
fn wrong_the_settler_subtracts() {
    let two = World { writers: &[0b01, 0b01], settlers: 1, budgets: DEATH, ..SMALL };
    let world = World { rules: Rules::BlindDecrement, repair: false, ..two };
    assert_broken_in("blind decrement: count", World { readers: 0, ..world.clone() }, COUNTS);
    assert_broken_in("blind decrement: hit", world, FRESH);
}

#[test]
fn wrong_the_settler_comes_by_a_timer() {
    let world = World { settlers: 1, budgets: DEATH, repair: false, ..SMALL };
    assert_broken_in("settle by timer", World { rules: Rules::SettleByTimer, ..world }, FRESH);
}

#[test]
fn wrong_a_new_table_opens_at_once() {
    let budgets = Budgets { restarts: 1, ..NONE };
    let world = World { rules: Rules::OpensAtOnce, budgets, repair: false, ..SMALL };
    assert_broken_in("opens at once", world, FRESH);
}

#[test]
fn wrong_a_writer_begins_in_a_table_that_was_given_up() {
    let budgets = Budgets { restarts: 1, ..NONE };
    let rules = Rules::Breach(Breach::RetiredUnseen);
    let world = World { rules, budgets, repair: false, ..SMALL };
    assert_broken_in("the table's end is not seen", world, FRESH);
}

#[test]
fn wrong_a_writer_does_not_look_at_its_header() {
    let budgets = Budgets { settles: 1, kills: 1, ..NONE };
    let world = World { readers: 0, settlers: 1, budgets, ..SMALL };
    let world = World { rules: Rules::Breach(Breach::NoOwnerCheck), ..world };
    assert_broken_in("no look at the header: count", world.clone(), COUNTS);
    assert_broken_in("no look at the header: for ever", world, REPAIR);
}

#[test]
fn wrong_unknown_counts_as_nothing() {
    let world = World { writers: &[0b01, 0b01], readers: 0, settlers: 1, ..SMALL };
    let rules = Rules::Breach(Breach::UnknownCountsNothing);
    let world = World { rules, budgets: DEATH, repair: false, ..world };
    assert_broken_in("unknown counts as nothing", world, COUNTS);
}

#[test]
fn wrong_the_stamp_is_kept() {
    let world = World { writers: &[0b01, 0b01, 0b01], readers: 0, settlers: 1, ..SMALL };
    let rules = Rules::Breach(Breach::StampKept);
    let world = World { rules, budgets: DEATH, repair: false, ..world };
    assert_broken_in("the stamp is kept", world, COUNTS);
}
