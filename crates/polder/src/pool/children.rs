//! Child processes: started, watched, started again, replaced, stopped.

use super::child::{AGENT_PROCESS, ChildArguments, EDGE_PROCESS, WRITERS_PROCESS, command_line};
use super::parcel;
use super::process::{Ended, Process};
use super::sockets::{Share, Sockets};
use crate::handed;
use crate::logging::LEVEL_VARIABLE;
use crate::settings::Settings;
use pool_model::{EdgeId, NodeId};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};
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
/// How long an agent may take to leave its servers to the next one: it notes them, and ends.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

/// What a child is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The edge at a place of the settings, with a slot in each record.
    Edge {
        place: usize,
        slot: EdgeId,
    },
    Agent(NodeId),
    /// Who answers the writers of all sites.
    Writers,
}

/// What all children have in common. It changes with the settings and with the program.
#[derive(Debug)]
pub(super) struct Family {
    /// The program that children run.
    pub(super) program: PathBuf,
    pub(super) settings: Rc<Settings>,
    /// The version of the settings in the shared words.
    pub(super) version: u32,
    /// The parent's copy of the settings.
    pub(super) file: PathBuf,
    pub(super) log_level: Option<String>,
    pub(super) folder: PathBuf,
    /// Whether the pool's other roles run on other machines.
    pub(super) apart: bool,
}

/// Whether a child is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    #[default]
    No,
    /// Once its clients have gone to the one that took over from it.
    Leave,
    /// As soon as what is in flight is done.
    Now,
}

/// What a child is told to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    stop: Stop,
    /// How often it was to start again with other settings or another program.
    again: u32,
}

/// A child as it is told to the program that takes this one's place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WardState {
    /// Place of an edge, number of a node.
    pub(super) number: usize,
    pub(super) slot: Option<u8>,
    pub(super) pid: u32,
    pub(super) age_ms: u64,
    pub(super) shares: Vec<Share>,
    pub(super) is_leaving: bool,
    pub(super) has_memory: bool,
}

/// One child, over all its lives.
pub(super) struct Ward {
    pub(super) role: Role,
    /// What an edge listens with.
    pub(super) shares: Vec<Share>,
    family: Rc<RefCell<Family>>,
    sockets: Rc<RefCell<Sockets>>,
    order: watch::Sender<Order>,
    ended: watch::Sender<bool>,
    hold: Hold,
    pid: Cell<Option<u32>>,
    since: Cell<Instant>,
    /// Another process is to take over from it.
    pub(super) outdated: Cell<bool>,
    /// Hears of a child that says itself that it can't start.
    failed: watch::Sender<Option<String>>,
}

