//! The stub over real sockets: what it answers, what it counts, and that its capacity is exact.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use load::clock::{now_ns, window_of};
use load::generate::{Generator, GeneratorOptions, SiteTarget};
use load::stub::{
    Faults, ListenOn, NodeOptions, StubError, StubOptions, StubServer, fetch_record,
    measure_capacity, post_reset,
};

/// Generous: only a broken stub takes so long, even on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn node(workers: u32, service_ms: u64, queue_max: usize) -> NodeOptions {
    NodeOptions {
        workers,
        service_time: Duration::from_millis(service_ms),
        queue_max,
        ..NodeOptions::named("n0")
    }
}

fn start(node: NodeOptions, sites: &[&str]) -> StubServer {
    let mut options = StubOptions::every_site_on_every_node(vec![node], sites);
    options.control = Some(loopback());
    StubServer::start(&options).expect("the stub starts")
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the stub accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    stream
}

/// Reads one response; the body as far as `Content-Length` says, none for `head_only`.
fn read_response(stream: &mut TcpStream, head_only: bool) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a complete head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("a head of text").to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; if head_only { 0 } else { length }];
    stream.read_exact(&mut body).expect("a complete body");
    (head, body)
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn replies_carry_names_body_and_count_on_one_connection() {
    let stub = start(node(1, 1, 8), &["red", "blue"]);
    let mut stream = connect(stub.address("n0", "blue").expect("it listens"));
    for count in 1..=3 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
        let (head, body) = read_response(&mut stream, false);
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        for line in ["x-node: n0", "x-site: blue", "content-length: 1024"] {
            assert!(head.contains(line), "{line} is missing in {head}");
        }
        assert!(head.contains(&format!("x-count: {count}\r\n")), "{head}");
        assert_eq!(body.len(), 1_024);
    }
    stream.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let (head, _) = read_response(&mut stream, true);
    assert!(head.contains("content-length: 1024"), "{head}");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let (head, _) = read_response(&mut stream, false);
    assert!(head.starts_with("http/1.1 200"), "the HEAD had no body: {head}");
    for (query, length) in [("bytes=16", 16), ("bytes=9999", 1_024), ("bytes=x", 1_024)] {
        let request = format!("GET /?{query} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it is sent");
        assert_eq!(read_response(&mut stream, false).1.len(), length, "{query}");
    }
    let record = stub.record_since(0);
    assert_eq!(record.nodes[0].served, 8);
    assert_eq!(record.nodes[0].sites.iter().map(|site| site.served).collect::<Vec<_>>(), [0, 8]);
}

#[test]
fn request_bodies_are_read_to_their_end() {
    let stub = start(node(1, 1, 8), &["red"]);
    let mut stream = connect(stub.address("n0", "red").expect("it listens"));
    let big = vec![b'z'; 3 << 20];
    let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", big.len());
    stream.write_all(head.as_bytes()).expect("it is sent");
    stream.write_all(&big).expect("all of it is taken");
    assert!(read_response(&mut stream, false).0.starts_with("http/1.1 200"));
    let chunked = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
        Expect: 100-continue\r\n\r\n";
    stream.write_all(chunked).expect("it is sent");
    assert!(read_response(&mut stream, true).0.starts_with("http/1.1 100"));
    stream.write_all(b"3\r\nabc\r\n0\r\n\r\n").expect("it is sent");
    assert!(read_response(&mut stream, false).0.starts_with("http/1.1 200"));
}

#[test]
fn one_node_serves_exactly_its_capacity() {
    let options = NodeOptions::named("n0");
    let measure = |in_flight| {
        let capacity =
            measure_capacity(&options, in_flight, Duration::from_millis(700)).expect("it runs");
        // Two windows of replies may fall on either side of the measured time.
        assert!(capacity.deviation() < 0.02, "more than the capacity: {capacity:?}");
        capacity.deviation().abs()
    };
    // With 8 in flight the queue runs empty when the machine stalls for 2 ms, which it may in a
    // test; with 64 it takes 30 ms.
    println!("8 in flight: {:.2} % off", measure(8) * 100.0);
    let best = (0..8).map(|_| measure(64)).find(|&deviation| deviation < 0.02);
    assert!(best.is_some(), "not within 2 % in any of 8 tries");
}

