//! Agents and servers that are killed or stopped: processes as `polder up` starts them.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{How, Sends};
use common::pool::{Pool, Recipe};
use common::wave::Wave;
use common::{eventually, process, watch_for};
use polder::status::NodeState;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SITES: [&str; 2] = ["red", "blue"];
const HARD: [usize; 2] = [1, 1];
const CLIENTS: usize = 24;
const PERIOD: Duration = Duration::from_millis(80);
const SERVICE: Duration = Duration::from_millis(10);
/// After so long without a beat an agent counts as dead: three of the beats that it promises.
const BEATS_MISSED: Duration = Duration::from_millis(1_500);

fn pool(nodes: usize, sites: &[(&'static str, &'static str)]) -> Pool {
    Recipe::new(sites, nodes).agents(SERVICE).start()
}

fn two_sites() -> Pool {
    pool(4, &[("red", "nodes = 2"), ("blue", "nodes = 2")])
}

fn servers(pool: &Pool, node: &str) -> Vec<u32> {
    SITES.iter().filter_map(|site| pool.server(node, site)).collect()
}

fn node_state(pool: &Pool, index: usize) -> NodeState {
    pool.status().nodes[index].state
}

/// The site that a node serves now.
fn site_of(pool: &Pool, index: usize) -> Option<String> {
    pool.status().nodes[index].site.clone()
}

#[test]
fn a_killed_agents_node_serves_on_and_moves_again_when_it_is_back() {
    let pool = two_sites();
    let before = servers(&pool, "n1");
    assert_eq!(before.len(), 2);
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, PERIOD);
    let clients: Vec<_> = (0..2)
        .map(|edge| Sends::gets(CLIENTS / 2, &pool.edges[edge..=edge], &wave).start())
        .collect();
    watch.wait_changes(4);
    // Each death in a row doubles the pause before the next start: 50 ms, 100, 200, 400.
    for life in 0..4 {
        let mut agent = None;
        eventually("the node has an agent", || {
            agent = pool.agent(0);
            agent.is_some()
        });
        let agent = agent.unwrap();
        // Some die before they have taken over, others after.
        watch_for(Duration::from_millis(120 * (life % 2)));
        assert!(process::signal(agent, Signal::KILL));
        eventually("it is dead", || !process::is_alive(agent));
    }
    let died = Instant::now();
    watch_for(Duration::from_millis(250));
    let still_dead = pool.agent(0).is_none().then(Instant::now);
    eventually("the node is back", || node_state(&pool, 0) == NodeState::Serving);
    assert_eq!(servers(&pool, "n1"), before, "the servers are the same processes");
    let back = Instant::now();
    let changes = watch.changes();
    eventually("nodes move again", || watch.changes() > changes + 6);
    watch_for(Duration::from_millis(500));

    for (edge, clients) in clients.into_iter().enumerate() {
        clients.finish().assert_all_served(&format!("clients of edge {edge}"));
    }
    drop(driver);
    let history = watch.finish();
    let own = &history.nodes[0];
    let moves: Vec<usize> = history.nodes.iter().map(|node| node.moves()).collect();
    println!("{} new regions; moves of each node {moves:?}", own.lives);
    assert!(own.lives >= 1, "a new region was published");
    if let Some(still_dead) = still_dead {
        assert_eq!(own.moves_within(died, still_dead), 0, "no move without an agent");
        assert!(history.moves_within(died, still_dead) > 0, "others moved meanwhile");
    }
    assert!(own.moves_within(back, Instant::now()) > 0, "it moves again");
    pool.finish();
}

#[test]
fn a_restarted_agent_keeps_its_site_even_if_it_dies_while_it_takes_over() {
    // Nothing moves by itself here: whatever site a node has changed to was given by nobody.
    let mut recipe = Recipe::new(&[("red", "nodes = 3"), ("blue", "nodes = 0\nhard = 0")], 3);
    recipe.pool = "policy = \"rigid\"".to_owned();
    let pool = recipe.agents(SERVICE).start();
    pool.ask_move("n1", "blue");
    let watch = pool.watch(&[2, 0]);
    let wave = Wave::still("red");
    let clients = Sends::gets(4, &pool.edges, &wave).start();
    for pause_ms in [0, 5, 10, 20, 40, 80, 160] {
        let mut agent = None;
        eventually("the node has an agent", || {
            agent = pool.agent(0);
            agent.is_some()
        });
        watch_for(Duration::from_millis(pause_ms));
        process::signal(agent.unwrap(), Signal::KILL);
        eventually("it is dead", || !process::is_alive(agent.unwrap()));
    }
    eventually("the node is back", || node_state(&pool, 0) == NodeState::Serving);
    assert_eq!(site_of(&pool, 0).as_deref(), Some("blue"), "a person gave it to blue");
    clients.finish().assert_all_served("clients");
    watch.finish();
    pool.finish();
}

