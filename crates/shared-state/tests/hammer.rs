//! The version table in real memory: writers in processes that are killed at any moment, writers
//! and readers in threads. Every hit is compared with what was committed before it was asked for,
//! and in the end every word is as it was in the beginning.
#![allow(clippy::unwrap_used)]
#![cfg(not(loom))]

use remote_memory::shm::OwnedRegion;
use remote_memory::{Incarnation, Mapped, RemoteKey};
use shared_state::versions::{
    Decided, Filled, Slot, SlotBits, TableLayout, VersionTable, WriterId,
};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TAGS: usize = 12;
/// Where, behind the rows, children count themselves once they write.
const STARTED: usize = 64;
/// Tells a child of this test what to write to.
const REGIONS: &str = "POLDER_HAMMER_REGIONS";
/// Long enough for a machine with other work; the test ends as soon as it has seen enough.
const DEADLINE: Duration = Duration::from_secs(60);
const KILLS: u32 = 40;
const HITS: u64 = 20_000;
/// A dead writer that is settled while another is between two steps is settled again.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

/// Pseudo-random numbers, enough to be all over the place.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn tags(&mut self) -> Vec<usize> {
        let (first, count) = (self.below(TAGS), 1 + self.below(3));
        (first..first + count).map(|tag| tag % TAGS).collect()
    }
}

/// With summary words of both levels.
fn bits() -> SlotBits {
    SlotBits::new(23).unwrap()
}

/// Two tags share a word, so that a collision is among them; some share a fine summary word, and
/// there are two coarse ones.
fn slots(tags: &[usize]) -> Vec<Slot> {
    let slot = |tag: u32| Slot(tag * 300 + tag % 2 * 200_000);
    tags.iter().map(|tag| slot((*tag as u32).max(1))).collect()
}

fn reach(region: &OwnedRegion) -> String {
    let descriptor = region.descriptor();
    let file = region.as_fd().as_raw_fd();
    format!("{}:{file}:{}:{}", std::process::id(), descriptor.key.0, descriptor.incarnation.0)
}

fn reached(text: &str) -> Arc<dyn Mapped> {
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().unwrap()).collect();
    let path = format!("/proc/{}/fd/{}", parts[0], parts[1]);
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let (key, incarnation) = (RemoteKey(parts[2]), Incarnation(parts[3]));
    Arc::new(OwnedRegion::resume(file.into(), "hammer", key, incarnation).unwrap())
}

/// One update: begin, commit a row for each tag, end.
fn write(table: &VersionTable, rows: &[AtomicU64], writer: u32, dice: &mut Dice) {
    let tags = dice.tags();
    let update = table.begin(WriterId(writer), &slots(&tags)).unwrap();
    for tag in tags {
        rows[tag].fetch_add(1, Ordering::SeqCst);
    }
    table.end(update).unwrap();
}

/// What a child process of `writers_are_killed` is; by itself this test does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(text) = std::env::var(REGIONS) else { return };
    let parts: Vec<_> = text.split(' ').collect();
    let table = VersionTable::open(reached(parts[0])).unwrap();
    let (rows, writer) = (reached(parts[1]), parts[2].parse::<u32>().unwrap());
    let (start, mut dice) = (Instant::now(), Dice(u64::from(writer) + 7));
    rows.words()[STARTED].fetch_add(1, Ordering::SeqCst);
    // Without a pause, so that it dies within an update more often than not. If nobody kills it,
    // because the parent was killed, it ends by itself.
    while start.elapsed() < DEADLINE * 2 {
        write(&table, rows.words(), writer, &mut dice);
    }
}

