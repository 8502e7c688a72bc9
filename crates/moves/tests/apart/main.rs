//! The look loop and the move protocol with home and nodes elsewhere, over TCP, with all that a
//! network does: delay, lost connections, late and reordered writes, silence.
//!
//! Each swap is seen by a witness at its owner, who checks at that instant: floors, one site for
//! each version of a node, histories without a gap.

#![allow(clippy::unwrap_used)]

mod lab;
mod net;
mod random;
#[path = "../support/mod.rs"]
mod support;
mod witness;

use lab::{Edge, Lab};
use moves::looper::{Answer, Command, Link};
use net::Weather;
use random::Random;
use shared_state::EdgeService;
use shared_state::words::Assign;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{node, site, status, wait_for};

/// Moves in the run with faults.
const MOVES: u64 = 60;
/// How long that may take on a loaded machine.
const RUN_MAX: Duration = Duration::from_secs(60);

fn load(edges: &[Edge], hot: u16, cold: u16) {
    for edge in edges {
        edge.host.queue(hot, 50);
        edge.host.queue(cold, 0);
    }
}

#[test]
fn nodes_follow_the_load_over_tcp_down_to_the_guarantee_and_back() {
    let lab = Lab::new(&[1, 1, 2, 2]);
    let edges = [Edge::start(&lab, 0), Edge::start(&lab, 1)];
    edges.iter().for_each(Edge::reached);
    for (hot, cold) in [(1, 2), (2, 1), (1, 2)] {
        load(&edges, hot, cold);
        wait_for("three nodes where the load is", || lab.count(hot) == 3);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!((lab.count(1), lab.count(2)), (3, 1));
    lab.witness.verdict();
    let told: u64 = edges.iter().map(|e| status(&e.handle.commander()).counters.moves).sum();
    assert_eq!(told, lab.witness.moves());
    assert_eq!(status(&edges[0].handle.commander()).edges.len(), 2, "each sees the other");
}

/// Connections are delayed and lost at any moment while four edges move nodes to and fro. What
/// was under way when a connection was lost still lands, later than what was sent after it.
#[test]
fn delay_loss_and_late_writes_break_no_floor_and_lose_no_move() {
    let seed = std::env::var("POLDER_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    println!("seed {seed}");
    let mut random = Random(seed);
    let lab = Lab::new(&[1, 2, 2, 2, 1, 2, 2]);
    let edges: Vec<_> = (0..4).map(|number| Edge::start(&lab, number)).collect();
    edges.iter().for_each(Edge::reached);
    let late = Weather { late_max: Duration::from_millis(4), stray: 40, ..Weather::default() };
    edges.iter().flat_map(|edge| &edge.ways).for_each(|way| way.set(late));
    let started = Instant::now();
    let (mut hot, mut cold, mut cuts) = (1, 2, 0);
    load(&edges, hot, cold);
    while lab.witness.moves() < MOVES && started.elapsed() < RUN_MAX {
        std::thread::sleep(Duration::from_millis(30));
        if lab.count(cold) == 1 {
            (hot, cold) = (cold, hot);
            load(&edges, hot, cold);
        }
        if random.one_in(2) {
            let way = random.below(lab::OWNERS);
            edges[random.below(4)].ways[way].cut();
            cuts += 1;
        }
        lab.witness.verdict();
    }
    edges.iter().flat_map(|edge| &edge.ways).for_each(|way| way.set(Weather::default()));
    load(&edges, 1, 2);
    wait_for("all nodes but one", || lab.count(1) == 6 && lab.count(2) == 1);
    edges.iter().for_each(Edge::reached);
    lab.witness.verdict();
    // Every move that an edge has told of took place, and none took place that nobody sent.
    let counters: Vec<_> =
        edges.iter().map(|edge| status(&edge.handle.commander()).counters).collect();
    let sum = |count: fn(&moves::Counters) -> u64| counters.iter().map(count).sum::<u64>();
    let (moved, done) = (sum(|c| c.moves), lab.witness.moves());
    let perhaps = sum(|c| c.helps) + sum(|c| c.unsettled);
    println!("{done} moves, {moved} told, {cuts} cuts, {counters:?}");
    assert!(moved <= done && done <= moved + perhaps, "{moved} {done} {perhaps}");
    assert!(done >= 10, "too few moves to say anything");
    assert!(cuts >= 5, "too few faults to say anything");
}

/// The home's words are lost while edges move nodes: its owner serves a new, empty region.
#[test]
fn a_home_that_lost_its_memory_is_rebuilt_and_no_floor_breaks() {
    let mut lab = Lab::new(&[1, 2, 2, 2]);
    let edges = [Edge::start(&lab, 0), Edge::start(&lab, 1)];
    edges.iter().for_each(Edge::reached);
    for (hot, cold) in [(1, 2), (2, 1), (1, 2)] {
        load(&edges, hot, cold);
        wait_for("the nodes", || lab.count(hot) == 3);
        lab.lose_home();
    }
    load(&edges, 2, 1);
    wait_for("the nodes, with the last home", || lab.count(2) == 3);
    lab.witness.verdict();
}

#[test]
fn a_partition_takes_nodes_out_of_moves_for_this_edge_only_until_it_heals() {
    let lab = Lab::new(&[1, 2, 2, 2]);
    let (cut_off, other) = (Edge::start(&lab, 0), Edge::start(&lab, 1));
    cut_off.reached();
    other.reached();
    let slots = cut_off.host.slots.lock().unwrap().len();
    // Nodes 2 lies with owner 2, where nothing else is.
    cut_off.ways[2].set(Weather { silent: true, ..Weather::default() });
    wait_for("the silence", || cut_off.alive() == [true, true, false, true]);
    assert_eq!(other.alive(), [true; 4]);
    let seen = status(&cut_off.handle.commander()).nodes[2].clone();
    assert!(!seen.link.is_fresh() && seen.attached, "{seen:?}");
    // A look does not wait for it: the others are looked at as often as ever.
    cut_off.host.queue(1, 50);
    wait_for("all but one", || lab.count(1) == 3);
    let lines = status(&cut_off.handle.commander()).moves;
    let touches = |line: &moves::looper::MoveLine| line.record.node == node(2);
    assert!(!lines.iter().any(touches), "what can't be reached does not move: {lines:?}");
    cut_off.ways[2].set(Weather::default());
    wait_for("the way to heal", || cut_off.alive() == [true; 4]);
    assert_eq!(cut_off.host.slots.lock().unwrap().len(), slots, "the region is the same");
    lab.witness.verdict();
}

#[test]
fn a_node_whose_agent_starts_again_takes_part_with_its_new_region() {
    let mut lab = Lab::new(&[1, 2, 2]);
    let edge = Edge::start(&lab, 0);
    edge.reached();
    let old = lab.nodes[2].clone();
    edge.ways[2].set(Weather { closed: true, ..Weather::default() });
    edge.ways[2].cut();
    wait_for("the loss", || {
        status(&edge.handle.commander()).nodes[2].link == Link::Gone && !edge.alive()[2]
    });
    assert!(lab.owner(2).retire(old.region().descriptor().key));
    old.assign_word().store(Assign::TOMBSTONE, Ordering::SeqCst);
    let first = Assign { site: Some(site(2)), stamp: Default::default(), version: 2 };
    lab.nodes[2] = lab.serve_node(2, first);
    edge.ways[2].set(Weather::default());
    edge.reached();
    edge.host.queue(1, 50);
    wait_for("a move", || lab.count(1) == 2);
    lab.witness.verdict();
}

#[test]
fn persons_move_cordon_and_pause_over_tcp() {
    let lab = Lab::new(&[1, 2, 2, 0]);
    let edge = Edge::start(&lab, 0);
    edge.reached();
    let moved = edge.ask(Command::Move { node: node(2), to: Some(site(1)) });
    assert!(matches!(moved, Answer::Moved(_)) && lab.at(2) == 1, "{moved:?}");
    assert_eq!(edge.ask(Command::Pause { paused: true }), Answer::Done);
    assert!(lab.home.is_paused());
    assert_eq!(edge.ask(Command::Cordon { node: node(3), cordoned: true }), Answer::Done);
    assert!(lab.home.is_cordoned(node(3)) && !lab.home.is_cordoned(node(2)));
    edge.host.queue(2, 50);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.count(2), 1, "all moves are paused");
    assert_eq!(edge.ask(Command::Pause { paused: false }), Answer::Done);
    wait_for("the donor's node", || lab.count(2) == 2);
    assert_eq!(lab.at(3), 0, "a cordoned node is not taken");
    edge.ways[0].set(Weather { closed: true, ..Weather::default() });
    edge.ways[0].cut();
    wait_for("the loss of the home", || !status(&edge.handle.commander()).home);
    assert!(matches!(edge.ask(Command::Pause { paused: true }), Answer::Refused(_)));
}

#[test]
fn what_an_edge_has_in_flight_is_seen_by_the_others_and_its_agent_is_rung() {
    let lab = Lab::new(&[1, 2, 2]);
    let (one, other) = (Edge::start(&lab, 0), Edge::start(&lab, 1));
    one.reached();
    other.reached();
    let bell = lab.nodes[1].wake_value();
    let entered = one.host.slots.lock().unwrap().iter_mut().any(|slot| {
        let assign = slot.record().assign().unwrap();
        slot.record().header().node == node(1)
            && slot.enter(assign, 8) == shared_state::slot::Enter::Entered
    });
    assert!(entered);
    wait_for("the count", || status(&other.handle.commander()).nodes[1].in_flight == 1);
    assert_eq!(lab.nodes[1].edges().iter().count(), 2);
    one.host.queue(1, 1);
    wait_for("the bell", || lab.nodes[1].wake_value() != bell);
    wait_for("the demand", || status(&other.handle.commander()).sites[0].queued == 1);
    // Service times of both, weighed by what each served; of one alone when the other is gone.
    *one.host.service.lock().unwrap() = EdgeService { served: 300, mean_us: 1_000 };
    *other.host.service.lock().unwrap() = EdgeService { served: 100, mean_us: 5_000 };
    let service = |edge: &Edge| status(&edge.handle.commander()).sites[0].service_us;
    wait_for("the service time", || service(&one) == 2_000 && service(&other) == 2_000);
    // An edge that ends is struck out once its lease has expired, and its counts with it.
    one.handle.stop();
    wait_for("the service time", || service(&other) == 5_000);
    wait_for("the lease", || lab.nodes[1].edges().iter().count() == 1);
    wait_for("the count", || status(&other.handle.commander()).nodes[1].in_flight == 0);
}
