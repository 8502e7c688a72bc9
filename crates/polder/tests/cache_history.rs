//! Every page that two edges give, checked against the order of commits, while edges, agents,
//! writers and whoever answers them are killed. `POLDER_HISTORY_OPERATIONS=n` makes it longer.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::pool::{PROGRAM, Pool, Recipe, Servers};
use common::{eventually, process};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use writers::Client;

const ANSWER: Duration = Duration::from_secs(20);
/// Reads and updates, unless the variable says otherwise.
const OPERATIONS: u64 = 200_000;
/// The same with writers that are wrong.
const OPERATIONS_OF_LATE: u64 = 20_000;
const VARIABLE: &str = "POLDER_HISTORY_OPERATIONS";
/// Each page shows a row of its own and one that others show too.
const PAGES: usize = 256;
const SHARED: usize = 32;
const READERS_OF_AN_EDGE: usize = 6;
const WRITERS: u64 = 4;
/// Of a writer's process, killed after so many updates at the most.
const LIFE_UPDATES: u64 = 60;
/// Processes of the pool that are killed, evenly over the operations.
const KILLS: u64 = 24;
const SITES: [(&str, &str); 2] = [
    ("red", "nodes = 1\ntags = 65536\ncache = { mode = \"strict\", source = \"linearizable\" }"),
    ("blue", "nodes = 1"),
];

/// A number that looks like chance; each user has its own beginning.
fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state % bound as u64) as usize
}

/// What is committed, and what was counted.
struct Database {
    /// Whether writers commit before they begin.
    is_late: bool,
    pages: Vec<AtomicU64>,
    shared: Vec<AtomicU64>,
    operations: u64,
    reads: AtomicU64,
    hits: AtomicU64,
    /// Requests that were answered by none, or by another status.
    unanswered: AtomicU64,
    renders: AtomicU64,
    commits: AtomicU64,
    rollbacks: AtomicU64,
    writers_killed: AtomicU64,
    settled: AtomicU64,
    /// Pages that were older than what was committed before they were asked for.
    stale: Mutex<Vec<String>>,
    /// Readers and writers end.
    is_over: AtomicBool,
}

impl Database {
    fn new(operations: u64, is_late: bool) -> Self {
        let rows = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let zero = || AtomicU64::new(0);
        Self {
            is_late,
            pages: rows(PAGES),
            shared: rows(SHARED),
            operations,
            reads: zero(),
            hits: zero(),
            unanswered: zero(),
            renders: zero(),
            commits: zero(),
            rollbacks: zero(),
            writers_killed: zero(),
            settled: zero(),
            stale: Mutex::default(),
            is_over: AtomicBool::new(false),
        }
    }

