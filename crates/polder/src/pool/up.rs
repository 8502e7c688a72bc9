//! The parent process of a pool.
//!
//! ```text
//! settings -> folder, lock -> leftovers of a killed run -> home -> agents -> edges -> control
//! wait for SIGTERM or SIGINT -> edges drain -> agents stop their servers -> folder cleared
//! ```

use super::children::{Family, Role, Supervised};
use super::{agent_process, child, options, places};
use crate::control::{
    AskError, Code, FirstDispatch, Handler, Refusal, Request, Response, Server, ask_async,
};
use crate::metrics::{MetricsServer, Snapshot};
use crate::runtime_dir::{Base, CONTROL_SOCKET, RuntimeDir};
use crate::settings::{Servers, Settings};
use crate::status::{EdgeStatus, MoveRecord, StatusReport, Warning};
use anyhow::Context as _;
use edge::Reservation;
use pool_model::{EdgeId, NodeId};
use remote_memory::shm::RegionServer;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How long an edge may take to answer the parent.
const EDGE_PATIENCE: Duration = Duration::from_secs(7);
/// How long a starting pool may take until all nodes serve, before it is said that some don't.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a pool that starts.
const READY_POLL: Duration = Duration::from_millis(20);
/// The parent's copy of the settings file, which its children read.
const SETTINGS_COPY: &str = "settings.toml";

/// What `up` is told.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The text of the settings file, as it was checked.
    pub text: String,
    /// What was set on the command line.
    pub overrides: Vec<String>,
    /// What children log, if the command line says.
    pub log_level: Option<String>,
    /// The program to start children with: this one.
    pub program: PathBuf,
}

/// What the parent tells whoever started it.
pub trait Watcher {
    /// All nodes serve and all edges listen (or `missing` says what does not).
    fn ready(&mut self, report: &StatusReport, missing: &[String], after: Duration);
    /// The pool is about to stop.
    fn stopping(&mut self);
}

