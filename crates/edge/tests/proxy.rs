//! The plain life of requests: bodies both ways, heads, sites, queues, drain.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::{Client, End};
use common::dispatcher::Fixed;
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Edge, ForwardedTrust, Options, Reason, SiteOptions, StartError, Verdict};
use pool_model::SiteId;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn a_get_is_answered_over_connections_that_are_kept() {
    let origin = Origin::serving(|conn, seen| conn.answer("200 OK", seen.line().as_bytes()));
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for number in 0..50 {
        let reply = client.get(&format!("/{number}?q"));
        assert_eq!((reply.status, reply.text()), (200, format!("GET /{number}?q HTTP/1.1")));
        assert!(reply.field("date").is_some());
    }
    assert_eq!(origin.connections(), 1, "one connection serves all");
    assert_eq!(fixed.in_flight(), 0);
    assert_eq!(fixed.verdicts(), vec![(0, Verdict::Answered); 50]);
    eventually("the last request is counted", || edge.metrics().sites[0].in_flight == 0);
    let counted = edge.metrics();
    assert_eq!((counted.sites[0].requests[2], counted.connections_open), (50, 1));
    assert_eq!((counted.upstream_opened, counted.upstream_reused), (1, 49));
    assert_eq!(counted.sites[0].latency.count(), 50);
    edge.join();
}

