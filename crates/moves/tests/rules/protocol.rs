//! Rules of the machines.

use crate::memory::{E, Memory, node, site};
use moves::protocol::{
    Claim, DepartState, FloorPlan, Help, Join, Look, Looked, Machine, Next, Op, Outcome, Prepared,
    Refusal, Renew, Reply, Seen, SetFloor, Word, prepare,
};
use pool_model::{EdgeId, Reason};
use shared_state::words::{Arrive, Assign, Depart, Epoch, Floor};
use std::time::{Duration, Instant};

const OLDER: Epoch = Epoch::new(4, 99);
const NEWER: Epoch = Epoch::new(6, 1);

fn at(number: u16, stamp: Epoch, version: u32) -> Assign {
    Assign { site: Some(site(number)), stamp, version }
}

fn ready(seen: &Seen, from: u16, to: Option<u16>, number: u16) -> moves::protocol::Attempt {
    match prepare(seen, site(from), to.map(site), node(number)) {
        Prepared::Ready(attempt) => attempt,
        other => panic!("{other:?}"),
    }
}

fn refusal(prepared: &Prepared) -> Option<Refusal> {
    match prepared {
        Prepared::Refused(refusal) => Some(*refusal),
        _ => None,
    }
}

#[test]
fn a_look_reads_all_site_words_before_any_node_and_depart_before_floor() {
    let mut memory = Memory::new(&[1, 1, 1], &[1, 2, 3, 0]);
    memory.look();
    let place =
        |wanted: Word| memory.ops.iter().position(|op| *op == Op::Read(wanted)).expect("was read");
    for number in 1..=3 {
        let of = site(number);
        assert!(place(Word::Depart(of)) < place(Word::Floor(of)));
        for other in 0..4 {
            for word in [Word::Depart(of), Word::Arrive(of), Word::Floor(of)] {
                assert!(place(word) < place(Word::Assign(node(other))));
            }
        }
    }
    assert_eq!(memory.ops.len(), 3 * 3 + 4);
}

#[test]
fn a_look_needs_its_home_but_not_its_nodes() {
    let mut seen = Seen::new(2, 2);
    let mut look = Look::new(&seen);
    let looked = look.drive(&mut seen, |op| match op {
        Op::Read(Word::Assign(_)) => Reply::Unreachable,
        _ => Reply::Value(1),
    });
    assert_eq!(looked, Looked::Complete);
    assert_eq!(seen.nodes, [None, None]);
    let mut look = Look::new(&seen);
    assert_eq!(look.drive(&mut seen, |_| Reply::Unknown), Looked::HomeLost);
}

/// The bound of the notes is 100 us for step 0 on 1,000 nodes; the look itself comes on top.
#[test]
fn a_look_and_step_0_over_a_thousand_nodes_take_less_than_100_us() {
    let nodes: Vec<u16> = (0..1_000).map(|number| number % 3 + 1).collect();
    let mut memory = Memory::new(&[1, 1, 1], &nodes);
    let mut seen = memory.look();
    let word = memory.words[&Word::Assign(node(0))];
    let mut best = Duration::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        let mut look = Look::new(&seen);
        look.drive(&mut seen, |op| match op {
            Op::Read(Word::Assign(_)) => Reply::Value(word),
            Op::Read(Word::Depart(_)) => Reply::Value(Depart::opened(E).pack()),
            _ => Reply::Value(1 << 32),
        });
        let prepared = prepare(&seen, site(1), Some(site(2)), node(0));
        best = best.min(start.elapsed());
        assert!(matches!(prepared, Prepared::Ready(_)));
    }
    println!("a look at 1,000 nodes and step 0: {best:?} without the reads");
    assert!(best < Duration::from_micros(100), "{best:?}");
}

