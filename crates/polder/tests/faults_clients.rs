//! Clients that dawdle, and more of them than there is room for.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::{Answer, Broken, Connection, Sends};
use common::pool::{Pool, Recipe};
use common::wave::Wave;
use common::{PATIENCE, eventually, process, watch_for};
use std::io::{Read as _, Write as _};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// One edge, one site on one node.
fn recipe(site: &'static str) -> Recipe {
    let mut recipe = Recipe::new(&[("red", site)], 1);
    recipe.edges = 1;
    recipe
}

#[test]
fn clients_that_send_half_a_head_are_closed_and_hold_nobody_up() {
    const SLOW: usize = 100;
    const TRICKLING: usize = 10;
    let mut recipe = recipe("");
    recipe.http = "header_timeout_ms = 700\nbody_idle_timeout_ms = 700".to_owned();
    let pool = recipe.start();
    let edge = pool.edge_process(0).unwrap();
    let served = |clients, requests| {
        let clients = Sends::gets(clients, &pool.edges, &Wave::still("red")).start();
        clients.wait_served(requests);
        clients.finish().assert_all_served("the others");
    };
    served(8, 100);
    eventually("their connections are gone", || pool.edge(0).connections == 0);
    let before = process::descriptors(edge);

    let open = |part: &[u8]| {
        let mut connection = Connection::open(pool.edges[0]).unwrap();
        connection.stream().write_all(part).unwrap();
        connection
    };
    let started = Instant::now();
    let mut slow: Vec<_> =
        (0..SLOW).map(|_| open(b"GET / HTTP/1.1\r\nHost: red.test\r\nX-Half: ")).collect();
    // One byte at a time does not help: the head as a whole has its time.
    let trickle = |mut connection: Connection| {
        std::thread::spawn(move || {
            while connection.stream().write_all(b"a").is_ok() && started.elapsed() < PATIENCE {
                watch_for(Duration::from_millis(50));
            }
            started.elapsed()
        })
    };
    let trickling: Vec<JoinHandle<Duration>> =
        (0..TRICKLING).map(|_| trickle(open(b"GET / HTTP/1.1\r\nX-Long: "))).collect();
    let mut half_body = open(b"POST / HTTP/1.1\r\nHost: red.test\r\nContent-Length: 9\r\n\r\nhalf");
    served(8, 200);
    for connection in &mut slow {
        let mut rest = Vec::new();
        // Closed, with or without a word; a time-out here is a hang.
        let ended = connection.stream().read_to_end(&mut rest);
        assert!(
            ended.is_ok() || ended.is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock),
            "a client that sent half a head is still connected"
        );
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{rest:?}");
    }
    assert!(started.elapsed() >= Duration::from_millis(600), "they had their time");
    for thread in trickling {
        assert!(thread.join().unwrap() < PATIENCE, "a trickling client is still connected");
    }
    assert_eq!(half_body.receive().unwrap().status, 408);
    drop((slow, half_body));
    eventually("no connection is left", || pool.edge(0).connections == 0);
    // A look at the status may be under way in the edge: one descriptor.
    eventually("no descriptor is left", || process::descriptors(edge) <= before + 1);
    served(8, 100);
    pool.finish();
}

/// A request that is under way; how it ends, and after how long.
type Underway = JoinHandle<(Result<Answer, Broken>, Duration)>;

fn request(pool: &Pool, number: usize) -> Underway {
    let edge = pool.edges[0];
    std::thread::spawn(move || {
        let mut connection = Connection::open(edge).unwrap();
        let started = Instant::now();
        let ended = connection.request("GET", "red.test", &format!("/{number}"));
        (ended, started.elapsed())
    })
}

/// In flight and queued over all edges, as the status tells.
fn under_way(pool: &Pool) -> (u64, u64) {
    let site = &pool.status().sites[0];
    (site.in_flight, site.queued)
}

fn statuses(ended: &[(Result<Answer, Broken>, Duration)], status: u16) -> Vec<&Answer> {
    let answers = ended.iter().map(|(answer, _)| answer.as_ref().expect("each has an answer"));
    answers.filter(|answer| answer.status == status).collect()
}

#[test]
fn exactly_what_a_queue_has_no_room_for_is_refused() {
    let mut recipe = recipe("queue_max = 3\nqueue_timeout_ms = 60_000");
    recipe.max_in_flight = 2;
    let pool = recipe.service(Duration::from_millis(1_500)).start();
    let full: Vec<_> = (0..5).map(|number| request(&pool, number)).collect();
    eventually("two are served and three wait", || under_way(&pool) == (2, 3));
    let over: Vec<_> = (5..12).map(|number| request(&pool, number)).collect();
    let refused: Vec<_> = over.into_iter().map(|thread| thread.join().unwrap()).collect();
    for answer in statuses(&refused, 503) {
        assert_eq!(answer.header("x-polder-reason"), "queue-full");
        assert_eq!(answer.header("retry-after"), "1");
    }
    assert_eq!(statuses(&refused, 503).len(), 7);
    // Whoever leaves the queue makes room for one.
    let served: Vec<_> = full.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(statuses(&served, 200).len(), 5);
    let node = pool.stubs.as_ref().unwrap().record_since(u64::MAX).nodes.remove(0);
    assert_eq!((node.served, node.sites[0].peak_in_flight), (5, 2));
    let site = &pool.status().sites[0];
    assert_eq!((site.refused, site.failed), (7, 0));
    pool.finish();
}

#[test]
fn a_request_waits_for_its_time_and_no_longer() {
    let mut recipe = recipe("queue_max = 100\nqueue_timeout_ms = 400");
    recipe.max_in_flight = 2;
    let pool = recipe.service(Duration::from_millis(2_500)).start();
    let all: Vec<_> = (0..6).map(|number| request(&pool, number)).collect();
    let all: Vec<_> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(statuses(&all, 200).len(), 2);
    for answer in statuses(&all, 503) {
        assert_eq!(answer.header("x-polder-reason"), "queue-timeout");
        assert_eq!(answer.header("retry-after"), "1");
    }
    assert_eq!(statuses(&all, 503).len(), 4);
    let early = |(answer, took): &&(Result<Answer, Broken>, Duration)| {
        answer.as_ref().is_ok_and(|a| a.status == 503) && *took < Duration::from_millis(390)
    };
    assert_eq!(all.iter().filter(early).count(), 0, "each had its time");
    pool.finish();
}

#[test]
fn clients_that_go_away_leave_the_queue_and_the_node() {
    let mut recipe = recipe("queue_max = 3\nqueue_timeout_ms = 60_000");
    recipe.max_in_flight = 2;
    let pool = recipe.service(Duration::from_millis(1_500)).start();
    let mut gone: Vec<_> = (0..5).map(|_| Connection::open(pool.edges[0]).unwrap()).collect();
    for connection in &mut gone {
        connection.send("GET", "red.test", "/gone").unwrap();
    }
    eventually("two are served and three wait", || under_way(&pool) == (2, 3));
    drop(gone);
    eventually("all are gone", || under_way(&pool) == (0, 0));
    let stay: Vec<_> = (0..5).map(|number| request(&pool, number)).collect();
    let stay: Vec<_> = stay.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(statuses(&stay, 200).len(), 5);
    pool.finish();
}
