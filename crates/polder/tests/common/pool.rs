//! A pool of real processes: `polder up` with a settings file, as a person starts it.

use super::watch::Watch;
use super::{PATIENCE, eventually, process};
use load::stub::{NodeOptions, StubOptions, StubServer};
use polder::control::{AskError, MoveArguments, Request, Response, ask};
use polder::status::{EdgeStatus, NodeState, StatusReport};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_polder");
/// How long a pool may take to answer: longer than it waits for an edge that is stopped.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a pool that is no longer needed may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(15);

/// Where the servers of a pool come from.
#[derive(Clone, Debug)]
pub enum Servers {
    /// Stand-ins in this process; the nodes have no agents of their own.
    Stubs(NodeOptions),
    /// Each node has an agent, which starts `polder stub` for each site.
    Agents { service: Duration },
    /// The same with another program.
    Command(Vec<String>),
    /// One that is there; all nodes and sites share it.
    At(SocketAddr),
    /// The same on the first node; the others have agents, which start `polder stub`.
    AtFirst(SocketAddr),
}

/// What a pool is made of. The lines go into the settings as they are.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Name, and lines of `[[sites]]` such as `nodes = 2`.
    pub sites: Vec<(&'static str, &'static str)>,
    pub nodes: usize,
    pub max_in_flight: u32,
    pub edges: usize,
    pub servers: Servers,
    /// Lines of `[pool]`, `[http]` and `[health]`.
    pub pool: String,
    pub http: String,
    pub health: String,
    pub env: Vec<(&'static str, String)>,
    /// Where edges listen, instead of free ports of their own.
    pub listen: Vec<SocketAddr>,
    /// What starts the pool, before the settings file's name; `polder up` if none.
    pub command: Option<Vec<String>>,
}

impl Recipe {
    /// Two edges; stand-in servers of 4 workers and 10 ms, of which a node takes 8 at once: a
    /// debug build on a busy machine can load them.
    pub fn new(sites: &[(&'static str, &'static str)], nodes: usize) -> Self {
        let mut stub = NodeOptions::named("");
        stub.service_time = Duration::from_millis(10);
        Self {
            sites: sites.to_vec(),
            nodes,
            max_in_flight: 8,
            edges: 2,
            servers: Servers::Stubs(stub),
            pool: String::new(),
            http: String::new(),
            health: String::new(),
            env: Vec::new(),
            listen: Vec::new(),
            command: None,
        }
    }

    pub fn service(mut self, time: Duration) -> Self {
        match &mut self.servers {
            Servers::Stubs(stub) => stub.service_time = time,
            Servers::Agents { service } => *service = time,
            Servers::Command(_) | Servers::At(_) | Servers::AtFirst(_) => {
                panic!("a foreign program takes as long as it takes")
            }
        }
        self
    }

    pub fn agents(mut self, service: Duration) -> Self {
        self.servers = Servers::Agents { service };
        self
    }

    fn service_us(&self) -> u128 {
        if let Servers::Agents { service } = &self.servers { service.as_micros() } else { 1_000 }
    }

