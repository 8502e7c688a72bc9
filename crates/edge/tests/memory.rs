//! One GiB up and one GiB down add at most 1 MiB to the edge; a client that waits for its next
//! request adds at most 12 KiB.
//!
//! The edge runs in a process of its own (this program once more), so that nothing of the client
//! or the origin counts; the kernel tells the peak of its resident memory. Both peers can be
//! faster and slower than the edge: the client reads and writes as fast as it can, the origin
//! sleeps now and then, so that bodies pile up wherever they can.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use common::client::Client;
use common::dispatcher::Fixed;
use common::options;
use common::origin::{Conn, Origin};
use edge::{Edge, Options, SiteOptions, Upstream};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GIB: usize = 1 << 30;
/// What is moved before the measure, so that the code is resident; its buffers are not yet.
const WARM_UP: usize = 1_000;
const PIECE: usize = 128 * 1024;
/// The promise, in KiB.
const ADDED_KIB_MAX: u64 = 1024;
/// Clients that wait, and what each may add, in KiB. Many systems allow a process 1,024
/// descriptors; `waiting 20000` as arguments measures more of them.
const WAITING: usize = 600;
const WAITING_KIB_MAX: f64 = 12.0;
/// Clients come in groups: the edge makes a waiting connection small after a quarter of a second,
/// and what it needed until then serves the next group.
const GROUP: usize = 50;
const SETTLED_AFTER: Duration = Duration::from_millis(400);

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("own") => serve(&std::env::args().nth(2).unwrap(), Upstream::Own),
        Some("hyper") => serve(&std::env::args().nth(2).unwrap(), Upstream::Hyper),
        // Arguments of the test runner, such as a filter, change nothing.
        Some("--list") => {
            println!("bodies_do_not_pile_up: test\nwaiting_clients_cost_little: test");
        }
        Some("waiting") => waiting(std::env::args().nth(2).map_or(WAITING, |n| n.parse().unwrap())),
        _ => {
            ["own", "hyper"].into_iter().for_each(measure);
            waiting(WAITING);
        }
    }
}

/// The edge's process: serves until its standard input ends.
fn serve(origin: &str, upstream: Upstream) {
    let site = SiteOptions { body_bytes_max: u64::MAX, ..options().sites.remove(0) };
    let fixed = Fixed::new(&[origin.parse().unwrap()], 8);
    let connections_max = 1_000_000;
    let front = Options { sites: vec![site], upstream, connections_max, ..options() };
    let edge = Edge::start(front, &fixed).unwrap();
    println!("{}", edge.addresses()[0]);
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    drop(edge);
}

/// Kills the edge's process also when the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(origin: SocketAddr, upstream: &str) -> (Server, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([upstream, &origin.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Server(child), line.trim().parse().unwrap())
}

/// A line of /proc/PID/status, in KiB.
fn status_kib(process: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Slow for a moment, now and then.
fn stumble(moved: usize) {
    if moved % (64 << 20) < PIECE {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes what comes, or sends what was asked for: `/down/BYTES`, `/up`.
fn answer(conn: &mut Conn, head: &str) {
    let path = head.split(' ').nth(1).unwrap();
    if let Some(count) = path.strip_prefix("/down/") {
        let count: usize = count.parse().unwrap();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {count}\r\n\r\n"));
        let piece = vec![b'd'; PIECE];
        for sent in (0..count).step_by(PIECE) {
            conn.send(&piece[..PIECE.min(count - sent)]);
            stumble(sent);
        }
        return;
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let count: usize = length.parse().unwrap();
    let mut taken = 0;
    while taken < count {
        let some = conn.some().len();
        assert!(some > 0, "the upload broke off");
        taken += some;
        stumble(taken);
    }
    conn.answer("200 OK", taken.to_string().as_bytes());
}

fn download(client: &mut Client, count: usize) {
    client.send(format!("GET /down/{count} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
    assert_eq!(client.head().unwrap().status, 200);
    assert_eq!(client.discard(count), Ok(()));
}

fn upload(client: &mut Client, count: usize) {
    client.send(format!("PUT /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: {count}\r\n\r\n"));
    let piece = vec![b'u'; PIECE];
    for sent in (0..count).step_by(PIECE) {
        client.send(&piece[..PIECE.min(count - sent)]);
    }
    assert_eq!(client.reply().unwrap().text(), count.to_string());
}

fn measure(upstream: &str) {
    let origin = Origin::new(|mut conn, _| {
        while let Some(head) = conn.head() {
            answer(&mut conn, &head);
        }
    });
    let (server, address) = start(origin.address, upstream);
    let process = server.0.id();
    let mut client = Client::new(address);
    for (name, run) in [("down", download as fn(&mut Client, usize)), ("up", upload)] {
        run(&mut client, WARM_UP);
        let before = status_kib(process, "VmRSS:");
        // Sets the peak back to what is resident now.
        std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
        let started = Instant::now();
        run(&mut client, GIB);
        let seconds = started.elapsed().as_secs_f64();
        let added = status_kib(process, "VmHWM:").saturating_sub(before);
        let took = format!("{upstream}: 1 GiB {name}: {seconds:.1} s");
        println!("{took}, at most {added} KiB more than the {before} before");
        assert!(added <= ADDED_KIB_MAX, "{added} KiB were added by 1 GiB {name} ({upstream})");
    }
    println!("test bodies_do_not_pile_up ({upstream}) ... ok");
}

/// Each client has served one request, and waits for its next.
fn waiting(count: usize) {
    let origin = Origin::echo();
    let (server, address) = start(origin.address, "own");
    let open = |count: usize| {
        let mut clients = Vec::new();
        for number in 1..=count {
            let mut client = Client::new(address);
            assert_eq!(client.get("/").status, 200);
            clients.push(client.stream);
            if number % GROUP == 0 {
                std::thread::sleep(SETTLED_AFTER);
            }
        }
        clients
    };
    // What the edge needs once, whatever the number of its clients.
    let first = open(2 * GROUP);
    let before = status_kib(server.0.id(), "VmRSS:");
    let rest = open(count);
    let added = status_kib(server.0.id(), "VmRSS:").saturating_sub(before);
    let each = added as f64 / rest.len() as f64;
    println!("{count} waiting clients: {each:.1} KiB each, with {} before them", first.len());
    assert!(each <= WAITING_KIB_MAX, "{each:.1} KiB for each waiting client");
    println!("test waiting_clients_cost_little ... ok");
}
