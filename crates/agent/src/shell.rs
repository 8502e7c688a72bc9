//! The agent's main loop around the supervisor: what it hears, what it publishes, when it sleeps.

use crate::drain::Slots;
use crate::inbox::Inbox;
use crate::lifecycle::{Look, Now, Process, Server};
use crate::machine::Machine;
use crate::options::{Options, ms};
use crate::process::{self, Held};
use crate::pulse::Pulse;
use crate::snapshot::{ServerStatus, Snapshot};
use crate::state_file::{AgentState, ProcessState, ServerState, StateError, shortened};
use crate::supervisor::Supervisor;
use crate::worker::Worker;
use pool_model::SiteId;
use remote_memory::Wake;
use shared_state::NodeRecord;
use shared_state::words::{Assign, Phase};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Least time between two turns: an edge gone mad that rings without end costs us at most 5,000
/// turns a second, and nobody else waits for us that urgently.
const TURN_SPACING: Duration = Duration::from_micros(200);
/// How often the machine's state is read while an edge watches, and while nobody does.
const STATUS_EVERY: Duration = Duration::from_secs(1);
const IDLE_STATUS_EVERY: Duration = Duration::from_secs(5);
/// How often the servers' logs are looked at: at a MiB/s a log reaches a minute's worth.
const TRIM_LOGS_EVERY: Duration = Duration::from_secs(60);
/// Time between two turns of an agent that does not beat: it stops, or its supervision is broken.
const NO_BEAT_POLL: Duration = Duration::from_millis(50);
/// Sleep where the kernel refuses the futex, which it has no reason to.
const SLEEP_FALLBACK: Duration = Duration::from_millis(10);

/// What the agent's main thread owns.
pub(crate) struct Shell {
    node: String,
    state_file: PathBuf,
    names: BTreeMap<SiteId, String>,
    record: NodeRecord,
    inbox: Arc<Inbox>,
    worker: Worker,
    supervisor: Supervisor,
    slots: Slots,
    slots_seen: bool,
    pulse: Pulse,
    machine: Machine,
    status_at: Now,
    trim_at: Now,
    started: Instant,
    assign: Option<Assign>,
    watched: bool,
    published: bool,
    stopping: bool,
    snapshot: Arc<Mutex<Snapshot>>,
    written: Option<AgentState>,
    start_ticks: u64,
    wake: u32,
}

/// How a turn ended.
pub(crate) struct Turn {
    /// How long to sleep, if nothing happens.
    pub(crate) sleep: Duration,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Asked to, and nothing runs any more.
    Stopped,
    /// Another agent gave our region up and has our servers.
    Replaced,
    /// Asked to make room for another agent, which is to find servers and region.
    Left,
}

impl Shell {
    pub(crate) fn new(
        options: &Options,
        record: NodeRecord,
        inbox: Arc<Inbox>,
        snapshot: Arc<Mutex<Snapshot>>,
    ) -> std::io::Result<Self> {
        let worker = Worker::start(options, Arc::clone(&inbox))?;
        let names = options.servers.iter().map(|spec| (spec.site, spec.name.clone())).collect();
        let pulse = Pulse::new(options, inbox.take().edge_rings);
        Ok(Self {
            node: options.name.clone(),
            state_file: options.state_file.clone(),
            names,
            record,
            inbox,
            worker,
            supervisor: Supervisor::new(options),
            slots: Slots::new(ms(options.slot_lease_ms)),
            slots_seen: false,
            pulse,
            machine: Machine::default(),
            status_at: Duration::ZERO,
            trim_at: TRIM_LOGS_EVERY,
            started: Instant::now(),
            assign: None,
            watched: false,
            published: false,
            stopping: false,
            snapshot,
            written: None,
            start_ticks: process::own_start_ticks(),
            wake: 0,
        })
    }