    pub fn node_names(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("n{number}")).collect()
    }

    fn stubs(&self) -> Option<StubServer> {
        let Servers::Stubs(options) = &self.servers else { return None };
        let node = |name: String| NodeOptions { name, ..options.clone() };
        let nodes = self.node_names().into_iter().map(node).collect();
        let sites: Vec<&str> = self.sites.iter().map(|(name, _)| *name).collect();
        let options = StubOptions::every_site_on_every_node(nodes, &sites);
        Some(StubServer::start(&options).expect("stubs start"))
    }

    /// The settings file.
    pub fn text(&self, folder: &Path, edges: &[SocketAddr], stubs: Option<&StubServer>) -> String {
        let mut text = String::new();
        let mut put = |line: String| text.push_str(&(line + "\n"));
        put(format!("[pool]\nname = \"faults\"\nruntime_dir = \"{}\"", folder.display()));
        put(format!("{}\n[http]\n{}\n[health]\n{}", self.pool, self.http, self.health));
        for edge in edges {
            put(format!("[[edges]]\nlisten = [\"{edge}\"]\nthreads = 1"));
        }
        for (name, lines) in &self.sites {
            put(format!("[[sites]]\nname = \"{name}\"\nhosts = [\"{name}.test\"]\n{lines}"));
            match &self.servers {
                Servers::Stubs(_) | Servers::At(_) => {}
                Servers::Agents { .. } | Servers::AtFirst(_) => {
                    let us = self.service_us();
                    put(format!(
                        "command = [\"{PROGRAM}\", \"stub\", \"--listen\", \
                         \"{{host}}:{{port}}\", \"--service-us\", \"{us}\"]"
                    ));
                }
                Servers::Command(command) => put(format!("command = {command:?}")),
            }
        }
        for node in self.node_names() {
            put(format!("[[nodes]]\nname = \"{node}\"\nmax_in_flight = {}", self.max_in_flight));
            let mut servers = String::new();
            for (site, _) in &self.sites {
                let at = match &self.servers {
                    Servers::At(address) => Some(*address),
                    Servers::AtFirst(address) => (node == "n1").then_some(*address),
                    _ => stubs.and_then(|stubs| stubs.address(&node, site)),
                };
                if let Some(at) = at {
                    let _ = write!(servers, "{site} = \"{at}\", ");
                }
            }
            if let Some(servers) = servers.strip_suffix(", ") {
                put(format!("servers = {{ {servers} }}"));
            }
        }
        text
    }

    /// Starts it and waits until all nodes serve.
    pub fn start(self) -> Pool {
        let pool = self.launch();
        pool.wait_ready();
        pool
    }

    fn run(&self, file: &Path, log: &Path) -> Child {
        let polder_up = || vec![PROGRAM.to_owned(), "up".to_owned()];
        run(&self.command.clone().unwrap_or_else(polder_up), file, log, &self.env)
    }

    /// Starts it.
    pub fn launch(self) -> Pool {
        let home = tempfile::Builder::new().prefix("polder-t-").tempdir_in("/tmp");
        let home = home.expect("a folder for the test");
        let folder = home.path().join("run");
        let stubs = self.stubs();
        let ports = if self.listen.is_empty() { self.edges } else { 0 };
        let ports: Vec<Port> = (0..ports).map(|_| Port::take()).collect();
        let free = ports.iter().map(|port| port.address);
        let edges: Vec<SocketAddr> = self.listen.iter().copied().chain(free).collect();
        let file = home.path().join("polder.toml");
        std::fs::write(&file, self.text(&folder, &edges, stubs.as_ref())).expect("settings");
        let log = home.path().join("log");
        let child = self.run(&file, &log);
        Pool { child, recipe: self, stubs, edges, _ports: ports, folder, file, log, home }
    }
}

/// Starts `polder up FILE`.
pub fn up(file: &Path, log: &Path) -> Child {
    run(&[PROGRAM.to_owned(), "up".to_owned()], file, log, &[])
}

