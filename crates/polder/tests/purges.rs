//! What applications tell over HTTP, in each of their dialects, to pools of two edges.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use cache::KeyRef;
use common::client::{Answer, Connection};
use common::pool::{Pool, Recipe, Servers};
use common::{eventually, process};
use pool_model::SiteId;
use remote_memory::shm::{self, Attachment};
use rustix::process::Signal;
use shared_state::versions::{Filled, VersionTable};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const ATTACH_WITHIN: Duration = Duration::from_secs(20);
const TOKEN: &str = "a-token-that-nobody-guesses";

/// What each page depends on, as each application says it.
const TAGS: &str = "Surrogate-Key: key1\r\nCache-Tag: tag 1, tag 2\r\nX-Cache-Tags: post-1,menu\r\n\
                    xkey: xk1 xk2\r\nCache-Tags: node:1 node_list\r\nPurge-Cache-Tags: user:1\r\n\
                    X-Magento-Tags: cat_p_1,cat_c_2\r\n";

/// Answers each request with its number. A request for `/slow` is answered once the gate opens.
struct Origin {
    count: AtomicUsize,
    waiting: AtomicUsize,
    gate: (Mutex<bool>, Condvar),
}

impl Origin {
    fn start() -> (Arc<Self>, SocketAddr) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (count, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let origin = Arc::new(Self { count, waiting, gate: Default::default() });
        let serving = Arc::clone(&origin);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, origin) = (stream.unwrap(), Arc::clone(&serving));
                std::thread::spawn(move || origin.serve(&stream));
            }
        });
        (origin, address)
    }

    fn set_gate(&self, is_open: bool) {
        *self.gate.0.lock().unwrap() = is_open;
        self.gate.1.notify_all();
    }

    fn serve(&self, mut stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        let mut first = String::new();
        while let Some(Ok(line)) = lines.next() {
            if first.is_empty() {
                first = line;
                continue;
            }
            if !line.is_empty() {
                continue;
            }
            // The data is read here; the page is made of it whenever it is.
            let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
            if first.contains("/slow") {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let open = self.gate.1.wait_while(self.gate.0.lock().unwrap(), |open| !*open);
                drop(open.unwrap());
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            let tags = if first.contains("/other") { "Cache-Tag: other\r\n" } else { TAGS };
            let stale = if first.contains("/stale") { ", stale-while-revalidate=600" } else { "" };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600{stale}\r\n{tags}\
                 X-Number: {number}\r\nX-Request: {first}\r\nContent-Length: 2\r\n\r\nok"
            );
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
            first.clear();
        }
    }
}

fn pool(sites: &[(&'static str, &'static str)]) -> (Arc<Origin>, Pool) {
    let (origin, address) = Origin::start();
    let mut recipe = Recipe::new(sites, 1);
    recipe.servers = Servers::At(address);
    (origin, recipe.start())
}

/// Sends a request whose first line and fields these are.
fn send(edge: SocketAddr, host: &str, lines: &str) -> Answer {
    let mut connection = Connection::open(edge).unwrap();
    let (first, fields) = lines.split_once('\n').unwrap_or((lines, ""));
    let mut head = format!("{first} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n");
    for field in fields.lines() {
        head += &format!("{field}\r\n");
    }
    connection.stream().write_all((head + "\r\n").as_bytes()).unwrap();
    connection.receive().unwrap()
}

