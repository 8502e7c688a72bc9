//! Roles of one pool, each started alone from the same settings file, as on machines of their own.

use super::client::{Clients, Sends};
use super::pool::PROGRAM;
use super::wave::Wave;
use super::{PATIENCE, eventually, process};
use polder::control::{AskError, Request, Response, ask};
use polder::status::{NodeState, StatusReport};
use rustix::process::Signal;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long an edge may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// The pool's settings file, key and folders.
pub struct Site {
    home: TempDir,
    pub file: PathBuf,
}

/// A role's parent process. Dropped, it leaves no process.
pub struct Part {
    child: Child,
    folder: PathBuf,
    log: PathBuf,
}

/// Clients of both edges.
pub struct Crowd(Vec<Clients>);

impl Crowd {
    /// So many at each edge.
    pub fn start(each: usize, edges: &[SocketAddr], wave: &Arc<Wave>) -> Self {
        let of = |edge: &SocketAddr| Sends::gets(each, &[*edge], wave).start();
        Self(edges.iter().map(of).collect())
    }

    /// Waits until each edge has served so many more.
    #[track_caller]
    pub fn wait_served(&self, more: u64) {
        self.0.iter().for_each(|clients| clients.wait_served(more));
    }

    /// Ends it; every request must have been served.
    #[track_caller]
    pub fn assert_all_served(self) {
        for (index, clients) in self.0.into_iter().enumerate() {
            clients.finish().assert_all_served(&format!("clients of edge {index}"));
        }
    }
}

/// Where the roles are.
pub struct Addresses {
    /// Where clients connect to each edge.
    pub edges: Vec<String>,
    /// Where each node's agent listens.
    pub nodes: Vec<String>,
}

impl Site {
    /// Two sites on four nodes, with servers that take `service` for a request: `red` keeps n1 and
    /// n2, `blue` n3, and n4 goes where the load is. `remote` are further lines of `[remote]`.
    pub fn new(addresses: &Addresses, service: Duration, remote: &str) -> Self {
        let home = tempfile::Builder::new().prefix("polder-a-").tempdir_in("/tmp").unwrap();
        let (file, key) = (home.path().join("polder.toml"), home.path().join("pool.key"));
        let printed = Command::new(PROGRAM).arg("key").output().unwrap();
        assert!(printed.status.success() && printed.stdout.len() == 65, "{printed:?}");
        std::fs::write(&key, "").unwrap();
        let mut made = File::options().write(true).mode(0o600).open(&key).unwrap();
        std::io::Write::write_all(&mut made, &printed.stdout).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, private).unwrap();
        let (key, run) = (key.display(), home.path().join("run"));
        let mut text = format!(
            "[pool]\nname = \"apart\"\nruntime_dir = \"{}\"\nmetrics = \"off\"\n\
             look_every_ms = 2\nhold_ms = 20\nnode_dead_ms = 500\nslot_lease_ms = 2_000\n\
             [remote]\nkey_file = \"{key}\"\ndeadline_ms = 200\n{remote}\n\
             [http]\nconnect_timeout_ms = 500\nresponse_header_timeout_ms = 2_000\n\
             retries_max = 4\n[health]\ncheck_every_ms = 200\n",
            run.display()
        );
        for edge in &addresses.edges {
            text += &format!("[[edges]]\nlisten = [\"{edge}\"]\nthreads = 1\n");
        }
        for (site, hard) in [("red", 2), ("blue", 1)] {
            let us = service.as_micros();
            text += &format!(
                "[[sites]]\nname = \"{site}\"\nhosts = [\"{site}.test\"]\nhard = {hard}\n\
                 command = [\"{PROGRAM}\", \"stub\", \"--listen\", \"{{host}}:{{port}}\", \
                 \"--service-us\", \"{us}\"]\n"
            );
        }
        for (index, address) in addresses.nodes.iter().enumerate() {
            text += &format!("[[nodes]]\nname = \"n{}\"\naddress = \"{address}\"\n", index + 1);
        }
        std::fs::write(&file, text).unwrap();
        Self { home, file }
    }

    /// Starts the agent of a node, by the words in front of the command if there are any.
    pub fn agent(&self, before: &[&str], node: &str) -> Part {
        self.start(before, &["agent", "--node", node], &format!("node-{node}"))
    }

    /// Starts an edge.
    pub fn edge(&self, before: &[&str], index: usize) -> Part {
        let number = index.to_string();
        self.start(before, &["edge", "--index", &number], &format!("edge-{index}"))
    }

    fn start(&self, before: &[&str], role: &[&str], name: &str) -> Part {
        let log = self.home.path().join(format!("{name}.log"));
        let words: Vec<&str> = before.iter().chain(&[PROGRAM]).chain(role).copied().collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg(&self.file)
            .env("POLDER_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::options().create(true).append(true).open(&log).unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        let folder = self.home.path().join("run").join(name);
        Part { child, folder, log }
    }

    /// What a role's processes have said so far.
    pub fn path(&self) -> &Path {
        self.home.path()
    }
}

