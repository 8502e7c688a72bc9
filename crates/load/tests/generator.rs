//! The generator counts every request exactly once, whatever happens to it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use load::generate::{
    Cancel, ConstantOptions, GenerateError, Generator, GeneratorOptions, RunReport, SiteTarget,
};
use load::stub::{Faults, NodeOptions, StubOptions, StubServer};

/// One node of 4 workers and 1 ms, serving the given sites.
fn stub(sites: &[&str]) -> StubServer {
    let node = NodeOptions { service_time: Duration::from_millis(1), ..NodeOptions::named("n0") };
    StubServer::start(&StubOptions::every_site_on_every_node(vec![node], sites))
        .expect("the stub starts")
}

fn options(edges: Vec<SocketAddr>, sites: &[&str]) -> GeneratorOptions {
    let sites = sites.iter().map(|site| SiteTarget::host(format!("{site}.test"))).collect();
    GeneratorOptions { timeout: Duration::from_secs(20), ..GeneratorOptions::new(edges, sites) }
}

fn address(stub: &StubServer, site: &str) -> SocketAddr {
    stub.address("n0", site).expect("it listens")
}

fn generator(options: GeneratorOptions) -> Generator {
    Generator::new(options).expect("the options are right")
}

fn assert_adds_up(report: &RunReport) {
    for tally in &report.sites {
        assert!(tally.adds_up(), "{tally:?}");
        let windows: u64 = tally.completions.counts().iter().map(|&n| u64::from(n)).sum();
        assert_eq!(windows, tally.ok);
    }
}

/// An address where nobody listens. The listener is held only until the port is known; on
/// loopback the kernel does not hand it out again so soon.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// Answers each connection's first request with `answer` and closes; sends every request's head
/// to the receiver.
fn one_answer(answer: &'static [u8]) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (heads, seen) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut head = Vec::new();
            let mut part = [0; 1_024];
            while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => head.extend_from_slice(&part[..count]),
                }
            }
            let _ = stream.write_all(answer);
            if heads.send(String::from_utf8_lossy(&head).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, seen)
}

#[test]
fn a_burst_keeps_exactly_its_number_in_flight_and_counts_all() {
    let stub = stub(&["red"]);
    let mut generator = generator(options(vec![address(&stub, "red")], &["red"]));
    let burst = generator.burst(0, 512).expect("the site is known");
    assert_eq!((burst.tally.requests, burst.tally.ok), (512, 512));
    assert!(burst.tally.adds_up());
    assert_eq!(burst.ok_at_ns.len(), 512);
    assert!(burst.ok_at_ns.is_sorted());
    assert_eq!(burst.ok_at_ns.last(), Some(&burst.end_ns));
    assert!(burst.ms_to_response(1) <= burst.ms_to_response(512));
    assert_eq!(burst.connections.made, 64);
    let record = stub.record_since(0);
    assert_eq!((record.nodes[0].served, record.nodes[0].peak_in_flight), (512, 64));
    // 512 requests at 4,000 per second.
    assert!(burst.seconds() >= 0.127 && burst.throughput_per_second() < 4_100.0);
    let fewer = generator.burst(0, 3).expect("the site is known");
    assert_eq!((fewer.tally.requests, fewer.connections.made), (3, 0), "connections are kept");
    assert_eq!(generator.burst(0, 0).expect("the site is known").tally.requests, 0);
    assert!(matches!(generator.burst(1, 1), Err(GenerateError::Options(_))));
}

#[test]
fn injected_failures_are_counted_by_kind_and_exactly() {
    let stub = stub(&["red"]);
    let node = stub.node("n0").expect("it is there");
    node.set_faults(Faults { error_one_in: 10, truncate_one_in: 7, ..Faults::default() });
    let mut generator = generator(options(vec![address(&stub, "red")], &["red"]));
    let burst = generator.burst(0, 700).expect("the site is known");
    let tally = &burst.tally;
    assert!(tally.adds_up());
    // Every 7th breaks off; of the 70 tenths, 10 are sevenths too.
    assert_eq!((tally.requests, tally.failures.body), (700, 100));
    assert_eq!(tally.failures.status.get(&500), Some(&60));
    assert_eq!((tally.ok, tally.failures.total()), (540, 160));
    let record = node.record();
    assert_eq!((record.served, record.truncated, record.errors), (540, 100, 60));
}

