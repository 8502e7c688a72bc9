//! A site with a cache, before an origin that tells what it saw.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use cache::{Cookies, Mode, Rules};
use common::client::{Client, Reply};
use common::origin::{Conn, Origin, Seen};
use common::versions::table;
use common::{PATIENCE, edge, eventually, options, site};
use edge::{CachePurge, Edge, Options, Versions};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

fn rules() -> Rules {
    Rules { mode: Mode::Http, ..Rules::default() }
}

/// One site with these rules.
fn cached(rules: Rules) -> Options {
    let mut options = options();
    options.sites[0].cache = Some(Arc::new(rules));
    options
}

fn start(rules: Rules, origin: &Origin) -> (Edge, SocketAddr) {
    let (edge, _) = edge(cached(rules), &[origin.address]);
    let address = edge.addresses()[0];
    (edge, address)
}

/// Answers each request with its number, as a body, under these fields.
fn counting(fields: &'static str) -> (Origin, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&count);
    let origin = Origin::serving(move |conn, _| {
        let number = counts.fetch_add(1, Ordering::SeqCst) + 1;
        answer(conn, fields, number.to_string().as_bytes());
    });
    (origin, count)
}

fn answer(conn: &mut Conn, fields: &str, body: &[u8]) {
    conn.send(head(fields, body.len()));
    conn.send(body);
}

fn head(fields: &str, length: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n")
}

fn ask(address: SocketAddr, method: &str, path: &str, fields: &str) -> Reply {
    let mut client = Client::new(address);
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: a.example\r\n{fields}\r\n"));
    match method {
        "HEAD" => client.head().unwrap(),
        _ => client.reply().unwrap(),
    }
}

fn get(address: SocketAddr, path: &str) -> Reply {
    ask(address, "GET", path, "")
}

#[track_caller]
fn says(reply: &Reply, token: &str) {
    let status = reply.field("cache-status").unwrap_or_default();
    assert!(status.contains(token), "{token}: {}", reply.head);
}

const FRESH: &str = "Cache-Control: max-age=3600\r\n";

#[test]
fn a_second_request_is_a_hit_and_costs_no_server() {
    let (origin, count) = counting("Cache-Control: max-age=3600\r\nSurrogate-Key: t\r\n");
    let (edge, address) = start(rules(), &origin);
    let first = get(address, "/page");
    says(&first, "polder; fwd=uri-miss; stored");
    assert_eq!(first.field("surrogate-key"), None, "tags are for the cache");
    let second = get(address, "/page");
    says(&second, "polder; hit; ttl=");
    assert_eq!((second.status, second.text()), (200, "1".to_owned()));
    assert!(second.field("age").is_some(), "{}", second.head);
    assert!(second.field("x-request-id").is_some(), "{}", second.head);
    assert_ne!(second.field("x-request-id"), first.field("x-request-id"));
    let head = ask(address, "HEAD", "/page", "");
    says(&head, "; hit");
    assert_eq!(head.field("content-length"), Some("1"));
    let tag = second.field("etag").expect("the edge made one");
    let same = ask(address, "GET", "/page", &format!("If-None-Match: {tag}\r\n"));
    assert_eq!((same.status, same.text()), (304, String::new()));
    assert_eq!(get(address, "/other").text(), "2");
    assert_eq!(count.load(Ordering::SeqCst), 2);
    let report = edge.cache().report().unwrap();
    assert_eq!((report.stats.hits, report.stats.stored, report.stats.urls), (3, 2, 2));
    assert_eq!((report.flights, report.waiting), (0, 0));
    assert!(edge.metrics().cache.is_some());
}

