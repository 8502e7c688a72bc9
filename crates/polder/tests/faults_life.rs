//! The life of a whole pool: killed, interrupted, started where it can't run.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Broken, Connection, How, Sends};
use common::pool::{PROGRAM, Pool, Port, Recipe, up};
use common::wave::Wave;
use common::{PATIENCE, eventually, process, watch_for};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const SITES: [&str; 2] = ["red", "blue"];
/// An address in use is told at once; this allows for a machine that has no time.
const TOLD_WITHIN: Duration = Duration::from_secs(15);

fn with_agents(service: Duration) -> Recipe {
    Recipe::new(&[("red", "nodes = 2"), ("blue", "nodes = 1")], 3).agents(service)
}

/// Starts the same pool anew, in the same folder, and sends it some requests.
fn works_again(pool: &mut Pool) {
    pool.restart();
    pool.wait_ready();
    let clients = Sends::gets(4, &pool.edges, &Wave::still("red")).start();
    clients.wait_served(50);
    clients.finish().assert_all_served("clients of the next run");
}

#[test]
fn a_killed_parent_leaves_no_process_and_the_next_run_works() {
    let mut pool = with_agents(Duration::from_millis(5)).start();
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(60));
    let clients = Sends::gets(8, &pool.edges[..1], &wave).start();
    clients.wait_served(100);
    // The parent, 2 edges, 3 agents, 6 servers.
    assert_eq!(pool.processes().len(), 12);
    process::signal(pool.pid(), Signal::KILL);
    assert_eq!(pool.wait_end().code(), None);
    eventually("no process is left", || pool.processes().is_empty());
    drop((clients, driver));
    works_again(&mut pool);
    pool.finish();
}

/// As when the machine's memory killer takes them all: servers outlive their agents, and the next
/// run ends them.
#[test]
fn servers_that_outlive_everything_are_ended_by_the_next_run() {
    let mut pool = with_agents(Duration::from_millis(5)).start();
    let servers: Vec<u32> = ["n1", "n2", "n3"]
        .iter()
        .flat_map(|node| SITES.iter().filter_map(|site| pool.server(node, site)))
        .collect();
    assert_eq!(servers.len(), 6);
    let mut others = pool.processes();
    others.retain(|pid| !servers.contains(pid));
    // All stand still first: none can put things in order when another dies.
    for &pid in &others {
        process::signal(pid, Signal::STOP);
    }
    eventually("they stand still", || others.iter().all(|&pid| process::is_stopped(pid)));
    // Their parent last: the kernel lets those go on whose group it leaves behind standing still.
    others.retain(|&pid| pid != pool.pid());
    for &pid in others.iter().chain([&pool.pid()]) {
        process::signal(pid, Signal::KILL);
    }
    pool.wait_end();
    eventually("only servers are left", || pool.processes().len() == servers.len());
    works_again(&mut pool);
    assert!(servers.iter().all(|pid| !process::is_alive(*pid)), "the old ones are gone");
    pool.finish();
}

#[test]
fn an_interrupted_pool_finishes_what_is_in_flight() {
    let pool = with_agents(Duration::from_millis(900)).start();
    // 3 nodes with 8 at once each, 4 of them at work: all are answered within 2 s.
    let open = |number: usize| {
        let edge = pool.edges[number % 2];
        let host = format!("{}.test", SITES[number % 2]);
        std::thread::spawn(move || {
            let mut connection = Connection::open(edge).unwrap();
            connection.request("GET", &host, &format!("/{number}"))
        })
    };
    let slow: Vec<_> = (0..12).map(open).collect();
    let busy = Sends::gets(4, &pool.edges[..1], &Wave::still("red")).start();
    busy.wait_served(4);
    let in_flight = || pool.status().sites.iter().map(|site| site.in_flight).sum::<u64>();
    eventually("they are in flight, or done", || in_flight() + 4 >= 1);
    watch_for(Duration::from_millis(50));
    let interrupted = Instant::now();
    let told = std::thread::spawn(move || pool.finish());
    for (number, slow) in slow.into_iter().enumerate() {
        let answer = slow.join().unwrap().unwrap_or_else(|end| panic!("request {number}: {end:?}"));
        assert_eq!(answer.status, 200, "request {number}");
    }
    told.join().expect("exit code 0, no process, no file");
    // Those that go on sending find a connection closed before their next request, no answer cut.
    let busy = busy.finish();
    for failure in &busy.failures {
        let How::Broken(Broken::Cut { received: 0, .. }) = failure.how else {
            panic!("{failure:?}")
        };
        assert!(failure.at > interrupted, "{failure:?}");
    }
}

/// Ends with an error code, in time, says what is wrong, and leaves nothing.
fn refuses_to_start(mut pool: Pool, words: &[&str]) {
    let started = Instant::now();
    let status = pool.wait_end();
    assert!(started.elapsed() < TOLD_WITHIN, "it took {:?}", started.elapsed());
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    let log = pool.log();
    for word in words {
        assert!(log.contains(word), "{word:?} is not in:\n{log}");
    }
    assert!(!log.contains("panicked"), "{log}");
    pool.assert_nothing_left();
}