/// The number of the response, and whether the cache gave it.
fn get(edge: SocketAddr, host: &str, path: &str) -> (u64, bool) {
    let mut connection = Connection::open(edge).unwrap();
    let answer = connection.request("GET", host, path).unwrap();
    (answer.header("x-number").parse().unwrap(), answer.header("cache-status").contains("; hit"))
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[track_caller]
fn is_acknowledged(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", text(answer));
    assert_eq!(answer.header("polder-invalidation"), "acknowledged");
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(body["status"] == "ok" && body["id"].is_string(), "{body}");
}

/// The table, as an edge maps it.
fn table(pool: &Pool, site: &str) -> (VersionTable, Attachment) {
    let attachment = shm::attach(pool.folder.join(format!("tags-{site}.sock")), ATTACH_WITHIN);
    let attachment = attachment.unwrap();
    (VersionTable::open(attachment.region()).unwrap(), attachment)
}

fn is_valid(table: &VersionTable, filled: Filled, tag: &[u8]) -> bool {
    table.is_valid(filled, &table.slots_of(&[tag]))
}

/// Waits until the site's version table is told; the tag is one that no page has.
fn wait_told(pool: &Pool) {
    eventually("the version table is told", || {
        send(pool.edges[0], "red.test", "PURGE /\nxkey: nobodys").status == 200
    });
}

/// Requests that void `/page`, those that name tags first, and those that void all.
const PURGES: [&str; 14] = [
    "PURGE /\nxkey: xk2",
    "PURGE /anything\nxkey-purge: none xk1",
    "PURGEKEYS /\nxkey-softpurge: xk1",
    "PURGETAGS /\nX-Cache-Tags: none,menu",
    "BAN /\nX-Host: .*\nX-Url: .*\nX-Content-Type: .*\nX-Cache-Tags: (^|,)(post\\-1|none)(,|$)",
    "PURGE /\nX-Magento-Tags-Pattern: ((^|,)cat_p_1(,|$))|((^|,)cat_p_9(,|$))",
    "BAN /\nCache-Tags: node:9|node_list",
    "BAN /\nPurge-Cache-Tags: user:1",
    "BAN /\nCache-Tag: tag 2",
    "BAN /\nApiPlatform-Ban-Regex: (cat_c_2|cat_c_3)($|\\,)",
    "BAN /\nSurrogate-Key: key1",
    "POST /service/red/purge/node%3A1",
    "POST /service/red/purge\nSurrogate-Key: key0 key1\nFastly-Soft-Purge: 1",
    "PURGE /page",
];

const PURGES_OF_ALL: [&str; 4] = [
    "PURGE /\nX-Magento-Tags-Pattern: .*",
    "BAN /\nX-Host: .*\nX-Url: .*\nX-Content-Type: .*",
    "PURGE /\nClear-Cache: true",
    "POST /service/red/purge_all",
];

const HTTP: &str = "cache = { mode = \"http\" }\npurge = { from = [\"127.0.0.1\"] }";
const BOTH: &str = "tags = 4096\ncache = { mode = \"http\" }\npurge = { from = [\"127.0.0.1\"] }";
const STRICT: &str =
    "tags = 1048576\ncache = { mode = \"strict\" }\npurge = { from = [\"127.0.0.1\"] }";

#[test]
fn each_dialect_purges_in_both_edges() {
    each_dialect_purges(HTTP);
}

#[test]
fn each_dialect_purges_in_both_edges_where_hits_are_proved() {
    each_dialect_purges(STRICT);
}

fn each_dialect_purges(site: &'static str) {
    let (_origin, pool) = pool(&[("red", site)]);
    wait_told(&pool);
    for (place, purge) in PURGES.iter().chain(&PURGES_OF_ALL).enumerate() {
        for &edge in &pool.edges {
            for path in ["/page", "/other"] {
                get(edge, "red.test", path);
                assert!(get(edge, "red.test", path).1, "it is kept");
            }
        }
        is_acknowledged(&send(pool.edges[place % 2], "red.test", purge));
        for &edge in &pool.edges {
            assert!(!get(edge, "red.test", "/page").1, "{purge}");
            assert_eq!(get(edge, "red.test", "/other").1, PURGES.contains(purge), "{purge}");
        }
    }
}

#[test]
fn what_is_on_its_way_during_a_purge_is_not_kept() {
    nothing_on_its_way_is_kept(BOTH);
}

#[test]
fn what_is_on_its_way_during_a_purge_is_not_kept_where_hits_are_proved() {
    nothing_on_its_way_is_kept(STRICT);
}

fn nothing_on_its_way_is_kept(site: &'static str) {
    let (origin, pool) = pool(&[("red", site)]);
    wait_told(&pool);
    let purges = ["PURGE /slow", "PURGE /\nxkey: xk1", "POST /service/red/purge_all"];
    for purge in purges {
        origin.set_gate(false);
        let getting: Vec<_> = pool
            .edges
            .iter()
            .map(|&edge| std::thread::spawn(move || get(edge, "red.test", "/slow")))
            .collect();
        eventually("both edges ask", || origin.waiting.load(Ordering::SeqCst) == 2);
        is_acknowledged(&send(pool.edges[0], "red.test", purge));
        let changed = origin.count.load(Ordering::SeqCst) as u64;
        origin.set_gate(true);
        for one in getting {
            let (number, is_hit) = one.join().unwrap();
            assert!(number <= changed && !is_hit);
        }
        for &edge in &pool.edges {
            let (number, _) = get(edge, "red.test", "/slow");
            assert!(number > changed, "{purge}: {number} was asked for before");
            assert_eq!(get(edge, "red.test", "/slow"), (number, true), "{purge}");
        }
        // Nothing of it is left for the next round.
        is_acknowledged(&send(pool.edges[1], "red.test", "POST /service/red/purge_all"));
    }
}

#[test]
fn who_has_no_token_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let site = format!(
        "cache = {{ mode = \"http\" }}\n\
         purge = {{ from = [\"127.0.0.1\"], token_file = {file:?} }}"
    );
    let (_origin, pool) = pool(&[("red", site.leak())]);
    let edge = pool.edges[0];
    get(edge, "red.test", "/page");
    for lines in [
        "PURGE /page",
        "PURGE /page\nX-Purge-Token: another-token-of-some-length",
        "BAN /\nxkey: xk1\nAuthorization: Basic YTpi",
        "POST /service/red/purge_all\nCookie: token=a-token-that-nobody-guesses",
    ] {
        let answer = send(edge, "red.test", lines);
        assert_eq!(answer.status, 401, "{lines}: {}", text(&answer));
        assert!(text(&answer).contains("X-Purge-Token"), "{}", text(&answer));
        assert_eq!(answer.header("www-authenticate"), "Bearer");
        assert_eq!(answer.header("x-polder-reason"), "purge-token");
    }
    assert!(get(edge, "red.test", "/page").1, "it is lost");
    for field in ["Authorization: Bearer", "Fastly-Key:", "X-Purge-Token:"] {
        is_acknowledged(&send(edge, "red.test", &format!("PURGE /page\n{field} {TOKEN}")));
        assert!(!get(edge, "red.test", "/page").1, "{field}");
    }
    assert!(!pool.log().contains(TOKEN));
}

