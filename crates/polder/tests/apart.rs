//! Edges and agents started apart from one settings file, on one machine: joining, leaving, dying
//! and coming back, with requests under way.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::apart::{Addresses, Crowd, Part, Site};
use common::client::Connection;
use common::eventually;
use common::pool::{PROGRAM, Port};
use common::wave::Wave;
use polder::control::{MovesArguments, NodeArguments, Request, Response};
use polder::metrics;
use polder::status::{NodeState, Warning};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

/// Connections to each edge: more than a node takes at once.
const CLIENTS: usize = 12;

/// Free ports of this machine for two edges and four agents.
fn ports() -> (Vec<Port>, Addresses) {
    let ports: Vec<Port> = (0..6).map(|_| Port::take()).collect();
    let text = |port: &Port| port.address.to_string();
    let addresses = Addresses {
        edges: ports[..2].iter().map(text).collect(),
        nodes: ports[2..].iter().map(text).collect(),
    };
    (ports, addresses)
}

fn moves(edges: &[Part]) -> u64 {
    let of = |edge: &Part| edge.status().map_or(0, |status| status.edges[0].moves);
    edges.iter().map(of).sum()
}

#[test]
fn roles_apart_join_leave_die_and_come_back_without_a_lost_request() {
    let (ports, addresses) = ports();
    let site = Site::new(&addresses, Duration::from_millis(10), "");
    // Whichever comes first waits for the others.
    let mut edges = vec![site.edge(&[], 0)];
    let n1 = site.agent(&[], "n1");
    let n2 = site.agent(&[], "n2");
    let n3 = site.agent(&[], "n3");
    let n4 = site.agent(&[], "n4");
    edges.push(site.edge(&[], 1));
    edges.iter().for_each(|edge| edge.wait_ready(4, 1));
    let status = edges[0].status().unwrap();
    let told: Vec<_> = status.nodes.iter().map(|node| node.scheduled.clone()).collect();
    println!("agents answer edges: {told:?}");
    assert!(told.iter().all(Option::is_some), "{told:?}");

    let at: Vec<SocketAddr> = ports[..2].iter().map(|port| port.address).collect();
    let (wave, driver) = Wave::over(&["red", "blue"], Duration::from_millis(400));
    let clients = Crowd::start(CLIENTS, &at, &wave);
    clients.wait_served(200);
    eventually("nodes follow the load", || moves(&edges) >= 3);

    // An agent dies, and the next one takes its servers and its place over.
    n2.kill_worker();
    clients.wait_served(200);
    edges.iter().for_each(|edge| wait_alive(edge, 1));
    // So does the one that holds the home: it is rebuilt, and nodes go on moving.
    n1.kill_worker();
    edges.iter().for_each(|edge| wait_alive(edge, 0));
    let before = moves(&edges);
    eventually("nodes move with the new home", || moves(&edges) >= before + 2);

    // A node leaves and comes back.
    let node = || NodeArguments { node: "n4".to_owned() };
    eventually("n4 is drained", || {
        let drained = edges[1].try_ask(&Request::Drain(node()));
        assert!(matches!(drained, Ok(Response::Done(_))), "{drained:?}");
        let status = edges[1].status().unwrap();
        status.nodes[3].site.is_none() && status.nodes[3].in_flight == 0
    });
    clients.wait_served(100);
    n4.stop();
    eventually("n4 is gone", || edges.iter().all(|edge| edge.states()[3] == NodeState::AgentDead));
    clients.wait_served(100);
    let n4 = site.agent(&[], "n4");
    edges[0].try_ask(&Request::Undrain(node())).unwrap();
    edges.iter().for_each(|edge| wait_alive(edge, 3));
    clients.wait_served(200);

    drop(driver);
    clients.assert_all_served();
    for edge in edges {
        edge.stop();
    }
    [n1, n2, n3, n4].into_iter().for_each(Part::stop);
}

