//! Hits on a connection that had one before: they take the fast path, and nobody can tell.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use cache::{Mode, Rules};
use common::client::{Client, Reply};
use common::origin::Origin;
use common::versions::table;
use common::{edge, eventually, options};
use edge::{Edge, LogFormat, LogOptions, LogTarget, Options, Rate, RateOptions, Versions};
use shared_state::versions::WriterId;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LARGE: usize = 6 << 20;

fn large() -> Vec<u8> {
    (0..LARGE).map(|at| (at / 7) as u8).collect()
}

/// The time, as in `Date`.
fn date() -> String {
    let mut date = std::process::Command::new("date");
    let said = date.env("LC_ALL", "C").args(["-u", "+%a, %d %b %Y %H:%M:%S GMT"]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// Answers with the number of the request, and for `/large` with much.
fn origin() -> Origin {
    let (count, date) = (AtomicUsize::new(0), date());
    Origin::serving(move |conn, seen| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let body = match seen.line().contains("/large") {
            true => large(),
            false => format!("{number} {}", seen.body.len()).into_bytes(),
        };
        let length = body.len();
        conn.send(format!(
            "HTTP/1.1 200 OK\r\nDate: {date}\r\nX-Request-Id: origin\r\n\
             Cache-Control: max-age=3600\r\nCache-Tag: a\r\nVary: Accept-Language\r\n\
             Link: </b>\r\nLink: </c>\r\nContent-Length: {length}\r\n\r\n"
        ));
        conn.send(body);
    })
}

fn cached(rules: Rules) -> Options {
    let mut options = options();
    options.sites[0].cache = Some(Arc::new(rules));
    options
}

fn http() -> Options {
    cached(Rules { mode: Mode::Http, ..Rules::default() })
}

fn start(options: Options, origin: &Origin) -> (Edge, SocketAddr) {
    let (edge, _) = edge(options, &[origin.address]);
    let address = edge.addresses()[0];
    (edge, address)
}

/// A connection whose last request was a hit.
fn warm(address: SocketAddr) -> Client {
    let mut client = Client::new(address);
    for _ in 0..2 {
        client.get("/page");
    }
    client
}

fn is_hit(reply: &Reply) -> bool {
    reply.field("cache-status").is_some_and(|status| status.starts_with("polder; hit"))
}

/// A reply without what differs each time, and without the order of its fields.
fn told(reply: &Reply) -> (u16, Vec<String>, Vec<u8>) {
    let each = ["x-request-id:", "age:", "cache-status: polder; hit; ttl="];
    let plain = |line: &&str| !each.iter().any(|start| line.starts_with(start));
    let mut lines: Vec<_> = reply.head.lines().filter(plain).map(str::to_owned).collect();
    lines[1..].sort();
    (reply.status, lines, reply.body.clone())
}

#[test]
fn all_kinds_of_requests_are_answered_as_on_a_new_connection() {
    let origin = origin();
    let (_edge, address) = start(http(), &origin);
    let tag = warm(address).get("/page").field("etag").unwrap().to_owned();
    let fields = [
        "",
        &format!("If-None-Match: {tag}\r\n"),
        "If-None-Match: \"other\", W/\"more\"\r\n",
        "If-None-Match: *\r\n",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "If-Modified-Since: Fri, 06 Nov 2093 08:49:37 GMT\r\n",
        "If-Match: \"a\"\r\n",
        "Range: bytes=1-2\r\n",
        "Range: bytes=90-\r\n",
        "If-Range: \"other\"\r\n",
        "Cache-Control: no-cache\r\n",
        "Cache-Control: only-if-cached\r\n",
        "Cache-Control: max-age=100000\r\n",
        "Accept-Language: de, en;q=0.5\r\n",
        "Accept-Encoding: gzip, br\r\n",
        "Cookie: a=b; c=d\r\n",
        "X-Request-Id: mine\r\n",
        "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
        "Connection: keep-alive\r\n",
        "Connection: x-a\r\nX-A: b\r\n",
        "Content-Length: 0\r\n",
        "TE: trailers\r\n",
        "Host: b.example\r\n",
        "X: a\0b\r\n",
        "X : a\r\n",
        "X: \u{fc}\r\n",
    ];
    let mut compared = 0;
    for (at, first) in fields.iter().enumerate() {
        for second in &fields[at..] {
            let twice = if first == second { "" } else { *second };
            let request = format!("GET /page HTTP/1.1\r\nHost: a.example\r\n{first}{twice}\r\n");
            // What is stored for this language, if it names one.
            Client::new(address).ask(&request);
            let kept = warm(address).ask(&request);
            let fresh = Client::new(address).ask(&request);
            // Who goes past the cache is told a new number.
            if is_hit(&kept) && is_hit(&fresh) || kept.status != 200 {
                assert_eq!(told(&kept), told(&fresh), "{request:?}");
                compared += 1;
            }
            let named = |reply: &Reply| reply.head.matches("x-request-id:").count();
            assert_eq!((is_hit(&kept), kept.status), (is_hit(&fresh), fresh.status), "{request:?}");
            assert!(kept.status == 400 || named(&kept) == 1, "{}", kept.head);
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn hits_and_others_take_turns_on_one_connection() {
    let origin = origin();
    let (_edge, address) = start(http(), &origin);
    let mut client = warm(address);
    let page = client.get("/page").text();
    for round in 0..3 {
        let post = "POST /form HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
        assert!(client.ask(post).text().ends_with(" 5"));
        assert_eq!(client.get("/page").text(), page);
        assert_eq!(client.ask("GET /page HTTP/1.1\r\nHost: elsewhere\r\n\r\n").status, 421);
        // A body that a careless reader would take for a request.
        let inner = "GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let length = inner.len();
        let outer = format!("GET /page HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}");
        assert_eq!(client.ask(format!("{outer}\r\n\r\n{inner}")).status, 200);
        // Several at once, the last in two pieces.
        let get = "GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n";
        client.send(format!("{get}{get}{get}GET /pa"));
        for _ in 0..3 {
            assert_eq!(client.reply().unwrap().text(), page, "{round}");
        }
        client.send("ge HTTP/1.1\r\nHost: a.example\r\n\r\n");
        assert_eq!(client.reply().unwrap().text(), page);
        // It is parked meanwhile, so that the fast path is open again.
        std::thread::sleep(std::time::Duration::from_millis(400));
        for _ in 0..3 {
            assert_eq!(client.get("/page").text(), page);
        }
    }
    assert!(origin.seen().iter().all(|seen| !seen.line().contains("smuggled")));
    let close = "GET /page HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n";
    assert_eq!(client.ask(close).text(), page);
    assert!(client.reply().is_none());
}

#[test]
fn a_client_that_reads_late_gets_all_of_a_large_page() {
    let origin = origin();
    let (_edge, address) = start(http(), &origin);
    let mut client = warm(address);
    client.get("/large");
    assert!(is_hit(&client.get("/large")));
    for _ in 0..3 {
        client.send("GET /large HTTP/1.1\r\nHost: a.example\r\n\r\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        let reply = client.reply().unwrap();
        assert!(is_hit(&reply) && reply.body == large());
        assert!(is_hit(&client.get("/page")));
    }
}

#[test]
fn a_change_is_seen_by_the_next_request() {
    let origin = origin();
    let table = table();
    let mut options = cached(Rules { mode: Mode::Strict, ..Rules::default() });
    options.sites[0].versions = Some(Versions::Near(table.clone()));
    let (_edge, address) = start(options, &origin);
    let mut client = warm(address);
    for _ in 0..20 {
        let old = client.get("/page");
        assert!(is_hit(&old), "{}", old.head);
        let update = table.begin(WriterId(1), &[table.slot(b"a")]).unwrap();
        let pending = client.get("/page");
        assert!(pending.text() != old.text() && !is_hit(&pending));
        table.end(update).unwrap();
        let new = client.get("/page");
        assert!(new.text() != pending.text() && !is_hit(&new));
        for _ in 0..3 {
            let hit = client.get("/page");
            assert!(is_hit(&hit) && hit.text() == new.text());
        }
    }
}

#[test]
fn each_hit_is_counted_limited_and_logged() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("access.log");
    let log = LogOptions {
        target: LogTarget::File(path.clone()),
        format: LogFormat::Json,
        queue_max: 1_000,
        nodes: Vec::new(),
    };
    let origin = origin();
    let mut options = Options { access_log: Some(log), ..http() };
    let client = Some(Rate { per_s: 1, burst: 10 });
    options.sites[0].rate = RateOptions { client, site: None };
    let (edge, address) = start(options, &origin);
    let mut client = warm(address);
    for _ in 0..8 {
        assert!(is_hit(&client.get("/page")));
    }
    assert_eq!(client.get("/page").status, 429);
    assert_eq!(edge.cache().report().unwrap().stats.hits, 9);
    eventually("all are counted", || edge.metrics().sites[0].in_flight == 0);
    let counted = edge.metrics().sites[0].clone();
    assert_eq!((counted.requests[2], counted.requests[4]), (10, 1));
    edge.join();
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11);
    for line in &lines[1..10] {
        assert_eq!((&line["cache"], &line["status"]), (&"hit".into(), &200.into()), "{line}");
        assert_eq!(line["bytes"], lines[0]["bytes"]);
    }
}

#[test]
fn a_drain_ends_the_connection_with_the_next_answer() {
    let origin = origin();
    let (edge, address) = start(http(), &origin);
    let mut client = warm(address);
    assert_eq!(client.get("/page").field("connection"), None);
    edge.drain();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let last = client.get("/page");
    assert!(is_hit(&last));
    assert_eq!(last.field("connection"), Some("close"));
    assert!(client.reply().is_none());
}