/// Runs a pool until SIGTERM or SIGINT. Blocks.
pub fn run(
    settings: &Settings,
    options: &UpOptions,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<()> {
    child::runtime()?.block_on(async {
        let mut ends = child::ends()?;
        let started = Instant::now();
        let pool = Pool::start(settings, options)?;
        let control = Server::bind(&pool.folder.path().join(CONTROL_SOCKET))?;
        let mut metrics = pin!(serve_metrics(Rc::clone(&pool.asker), settings.pool.metrics));
        let mut serving = pin!(control.run(ParentHandler(Rc::clone(&pool.asker))));
        let asker = Rc::clone(&pool.asker);
        let mut ready = pin!(asker.ready(started));
        let mut told = false;
        let mut failed = pool.failed.clone();
        let outcome = loop {
            tokio::select! {
                () = ends.wait() => break Ok(()),
                () = asker.stopped() => break Ok(()),
                () = &mut serving => {}
                error = &mut metrics => break error,
                (report, missing) = &mut ready, if !told => {
                    told = true;
                    watcher.ready(&report, &missing, started.elapsed());
                }
                why = failure(&mut failed), if !told => break Err(anyhow::anyhow!(why)),
            }
        };
        watcher.stopping();
        pool.stop().await;
        outcome
    })
}

/// Why a child can't start; ends only when one can't.
async fn failure(failed: &mut watch::Receiver<Option<String>>) -> String {
    match failed.wait_for(Option::is_some).await {
        Ok(why) => why.clone().unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}

/// A running pool, as its parent holds it.
struct Pool {
    folder: RuntimeDir,
    asker: Rc<Asker>,
    /// The home's region and the agents of nodes without one of their own: in this process.
    home: RegionServer,
    agents: Vec<agent::Handle>,
    edges: Vec<JoinHandle<()>>,
    agent_processes: Vec<JoinHandle<()>>,
    stop_edges: watch::Sender<bool>,
    stop_agents: watch::Sender<bool>,
    state_files: Vec<PathBuf>,
    /// Where edges listen, also while one of them is started again.
    addresses: Vec<Reservation>,
    stop_timeout: Duration,
    /// Why a child could not start at all.
    failed: watch::Receiver<Option<String>>,
}

impl Pool {
    fn start(settings: &Settings, options: &UpOptions) -> anyhow::Result<Self> {
        let path = settings.pool.runtime_dir.clone();
        let folder =
            RuntimeDir::take(path.unwrap_or_else(|| Base::of_user().of_pool(&settings.pool.name)))?;
        let stop_timeout = Duration::from_millis(settings.health.stop_timeout_ms.into());
        reap(folder.path(), stop_timeout);
        let addresses = reserve(settings)?;
        folder.clear()?;
        let copy = folder.path().join(SETTINGS_COPY);
        write_private(&copy, &options.text)?;
        let home = serve_home(settings, folder.path())?;
        let family = Family {
            program: options.program.clone(),
            settings: settings.clone(),
            file: copy,
            overrides: options.overrides.clone(),
            log_level: options.log_level.clone(),
            folder: folder.path().to_owned(),
            apart: false,
        };
        let (stop_edges, edges_stop) = watch::channel(false);
        let (stop_agents, agents_stop) = watch::channel(false);
        let (fail, failed) = watch::channel(None);
        let fail = Rc::new(fail);
        let (mut agents, mut agent_processes) = (Vec::new(), Vec::new());
        for (index, node) in settings.nodes.iter().enumerate() {
            let id = NodeId::new(u16::try_from(index)?)?;
            if matches!(node.servers, Servers::Addresses(_)) {
                agents.push(agent_process::start(settings, id, folder.path())?);
                continue;
            }
            let child = Supervised::new(&family, Role::Agent(id));
            let running = child.run(agents_stop.clone(), Rc::clone(&fail));
            agent_processes.push(tokio::task::spawn_local(running));
        }
        let mut edges = Vec::new();
        for index in 0..settings.edges.len() {
            let id = EdgeId::new(u8::try_from(index)?)?;
            let child = Supervised::new(&family, Role::Edge(id));
            let running = child.run(edges_stop.clone(), Rc::clone(&fail));
            edges.push(tokio::task::spawn_local(running));
        }
        let state_file =
            |node: &crate::settings::Node| options::state_file(folder.path(), &node.name);
        let state_files = settings.nodes.iter().map(state_file).collect();
        let asker = Rc::new(Asker::new(settings, folder.path()));
        Ok(Self {
            folder,
            asker,
            home,
            agents,
            edges,
            agent_processes,
            stop_edges,
            stop_agents,
            state_files,
            addresses,
            stop_timeout,
            failed,
        })
    }

    /// Edges first, so that requests in flight still find their servers.
    async fn stop(self) {
        self.stop_edges.send_replace(true);
        for edge in self.edges {
            // A task that panicked has nothing left to wait for.
            drop(edge.await);
        }
        self.stop_agents.send_replace(true);
        for agent in self.agent_processes {
            drop(agent.await);
        }
        for agent in self.agents {
            agent.stop();
        }
        drop(self.addresses);
        drop(self.home);
        for file in self.state_files.iter().filter(|file| file.exists()) {
            reap_servers(file, self.stop_timeout);
        }
        if let Err(error) = self.folder.clear() {
            tracing::warn!(%error, "the pool's folder was not cleared");
        }
    }
}

/// Serves `/metrics` and `/healthz` for as long as the pool runs.
async fn serve_metrics(asker: Rc<Asker>, address: Option<SocketAddr>) -> anyhow::Result<()> {
    let Some(address) = address else {
        return std::future::pending().await;
    };
    let server = MetricsServer::bind(address)
        .await
        .with_context(|| format!("metrics can't be served at {address}"))?;
    asker.set_metrics(server.address().to_string());
    server.run(Reports(asker)).await;
    Ok(())
}

struct Reports(Rc<Asker>);

impl Snapshot for Reports {
    async fn report(&self) -> Result<StatusReport, String> {
        self.0.status().await.map_err(|refusal| refusal.to_string())
    }
}

/// Ends servers that a killed run left behind.
fn reap(folder: &Path, stop_timeout: Duration) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if options::is_state_file(&path) {
            reap_servers(&path, stop_timeout);
        }
    }
}