#[test]
fn a_refused_connection_fails_the_request_unless_another_edge_takes_it() {
    let mut alone = generator(options(vec![nobody()], &["red"]));
    let burst = alone.burst(0, 100).expect("the site is known");
    assert_eq!((burst.tally.requests, burst.tally.failures.connect), (100, 100));
    assert!(burst.tally.adds_up() && burst.throughput_per_second() == 0.0);

    let stub = stub(&["red"]);
    let edges = vec![nobody(), address(&stub, "red")];
    let burst = generator(options(edges, &["red"])).burst(0, 200).expect("the site is known");
    assert_eq!((burst.tally.ok, burst.tally.failures.total()), (200, 0));
    assert_eq!((burst.connections.made, burst.connections.refused), (64, 32));
}

#[test]
fn answers_that_break_off_or_never_come_have_their_kinds() {
    let cases: [(&[u8], &str); 4] = [
        (b"", "2 (2 transport)"),
        (b"no HTTP at all\r\n\r\n", "2 (2 transport)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "2 (2 body)"),
        (
            b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
            "2 (2 status 404)",
        ),
    ];
    for (answer, expected) in cases {
        let (edge, _seen) = one_answer(answer);
        let mut options = options(vec![edge], &["red"]);
        options.in_flight = 1;
        let burst = generator(options).burst(0, 2).expect("the site is known");
        assert_eq!(burst.tally.failures.to_string(), expected);
        assert!(burst.tally.adds_up());
    }
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let mut options = options(vec![silent.local_addr().expect("it is bound")], &["red"]);
    options.timeout = Duration::from_millis(50);
    let burst = generator(options).burst(0, 64).expect("the site is known");
    assert_eq!(burst.tally.failures.to_string(), "64 (64 timeout)");
}

#[test]
fn a_connection_closed_after_each_response_is_made_anew_without_a_failure() {
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (edge, seen) = one_answer(answer);
    let mut options = options(vec![edge], &["red"]);
    options.in_flight = 1;
    options.request_ids = true;
    options.path = "/a?b=c".to_owned();
    let mut generator = generator(options);
    for number in 1..=3 {
        let burst = generator.burst(0, 1).expect("the site is known");
        assert_eq!((burst.tally.ok, burst.tally.failures.total()), (1, 0));
        let head = seen.recv().expect("the request was seen").to_ascii_lowercase();
        assert!(head.starts_with("get /a?b=c http/1.1\r\n"), "{head}");
        assert!(head.contains("host: red.test\r\n"), "{head}");
        assert!(head.contains(&format!("x-request-id: {number}\r\n")), "{head}");
    }
}

#[test]
fn paths_are_asked_for_in_turn() {
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    let (edge, seen) = one_answer(answer);
    let mut options = options(vec![edge], &["red"]);
    options.in_flight = 1;
    options.paths = ["/a", "/b?bytes=9"].map(str::to_owned).to_vec();
    generator(options).burst(0, 3).expect("the site is known");
    for path in ["/a", "/b?bytes=9", "/a"] {
        let head = seen.recv().expect("the request was seen");
        assert!(head.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{head}");
    }
}

#[test]
fn bodies_are_posted_and_answers_of_another_site_fail() {
    let stub = stub(&["red", "blue"]);
    let edges = vec![address(&stub, "red")];
    let mut options = GeneratorOptions {
        method: Method::POST,
        body: Bytes::from(vec![b'p'; 100_000]),
        ..options(edges, &[])
    };
    options.sites =
        vec![SiteTarget::served_as("a.test", "red"), SiteTarget::served_as("b.test", "blue")];
    let mut generator = generator(options);
    let right = generator.burst(0, 50).expect("the site is known");
    assert_eq!((right.tally.ok, right.tally.failures.total()), (50, 0));
    let wrong = generator.burst(1, 50).expect("the site is known");
    assert_eq!((wrong.tally.ok, wrong.tally.failures.wrong_site), (0, 50));
}

#[test]
fn bursts_rotate_over_the_sites_back_to_back() {
    let stub = stub(&["red", "blue"]);
    let edges = vec![address(&stub, "red"), address(&stub, "blue")];
    let mut generator = generator(options(edges, &["red", "blue"]));
    let mut seen = Vec::new();
    let reports = generator
        .rotate(&[0, 1], 100, 3, &mut |burst| seen.push(burst.site))
        .expect("the sites are known");
    assert_eq!(seen, [0, 1, 0, 1, 0, 1]);
    for pair in reports.windows(2) {
        assert!(pair[1].start_ns >= pair[0].end_ns);
    }
    assert_eq!(reports.iter().map(|burst| burst.tally.ok).sum::<u64>(), 600);
}

#[test]
fn the_open_loop_counts_latency_from_the_set_time() {
    // One client, 20 ms per answer, a request every 5 ms: the queue grows by 15 ms a request.
    let node = NodeOptions {
        workers: 1,
        service_time: Duration::from_millis(20),
        ..NodeOptions::named("n0")
    };
    let stub = StubServer::start(&StubOptions::every_site_on_every_node(vec![node], &["red"]))
        .expect("the stub starts");
    let mut generator = generator(options(vec![address(&stub, "red")], &["red"]));
    let shape = ConstantOptions {
        outstanding_max: 1,
        ..ConstantOptions::new(200.0, Duration::from_millis(200), 0)
    };
    let report = generator.constant(&shape).expect("the shape is right");
    let tally = &report.run.sites[0];
    assert_eq!((tally.requests, tally.ok, report.peak_in_flight), (40, 40, 1));
    assert_adds_up(&report.run);
    // The last was due at 195 ms and answered at 800 ms at the earliest. Counted from the moment
    // of sending, each would have taken 20 ms.
    assert!(tally.latency.max_us() >= 600_000, "{}", tally.latency.max_us());
    assert!(tally.latency.p50_us() >= 300_000, "{}", tally.latency.p50_us());
    assert!(report.late >= 38, "{}", report.late);
}

#[test]
fn the_open_loop_keeps_its_rate_and_takes_sites_in_turn() {
    let stub = stub(&["red"]);
    let mut generator = generator(options(vec![address(&stub, "red")], &["red", "blue"]));
    let shape = ConstantOptions {
        sites: vec![0, 1],
        ..ConstantOptions::new(1_000.0, Duration::from_millis(300), 0)
    };
    let report = generator.constant(&shape).expect("the shape is right");
    assert_adds_up(&report.run);
    assert_eq!(report.run.sites.iter().map(|tally| tally.ok).collect::<Vec<_>>(), [150, 150]);
    // The last set time is 299 ms after the start.
    assert!(report.run.seconds() >= 0.299);
}

#[test]
fn what_the_open_loop_cannot_send_in_time_has_failed() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let mut options = options(vec![silent.local_addr().expect("it is bound")], &["red"]);
    options.timeout = Duration::from_millis(60);
    let shape = ConstantOptions {
        outstanding_max: 2,
        ..ConstantOptions::new(500.0, Duration::from_millis(300), 0)
    };
    let report = generator(options).constant(&shape).expect("the shape is right");
    let tally = &report.run.sites[0];
    assert_adds_up(&report.run);
    assert_eq!((tally.requests, tally.ok), (150, 0));
    assert_eq!(tally.failures.timeout + tally.failures.unsent, 150);
    assert!(tally.failures.timeout >= 2 && tally.failures.unsent >= 50, "{}", tally.failures);
}

#[test]
fn a_wave_alternates_between_its_sites() {
    let stub = stub(&["red"]);
    let mut options = options(vec![address(&stub, "red")], &["red", "blue"]);
    options.in_flight = 8;
    let half = Duration::from_millis(50);
    let wave = generator(options).wave([0, 1], half, 4).expect("the sites are known");
    assert_adds_up(&wave.run);
    let sites: Vec<usize> = wave.halves.iter().map(|half| half.site).collect();
    assert_eq!(sites, [0, 1, 0, 1]);
    assert_eq!(wave.halves[0].start_ns, wave.run.start_ns);
    assert_eq!(wave.halves[3].start_ns, wave.run.start_ns + 150_000_000);
    assert!(wave.run.sites.iter().all(|tally| tally.ok > 50), "both sites were loaded");
    assert!(wave.run.seconds() >= 0.2);
    assert_eq!(stub.record_since(0).nodes[0].peak_in_flight, 8);
}

#[test]
fn a_cancelled_run_ends_soon_and_still_adds_up() {
    let stub = stub(&["red"]);
    let cancel = Cancel::default();
    let run = |which: usize| {
        let cancel = Cancel::default();
        let mut options = options(vec![address(&stub, "red")], &["red"]);
        options.cancel = cancel.clone();
        let mut generator = generator(options);
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(80));
            cancel.cancel();
        });
        let long = Duration::from_secs(600);
        let started = Instant::now();
        let tally = match which {
            0 => generator.burst(0, u64::MAX).map(|burst| burst.tally),
            1 => generator.wave([0, 0], long, 2).map(|wave| wave.run.total()),
            2 => generator.constant(&ConstantOptions::new(1_000.0, long, 0)).map(|r| r.run.total()),
            _ => generator
                .rotate(&[0], 100, usize::MAX, &mut |_| {})
                .map(|reports| reports[0].tally.clone()),
        };
        stopper.join().expect("it ends");
        assert!(started.elapsed() < Duration::from_secs(30), "it stops soon");
        tally.expect("the shape is right")
    };
    for which in 0..4 {
        let tally = run(which);
        assert!(tally.adds_up() && tally.ok > 0 && tally.failures.total() == 0, "{tally:?}");
    }
    cancel.cancel();
    let mut options = options(vec![address(&stub, "red")], &["red"]);
    options.cancel = cancel;
    let burst = generator(options).burst(0, 100).expect("the site is known");
    assert_eq!(burst.tally.requests, 0, "a cancelled generator sends nothing");
}

