//! What a dead agent leaves behind, and dying with one's parent.

use crate::process::{Held, kill_marked};
use crate::state_file::{AgentState, StateError};
use remote_memory::shm::OwnedRegion;
use rustix::process::Signal;
use shared_state::NodeRecord;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a process may take to end after SIGKILL: it may have to wait for a disk first.
const KILL_WAIT: Duration = Duration::from_secs(5);
/// How often processes are looked for that bear the agent's mark: one that forks while it is
/// killed is found in the next round.
const MARKED_ROUNDS_MAX: u32 = 10;

/// Why leftovers were not ended.
#[derive(Debug, Error)]
pub enum ReapError {
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The agent lives and looks after its servers itself.
    #[error("{path}: the agent (process {pid}) runs; stop it instead")]
    AgentRuns {
        /// The state file.
        path: String,
        /// The agent.
        pid: u32,
    },
}

/// Ends the servers that a dead agent left, and removes its state file: SIGTERM, then SIGKILL
/// after `stop_timeout`. **Blocks** until they have ended. Returns how many there were. Processes
/// are known by id and start time, so nobody else is hit; what these left running, or was never
/// noted, is known by the agent's mark in its environment and killed at once.
///
/// # Errors
/// The state file is unreadable or garbage, or its agent runs.
pub fn reap_leftovers(state_file: &Path, stop_timeout: Duration) -> Result<usize, ReapError> {
    let Some(state) = AgentState::read(state_file)? else { return Ok(0) };
    if state.agent_runs() {
        let path = state_file.display().to_string();
        return Err(ReapError::AgentRuns { path, pid: state.pid });
    }
    let noted = state.servers.iter().filter_map(|server| server.process);
    let held: Vec<Held> = noted.filter_map(|p| Held::find(p.pid, p.start_ticks)).collect();
    let mut count = held.len();
    end_all(held, stop_timeout);
    for _ in 0..MARKED_ROUNDS_MAX {
        let killed = kill_marked(state_file)
            .map_err(|source| StateError::File { path: PathBuf::from("/proc"), source })?;
        count += killed;
        if killed == 0 {
            break;
        }
    }
    AgentState::remove(state_file)?;
    Ok(count)
}

/// Ends these processes and their groups. **Blocks** until they have ended.
pub(crate) fn end_all(held: Vec<Held>, stop_timeout: Duration) {
    for process in &held {
        process.signal(Signal::TERM);
        // A stopped process takes its signal when it goes on.
        process.signal(Signal::CONT);
    }
    let ends = Instant::now() + stop_timeout;
    for process in held {
        if !process.wait_end(ends.saturating_duration_since(Instant::now())) {
            process.signal(Signal::KILL);
            process.wait_end(KILL_WAIT);
        }
        process.bury();
    }
}

/// The memory file of the region that the agent with this process id serves for this node, for
/// [`crate::Options::adopt`]: whoever looks after agents keeps it, since it cannot be had any more
/// once the agent is dead. Does not block; call it again until the agent has got that far.
///
/// # Errors
/// There is no such process, it is not ours to look into, or it serves no such region (yet).
pub fn hold_region(pid: u32, node: &str) -> io::Result<OwnedFd> {
    let wanted = format!("/memfd:polder:node-{node} (deleted)");
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = entry?.path();
        // A descriptor that was closed meanwhile is not the one.
        if !std::fs::read_link(&path).is_ok_and(|target| target.as_os_str() == wanted.as_str()) {
            continue;
        }
        let file = OwnedFd::from(std::fs::OpenOptions::new().read(true).write(true).open(&path)?);
        if is_served_by(pid, file.try_clone()?) {
            return Ok(file);
        }
    }
    let text = format!("process {pid} serves no region of node {node}");
    Err(io::Error::new(io::ErrorKind::NotFound, text))
}

/// Whether an agent of this process wrote the record last: it may also have inherited the region
/// of one before it, which bears the same name.
fn is_served_by(pid: u32, file: OwnedFd) -> bool {
    let Ok(region) = OwnedRegion::adopt(file) else { return false };
    let Ok(record) = NodeRecord::open_adopted(Arc::new(region)) else { return false };
    record.assign().is_some() && record.status().is_ok_and(|s| s.pid == u64::from(pid))
}

/// From now on the kernel sends SIGTERM to this process when the **thread** that started it ends
/// (prctl(2), `PR_SET_PDEATHSIG`), so start agents from a thread that lives as long as its
/// process. `parent` is the process id that the parent gave us: had it died before this call,
/// nothing would be sent any more.
///
/// # Errors
/// The parent is dead already, or the kernel refused.
pub fn die_with_parent(parent: u32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if std::os::unix::process::parent_id() != parent {
        let text = format!("the parent (process {parent}) has died");
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(())
}