fn run(command: &[String], file: &Path, log: &Path, env: &[(&'static str, String)]) -> Child {
    Command::new(&command[0])
        .args(&command[1..])
        .arg(file)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .env("POLDER_LOG", "info")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::options().create(true).append(true).open(log).expect("a log"))
        .process_group(0)
        .spawn()
        .expect("the program starts")
}

/// A free port that nobody else is given while this lives: a bound socket that never listens.
pub struct Port {
    pub address: SocketAddr,
    _socket: OwnedFd,
}

impl Port {
    pub fn take() -> Self {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        set_socket_reuseaddr(&socket, true).unwrap();
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        Self { address, _socket: socket }
    }
}

/// A running pool. Dropped, it leaves no process.
pub struct Pool {
    child: Child,
    pub recipe: Recipe,
    pub stubs: Option<StubServer>,
    /// Where clients connect, one address for each edge.
    pub edges: Vec<SocketAddr>,
    _ports: Vec<Port>,
    /// The runtime folder.
    pub folder: PathBuf,
    pub file: PathBuf,
    log: PathBuf,
    home: TempDir,
}

impl Pool {
    /// The folder around it all.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// All its live processes.
    pub fn processes(&self) -> Vec<u32> {
        process::with(self.home())
    }

    /// The parent process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn try_status(&self) -> Result<StatusReport, AskError> {
        match ask(&self.folder.join("control.sock"), &Request::Status, ANSWER)? {
            Response::Status(report) => Ok(*report),
            other => panic!("not a status: {other:?}"),
        }
    }

    pub fn status(&self) -> StatusReport {
        self.try_status().unwrap_or_else(|error| panic!("{error}; log:\n{}", self.log()))
    }

    /// Gives a node to a site, as `polder move` does.
    #[track_caller]
    pub fn ask_move(&self, node: &str, site: &str) {
        let arguments = MoveArguments { node: node.to_owned(), site: site.to_owned() };
        self.ask(&Request::Move(arguments));
    }

    pub fn try_ask(&self, request: &Request) -> Result<Response, AskError> {
        ask(&self.folder.join("control.sock"), request, ANSWER)
    }

    /// Asks for something that must be done.
    #[track_caller]
    pub fn ask(&self, request: &Request) -> Response {
        let asked = self.try_ask(request);
        asked.unwrap_or_else(|error| panic!("{request:?}: {error}; log:\n{}", self.log()))
    }

    /// What an edge says of itself.
    pub fn edge(&self, number: u32) -> EdgeStatus {
        let status = self.status();
        let found = status.edges.into_iter().find(|edge| edge.edge == number);
        found.expect("each edge has a line in the status")
    }

    /// All edges answer, and all nodes serve their site.
    pub fn is_serving(&self) -> bool {
        let Ok(status) = self.try_status() else { return false };
        status.edges.iter().all(|edge| edge.alive)
            && status.nodes.iter().all(|node| node.state == NodeState::Serving)
    }

    #[track_caller]
    pub fn wait_serving(&self) {
        eventually("all nodes serve", || self.is_serving());
    }

    /// The same, and each node has a server for each site.
    pub fn is_ready(&self) -> bool {
        let Ok(status) = self.try_status() else { return false };
        let serves = |state| matches!(state, NodeState::Serving | NodeState::Free);
        status.edges.iter().all(|edge| edge.alive)
            && status.nodes.iter().all(|node| {
                serves(node.state) && node.servers.iter().all(|server| server == "ready")
            })
    }

    #[track_caller]
    pub fn wait_ready(&self) {
        let started = Instant::now();
        while !self.is_ready() {
            let log = self.log();
            assert!(started.elapsed() < PATIENCE, "the pool is not ready; its log:\n{log}");
            assert!(process::is_alive(self.pid()), "the pool has ended; its log:\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Watches its records; `hard` are the guarantees that must hold.
    pub fn watch(&self, hard: &[usize]) -> Watch {
        Watch::start(&self.folder, &self.recipe.node_names(), hard)
    }

    /// The process of an agent: the one that has the node's number on its command line.
    pub fn agent(&self, index: usize) -> Option<u32> {
        self.process("agent-process --file ", index)
    }

    /// The process of an edge.
    pub fn edge_process(&self, index: usize) -> Option<u32> {
        self.process("edge-process --file ", index)
    }

    /// The process that answers writers.
    pub fn writers_process(&self) -> Option<u32> {
        self.process("writers-process --file ", 0)
    }

    fn process(&self, role: &str, index: usize) -> Option<u32> {
        let wanted = format!("--index {index} ");
        self.processes().into_iter().find(|pid| {
            let line = process::command_line(*pid);
            line.contains(role) && line.contains(&wanted)
        })
    }

    /// The process that serves a site on a node, as the agent noted it.
    pub fn server(&self, node: &str, site: &str) -> Option<u32> {
        let file = self.folder.join(format!("node-{node}.servers.json"));
        let state = agent::AgentState::read(&file).ok()??;
        let server = state.servers.into_iter().find(|server| server.name == site)?;
        server.process.map(|process| process.pid).filter(|pid| process::is_alive(*pid))
    }

    /// Starts it anew after its end.
    pub fn restart(&mut self) {
        self.child = self.recipe.run(&self.file, &self.log);
    }

    /// Waits for the end of the parent process.
    #[track_caller]
    pub fn wait_end(&mut self) -> ExitStatus {
        let mut ended = None;
        eventually("the pool ends", || {
            ended = self.child.try_wait().expect("a child can be waited for");
            ended.is_some()
        });
        ended.expect("it was waited for")
    }

    /// Ends it as Ctrl-C would, and checks that nothing is left and nothing went wrong unseen.
    #[track_caller]
    pub fn finish(mut self) {
        process::signal(self.pid(), Signal::INT);
        let status = self.wait_end();
        let log = self.log();
        assert_eq!(status.code(), Some(0), "log:\n{log}");
        self.assert_nothing_left();
        self.assert_no_panic();
    }

    /// No process of the pool is left; the folder holds the lock at the most.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let left = self.processes();
        let lines: Vec<_> = left.iter().map(|pid| process::command_line(*pid)).collect();
        assert_eq!(lines, Vec::<String>::new(), "processes are left; log:\n{}", self.log());
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let left: Vec<_> = names.filter(|name| name != "lock").collect();
        assert_eq!(left, Vec::<String>::new(), "files are left");
    }

    #[track_caller]
    pub fn assert_no_panic(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "log:\n{log}");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the pool's log:\n{}", tail(&self.log(), 60));
        }
        for pid in self.processes() {
            process::signal(pid, Signal::CONT);
        }
        if let Ok(None) = self.child.try_wait() {
            process::signal(self.pid(), Signal::TERM);
        }
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && started.elapsed() < STOP_WITHIN {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.processes() {
            process::signal(pid, Signal::KILL);
        }
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
