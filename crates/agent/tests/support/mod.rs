//! What the tests with real processes share. The test binary runs itself again in other roles:
//! as a server, as an agent of its own process, as the parent of one.

#![allow(dead_code, clippy::unwrap_used)]

use agent::{
    Agent, Check, Handle, Options, Program, ServerKind, ServerSpec, Snapshot, Start, reap_leftovers,
};
use pool_model::{NodeId, SiteId};
use remote_memory::Wake;
use rustix::process::{Pid, Signal, kill_process};
use shared_state::NodeRecord;
use shared_state::words::{Assign, Epoch};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest that anything here may take on a machine under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const ROLE: &str = "AGENT_TEST_ROLE";
const DIRECTORY: &str = "AGENT_TEST_DIRECTORY";
const ADOPT: &str = "AGENT_TEST_ADOPT";
const PARENT: &str = "AGENT_TEST_PARENT";

/// Plays the role that the environment names; returns at once without one, in the test run itself.
pub(crate) fn play_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("server") => serve(),
        Ok("mute") => std::thread::sleep(PATIENCE * 10),
        Ok("agent") => {
            let parent = std::env::var(PARENT).ok().map(|pid| pid.parse().unwrap());
            let mut options = child_options(&role_directory());
            if std::env::var_os(ADOPT).is_some() {
                options.adopt = Some(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
            }
            agent::run(options, parent).unwrap();
        }
        Ok("parent") => {
            let mut agent = myself("agent");
            agent.env(DIRECTORY, role_directory()).env(PARENT, std::process::id().to_string());
            agent.spawn().unwrap().wait().unwrap();
        }
        _ => {}
    }
}

fn role_directory() -> PathBuf {
    std::env::var_os(DIRECTORY).expect("the role needs a directory").into()
}

/// Answers every request with its process id, until killed.
fn serve() {
    let variable = |name| std::env::var(name).expect("an agent sets HOST and PORT");
    let listener = TcpListener::bind(format!("{}:{}", variable("HOST"), variable("PORT"))).unwrap();
    for stream in listener.incoming().flatten() {
        answer(stream);
    }
}

fn answer(mut stream: TcpStream) {
    let mut request = [0; 1_024];
    if stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
        let body = std::process::id().to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let _ = stream.write_all((head + &body).as_bytes());
    }
}

/// The pid of the process that answers there, or why none does.
pub(crate) fn ask(address: SocketAddrV4) -> Result<u32, String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address.into(), Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = ask().map_err(|error| error.to_string())?;
    let body = response.rsplit("\r\n").next().unwrap_or_default();
    body.parse().map_err(|_| format!("no pid in {response:?}"))
}

fn myself(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_a_role", "--nocapture"]).env(ROLE, role);
    command.stdout(Stdio::null());
    command
}

/// A program of an agent: this test binary in another role.
pub(crate) fn program(role: &str, start: Start) -> ServerKind {
    let me = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let argv = [&me, "--exact", "plays_a_role", "--nocapture"].map(str::to_owned).to_vec();
    let env = vec![(ROLE.to_owned(), role.to_owned())];
    ServerKind::Command(Program { argv, env, start })
}

pub(crate) fn command(argv: &[&str]) -> ServerKind {
    let argv = argv.iter().map(|&argument| argument.to_owned()).collect();
    ServerKind::Command(Program { argv, env: Vec::new(), start: Start::Warm })
}

pub(crate) fn site(number: u16) -> SiteId {
    SiteId::new(number).unwrap()
}

pub(crate) fn spec(number: u16, kind: ServerKind) -> ServerSpec {
    let check = Check::Http { path: "/".to_owned() };
    ServerSpec { site: site(number), name: format!("site-{number}"), kind, check }
}

/// Short times, so that tests are short, and long ones where a slow machine must not matter.
pub(crate) fn options(directory: &Path, servers: Vec<ServerSpec>) -> Options {
    let mut options = Options::new(NodeId::new(4).unwrap(), "n4", directory);
    options.servers = servers;
    options.health.check_every_ms = 50;
    options.health.idle_check_every_ms = 50;
    options.idle_beat_ms = 50;
    options.health.stop_timeout_ms = 2_000;
    options
}

/// What the agent in a process of its own runs: site 1 warm, site 2 on assignment.
pub(crate) fn child_options(directory: &Path) -> Options {
    let servers = vec![
        spec(1, program("server", Start::Warm)),
        spec(2, program("server", Start::OnAssignment)),
    ];
    options(directory, servers)
}

/// A private directory; what agents left there ends with it.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(directory.path(), private).unwrap();
        Self(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn state_file(&self) -> PathBuf {
        self.path().join("node-n4.json")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("node-n4.sock")
    }

    /// Starts an agent in this process.
    pub(crate) fn start(&self, servers: Vec<ServerSpec>) -> Handle {
        Agent::start(options(self.path(), servers)).unwrap()
    }

    /// Starts a process in a role, with this directory and the memory of a dead agent.
    pub(crate) fn spawn_with(&self, role: &str, memory: OwnedFd) -> Killed {
        let mut command = myself(role);
        command.env(DIRECTORY, self.path()).env(ADOPT, "1").stdin(memory);
        Killed(command.spawn().unwrap())
    }

    /// Starts a process in a role, with this directory.
    pub(crate) fn spawn(&self, role: &str) -> Killed {
        Killed(myself(role).env(DIRECTORY, self.path()).spawn().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // After a failed test an agent may still run; it was killed before this place goes.
        let _ = reap_leftovers(&self.state_file(), Duration::from_secs(1));
    }
}

/// A child process that does not outlive the test.
pub(crate) struct Killed(pub(crate) Child);

impl Killed {
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `found` gives something; fails the test with `what` after [`PATIENCE`].
pub(crate) fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let ends = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < ends, "waited {PATIENCE:?} for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the server of a site is in a phase; its pid and the whole snapshot.
pub(crate) fn phase(handle: &Handle, number: u16, phase: &str) -> Snapshot {
    eventually(&format!("site {number} {phase}"), || {
        let snapshot = handle.snapshot();
        let found = snapshot.servers.iter().any(|s| s.site == number && s.phase == phase);
        found.then_some(snapshot)
    })
}

/// Attaches to the region of the agent at this place, once it answers.
pub(crate) fn attach(place: &Place) -> NodeRecord {
    let attachment = eventually("the region's socket", || {
        remote_memory::shm::attach(place.socket(), Duration::from_secs(5)).ok()
    });
    NodeRecord::open(attachment.region()).unwrap()
}

/// Moves the node as an edge does.
pub(crate) fn assign(record: &NodeRecord, number: Option<u16>) -> Assign {
    let old = record.assign().unwrap();
    let new = old.moved(number.map(site), Epoch::new(3, 7));
    let order = (Ordering::SeqCst, Ordering::SeqCst);
    let word = record.assign_word();
    assert!(word.compare_exchange(old.pack(), new.pack(), order.0, order.1).is_ok());
    record.ring();
    record.region().wake(NodeRecord::wake_index(), 1).unwrap();
    new
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Whether the process runs: there is one, and it is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
