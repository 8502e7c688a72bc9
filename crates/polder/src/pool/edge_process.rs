//! One edge: its data plane, its dispatcher and its look loop, in a process of its own.

use super::purging::Purger;
use super::report::Reporter;
use super::sticky::stickiness;
use super::{cache, options, places, versions};
use crate::control::{CacheExplainArguments, Code, Refusal, Request, Response, UpdateArguments};
use crate::settings::{self, Settings};
use anyhow::Context as _;
use edge::dispatch::{Dispatch, DispatchOptions};
use edge::{CacheControl, Closer, Edge, Listening, MetricsReader, Versions};
use moves::looper::{Answer, Command, Commander, LoopStatus, Looper, LooperHandle, Update};
use moves::{Ending, MoveRecord};
use pool_model::{EdgeId, NodeId, SiteId};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

/// How long the look loop may take to answer; a move by a person is tried for five seconds.
const ANSWER_PATIENCE: Duration = Duration::from_secs(6);

/// Which edge this is.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    /// Its place in the settings.
    pub(super) place: usize,
    /// Its number: its slot in each record.
    pub(super) slot: EdgeId,
    /// The version of the settings in the shared words.
    pub(super) version: u32,
    /// The pool's folder.
    pub(super) folder: PathBuf,
    /// Whether the home and the agents are on other machines.
    pub(super) apart: bool,
}

/// A running edge, and what answers the parent for it.
pub(super) struct EdgeControl {
    seat: Seat,
    incarnation: u32,
    settings: RefCell<Settings>,
    /// Gone while it drains.
    edge: RefCell<Option<Edge>>,
    closer: Closer,
    looper: RefCell<Option<LooperHandle>>,
    dispatch: Dispatch,
    commander: Commander,
    counters: MetricsReader,
    /// Also while it drains.
    cache: CacheControl,
    /// Of each site, those that have a version table: they stay for the pool's life.
    versions: Vec<Option<Versions>>,
    reporter: RefCell<Reporter>,
    purger: Purger,
}

/// An edge's life: random, not zero.
fn incarnation() -> anyhow::Result<u32> {
    Ok(getrandom::u32().context("no random number for this edge's life")?.max(1))
}

impl EdgeControl {
    /// Starts the look loop, then the data plane on these sockets: a request that arrives first
    /// waits for the first look.
    pub(super) fn start(
        settings: &Settings,
        seat: Seat,
        sockets: Vec<Listening>,
    ) -> anyhow::Result<Self> {
        let (incarnation, slot, hash) = (incarnation()?, seat.slot, settings.pool_hash());
        let dispatch = Dispatch::new(options::dispatch(settings, slot, incarnation)?);
        let version = (hash.0, seat.version);
        let mut looper = options::looper(settings, version, slot, incarnation, &seat.folder);
        if seat.apart {
            places::elsewhere(settings, &mut looper)?;
        }
        let looper = Looper::start(dispatch.clone(), options::policy(settings)?, looper)?;
        let versions = versions::attach(settings, &seat)?;
        let purger = Purger::new(&seat.folder);
        let purging = purger.purging(settings)?;
        let sticky = stickiness(settings, &seat.folder)?;
        let options = options::edge(settings, seat.place, sticky, &versions, purging)?;
        let edge = Edge::start_on(options, &dispatch, sockets)
            .with_context(|| format!("edge {slot} does not start"))?;
        let listen = edge.addresses().iter().map(ToString::to_string).collect();
        Ok(Self {
            incarnation,
            settings: RefCell::new(settings.clone()),
            dispatch,
            commander: looper.commander(),
            counters: edge.metrics_reader(),
            cache: edge.cache(),
            reporter: RefCell::new(Reporter::new(settings.clone(), hash, slot, listen)),
            closer: edge.closer(),
            edge: RefCell::new(Some(edge)),
            looper: RefCell::new(Some(looper)),
            purger,
            versions,
            seat,
        })
    }

    /// Closes connections that wait for a request: nobody takes over from this edge.
    pub(super) fn close(&self) {
        self.closer.close();
    }

    /// Takes no more clients; those that are there end with their next answer, and no move is
    /// decided meanwhile. Done when what comes back is: after `drain_max_ms` at the most.
    pub(super) fn drain(&self) -> tokio::task::JoinHandle<()> {
        let (edge, looper) = (self.edge.take(), self.looper.take());
        // A loop that does not answer ends with the process.
        let _ = self.ask(Command::Retire);
        if let Some(edge) = &edge {
            edge.drain();
        }
        tokio::task::spawn_blocking(move || {
            // The loop looks until the last request is done.
            edge.into_iter().for_each(Edge::join);
            looper.into_iter().for_each(LooperHandle::stop);
        })
    }

    /// Notes the counters, for rates; about once a second.
    pub(super) fn sample(&self) {
        self.reporter.borrow_mut().sample(&self.counters.snapshot());
    }

