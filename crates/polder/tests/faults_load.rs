//! Many moves under load: limits over all edges, fair shares, and no request lost.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::alone;
use common::client::{Sends, Tally};
use common::pool::{Pool, Recipe};
use common::wave::Wave;
use polder::control::{MoveArguments, NodeArguments, Request};
use std::time::{Duration, Instant};

const SITES: [&str; 3] = ["red", "green", "blue"];

/// Two edges. Neither may take the other for dead because this machine has no time for it: what
/// a dead edge had in flight no longer counts, and the limits would be passed.
fn start(sites: &[(&'static str, &'static str)], nodes: usize, service: Duration) -> Pool {
    let mut recipe = Recipe::new(sites, nodes).service(service);
    recipe.pool = "slot_lease_ms = 10_000".to_owned();
    recipe.start()
}

/// What the servers saw: at no moment more than `max_in_flight` of any site on any node.
#[track_caller]
fn assert_limits_held(pool: &Pool) {
    let record = pool.stubs.as_ref().unwrap().record_since(u64::MAX);
    for node in &record.nodes {
        for site in &node.sites {
            assert!(
                site.peak_in_flight <= pool.recipe.max_in_flight,
                "{} on {} had {} at once",
                site.site,
                node.node,
                site.peak_in_flight
            );
        }
        assert_eq!((node.refused, node.in_flight), (0, 0), "{}", node.node);
    }
    let peaks = record.nodes.iter().flat_map(|node| &node.sites).map(|site| site.peak_in_flight);
    let reached = peaks.max().unwrap();
    assert_eq!(reached, pool.recipe.max_in_flight, "the load reached the limit");
}

/// One request, one answer, over the whole pool: what clients got is what servers did.
#[track_caller]
fn assert_books_balance(pool: &Pool, tallies: &[Tally]) {
    let record = pool.stubs.as_ref().unwrap().record_since(u64::MAX);
    let served: u64 = record.nodes.iter().map(|node| node.served).sum();
    let answered: u64 = tallies.iter().map(|tally| tally.ok).sum();
    assert_eq!(served, answered, "no request was served twice, and none for nobody");
}

#[test]
fn a_thousand_moves_under_load_cost_no_request() {
    let _alone = alone();
    const MOVES: u64 = 1_000;
    let sites = [("red", "nodes = 2"), ("green", "nodes = 2"), ("blue", "nodes = 2")];
    let pool = start(&sites, 6, Duration::from_millis(4));
    let watch = pool.watch(&[1, 1, 1]);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(12));
    let clients: Vec<_> =
        (0..2).map(|edge| Sends::gets(32, &pool.edges[edge..=edge], &wave).start()).collect();
    let started = Instant::now();
    watch.wait_changes(MOVES);
    let took = started.elapsed();
    let tallies: Vec<Tally> = clients.into_iter().map(|clients| clients.finish()).collect();
    drop(driver);
    for (edge, tally) in tallies.iter().enumerate() {
        tally.assert_all_served(&format!("clients of edge {edge}"));
    }
    let told: u64 = pool.status().edges.iter().map(|edge| edge.moves).sum();
    let history = watch.finish();
    assert_eq!(told, history.moves() as u64, "each move was made by one edge, which says so");
    let sent: u64 = tallies.iter().map(|tally| tally.sent).sum();
    println!(
        "{} moves in {took:.1?} under {sent} requests; {} versions between pictures, {} torn",
        history.moves(),
        history.missed,
        history.torn
    );
    assert!(history.moves() as u64 >= MOVES);
    assert_limits_held(&pool);
    assert_books_balance(&pool, &tallies);
    pool.finish();
}

