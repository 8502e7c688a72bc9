//! A running rig.

use super::child::{Ending, RigError, doing, log_end, start_pool, start_stub};
use super::cpu::{CpuSnapshot, Part, pool_processes};
use super::folder::PrivateFolder;
use super::moves::{ANSWER_PATIENCE, MoveWatcher, fetch};
use super::options::{RigOptions, RigServers};
use super::ports::HeldPort;
use super::settings_text::settings_text;
use super::stub_process::{StubAddresses, StubSpec};
use crate::control::{Request, Response, ask};
use crate::runtime_dir::CONTROL_SOCKET;
use crate::status::{MoveRecord, NodeState, StatusReport};
use load::generate::{GeneratorOptions, SiteTarget};
use load::stub::{StubRecord, fetch_record};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a pool may take until all nodes serve.
const READY_PATIENCE: Duration = Duration::from_secs(40);
/// Between two looks at a pool that starts.
const READY_POLL: Duration = Duration::from_millis(20);

/// A pool with its stand-in servers, all in processes of their own. Stops when dropped; that
/// blocks until the processes have ended, some ten milliseconds without load.
#[derive(Debug)]
pub struct Rig {
    // In the order in which they go: the pool, its servers, its ports, its folder.
    pool: Ending,
    stub: Option<Ending>,
    stub_addresses: StubAddresses,
    ports: Vec<HeldPort>,
    control: PathBuf,
    settings: PathBuf,
    processes: Vec<(Part, u32)>,
    options: RigOptions,
    _folder: PrivateFolder,
}

impl Rig {
    /// Starts everything and waits until all nodes serve. To be called from a thread that lives as
    /// long as the rig: the pool ends when the thread that started it does.
    ///
    /// # Errors
    ///
    /// [`RigError`] when something does not start, with the end of its log.
    pub fn start(options: &RigOptions) -> Result<Self, RigError> {
        let program = std::env::current_exe().map_err(doing("cannot tell this program's path"))?;
        Self::start_program(&program, options)
    }

    /// The same with another program that has the sub-commands.
    fn start_program(program: &Path, options: &RigOptions) -> Result<Self, RigError> {
        let folder = PrivateFolder::make().map_err(doing("cannot make a private folder"))?;
        let log = folder.path().join("log");
        let (stub, stub_addresses) = match &options.servers {
            RigServers::Agents | RigServers::Command(_) => (None, StubAddresses::default()),
            RigServers::At(addresses) => (None, addresses.clone()),
            RigServers::OneStub => {
                let (stub, addresses) = start_stub(program, &StubSpec::of(options), &log)?;
                (Some(stub), addresses)
            }
        };
        let ports: Result<Vec<_>, _> = (0..options.edges).map(|_| HeldPort::take()).collect();
        let ports = ports.map_err(doing("no free port for an edge"))?;
        let edges: Vec<SocketAddr> = ports.iter().map(HeldPort::address).collect();
        let runtime_dir = folder.path().join("run");
        let text = settings_text(options, &runtime_dir, &edges, &stub_addresses, program);
        let settings = folder.path().join("rig.toml");
        std::fs::write(&settings, text).map_err(doing("cannot write the settings"))?;
        let pool = start_pool(program, &settings, &options.overrides, &log)?;
        let mut rig = Self {
            pool,
            stub,
            stub_addresses,
            ports,
            control: runtime_dir.join(CONTROL_SOCKET),
            settings,
            processes: Vec::new(),
            options: options.clone(),
            _folder: folder,
        };
        rig.wait(&log)?;
        rig.processes = pool_processes(rig.pool.id());
        rig.processes.extend(rig.stub.as_ref().map(|stub| (Part::Stub, stub.id())));
        Ok(rig)
    }

    fn wait(&mut self, log: &Path) -> Result<(), RigError> {
        let started = Instant::now();
        loop {
            if self.options.cancel.is_cancelled() {
                return Err(RigError::Cancelled);
            }
            if let Some(status) = self.pool.ended() {
                return Err(RigError::Ended { status, log: log_end(log) });
            }
            let missing = match self.status() {
                Ok(report) => missing(&report),
                Err(error) => Some(error.to_string()),
            };
            let Some(missing) = missing else { return Ok(()) };
            if started.elapsed() > READY_PATIENCE {
                let (after, log) = (READY_PATIENCE, log_end(log));
                return Err(RigError::NotReady { after, missing, log });
            }
            sleep(READY_POLL);
        }
    }

    /// What it is made of.
    #[must_use]
    pub fn options(&self) -> &RigOptions {
        &self.options
    }