#[test]
fn a_move_takes_three_swaps_and_one_to_close() {
    let mut memory = Memory::new(&[1, 1], &[1, 1, 2]);
    let seen = memory.look();
    memory.ops.clear();
    let mut claim = Claim::new(&seen, site(2), EdgeId::MAX, Reason::Load);
    let outcome = claim.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::Claimed { taker: site(2), counter: 1 });
    let mut attempt = ready(&seen, 1, Some(2), 0);
    let outcome = attempt.drive(|op| memory.perform(op));
    let Outcome::Moved { version: 8, close: Some(mut close), .. } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(memory.ops.len(), 3);
    assert_eq!(memory.assign(0), at(2, E, 8));
    assert!(memory.depart(1).pending.is_some());
    close.drive(|op| memory.perform(op));
    assert_eq!(memory.depart(1), Depart { epoch: E, sequence: 1, pending: None });
    let arrive = Arrive::unpack(memory.words[&Word::Arrive(site(2))]);
    assert_eq!((arrive.claimer, arrive.reason), (Some(EdgeId::MAX), Some(Reason::Load)));
    // The same claim a second time has lost.
    let mut again = Claim::new(&seen, site(2), EdgeId::MIN, Reason::Load);
    let lost = again.drive(|op| memory.perform(op));
    assert_eq!(lost, Outcome::LostClaim { taker: site(2) });
}

#[test]
fn step_0_counts_only_other_live_nodes_of_exactly_this_epoch() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    let mut seen = memory.look();
    assert!(matches!(prepare(&seen, site(1), Some(site(2)), node(0)), Prepared::Ready(_)));
    // The other is cordoned, or its beat is stale.
    seen.counted[1] = false;
    let prepared = prepare(&seen, site(1), Some(site(2)), node(0));
    assert_eq!(refusal(&prepared), Some(Refusal::DonorAtFloor));
    // The other was last counted in an older epoch.
    memory.put(1, at(1, OLDER, 3));
    let prepared = prepare(&memory.look(), site(1), Some(site(2)), node(0));
    assert!(matches!(prepared, Prepared::Renew(_)), "{prepared:?}");
    // A newer home rules.
    memory.put(1, at(1, NEWER, 3));
    let prepared = prepare(&memory.look(), site(1), Some(site(2)), node(0));
    let Prepared::Bump(plan) = prepared else { panic!("{prepared:?}") };
    assert_eq!(plan.newest, NEWER);
    // The node itself carries an older stamp.
    memory.put(1, at(1, E, 3));
    memory.put(0, at(1, OLDER, 3));
    let prepared = prepare(&memory.look(), site(1), Some(site(2)), node(0));
    assert!(matches!(prepared, Prepared::Renew(_)), "{prepared:?}");
}

#[test]
fn step_0_says_why_not() {
    let mut memory = Memory::new(&[1, 1], &[1, 1, 2]);
    let why = |memory: &mut Memory, from: u16, to: u16, number: u16| {
        refusal(&prepare(&memory.look(), site(from), Some(site(to)), node(number)))
    };
    assert_eq!(why(&mut memory, 2, 1, 2), Some(Refusal::DonorAtFloor));
    assert_eq!(why(&mut memory, 1, 1, 0), Some(Refusal::NoSuchSite));
    assert_eq!(why(&mut memory, 1, 3, 0), Some(Refusal::NoSuchSite));
    assert_eq!(why(&mut memory, 3, 1, 0), Some(Refusal::NoSuchSite));
    assert_eq!(why(&mut memory, 1, 2, 9), Some(Refusal::NodeUnreadable));
    assert_eq!(why(&mut memory, 1, 2, 2), Some(Refusal::NodeElsewhere));
    memory.words.insert(Word::Assign(node(0)), Assign::TOMBSTONE);
    assert_eq!(why(&mut memory, 1, 2, 0), Some(Refusal::NodeUnreadable));
    memory.install(1, 1, Some(2));
    assert_eq!(why(&mut memory, 1, 2, 1), Some(Refusal::DonorBusy));
    memory.words.insert(Word::Floor(site(2)), 0);
    assert_eq!(why(&mut memory, 2, 1, 2), Some(Refusal::FloorUnset));
}