#[test]
fn who_comes_from_elsewhere_is_refused_and_changes_nothing() {
    let site = "cache = { mode = \"http\" }\npurge = { from = [\"10.0.0.0/8\"] }";
    let (_origin, pool) = pool(&[("red", site)]);
    let edge = pool.edges[0];
    get(edge, "red.test", "/page");
    let fields = "X-Forwarded-For: 10.0.0.1\nForwarded: for=10.0.0.1";
    for first in ["PURGE /page", "BAN /", "POST /service/red/purge_all"] {
        let answer = send(edge, "red.test", &format!("{first}\n{fields}"));
        assert_eq!(answer.status, 403, "{first}: {}", text(&answer));
        assert!(text(&answer).starts_with("127.0.0.1 may not"), "{}", text(&answer));
        assert_eq!(answer.header("x-polder-reason"), "purge-denied");
    }
    assert!(get(edge, "red.test", "/page").1, "it is lost");
}

#[test]
fn where_nobody_may_it_is_a_request_like_others() {
    let (_origin, pool) = pool(&[("red", "cache = { mode = \"http\" }")]);
    for (lines, first) in [
        ("PURGE /page\nxkey: xk1", "PURGE /page HTTP/1.1"),
        ("BAN /", "BAN / HTTP/1.1"),
        ("POST /service/red/purge_all", "POST /service/red/purge_all HTTP/1.1"),
    ] {
        let answer = send(pool.edges[0], "red.test", lines);
        assert_eq!((answer.status, answer.header("x-request")), (200, first));
        assert_eq!(answer.header("polder-invalidation"), "");
    }
}