#[test]
fn all_sites_of_a_node_share_its_capacity() {
    let stub = start(NodeOptions::named("n0"), &["red", "blue"]);
    let edges = stub.listeners().iter().map(|listener| listener.address).collect();
    let mut options = GeneratorOptions::new(edges, vec![SiteTarget::host("any")]);
    options.in_flight = 16;
    let first = window_of(now_ns()) + 1;
    let report = Generator::new(options)
        .and_then(|mut generator| generator.closed(0, Duration::from_millis(400)))
        .expect("the load runs");
    assert_eq!(report.total().failures.total(), 0);
    let rate = report.throughput_per_second();
    assert!(rate < 2_000.0 * 1.02, "two listeners must not double the capacity: {rate}");
    let record = stub.record_since(0);
    let node = &record.nodes[0];
    assert_eq!((node.peak_in_flight, node.in_flight), (16, 0));
    assert_eq!(node.sites.iter().map(|site| site.peak_in_flight).collect::<Vec<_>>(), [8, 8]);
    assert_eq!(node.served, report.total().ok);
    // Every served request was booked for 2 ms of one of the four workers.
    let busy: u64 = node.sites.iter().flat_map(|site| &site.busy_ns).sum();
    wait_until("the last window is over", || window_of(now_ns()) > window_of(report.end_ns) + 1);
    let later = stub.record_since(0).nodes[0].sites.iter().flat_map(|s| &s.busy_ns).sum::<u64>();
    assert!(busy <= later);
    assert_eq!(later, node.served * 2_000_000);
    for window in first..window_of(report.end_ns) {
        assert!(node.busy_share(window) <= 1.0, "window {window} is overbooked");
    }
}

#[test]
fn a_full_queue_answers_503_at_once() {
    let stub = start(node(1, 50, 2), &["red"]);
    let address = stub.address("n0", "red").expect("it listens");
    let mut streams: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
    for stream in &mut streams {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    }
    let answers: Vec<String> =
        streams.iter_mut().map(|stream| read_response(stream, false).0).collect();
    let refused = answers.iter().filter(|head| head.starts_with("http/1.1 503")).count();
    let served = answers.iter().filter(|head| head.starts_with("http/1.1 200")).count();
    assert_eq!(served + refused, 8);
    // On a machine that stalls for 50 ms between two sends, more than three find room.
    assert!(served >= 3 && refused >= 1, "{served} served, {refused} refused");
    assert!(answers.iter().filter(|h| h.contains("503")).all(|h| h.contains("retry-after: 1")));
    let record = stub.node("n0").expect("it is there").record();
    assert_eq!((record.served, record.refused), (served as u64, refused as u64));
}

#[test]
fn a_client_that_leaves_is_counted_as_abandoned() {
    let stub = start(node(1, 300, 8), &["red"]);
    let mut stream = connect(stub.address("n0", "red").expect("it listens"));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let node = stub.node("n0").expect("it is there");
    wait_until("the request has arrived", || node.record().in_flight == 1);
    drop(stream);
    wait_until("it is abandoned", || node.record().abandoned == 1);
    assert_eq!((node.record().in_flight, node.record().served), (0, 0));
}

#[test]
fn truncated_replies_break_off_in_the_body() {
    let stub = start(node(1, 1, 8), &["red"]);
    let node = stub.node("n0").expect("it is there");
    node.set_faults(Faults { truncate_one_in: 1, ..Faults::default() });
    let mut stream = connect(stub.address("n0", "red").expect("it listens"));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let mut answer = Vec::new();
    // The connection ends, by an orderly close or a reset.
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("content-length: 1024"), "{text}");
    assert!(text.ends_with(&"x".repeat(512)) && !text.ends_with(&"x".repeat(513)), "{text}");
    assert_eq!((node.record().truncated, node.record().served), (1, 0));
}