    /// Takes over a process of an earlier agent, before the first turn.
    pub(crate) fn adopt(&mut self, site: SiteId, process: Process, restarts: u32, held: Held) {
        let now = self.started.elapsed();
        if let Some(run) = self.supervisor.adopt(site, process, restarts, now) {
            self.worker.hold(site, run, held);
        }
    }

    /// From now on the record is the node's: the process id in its status says whose it is.
    pub(crate) fn set_published(&mut self) {
        self.published = true;
    }

    /// Whether every server that was taken over has answered or failed.
    pub(crate) fn is_settled(&self) -> bool {
        self.supervisor.is_settled()
    }

    /// Turns until the end.
    pub(crate) fn run(mut self) {
        let end = loop {
            let began = Instant::now();
            let turn = self.turn();
            if let Some(end) = turn.end {
                break end;
            }
            self.sleep(turn.sleep);
            let left = TURN_SPACING.saturating_sub(began.elapsed());
            if !left.is_zero() {
                std::thread::sleep(left);
            }
        };
        self.worker.end();
        match end {
            // The servers and the state file are the other agent's now.
            End::Replaced => tracing::error!(node = self.node, "another agent took its place"),
            End::Left => tracing::info!(node = self.node, "the servers are left to the next agent"),
            End::Stopped => {
                if let Err(error) = AgentState::remove(&self.state_file) {
                    tracing::warn!(%error, "the state file stays");
                }
            }
        }
    }

    /// Sleeps on the wake word.
    pub(crate) fn sleep(&self, longest: Duration) {
        let region = self.record.region();
        if region.wait(NodeRecord::wake_index(), self.wake, longest).is_err() {
            std::thread::sleep(longest.min(SLEEP_FALLBACK));
        }
    }

    /// One turn: hear, supervise, publish, beat.
    pub(crate) fn turn(&mut self) -> Turn {
        let taken = self.inbox.take();
        self.wake = taken.wake;
        let now = self.started.elapsed();
        let watched = self.pulse.hear(taken.edge_rings, now);
        if taken.stop && !self.stopping {
            self.stopping = true;
            // Edges send nothing from here on. The layout was checked when it was made.
            let _ = NodeRecord::retire(&**self.record.region());
        }
        if taken.leave && !self.stopping && self.leave() {
            return Turn { sleep: Duration::ZERO, end: Some(End::Left) };
        }
        let assign = self.record.assign();
        if assign.is_none() && !self.stopping {
            return Turn { sleep: Duration::ZERO, end: Some(End::Replaced) };
        }
        let site = assign.and_then(|assign| assign.site);
        let drained = self.are_drained(assign, now);
        let look = Look { now, site, drained, watched, stopping: self.stopping };
        let mut changed = !taken.reports.is_empty() || assign != self.assign;
        changed |= watched != self.watched;
        (self.assign, self.watched) = (assign, watched);
        let orders = self.supervisor.turn(&look, assign, taken.reports);
        changed |= !orders.is_empty();
        if changed {
            self.publish();
            if let Err(error) = self.write_state() {
                tracing::warn!(%error, "a new agent would not find the servers");
            }
        }
        self.worker.send(orders);
        let end = (self.stopping && self.supervisor.is_stopped()).then_some(End::Stopped);
        let next_beat = if self.stopping || self.supervisor.is_overdue(now) {
            now + NO_BEAT_POLL
        } else {
            self.beat(now, watched);
            self.pulse.next_due()
        };
        let due = self.supervisor.next_due(now).map_or(next_beat, |due| due.min(next_beat));
        Turn { sleep: due.saturating_sub(now), end }
    }

    /// Notes the servers for the next agent; without that they could not be left.
    fn leave(&mut self) -> bool {
        let noted = self.write_state();
        if let Err(error) = &noted {
            tracing::error!(%error, "the agent stays: the next one would not find the servers");
        }
        noted.is_ok()
    }

