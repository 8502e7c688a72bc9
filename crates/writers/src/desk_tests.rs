//! What the desk answers, and what stays pending when processes die around it.

use super::*;
use remote_memory::shm::OwnedRegion;
use shared_state::versions::{RECORDS, SlotBits, TableLayout};
use std::sync::Arc;

const WRITER: Peer = Peer { connection: 1, pid: 70, uid: 1000, is_owner: false };
const OWNER: Peer = Peer { connection: 2, pid: 71, uid: 0, is_owner: true };

fn table() -> VersionTable {
    let bits = SlotBits::new(12).unwrap();
    let length = TableLayout::new(bits).region_bytes();
    let region = Arc::new(OwnedRegion::create("tags-test", length).unwrap());
    VersionTable::publish(region, bits).unwrap()
}

fn open() -> VersionTable {
    let table = table();
    table.admit_hits(Decided);
    table
}

fn ask(desk: &mut Desk, peer: &Peer, line: &str) -> String {
    let mut out = Vec::new();
    let answered = desk.answer(line.as_bytes(), peer, Duration::from_secs(9), &mut out);
    assert_eq!(answered == Answered::Later, out.is_empty());
    String::from_utf8(out).unwrap()
}

fn begin(desk: &mut Desk, tags: &str) -> String {
    let answer = ask(desk, &WRITER, &format!("begin {tags}"));
    answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{answer}")).trim().to_owned()
}

fn is_valid(table: &VersionTable, filled: shared_state::versions::Filled, tag: &str) -> bool {
    table.is_valid(filled, &table.slots_of(&[tag]))
}

#[test]
fn an_update_voids_what_carries_its_tags_from_begin_on() {
    let table = open();
    let mut desk = Desk::new(table.clone(), 1);
    let before = table.fill().unwrap();
    let token = begin(&mut desk, "a b");
    assert!(!is_valid(&table, before, "a") && !is_valid(&table, before, "b"));
    assert!(is_valid(&table, before, "c"));
    let within = table.fill().unwrap();
    assert_eq!(ask(&mut desk, &WRITER, &format!("end {token}")), "ok\n");
    assert!(!is_valid(&table, within, "a"), "it may have been read before the commit");
    assert!(is_valid(&table, table.fill().unwrap(), "a"));
    assert_eq!(ask(&mut desk, &WRITER, &format!("end {token}")), "gone\n");
    let token = begin(&mut desk, "a");
    assert_eq!(ask(&mut desk, &WRITER, &format!("abort {token}")), "ok\n");
    let filled = table.fill().unwrap();
    assert_eq!(ask(&mut desk, &WRITER, "invalidate c"), "ok\n");
    assert!(!is_valid(&table, filled, "c") && is_valid(&table, filled, "a"));
    assert!(table.undecided().is_empty());
}

#[test]
fn a_token_ends_its_update_at_the_next_process_and_no_other() {
    let table = open();
    let mut first = Desk::new(table.clone(), 5);
    let many: Vec<String> = (0..200).map(|number| format!("t{number}")).collect();
    let old = begin(&mut first, "old");
    assert_eq!(ask(&mut first, &WRITER, &format!("end {old}")), "ok\n");
    let token = begin(&mut first, &many.join(" "));
    drop(first);
    // It draws the same names: the one that is pending is left out.
    let mut second = Desk::new(table.clone(), 5);
    let other = begin(&mut second, "other");
    let filled = table.fill().unwrap();
    assert!(!is_valid(&table, filled, "t7"));
    assert_eq!(ask(&mut second, &WRITER, &format!("end {old}")), "gone\n");
    assert!(!is_valid(&table, table.fill().unwrap(), "other"), "the name is its, the life is not");
    assert_eq!(ask(&mut second, &WRITER, &format!("end {token}")), "ok\n");
    assert_eq!(ask(&mut second, &WRITER, &format!("end {token}")), "gone\n");
    assert!(many.iter().all(|tag| is_valid(&table, table.fill().unwrap(), tag)));
    assert_eq!(ask(&mut second, &WRITER, &format!("end {other}")), "ok\n");
    assert!(table.undecided().is_empty());
}

#[test]
fn a_token_of_another_table_ends_nothing() {
    let (mut one, mut other) = (Desk::new(open(), 1), Desk::new(open(), 1));
    let token = begin(&mut one, "a");
    let same = begin(&mut other, "a");
    assert_eq!(ask(&mut other, &WRITER, &format!("end {token}")), "gone\n");
    assert_eq!(ask(&mut other, &WRITER, &format!("end {same}")), "ok\n");
}

