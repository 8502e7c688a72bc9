//! Writers tell a running pool of changes: over the socket, by commands, with every client, and
//! with processes that die in between.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::pool::{PROGRAM, Pool, Recipe, up};
use common::{eventually, process};
use polder::control::{Request, UpgradeArguments};
use remote_memory::shm::{self, Attachment};
use rustix::process::Signal;
use shared_state::versions::{Filled, Slot, VersionTable};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use writers::line::{Token, Whose};
use writers::{Client, ClientError, Ended};

const ANSWER: Duration = Duration::from_secs(20);
const SITES: [(&str, &str); 2] = [("shop", "tags = 4096\n"), ("blog", "")];

fn start() -> Pool {
    let pool = Recipe::new(&SITES, 2).start();
    wait_told(&pool);
    pool
}

fn socket(pool: &Pool) -> PathBuf {
    pool.folder.join("tell-shop.sock")
}

fn wait_told(pool: &Pool) {
    eventually("writers are answered", || {
        Client::connect(&socket(pool), ANSWER).is_ok_and(|mut one| one.pending().is_ok())
    });
}

fn connect(pool: &Pool) -> Client {
    let mut connected = None;
    eventually("the writers' socket", || {
        connected = Client::connect(&socket(pool), ANSWER).ok();
        connected.is_some()
    });
    connected.unwrap()
}

/// The table, as an edge maps it.
fn table(pool: &Pool) -> (VersionTable, Attachment) {
    let attachment = shm::attach(pool.folder.join("tags-shop.sock"), ANSWER).unwrap();
    (VersionTable::open(attachment.region()).unwrap(), attachment)
}

fn is_valid(table: &VersionTable, filled: Filled, tag: &str) -> bool {
    table.is_valid(filled, &table.slots_of(&[tag]))
}