    /// Where clients connect, one address for each edge.
    #[must_use]
    pub fn edges(&self) -> Vec<SocketAddr> {
        self.ports.iter().map(HeldPort::address).collect()
    }

    /// What a generator needs to send requests to its sites, by their place, answered only by
    /// servers of the right site.
    #[must_use]
    pub fn load(&self) -> GeneratorOptions {
        let sites = self.options.sites.iter();
        let targets = sites.map(|site| SiteTarget::served_as(site.host(), &site.name)).collect();
        let mut load = GeneratorOptions::new(self.edges(), targets);
        load.cancel = self.options.cancel.clone();
        load
    }

    /// The pool's control socket.
    #[must_use]
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// The settings file, which a reload reads again.
    #[must_use]
    pub fn settings(&self) -> &Path {
        &self.settings
    }

    /// What the pool tells of itself. Blocks for the answer, about a look.
    ///
    /// # Errors
    ///
    /// [`RigError`] when it does not answer.
    pub fn status(&self) -> Result<StatusReport, RigError> {
        match ask(&self.control, &Request::Status, ANSWER_PATIENCE)? {
            Response::Status(report) => Ok(*report),
            _ => Err(RigError::WrongAnswer),
        }
    }

    /// The moves that the edges still know, the last thousand of each. Blocks for the answer.
    ///
    /// # Errors
    ///
    /// [`RigError`] when the pool does not answer.
    pub fn moves(&self) -> Result<Vec<MoveRecord>, RigError> {
        fetch(&self.control)
    }

    /// Fetches moves about every `every` from now on, on a thread of its own.
    ///
    /// # Errors
    ///
    /// [`RigError`] when there is no thread.
    pub fn watch_moves(&self, every: Duration) -> Result<MoveWatcher, RigError> {
        MoveWatcher::start(self.control.clone(), every)
    }

    /// What the stubs did in the finished 10 ms windows from number `since_window` on. Only where
    /// one stub process serves all. Blocks for the answer.
    ///
    /// # Errors
    ///
    /// [`RigError`] when it does not answer, or there is none.
    pub fn stub_record(&self, since_window: u64) -> Result<StubRecord, RigError> {
        let control = self.stub_addresses.control;
        let control = control.ok_or_else(|| RigError::Stub("there is no such process".into()))?;
        Ok(fetch_record(control, since_window)?)
    }

    /// Where its servers are, if the nodes have no agents: another rig may use them too.
    #[must_use]
    pub fn stub_addresses(&self) -> &StubAddresses {
        &self.stub_addresses
    }

    /// CPU time of all its processes so far.
    #[must_use]
    pub fn cpu(&self) -> CpuSnapshot {
        CpuSnapshot::of(&self.processes)
    }

    /// Its processes.
    #[must_use]
    pub fn processes(&self) -> &[(Part, u32)] {
        &self.processes
    }
}

/// What does not serve yet, in words.
fn missing(report: &StatusReport) -> Option<String> {
    let dead = report.edges.iter().find(|edge| !edge.alive);
    if let Some(edge) = dead {
        return Some(format!("edge {} does not answer", edge.edge));
    }
    let unready = |state: NodeState| !matches!(state, NodeState::Serving | NodeState::Free);
    let waiting = report
        .nodes
        .iter()
        .find(|node| unready(node.state) || node.servers.iter().any(|server| server == "starting"));
    waiting.map(|node| format!("node {} is {}", node.name, node.state.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::RigSite;
    use crate::status::example;

    #[test]
    fn a_pool_is_ready_when_all_its_nodes_serve() {
        let mut report = example();
        for node in &mut report.nodes {
            node.servers.clear();
        }
        assert_eq!(missing(&report).unwrap(), "node n2 is draining");
        for node in &mut report.nodes {
            (node.state, node.servers) = (NodeState::Serving, vec!["ready".into()]);
        }
        assert_eq!(missing(&report), None);
        report.nodes[0].servers.push("starting".into());
        assert!(missing(&report).is_some());
        report.edges[0].alive = false;
        assert_eq!(missing(&report).unwrap(), "edge 0 does not answer");
    }

    #[test]
    fn a_program_that_is_no_polder_gives_an_error_and_leaves_nothing() {
        let mut options = RigOptions::new("rig", vec![RigSite::new("red", 1)]);
        options.servers = RigServers::Agents;
        let error = Rig::start_program(Path::new("/bin/false"), &options).unwrap_err();
        assert!(matches!(error, RigError::Ended { .. }), "{error}");
        options.servers = RigServers::OneStub;
        let error = Rig::start_program(Path::new("/bin/true"), &options).unwrap_err();
        assert!(matches!(error, RigError::Stub(_) | RigError::Io { .. }), "{error}");
    }
}
