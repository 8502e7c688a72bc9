//! Starting an agent, and the handle on a running one.
//!
//! ```text
//! start:  read the state file; find the servers that still run
//!         make a region nobody knows of yet; let those servers answer their first check
//!         swap the old region's assignment to a tombstone      late writes miss from here on
//!         publish the new region: same site, version + 1, stamp zero (renewed by an edge)
//! turn:   hear reports and rings; supervise; publish; beat; sleep on the wake word
//! ```
//!
//! Three threads, and a fourth where edges on other machines read: this one sleeps on the record's
//! wake word, the worker on processes and checks, the region's servers on their sockets. None of
//! them takes part in a request or in a move.

use crate::inbox::Inbox;
use crate::leftovers::end_all;
use crate::lifecycle::Process;
use crate::options::{Options, OptionsError, ServerSpec, ms};
use crate::process::Held;
use crate::shell::Shell;
use crate::snapshot::Snapshot;
use crate::state_file::{AgentState, ProcessState, StateError};
use remote_memory::shm::{self, OwnedRegion, RegionServer, ShmError};
use remote_memory::tcp::{NotFirst, Priority, Responder, ServeError};
use remote_memory::{Access, Mapped};
use shared_state::words::{Assign, Epoch};
use shared_state::{LayoutError, NODE_REGION_BYTES, NodeHeader, NodeRecord, Service};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a new agent waits for the first answers of servers that it takes over, before edges
/// see its region: longer than a healthy server takes, short against a node without an agent.
const SETTLE_MAX: Duration = Duration::from_millis(300);
/// How long a living owner of the socket may take to answer: it does so at once unless stopped.
const OWNER_ANSWERS_WITHIN: Duration = Duration::from_millis(100);