#[test]
fn what_is_not_understood_is_refused_and_says_what_is() {
    let site = "tags = 4096\npurge = { from = [\"127.0.0.1\"] }";
    let (_origin, pool) = pool(&[("red", site)]);
    let (table, _attachment) = table(&pool, "red");
    let filled = table.fill().unwrap();
    for (lines, words) in [
        ("BAN /", "names nothing to invalidate: name tags in xkey"),
        ("BAN /\nX-Url: ^/blog", "x-url is a pattern: supported is .*"),
        ("BAN /\nxkey: a\nX-Host: ^other$", "x-host is a pattern"),
        ("PURGE /\nX-Cache-Tags: post-.*", "no list of tags: supported are"),
        ("PURGE /\nxkey: ,", "xkey names no tag"),
        ("POST /service/blue/purge_all", "SITE is the site's name"),
        ("POST /service/red/purge", "in a body like {\"surrogate_keys\": [\"KEY\"]}"),
        ("POST /service/red/purge/%zz", "percent-encoded"),
    ] {
        let answer = send(pool.edges[0], "red.test", lines);
        assert_eq!(answer.status, 400, "{lines}: {}", text(&answer));
        assert!(text(&answer).contains(words), "{lines}: {}", text(&answer));
        assert_eq!(answer.header("x-polder-reason"), "bad-purge");
    }
    for tag in [&b"a"[..], edge::SITE_TAG] {
        assert!(is_valid(&table, filled, tag));
    }
}

/// Posts a list of keys, in one piece or as chunks.
fn post_keys(edge: SocketAddr, body: &str, in_chunks: bool) -> Answer {
    let mut connection = Connection::open(edge).unwrap();
    let head = "POST /service/red/purge HTTP/1.1\r\nHost: red.test\r\n\
                Content-Type: application/json\r\n";
    let rest = match in_chunks {
        true => {
            format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
        }
        false => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
    };
    connection.stream().write_all((head.to_owned() + &rest).as_bytes()).unwrap();
    connection.receive().unwrap()
}

#[test]
fn keys_come_in_a_body() {
    let (_origin, pool) = pool(&[("red", STRICT)]);
    wait_told(&pool);
    for in_chunks in [false, true] {
        for &edge in &pool.edges {
            get(edge, "red.test", "/page");
            get(edge, "red.test", "/other");
            assert!(get(edge, "red.test", "/page").1, "it is kept");
        }
        let body = "{\"surrogate_keys\": [\"key0\", \"key1\"]}";
        is_acknowledged(&post_keys(pool.edges[0], body, in_chunks));
        for &edge in &pool.edges {
            assert!(!get(edge, "red.test", "/page").1, "{in_chunks}");
            assert!(get(edge, "red.test", "/other").1, "{in_chunks}");
        }
    }
    let long = format!("{{\"surrogate_keys\": [\"{}\"]}}", "a".repeat(300 << 10));
    for (body, words) in [
        ("{\"surrogate_keys\": [\"key1\"", "the body is not JSON like"),
        ("{\"surrogate_keys\": \"key1\"}", "expected a sequence at line 1"),
        ("{\"surrogate_keys\": []}", "surrogate_keys names no tag"),
        ("", "name the keys in Surrogate-Key"),
        (&long, "more than 262144 bytes"),
    ] {
        get(pool.edges[0], "red.test", "/page");
        let answer = post_keys(pool.edges[0], body, false);
        assert_eq!(answer.status, 400, "{}", text(&answer));
        assert!(text(&answer).contains(words), "{words}: {}", text(&answer));
        assert!(get(pool.edges[0], "red.test", "/page").1, "{words}: it is lost");
    }
}

const SOFT: &str = "tags = 4096\npurge = { from = [\"127.0.0.1\"] }\n\
                    cache = { mode = \"http\", stale_while_revalidate = true }";

/// What a client is told of a page, and its number.
fn status_of(edge: SocketAddr, path: &str) -> (String, u64) {
    let mut connection = Connection::open(edge).unwrap();
    let answer = connection.request("GET", "red.test", path).unwrap();
    let number = answer.header("x-number").parse().unwrap();
    (answer.header("cache-status").to_owned(), number)
}