#[test]
fn an_address_in_use_is_told_at_once() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut recipe = with_agents(Duration::from_millis(5));
    recipe.listen = vec![address];
    refuses_to_start(recipe.launch(), &[&address.to_string(), "in use"]);

    let mut recipe = with_agents(Duration::from_millis(5));
    recipe.pool = format!("metrics = \"{address}\"");
    refuses_to_start(recipe.launch(), &[&address.to_string(), "in use"]);
}

#[test]
fn a_folder_in_use_is_refused_and_its_pool_serves_on() {
    let pool = with_agents(Duration::from_millis(5)).start();
    let log = pool.home().join("second.log");
    let mut second = up(&pool.file, &log);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = second.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < PATIENCE);
        watch_for(Duration::from_millis(10));
    };
    assert!(!status.success());
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.contains("a pool runs with"), "{told}");
    let clients = Sends::gets(4, &pool.edges, &Wave::still("red")).start();
    clients.wait_served(50);
    clients.finish().assert_all_served("clients of the first");
    pool.finish();
}

/// Two edges share an address, as in examples/three-sites.toml: when one is killed, the other
/// takes every new connection.
#[test]
fn edges_that_share_an_address_stand_in_for_each_other() {
    let mut recipe = Recipe::new(&[("red", "nodes = 2"), ("blue", "nodes = 1")], 3);
    let port = Port::take();
    recipe.listen = vec![port.address, port.address];
    drop(port);
    let pool = recipe.start();
    let shared = pool.edges[0];
    let clients = Sends::gets(16, &[shared], &Wave::still("red")).start();
    clients.wait_served(200);
    let busy = |edge| pool.edge(edge).connections > 0;
    assert!(busy(0) && busy(1), "the kernel spreads connections");
    let mut kills = Vec::new();
    for edge in [0, 1] {
        let victim = pool.edge_process(edge).unwrap();
        let killed = Instant::now();
        process::signal(victim, Signal::KILL);
        // All its threads have ended, and with them its sockets.
        eventually("it is dead and buried", || process::state(victim).is_none());
        kills.push((killed, Instant::now()));
        for _ in 0..20 {
            // Nobody is refused while it starts again.
            let mut connection = Connection::open(shared).unwrap();
            assert_eq!(connection.request("GET", "red.test", "/").unwrap().status, 200);
        }
        eventually("both serve again", || pool.is_ready());
    }
    clients.wait_served(200);
    let tally = clients.finish();
    tally.assert_counted();
    let (cut, otherwise) = tally.parted();
    assert!(otherwise.is_empty(), "{otherwise:?}");
    // A client may meet the dying edge's socket once more when it connects anew.
    assert!(cut.len() <= 2 * 2 * 16, "{} were cut by two kills", cut.len());
    let told = Duration::from_millis(500);
    let by_a_kill = |at: Instant| kills.iter().any(|(from, to)| (*from..*to + told).contains(&at));
    assert!(cut.iter().all(|failure| by_a_kill(failure.at)), "{cut:?}");
    pool.finish();
}

/// A hundred more connections than descriptors: those that are served go on being served, and
/// nodes still move, which needs new connections to servers.
#[test]
fn a_thousand_descriptors_are_enough() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    if limit.maximum.is_some_and(|most| most < 1_500) {
        println!("skipped: this test needs 1,500 descriptors itself");
        return;
    }
    let mut recipe = Recipe::new(&[("red", "nodes = 3"), ("blue", "nodes = 3")], 6);
    recipe.edges = 1;
    let limited = format!("ulimit -S -n 1024 && ulimit -H -n 1024 && exec {PROGRAM} up \"$0\"");
    recipe.command = Some(vec!["sh".into(), "-c".into(), limited]);
    let pool = recipe.start();
    let edge = pool.edge_process(0).unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{edge}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(line.contains("1024"), "{line}");
    let watch = pool.watch(&[1, 1]);
    let (wave, driver) = Wave::over(&SITES, Duration::from_millis(60));
    let clients = Sends::gets(40, &pool.edges, &wave).start();
    clients.wait_served(200);
    let idle: Vec<_> = (0..1_100).map(|_| Connection::open(pool.edges[0]).unwrap()).collect();
    eventually("the edge has taken what it can", || pool.edge(0).connections > 600);
    watch.wait_changes(20);
    clients.wait_served(500);
    drop(idle);
    assert!(pool.log().contains("`ulimit -n`"), "it says how many it lets in");
    eventually("those are gone", || pool.edge(0).connections <= 40);
    let mut late = Connection::open(pool.edges[0]).unwrap();
    assert_eq!(late.request("GET", "red.test", "/").unwrap().status, 200);
    clients.finish().assert_all_served("clients that were there before");
    drop((driver, late));
    watch.finish();
    pool.finish();
}