    /// Goes on under the settings in the parent's copy, or only says whether it could.
    fn update(&self, arguments: &UpdateArguments) -> Result<Response, Refusal> {
        let refused = |error: String| Refusal::new(Code::Refused, error);
        let file = &arguments.file;
        let settings = settings::load_running(file).map_err(|error| refused(error.to_string()))?;
        let parts = self.parts(&settings, arguments).map_err(|e| refused(format!("{e:#}")))?;
        let Parts { edge: options, dispatch, update } = parts;
        if let (Some(edge), Some(options)) = (&*self.edge.borrow(), options) {
            let done = match arguments.is_trial {
                true => edge.check_update(options),
                false => edge.update(options),
            };
            done.map_err(|error| refused(error.to_string()))?;
            if !arguments.is_trial {
                // It may have been renamed.
                edge.reopen_access_log();
            }
        }
        if arguments.is_trial {
            return Ok(Response::done("it can go on under these settings"));
        }
        self.dispatch.update(&dispatch.sites, dispatch.health);
        let hash = settings.pool_hash();
        self.ask_done(Command::Update(Box::new(update)))?;
        self.reporter.borrow_mut().update(settings.clone(), hash);
        self.settings.replace(settings);
        Ok(Response::done("it goes on under the new settings"))
    }

    fn parts(&self, settings: &Settings, arguments: &UpdateArguments) -> anyhow::Result<Parts> {
        let Seat { place, slot, folder, .. } = &self.seat;
        let hash = (settings.pool_hash().0, arguments.version);
        let sticky = stickiness(settings, folder)?;
        let purging = self.purger.purging(settings)?;
        let edge = || options::edge(settings, *place, sticky, &self.versions, purging);
        let edge = arguments.is_all.then(edge).transpose()?;
        let dispatch = options::dispatch(settings, *slot, self.incarnation)?;
        let options = options::looper(settings, hash, *slot, self.incarnation, folder);
        let update = Update { policy: options::policy(settings)?, options };
        Ok(Parts { edge, dispatch, update })
    }

    /// Carries a request out. Blocks until the look loop has answered.
    pub(super) fn answer(&self, request: &Request) -> Result<Response, Refusal> {
        match request {
            Request::Status => {
                let status = self.status(u64::MAX)?;
                let (counters, balance) = (self.counters.snapshot(), self.dispatch.counts());
                let classes = self.dispatch.class_counts();
                let reporter = self.reporter.borrow();
                let report = reporter.report(&status, &counters, &balance, &classes);
                Ok(Response::Status(Box::new(report)))
            }
            Request::Moves(arguments) => {
                let status = self.status(0)?;
                Ok(Response::Moves(self.reporter.borrow().moves(&status.moves, arguments.limit)))
            }
            Request::FirstDispatches => {
                let status = self.status(0)?;
                Ok(Response::FirstDispatches(
                    self.reporter.borrow().first(&status.first_dispatches),
                ))
            }
            Request::Move(arguments) => {
                let (node, to) = (self.node(&arguments.node)?, self.site(&arguments.site)?);
                self.check_fit(node, to)?;
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
            Request::CachePurge(arguments) => {
                cache::purge(&self.cache, &self.settings.borrow(), arguments)
            }
            Request::CacheForget(arguments) => {
                cache::forget(&self.cache, &self.settings.borrow(), arguments)
            }
            Request::Update(arguments) => self.update(arguments),
            Request::Stop
            | Request::CacheExplain(_)
            | Request::Reload(_)
            | Request::Sites(_)
            | Request::SetSite(_)
            | Request::Upgrade(_) => {
                Err(Refusal::new(Code::Refused, "that is a matter of the parent process"))
            }
        }
    }

    /// What this edge's cache holds for a URL. Waits for the disk.
    pub(super) async fn explain(
        &self,
        arguments: &CacheExplainArguments,
    ) -> Result<Response, Refusal> {
        let (settings, edge) = (self.settings.borrow().clone(), self.seat.slot.get().into());
        cache::explain(&self.cache, &settings, edge, arguments).await
    }

    fn node(&self, name: &str) -> Result<NodeId, Refusal> {
        let found = self.settings.borrow().node(name).map(|(id, _)| id);
        found.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no node {name:?}")))
    }

    fn site(&self, name: &str) -> Result<SiteId, Refusal> {
        let found = self.settings.borrow().site(name).map(|(id, _)| id);
        found.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no site {name:?}")))
    }

    /// Refuses to give a node to a site that it can't serve.
    fn check_fit(&self, node: NodeId, site: SiteId) -> Result<(), Refusal> {
        let settings = self.settings.borrow();
        let (node, site) = (&settings.nodes[node.index()], &settings.sites[site.index()]);
        if site.terms.fitness_pct(node.traits) > 0 {
            return Ok(());
        }
        let classes: Vec<&str> = settings.class_names(site.terms.wants).collect();
        let text = format!(
            "{} can't serve {}, which needs classes {}; `unfit_pct` of the site says what other \
             nodes do for it",
            node.name,
            site.name,
            classes.join(", ")
        );
        Err(Refusal::new(Code::Refused, text))
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

/// Settings as the parts of an edge take them; the data plane's only where they concern it.
struct Parts {
    edge: Option<edge::Options>,
    dispatch: DispatchOptions,
    update: Update,
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