    fn done(&self) -> u64 {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        of(&self.reads) + of(&self.commits) + of(&self.rollbacks)
    }

    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed) && self.done() < self.operations
    }

    /// What a page shows if it is made now.
    fn committed(&self, page: usize) -> (u64, u64) {
        let read = |row: &AtomicU64| row.load(Ordering::SeqCst);
        (read(&self.pages[page]), read(&self.shared[page % SHARED]))
    }

    /// Commits an update of these tags.
    fn commit(&self, tags: &str) {
        for tag in tags.split(' ') {
            let (kind, row) = tag.split_once(':').unwrap();
            let row: usize = row.parse().unwrap();
            let rows = if kind == "page" { &self.pages } else { &self.shared };
            rows[row].fetch_add(1, Ordering::SeqCst);
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// The origin: reads the rows of a page, now and then renders for a while, and answers.
    fn serve(&self, stream: &TcpStream) {
        let mut chance = u64::from(stream.peer_addr().unwrap().port()) << 20 | 1;
        let mut lines = BufReader::new(stream).lines();
        let mut page = 0;
        while let Some(Ok(line)) = lines.next() {
            if let Some(rest) = line.strip_prefix("GET /") {
                page = rest.split(' ').next().unwrap().parse().unwrap();
            }
            if !line.is_empty() {
                continue;
            }
            self.renders.fetch_add(1, Ordering::Relaxed);
            let (own, shared) = self.committed(page);
            if below(&mut chance, 4) == 0 {
                std::thread::sleep(Duration::from_micros(below(&mut chance, 8_000) as u64));
            }
            let body = format!("{own} {shared}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nSurrogate-Key: page:{page} \
                 shared:{}\r\nContent-Length: {}\r\n\r\n{body}",
                page % SHARED,
                body.len()
            );
            let mut stream = stream;
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// One client: asks, and compares with what was committed before it asked.
    fn read(&self, edge: SocketAddr, mut chance: u64) {
        let mut connection = None;
        while self.goes_on() {
            let Some(connected) = &mut connection else {
                connection = Connection::open(edge).ok();
                if connection.is_none() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                continue;
            };
            // The lower, the more popular.
            let page = below(&mut chance, PAGES).min(below(&mut chance, PAGES));
            let before = self.committed(page);
            match connected.request("GET", "red.test", &format!("/{page}")) {
                Ok(answer) if answer.status == 200 => {
                    self.reads.fetch_add(1, Ordering::Relaxed);
                    let status = answer.header("cache-status");
                    let found = shown(&answer.body);
                    if found.0 < before.0 || found.1 < before.1 {
                        let what = format!("page {page} is {found:?} after {before:?}: {status}");
                        self.stale.lock().unwrap().push(what);
                    }
                    let is_hit = status.contains("; hit");
                    self.hits.fetch_add(u64::from(is_hit), Ordering::Relaxed);
                }
                other => {
                    self.unanswered.fetch_add(1, Ordering::Relaxed);
                    if other.is_err() {
                        connection = None;
                    }
                }
            }
        }
    }

    /// The database's side of one writer's process after the other, each of which is killed.
    fn write(&self, pool: &Pool, number: u64) {
        let mut chance = number << 32 | 0x9e37;
        for life in 0.. {
            if !self.goes_on() {
                return;
            }
            let mut writer = Writer::start(pool, number * 1_000 + life, self.is_late);
            let last = below(&mut chance, LIFE_UPDATES as usize) as u64 + 5;
            let is_dead = self.converse(&mut writer, last, &mut chance);
            drop(writer.say.take());
            let pid = writer.child.id();
            writer.child.wait().unwrap();
            if is_dead {
                self.writers_killed.fetch_add(1, Ordering::Relaxed);
                self.settle(pool, pid);
            }
        }
    }

    /// Answers a writer until it is killed, within its update number `last`; false if all ended
    /// before. When this returns, its transactions are decided.
    fn converse(&self, writer: &mut Writer, last: u64, chance: &mut u64) -> bool {
        for update in 0.. {
            let mut tags = String::new();
            if writer.hear.read_line(&mut tags).unwrap() == 0 || !self.goes_on() {
                return false;
            }
            let (dies, at) = (update == last, below(chance, 4));
            if dies && at == 0 {
                // Between begin and commit; and the commit may have been on its way.
                writer.child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_micros(below(chance, 3_000) as u64));
            let commits = below(chance, 10) > 0;
            if commits {
                self.commit(tags.trim());
            } else {
                self.rollbacks.fetch_add(1, Ordering::Relaxed);
            }
            if dies && at == 1 {
                writer.child.kill().unwrap();
            }
            let answer = if commits { "committed\n" } else { "rolled back\n" };
            let told = writer.say.as_mut().unwrap().write_all(answer.as_bytes());
            if dies && at > 1 {
                // Within end, behind it, or within the next begin.
                std::thread::sleep(Duration::from_micros(below(chance, 2_000) as u64));
                writer.child.kill().unwrap();
            }
            if dies {
                return true;
            }
            told.unwrap();
        }
        unreachable!("a writer has a last update");
    }

    /// What a dead process left: its transactions are decided.
    fn settle(&self, pool: &Pool, pid: u32) {
        let Ok(told) = polder(pool, &["cache", "pending", "--json"]) else { return };
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        for writer in all_writers(&told) {
            if writer["pid"] == pid {
                let name = writer["writer"].as_str().unwrap();
                // Whoever answers may just have been killed: then it is settled at the end.
                if polder(pool, &["cache", "settle", name]).is_ok() {
                    self.settled.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The objects with a `writer`, wherever they stand.
fn all_writers(told: &serde_json::Value) -> Vec<&serde_json::Value> {
    match told {
        serde_json::Value::Object(object) if object.contains_key("writer") => vec![told],
        serde_json::Value::Object(object) => object.values().flat_map(all_writers).collect(),
        serde_json::Value::Array(array) => array.iter().flat_map(all_writers).collect(),
        _ => Vec::new(),
    }
}

fn shown(body: &[u8]) -> (u64, u64) {
    let text = std::str::from_utf8(body).unwrap();
    let (own, shared) = text.split_once(' ').unwrap();
    (own.parse().unwrap(), shared.parse().unwrap())
}

/// A writer's process, and the pipes by which it has the database commit.
struct Writer {
    child: Child,
    hear: BufReader<std::process::ChildStdout>,
    say: Option<std::process::ChildStdin>,
}

impl Writer {
    fn start(pool: &Pool, seed: u64, is_late: bool) -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let mut child = Command::new("/usr/bin/python3")
            .arg(tests.join("cache_history.py"))
            .arg(tell(pool))
            .arg(tests.join("../../../clients/python"))
            .args([PAGES.to_string(), SHARED.to_string(), seed.to_string()])
            .args(is_late.then_some("late"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hear = BufReader::new(child.stdout.take().unwrap());
        let say = child.stdin.take();
        Self { child, hear, say }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Where a test fails: else it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tell(pool: &Pool) -> PathBuf {
    pool.folder.join("tell-red.sock")
}

fn polder(pool: &Pool, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(["--runtime-dir".as_ref(), pool.folder.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn start(database: &Arc<Database>) -> Pool {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut recipe = Recipe::new(&SITES, 2);
    recipe.servers = Servers::AtFirst(listener.local_addr().unwrap());
    recipe.max_in_flight = 64;
    // Nodes stay: blue's are there for their agents.
    recipe.pool = "policy = \"rigid\"".to_owned();
    let database = Arc::clone(database);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, database) = (stream.unwrap(), Arc::clone(&database));
            std::thread::spawn(move || database.serve(&stream));
        }
    });
    let pool = recipe.start();
    eventually("writers are answered", || Client::connect(&tell(&pool), ANSWER).is_ok());
    pool
}

/// Kills one process after the other; how many of edges, agents and those who answer writers.
fn kill_in_turn(pool: &Pool, database: &Database) -> [u64; 3] {
    let mut killed = [0; 3];
    for kill in 1..=KILLS {
        while database.goes_on() && database.done() < database.operations * kill / (KILLS + 1) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (what, victim) = match kill % 4 {
            0 => (0, pool.edge_process(0)),
            1 => (2, pool.writers_process()),
            2 => (0, pool.edge_process(1)),
            _ => (1, pool.agent(1)),
        };
        // One that was killed before may not be back yet.
        if victim.is_some_and(|pid| process::signal(pid, Signal::KILL)) {
            killed[what] += 1;
        }
    }
    killed
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// All are busy until there were enough operations.
fn live(pool: &Pool, database: &Database) -> [u64; 3] {
    std::thread::scope(|scope| {
        // Also where something below fails: the others must end.
        let ends = Ends(&database.is_over);
        let mut threads = Vec::new();
        for (number, &edge) in pool.edges.iter().enumerate() {
            for reader in 1..=READERS_OF_AN_EDGE {
                let seed = (number * READERS_OF_AN_EDGE + reader) as u64 * 0x9e37_79b9;
                threads.push(scope.spawn(move || {
                    let _ends = Ends(&database.is_over);
                    database.read(edge, seed);
                }));
            }
        }
        for number in 1..=WRITERS {
            threads.push(scope.spawn(move || database.write(pool, number)));
        }
        let killed = kill_in_turn(pool, database);
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        drop(ends);
        assert!(ended.iter().all(Result::is_ok), "a reader or a writer has failed; see above");
        killed
    })
}

/// Nothing is pending any more, and every page is a hit at every edge.
fn assert_healed(pool: &Pool, database: &Database) {
    eventually("what was left is settled", || {
        polder(pool, &["cache", "settle", "--disconnected"]).is_ok()
            && Client::connect(&tell(pool), ANSWER)
                .is_ok_and(|mut owner| owner.pending().is_ok_and(|(left, _)| left.is_empty()))
    });
    eventually("all are back", || pool.is_serving());
    for &edge in &pool.edges {
        let mut connection = Connection::open(edge).unwrap();
        for page in 0..PAGES {
            let mut get = || connection.request("GET", "red.test", &format!("/{page}")).unwrap();
            get();
            let answer = get();
            let status = answer.header("cache-status");
            assert!(status.contains("; hit"), "page {page}: {status}");
            assert_eq!(shown(&answer.body), database.committed(page), "page {page}");
        }
    }
}

#[test]
fn no_page_of_two_edges_is_older_than_what_was_committed() {
    let given = std::env::var(VARIABLE).ok().map(|text| text.parse().unwrap());
    let database = Arc::new(Database::new(given.unwrap_or(OPERATIONS), false));
    let pool = start(&database);
    let started = Instant::now();
    let [edges, agents, tellers] = live(&pool, &database);
    let took_s = started.elapsed().as_secs_f64();
    assert_healed(&pool, &database);
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (reads, hits) = (of(&database.reads), of(&database.hits));
    let (commits, rollbacks) = (of(&database.commits), of(&database.rollbacks));
    let (writers, settled) = (of(&database.writers_killed), of(&database.settled));
    println!(
        "{} operations in {took_s:.1} s: {reads} reads, {:.1} % hits, {} unanswered; {commits} \
         commits, {rollbacks} rollbacks; {} pages rendered; killed: {edges} edges, {agents} \
         agents, {tellers} who answer writers, {writers} writers, {settled} of them settled",
        database.done(),
        100.0 * hits as f64 / reads as f64,
        of(&database.unanswered),
        of(&database.renders),
    );
    assert_eq!(*database.stale.lock().unwrap(), Vec::<String>::new());
    assert!(hits * 2 >= reads, "{hits} hits of {reads} reads");
    assert!(commits > 0 && rollbacks > 0 && settled > 0);
    assert!(edges > 0 && agents > 0 && tellers > 0 && writers > 0);
}

/// The check would notice: these writers tell only after their commit.
#[test]
fn writers_that_tell_too_late_are_found_out() {
    let database = Arc::new(Database::new(OPERATIONS_OF_LATE, true));
    let pool = start(&database);
    live(&pool, &database);
    let stale = database.stale.lock().unwrap();
    println!("{} of {} reads are stale", stale.len(), database.reads.load(Ordering::Relaxed));
    assert!(!stale.is_empty());
}