#[test]
fn what_is_purged_softly_is_shown_once_more_while_it_is_asked_for() {
    let (_origin, pool) = pool(&[("red", SOFT)]);
    wait_told(&pool);
    for purge in [
        "POST /service/red/purge/key1\nFastly-Soft-Purge: 1",
        "PURGE /page/stale\nFastly-Soft-Purge: 1",
        "PURGEKEYS /\nxkey-softpurge: xk1",
    ] {
        for &edge in &pool.edges {
            get(edge, "red.test", "/page/stale");
        }
        let numbers: Vec<u64> =
            pool.edges.iter().map(|&edge| get(edge, "red.test", "/page/stale").0).collect();
        is_acknowledged(&send(pool.edges[0], "red.test", purge));
        for (&edge, number) in pool.edges.iter().zip(numbers) {
            let (status, shown) = status_of(edge, "/page/stale");
            assert!(status.contains("; hit;") && status.contains("detail=stale"), "{status}");
            assert_eq!(shown, number, "{purge}");
            eventually("it is asked for meanwhile", || status_of(edge, "/page/stale").1 > number);
        }
    }
    // Everything is gone, whatever the request says.
    let all = "POST /service/red/purge_all\nFastly-Soft-Purge: 1";
    is_acknowledged(&send(pool.edges[0], "red.test", all));
    for &edge in &pool.edges {
        assert!(!get(edge, "red.test", "/page/stale").1);
    }
}

#[test]
fn tags_and_urls_are_updated_in_the_version_table() {
    let site = "tags = 4096\npurge = { from = [\"127.0.0.1\"] }";
    let (_origin, pool) = pool(&[("red", site)]);
    wait_told(&pool);
    let (table, _attachment) = table(&pool, "red");
    let url = KeyRef::of_url(SiteId::MIN, "http://red.test/page?a").unwrap().to_key();
    let url = edge::url_tag(&url);
    let tags: [&[u8]; 4] = [b"a", b"b", &url, edge::SITE_TAG];
    for (lines, updated) in [
        ("PURGE /\nxkey: a", [true, false, false, false]),
        ("PURGE /\nX-Magento-Tags-Pattern: ((^|,)b(,|$))", [false, true, false, false]),
        ("PURGE /page?a", [false, false, true, false]),
        ("POST /service/red/purge_all", [false, false, false, true]),
    ] {
        let filled = table.fill().unwrap();
        is_acknowledged(&send(pool.edges[0], "red.test", lines));
        for (tag, updated) in tags.iter().zip(updated) {
            assert_eq!(is_valid(&table, filled, tag), !updated, "{lines}: {}", tag.escape_ascii());
        }
    }
    // Another process answers writers; the connection to the first one is gone.
    let pid = pool.writers_process().unwrap();
    assert!(process::signal(pid, Signal::KILL));
    eventually("another process answers writers", || {
        send(pool.edges[0], "red.test", "PURGE /\nxkey: a").status == 200
    });
}

#[test]
fn nothing_is_acknowledged_that_may_not_hold() {
    let (_origin, pool) = pool(&[("red", BOTH)]);
    wait_told(&pool);
    let refused = |words: &str| {
        let answer = send(pool.edges[0], "red.test", "PURGE /\nxkey: xk1");
        assert_eq!(answer.status, 503, "{}", text(&answer));
        assert!(text(&answer).contains(words), "{}", text(&answer));
        assert_eq!(answer.header("retry-after"), "1");
    };
    let writers = pool.writers_process().unwrap();
    assert!(process::signal(writers, Signal::STOP));
    refused("version table can't be told");
    assert!(process::signal(writers, Signal::CONT));
    let other = pool.status().edges.iter().find(|edge| edge.edge == 1).unwrap().pid;
    assert!(process::signal(other, Signal::STOP));
    refused("not all edges have confirmed");
    assert!(process::signal(other, Signal::CONT));
    eventually("it is acknowledged again", || {
        send(pool.edges[0], "red.test", "PURGE /\nxkey: xk1").status == 200
    });
}