fn child(regions: &str, writer: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_until_it_is_killed"])
        .env(REGIONS, format!("{regions} {writer}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Fills entries and asks for them; the number of hits goes to `hits`.
fn read(table: &VersionTable, rows: &[AtomicU64], hits: &AtomicU64, stop: &AtomicBool, seed: u64) {
    let mut dice = Dice(seed);
    let mut entries: Vec<Option<(Filled, Vec<u64>)>> = vec![None; TAGS];
    let row = |tag: usize| rows[tag].load(Ordering::SeqCst);
    while !stop.load(Ordering::Relaxed) {
        let page = dice.below(TAGS);
        let tags = [page, (page + 1) % TAGS];
        let arrived = tags.map(row);
        let valid = |(filled, _): &&(Filled, _)| table.is_valid(*filled, &slots(&tags));
        if let Some((_, content)) = entries[page].as_ref().filter(valid) {
            let old = content.iter().zip(arrived).any(|(have, committed)| *have < committed);
            assert!(!old, "page {page} has {content:?}, {arrived:?} was committed");
            hits.fetch_add(1, Ordering::Relaxed);
        } else {
            let filled = table.fill().unwrap();
            entries[page] = Some((filled, tags.map(row).to_vec()));
        }
    }
}

/// Lets the threads end when the test does, however that ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns when so many children have begun to write.
fn wait_for_children(rows: &[AtomicU64], children: u64, start: Instant) {
    while rows[STARTED].load(Ordering::SeqCst) < children {
        assert!(start.elapsed() < DEADLINE, "child {children} does not start");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The process is dead, so that nothing it began can be committed any more: that is decided.
fn settle(table: &VersionTable, writer: u32) -> usize {
    let start = Instant::now();
    loop {
        match table.settle(WriterId(writer), Decided) {
            Ok(records) => return records,
            Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::sleep(SETTLE_PAUSE);
    }
}

#[test]
fn writers_are_killed() {
    let bytes = TableLayout::new(bits()).region_bytes();
    let region = Arc::new(OwnedRegion::create("versions", bytes).unwrap());
    let rows = Arc::new(OwnedRegion::create("rows", 4_096).unwrap());
    let table = VersionTable::publish(Arc::clone(&region) as Arc<dyn Mapped>, bits()).unwrap();
    assert!(table.admit_hits(Decided));
    let regions = format!("{} {}", reach(&region), reach(&rows));
    let (hits, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut kills, mut settled) = (0, 0);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for seed in [11, 12] {
            let (table, rows, hits, stop) = (&table, &rows, &hits, &stop);
            scope.spawn(move || read(table, rows.words(), hits, stop, seed));
            scope.spawn(move || {
                let mut dice = Dice(seed);
                while !stop.load(Ordering::Relaxed) {
                    write(table, rows.words(), seed as u32, &mut dice);
                    std::thread::sleep(Duration::from_micros(dice.below(500) as u64));
                }
            });
        }
        let (start, mut dice) = (Instant::now(), Dice(99));
        let enough = |kills| kills >= KILLS && hits.load(Ordering::Relaxed) >= HITS;
        while !enough(kills) && start.elapsed() < DEADLINE {
            let writers = [1_000 + 2 * kills, 1_001 + 2 * kills];
            let mut children = writers.map(|writer| child(&regions, writer));
            wait_for_children(rows.words(), u64::from(kills) + 2, start);
            std::thread::sleep(Duration::from_micros(dice.below(20_000) as u64));
            for (child, writer) in children.iter_mut().zip(writers) {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
                settled += settle(&table, writer);
            }
        }
    });
    let hits = hits.into_inner();
    let committed: u64 = rows.words()[..TAGS].iter().map(|row| row.load(Ordering::Relaxed)).sum();
    println!("{kills} writers killed, {settled} records settled, {hits} hits, {committed} commits");
    assert!(kills >= KILLS && hits >= HITS && settled > 0 && committed > 0);
    assert_eq!(table.undecided(), []);
    let all = slots(&(0..TAGS).collect::<Vec<_>>());
    for &slot in &all {
        assert_eq!(table.version(slot).unwrap().pending, 0, "{slot:?}");
    }
    assert!(table.is_valid(table.fill().unwrap(), &all));
}