fn reap_servers(state_file: &Path, stop_timeout: Duration) {
    match agent::reap_leftovers(state_file, stop_timeout) {
        Ok(0) => {}
        Ok(count) => tracing::warn!("ended {count} servers that a dead agent had left"),
        Err(error) => tracing::warn!(%error, "servers of a dead agent may be left"),
    }
}

/// Takes all addresses for the edges; two edges may share one.
fn reserve(settings: &Settings) -> anyhow::Result<Vec<Reservation>> {
    let wanted = settings.edges.iter().flat_map(|edge| edge.addresses());
    let distinct: BTreeSet<_> = wanted.filter(|address| address.port() != 0).collect();
    let reserved = distinct.into_iter().map(|address| Ok(edge::reserve(address)?));
    reserved.collect()
}

pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn serve_home(settings: &Settings, folder: &Path) -> anyhow::Result<RegionServer> {
    let region = places::site_record(settings)?;
    Ok(RegionServer::bind(options::home_socket(folder), region)?)
}

/// Asks the edges and puts their answers together.
struct Asker {
    settings: Settings,
    folder: PathBuf,
    started: Instant,
    metrics: RefCell<Option<String>>,
    stop: watch::Sender<bool>,
}

impl Asker {
    fn new(settings: &Settings, folder: &Path) -> Self {
        let (stop, _) = watch::channel(false);
        Self {
            settings: settings.clone(),
            folder: folder.to_owned(),
            started: Instant::now(),
            metrics: RefCell::new(None),
            stop,
        }
    }

    /// Where metrics are served, once that is known.
    fn set_metrics(&self, address: String) {
        *self.metrics.borrow_mut() = Some(address);
    }

    async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as this.
        drop(stop.wait_for(|stop| *stop).await);
    }

    async fn edge(&self, index: usize, request: &Request) -> Result<Response, AskError> {
        let id = u8::try_from(index).ok().and_then(|n| EdgeId::new(n).ok()).unwrap_or(EdgeId::MAX);
        ask_async(&options::edge_control(&self.folder, id), request, EDGE_PATIENCE).await
    }

    /// The state of the pool; edges that don't answer are told as dead.
    async fn status(&self) -> Result<StatusReport, Refusal> {
        let (mut reports, mut dead) = (Vec::new(), Vec::new());
        for index in 0..self.settings.edges.len() {
            match self.edge(index, &Request::Status).await {
                Ok(Response::Status(report)) => reports.push(*report),
                _ => dead.push(u32::try_from(index).unwrap_or(u32::MAX)),
            }
        }
        let merged = StatusReport::merge(reports);
        let mut report =
            merged.ok_or_else(|| Refusal::new(Code::Timeout, "no edge answers; see its log"))?;
        for edge in dead {
            report.edges.push(EdgeStatus { edge, ..EdgeStatus::default() });
            report.warnings.push(Warning::EdgeDead { edge });
        }
        report.edges.sort_by_key(|edge| edge.edge);
        report.pool.uptime_s = self.started.elapsed().as_secs();
        report.pool.metrics = self.metrics.borrow().clone();
        Ok(report)
    }

    async fn moves(&self, request: &Request, limit: usize) -> Vec<MoveRecord> {
        let (mut all, mut first) = (Vec::new(), Vec::new());
        for index in 0..self.settings.edges.len() {
            if let Ok(Response::Moves(moves)) = self.edge(index, request).await {
                all.extend(moves);
            }
            let asked = self.edge(index, &Request::FirstDispatches).await;
            if let Ok(Response::FirstDispatches(dispatches)) = asked {
                first.extend(dispatches);
            }
        }
        all.sort_by_key(|one| one.effect_ns);
        earliest_dispatches(&mut all, &first);
        all.split_off(all.len().saturating_sub(limit))
    }

    /// The first edge that answers carries it out.
    async fn any(&self, request: &Request) -> Result<Response, Refusal> {
        let mut last = Refusal::new(Code::Timeout, "no edge answers; see its log");
        for index in 0..self.settings.edges.len() {
            match self.edge(index, request).await {
                Ok(response) => return Ok(response),
                Err(AskError::Refused(refusal)) => return Err(refusal),
                Err(error) => last = Refusal::new(Code::Timeout, error.to_string()),
            }
        }
        Err(last)
    }

    /// Waits until all edges answer and all nodes serve, or for as long as that may take.
    async fn ready(&self, started: Instant) -> (StatusReport, Vec<String>) {
        loop {
            tokio::time::sleep(READY_POLL).await;
            let Ok(report) = self.status().await else { continue };
            let missing = missing(&report);
            if missing.is_empty() || started.elapsed() > READY_PATIENCE {
                return (report, missing);
            }
        }
    }
}