#[test]
fn a_used_up_sequence_calls_for_a_new_epoch() {
    let mut memory = Memory::new(&[0, 0], &[1]);
    let full = Depart { epoch: E, sequence: u8::MAX, pending: None };
    memory.words.insert(Word::Depart(site(1)), full.pack());
    let prepared = prepare(&memory.look(), site(1), Some(site(2)), node(0));
    assert!(matches!(prepared, Prepared::Bump(_)), "{prepared:?}");
    let floor = Floor { settings_version: 2, hard: 1, max: 2 };
    assert!(matches!(SetFloor::plan(&memory.look(), site(1), floor), FloorPlan::Bump(_)));
}

#[test]
fn an_install_misses_after_any_change_of_the_descriptor() {
    let mut memory = Memory::new(&[0, 0], &[1, 1]);
    let seen = memory.look();
    let mut first = ready(&seen, 1, Some(2), 0);
    let mut second = ready(&seen, 1, Some(2), 1);
    assert!(matches!(first.drive(|op| memory.perform(op)), Outcome::Moved { .. }));
    let outcome = second.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::LostInstall { donor: site(1) });
    assert_eq!(memory.assign(1), at(1, E, 7));
}

/// Replies to the first operation by memory, then lets something happen before the second.
fn interrupted(memory: &mut Memory, between: impl FnOnce(&mut Memory)) -> Outcome {
    let mut attempt = ready(&memory.look(), 1, Some(2), 0);
    let Next::Op(install) = attempt.next() else { panic!("an install") };
    attempt.reply(memory.perform(install));
    between(memory);
    attempt.drive(|op| memory.perform(op))
}

#[test]
fn a_late_swap_misses_after_help_and_may_close() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    let outcome = interrupted(&mut memory, |memory| {
        let mut help = Help::plan(&memory.look(), site(1), false).expect("pending");
        let helped = help.drive(|op| memory.perform(op));
        let moved = Some((node(0), Some(site(2)), 8));
        assert_eq!(helped, Outcome::Helped { donor: site(1), moved });
    });
    assert!(matches!(outcome, Outcome::CasMissedLate { close: Some(_), .. }), "{outcome:?}");
    assert_eq!(memory.assign(0).version, 8);
}

#[test]
fn a_late_swap_misses_after_an_abort_and_may_not_close() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    let outcome = interrupted(&mut memory, |memory| {
        let mut bump = memory.look().bump_plan(site(1)).draw(3);
        assert_eq!(bump.drive(|op| memory.perform(op)), Outcome::Bumped { site: site(1) });
        let mut renew = Renew::plan(&memory.look(), site(1)).expect("old stamps");
        let renewed = renew.drive(|op| memory.perform(op));
        assert_eq!(renewed, Outcome::Renewed { site: site(1), renewed: 2, missed: 0 });
    });
    assert_eq!(outcome, Outcome::CasMissedLate { node: node(0), close: None });
    assert_eq!(memory.assign(0), at(1, E.next(3), 7));
}

#[test]
fn an_operation_without_answer_ends_the_machine() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    let seen = memory.look();
    let unsettled = ready(&seen, 1, Some(2), 0).drive(|_| Reply::Unknown);
    assert_eq!(unsettled, Outcome::Unsettled { word: Word::Depart(site(1)) });
    let gone = ready(&seen, 1, Some(2), 0).drive(|_| Reply::Unreachable);
    assert_eq!(gone, Outcome::Unreachable { word: Word::Depart(site(1)) });
    let outcome = interrupted(&mut memory, |memory| {
        memory.words.remove(&Word::Assign(node(0)));
    });
    assert_eq!(outcome, Outcome::Unreachable { word: Word::Assign(node(0)) });
}

#[test]
fn help_closes_what_was_carried_out() {
    let mut memory = Memory::new(&[1, 1], &[1, 1, 2]);
    memory.install(1, 0, Some(2));
    memory.put(0, at(2, E, 8));
    let mut help = Help::plan(&memory.look(), site(1), false).expect("pending");
    let outcome = help.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::Helped { donor: site(1), moved: None });
    assert_eq!(memory.depart(1).pending, None);
    assert!(Help::plan(&memory.look(), site(1), false).is_none());
}