#[test]
fn bodies_of_all_kinds_come_through() {
    let origin = Origin::serving(|conn, seen| match seen.line().contains("/chunked") {
        false => conn.answer("201 Created", &seen.body),
        true => {
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for piece in seen.body.chunks(7_000) {
                conn.send(format!("{:x}\r\n", piece.len()));
                conn.send(piece);
                conn.send("\r\n");
            }
            conn.send("0\r\nX-Trailer: 1\r\n\r\n");
        }
    });
    let (edge, fixed) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    for length in [0, 1, 1_000, 70_000, 3_000_000] {
        let body: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let head =
            format!("POST /p HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
        let reply = client.ask([head.as_bytes(), &body].concat());
        assert_eq!((reply.status, reply.body == body), (201, true), "{length} bytes");
        let mut request =
            b"PUT /chunked HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
                .to_vec();
        for piece in body.chunks(100_000) {
            request.extend(format!("{:X};ext=1\r\n", piece.len()).bytes());
            request.extend(piece);
            request.extend(b"\r\n");
        }
        request.extend(b"0\r\n\r\n");
        let reply = client.ask(request);
        assert_eq!((reply.status, reply.body == body), (200, true), "{length} bytes, chunked");
    }
    assert_eq!(origin.connections(), 1);
    eventually("permits are back", || fixed.in_flight() == 0);
    assert_eq!(edge.metrics().sites[0].request_body_bytes, 2 * 3_071_001);
    drop(edge);
}

#[test]
fn heads_are_forwarded_without_what_belongs_to_the_connection() {
    let origin = Origin::serving(|conn, _| {
        conn.send(
            "HTTP/1.1 200 Fine\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nKeep-Alive: 5\r\n\
             Set-Cookie: a\r\nSet-Cookie: b\r\nServer: s\r\nContent-Length: 0\r\n\r\n",
        );
    });
    let (edge, _) = edge(options(), &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    let reply = client.ask(
        "GET /x HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 10.0.0.1\r\nTE: trailers\r\n\
         Proxy-Connection: keep-alive\r\nCookie: c\r\nX-B: 2\r\nX-A: 1\r\nX-B: 3\r\n\r\n",
    );
    assert_eq!((reply.field("x-hop"), reply.field("keep-alive")), (None, None));
    assert_eq!((reply.field("server"), reply.head.matches("set-cookie").count()), (Some("s"), 2));
    let seen = &origin.seen()[0];
    assert_eq!((seen.field("host"), seen.field("cookie")), (Some("a.example"), Some("c")));
    assert_eq!((seen.fields("x-b"), seen.fields("te").len()), (vec!["2", "3"], 0));
    assert_eq!(
        (seen.field("x-forwarded-for"), seen.field("via")),
        (Some("127.0.0.1"), Some("1.1 polder"))
    );
    let trusting = Options { forwarded: ForwardedTrust::Append, ..options() };
    let (edge, _) = common::edge(trusting, &[origin.address]);
    Client::new(edge.addresses()[0])
        .ask("GET / HTTP/1.1\r\nHost: a.example\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n");
    assert_eq!(origin.seen()[1].fields("x-forwarded-for"), ["10.0.0.1", "127.0.0.1"]);
}

#[test]
fn hosts_lead_to_sites() {
    let (one, two) = (Origin::echo(), Origin::echo());
    let second = SiteId::new(2).unwrap();
    let mut options = options();
    options.sites.push(SiteOptions::new(second, "two", &["*.two.example"]));
    let fixed = Fixed::new(&[one.address], 4).with_site(second, two.address);
    let edge = Edge::start(options, &fixed).unwrap();
    let mut client = Client::new(edge.addresses()[0]);
    let mut ask = |host: &str| client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(ask("A.EXAMPLE:80").status, 200);
    assert_eq!(ask("x.y.two.example").status, 200);
    let reply = ask("two.example");
    assert_eq!((reply.status, reply.reason()), (421, Some("unknown-site")));
    assert_eq!((one.seen().len(), two.seen().len()), (1, 1), "and the connection went on");
    let counted = edge.metrics();
    assert_eq!(counted.sites[1].name, "two");
    assert_eq!(counted.sites[1].requests[2], 1);
    assert_eq!(counted.sites[2].refused(Reason::UnknownSite), 1);
}

#[test]
fn requests_beyond_the_room_wait_and_then_overflow() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::serving(move |conn, _| {
        gate.lock().unwrap().recv().unwrap();
        conn.answer("200 OK", b"");
    });
    let fixed = Fixed::with_queue(&[origin.address], 1, 2, Duration::from_secs(20));
    let edge = Edge::start(options(), &fixed).unwrap();
    let address = edge.addresses()[0];
    let clients: Vec<_> = (0..3)
        .map(|number| {
            let client = std::thread::spawn(move || Client::new(address).get("/").status);
            eventually("it holds a permit or waits", || {
                fixed.in_flight() + fixed.waiting() == number + 1
            });
            client
        })
        .collect();
    let mut late = Client::new(address);
    let reply = late.ask("POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody");
    assert_eq!((reply.status, reply.reason()), (503, Some("queue-full")));
    assert_eq!((reply.field("retry-after"), reply.field("connection")), (Some("1"), None));
    assert_eq!(edge.metrics().sites[0].in_flight, 3);
    // A client that goes away leaves the queue.
    let leaver = Client::new(address);
    drop(leaver);
    for _ in 0..3 {
        release.send(()).unwrap();
    }
    assert_eq!(clients.into_iter().map(|c| c.join().unwrap()).collect::<Vec<_>>(), [200; 3]);
    release.send(()).unwrap();
    assert_eq!(late.get("/again").status, 200, "the refused client's connection is still good");
    assert_eq!(edge.metrics().sites[0].refused(Reason::QueueFull), 1);
}

#[test]
fn a_wait_ends_with_its_time_or_its_client() {
    let origin = Origin::serving(|conn, _| conn.wait_closed());
    let fixed = Fixed::with_queue(&[origin.address], 1, 10, Duration::from_millis(300));
    let edge = Edge::start(options(), &fixed).unwrap();
    let mut holder = Client::new(edge.addresses()[0]);
    holder.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("the room is taken", || fixed.in_flight() == 1);
    let mut leaver = Client::new(edge.addresses()[0]);
    leaver.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("it waits", || fixed.waiting() == 1);
    leaver.reset();
    eventually("it has left the queue", || fixed.waiting() == 0);
    let reply = Client::new(edge.addresses()[0]).get("/");
    assert_eq!((reply.status, reply.reason()), (503, Some("queue-timeout")));
    holder.reset();
    eventually("the server's connection is closed", || fixed.in_flight() == 0);
    assert_eq!(fixed.verdicts(), [], "a client that leaves says nothing about the server");
}

#[test]
fn a_close_finishes_what_is_in_flight() {
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let origin = Origin::serving(move |conn, _| {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
        gate.lock().unwrap().recv().unwrap();
        conn.send("-half");
    });
    let threads = Options { threads: 2, drain_max_ms: 20_000, ..options() };
    let (edge, fixed) = edge(threads, &[origin.address]);
    let address = edge.addresses()[0];
    let mut idle: Vec<_> = (0..8).map(|_| Client::new(address)).collect();
    let mut busy = Client::new(address);
    busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let head = busy.head().unwrap();
    edge.close();
    for client in &mut idle {
        assert!(client.reply().is_none(), "idle connections are closed");
    }
    eventually("nobody listens", || std::net::TcpStream::connect(address).is_err());
    release.send(()).unwrap();
    assert_eq!(busy.body(&head).unwrap(), b"first-half");
    assert_eq!(busy.until_end().1, End::Closed);
    let start = Instant::now();
    edge.join();
    assert!(start.elapsed() < Duration::from_secs(10), "it did not wait for the limit");
    assert_eq!(fixed.in_flight(), 0);
}

/// A client that is about to send its next request must not lose it to a close.
#[test]
fn a_drain_answers_the_next_request_of_a_waiting_client() {
    let origin = Origin::echo();
    let limits = Options { threads: 2, drain_max_ms: 20_000, ..options() };
    let (edge, _) = edge(limits, &[origin.address]);
    let address = edge.addresses()[0];
    let mut clients: Vec<_> = (0..8).map(|_| Client::new(address)).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").status, 200);
    }
    edge.drain();
    eventually("nobody listens", || std::net::TcpStream::connect(address).is_err());
    std::thread::sleep(Duration::from_millis(100));
    for client in &mut clients[..7] {
        let reply = client.get("/");
        assert_eq!((reply.status, reply.field("connection")), (200, Some("close")));
        assert_eq!(client.until_end().1, End::Closed);
    }
    eventually("one is left", || edge.metrics().connections_open == 1);
    // Until nobody takes over any more.
    edge.close();
    assert!(clients[7].reply().is_none());
    let start = Instant::now();
    edge.join();
    assert!(start.elapsed() < Duration::from_secs(10), "it did not wait for the limit");
}

