//! Two edges and four agents, each on a machine of its own: partitions, and a machine that is
//! lost and comes back. The machines are network namespaces; where these can't be had, the test
//! says so and does nothing.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::apart::{Addresses, Crowd, Part, Site};
use common::netns::{Rack, address, refusal};
use common::wave::Wave;
use common::{eventually, watch_for};
use polder::status::NodeState;
use std::net::SocketAddr;
use std::time::Duration;

/// Connections to each edge: together more than two nodes take at once.
const CLIENTS: usize = 12;
/// Machines; the first is the clients'.
const MACHINES: [&str; 7] = ["c", "e0", "e1", "n1", "n2", "n3", "n4"];

#[test]
fn requests_survive_partitions_and_the_loss_of_a_machine() {
    if let Some(why) = refusal() {
        println!("skipped: no network namespaces here: {why}");
        return;
    }
    let rack = Rack::new(&MACHINES);
    let addresses = Addresses {
        edges: (1..3).map(|index| format!("{}:8080", address(index))).collect(),
        nodes: (3..7).map(|index| format!("{}:7100", address(index))).collect(),
    };
    let site = Site::new(&addresses, Duration::from_millis(10), "");
    let at = |machine: &str| rack.space(machine);
    let agent = |name: &str| site.agent(&["ip", "netns", "exec", &at(name)], name);
    let edge = |index: usize| site.edge(&["ip", "netns", "exec", &at(MACHINES[index + 1])], index);
    let (n1, n2) = (agent("n1"), agent("n2"));
    let (n3, n4) = (agent("n3"), agent("n4"));
    let edges = [edge(0), edge(1)];
    edges.iter().for_each(|edge| edge.wait_ready(4, 1));

    // The clients' threads are on their machine from here on.
    rack.enter("c");
    let fronts: Vec<SocketAddr> =
        addresses.edges.iter().map(|edge| edge.parse().unwrap()).collect();
    let (wave, driver) = Wave::over(&["red", "blue"], Duration::from_millis(500));
    let clients = Crowd::start(CLIENTS, &fronts, &wave);
    clients.wait_served(200);
    let moves = || -> u64 {
        edges.iter().map(|edge| edge.status().map_or(0, |status| status.edges[0].moves)).sum()
    };
    eventually("nodes follow the load", || moves() >= 2);

    // One edge no longer reaches one agent; all else goes on.
    rack.lose("e1", &address(6), true);
    eventually("edge 1 misses n4", || edges[1].states()[3] == NodeState::Unreachable);
    assert!(matches!(edges[0].states()[3], NodeState::Serving | NodeState::Free));
    clients.wait_served(200);
    rack.lose("e1", &address(6), false);
    wait_alive(&edges[1], 3);

    // A machine is cut off from all, and comes back as it was.
    rack.plug("n2", false);
    eventually("both miss n2", || {
        edges.iter().all(|edge| edge.states()[1] == NodeState::Unreachable)
    });
    clients.wait_served(200);
    watch_for(Duration::from_millis(1_500));
    rack.plug("n2", true);
    edges.iter().for_each(|edge| wait_alive(edge, 1));

    // The machine that holds the home is lost with all that ran there, and starts anew.
    n1.lose();
    clients.wait_served(200);
    let n1 = agent("n1");
    edges.iter().for_each(|edge| wait_alive(edge, 0));
    let before = moves();
    eventually("nodes move with the new home", || moves() >= before + 2);

    drop(driver);
    clients.assert_all_served();
    edges.into_iter().for_each(Part::stop);
    [n1, n2, n3, n4].into_iter().for_each(Part::stop);
}

fn wait_alive(edge: &Part, node: usize) {
    eventually("the agent is back", || {
        let state = edge.states().get(node).copied();
        matches!(state, Some(NodeState::Serving | NodeState::Free))
    });
}
