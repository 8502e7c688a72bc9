//! `polder cache`, and a site whose cache is switched on, against pools of two edges.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::pool::{PROGRAM, Pool, Recipe, Servers};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Answers each request with its number, for an hour, tagged.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, count) = (stream.unwrap(), Arc::clone(&count));
            std::thread::spawn(move || serve(&stream, &count));
        }
    });
    address
}

fn serve(stream: &TcpStream, count: &AtomicUsize) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if !line.is_empty() {
            continue;
        }
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nCache-Tag: t1\r\n";
        let length = number.to_string().len();
        let answer =
            format!("{head}X-Number: {number}\r\nContent-Length: {length}\r\n\r\n{number}");
        let mut stream = stream;
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn pool(site: &'static str) -> Pool {
    let mut recipe = Recipe::new(&[("red", site)], 1);
    recipe.servers = Servers::At(origin());
    recipe.start()
}

/// The number of the response, and whether the cache gave it.
fn get(edge: SocketAddr) -> (u64, bool) {
    let mut connection = Connection::open(edge).unwrap();
    let answer = connection.request("GET", "red.test", "/page").unwrap();
    let is_hit = answer.header("cache-status").contains("; hit");
    (answer.header("x-number").parse().unwrap(), is_hit)
}

/// Runs the program against the pool: exit code, standard output, standard error.
fn run(pool: &Pool, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(["--runtime-dir".as_ref(), pool.folder.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[track_caller]
fn done(pool: &Pool, arguments: &[&str]) -> String {
    let (code, text, error) = run(pool, arguments);
    assert_eq!(code, 0, "{arguments:?}: {error}");
    text
}

#[test]
fn all_edges_forget_what_is_purged() {
    let pool = pool("cache = { mode = \"http\" }");
    let url = "http://red.test/page";
    let purges: [&[&str]; 5] = [
        &["--url", url],
        &["--tag", "t1"],
        &["--tag", "t1", "--site", "red"],
        &["--site", "red"],
        &["--all"],
    ];
    for purge in purges {
        for &edge in &pool.edges {
            get(edge);
            assert!(get(edge).1, "it is kept");
        }
        let text = done(&pool, &[&["cache", "purge"], purge].concat());
        assert!(text.starts_with("all edges have forgotten"), "{text}");
        for &edge in &pool.edges {
            assert!(!get(edge).1, "{purge:?}");
        }
    }
    let told = done(&pool, &["cache", "explain", url]);
    assert_eq!(told.matches("red, mode http: 1 response").count(), 2, "{told}");
    assert!(told.contains("fresh for") && told.contains("tags t1"), "{told}");
    // In each round one, and in each but the first what the last one left.
    let stats = done(&pool, &["cache", "stats", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    for edge in ["0", "1"] {
        assert_eq!((&stats[edge]["hits"], &stats[edge]["purges"]), (&9.into(), &5.into()));
    }
    let text = done(&pool, &["cache", "stats"]);
    assert!(text.contains("edge 1: ") && text.contains("uri-miss"), "{text}");
    assert!(done(&pool, &["status"]).contains("Cache of edge 0: "));
    for &edge in &pool.edges {
        assert!(get(edge).1, "it is kept");
    }
    let text = done(&pool, &["cache", "purge", "--tag", "t1", "--soft"]);
    assert!(text.starts_with("all edges hold as stale"), "{text}");
    let told = done(&pool, &["cache", "explain", url]);
    assert_eq!(told.matches("purged softly").count(), 2, "{told}");
    for &edge in &pool.edges {
        assert!(!get(edge).1, "what is stale is asked about");
    }
    for wrong in [&["--url", "http://nobody.test/"], &["--url", "page"], &["--site", "blue"]] {
        let (code, _, error) = run(&pool, &[&["cache", "purge"], &wrong[..]].concat());
        assert!(code == 5 && !error.is_empty(), "{wrong:?}: {code} {error}");
    }
}

#[test]
fn a_cache_is_switched_on_while_the_pool_runs() {
    let pool = pool("");
    let edge = pool.edges[0];
    assert_eq!((get(edge), get(edge)), ((1, false), (2, false)));
    assert_eq!(done(&pool, &["cache", "stats"]), "no site has a cache\n");
    let (code, _, error) = run(&pool, &["site", "set", "red", "cache.mode=strict"]);
    assert!(code != 0 && error.contains("for a site without `tags`"), "{error}");
    done(&pool, &["site", "set", "red", "cache.mode=http"]);
    assert_eq!((get(edge), get(edge)), ((3, false), (3, true)));
    done(&pool, &["site", "set", "red", "cache.mode=off"]);
    assert_eq!((get(edge), get(edge)), ((4, false), (5, false)));
}