    /// Whether the last site's requests have ended; false where nobody needs to know.
    fn are_drained(&mut self, assign: Option<Assign>, now: Now) -> bool {
        let needed = self.supervisor.needs_slots(assign.and_then(|assign| assign.site));
        if needed && !self.slots_seen {
            self.slots.forget();
        }
        self.slots_seen = needed;
        match assign {
            Some(assign) if needed => self.slots.are_drained(&self.record, assign, now),
            _ => false,
        }
    }

    /// Beats if it is time to, and now and then tells about the machine.
    fn beat(&mut self, now: Now, watched: bool) {
        let Some(period) = self.pulse.beat(now) else { return };
        self.record.beat_once(period);
        if self.published && now >= self.status_at {
            self.status_at = now + if watched { STATUS_EVERY } else { IDLE_STATUS_EVERY };
            let ready = self.supervisor.servers().filter(|(_, s)| s.phase() == Phase::Ready);
            let servers_ready = ready.count() as u64;
            self.record.set_status(&self.machine.read(servers_ready));
        }
        if now >= self.trim_at {
            self.trim_at = now + TRIM_LOGS_EVERY;
            self.worker.trim_logs();
        }
    }

    /// Tells edges and people what changed. A server word goes before its warm bit when the
    /// server comes, and after it when it goes, so that a warm server always has an address.
    fn publish(&self) {
        for (site, server) in self.supervisor.servers() {
            if !server.is_warm() {
                self.record.set_warm(site, false);
            }
            let word = Supervisor::word(server);
            let last = self.record.server(site);
            if last != word {
                self.record.set_server(site, word);
                self.log_phase(site, server, last.phase);
            }
            if server.is_warm() {
                self.record.set_warm(site, true);
            }
        }
        self.record.set_ready(self.supervisor.ready());
        let snapshot = Snapshot {
            node: self.node.clone(),
            pid: std::process::id(),
            watched: self.watched,
            assigned_site: self.assign.and_then(|a| a.site).map(SiteId::get),
            assigned_version: self.assign.map_or(0, |assign| assign.version),
            servers: self.supervisor.servers().map(|(site, s)| self.status(site, s)).collect(),
        };
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
    }

    fn log_phase(&self, site: SiteId, server: &Server, last: Phase) {
        let phase = server.phase();
        if phase == last {
            return;
        }
        let (node, site, phase) = (&self.node, self.name_of(site), phase.name());
        match (&server.last_error, server.phase()) {
            (Some(error), Phase::Failing) => tracing::warn!(node, site, error, "server failing"),
            _ => tracing::info!(node, site, phase, "server"),
        }
    }

    fn name_of(&self, site: SiteId) -> &str {
        self.names.get(&site).map_or("", String::as_str)
    }

    fn status(&self, site: SiteId, server: &Server) -> ServerStatus {
        ServerStatus {
            site: site.get(),
            name: self.name_of(site).to_owned(),
            phase: server.phase().name(),
            warm: server.is_warm(),
            pid: server.process().map(|process| process.pid),
            address: server.address(),
            restarts: server.restarts,
            last_error: server.last_error.clone(),
        }
    }

    /// Notes the processes for the next agent, if anything changed.
    pub(crate) fn write_state(&mut self) -> Result<(), StateError> {
        let mut state = AgentState::new(&self.node, std::process::id(), self.start_ticks);
        for (site, server) in self.supervisor.servers() {
            let process = server.process().map(|process| ProcessState {
                pid: process.pid,
                start_ticks: process.start_ticks,
                address: process.address,
            });
            if process.is_some() || server.last_error.is_some() {
                state.servers.push(ServerState {
                    site: site.get(),
                    name: self.name_of(site).to_owned(),
                    process,
                    restarts: server.restarts,
                    last_error: server.last_error.as_deref().map(shortened),
                });
            }
        }
        if self.written.as_ref() != Some(&state) {
            state.write(&self.state_file)?;
            self.written = Some(state);
        }
        Ok(())
    }
}