/// The machine of a node that its site can't do without is lost while a person has paused all
/// moves: the shortfall is told, with its cause. Then a move ends it.
#[test]
fn a_lost_node_puts_its_site_below_its_guarantee_until_a_move_makes_it_good() {
    let (ports, addresses) = ports();
    let site = Site::new(&addresses, Duration::from_millis(10), "");
    let edge = site.edge(&[], 0);
    let mut agents: Vec<Part> =
        ["n1", "n2", "n3", "n4"].map(|node| site.agent(&[], node)).into_iter().collect();
    edge.wait_ready(4, 1);
    let red = || edge.status().unwrap().sites[0].clone();
    let metric = |cause: &str| {
        let text = metrics::text(edge.status().unwrap());
        let name = "polder_site_below_hard_seconds_total{site=\"red\",cause=\"";
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}{cause}\"}} ")));
        line.unwrap().parse::<f64>().unwrap()
    };
    let at_first = red();
    assert_eq!((at_first.nodes, at_first.hard, at_first.terms.hard_met), (2, 2, true));
    assert_eq!((at_first.terms.below_hard.now, metric("node")), (None, 0.0));

    assert!(matches!(edge.try_ask(&Request::Pause), Ok(Response::Done(_))));
    agents.remove(1).lose();
    eventually("the shortfall is told", || red().terms.below_hard.now.as_deref() == Some("node"));
    let short = red();
    assert_eq!((short.nodes, short.hard, short.terms.hard_met), (1, 2, false));
    let warned = edge.status().unwrap().warnings.into_iter().find_map(|warning| match warning {
        Warning::BelowHard { site, nodes, hard } => Some((site, nodes, hard)),
        _ => None,
    });
    assert_eq!(warned, Some(("red".to_owned(), 1, 2)));
    eventually("its time is counted", || metric("node") > 0.0);

    assert!(matches!(edge.try_ask(&Request::Resume), Ok(Response::Done(_))));
    eventually("a move makes it good", || red().terms.hard_met);
    let status = edge.status().unwrap();
    assert_eq!((status.sites[0].nodes, status.nodes[3].site.as_deref()), (2, Some("red")));
    let told = &status.sites[0].terms.below_hard;
    assert_eq!((told.now.as_deref(), told.move_s), (None, 0.0), "{told:?}");
    assert!(told.node_s >= short.terms.below_hard.node_s && told.node_s > 0.0, "{told:?}");
    assert_eq!(status.sites[1].terms.below_hard.node_s, 0.0);
    let Ok(Response::Moves(moves)) = edge.try_ask(&Request::Moves(MovesArguments { limit: 9 }))
    else {
        panic!("no moves")
    };
    let last = moves.last().map(|one| (one.node.as_str(), one.to.as_deref(), &*one.reason));
    assert_eq!(last, Some(("n4", Some("red"), "floor")), "{moves:?}");
    let mut connection = Connection::open(ports[0].address).unwrap();
    assert_eq!(connection.request("GET", "red.test", "/").unwrap().status, 200);

    // Another one is stopped in good order, and no node is left: that was no move either.
    agents.pop().unwrap().stop();
    eventually("it is told again", || red().terms.below_hard.now.as_deref() == Some("node"));
    assert_eq!((red().nodes, red().terms.below_hard.move_s), (1, 0.0));
    edge.stop();
    agents.into_iter().for_each(Part::stop);
}

fn wait_alive(edge: &Part, node: usize) {
    eventually("the agent is back", || {
        let state = edge.states().get(node).copied();
        matches!(state, Some(NodeState::Serving | NodeState::Free))
    });
}

#[test]
fn a_key_that_others_may_read_and_a_node_that_is_not_there_are_refused() {
    let (_ports, addresses) = ports();
    let site = Site::new(&addresses, Duration::from_millis(10), "");
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).args(arguments).arg(&site.file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = run(&["agent", "--node", "n9"]);
    assert!(code == Some(2) && text.contains("n9"), "{code:?} {text}");
    let (code, text) = run(&["edge", "--index", "2"]);
    assert!(code == Some(2) && text.contains("from 0 on"), "{code:?} {text}");
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(site.path().join("pool.key"), open).unwrap();
    for role in [&["agent", "--node", "n1"][..], &["edge"]] {
        let (code, text) = run(role);
        assert!(code == Some(1) && text.contains("644"), "{code:?} {text}");
    }
}
