//! Shared memory that is not as it should be: edges that disagree, and noise.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Clients, Sends};
use common::pool::{PROGRAM, Pool, Port, Recipe};
use common::watch::{Watch, node_record, site_record};
use common::wave::{Driver, Wave};
use common::{eventually, process, watch_for};
use polder::control::{MovesArguments, Request, Response};
use polder::rig::{MoveLog, NodeHistory};
use polder::status::{MoveRecord, NodeState, Warning};
use pool_model::SiteId;
use remote_memory::Mapped as _;
use rustix::process::Signal;
use shared_state::words::{Assign, Epoch};
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SITES: [&str; 2] = ["red", "blue"];
const CLIENTS: usize = 40;
const PERIOD: Duration = Duration::from_millis(60);
/// Where a region's header has its magic and its version, in words (docs/layout.md).
const MAGIC: usize = 0;
const VERSION: usize = 1;

fn recipe() -> Recipe {
    Recipe::new(&[("red", "nodes = 3"), ("blue", "nodes = 3")], 6)
}

/// Load at both edges that goes to and fro.
struct Load {
    clients: Vec<Clients>,
    wave: Arc<Wave>,
    _driver: Driver,
}

impl Load {
    fn start(pool: &Pool) -> Self {
        let (wave, driver) = Wave::over(&SITES, PERIOD);
        let at = |edge| Sends::gets(CLIENTS / 2, &[edge], &wave).start();
        let clients = pool.edges.iter().copied().map(at).collect();
        Self { clients, wave, _driver: driver }
    }

    fn wait_served(&self, more: u64) {
        self.clients.iter().for_each(|clients| clients.wait_served(more));
    }

    #[track_caller]
    fn finish(self) {
        for (edge, clients) in self.clients.into_iter().enumerate() {
            clients.finish().assert_all_served(&format!("clients of edge {edge}"));
        }
    }
}

/// A process that a test started by hand.
struct Hand(Child);

