//! The access log, as it lies in its file.

#![allow(clippy::unwrap_used)]

mod common;

use common::client::Client;
use common::origin::Origin;
use common::{edge, eventually, options};
use edge::{Edge, LogFormat, LogOptions, LogTarget, Options, StartError};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn logging(place: &TempDir, format: LogFormat) -> (Options, PathBuf) {
    let path = place.path().join("access.log");
    let target = LogTarget::File(path.clone());
    let log = LogOptions { target, format, queue_max: 1_000, nodes: vec!["n0".to_owned()] };
    (Options { access_log: Some(log), ..options() }, path)
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn objects(path: &Path) -> Vec<Value> {
    lines(path).iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_request_has_its_line() {
    let place = tempfile::tempdir().unwrap();
    let (options, path) = logging(&place, LogFormat::Json);
    let origin = Origin::serving(|conn, seen| match seen.line().contains("/cut") {
        true => {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive.");
            conn.stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
        false => conn.answer("201 Created", &[b'x'; 1_000]),
    });
    let (edge, _) = edge(Options { threads: 2, ..options }, &[origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    let reply = client.ask(
        "POST /p?q=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: me \"and\" you\r\n\
         Referer: http://r.example/\r\nContent-Length: 5\r\n\r\nhello",
    );
    let id = reply.field("x-request-id").unwrap().to_owned();
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n").status, 421);
    let mut other = Client::new(edge.addresses()[0]);
    other.send("GET /cut HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let head = other.head().unwrap();
    assert!(other.body(&head).is_err());
    edge.join();
    let mut lines = objects(&path);
    lines.sort_by_key(|line| line["target"].as_str().unwrap().to_owned());
    assert_eq!(lines.len(), 3);
    let [refused, cut, posted] = &lines[..] else { unreachable!() };
    assert_eq!(
        (&posted["status"], &posted["bytes"], &posted["bytes_in"]),
        (&201.into(), &1_000.into(), &5.into())
    );
    assert_eq!((&posted["target"], &posted["agent"]), (&"/p?q=1".into(), &"me \"and\" you".into()));
    assert_eq!((&posted["node"], &posted["site"]), (&"n0".into(), &"one".into()));
    assert_eq!((&posted["request_id"], &posted["reason"]), (&id.into(), &Value::Null));
    assert_eq!(posted["trace_id"], origin.seen()[0].field("traceparent").unwrap()[3..35]);
    let times =
        (posted["first_byte_us"].as_u64().unwrap(), posted["duration_us"].as_u64().unwrap());
    assert!(0 < times.0 && times.0 <= times.1, "{times:?}");
    assert_eq!((&refused["status"], &refused["reason"]), (&421.into(), &"unknown-site".into()));
    assert_eq!((&refused["node"], &refused["site"]), (&Value::Null, &Value::Null));
    assert_eq!((&cut["reason"], &cut["bytes"]), (&"response-cut".into(), &5.into()));
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777 & !0o640, 0, "nobody else reads it");
}

#[test]
fn retries_and_clients_that_leave_are_told() {
    let place = tempfile::tempdir().unwrap();
    let (options, path) = logging(&place, LogFormat::Text);
    let dead = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let origin = Origin::serving(|conn, seen| match seen.line().contains("/wait") {
        true => conn.wait_closed(),
        false => conn.answer("200 OK", b""),
    });
    let (edge, fixed) = edge(options, &[dead, origin.address]);
    let mut client = Client::new(edge.addresses()[0]);
    if fixed.next_turn() != 0 {
        fixed.skip_turn();
    }
    assert_eq!(client.get("/").status, 200);
    client.send("GET /wait HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("it is under way", || fixed.in_flight() > 0);
    client.reset();
    eventually("it is given up", || fixed.in_flight() == 0);
    edge.join();
    let lines = lines(&path);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains(
            "\"GET / HTTP/1.1\" 200 0 \"-\" \"-\" host=\"a.example\" site=one node=1 retries=1 "
        ),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].contains("\"GET /wait HTTP/1.1\" 499 0 ")
            && lines[1].ends_with(" reason=client-gone class=- cache=-"),
        "{}",
        lines[1]
    );
}

/// Asks until a line of the answer lies in the file.
fn ask_until_logged(edge: &Edge, path: &Path) {
    let mut client = Client::new(edge.addresses()[0]);
    let before = lines(path).len();
    eventually("it is logged there", || {
        client.get("/");
        lines(path).len() > before
    });
}

#[test]
fn a_renamed_file_is_opened_anew() {
    let place = tempfile::tempdir().unwrap();
    let (options, path) = logging(&place, LogFormat::Text);
    let origin = Origin::echo();
    let (edge, _) = edge(options, &[origin.address]);
    ask_until_logged(&edge, &path);
    // By itself, when it sees that the name means another file by now.
    std::fs::rename(&path, place.path().join("old")).unwrap();
    ask_until_logged(&edge, &path);
    // At once, when it is told, although the file is the same.
    std::fs::remove_file(&path).unwrap();
    edge.reopen_access_log();
    eventually("it is there again", || path.exists());
    let asked = origin.seen().len();
    edge.join();
    assert!(lines(&place.path().join("old")).len() < asked);
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_at_the_start() {
    let place = tempfile::tempdir().unwrap();
    let (mut options, _) = logging(&place, LogFormat::Text);
    options.access_log.as_mut().unwrap().target = LogTarget::File(place.path().join("no/log"));
    let fixed = common::dispatcher::Fixed::new(&[], 1);
    assert!(matches!(Edge::start(options, &fixed), Err(StartError::AccessLog(_))));
}

/// A pipe that nobody empties stands for a disk that hangs: requests go on, lines are dropped and
/// counted, and the log tells of them when it goes on.
#[test]
fn a_log_that_hangs_holds_up_no_request() {
    let place = tempfile::tempdir().unwrap();
    let (mut options, _) = logging(&place, LogFormat::Json);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
    let log = options.access_log.as_mut().unwrap();
    (log.target, log.queue_max) = (LogTarget::File(path.into()), 16);
    let origin = Origin::echo();
    let (edge, _) = edge(options, &[origin.address]);
    drop(writer);
    let mut client = Client::new(edge.addresses()[0]);
    let target = format!("/{}", "x".repeat(4_000));
    let mut asked = 0;
    eventually("lines are dropped", || {
        asked += 1;
        assert_eq!(client.get(&target).status, 200);
        edge.metrics().access_log_dropped > 3
    });
    let read = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        text
    });
    let metrics = edge.metrics_reader();
    edge.join();
    let text = read.join().unwrap();
    let dropped = metrics.snapshot().access_log_dropped;
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: u64 = lines.iter().filter_map(|line| line["dropped_lines"].as_u64()).sum();
    let written = lines.iter().filter(|line| line["status"] == 200).count() as u64;
    assert_eq!((told, written + dropped), (dropped, asked));
}