#[test]
fn all_agents_killed_at_once_cost_no_request() {
    let pool = two_sites();
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, PERIOD);
    let clients = Sends::gets(CLIENTS, &pool.edges[..1], &wave).start();
    clients.wait_served(200);
    let agents: Vec<u32> = (0..4).filter_map(|index| pool.agent(index)).collect();
    assert_eq!(agents.len(), 4);
    for agent in agents {
        process::signal(agent, Signal::KILL);
    }
    clients.wait_served(400);
    eventually("all are back", || pool.is_ready());
    let changes = watch.changes();
    eventually("nodes move again", || watch.changes() > changes + 4);
    clients.finish().assert_all_served("clients");
    drop(driver);
    watch.finish();
    pool.finish();
}

#[test]
fn a_stopped_agents_node_serves_on_unmoved() {
    let pool = two_sites();
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, PERIOD);
    let clients = Sends::gets(CLIENTS, &pool.edges[..1], &wave).start();
    watch.wait_changes(4);
    let agent = pool.agent(1).unwrap();
    process::signal(agent, Signal::STOP);
    eventually("it counts as dead", || node_state(&pool, 1) == NodeState::AgentDead);
    watch_for(BEATS_MISSED);
    let from = Instant::now();
    let served = clients.served();
    watch_for(Duration::from_secs(1));
    let status = pool.status();
    let to = Instant::now();
    assert_eq!(status.nodes[1].state, NodeState::AgentDead);
    let warnings: Vec<String> = status.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|text| text.contains("agent of node n2")), "{warnings:?}");
    assert!(clients.served() > served + 100, "requests go on");
    process::signal(agent, Signal::CONT);
    eventually("it counts as alive", || node_state(&pool, 1) == NodeState::Serving);
    let again = Instant::now();
    watch.wait_changes(12);
    watch_for(Duration::from_millis(500));
    clients.finish().assert_all_served("clients");
    drop(driver);
    let history = watch.finish();
    assert_eq!(history.nodes[1].moves_within(from, to), 0, "no move without an agent");
    assert!(history.moves_within(from, to) > 0, "the others moved");
    assert!(history.nodes[1].moves_within(again, Instant::now()) > 0, "it moves again");
    pool.finish();
}

/// Servers answer a GET in one piece of some 1,200 bytes, so that a killed one either has answered
/// a request wholly or not at all; then the request goes to another node, once for each of
/// `retries_max` = 2. So no GET fails. A POST that had been sent must not be sent twice: those
/// that the server worked on, at most `max_in_flight`, fail with 502.
#[test]
fn a_server_killed_in_a_burst_costs_no_get_and_only_its_own_posts() {
    // Both sites keep three nodes, so that there always is another one.
    let sites = [("red", "nodes = 3\nhard = 3"), ("blue", "nodes = 3\nhard = 3")];
    let pool = pool(6, &sites);
    let wave = Wave::still("red");
    let gets: Vec<_> =
        (0..2).map(|edge| Sends::gets(CLIENTS, &pool.edges[edge..=edge], &wave).start()).collect();
    let mut posts = Sends::gets(4, &pool.edges[..1], &wave);
    posts.method = "POST";
    let posts = posts.start();
    let at_blue = Sends::gets(4, &pool.edges[1..], &Wave::still("blue")).start();
    let mut killed = 0;
    for node in ["n1", "n2", "n3"] {
        gets.iter().for_each(|gets| gets.wait_served(100));
        let server = pool.server(node, "red").unwrap();
        assert!(process::signal(server, Signal::KILL));
        killed += 1;
        eventually("its agent starts it again", || {
            pool.server(node, "red").is_some_and(|pid| pid != server)
        });
        eventually("it serves again", || pool.is_ready());
    }
    gets.iter().for_each(|gets| gets.wait_served(100));
    for (edge, gets) in gets.into_iter().enumerate() {
        gets.finish().assert_all_served(&format!("GETs at edge {edge}"));
    }
    at_blue.finish().assert_all_served("the other site");
    let posts = posts.finish();
    posts.assert_counted();
    assert!(posts.ok > 0);
    assert!(posts.failures.len() <= killed * 4, "each client had one: {:?}", posts.failures);
    for failure in &posts.failures {
        let How::Status { status: 502, reason } = &failure.how else { panic!("{failure:?}") };
        assert_eq!(reason, "server-broke");
    }
    println!("{} of {} POSTs failed by {killed} kills", posts.failures.len(), posts.sent);
    let restarts: u32 = pool.status().nodes.iter().map(|node| node.restarts).sum();
    assert_eq!(restarts as usize, killed);
    pool.finish();
}