#[test]
fn a_drain_has_a_limit_and_a_drop_does_not_wait() {
    for limit_ms in [50, 60_000] {
        let origin = Origin::serving(|conn, _| {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
            conn.wait_closed();
        });
        let (edge, fixed) =
            edge(Options { drain_max_ms: limit_ms, ..options() }, &[origin.address]);
        let mut busy = Client::new(edge.addresses()[0]);
        busy.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let head = busy.head().unwrap();
        if limit_ms == 50 {
            edge.join();
        } else {
            drop(edge);
        }
        assert!(busy.body(&head).is_err(), "the response is cut");
        assert_eq!(fixed.in_flight(), 0);
    }
}

#[test]
fn connections_beyond_the_limit_wait_to_be_accepted() {
    let origin = Origin::echo();
    let (edge, _) = edge(Options { connections_max: 2, ..options() }, &[origin.address]);
    let mut first = Client::new(edge.addresses()[0]);
    let mut second = Client::new(edge.addresses()[0]);
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    let mut third = Client::new(edge.addresses()[0]);
    third.send("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(edge.metrics().connections_accepted, 2);
    drop(first);
    assert_eq!(third.reply().unwrap().status, 200);
}

#[test]
fn mistakes_in_the_options_and_ports_in_use_are_told() {
    let fixed = Fixed::new(&[], 1);
    let error = Edge::start(Options { threads: 0, ..options() }, &fixed).unwrap_err();
    assert_eq!(error.to_string(), "threads = 0 is not within 1 to 256");
    let (edge, _) = edge(Options { threads: 2, ..options() }, &[]);
    let again = Options { listen: edge.addresses().to_vec(), threads: 2, ..options() };
    assert!(matches!(Edge::start(again, &fixed), Err(StartError::Listen { .. })));
}