#[test]
fn a_killed_listener_drops_its_connections_and_can_come_back() {
    let stub = start(node(1, 200, 8), &["red", "blue"]);
    let red = stub.address("n0", "red").expect("it listens");
    let mut doomed = connect(red);
    doomed.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let mut spared = connect(stub.address("n0", "blue").expect("it listens"));
    spared.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    let node = stub.node("n0").expect("it is there");
    wait_until("both have arrived", || node.record().in_flight == 2);
    stub.kill("n0", "red").expect("it listens");
    assert_eq!(stub.address("n0", "red"), None);
    let mut rest = Vec::new();
    let _ = doomed.read_to_end(&mut rest);
    assert!(rest.is_empty(), "no answer from a dead server");
    assert!(TcpStream::connect(red).is_err(), "nobody listens");
    assert!(read_response(&mut spared, false).0.starts_with("http/1.1 200"));
    assert!(matches!(stub.kill("n0", "red"), Err(StubError::UnknownListener { .. })));
    let again = ListenOn { node: "n0".to_owned(), site: "red".to_owned(), address: red };
    assert_eq!(stub.listen(&again).expect("the port is free"), red);
    let mut stream = connect(red);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    assert!(read_response(&mut stream, false).0.starts_with("http/1.1 200"));
}

#[test]
fn the_control_endpoint_tells_and_forgets() {
    let stub = start(node(2, 5, 8), &["red"]);
    let control = stub.control_address().expect("it was asked for");
    let started = window_of(now_ns());
    let mut stream = connect(stub.address("n0", "red").expect("it listens"));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    read_response(&mut stream, false);
    let over = window_of(now_ns()) + 1;
    wait_until("the window is over", || window_of(now_ns()) > over);
    let record = fetch_record(control, started).expect("it answers");
    let node = record.node("n0").expect("it is there");
    assert_eq!((node.served, node.workers, node.service_us), (1, 2, 5_000.0));
    assert_eq!(node.window_capacity_ns, 20_000_000);
    assert_eq!(node.sites[0].busy_ns.iter().sum::<u64>(), 5_000_000);
    assert!(node.first_window >= started);
    let later = fetch_record(control, u64::MAX).expect("it answers");
    assert!(later.nodes[0].sites[0].busy_ns.is_empty());
    post_reset(control).expect("it answers");
    assert_eq!(stub.record_since(0).nodes[0].served, 0);
    let mut stream = connect(control);
    stream.write_all(b"GET /stats?since=x HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    assert!(read_response(&mut stream, false).0.starts_with("http/1.1 400"));
    stream.write_all(b"GET /other HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is sent");
    assert!(read_response(&mut stream, false).0.starts_with("http/1.1 404"));
    // Asking the node's own listener is an answer without a record.
    let address = stub.address("n0", "red").expect("it listens");
    assert!(fetch_record(address, 0).is_err());
    drop(stub);
    assert!(fetch_record(control, 0).is_err(), "nobody answers");
}

#[test]
fn wrong_options_are_refused_with_the_place() {
    let listen = |node: &str, site: &str, address| StubOptions {
        nodes: vec![NodeOptions::named("n0")],
        listeners: vec![ListenOn { node: node.to_owned(), site: site.to_owned(), address }],
        control: None,
    };
    let error = |options: &StubOptions| StubServer::start(options).err().expect("it is refused");
    assert!(matches!(error(&listen("n1", "red", loopback())), StubError::UnknownNode(_)));
    assert!(matches!(error(&listen("n0", "r\n", loopback())), StubError::Name(_)));
    let taken = TcpListener::bind(loopback()).expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let error = error(&listen("n0", "red", address));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}