/// The story of the first design: a done but still open move ran a second time when its node had
/// come back to the donor.
#[test]
fn help_does_not_move_a_node_that_came_back() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    memory.install(1, 0, Some(2));
    memory.put(0, at(1, E, 9));
    let mut help = Help::plan(&memory.look(), site(1), false).expect("pending");
    let outcome = help.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::Helped { donor: site(1), moved: None });
    assert_eq!(memory.assign(0), at(1, E, 9));
}

#[test]
fn help_leaves_a_node_of_another_stamp_alone() {
    for stamp in [OLDER, NEWER] {
        let mut memory = Memory::new(&[1, 0], &[1, 1]);
        memory.install(1, 0, Some(2));
        memory.put(0, at(1, stamp, 7));
        let mut help = Help::plan(&memory.look(), site(1), false).expect("pending");
        let outcome = help.drive(|op| memory.perform(op));
        let Outcome::MustBump(plan) = outcome else { panic!("{outcome:?}") };
        let mut bump = plan.draw(1);
        bump.drive(|op| memory.perform(op));
        let epoch = memory.depart(1).epoch;
        assert!(epoch.is_newer_than(E) && epoch.is_newer_than(stamp));
        assert_eq!(memory.assign(0), at(1, stamp, 7));
    }
}

#[test]
fn help_aborts_only_for_a_node_that_is_given_up() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    memory.install(1, 0, Some(2));
    let seen = memory.look();
    memory.words.remove(&Word::Assign(node(0)));
    let mut help = Help::plan(&seen, site(1), false).expect("pending");
    let outcome = help.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::NodeUnreadable { donor: site(1), node: node(0) });
    let mut help = Help::plan(&seen, site(1), true).expect("pending");
    assert!(matches!(help.drive(|op| memory.perform(op)), Outcome::MustBump(_)));
}

#[test]
fn help_stops_when_the_descriptor_changed_before_the_swap() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    memory.install(1, 0, Some(2));
    let mut help = Help::plan(&memory.look(), site(1), false).expect("pending");
    let Next::Op(read) = help.next() else { panic!("a read") };
    help.reply(memory.perform(read));
    memory.words.insert(Word::Depart(site(1)), Depart::opened(NEWER).pack());
    let outcome = help.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::HelpedByOther { donor: site(1) });
    assert_eq!(memory.assign(0), at(1, E, 7));
}

#[test]
fn a_bump_is_newer_than_the_word_and_all_stamps_and_needs_the_word_unchanged() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    memory.words.insert(Word::Depart(site(1)), 0);
    memory.put(1, at(1, NEWER, 7));
    let plan = memory.look().bump_plan(site(1));
    let mut first = plan.draw(9);
    let mut second = plan.draw(8);
    assert_eq!(first.drive(|op| memory.perform(op)), Outcome::Bumped { site: site(1) });
    assert_eq!(second.drive(|op| memory.perform(op)), Outcome::LostBump { site: site(1) });
    assert_eq!(memory.depart(1), Depart::opened(NEWER.next(9)));
}

#[test]
fn a_renewal_keeps_versions_and_misses_nodes_that_changed() {
    let mut memory = Memory::new(&[1, 0], &[1, 1, 1, 2]);
    memory.put(0, at(1, OLDER, 3));
    memory.put(1, at(1, OLDER, 4));
    let mut renew = Renew::plan(&memory.look(), site(1)).expect("old stamps");
    memory.put(1, at(2, E, 5));
    let outcome = renew.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::Renewed { site: site(1), renewed: 1, missed: 1 });
    assert_eq!((memory.assign(0), memory.assign(1)), (at(1, E, 3), at(2, E, 5)));
    assert!(Renew::plan(&memory.look(), site(1)).is_none());
}

