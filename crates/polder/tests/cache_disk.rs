//! The disk tier of an edge's cache in a running pool: what memory gives up comes back from files,
//! also damaged ones harm nobody, and an edge that is killed leaves nothing behind.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::pool::{PROGRAM, Pool, Recipe, Servers};
use common::{eventually, process};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Four times what memory holds.
const PAGES: usize = 64;
const PAGE_BYTES: usize = 64 << 10;

/// Answers each request with a page that says which request of all it was.
fn origin() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, count) = (stream.unwrap(), Arc::clone(&all));
            std::thread::spawn(move || serve(&stream, &count));
        }
    });
    (address, count)
}

fn serve(mut stream: &TcpStream, count: &AtomicUsize) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if !line.is_empty() {
            continue;
        }
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let body = format!("{number:08}").repeat(PAGE_BYTES / 8);
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n";
        let answer = format!("{head}Content-Length: {PAGE_BYTES}\r\n\r\n{body}");
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn start(folder: &Path, server: SocketAddr) -> Pool {
    let mut recipe = Recipe::new(&[("red", "cache = { mode = \"http\" }")], 1);
    recipe.servers = Servers::At(server);
    recipe.edges = 1;
    recipe.http = format!(
        "cache_bytes = 1_048_576\ncache_disk_bytes = 33_554_432\ncache_disk_folder = \"{}\"\n",
        folder.display()
    );
    recipe.start()
}

/// The pages' numbers, and how many of them were hits.
fn get_all(pool: &Pool) -> (Vec<String>, usize) {
    let mut connection = Connection::open(pool.edges[0]).unwrap();
    let mut hits = 0;
    let get = |page| {
        let answer = connection.request("GET", "red.test", &format!("/{page}")).unwrap();
        hits += usize::from(answer.header("cache-status").contains("; hit"));
        let text = String::from_utf8(answer.body.clone()).unwrap();
        assert_eq!(text, text[..8].repeat(PAGE_BYTES / 8), "one page, whole");
        text[..8].to_owned()
    };
    let numbers = (0..PAGES).map(get).collect();
    (numbers, hits)
}

fn stats(pool: &Pool) -> serde_json::Value {
    let output = Command::new(PROGRAM)
        .args(["cache", "stats", "--json", "--runtime-dir"])
        .arg(&pool.folder)
        .output()
        .unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    all["0"]["disk"].clone()
}

/// What `polder cache explain` says of a page.
fn explained(pool: &Pool, page: usize) -> serde_json::Value {
    let output = Command::new(PROGRAM)
        .args(["cache", "explain", "--json", &format!("http://red.test/{page}"), "--runtime-dir"])
        .arg(&pool.folder)
        .output()
        .unwrap();
    let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    all[0].clone()
}

/// Each page is told of, wherever it lies, and stays there.
fn explain_all(pool: &Pool) {
    let before = stats(pool);
    let all: Vec<_> = (0..PAGES).map(|page| explained(pool, page)).collect();
    for told in &all {
        assert_eq!(told["stored"].as_array().unwrap().len(), 1, "{told}");
        let one = &told["stored"][0];
        assert_eq!((&one["status"], &one["body_bytes"]), (&200.into(), &PAGE_BYTES.into()));
        assert!(one["ttl_s"].as_i64().unwrap() > 0 && told["unread"] == false, "{told}");
    }
    let on_disk = all.iter().filter(|told| told["stored"][0]["on_disk"] == true).count();
    assert!((40..PAGES).contains(&on_disk), "{on_disk}");
    assert_eq!(stats(pool), before, "nothing has come back");
}

fn settle(pool: &Pool) {
    eventually("all that memory has given up is in files", || stats(pool)["waiting"] == 0);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let own = fs::read_dir(folder).unwrap();
    let all = own.flat_map(|own| fs::read_dir(own.unwrap().path()).unwrap());
    all.map(|file| file.unwrap().path()).collect()
}

#[test]
fn what_memory_gives_up_comes_back_and_an_edge_that_dies_leaves_nothing() {
    let folder = tempfile::TempDir::new().unwrap();
    let (server, asked) = origin();
    let pool = start(folder.path(), server);
    let (first, _) = get_all(&pool);
    settle(&pool);
    explain_all(&pool);
    let (second, hits) = get_all(&pool);
    assert_eq!((second, hits), (first.clone(), PAGES), "each from memory or disk");
    assert_eq!(asked.load(Ordering::SeqCst), PAGES);
    settle(&pool);
    let all = files(folder.path());
    assert!(all.len() > 40, "{}", all.len());
    for path in &all {
        fs::write(path, "damaged").unwrap();
    }
    let (third, hits) = get_all(&pool);
    assert!(hits < PAGES - 40 && third != first, "{hits} hits");
    assert!(stats(&pool)["damaged"].as_u64().unwrap() > 40);

    let pid = pool.edge_process(0).unwrap();
    assert!(process::signal(pid, Signal::KILL));
    eventually("another edge serves", || {
        pool.edge_process(0).is_some_and(|now| now != pid)
            && Connection::open(pool.edges[0])
                .is_ok_and(|mut connection| connection.request("GET", "red.test", "/0").is_ok())
    });
    eventually("the dead one's folder is gone", || {
        fs::read_dir(folder.path()).unwrap().count() == 1
    });
    let (_, hits) = get_all(&pool);
    assert!(hits <= 1, "nobody knows what was purged meanwhile: {hits}");
}