impl Ward {
    pub(super) fn new(
        role: Role,
        shares: Vec<Share>,
        family: &Rc<RefCell<Family>>,
        sockets: &Rc<RefCell<Sockets>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            role,
            shares,
            family: Rc::clone(family),
            sockets: Rc::clone(sockets),
            order: watch::Sender::default(),
            ended: watch::Sender::default(),
            hold: Hold::default(),
            pid: Cell::new(None),
            since: Cell::new(Instant::now()),
            outdated: Cell::new(false),
            failed: watch::Sender::default(),
        })
    }

    /// Starts it and looks after it from now on, in a task of its own.
    pub(super) fn start(self: &Rc<Self>) {
        tokio::task::spawn_local(Rc::clone(self).run(None));
    }

    /// Looks after a child that another program started.
    pub(super) fn resume(
        self: &Rc<Self>,
        state: &WardState,
        memory: Option<OwnedFd>,
    ) -> io::Result<()> {
        let process = Process::of(state.pid)?;
        let age = Duration::from_millis(state.age_ms);
        self.since.set(Instant::now().checked_sub(age).unwrap_or_else(Instant::now));
        self.pid.set(Some(state.pid));
        *self.hold.memory.borrow_mut() = memory;
        tokio::task::spawn_local(Rc::clone(self).run(Some(process)));
        Ok(())
    }

    /// What another program needs to look after it, if it runs.
    pub(super) fn state(&self) -> Option<(WardState, Option<OwnedFd>)> {
        let (number, slot) = match self.role {
            Role::Edge { place, slot } => (place, Some(slot.get())),
            Role::Agent(node) => (node.index(), None),
            Role::Writers => (0, None),
        };
        let memory = self.hold.copy();
        let state = WardState {
            number,
            slot,
            pid: self.pid.get()?,
            age_ms: u64::try_from(self.since.get().elapsed().as_millis()).unwrap_or(u64::MAX),
            shares: self.shares.clone(),
            is_leaving: self.order.borrow().stop != Stop::No,
            has_memory: memory.is_some(),
        };
        Some((state, memory))
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.family.borrow().folder.clone()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.pid.get()
    }

    /// How long it has been running.
    pub(super) fn age(&self) -> Duration {
        self.since.get().elapsed()
    }

    /// Why it can't start, once it says so.
    pub(super) fn failed(&self) -> watch::Receiver<Option<String>> {
        self.failed.subscribe()
    }

    /// Ends it as SIGTERM does. [`Ward::wait_end`] waits for it.
    pub(super) fn stop(&self) {
        self.order.send_modify(|order| order.stop = Stop::Now);
    }

    /// Ends an edge gently: another has taken over from it, and its clients go there one by one.
    pub(super) fn leave(&self) {
        self.order.send_modify(|order| order.stop = order.stop.max(Stop::Leave));
    }

    /// Starts an agent anew over its running servers.
    pub(super) fn start_again(&self) {
        self.order.send_modify(|order| order.again = order.again.wrapping_add(1));
    }

    /// Until it has ended and will not start again.
    pub(super) async fn wait_end(&self) {
        // The sender lives as long as this.
        drop(self.ended.subscribe().wait_for(|ended| *ended).await);
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(super) fn name(&self) -> String {
        match self.role {
            Role::Edge { slot, .. } => format!("edge {slot}"),
            Role::Agent(id) => {
                let family = self.family.borrow();
                let node = family.settings.nodes.get(id.index());
                format!("the agent of {}", node.map_or("a node that is gone", |node| &node.name))
            }
            Role::Writers => "the writers' process".to_owned(),
        }
    }

    fn stop_within(&self) -> Duration {
        let settings = &self.family.borrow().settings;
        let ms = match self.role {
            Role::Edge { .. } => settings.pool.drain_max_ms,
            Role::Agent(_) => settings.health.stop_timeout_ms,
            // It ends at once.
            Role::Writers => 0,
        };
        Duration::from_millis(ms.into()) + STOP_SLACK
    }

    /// Whether a test wants this child to end in the middle of a move: edge 0, in its first life.
    fn is_stop_point(&self, is_first_life: bool) -> bool {
        let is_first = matches!(self.role, Role::Edge { slot: EdgeId::MIN, .. });
        cfg!(debug_assertions) && is_first_life && is_first
    }

    fn spawn(&self, is_first_life: bool) -> io::Result<Process> {
        let family = self.family.borrow();
        let adopt = self.hold.copy();
        let (index, slot, name) = match self.role {
            Role::Edge { place, slot } => (place, slot.get(), EDGE_PROCESS),
            Role::Agent(node) => (node.index(), 0, AGENT_PROCESS),
            Role::Writers => (0, 0, WRITERS_PROCESS),
        };
        let arguments = ChildArguments {
            file: family.file.clone(),
            folder: family.folder.clone(),
            index: u16::try_from(index).map_err(io::Error::other)?,
            slot,
            version: family.version,
            parent: std::process::id(),
            adopt: adopt.is_some(),
            apart: family.apart,
        };
        let stdin = match (self.role, adopt) {
            (Role::Edge { .. }, _) => Stdio::from(self.sockets_for_child()?),
            (Role::Agent(_), Some(memory)) => Stdio::from(memory),
            (Role::Agent(_), None) | (Role::Writers, _) => Stdio::null(),
        };
        let mut command = Command::new(&family.program);
        if !self.is_stop_point(is_first_life) {
            command.env_remove(STOP_POINT);
        }
        handed::hide(&mut command);
        if let Some(level) = &family.log_level {
            command.env(LEVEL_VARIABLE, level);
        }
        let child = command
            .args(command_line(name, &arguments))
            .stdin(stdin)
            .stdout(self.standard_output(&family.settings))
            // Ctrl-C reaches the parent alone: it stops its children in their order.
            .process_group(0)
            .spawn()?;
        Process::of(child.id())
    }

    /// It belongs to whoever ran the parent, unless requests are to be noted there.
    fn standard_output(&self, settings: &Settings) -> Stdio {
        let is_log = settings.access_log.target == Some(edge::LogTarget::Stdout);
        match self.role {
            Role::Edge { .. } if is_log => Stdio::inherit(),
            Role::Edge { .. } | Role::Agent(_) | Role::Writers => Stdio::null(),
        }
    }

    fn sockets_for_child(&self) -> io::Result<OwnedFd> {
        let listening = self.sockets.borrow().copies(&self.shares)?;
        let told: Vec<_> = listening.iter().map(|one| (one.wanted, one.sockets.len())).collect();
        let files: Vec<_> =
            listening.iter().flat_map(|one| &one.sockets).map(|one| one.as_fd()).collect();
        parcel::pack(&serde_json::to_string(&told)?, &files)
    }

    /// Runs the child until it is told to stop: starts it again whenever it dies.
    async fn run(self: Rc<Self>, taken_over: Option<Process>) {
        let (mut pause, mut is_first_life) = (RESTART_MIN, true);
        let mut process = taken_over;
        let mut order = self.order.subscribe();
        // One that was taken over is watched to its end, also where it was leaving already.
        while process.is_some() || order.borrow().stop == Stop::No {
            let status = match process.take().map_or_else(|| self.begin(is_first_life), Ok) {
                Ok(process) => self.watch(process, &mut order).await,
                Err(error) => {
                    tracing::error!(%error, "{} can't be started", self.name());
                    Some(Ended::Unknown)
                }
            };
            is_first_life = false;
            self.pid.set(None);
            if order.borrow().stop != Stop::No {
                break;
            }
            let Some(status) = status else { continue };
            if self.age() > STEADY_AFTER {
                pause = RESTART_MIN;
            }
            if status == Ended::Code(EXIT_UNUSABLE) {
                let text = format!("{} can't start; its reason is above", self.name());
                self.failed.send_replace(Some(text));
            }
            tracing::warn!("{} ended ({status}); it starts again in {pause:?}", self.name());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = order.changed() => {}
            }
            pause = (pause * 2).min(RESTART_MAX);
        }
        self.ended.send_replace(true);
    }

    fn begin(&self, is_first_life: bool) -> io::Result<Process> {
        let process = self.spawn(is_first_life)?;
        self.since.set(Instant::now());
        self.pid.set(Some(process.pid()));
        Ok(process)
    }

    /// Waits for the child's end, or ends it; none where it made room for its successor.
    async fn watch(
        &self,
        mut process: Process,
        order: &mut watch::Receiver<Order>,
    ) -> Option<Ended> {
        let now = *order.borrow();
        let pid = process.pid();
        let mut taking = pin!(async {
            if let Role::Agent(id) = self.role {
                let family = self.family.borrow().settings.clone();
                if let Some(node) = family.nodes.get(id.index()) {
                    self.hold.take(pid, &node.name).await;
                }
            }
            std::future::pending::<()>().await;
        });
        let ended = tokio::select! {
            ended = process.wait() => ended,
            stop = told(order, now) => {
                if stop == Stop::No {
                    self.make_room(&mut process).await;
                    return None;
                }
                self.end(&mut process, order).await
            }
            () = &mut taking => return None,
        };
        Some(ended.unwrap_or(Ended::Unknown))
    }

    async fn end(
        &self,
        process: &mut Process,
        order: &mut watch::Receiver<Order>,
    ) -> io::Result<Ended> {
        let within = self.stop_within();
        let limit = tokio::time::sleep(within);
        let mut limit = pin!(limit);
        if order.borrow_and_update().stop == Stop::Leave {
            process.signal(Signal::QUIT);
            tokio::select! {
                ended = process.wait() => return ended,
                _ = order.wait_for(|order| order.stop == Stop::Now) => {}
                () = &mut limit => {}
            }
        }
        process.signal(Signal::TERM);
        tokio::select! {
            ended = process.wait() => return ended,
            () = &mut limit => {}
        }
        tracing::error!("{} did not stop within {within:?} and is killed", self.name());
        process.signal(Signal::KILL);
        process.wait().await
    }

    /// Lets an agent end and leave its servers running, or the writers' process end. Killed, they
    /// leave as much.
    async fn make_room(&self, process: &mut Process) {
        process.signal(Signal::HUP);
        if tokio::time::timeout(LEAVE_WITHIN, process.wait()).await.is_ok() {
            return;
        }
        tracing::warn!("{} does not make room and is killed; nothing is lost", self.name());
        process.signal(Signal::KILL);
        // It is dead; how it died is known.
        drop(process.wait().await);
    }
}

/// Until the child is told something new; whether and how that is to stop.
async fn told(order: &mut watch::Receiver<Order>, before: Order) -> Stop {
    let new = |order: &Order| order.stop != Stop::No || order.again != before.again;
    // Its sender is dropped with the child, which then need not stop in any order.
    order.wait_for(new).await.map_or(Stop::No, |order| order.stop)
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