/// Nothing else can take the requests: they wait until the server is back.
#[test]
fn a_site_of_one_node_survives_the_death_of_its_server() {
    let pool = pool(2, &[("red", "nodes = 1"), ("blue", "nodes = 1")]);
    let wave = Wave::still("red");
    let clients: Vec<_> =
        (0..2).map(|edge| Sends::gets(6, &pool.edges[edge..=edge], &wave).start()).collect();
    for _ in 0..4 {
        clients.iter().for_each(|clients| clients.wait_served(50));
        let server = pool.server("n1", "red").unwrap();
        assert!(process::signal(server, Signal::KILL));
        eventually("its agent starts it again", || {
            pool.server("n1", "red").is_some_and(|pid| pid != server) && pool.is_ready()
        });
    }
    clients.iter().for_each(|clients| clients.wait_served(50));
    for (edge, clients) in clients.into_iter().enumerate() {
        clients.finish().assert_all_served(&format!("clients of edge {edge}"));
    }
    pool.finish();
}

/// A whole node is lost, as when its machine dies: agent and server at once, and nobody starts
/// them again. It was all that its site had; a node of the other site takes its place before the
/// requests that failed there are tried for the last time.
#[test]
fn the_only_node_of_a_site_is_replaced_when_it_is_lost() {
    let pool = pool(3, &[("red", "nodes = 1"), ("blue", "nodes = 2")]);
    let watch = pool.watch(&[0, 1]);
    let red = Sends::gets(8, &pool.edges[..1], &Wave::still("red")).start();
    let blue = Sends::gets(4, &pool.edges[1..], &Wave::still("blue")).start();
    red.wait_served(100);
    process::signal(pool.pid(), Signal::STOP);
    let lost = [pool.agent(0).unwrap(), pool.server("n1", "red").unwrap()];
    for pid in lost {
        process::signal(pid, Signal::KILL);
    }
    red.wait_served(200);
    blue.wait_served(50);
    process::signal(pool.pid(), Signal::CONT);
    eventually("the node is back", || pool.is_ready());
    red.wait_served(100);
    red.finish().assert_all_served("clients of the site that lost its node");
    blue.finish().assert_all_served("clients of the site that gave one");
    watch.finish();
    pool.finish();
}

/// Servers that run only on nodes of their site: a node serves its new site when the server is
/// up, and its old server ends when its requests have.
#[test]
fn servers_that_start_and_stop_with_the_assignment_lose_nothing() {
    let late = "nodes = 2\nstart = \"on-assignment\"";
    let mut recipe = Recipe::new(&[("red", late), ("blue", late)], 4).agents(SERVICE);
    recipe.health = "check_every_ms = 100".to_owned();
    let pool = recipe.launch();
    pool.wait_serving();
    let watch = pool.watch(&HARD);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(700));
    let clients: Vec<_> = (0..2)
        .map(|edge| Sends::gets(CLIENTS / 2, &pool.edges[edge..=edge], &wave).start())
        .collect();
    watch.wait_changes(12);
    for (edge, clients) in clients.into_iter().enumerate() {
        clients.finish().assert_all_served(&format!("clients of edge {edge}"));
    }
    drop(driver);
    watch.finish();
    let running = || {
        let servers = |node: String| servers(&pool, &node).len();
        pool.recipe.node_names().into_iter().map(servers).sum::<usize>()
    };
    eventually("each node runs the server of its site, no other", || running() == 4);
    pool.finish();
}