#[test]
fn a_site_without_a_cache_asks_each_time_and_says_nothing() {
    let (origin, count) = counting(FRESH);
    let (edge, address) = start(Rules::default(), &origin);
    for _ in 0..3 {
        assert_eq!(get(address, "/page").field("cache-status"), None);
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
    assert_eq!(edge.cache().report(), None);
}

#[test]
fn ranges_are_cut_from_the_whole_which_is_stored() {
    let origin = Origin::serving(|conn, seen| {
        assert_eq!(seen.field("range"), None, "the cache asks for the whole");
        answer(conn, "Cache-Control: max-age=3600\r\nETag: \"a\"\r\n", b"0123456789");
    });
    let (_edge, address) = start(rules(), &origin);
    for (range, status, body) in
        [("2-4", 206, "234"), ("7-", 206, "789"), ("-2", 206, "89"), ("10-", 416, "")]
    {
        let reply = ask(address, "GET", "/page", &format!("Range: bytes={range}\r\n"));
        assert_eq!((reply.status, reply.text().as_str()), (status, body), "{range}");
    }
    assert_eq!(get(address, "/page").text(), "0123456789");
    assert_eq!(origin.seen().len(), 1);
}

/// An origin whose answers are held back: each request is announced, and goes on when it is told.
struct Held {
    origin: Origin,
    came: mpsc::Receiver<Seen>,
    go: mpsc::Sender<()>,
}

fn held(serve: impl Fn(&mut Conn, &dyn Fn()) + Send + Sync + 'static) -> Held {
    let (announce, came) = mpsc::channel();
    let (go, gate) = mpsc::channel();
    let (announce, gate) = (Mutex::new(announce), Mutex::new(gate));
    let origin = Origin::serving(move |conn, seen| {
        announce.lock().unwrap().send(seen).unwrap();
        serve(conn, &|| gate.lock().unwrap().recv_timeout(PATIENCE).unwrap());
    });
    Held { origin, came, go }
}

fn waiting(edge: &Edge, count: u64) {
    eventually("they wait", || edge.cache().report().unwrap().waiting == count);
}

#[test]
fn requests_at_once_share_one_fetch() {
    let held = held(|conn, wait| {
        wait();
        answer(conn, FRESH, b"shared");
    });
    let (edge, address) = start(rules(), &held.origin);
    let clients: Vec<_> =
        (0..8).map(|_| std::thread::spawn(move || get(address, "/page"))).collect();
    held.came.recv_timeout(PATIENCE).unwrap();
    waiting(&edge, 7);
    held.go.send(()).unwrap();
    let replies: Vec<Reply> = clients.into_iter().map(|client| client.join().unwrap()).collect();
    assert!(replies.iter().all(|reply| reply.text() == "shared"));
    let collapsed = replies.iter().filter(|reply| reply.head.contains("collapsed")).count();
    assert_eq!((collapsed, held.origin.seen().len()), (7, 1));
}

#[test]
fn a_client_that_leaves_before_the_head_hands_the_lead_on() {
    let held = held(|conn, wait| {
        wait();
        answer(conn, FRESH, b"page");
    });
    let (edge, address) = start(rules(), &held.origin);
    let mut first = Client::new(address);
    first.send("GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    held.came.recv_timeout(PATIENCE).unwrap();
    let others: Vec<_> =
        (0..2).map(|_| std::thread::spawn(move || get(address, "/page"))).collect();
    waiting(&edge, 2);
    drop(first);
    held.came.recv_timeout(PATIENCE).expect("the next one asks");
    held.go.send(()).unwrap();
    held.go.send(()).unwrap();
    for other in others {
        assert_eq!(other.join().unwrap().text(), "page");
    }
    assert_eq!(held.origin.seen().len(), 2);
}

#[test]
fn a_client_that_leaves_in_the_middle_does_not_take_the_fill_with_it() {
    let held = held(|conn, wait| {
        conn.send(head(FRESH, 8));
        conn.send("half");
        wait();
        conn.send("full");
    });
    let (edge, address) = start(rules(), &held.origin);
    let mut first = Client::new(address);
    first.send("GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    first.head().unwrap();
    assert_eq!(first.exactly(4).unwrap(), b"half");
    let other = std::thread::spawn(move || get(address, "/page"));
    waiting(&edge, 1);
    drop(first);
    // The connection's end has to reach the edge before the rest does, to test anything.
    eventually("the edge sees it go", || edge.metrics().connections_open == 1);
    held.go.send(()).unwrap();
    let reply = other.join().unwrap();
    assert_eq!(reply.text(), "halffull");
    says(&reply, "collapsed");
    assert_eq!(held.origin.seen().len(), 1);
}

#[test]
fn a_response_that_breaks_off_is_cut_and_not_stored() {
    let is_first = AtomicBool::new(true);
    let origin = Origin::new(move |mut conn, _| {
        while conn.request().is_some() {
            if is_first.swap(false, Ordering::SeqCst) {
                conn.send(head(FRESH, 8));
                conn.send("half");
                return;
            }
            answer(&mut conn, FRESH, b"whole");
        }
    });
    let (_edge, address) = start(rules(), &origin);
    let mut client = Client::new(address);
    client.send("GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let reply = client.head().unwrap();
    assert!(client.body(&reply).is_err(), "half a body is none");
    assert_eq!(get(address, "/page").text(), "whole");
    says(&get(address, "/page"), "; hit");
}

#[test]
fn a_slow_reader_holds_nobody_up_and_a_large_response_is_stored() {
    const BYTES: usize = 6 << 20;
    let body: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    let sent = body.clone();
    let origin = Origin::serving(move |conn, _| answer(conn, FRESH, &sent));
    let (_edge, address) = start(rules(), &origin);
    let mut slow = Client::new(address);
    slow.send("GET /page HTTP/1.1\r\nHost: a.example\r\n\r\n");
    let reply = slow.head().unwrap();
    // It reads nothing, and others have it all.
    let other = get(address, "/page");
    assert!(other.body == body, "{} bytes", other.body.len());
    assert!(slow.body(&reply).unwrap() == body);
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn what_is_too_large_is_sent_on_and_not_stored() {
    const BYTES: usize = 300_000;
    for announced in [true, false] {
        let origin = Origin::serving(move |conn, _| {
            if announced {
                return answer(conn, FRESH, &[b'x'; BYTES]);
            }
            conn.send(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{FRESH}\r\n"));
            conn.send(format!("{BYTES:x}\r\n"));
            conn.send([b'x'; BYTES]);
            conn.send("\r\n0\r\n\r\n");
        });
        let (edge, address) = start(Rules { object_max_bytes: 100_000, ..rules() }, &origin);
        for _ in 0..2 {
            assert_eq!(get(address, "/page").body.len(), BYTES);
        }
        let part = ask(address, "GET", "/other", "Range: bytes=0-4\r\n");
        assert!(announced == (part.status == 206), "{}", part.head);
        assert_eq!(edge.cache().report().unwrap().stats.urls, 0);
    }
}

/// A response to each user, by the name that this field of the request carries.
fn personal(field: &'static str, fields: &'static str) -> Origin {
    Origin::serving(move |conn, seen| {
        let name = seen.field(field).unwrap_or("nobody").to_owned();
        answer(conn, &format!("{fields}Cache-Tag: page\r\n"), name.as_bytes());
    })
}

#[test]
fn two_users_never_share_what_is_for_one() {
    let cases = [
        ("authorization", FRESH, rules()),
        ("cookie", FRESH, rules()),
        ("cookie", "Cache-Control: max-age=3600\r\nVary: Cookie\r\n", rules()),
        ("cookie", FRESH, Rules { cookies: Cookies::Bypass, ..rules() }),
        ("cookie", FRESH, Rules { cookies: Cookies::Keyed(vec!["user".to_owned()]), ..rules() }),
        ("origin", FRESH, rules()),
        ("x-user", "Cache-Control: max-age=3600\r\nVary: X-User\r\n", rules()),
        ("authorization", "Cache-Control: private, max-age=3600\r\n", rules()),
    ];
    let strict = |rules: &Rules| Rules { mode: Mode::Strict, ..rules.clone() };
    let both = cases.into_iter().flat_map(|(field, fields, rules)| {
        [(field, fields, strict(&rules)), (field, fields, rules)]
    });
    for (field, fields, rules) in both {
        let origin = personal(field, fields);
        let mut options = cached(rules);
        options.sites[0].versions = Some(Versions::Near(table()));
        let (edge, _) = edge(options, &[origin.address]);
        let address = edge.addresses()[0];
        for _ in 0..2 {
            for user in ["user=ann", "user=bob"] {
                let reply = ask(address, "GET", "/page", &format!("{field}: {user}\r\n"));
                assert_eq!(reply.text(), user, "{field} {fields}");
            }
        }
    }
}

#[test]
fn a_field_that_nothing_is_found_by_reaches_no_server() {
    let origin = personal("x-user", FRESH);
    let (_edge, address) = start(rules(), &origin);
    assert_eq!(ask(address, "GET", "/page", "X-User: ann\r\n").text(), "nobody");
    assert_eq!(ask(address, "GET", "/page", "X-User: bob\r\n").text(), "nobody");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_cookie_that_is_set_for_one_is_set_for_no_other() {
    let (origin, count) = counting("Cache-Control: max-age=3600\r\nSet-Cookie: user=ann\r\n");
    let (_edge, address) = start(rules(), &origin);
    for number in 1..=3 {
        assert_eq!(get(address, "/page").text(), number.to_string());
    }
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn who_writes_to_a_page_purges_it() {
    let (origin, _) = counting(FRESH);
    let (edge, address) = start(rules(), &origin);
    assert_eq!(get(address, "/page").text(), "1");
    assert_eq!(get(address, "/page").text(), "1");
    let post = ask(address, "POST", "/page", "Content-Length: 3\r\n\r\nabc");
    says(&post, "fwd=method");
    assert_eq!(get(address, "/page").text(), "3");
    let url = || CachePurge::Url(site(), "http://a.example/page".to_owned());
    assert!(edge.cache().purge(&url()));
    assert_eq!(get(address, "/page").text(), "4");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cache = edge.cache();
    let stored = runtime.block_on(cache.explain(site(), "http://a.example/page")).unwrap();
    let stored = stored.responses;
    assert_eq!((stored.len(), stored[0].status, stored[0].purged), (1, 200, false));
    assert!(!edge.cache().purge(&CachePurge::Url(site(), "page".to_owned())));
    for purge in [CachePurge::Site(site()), CachePurge::All] {
        let before = get(address, "/page").text();
        assert_eq!(get(address, "/page").text(), before);
        assert!(edge.cache().purge(&purge));
        assert_ne!(get(address, "/page").text(), before, "{purge:?}");
    }
}

#[test]
fn a_purge_is_not_overtaken_by_a_response_on_its_way() {
    let held = held(|conn, wait| {
        wait();
        answer(conn, "Cache-Control: max-age=3600\r\nCache-Tag: t1\r\n", b"page");
    });
    let (edge, address) = start(rules(), &held.origin);
    let ask = || std::thread::spawn(move || get(address, "/page"));
    for purge in [
        CachePurge::Url(site(), "http://a.example/page".to_owned()),
        CachePurge::Tag(site(), "t1".to_owned()),
    ] {
        let old = ask();
        held.came.recv_timeout(PATIENCE).unwrap();
        assert!(edge.cache().purge(&purge));
        held.go.send(()).unwrap();
        old.join().unwrap();
        // What was asked for before is not used after.
        let new = ask();
        held.came.recv_timeout(PATIENCE).expect("the server is asked again");
        held.go.send(()).unwrap();
        new.join().unwrap();
        says(&get(address, "/page"), "; hit");
        assert!(edge.cache().purge(&CachePurge::All));
    }
}

#[test]
fn a_stale_response_stands_in_for_a_failed_server_and_says_so() {
    let fails = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&fails);
    let origin = Origin::serving(move |conn, _| {
        if broken.load(Ordering::SeqCst) {
            return conn.answer("503 Service Unavailable", b"broken");
        }
        let fields = "Cache-Control: max-age=1\r\nAge: 1\r\nETag: \"a\"\r\n";
        answer(conn, fields, b"old");
    });
    let (_edge, address) = start(Rules { stale_if_error_ms: 60_000, ..rules() }, &origin);
    assert_eq!(get(address, "/page").text(), "old");
    fails.store(true, Ordering::SeqCst);
    let reply = get(address, "/page");
    assert_eq!((reply.status, reply.text()), (200, "old".to_owned()));
    says(&reply, "fwd=stale; fwd-status=503");
    says(&reply, "detail=stale-if-error");
    origin.close_connections();
    drop(origin);
    let reply = get(address, "/page");
    assert_eq!((reply.status, reply.text()), (200, "old".to_owned()));
}

#[test]
fn a_stale_response_is_answered_while_its_server_is_asked() {
    let fields = "Cache-Control: max-age=1, stale-while-revalidate=60\r\nAge: 1\r\n";
    let (origin, count) = counting(fields);
    let (_edge, address) = start(Rules { stale_while_revalidate: true, ..rules() }, &origin);
    assert_eq!(get(address, "/page").text(), "1");
    let stale = get(address, "/page");
    says(&stale, "detail=stale");
    assert_eq!(stale.text(), "1");
    eventually("it is refreshed", || count.load(Ordering::SeqCst) == 2);
    eventually("the new one is there", || get(address, "/page").text() != "1");
}

#[test]
fn an_old_response_is_asked_about_and_renewed() {
    let origin = Origin::serving(|conn, seen| {
        if seen.field("if-none-match") == Some("\"a\"") {
            return conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
        }
        answer(conn, "Cache-Control: no-cache\r\nETag: \"a\"\r\n", b"page");
    });
    let (_edge, address) = start(rules(), &origin);
    assert_eq!(get(address, "/page").text(), "page");
    let reply = get(address, "/page");
    assert_eq!((reply.status, reply.text()), (200, "page".to_owned()));
    says(&reply, "fwd=stale; fwd-status=304");
    let mut client = Client::new(address);
    for _ in 0..3 {
        assert_eq!(client.get("/page").text(), "page");
    }
    assert_eq!(origin.connections(), 1, "a 304 leaves the connection as it is");
}

#[test]
fn a_cache_is_switched_on_and_off_while_the_edge_serves() {
    let (origin, count) = counting(FRESH);
    let (edge, address) = start(Rules::default(), &origin);
    let mut client = Client::new(address);
    assert_eq!((client.get("/page").text(), client.get("/page").text()), ("1".into(), "2".into()));
    edge.update(cached(rules())).unwrap();
    assert_eq!((client.get("/page").text(), client.get("/page").text()), ("3".into(), "3".into()));
    // Other rules may find other responses.
    edge.update(cached(Rules { cookies: Cookies::Ignored, ..rules() })).unwrap();
    assert_eq!((client.get("/page").text(), client.get("/page").text()), ("4".into(), "4".into()));
    edge.update(cached(Rules::default())).unwrap();
    assert_eq!((client.get("/page").text(), client.get("/page").text()), ("5".into(), "6".into()));
    assert_eq!((count.load(Ordering::SeqCst), edge.cache().report()), (6, None));
}

#[test]
fn a_response_that_is_not_kept_keeps_nobody_waiting() {
    let held = held(|conn, wait| {
        wait();
        answer(conn, "Cache-Control: no-store\r\n", b"mine");
    });
    let (edge, address) = start(rules(), &held.origin);
    let clients: Vec<_> =
        (0..3).map(|_| std::thread::spawn(move || get(address, "/page"))).collect();
    held.came.recv_timeout(PATIENCE).unwrap();
    waiting(&edge, 2);
    held.go.send(()).unwrap();
    // Both ask at once, not one after the other.
    let begun = Instant::now();
    for _ in 0..2 {
        held.came.recv_timeout(PATIENCE).unwrap();
    }
    assert!(begun.elapsed() < PATIENCE);
    held.go.send(()).unwrap();
    held.go.send(()).unwrap();
    assert!(clients.into_iter().all(|client| client.join().unwrap().text() == "mine"));
}
