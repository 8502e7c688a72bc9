//! One edge: its data plane, its dispatcher and its look loop, in a process of its own.

use super::report::Reporter;
use super::sticky::stickiness;
use super::{options, places};
use crate::control::{Code, Refusal, Request, Response};
use crate::settings::{Settings, SettingsHash};
use anyhow::Context as _;
use edge::dispatch::Dispatch;
use edge::{Edge, MetricsReader};
use moves::looper::{Answer, Command, Commander, LoopStatus, Looper, LooperHandle};
use moves::{Ending, MoveRecord};
use pool_model::{EdgeId, NodeId, SiteId};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the look loop may take to answer; a move by a person is tried for five seconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(6);

/// A running edge.
pub(super) struct EdgeProcess {
    edge: Edge,
    looper: LooperHandle,
    dispatch: Dispatch,
}

/// Answers what the parent asks of an edge.
pub(super) struct EdgeControl {
    settings: Settings,
    commander: Commander,
    counters: MetricsReader,
    dispatch: Dispatch,
    reporter: Mutex<Reporter>,
}

impl EdgeProcess {
    /// Starts the look loop, then the data plane: a request that arrives first waits for the
    /// first look.
    pub(super) fn start(
        settings: &Settings,
        hash: SettingsHash,
        id: EdgeId,
        (folder, apart): (&Path, bool),
    ) -> anyhow::Result<Self> {
        let incarnation = incarnation()?;
        let dispatch = Dispatch::new(options::dispatch(settings, id, incarnation)?);
        let mut looper = options::looper(settings, hash.0, id, incarnation, folder);
        if apart {
            places::elsewhere(settings, &mut looper)?;
        }
        let looper = Looper::start(dispatch.clone(), options::policy(settings)?, looper)?;
        let edge =
            Edge::start(options::edge(settings, id, stickiness(settings, folder)?)?, &dispatch)
                .with_context(|| format!("edge {id} does not start"))?;
        Ok(Self { edge, looper, dispatch })
    }

    /// What answers for this edge.
    pub(super) fn control(
        &self,
        settings: &Settings,
        hash: SettingsHash,
        id: EdgeId,
    ) -> EdgeControl {
        let listen = self.edge.addresses().iter().map(ToString::to_string).collect();
        EdgeControl {
            settings: settings.clone(),
            commander: self.looper.commander(),
            counters: self.edge.metrics_reader(),
            dispatch: self.dispatch.clone(),
            reporter: Mutex::new(Reporter::new(settings.clone(), hash, id, listen)),
        }
    }

    /// Takes no more requests, finishes those in flight, then stops looking. Blocks, at most for
    /// `drain_max_ms`.
    pub(super) fn drain(self) {
        self.edge.close();
        self.dispatch.drain();
        self.edge.join();
        self.looper.stop();
    }
}

/// An edge's life: random, not zero.
fn incarnation() -> anyhow::Result<u32> {
    Ok(getrandom::u32().context("no random number for this edge's life")?.max(1))
}

impl EdgeControl {
    /// Notes the counters, for rates; about once a second.
    pub(super) fn sample(&self) {
        self.reporter().sample(&self.counters.snapshot());
    }

    fn reporter(&self) -> std::sync::MutexGuard<'_, Reporter> {
        self.reporter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a request out. Blocks until the look loop has answered.
    pub(super) fn answer(&self, request: &Request) -> Result<Response, Refusal> {
        match request {
            Request::Status => {
                let status = self.status(u64::MAX)?;
                let (counters, balance) = (self.counters.snapshot(), self.dispatch.counts());
                let report = self.reporter().report(&status, &counters, &balance);
                Ok(Response::Status(Box::new(report)))
            }
            Request::Moves(arguments) => {
                let status = self.status(0)?;
                Ok(Response::Moves(self.reporter().moves(&status.moves, arguments.limit)))
            }
            Request::FirstDispatches => {
                let status = self.status(0)?;
                Ok(Response::FirstDispatches(self.reporter().first(&status.first_dispatches)))
            }
            Request::Move(arguments) => {
                let (node, to) = (self.node(&arguments.node)?, self.site(&arguments.site)?);
                let record = self.move_node(node, Some(to))?;
                let (node, site) = (&arguments.node, &arguments.site);
                moved(&record, &format!("{node} serves {site}"))
            }
            Request::Drain(arguments) => self.drain_node(&arguments.node),
            Request::Undrain(arguments) => {
                let node = self.node(&arguments.node)?;
                self.ask_done(Command::Cordon { node, cordoned: false })?;
                Ok(Response::done(format!("{} is back in service", arguments.node)))
            }
            Request::Pause => {
                self.ask_done(Command::Pause { paused: true })?;
                Ok(Response::done("no node moves until `polder resume`"))
            }
            Request::Resume => {
                self.ask_done(Command::Pause { paused: false })?;
                Ok(Response::done("nodes move again"))
            }
            Request::Stop => {
                Err(Refusal::new(Code::Refused, "an edge is stopped by its parent process"))
            }
        }
    }

    fn node(&self, name: &str) -> Result<NodeId, Refusal> {
        let found = self.settings.node(name).map(|(id, _)| id);
        found.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no node {name:?}")))
    }

    fn site(&self, name: &str) -> Result<SiteId, Refusal> {
        let found = self.settings.site(name).map(|(id, _)| id);
        found.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no site {name:?}")))
    }

    fn ask(&self, command: Command) -> Result<Answer, Refusal> {
        let asked = self.commander.ask(command, ANSWER_PATIENCE);
        asked.map_err(|gone| Refusal::new(Code::Timeout, gone.to_string()))
    }

    fn ask_done(&self, command: Command) -> Result<(), Refusal> {
        match self.ask(command)? {
            Answer::Refused(why) => Err(Refusal::new(Code::Refused, why)),
            _ => Ok(()),
        }
    }

    fn status(&self, moves_from: u64) -> Result<LoopStatus, Refusal> {
        match self.ask(Command::Status { moves_from })? {
            Answer::Status(status) => Ok(*status),
            _ => Err(Refusal::new(Code::Internal, "the look loop gave no status")),
        }
    }

    fn move_node(&self, node: NodeId, to: Option<SiteId>) -> Result<MoveRecord, Refusal> {
        match self.ask(Command::Move { node, to })? {
            Answer::Moved(record) => Ok(record),
            Answer::Refused(why) => Err(Refusal::new(Code::Refused, why)),
            _ => Err(Refusal::new(Code::Internal, "the look loop gave no record")),
        }
    }

    /// Out of service first, so that a site at its guarantee gets another node; then free.
    fn drain_node(&self, name: &str) -> Result<Response, Refusal> {
        let node = self.node(name)?;
        self.ask_done(Command::Cordon { node, cordoned: true })?;
        let record = self.move_node(node, None)?;
        if record.ending == Ending::Moved {
            return Ok(Response::done(format!("{name} takes no new requests")));
        }
        let why = record.ending.name();
        Ok(Response::done(format!(
            "{name} takes no new requests, but its site still counts it ({why}): no other node can \
             take its place now. Add a node, or lower the site's `hard`; then drain it again"
        )))
    }
}

fn moved(record: &MoveRecord, done: &str) -> Result<Response, Refusal> {
    match record.ending {
        Ending::Moved | Ending::Helped => Ok(Response::done(done)),
        Ending::WouldMove => {
            Ok(Response::done("mode is observe: it was logged, nothing moved".to_owned()))
        }
        ending => {
            let text = format!("the node was not moved: {}", ending.name());
            Err(Refusal::new(Code::Refused, text))
        }
    }
}