/// Why an agent could not start. Nothing that it started is left.
#[derive(Debug, Error)]
pub enum StartError {
    /// What it was told is wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The node has an agent.
    #[error("node {node} has an agent already (process {pid})")]
    AlreadyRuns {
        /// The node's name.
        node: String,
        /// The process.
        pid: u32,
    },
    /// The region cannot be made or served.
    #[error(transparent)]
    Region(#[from] ShmError),
    /// The region cannot be served to edges on other machines.
    #[error(transparent)]
    Remote(#[from] ServeError),
    /// The region cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The state file cannot be read or written.
    #[error(transparent)]
    State(StateError),
    /// A thread or descriptor could not be had.
    #[error("cannot start the agent's threads: {0}")]
    System(#[from] io::Error),
}

/// The agent of one node.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// Starts an agent in threads of its own. Many may run in one process; `polder` has a process
    /// for each node. **Blocks** for some milliseconds, longer where it takes over servers.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(options: Options) -> Result<Handle, StartError> {
        Self::start_with(options, || {})
    }

    /// The same; `on_end` is called when the agent has ended for whatever reason.
    pub(crate) fn start_with(
        mut options: Options,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Handle, StartError> {
        options.check()?;
        let old = read_state(&options)?;
        refuse_if_served(&options.region_socket)?;
        let adopt = options.adopt.take();
        if let Some(file) = &adopt {
            // An inherited file must not be inherited further, by servers.
            rustix::io::fcntl_setfd(file, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
        }
        let label = format!("node-{}", options.name);
        let region = Arc::new(OwnedRegion::create(&label, NODE_REGION_BYTES)?);
        let header = NodeHeader { node: options.node, max_in_flight: options.max_in_flight };
        let mapped: Arc<dyn Mapped> = Arc::<OwnedRegion>::clone(&region);
        let record = NodeRecord::publish(mapped, header, options.initial)?;
        let inbox = Arc::new(Inbox::new(record.clone()));
        let snapshot = Arc::new(Mutex::new(Snapshot::default()));
        let mut shell =
            Shell::new(&options, record.clone(), Arc::clone(&inbox), Arc::clone(&snapshot))?;
        take_over(&mut shell, &options, old);
        settle(&mut shell);
        if let Some(file) = adopt {
            carry_over(file, &options, &record);
        }
        shell.set_published();
        let published = shell
            .write_state()
            .map_err(StartError::State)
            .and_then(|()| Ok(RegionServer::bind(&options.region_socket, Arc::clone(&region))?))
            .and_then(|server| Ok((server, serve_elsewhere(&options, &region, &record)?)));
        let servers = match published {
            Ok(servers) => servers,
            Err(error) => {
                inbox.stop();
                shell.run();
                return Err(error);
            }
        };
        let thread = std::thread::Builder::new().name("agent".to_owned()).spawn(move || {
            // Also where the thread panics: the process must not go on without its agent.
            let _on_end = OnEnd(Some(on_end));
            let _servers = servers;
            shell.run();
        })?;
        Ok(Handle { record, region, inbox, snapshot, thread: Some(thread) })
    }
}

/// Serves the region to edges on other machines, if that is asked for, and tells them how.
fn serve_elsewhere(
    options: &Options,
    region: &Arc<OwnedRegion>,
    record: &NodeRecord,
) -> Result<Option<Responder>, ServeError> {
    let Some(remote) = &options.remote else { return Ok(None) };
    let responder = Responder::bind(remote.address, remote.settings.clone())?;
    record.set_service(match responder.priority() {
        Priority::RealTime => Service::RealTime,
        Priority::Normal { why: NotFirst::AsSet } => Service::AsSet,
        Priority::Normal { why: NotFirst::NotPermitted } => Service::NotPermitted,
        Priority::Normal { why: NotFirst::NoRunTime { .. } } => Service::NoRunTime,
        Priority::Normal { why: NotFirst::Kernel { .. } } => Service::Refused,
    });
    let (node, address) = (&options.name, responder.address());
    tracing::info!(node, %address, scheduled = %responder.priority(), "record served");
    let mapped: Arc<dyn Mapped> = Arc::<OwnedRegion>::clone(region);
    for region in remote.also.iter().cloned().chain([mapped]) {
        responder.serve(region, Access::ReadWrite)?;
    }
    Ok(Some(responder))
}

struct OnEnd<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnEnd<F> {
    fn drop(&mut self) {
        if let Some(on_end) = self.0.take() {
            on_end();
        }
    }
}

/// What the last agent noted. Garbage is no reason not to serve: it is logged and replaced.
fn read_state(options: &Options) -> Result<Option<AgentState>, StartError> {
    match AgentState::read(&options.state_file) {
        Ok(Some(state)) if state.agent_runs() => {
            Err(StartError::AlreadyRuns { node: options.name.clone(), pid: state.pid })
        }
        Ok(state) => Ok(state),
        Err(error @ StateError::Garbage { .. }) => {
            tracing::warn!(%error, "servers of an earlier agent, if any, are not found again");
            Ok(None)
        }
        Err(error) => Err(StartError::State(error)),
    }
}

/// Refuses to take over from an agent that lives, before anything is touched.
fn refuse_if_served(socket: &Path) -> Result<(), StartError> {
    match shm::attach(socket, OWNER_ANSWERS_WITHIN) {
        Ok(_) | Err(ShmError::Deadline { .. } | ShmError::Refused { .. }) => {
            Err(ShmError::AlreadyServed { path: socket.to_owned() }.into())
        }
        // Nobody is there; what else is wrong with the path, binding it will tell.
        Err(_) => Ok(()),
    }
}

/// Takes over the servers that still run, and ends those that nobody asks for any more.
fn take_over(shell: &mut Shell, options: &Options, old: Option<AgentState>) {
    let mut unwanted = Vec::new();
    for server in old.map(|state| state.servers).unwrap_or_default() {
        let Some(noted) = server.process else { continue };
        let Some(held) = Held::find(noted.pid, noted.start_ticks) else { continue };
        match options.servers.iter().find(|spec| is_server_of(spec, &server.name, noted, options)) {
            Some(spec) => {
                let ProcessState { pid, start_ticks, address } = noted;
                let process = Process { pid, start_ticks, address };
                tracing::info!(node = options.name, site = spec.name, pid, "server taken over");
                shell.adopt(spec.site, process, server.restarts, held);
            }
            None => unwanted.push(held),
        }
    }
    if !unwanted.is_empty() {
        tracing::info!(node = options.name, count = unwanted.len(), "ending old servers");
        end_all(unwanted, ms(options.health.stop_timeout_ms));
    }
}

fn is_server_of(spec: &ServerSpec, name: &str, noted: ProcessState, options: &Options) -> bool {
    spec.name == name && spec.is_command() && *noted.address.ip() == options.host
}

/// Lets the servers that were taken over answer, so that edges never see them missing.
fn settle(shell: &mut Shell) {
    let ends = Instant::now() + SETTLE_MAX;
    while !shell.is_settled() && Instant::now() < ends {
        let pause = shell.turn().sleep.min(ends.saturating_duration_since(Instant::now()));
        shell.sleep(pause);
    }
}

/// Gives up the old region; the new one, which nobody knows yet, starts with the same site under
/// the next version, counted by nobody until an edge renews its stamp.
fn carry_over(file: OwnedFd, options: &Options, record: &NodeRecord) {
    let node = &options.name;
    let known = |site| options.servers.iter().any(|spec| spec.site == site);
    let next = |last: Assign| last.moved(last.site.filter(|site| known(*site)), Epoch::ZERO);
    let taken = OwnedRegion::adopt(file)
        .map_err(|error| error.to_string())
        .and_then(|region| record.succeed(&region, next).map_err(|error| error.to_string()));
    if let Err(error) = taken {
        tracing::warn!(node, error, "the last agent's region is not adopted");
    }
}

/// A running agent. Dropping it stops the agent as [`Handle::stop`] does.
pub struct Handle {
    record: NodeRecord,
    region: Arc<OwnedRegion>,
    inbox: Arc<Inbox>,
    snapshot: Arc<Mutex<Snapshot>>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// The node's record.
    #[must_use]
    pub fn record(&self) -> &NodeRecord {
        &self.record
    }

    /// The region's memory file, for an agent after this one.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub fn region_file(&self) -> io::Result<OwnedFd> {
        self.region.as_fd().try_clone_to_owned()
    }

    /// What the agent says about itself. Does not block.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the agent still runs: it ends by itself only when another one took its place.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Gives the node up, ends its servers (SIGTERM, then SIGKILL after `stop_timeout_ms`) and
    /// removes state file and socket. **Blocks** until nothing is left. Drain the node first:
    /// requests that the servers do not finish on SIGTERM are lost.
    pub fn stop(mut self) {
        self.end();
    }

    /// Ends the agent alone: region, servers and state file stay as they are for the next agent of
    /// the node, which is given the region's file ([`Handle::region_file`]) to adopt. **Blocks**
    /// for a turn.
    pub fn leave(mut self) {
        self.inbox.leave();
        self.join();
    }

    fn end(&mut self) {
        self.inbox.stop();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed by it already.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.end();
        }
    }
}