#[test]
fn progress_is_shown_while_and_after_a_run() {
    let stub = stub(&["red"]);
    let mut generator = generator(options(vec![address(&stub, "red")], &["red", "blue"]));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let shown = Arc::clone(&seen);
    generator.on_progress(
        Duration::from_millis(20),
        Box::new(move |progress| {
            let recent = progress.recent[0].count();
            let sofar = (progress.elapsed_ns, progress.sites[0].requests, recent);
            shown.lock().expect("no other holder panicked").push(sofar);
        }),
    );
    generator.closed(0, Duration::from_millis(200)).expect("the site is known");
    let seen = seen.lock().expect("no other holder panicked");
    assert!(seen.len() >= 2, "{seen:?}");
    assert!(seen.is_sorted());
    let total: u64 = seen.iter().map(|(_, _, recent)| recent).sum();
    assert_eq!(Some(total), seen.last().map(|(_, requests, _)| *requests));
}

#[test]
fn a_server_that_dies_costs_only_what_it_had() {
    let stub = stub(&["red", "blue"]);
    let edges = vec![address(&stub, "red"), address(&stub, "blue")];
    let mut generator = generator(options(edges, &["any"]));
    let started = Instant::now();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stub.kill("n0", "red").expect("it listens");
        });
        generator.burst(0, 1_500).expect("the site is known")
    });
    assert!(started.elapsed() < Duration::from_secs(30));
    let tally = &report.tally;
    assert!(tally.adds_up());
    assert_eq!(tally.requests, 1_500);
    // Half of the 64 connections led to the dead server, each with one request in flight.
    assert!(tally.failures.total() <= 32, "{}", tally.failures);
    assert_eq!(tally.failures.total(), tally.failures.transport + tally.failures.body);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let edge = nobody();
    let good = || options(vec![edge], &["red"]);
    let refused = |options: GeneratorOptions| {
        matches!(Generator::new(options), Err(GenerateError::Options(_)))
    };
    assert!(!refused(good()));
    assert!(refused(GeneratorOptions { edges: vec![], ..good() }));
    assert!(refused(GeneratorOptions { sites: vec![], ..good() }));
    assert!(refused(GeneratorOptions { in_flight: 0, ..good() }));
    assert!(refused(GeneratorOptions { in_flight: 100_000, ..good() }));
    assert!(refused(GeneratorOptions { timeout: Duration::ZERO, ..good() }));
    assert!(refused(GeneratorOptions { path: "no slash".to_owned(), ..good() }));
    assert!(refused(GeneratorOptions { paths: vec![String::new()], ..good() }));
    assert!(refused(GeneratorOptions { sites: vec![SiteTarget::host("a\nb")], ..good() }));
    let mut generator = generator(good());
    let second = Duration::from_secs(1);
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.1] {
        let result = generator.constant(&ConstantOptions::new(rate, second, 0));
        assert!(matches!(result, Err(GenerateError::Options(_))), "{rate}");
    }
    assert!(generator.wave([0, 0], Duration::ZERO, 2).is_err());
    assert!(generator.rotate(&[], 1, 1, &mut |_| {}).is_err());
    assert!(TcpStream::connect(edge).is_err(), "the address is still nobody's");
}