/// What persons do to a pool costs no request either.
#[test]
fn moves_drains_and_pauses_by_persons_cost_no_request() {
    let sites = [("red", "nodes = 2"), ("green", "nodes = 2"), ("blue", "nodes = 2")];
    let pool = start(&sites, 6, Duration::from_millis(10));
    let watch = pool.watch(&[1, 1, 1]);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(40));
    let clients: Vec<_> =
        (0..2).map(|edge| Sends::gets(24, &pool.edges[edge..=edge], &wave).start()).collect();
    for round in 0..30 {
        let node = format!("n{}", 1 + round % 6);
        // A site at its guarantee refuses; then the next round tries another.
        let _ = pool.try_ask(&Request::Move(MoveArguments {
            node: node.clone(),
            site: SITES[round % 3].to_owned(),
        }));
        if round % 5 == 0 {
            let _ = pool.try_ask(&Request::Drain(NodeArguments { node: node.clone() }));
            clients[0].wait_served(20);
            pool.ask(&Request::Undrain(NodeArguments { node }));
        }
        if round % 7 == 0 {
            pool.ask(&Request::Pause);
            clients[1].wait_served(50);
            pool.ask(&Request::Resume);
        }
    }
    watch.wait_changes(10);
    let tallies: Vec<Tally> = clients.into_iter().map(|clients| clients.finish()).collect();
    drop(driver);
    for (edge, tally) in tallies.iter().enumerate() {
        tally.assert_all_served(&format!("clients of edge {edge}"));
    }
    watch.finish();
    assert_limits_held(&pool);
    assert_books_balance(&pool, &tallies);
    pool.finish();
}

/// Two edges with the same load, three times what the nodes can do, while nodes move: neither
/// waits longer than the other, and together they never send a server more than it takes.
#[test]
fn two_edges_share_every_servers_room_fairly() {
    let _alone = alone();
    let sites = [("red", "nodes = 2"), ("green", "nodes = 2"), ("blue", "nodes = 2")];
    let pool = start(&sites, 6, Duration::from_millis(10));
    let watch = pool.watch(&[1, 1, 1]);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(250));
    let clients: Vec<_> =
        (0..2).map(|edge| Sends::gets(48, &pool.edges[edge..=edge], &wave).start()).collect();
    for clients in &clients {
        clients.wait_served(3_000);
    }
    watch.wait_changes(20);
    let tallies: Vec<Tally> = clients.into_iter().map(|clients| clients.finish()).collect();
    drop(driver);
    for (edge, tally) in tallies.iter().enumerate() {
        tally.assert_all_served(&format!("clients of edge {edge}"));
    }
    assert_limits_held(&pool);
    assert_books_balance(&pool, &tallies);
    let medians: Vec<Duration> = tallies.iter().map(Tally::median).collect();
    let ratio = medians[0].as_secs_f64() / medians[1].as_secs_f64();
    let last = |tally: &Tally| tally.quantile(0.99);
    println!(
        "medians {medians:?}, ratio {ratio:.2}; p99 {:?} and {:?}; {} moves",
        last(&tallies[0]),
        last(&tallies[1]),
        watch.changes()
    );
    assert!((1.0 / 1.5..1.5).contains(&ratio), "one edge waits longer: {medians:?}");
    watch.finish();
    pool.finish();
}

/// An edge with few clients beside one with many gets its part at once.
#[test]
fn an_edge_with_little_load_does_not_starve_beside_a_busy_one() {
    let _alone = alone();
    let sites = [("red", "nodes = 2\nmax = 2"), ("blue", "nodes = 1\nmax = 1")];
    let pool = start(&sites, 3, Duration::from_millis(10));
    let wave = Wave::still("red");
    let busy = Sends::gets(60, &pool.edges[..1], &wave).start();
    let quiet = Sends::gets(4, &pool.edges[1..], &wave).start();
    quiet.wait_served(400);
    let (busy, quiet) = (busy.finish(), quiet.finish());
    busy.assert_all_served("clients of the busy edge");
    quiet.assert_all_served("clients of the quiet edge");
    assert_limits_held(&pool);
    println!("medians: busy {:?}, quiet {:?}", busy.median(), quiet.median());
    assert!(quiet.median() < busy.median().mul_f64(1.5), "{:?}", quiet.median());
    pool.finish();
}
