//! Mode `strict`: pages that change while two edges keep them, against a pool of real processes.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::eventually;
use common::pool::{PROGRAM, Pool, Port, Recipe, Servers};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use writers::Client;

const ANSWER: Duration = Duration::from_secs(20);
const STRICT: &str = "tags = 4096\ncache = { mode = \"strict\", source = \"linearizable\" }";

/// Pages by path: what they show now, and how long they are rendered. Each has its path's letters
/// as a tag, but `/untagged`.
#[derive(Clone, Default)]
struct Origin(Arc<Mutex<BTreeMap<String, u64>>>);

impl Origin {
    fn start(&self) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let own = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, own) = (stream.unwrap(), own.clone());
                std::thread::spawn(move || own.serve(&stream));
            }
        });
        address
    }

    fn serve(&self, stream: &TcpStream) {
        let mut lines = BufReader::new(stream).lines();
        let mut path = String::new();
        while let Some(Ok(line)) = lines.next() {
            if let Some(rest) = line.strip_prefix("GET ") {
                path = rest.split(' ').next().unwrap().to_owned();
            }
            if !line.is_empty() {
                continue;
            }
            let version = self.version(&path);
            if path.starts_with("/slow") {
                std::thread::sleep(Duration::from_millis(600));
            }
            let tag = match path.trim_start_matches('/') {
                "untagged" => String::new(),
                name => format!("Cache-Tag: {name}\r\n"),
            };
            let body = version.to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n{tag}Content-Length: {}\r\n\
                 \r\n{body}",
                body.len()
            );
            let mut stream = stream;
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn version(&self, path: &str) -> u64 {
        *self.0.lock().unwrap().entry(path.to_owned()).or_default()
    }

    fn commit(&self, path: &str) -> u64 {
        let mut pages = self.0.lock().unwrap();
        let version = pages.entry(path.to_owned()).or_default();
        *version += 1;
        *version
    }
}

fn pool(origin: &Origin, lines: &'static str, remote: &str) -> Pool {
    let mut recipe = Recipe::new(&[("red", lines)], 1);
    recipe.servers = Servers::At(origin.start());
    recipe.health = format!("[remote]\n{remote}");
    let pool = recipe.start();
    eventually("writers are answered", || Client::connect(&tell(&pool), ANSWER).is_ok());
    pool
}

fn tell(pool: &Pool) -> PathBuf {
    pool.folder.join("tell-red.sock")
}

/// The version that an edge shows, and whether its cache gave it.
fn get(edge: SocketAddr, path: &str) -> (u64, bool) {
    let mut connection = Connection::open(edge).unwrap();
    let answer = connection.request("GET", "red.test", path).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let status = answer.header("cache-status");
    let version = String::from_utf8(answer.body.clone()).unwrap();
    (version.parse().unwrap(), status.contains("; hit"))
}

/// Two requests, of which the second is a hit with this version.
#[track_caller]
fn kept(edge: SocketAddr, path: &str, version: u64) {
    get(edge, path);
    assert_eq!(get(edge, path), (version, true), "{path}");
}

