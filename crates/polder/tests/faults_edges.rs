//! Edges that are killed or stopped in the middle of a move.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Sends;
use common::pool::{Pool, Recipe};
use common::watch::{Watch, node_record, noted_everywhere};
use common::wave::Wave;
use common::{eventually, process, watch_for};
use polder::status::Warning;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SITES: [&str; 3] = ["red", "green", "blue"];
/// Two sites with one node each at the least, and one with two.
const HARD: [usize; 3] = [1, 1, 2];
/// Connections to each edge: as many requests as three nodes take at once.
const CLIENTS: usize = 24;
/// How long each site is loaded: a few holds.
const PERIOD: Duration = Duration::from_millis(60);
/// A departure that another edge finds pending is finished within two looks, a millisecond each.
/// On a machine where all threads wait for a CPU it takes longer; what hangs takes for ever.
const REPAIRED_WITHIN: Duration = Duration::from_secs(2);

/// Nobody helps before the second look, half a millisecond later at the least; a move that is not
/// disturbed takes a microsecond.
const HELPED_AFTER: Duration = Duration::from_micros(400);

/// A pool whose edge 0 gets a signal after a step of its first move.
fn doomed(step: u8, signal: &str) -> Pool {
    let sites = [("red", "nodes = 2"), ("green", "nodes = 2"), ("blue", "nodes = 2\nhard = 2")];
    let mut recipe = Recipe::new(&sites, 6);
    recipe.env = vec![
        ("POLDER_STOP_AFTER_STEP", step.to_string()),
        ("POLDER_STOP_SIGNAL", signal.to_owned()),
    ];
    recipe.start()
}

/// What all edges, dead ones too, have noted at all nodes.
fn noted(pool: &Pool) -> u32 {
    let names = pool.recipe.node_names();
    names.iter().map(|node| noted_everywhere(&node_record(&pool.folder, node))).sum()
}

fn killed_after(step: u8) {
    let pool = doomed(step, "kill");
    let first_life = pool.edge_process(0).unwrap();
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, PERIOD);
    let at_other = Sends::gets(CLIENTS, &pool.edges[1..], &wave).start();
    let at_doomed = Sends::gets(CLIENTS, &pool.edges, &wave).start();
    eventually("edge 0 is killed in its move", || !process::is_alive(first_life));
    let died = Instant::now();
    // Whatever it left is repaired, or no node would ever leave that site again.
    watch.wait_changes(20);
    at_doomed.wait_served(200);
    at_other.wait_served(200);
    eventually("edge 0 is started again", || {
        pool.edge_process(0).is_some_and(|pid| pid != first_life) && pool.is_ready()
    });
    let back = Sends::gets(CLIENTS, &pool.edges[..1], &wave).start();
    back.wait_served(200);
    watch.wait_changes(20);

    back.finish().assert_all_served("clients of the edge that is back");
    at_other.finish().assert_all_served("clients of the other edge");
    let doomed = at_doomed.finish();
    doomed.assert_counted();
    let (cut, otherwise) = doomed.parted();
    assert!(otherwise.is_empty(), "{otherwise:?}");
    assert!(cut.len() <= CLIENTS, "each lost what it had in flight, no more: {cut:?}");
    assert!(cut.iter().all(|failure| failure.edge == pool.edges[0]), "{cut:?}");
    drop(driver);
    end(pool, watch, died, (&format!("killed after step {step}"), step));
}

/// What holds after every fault of an edge.
fn end(pool: Pool, watch: Watch, fault: Instant, (what, step): (&str, u8)) {
    eventually("nothing is noted as in flight any more", || noted(&pool) == 0);
    let history = watch.finish();
    let longest = history.pending.iter().max().unwrap();
    println!(
        "{what}: {} moves, {} after it; pending for {longest:?} at the most; {} pictures, {} torn, \
         {} versions between pictures; fewest nodes {:?}",
        history.moves(),
        history.moves_within(fault, Instant::now()),
        history.pictures,
        history.torn,
        history.missed,
        history.fewest
    );
    if matches!(step, 2 | 3) {
        assert!(*longest > HELPED_AFTER, "{what}: the fault left nothing to repair");
    }
    assert!(*longest < REPAIRED_WITHIN, "{what}: a departure was pending for {longest:?}");
    pool.finish();
}

#[test]
fn an_edge_killed_after_it_claimed_loses_only_its_own_requests() {
    killed_after(1);
}

#[test]
fn an_edge_killed_after_it_installed_loses_only_its_own_requests() {
    killed_after(2);
}

#[test]
fn an_edge_killed_after_it_swapped_loses_only_its_own_requests() {
    killed_after(3);
}

#[test]
fn an_edge_killed_after_it_closed_loses_only_its_own_requests() {
    killed_after(4);
}

fn stopped_after(step: u8) {
    let pool = doomed(step, "stop");
    let stopped = pool.edge_process(0).unwrap();
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, PERIOD);
    let at_other = Sends::gets(CLIENTS, &pool.edges[1..], &wave).start();
    let at_stopped = Sends::gets(CLIENTS, &pool.edges[..1], &wave).start();
    eventually("edge 0 stops in its move", || process::state(stopped) == Some('T'));
    let fault = Instant::now();
    let (served, moves) = (at_other.served(), watch.changes());
    watch_for(Duration::from_secs(2));
    assert!(at_other.served() > served + 100, "the other edge serves meanwhile");
    assert!(watch.changes() > moves + 4, "the other edge moves nodes meanwhile");
    assert!(process::signal(stopped, Signal::CONT));
    // What it still wants to write is late by two seconds.
    at_stopped.wait_served(200);
    at_other.wait_served(200);
    watch.wait_changes(20);
    assert_eq!(pool.edge_process(0), Some(stopped), "it lives on");
    at_other.finish().assert_all_served("clients of the other edge");
    // Its own clients waited, and lost nothing.
    at_stopped.finish().assert_all_served("clients of the edge that stood still");
    drop(driver);
    end(pool, watch, fault, (&format!("stopped after step {step}"), step));
}

#[test]
fn an_edge_stopped_after_it_claimed_does_no_harm_when_it_goes_on() {
    stopped_after(1);
}

#[test]
fn an_edge_stopped_after_it_installed_does_no_harm_when_it_goes_on() {
    stopped_after(2);
}

#[test]
fn an_edge_stopped_after_it_swapped_does_no_harm_when_it_goes_on() {
    stopped_after(3);
}

#[test]
fn a_status_waits_once_for_all_edges_that_stand_still() {
    let mut recipe = Recipe::new(&[("red", "")], 1);
    recipe.edges = 4;
    let pool = recipe.start();
    let stopped: Vec<u32> = (1..4).map(|index| pool.edge_process(index).unwrap()).collect();
    for &pid in &stopped {
        assert!(process::signal(pid, Signal::STOP));
    }
    let asked = Instant::now();
    let status = pool.status();
    let took = asked.elapsed();
    // One after the other, three edges took 21 s.
    assert!(took < Duration::from_secs(10), "{took:?}");
    let alive: Vec<bool> = status.edges.iter().map(|edge| edge.alive).collect();
    assert_eq!(alive, [true, false, false, false]);
    for edge in 1..4 {
        assert!(status.warnings.contains(&Warning::EdgeDead { edge }), "{:?}", status.warnings);
    }
    for pid in stopped {
        assert!(process::signal(pid, Signal::CONT));
    }
    eventually("all edges answer again", || pool.is_serving());
    pool.finish();
}