#[test]
fn what_a_connection_leaves_stays_until_the_owner_settles_it() {
    let table = open();
    let mut desk = Desk::new(table.clone(), 0xa0);
    let token = begin(&mut desk, "a");
    desk.disconnected(WRITER.connection);
    assert!(!is_valid(&table, table.fill().unwrap(), "a"));
    let live = Peer { connection: 3, ..WRITER };
    let mut out = Vec::new();
    let _ = desk.answer(b"begin b", &live, Duration::from_secs(4), &mut out);
    assert_eq!(
        ask(&mut desk, &OWNER, "pending"),
        "ok 2 open\n000000a0 1 0 70 1000 disconnected\n000000a1 1 5 70 1000 connected\n"
    );
    assert!(ask(&mut desk, &WRITER, "pending").starts_with("error denied "));
    assert!(ask(&mut desk, &WRITER, "settle disconnected").starts_with("error denied "));
    assert_eq!(ask(&mut desk, &OWNER, "settle disconnected"), "ok 1\n");
    assert!(is_valid(&table, table.fill().unwrap(), "a"));
    assert!(!is_valid(&table, table.fill().unwrap(), "b"));
    assert_eq!(ask(&mut desk, &WRITER, &format!("end {token}")), "gone\n");
    assert_eq!(ask(&mut desk, &OWNER, "settle 000000a1"), "ok 1\n");
    assert_eq!(ask(&mut desk, &OWNER, "settle 000000a1"), "ok 0\n");
    assert!(table.undecided().is_empty());
    let line = "000000a1 1 - - - disconnected";
    let told = PendingWriter::parse(line).unwrap();
    assert_eq!((told.age_s, told.pid, told.is_connected), (None, None, false));
}

#[test]
fn a_lost_table_serves_no_hits_until_the_owner_says_so() {
    let table = table();
    let mut desk = Desk::new(table.clone(), 1);
    assert_eq!(ask(&mut desk, &OWNER, "pending"), "ok 0 closed\n");
    let token = begin(&mut desk, "a");
    assert_eq!(ask(&mut desk, &WRITER, &format!("end {token}")), "ok\n");
    assert_eq!(table.fill(), None);
    assert_eq!(ask(&mut desk, &OWNER, "settle earlier"), "ok 1\n");
    assert!(table.fill().is_some());
    assert_eq!(ask(&mut desk, &OWNER, "settle earlier"), "ok 0\n");
    table.retire();
    assert!(ask(&mut desk, &OWNER, "settle earlier").starts_with("error failed "));
    assert!(ask(&mut desk, &WRITER, "begin a").starts_with("error failed "));
}

#[test]
fn a_full_table_says_so_and_takes_updates_again() {
    let mut desk = Desk::new(open(), 1);
    let tokens: Vec<_> = (0..RECORDS).map(|n| begin(&mut desk, &format!("t{n}"))).collect();
    assert!(ask(&mut desk, &WRITER, "begin more").starts_with("error busy "));
    assert!(ask(&mut desk, &WRITER, "invalidate more").starts_with("error busy "));
    for token in tokens {
        assert_eq!(ask(&mut desk, &WRITER, &format!("end {token}")), "ok\n");
    }
    begin(&mut desk, "more");
}

#[test]
fn a_document_is_never_read_while_it_is_written() {
    let mut desk = Desk::new(open(), 1);
    let other = Peer { connection: 3, ..WRITER };
    assert_eq!(ask(&mut desk, &WRITER, "read a b"), "ok\n");
    assert_eq!(ask(&mut desk, &OWNER, "read a b"), "ok\n");
    assert_eq!(ask(&mut desk, &other, "write a b"), "", "it waits");
    assert!(ask(&mut desk, &WRITER, "write a b").starts_with("error failed "));
    assert_eq!(ask(&mut desk, &WRITER, "read-end a b"), "ok\n");
    assert_eq!(ask(&mut desk, &WRITER, "read-end a b"), "gone\n");
    assert_eq!(ask(&mut desk, &WRITER, "read a b"), "", "behind the writer");
    assert!(desk.take_admitted().is_empty());
    // A writer's update outlives it, its place at the gate does not.
    desk.disconnected(OWNER.connection);
    assert_eq!(desk.take_admitted(), [other.connection]);
    let answer = ask(&mut desk, &other, "begin a");
    desk.disconnected(other.connection);
    assert_eq!(desk.take_admitted(), [WRITER.connection]);
    assert!(ask(&mut desk, &OWNER, "pending").starts_with("ok 1 "), "{answer}");
}