#[test]
fn a_free_node_joins_once_and_needs_an_open_taker() {
    let mut memory = Memory::new(&[1, 0], &[0, 1]);
    let seen = memory.look();
    let mut first = Join::plan(&seen, node(0), site(2)).expect("free");
    let mut second = Join::plan(&seen, node(0), site(1)).expect("free");
    let outcome = first.drive(|op| memory.perform(op));
    assert!(matches!(outcome, Outcome::Moved { from: None, version: 8, close: None, .. }));
    let lost = second.drive(|op| memory.perform(op));
    assert_eq!(lost, Outcome::LostJoin { node: node(0) });
    let seen = memory.look();
    assert_eq!(Join::plan(&seen, node(1), site(2)).err(), Some(Refusal::NodeElsewhere));
    memory.words.insert(Word::Depart(site(2)), 0);
    memory.put(0, Assign::FREE);
    let seen = memory.look();
    assert_eq!(Join::plan(&seen, node(0), site(2)).err(), Some(Refusal::TakerUnset));
}

#[test]
fn a_node_may_be_set_free_down_to_the_floor() {
    let mut memory = Memory::new(&[1], &[1, 1]);
    let mut attempt = ready(&memory.look(), 1, None, 0);
    let outcome = attempt.drive(|op| memory.perform(op));
    let Outcome::Moved { to: None, close: Some(mut close), .. } = outcome else {
        panic!("{outcome:?}");
    };
    close.drive(|op| memory.perform(op));
    assert_eq!(memory.assign(0).site, None);
    let prepared = prepare(&memory.look(), site(1), None, node(1));
    assert_eq!(refusal(&prepared), Some(Refusal::DonorAtFloor));
}

#[test]
fn a_raised_guarantee_makes_installs_counted_against_the_old_one_miss() {
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    let seen = memory.look();
    let mut attempt = ready(&seen, 1, Some(2), 0);
    let floor = Floor { settings_version: 2, hard: 2, max: 9 };
    let FloorPlan::Ready(mut set) = SetFloor::plan(&seen, site(1), floor) else {
        panic!("idle");
    };
    assert_eq!(set.drive(|op| memory.perform(op)), Outcome::FloorSet { site: site(1) });
    let outcome = attempt.drive(|op| memory.perform(op));
    assert_eq!(outcome, Outcome::LostInstall { donor: site(1) });
    let prepared = prepare(&memory.look(), site(1), Some(site(2)), node(0));
    assert_eq!(refusal(&prepared), Some(Refusal::DonorAtFloor));
    // While a departure is under way the change waits for help.
    let mut memory = Memory::new(&[1, 0], &[1, 1]);
    memory.install(1, 0, Some(2));
    assert_eq!(SetFloor::plan(&memory.look(), site(1), floor), FloorPlan::Busy);
}

#[test]
fn a_descriptor_that_nobody_writes_is_bad_and_is_bumped() {
    let mut memory = Memory::new(&[0, 0], &[1, 1]);
    let good = Depart::opened(E).pack();
    let bad = [
        good | 5,                             // idle with a version
        good & !(0x3fff << 18) | (999 << 18), // a node outside the pool
        good & !(0x3fff << 18) | (900 << 8),  // a taker outside the pool
        good & !(0x3fff << 18) | (1 << 8),    // from a site to itself
        good & !(1 << 18),                    // node 0x3ffe, which does not exist
    ];
    for raw in bad {
        memory.words.insert(Word::Depart(site(1)), raw);
        let seen = memory.look();
        assert!(matches!(seen.depart(site(1)), DepartState::Bad(_)), "{raw:#x}");
        let prepared = prepare(&seen, site(1), Some(site(2)), node(0));
        let Prepared::Bump(plan) = prepared else { panic!("{prepared:?}") };
        let mut bump = plan.draw(1);
        assert_eq!(bump.drive(|op| memory.perform(op)), Outcome::Bumped { site: site(1) });
        assert!(Help::plan(&seen, site(1), true).is_none());
    }
}