/// A moved node's first request may come from another edge than the one that moved it. `moves` are
/// in the order in which they took effect.
fn earliest_dispatches(moves: &mut [MoveRecord], first: &[FirstDispatch]) {
    for place in 0..moves.len() {
        let (node, from_ns) = (moves[place].node.clone(), moves[place].effect_ns);
        let next = moves[place + 1..].iter().find(|later| later.node == node);
        let until_ns = next.map_or(u64::MAX, |later| later.effect_ns);
        let of_this = first.iter().filter(|one| one.node == node);
        let earliest = of_this
            .map(|one| one.at_ns)
            .filter(|&at_ns| (from_ns..until_ns).contains(&at_ns))
            .chain(moves[place].first_dispatch_ns)
            .min();
        let this = &mut moves[place];
        this.first_dispatch_ns = earliest;
        this.move_ms = earliest.map(|at_ns| at_ns.saturating_sub(this.decided_ns) as f64 / 1e6);
    }
}

/// What does not serve yet, in words.
fn missing(report: &StatusReport) -> Vec<String> {
    use crate::status::NodeState;
    let dead = report.edges.iter().filter(|edge| !edge.alive);
    let idle = report.nodes.iter().filter(|node| {
        let waits = matches!(node.state, NodeState::Waiting | NodeState::Unreachable);
        waits || node.servers.iter().any(|server| server == "starting")
    });
    dead.map(|edge| format!("edge {} does not answer", edge.edge))
        .chain(idle.map(|node| format!("node {} is {}", node.name, node.state.name())))
        .collect()
}

struct ParentHandler(Rc<Asker>);

impl Handler for ParentHandler {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        match &request {
            Request::Status => Ok(Response::Status(Box::new(self.0.status().await?))),
            Request::Moves(arguments) => {
                Ok(Response::Moves(self.0.moves(&request, arguments.limit).await))
            }
            Request::Stop => {
                self.0.stop.send_replace(true);
                Ok(Response::done("the pool drains and stops"))
            }
            _ => self.0.any(&request).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(node: &str, decided_ns: u64, first_dispatch_ns: Option<u64>) -> MoveRecord {
        MoveRecord {
            at_unix_ms: 0,
            node: node.into(),
            from: None,
            to: None,
            reason: "load".into(),
            load: None,
            edge: 0,
            move_ms: None,
            observed_only: false,
            decided_ns,
            effect_ns: decided_ns + 10,
            first_dispatch_ns,
        }
    }

    #[test]
    fn the_earliest_first_request_counts_whichever_edge_sent_it() {
        let mut moves = vec![
            moved("n1", 1_000_000, Some(9_000_000)),
            moved("n2", 1_000_000, None),
            moved("n1", 20_000_000, None),
        ];
        let first = |node: &str, at_ns| FirstDispatch { node: node.into(), at_ns };
        let all = [first("n1", 2_000_000), first("n1", 999), first("n1", 21_000_000)];
        earliest_dispatches(&mut moves, &all);
        let told: Vec<_> = moves.iter().map(|one| one.move_ms).collect();
        assert_eq!(told, [Some(1.0), None, Some(1.0)]);
    }
}