impl Part {
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn try_ask(&self, request: &Request) -> Result<Response, AskError> {
        ask(&self.folder.join("control.sock"), request, ANSWER)
    }

    pub fn status(&self) -> Option<StatusReport> {
        match self.try_ask(&Request::Status) {
            Ok(Response::Status(report)) => Some(*report),
            _ => None,
        }
    }

    /// How the edge sees each node.
    pub fn states(&self) -> Vec<NodeState> {
        let nodes = self.status().map(|status| status.nodes).unwrap_or_default();
        nodes.iter().map(|node| node.state).collect()
    }

    /// Waits until the edge sees all nodes, `free` of which have no site, with all servers ready.
    #[track_caller]
    pub fn wait_ready(&self, nodes: usize, free: usize) {
        let started = Instant::now();
        loop {
            let seen = self.status().map(|status| status.nodes).unwrap_or_default();
            let count = |state| seen.iter().filter(|node| node.state == state).count();
            let ready = |name: &String| name == "ready";
            let is_ready = count(NodeState::Serving) == nodes - free
                && count(NodeState::Free) == free
                && seen.iter().all(|node| node.servers.iter().all(ready));
            if is_ready {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{seen:?}; log:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The process that does the role's work.
    pub fn worker(&self) -> Option<u32> {
        let is_worker = |pid: &u32| process::command_line(*pid).contains("-process --file ");
        process::with(&self.folder).into_iter().find(is_worker)
    }

    /// Kills the role's process as a crash would; its parent starts it again.
    #[track_caller]
    pub fn kill_worker(&self) {
        let pid = self.worker().expect("the role's process runs");
        assert!(process::signal(pid, Signal::KILL));
        eventually("the role's process starts again", || {
            self.worker().is_some_and(|new| new != pid)
        });
    }

    /// Ends the role as Ctrl-C would.
    #[track_caller]
    pub fn stop(mut self) {
        process::signal(self.child.id(), Signal::TERM);
        let mut ended = None;
        eventually("the role ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        let log = self.log();
        assert_eq!(ended.and_then(|status| status.code()), Some(0), "log:\n{log}");
        assert!(!log.contains("panicked"), "log:\n{log}");
    }

    /// Ends all of it at once, as the loss of its machine would.
    pub fn lose(mut self) {
        // Its parent last, which stands still meanwhile: the others end in good order without it.
        let parent = self.child.id();
        process::signal(parent, Signal::STOP);
        for pid in process::with(&self.folder).into_iter().filter(|&pid| pid != parent) {
            process::signal(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            eprintln!("--- {}:\n{last}", self.log.display());
        }
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        process::signal(self.child.id(), Signal::TERM);
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None))
            && started.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        for pid in process::with(&self.folder) {
            process::signal(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}