/// Runs the program against the pool: exit code, standard output, standard error.
fn polder(pool: &Pool, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .args(["--runtime-dir".as_ref(), pool.folder.as_os_str()])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

#[test]
fn a_pool_that_is_ready_answers_the_writers_of_all_sites() {
    let home = tempfile::tempdir().unwrap();
    let (out, own) = (home.path().join("out"), home.path().join("own.sock"));
    let shop = format!("tags = 4096\nwriters_socket = \"{}\"\n", own.display());
    let mut recipe = Recipe::new(&[("shop", &*shop.leak()), ("blog", "tags = 4096\n")], 2);
    let line = format!("exec {PROGRAM} up \"$0\" >{}", out.display());
    recipe.command = Some(vec!["sh".to_owned(), "-c".to_owned(), line]);
    let pool = recipe.launch();
    let said = || std::fs::read_to_string(&out).unwrap_or_default();
    eventually("the pool says that it is up", || said().contains("Pool "));
    assert!(said().contains("is ready"), "{}", said());
    for socket in [socket(&pool), pool.folder.join("tell-blog.sock"), own] {
        Client::connect(&socket, ANSWER).unwrap().pending().unwrap();
    }
}

fn kill_writers_process(pool: &Pool) {
    let pid = pool.writers_process().expect("it runs");
    assert!(process::signal(pid, Signal::KILL));
    eventually("another process answers writers", || {
        pool.writers_process().is_some_and(|now| now != pid)
    });
    wait_told(pool);
}

#[test]
fn commands_invalidate_and_settle() {
    let pool = start();
    let (table, _attachment) = table(&pool);
    let filled = table.fill().unwrap();
    let (code, text, _) = polder(&pool, &["invalidate", "a", "b", "--site", "shop"]);
    assert_eq!((code, text.as_str()), (0, "2 tags of site shop invalidated\n"));
    assert!(!is_valid(&table, filled, "a") && is_valid(&table, filled, "c"));
    let mut client = connect(&pool);
    client.begin(&["c"]).unwrap();
    let (code, text, _) = polder(&pool, &["cache", "pending"]);
    let own = std::process::id().to_string();
    assert!(code == 0 && text.contains(&own) && text.contains("open"), "{text}");
    drop(client);
    eventually("the connection's end is known", || {
        polder(&pool, &["cache", "pending"]).1.contains("ended")
    });
    assert!(!is_valid(&table, table.fill().unwrap(), "c"), "no closed socket settles anything");
    let (_, json, _) = polder(&pool, &["cache", "pending", "--json"]);
    let writer = json.split("\"writer\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let (code, text, _) = polder(&pool, &["cache", "settle", &writer]);
    assert_eq!((code, text.as_str()), (0, "1 writer of site shop settled\n"));
    assert!(is_valid(&table, table.fill().unwrap(), "c"));
    let (code, text, _) = polder(&pool, &["cache", "settle", &writer, "--site", "shop"]);
    assert_eq!((code, text.as_str()), (0, "nothing of theirs is pending at site shop\n"));
    let (_, text, _) = polder(&pool, &["cache", "pending"]);
    assert_eq!(text, "no writer of site shop is between begin and end\n");
    for (arguments, code, words) in [
        (&["cache", "settle"][..], 2, "WRITER"),
        (&["cache", "settle", "x"], 2, "no writer"),
        (&["invalidate", "a", "--site", "blog"], 4, "sites that have: shop"),
        (&["invalidate", "a\nb"], 2, "control character"),
    ] {
        let (found, _, error) = polder(&pool, arguments);
        assert!(found == code && error.contains(words), "{arguments:?}: {found} {error}");
    }
}

#[test]
fn an_update_outlives_whoever_answered_it_and_the_program() {
    let pool = start();
    let (table, attachment) = table(&pool);
    let before = table.fill().unwrap();
    let token = connect(&pool).begin(&["a", "b"]).unwrap();
    kill_writers_process(&pool);
    assert!(!is_valid(&table, table.fill().unwrap(), "a") && attachment.owner_alive());
    assert!(is_valid(&table, before, "c"), "its entries are as good as before");
    let mut client = connect(&pool);
    let other = client.begin(&["c"]).unwrap();
    assert_eq!(client.end(token).unwrap(), Ended::Now);
    assert_eq!(client.end(token).unwrap(), Ended::Before);
    assert!(is_valid(&table, table.fill().unwrap(), "a"));
    // Another program: the table stays, and so does what is pending.
    let pid = pool.writers_process();
    let _ = pool.try_ask(&Request::Upgrade(UpgradeArguments::default()));
    eventually("another process answers writers", || {
        pool.writers_process().is_some_and(|now| Some(now) != pid)
    });
    eventually("the upgrade is done", || {
        let change = pool.try_status().ok().and_then(|status| status.pool.change);
        change.is_some_and(|change| change.succeeded == Some(true))
    });
    wait_told(&pool);
    assert!(!is_valid(&table, table.fill().unwrap(), "c"));
    assert_eq!(connect(&pool).end(other).unwrap(), Ended::Now);
    assert!(is_valid(&table, table.fill().unwrap(), "c"));
    let (again, _attachment) = self::table(&pool);
    assert_eq!(again.incarnation(), table.incarnation());
}

#[test]
fn after_a_killed_pool_no_hit_is_served_until_its_owner_says_so() {
    let pool = start();
    let (table, attachment) = table(&pool);
    let token = connect(&pool).begin(&["a"]).unwrap();
    assert!(process::signal(pool.pid(), Signal::KILL));
    eventually("all of it has ended", || pool.processes().is_empty());
    let log = pool.home().join("log-2");
    let mut next = up(&pool.file, &log);
    pool_is_told(&log, "writers wait until edges of an earlier run have ended");
    // This test maps the lost table as a late edge would.
    assert!(Client::connect(&socket(&pool), ANSWER).is_err(), "no update may begin yet");
    drop((table, attachment));
    wait_told(&pool);
    let (table, _attachment) = self::table(&pool);
    assert_eq!(table.fill(), None);
    let mut client = connect(&pool);
    assert_eq!(client.end(token).unwrap(), Ended::Before);
    client.invalidate(&["a"]).unwrap();
    let (_, text, _) = polder(&pool, &["cache", "pending"]);
    assert!(text.contains("polder cache settle --earlier --site shop"), "{text}");
    let (code, text, _) = polder(&pool, &["cache", "settle", "--earlier"]);
    assert_eq!((code, text.as_str()), (0, "site shop serves hits from now on\n"));
    assert!(is_valid(&table, table.fill().unwrap(), "a"));
    assert!(process::signal(next.id(), Signal::TERM));
    next.wait().unwrap();
    assert!(!pool.folder.join("tags-shop.mark").exists(), "all is decided");
}

fn pool_is_told(log: &Path, words: &str) {
    eventually(words, || std::fs::read_to_string(log).unwrap_or_default().contains(words));
}

/// Rows that writers change and readers read, in the order of their commits.
struct Rows {
    rows: Vec<AtomicU64>,
    updates: AtomicU64,
    hits: AtomicU64,
    reads: AtomicU64,
    ended: AtomicBool,
}

/// Updates of the history check, and rows that they change.
const UPDATES: u64 = 100_000;
const ROWS: usize = 512;
/// When whoever answers is killed.
const KILLS: [u64; 2] = [30_000, 60_000];

/// A number that looks like chance; each writer has its own beginning.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Rows {
    /// One writer: begin, commit, end, until there were enough updates. It connects anew whenever
    /// its connection breaks, and ends what it has begun.
    fn write(&self, path: &Path, mut chance: u64) {
        let mut client = None;
        while self.updates.fetch_add(1, Ordering::Relaxed) < UPDATES {
            let row = next(&mut chance) as usize % ROWS;
            let tags = [format!("row:{row}"), format!("table:{}", row % 7)];
            // A begin whose answer was lost stays pending, as a dead writer's does.
            let Some(token) = until_done(path, &mut client, |client| client.begin(&tags)) else {
                continue;
            };
            let commits = !next(&mut chance).is_multiple_of(10);
            if commits {
                self.rows[row].fetch_add(1, Ordering::SeqCst);
            }
            let end = |client: &mut Client| match commits {
                true => client.end(token),
                false => client.abort(token),
            };
            // Again and again: the commit is made.
            while until_done(path, &mut client, end).is_none() {}
        }
    }

    /// One reader: a cache of a page per row, filled from the row, and proved at each hit.
    fn read(&self, table: &VersionTable, mut chance: u64) {
        let mut cache: Vec<Option<(Filled, Vec<Slot>, u64)>> = vec![None; ROWS];
        while !self.ended.load(Ordering::Relaxed) {
            let row = next(&mut chance) as usize % ROWS;
            let committed = self.rows[row].load(Ordering::SeqCst);
            let valid =
                |(filled, slots, _): &&(Filled, Vec<Slot>, u64)| table.is_valid(*filled, slots);
            self.reads.fetch_add(1, Ordering::Relaxed);
            if let Some((_, _, page)) = cache[row].as_ref().filter(valid) {
                assert!(*page >= committed, "row {row}: a page of {page}, committed {committed}");
                self.hits.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let slots = table.slots_of(&[format!("row:{row}")]);
            cache[row] =
                table.fill().map(|filled| (filled, slots, self.rows[row].load(Ordering::SeqCst)));
        }
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does it over a connection that is there or can be had; none where that broke.
fn until_done<T>(
    path: &Path,
    client: &mut Option<Client>,
    ask: impl Fn(&mut Client) -> Result<T, ClientError>,
) -> Option<T> {
    if client.is_none() {
        *client = Client::connect(path, ANSWER).ok();
    }
    let Some(connected) = client.as_mut() else {
        std::thread::sleep(Duration::from_millis(5));
        return None;
    };
    match ask(connected) {
        Ok(done) => Some(done),
        Err(ClientError::Io(_)) => {
            *client = None;
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn no_reader_of_a_hundred_thousand_updates_gets_an_older_page() {
    let pool = start();
    let (table, _attachment) = table(&pool);
    let row = |_| AtomicU64::new(0);
    let rows = Rows {
        rows: (0..ROWS).map(row).collect(),
        updates: AtomicU64::new(0),
        hits: AtomicU64::new(0),
        reads: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    };
    let path = socket(&pool);
    std::thread::scope(|scope| {
        // Also where something below fails: the readers must end.
        let ends = Ends(&rows.ended);
        let writers: Vec<_> = (1..=4)
            .map(|n| {
                scope.spawn({
                    let (rows, path) = (&rows, &path);
                    move || rows.write(path, n)
                })
            })
            .collect();
        for number in 10..12 {
            let (rows, table) = (&rows, &table);
            scope.spawn(move || rows.read(table, number));
        }
        for kill in KILLS {
            eventually("the writers go on", || rows.updates.load(Ordering::Relaxed) > kill);
            kill_writers_process(&pool);
        }
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        drop(ends);
        assert!(ended.iter().all(Result::is_ok));
    });
    let (hits, reads) = (rows.hits.load(Ordering::Relaxed), rows.reads.load(Ordering::Relaxed));
    println!("{UPDATES} updates, {reads} reads, {hits} hits");
    assert!(hits * 2 > reads, "{hits} hits of {reads} reads");
    // At most what each kill cut off in the middle of a begin is left.
    let mut owner = connect(&pool);
    let (pending, is_open) = owner.pending().unwrap();
    assert!(is_open && pending.len() <= 4 * KILLS.len(), "{pending:?}");
    assert_eq!(owner.settle(Whose::Disconnected).unwrap(), pending.len());
    let filled = table.fill().unwrap();
    assert!((0..ROWS).all(|row| is_valid(&table, filled, &format!("row:{row}"))));
}

/// A writer as a process of its own: begins an update, says so, and waits to be killed.
#[test]
fn what_a_killed_writer_began_stays_pending_until_it_is_settled() {
    let pool = start();
    let (table, _attachment) = table(&pool);
    let script = "import socket,sys,time\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(b'begin killed\\n')\nprint(s.recv(99).decode(),flush=True)\n\
                  time.sleep(600)";
    let mut writer = Command::new("python3")
        .args(["-c", script])
        .arg(socket(&pool))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(writer.stdout.as_mut().unwrap()),
        &mut told,
    )
    .unwrap();
    let token = Token::parse(told.trim().strip_prefix("ok ").unwrap().as_bytes()).unwrap();
    let pid = writer.id();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let mut owner = connect(&pool);
    let mut left = Vec::new();
    eventually("its end is known", || {
        left = owner.pending().unwrap().0;
        left.len() == 1 && !left[0].is_connected
    });
    assert!(left[0].words == 1 && left[0].pid.is_some());
    println!("writer {pid} left {left:?}");
    assert!(!is_valid(&table, table.fill().unwrap(), "killed"));
    assert_eq!(owner.settle(Whose::Writer(token.0.writer)).unwrap(), 1);
    assert!(is_valid(&table, table.fill().unwrap(), "killed"));
    assert_eq!(owner.end(token).unwrap(), Ended::Before);
}

fn found(command: &str) -> bool {
    let tried = Command::new(command).arg("--version").stdout(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

#[test]
fn the_clients_speak_with_a_real_pool() {
    let pool = start();
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients");
    let build = format!("BUILD={}", pool.home().join("c").display());
    let told = format!("SOCKET={}", socket(&pool).display());
    let run = |name: &str, command: &mut Command| {
        if !found(command.get_program().to_str().unwrap()) {
            println!("skipped: no {} for the {name} client", command.get_program().display());
            return;
        }
        let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {text}{errors}");
        assert!(text.contains(&format!("{name}: ok")), "{name}: {text}{errors}");
    };
    let (path, folder) = (socket(&pool), |name: &str| clients.join(name));
    run("c", Command::new("make").args(["-C"]).arg(folder("c")).args(["test", &build, &told]));
    run("python", Command::new("python3").arg(folder("python/test.py")).arg(&path));
    run("php", Command::new("php").arg(folder("php/test.php")).arg(&path));
    run("node", Command::new("node").arg(folder("node/test.js")).arg(&path));
    assert!(connect(&pool).pending().unwrap().0.is_empty(), "they ended what they began");
}

#[test]
fn a_group_may_tell_and_nobody_else() {
    if !rustix::process::geteuid().is_root() || !found("setpriv") {
        println!("skipped: other users can't be played without root and setpriv");
        return;
    }
    let folder = tempfile::Builder::new().prefix("polder-w-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.path().join("writers.sock");
    let lines: &'static str = Box::leak(
        format!("tags = 4096\nwriters_socket = '{}'\nwriters_group = '4711'\n", path.display())
            .into_boxed_str(),
    );
    let pool = Recipe::new(&[("shop", lines)], 1).start();
    wait_told(&pool);
    eventually("the group's socket", || path.exists());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                  s.sendall(sys.argv[2].encode()+b'\\n')\nprint(s.recv(99).decode())";
    let ask = |group: &str, line: &str| {
        let output = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", group, "--clear-groups", "/usr/bin/python3"])
            .args(["-c", script, path.to_str().unwrap(), line])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&output.stdout) + &text(&output.stderr)
    };
    assert!(ask("4711", "invalidate a").starts_with("ok"), "{}", ask("4711", "invalidate a"));
    assert!(ask("4711", "settle disconnected").starts_with("error denied"));
    assert!(ask("4712", "invalidate a").contains("PermissionError"));
}
