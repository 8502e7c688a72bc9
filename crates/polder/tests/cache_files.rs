//! Files of a real static server in two edges' caches, in mode `strict`: what changes on the disk
//! is asked for anew within a moment, whoever changes it in whatever way.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::pool::{Pool, Recipe, Servers};
use common::{eventually, process};
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a change may take on a machine that is busy with other tests; without them it is within a
/// second.
const BOUND: Duration = Duration::from_secs(20);

/// nginx over a folder of files.
struct Nginx {
    child: Child,
    address: SocketAddr,
    place: TempDir,
}

impl Nginx {
    /// None, and a word about it, where it is not installed.
    fn start() -> Option<Self> {
        let place = TempDir::new().unwrap();
        fs::create_dir(place.path().join("www")).unwrap();
        let address = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let at = place.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};\n"))
            .concat();
        let settings = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/log;\n\
             events {{ }}\nhttp {{ access_log off;\n{temporary}\
             server {{ listen {address}; root {at}/www;\n\
             location / {{ try_files $uri $uri.html $uri/ /index.html =404; }} }} }}\n"
        );
        fs::write(place.path().join("settings"), settings).unwrap();
        let paths = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("nginx");
        command.arg("-c").arg(place.path().join("settings")).env("PATH", paths);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: no nginx ({error})");
                return None;
            }
        };
        let nginx = Self { child, address, place };
        eventually("nginx listens", || TcpStream::connect(nginx.address).is_ok());
        Some(nginx)
    }

    fn root(&self) -> PathBuf {
        self.place.path().join("www")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Site {
    pool: Pool,
    nginx: Nginx,
}

impl Site {
    fn start(files: &[(&str, &str)]) -> Option<Self> {
        let nginx = Nginx::start()?;
        for (path, text) in files {
            write(&nginx.root().join(path), text);
        }
        let root = nginx.root();
        let lines = format!(
            "tags = 65_536\nfiles = \"{}\"\ncache = {{ mode = \"strict\" }}",
            root.display()
        );
        // For as long as the test runs.
        let mut recipe = Recipe::new(&[("red", Box::leak(lines.into_boxed_str()))], 1);
        recipe.servers = Servers::At(nginx.address);
        Some(Self { pool: recipe.start(), nginx })
    }

    fn at(&self, path: &str) -> PathBuf {
        self.nginx.root().join(path)
    }

    /// Status and text, and whether the cache gave them.
    fn get(&self, edge: usize, path: &str) -> (String, bool) {
        let mut connection = Connection::open(self.pool.edges[edge]).unwrap();
        let answer = connection.request("GET", "red.test", path).unwrap();
        let said = answer.header("cache-status");
        let is_hit = said.contains("; hit");
        assert!(!is_hit || said.contains("detail=bounded"), "{said}");
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        (if answer.status == 200 { text } else { answer.status.to_string() }, is_hit)
    }

    /// Both edges keep what this path shows.
    fn is_kept(&self, path: &str, text: &str) {
        for edge in 0..2 {
            eventually("it is kept", || self.get(edge, path).1);
            assert_eq!(self.get(edge, path).0, text, "{path} at edge {edge}");
        }
    }

    /// Whatever was kept, both edges show this before long, and keep it then.
    #[track_caller]
    fn becomes(&self, path: &str, text: &str) {
        let since = Instant::now();
        for edge in 0..2 {
            while self.get(edge, path).0 != text {
                let shown = self.get(edge, path);
                assert!(since.elapsed() < BOUND, "{path} at edge {edge} is {shown:?}, not {text}");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        println!("{path}: {:?}", since.elapsed());
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn what_changes_on_the_disk_is_asked_for_anew() {
    let files = [("a/page.html", "one"), ("a/other.html", "other"), ("a/b/c/deep", "deep")];
    let Some(site) = Site::start(&files) else { return };
    for (path, text) in [("/a/page.html", "one"), ("/a/page", "one"), ("/a/page.html?x=1", "one")] {
        site.is_kept(path, text);
    }
    site.is_kept("/a/other.html", "other");
    fs::write(site.at("next"), "two").unwrap();
    fs::rename(site.at("next"), site.at("a/page.html")).unwrap();
    for path in ["/a/page.html", "/a/page", "/a/page.html?x=1"] {
        site.becomes(path, "two");
        site.is_kept(path, "two");
    }
    assert!(site.get(0, "/a/other.html").1, "no other file was asked for again");

    fs::write(site.at("a/page.html"), "three").unwrap();
    site.becomes("/a/page.html", "three");
    fs::remove_file(site.at("a/page.html")).unwrap();
    site.becomes("/a/page.html", "404");
    site.becomes("/a/page", "404");
    fs::write(site.at("a/page"), "four").unwrap();
    site.becomes("/a/page", "four");

    // What is answered where nothing is: the index of the root.
    site.becomes("/nothing/here", "404");
    fs::write(site.at("index.html"), "index").unwrap();
    site.becomes("/nothing/here", "index");
    site.becomes("/", "index");

    // A folder that comes with what is in it, one that moves, and one that goes.
    site.is_kept("/a/b/c/deep", "deep");
    write(&site.nginx.place.path().join("made/x/new"), "new");
    site.becomes("/made/x/new", "index");
    fs::rename(site.nginx.place.path().join("made"), site.at("made")).unwrap();
    site.becomes("/made/x/new", "new");
    fs::write(site.at("made/x/new"), "newer").unwrap();
    site.becomes("/made/x/new", "newer");
    fs::rename(site.at("a/b"), site.at("made/b")).unwrap();
    site.becomes("/a/b/c/deep", "index");
    site.becomes("/made/b/c/deep", "deep");
    fs::remove_dir_all(site.at("made")).unwrap();
    site.becomes("/made/b/c/deep", "index");
}

#[test]
fn nothing_is_missed_while_nobody_watches() {
    let Some(site) = Site::start(&[("page", "one")]) else { return };
    site.is_kept("/page", "one");
    let pid = site.pool.writers_process().unwrap();
    assert!(process::signal(pid, Signal::STOP));
    fs::write(site.at("page"), "two").unwrap();
    assert!(process::signal(pid, Signal::KILL));
    site.becomes("/page", "two");
    eventually("another process watches", || {
        site.pool.writers_process().is_some_and(|now| now != pid)
    });
    site.is_kept("/page", "two");
    fs::write(site.at("page"), "three").unwrap();
    site.becomes("/page", "three");
}