fn polder(pool: &Pool, arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(["--runtime-dir".as_ref(), pool.folder.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_hit_is_older_than_what_was_committed() {
    let origin = Origin::default();
    let pool = pool(&origin, STRICT, "");
    let mut writer = Client::connect(&tell(&pool), ANSWER).unwrap();
    for &edge in &pool.edges {
        kept(edge, "/a", 0);
        kept(edge, "/b", 0);
    }
    for round in 1..=20 {
        let token = writer.begin(&["a"]).unwrap();
        for &edge in &pool.edges {
            assert_eq!(get(edge, "/a"), (round - 1, false), "it may change at any moment");
        }
        assert_eq!(origin.commit("/a"), round);
        for &edge in &pool.edges {
            assert_eq!(get(edge, "/a"), (round, false), "it has changed");
        }
        writer.end(token).unwrap();
        for &edge in &pool.edges {
            kept(edge, "/a", round);
            assert_eq!(get(edge, "/b"), (0, true), "nothing of it has changed");
        }
    }
    let mut connection = Connection::open(pool.edges[0]).unwrap();
    let answer = connection.request("GET", "red.test", "/a").unwrap();
    let status = answer.header("cache-status");
    assert!(status.contains("detail=linearizable"), "{status}");
    assert_eq!(answer.header("cache-control"), "no-cache", "nobody tells those before the edge");
    assert!(!answer.header("etag").is_empty());
    for &edge in &pool.edges {
        assert_eq!((get(edge, "/untagged").1, get(edge, "/untagged").1), (false, false));
    }
    let stats: serde_json::Value =
        serde_json::from_str(&polder(&pool, &["cache", "stats", "--json"])).unwrap();
    assert!(stats["0"]["refused"].as_u64().unwrap() >= 20, "{stats}");
}

#[test]
fn what_is_on_its_way_during_a_change_is_not_kept() {
    let origin = Origin::default();
    let pool = pool(&origin, STRICT, "");
    let edge = pool.edges[0];
    let mut writer = Client::connect(&tell(&pool), ANSWER).unwrap();
    let first = std::thread::spawn(move || get(edge, "/slow"));
    std::thread::sleep(Duration::from_millis(200));
    let version = writer.begin(&["slow"]).and_then(|token| {
        let version = origin.commit("/slow");
        writer.end(token).map(|_| version)
    });
    // It arrives after the change and while the old page is on its way: it does not get that one.
    let second = std::thread::spawn(move || get(edge, "/slow"));
    assert_eq!(first.join().unwrap().0, 0);
    assert_eq!(second.join().unwrap().0, version.unwrap());
    kept(edge, "/slow", 1);
}

#[test]
fn tags_urls_and_sites_are_forgotten_by_all_edges_at_once() {
    let origin = Origin::default();
    let pool = pool(&origin, STRICT, "");
    for (round, order) in [
        &["invalidate", "a"][..],
        &["invalidate", "polder:url:red.test/a"],
        &["invalidate", "polder:site"],
        &["cache", "purge", "--tag", "a"],
        &["cache", "purge", "--tag", "a", "--site", "red"],
        &["cache", "purge", "--url", "http://red.test/a"],
        &["cache", "purge", "--all"],
    ]
    .into_iter()
    .enumerate()
    {
        for &edge in &pool.edges {
            kept(edge, "/a", round as u64);
        }
        origin.commit("/a");
        if round == 0 {
            let told = polder(&pool, &["cache", "explain", "http://red.test/a"]);
            assert_eq!(told.matches("fresh for").count(), 2, "{told}");
        }
        polder(&pool, order);
        if round == 0 {
            let told = polder(&pool, &["cache", "explain", "http://red.test/a"]);
            assert_eq!(told.matches("a tag has changed").count(), 2, "{told}");
        }
        for &edge in &pool.edges {
            assert_eq!(get(edge, "/a"), (round as u64 + 1, false), "{order:?}");
        }
    }
}

#[test]
fn a_table_over_tcp_proves_as_much() {
    let origin = Origin::default();
    let port = Port::take();
    let address = port.address;
    let lines = format!("{STRICT}\ntags_listen = \"{address}\"\ntags_read = \"tcp\"");
    let pool = pool(&origin, Box::leak(lines.into_boxed_str()), "plain_on_loopback = true");
    let edge = pool.edges[0];
    let mut writer = Client::connect(&tell(&pool), ANSWER).unwrap();
    // Until it is connected nothing is kept.
    eventually("the table is read", || {
        get(edge, "/a");
        get(edge, "/a").1
    });
    let token = writer.begin(&["a"]).unwrap();
    assert_eq!(get(edge, "/a"), (0, false));
    origin.commit("/a");
    writer.end(token).unwrap();
    kept(edge, "/a", 1);
    let clients: Vec<_> = (0..8)
        .map(|_| std::thread::spawn(move || (0..50).all(|_| get(edge, "/a") == (1, true))))
        .collect();
    assert!(clients.into_iter().all(|client| client.join().unwrap()), "all of them are hits");
    // Its process is killed: no hits, no old pages, no errors; another one takes over.
    let pid = pool.writers_process().unwrap();
    assert!(common::process::signal(pid, rustix::process::Signal::KILL));
    origin.commit("/a");
    let since = Instant::now();
    eventually("hits again", || {
        let (version, is_hit) = get(edge, "/a");
        // Nobody told of this change.
        assert!(version >= 1 && since.elapsed() < ANSWER);
        is_hit
    });
}

#[test]
fn the_auditor_finds_a_change_that_nobody_told() {
    let origin = Origin::default();
    let audited = "tags = 4096\ncache = { mode = \"strict\", audit_per_million = 1_000_000 }";
    let pool = pool(&origin, audited, "");
    let edge = pool.edges[0];
    let count = |name: &str| {
        let stats = polder(&pool, &["cache", "stats", "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats["0"][name].as_u64().unwrap()
    };
    kept(edge, "/a", 0);
    eventually("it is audited", || count("audited") > 0);
    assert_eq!(count("violations"), 0);
    origin.commit("/a");
    assert_eq!(get(edge, "/a"), (0, true), "the edge can't know");
    eventually("the violation is found", || count("violations") > 0);
}