impl Drop for Hand {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a third edge with settings of its own.
fn odd_edge(pool: &Pool, odd: &Recipe, port: &Port) -> Hand {
    let edges = [&pool.edges[..], &[port.address]].concat();
    let file = pool.home().join("odd.toml");
    std::fs::write(&file, odd.text(&pool.folder, &edges, pool.stubs.as_ref())).unwrap();
    let log = File::options().create(true).append(true).open(pool.home().join("odd.log")).unwrap();
    let child = Command::new(PROGRAM)
        .args(["edge-process", "--index", "2", "--slot", "2"])
        .arg("--parent")
        .arg(std::process::id().to_string())
        .arg("--file")
        .arg(&file)
        .arg("--folder")
        .arg(&pool.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    Hand(child.unwrap())
}

fn says_that_settings_differ(pool: &Pool) -> bool {
    let warnings = pool.status().warnings;
    let differ = |warning: &Warning| matches!(warning, Warning::SettingsDiffer { edge: 2, .. });
    let text = "edge 2 has other settings";
    warnings.iter().any(|warning| differ(warning) && warning.to_string().contains(text))
}

#[test]
fn edges_with_different_settings_move_nothing_and_serve_on() {
    let pool = recipe().start();
    let watch = pool.watch(&[1, 1]);
    let load = Load::start(&pool);
    watch.wait_changes(8);
    let mut other_hold = pool.recipe.clone();
    other_hold.pool = "hold_ms = 7".to_owned();
    let mut other_hard = pool.recipe.clone();
    other_hard.sites[1].1 = "nodes = 3\nhard = 2";
    let mut quiet = Vec::new();
    for odd in [other_hold, other_hard] {
        let port = Port::take();
        let process = odd_edge(&pool, &odd, &port);
        eventually("the status says so", || says_that_settings_differ(&pool));
        let from = Instant::now();
        let at_odd = Sends::gets(4, &[port.address], &load.wave).start();
        at_odd.wait_served(50);
        load.wait_served(100);
        watch_for(Duration::from_secs(1));
        quiet.push((from, Instant::now()));
        at_odd.finish().assert_all_served("clients of the odd edge");
        process::signal(process.0.id(), Signal::KILL);
        drop(process);
        watch.wait_changes(8);
        eventually("the warning goes", || !says_that_settings_differ(&pool));
    }
    load.finish();
    let history = watch.finish();
    for (from, to) in quiet {
        assert_eq!(history.moves_within(from, to), 0, "no edge moved while settings differed");
    }
    std::fs::remove_file(pool.folder.join("edge-2.control")).unwrap_or_default();
    pool.finish();
}

fn xorshift(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

/// Replaces a word as a peer does; whatever stood there.
fn scribble(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::SeqCst);
}

#[test]
fn a_node_with_a_nonsense_assignment_is_named_and_set_free() {
    let pool = recipe().start();
    let watch = pool.watch(&[0, 0]);
    let before = pool.status();
    let mut log = MoveLog::default();
    let load = Load::start(&pool);
    watch.wait_changes(6);
    let record = node_record(&pool.folder, "n5");
    for round in 1..=3 {
        let now = record.assign().unwrap();
        let site = SiteId::new(900 + round).unwrap();
        let stamp = Epoch::from_bits(0x00ab_cdef);
        let nonsense = Assign { site: Some(site), stamp, version: now.version + 1_000 };
        scribble(record.assign_word(), nonsense.pack());
        let word = format!("`assign` of node 4 holds nonsense: {:#018x}", nonsense.pack());
        eventually("the place is named", || pool.log().contains(&word));
        let used = |assign: Assign| assign.site.is_some_and(|site| site.get() <= 2);
        eventually("it is set free and used again", || record.assign().is_some_and(used));
        load.wait_served(100);
        // One line a second tells of a place.
        watch_for(Duration::from_millis(1_100));
        log.add(moves(&pool));
    }
    watch.wait_changes(6);
    load.finish();
    let after = pool.status();
    log.add(moves(&pool));
    let freed = log.iter().filter(|one| one.reason == "freed").count();
    assert_eq!(freed, 3, "one record for each time");
    let history = NodeHistory::replay(&before, &log, &after);
    assert!(history.is_ok_and(|history| history.moves() >= 12), "no move is missing");
    watch.finish();
    pool.finish();
}

/// The moves that its edges still know.
fn moves(pool: &Pool) -> Vec<MoveRecord> {
    let all = Request::Moves(MovesArguments { limit: usize::MAX });
    let Response::Moves(moves) = pool.ask(&all) else { panic!("no moves") };
    moves
}

#[test]
fn site_words_full_of_noise_are_named_and_mended() {
    let pool = recipe().start();
    let watch = pool.watch(&[0, 0]);
    let load = Load::start(&pool);
    watch.wait_changes(6);
    let home = site_record(&pool.folder);
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(2) {
        for site in [1, 2].map(|number| SiteId::new(number).unwrap()) {
            let words = [home.depart_word(site), home.arrive_word(site), home.floor_word(site)];
            for word in words.into_iter().flatten() {
                let noise = xorshift(&mut random);
                scribble(word, if noise.is_multiple_of(4) { u64::MAX } else { noise });
            }
        }
        watch_for(Duration::from_millis(7));
    }
    load.wait_served(100);
    let log = pool.log();
    for place in ["`depart` of site 1", "`depart` of site 2", "`floor` of site 1"] {
        assert!(log.contains(place), "{place} is not named");
    }
    watch.wait_changes(10);
    eventually("nothing is wrong any more", || pool.status().warnings.is_empty());
    load.finish();
    watch.finish();
    pool.finish();
}

#[test]
fn a_node_record_filled_with_noise_is_refused_by_name_until_its_agent_makes_a_new_one() {
    let mut recipe = recipe().agents(Duration::from_millis(10));
    recipe.nodes = 5;
    recipe.sites = vec![("red", "nodes = 3"), ("blue", "nodes = 2")];
    let pool = recipe.start();
    let others = &pool.recipe.node_names()[1..];
    let watch = Watch::start(&pool.folder, others, &[0, 0]);
    let load = Load::start(&pool);
    watch.wait_changes(6);
    let record = node_record(&pool.folder, "n1");
    let agent = pool.agent(0).unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for word in record.region().words() {
        scribble(word, xorshift(&mut random));
    }
    let unreachable = || pool.status().nodes[0].state == NodeState::Unreachable;
    eventually("it is not used", unreachable);
    let named = "node 0's record: region node-n1 is no node record";
    let warnings = pool.status().warnings;
    assert!(warnings.iter().any(|w| w.to_string().contains(named)), "{warnings:?}");
    assert!(pool.log().contains("is no node record"), "{}", pool.log());
    watch.wait_changes(10);
    load.wait_served(200);
    assert!(process::is_alive(agent), "its agent bears it");
    process::signal(agent, Signal::KILL);
    eventually("a new agent makes a new one", || {
        pool.status().nodes[0].state == NodeState::Serving
    });
    let new = node_record(&pool.folder, "n1");
    let version = new.assign().unwrap().version;
    eventually("its node moves again", || new.assign().unwrap().version > version + 1);
    load.finish();
    watch.finish();
    pool.finish();
}

#[test]
fn records_of_another_layout_version_are_refused_by_name_and_used_when_they_are_right_again() {
    let pool = recipe().start();
    let others = &pool.recipe.node_names()[1..];
    let watch = Watch::start(&pool.folder, others, &[0, 0]);
    let load = Load::start(&pool);
    watch.wait_changes(6);
    let record = node_record(&pool.folder, "n1");
    let version = record.region().words()[VERSION].swap(99, Ordering::SeqCst);
    eventually("it is not used", || pool.status().nodes[0].state == NodeState::Unreachable);
    let known = shared_state::LAYOUT_VERSION;
    let named = format!("region node-n1 has layout version 99, this program knows {known}");
    let warnings = pool.status().warnings;
    assert!(warnings.iter().any(|w| w.to_string().contains(&named)), "{warnings:?}");
    watch.wait_changes(10);
    // An edge that starts refuses it too: both have said so by then, and one of them twice.
    load.finish();
    let load = Load::start(&pool);
    process::signal(pool.edge_process(1).unwrap(), Signal::KILL);
    eventually("three edges have named it", || pool.log().matches(&named).count() >= 3);
    let cut = load.clients.into_iter().map(Clients::finish).collect::<Vec<_>>();
    cut[0].assert_all_served("clients of the edge that lives");

    let load = Load::start(&pool);
    record.region().words()[VERSION].store(version, Ordering::SeqCst);
    eventually("it is used again", || pool.status().nodes[0].state == NodeState::Serving);
    let before = record.assign().unwrap().version;
    eventually("it moves again", || record.assign().unwrap().version > before);
    load.finish();
    watch.finish();
    pool.finish();
}

#[test]
fn a_broken_site_record_stops_moves_and_nothing_else() {
    let pool = recipe().start();
    let watch = pool.watch(&[1, 1]);
    let load = Load::start(&pool);
    watch.wait_changes(6);
    let home = site_record(&pool.folder);
    let magic = home.region().words()[MAGIC].swap(0xdead_beef, Ordering::SeqCst);
    let named = "the site record: region home is no site record";
    let is_told = || pool.status().warnings.iter().any(|w| w.to_string().contains(named));
    eventually("the status says so", is_told);
    // The status has it from the first edge that saw it; what the others had begun may end.
    eventually("both edges say so", || {
        pool.log().matches("region home is no site record").count() >= 2
    });
    watch_for(Duration::from_millis(100));
    let from = Instant::now();
    load.wait_served(200);
    watch_for(Duration::from_millis(500));
    let to = Instant::now();
    home.region().words()[MAGIC].store(magic, Ordering::SeqCst);
    watch.wait_changes(6);
    eventually("nothing is wrong any more", || pool.status().warnings.is_empty());
    load.finish();
    assert_eq!(watch.finish().moves_within(from, to), 0, "without a home nothing moves");
    pool.finish();
}
