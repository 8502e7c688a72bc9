//! Child processes: started, watched, started again, stopped.

use super::child::{AGENT_PROCESS, ChildArguments, EDGE_PROCESS, command_line};
use crate::logging::LEVEL_VARIABLE;
use crate::settings::Settings;
use pool_model::{EdgeId, NodeId};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::watch;

/// What a test sets to end an edge in the middle of a move (`moves`, builds with assertions).
const STOP_POINT: &str = "POLDER_STOP_AFTER_STEP";
/// The exit code of a child that could not start: its settings, or an address that is in use.
pub(crate) const EXIT_UNUSABLE: i32 = 1;
/// The pause before a child that died starts again; it doubles with each death in a row.
const RESTART_MIN: Duration = Duration::from_millis(50);
/// The longest such pause.
const RESTART_MAX: Duration = Duration::from_secs(5);
/// A child that ran for so long had no trouble starting.
const STEADY_AFTER: Duration = Duration::from_secs(5);
/// How long the parent waits beyond what a child may take to stop, before it kills it.
const STOP_SLACK: Duration = Duration::from_secs(2);
/// The pause between two tries to take hold of an agent's region while the agent starts.
const HOLD_PAUSE: Duration = Duration::from_millis(20);

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Edge(EdgeId),
    Agent(NodeId),
}

impl Role {
    fn sub_command(self) -> &'static str {
        match self {
            Self::Edge(_) => EDGE_PROCESS,
            Self::Agent(_) => AGENT_PROCESS,
        }
    }

    fn index(self) -> u16 {
        match self {
            Self::Edge(id) => id.get().into(),
            Self::Agent(id) => id.get(),
        }
    }
}

/// What all children have in common.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// This program; a copy that was replaced on disk since still starts.
    pub(super) program: PathBuf,
    pub(super) settings: Settings,
    pub(super) file: PathBuf,
    pub(super) overrides: Vec<String>,
    pub(super) log_level: Option<String>,
    pub(super) folder: PathBuf,
    /// Whether the pool's other roles run on other machines.
    pub(super) apart: bool,
}

/// One child, over all its lives.
pub(super) struct Supervised {
    family: Family,
    role: Role,
    name: String,
    stop_within: Duration,
}

impl Supervised {
    pub(super) fn new(family: &Family, role: Role) -> Self {
        let settings = &family.settings;
        let (name, stop_ms) = match role {
            Role::Edge(id) => (format!("edge {id}"), settings.pool.drain_max_ms),
            Role::Agent(id) => {
                let name = &settings.nodes[id.index()].name;
                (format!("the agent of {name}"), settings.health.stop_timeout_ms)
            }
        };
        let stop_within = Duration::from_millis(stop_ms.into()) + STOP_SLACK;
        Self { family: family.clone(), role, name, stop_within }
    }

    /// Whether a test wants this child to end in the middle of a move: edge 0, in its first life.
    fn is_stop_point(&self, is_first_life: bool) -> bool {
        cfg!(debug_assertions) && is_first_life && self.role == Role::Edge(EdgeId::MIN)
    }

    fn spawn(&self, adopt: Option<OwnedFd>, is_first_life: bool) -> std::io::Result<Child> {
        let arguments = ChildArguments {
            file: self.family.file.clone(),
            overrides: self.family.overrides.clone(),
            folder: self.family.folder.clone(),
            index: self.role.index(),
            parent: std::process::id(),
            adopt: adopt.is_some(),
            apart: self.family.apart,
        };
        let mut command = Command::new(&self.family.program);
        if !self.is_stop_point(is_first_life) {
            command.env_remove(STOP_POINT);
        }
        if let Some(level) = &self.family.log_level {
            command.env(LEVEL_VARIABLE, level);
        }
        command
            .args(command_line(self.role.sub_command(), &arguments))
            .stdin(adopt.map_or_else(Stdio::null, Stdio::from))
            // Standard output belongs to whoever ran the parent.
            .stdout(Stdio::null())
            // Ctrl-C reaches the parent alone: it stops its children in their order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Runs the child until it is told to stop: starts it again whenever it dies. `fail` hears of
    /// a child that says itself that it can't start.
    pub(super) async fn run(
        self,
        mut stop: watch::Receiver<bool>,
        fail: Rc<watch::Sender<Option<String>>>,
    ) {
        let (mut pause, mut is_first_life) = (RESTART_MIN, true);
        let hold = Hold::default();
        while !*stop.borrow() {
            let started = Instant::now();
            let adopt = hold.copy();
            let status = match self.spawn(adopt, std::mem::take(&mut is_first_life)) {
                Ok(child) => self.watch(child, &hold, &mut stop).await,
                Err(error) => {
                    tracing::error!(%error, "{} can't be started", self.name);
                    None
                }
            };
            if *stop.borrow() {
                return;
            }
            if started.elapsed() > STEADY_AFTER {
                pause = RESTART_MIN;
            }
            let was_refused = status.and_then(|status| status.code()) == Some(EXIT_UNUSABLE);
            if was_refused {
                fail.send_replace(Some(format!("{} can't start; its reason is above", self.name)));
            }
            let how = status.map_or_else(|| "at once".to_owned(), |status| status.to_string());
            tracing::warn!("{} ended ({how}); it starts again in {pause:?}", self.name);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = stop.changed() => {}
            }
            pause = (pause * 2).min(RESTART_MAX);
        }
    }

    /// Waits for the child's end, or ends it.
    async fn watch(
        &self,
        mut child: Child,
        hold: &Hold,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<ExitStatus> {
        let pid = child.id();
        let mut taking = pin!(async {
            if let (Role::Agent(id), Some(pid)) = (self.role, pid) {
                let name = &self.family.settings.nodes[id.index()].name;
                hold.take(pid, name).await;
            }
            std::future::pending::<()>().await;
        });
        let ended = tokio::select! {
            ended = child.wait() => ended,
            _ = stop.wait_for(|stop| *stop) => self.end(&mut child).await,
            () = &mut taking => return None,
        };
        ended.ok()
    }

    async fn end(&self, child: &mut Child) -> std::io::Result<ExitStatus> {
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::TERM);
        }
        if let Ok(ended) = tokio::time::timeout(self.stop_within, child.wait()).await {
            return ended;
        }
        tracing::error!("{} did not stop within {:?} and is killed", self.name, self.stop_within);
        child.kill().await?;
        child.wait().await
    }
}

/// A hold of a live agent's region, so that its memory outlives it.
#[derive(Clone, Default)]
struct Hold {
    memory: Rc<RefCell<Option<OwnedFd>>>,
}

impl Hold {
    /// The memory for the next agent. It stays held: that agent may die before it is held itself.
    fn copy(&self) -> Option<OwnedFd> {
        self.memory.borrow().as_ref().and_then(|memory| memory.try_clone().ok())
    }

    /// Takes hold of the region as soon as the agent has made it.
    async fn take(&self, pid: u32, node: &str) {
        loop {
            if let Ok(memory) = agent::hold_region(pid, node) {
                *self.memory.borrow_mut() = Some(memory);
                return;
            }
            tokio::time::sleep(HOLD_PAUSE).await;
        }
    }
}
