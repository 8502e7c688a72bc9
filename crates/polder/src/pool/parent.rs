//! What the parent process of a pool holds, and how it comes and goes.
//!
//! ```text
//! start:   settings -> folder, lock -> leftovers of a killed run -> sockets -> home -> agents
//!          -> edges
//! stop:    edges drain -> agents stop their servers -> folder cleared
//! ```

use super::children::{Family, Role, Ward};
use super::sockets::Sockets;
use super::tables::Table;
use super::{agent_process, options, places};
use crate::control::Server;
use crate::handed;
use crate::metrics::MetricsServer;
use crate::runtime_dir::{Base, CONTROL_SOCKET, RuntimeDir};
use crate::settings::{Live, Node, Servers, Settings};
use crate::status::ChangeStatus;
use anyhow::Context as _;
use moves::looper::monotonic;
use pool_model::{EdgeId, NodeId};
use remote_memory::shm::{OwnedRegion, RegionServer};
use shared_state::SiteRecord;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The parent's copy of the settings, which its children read.
pub(super) const SETTINGS_COPY: &str = "settings.toml";

/// What `up` is told.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The settings file; absolute.
    pub file: PathBuf,
    /// What it said when it was read last: keys that are set meanwhile go over that, not over
    /// what somebody is editing.
    pub text: String,
    /// What was set on the command line.
    pub overrides: Vec<String>,
    /// What children log, if the command line says.
    pub log_level: Option<String>,
    /// The program to start children with: this one.
    pub program: PathBuf,
}

/// Who looks after a node.
pub(super) enum Agent {
    /// A process of its own.
    Process(Rc<Ward>),
    /// This process: the node's servers are only addresses.
    Here(agent::Handle),
}

/// The site record.
pub(super) struct Home {
    pub(super) region: Arc<OwnedRegion>,
    pub(super) record: SiteRecord,
    pub(super) _server: RegionServer,
}

/// Where `/metrics` is served.
pub(super) struct Metrics {
    pub(super) listener: TcpListener,
}

/// A running pool.
pub(super) struct Parent {
    pub(super) folder: RuntimeDir,
    /// Where the settings come from, for the next reload.
    pub(super) source: RefCell<UpOptions>,
    /// What was set since, until the next reload.
    pub(super) live: RefCell<Live>,
    pub(super) family: Rc<RefCell<Family>>,
    pub(super) sockets: Rc<RefCell<Sockets>>,
    pub(super) home: Home,
    pub(super) control: UnixListener,
    pub(super) metrics: Option<Metrics>,
    /// By place in the settings.
    pub(super) edges: RefCell<Vec<Rc<Ward>>>,
    /// Edges that others took over from, until they have ended.
    pub(super) leaving: RefCell<Vec<Rc<Ward>>>,
    /// The edge that is about to take another's place, and serves perhaps.
    pub(super) coming: RefCell<Option<Rc<Ward>>>,
    pub(super) agents: RefCell<BTreeMap<NodeId, Agent>>,
    /// The version tables, and who answers writers if there are any.
    pub(super) tables: RefCell<Vec<Table>>,
    pub(super) writers: RefCell<Option<Rc<Ward>>>,
    /// When the pool started, by the machine's clock.
    pub(super) started: Duration,
    pub(super) reloads: Cell<u32>,
    pub(super) upgrades: Cell<u32>,
    pub(super) change: RefCell<Option<ChangeStatus>>,
    pub(super) stop: watch::Sender<bool>,
}

impl Parent {
    /// Starts everything. To be called within a tokio runtime.
    pub(super) fn start(settings: &Settings, source: &UpOptions) -> anyhow::Result<Rc<Self>> {
        let outside = handed::sockets().context("sockets from the service manager")?;
        let path = settings.pool.runtime_dir.clone();
        let folder =
            RuntimeDir::take(path.unwrap_or_else(|| Base::of_user().of_pool(&settings.pool.name)))?;
        reap(folder.path(), stop_timeout(settings));
        let mut sockets = Sockets::from_outside(outside)?;
        sockets.prepare(settings)?;
        for address in sockets.unused(settings) {
            tracing::warn!("no edge listens on {address}, a socket from the service manager");
        }
        sockets.retain(settings);
        let metrics = settings.pool.metrics.map(Metrics::bind).transpose()?;
        // From here on files lie in the folder.
        folder.clear()?;
        let tables = settings.sites.iter().map(|site| Table::start(site, folder.path()));
        let tables: Vec<Table> = tables.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let copy = folder.path().join(SETTINGS_COPY);
        write_private(&copy, &settings.to_toml())?;
        let home = serve_home(settings, folder.path())?;
        let control = Server::listen(&folder.path().join(CONTROL_SOCKET))?;
        let family = Family {
            program: source.program.clone(),
            settings: Rc::new(settings.clone()),
            version: options::SETTINGS_VERSION_MIN,
            file: copy,
            log_level: source.log_level.clone(),
            folder: folder.path().to_owned(),
            apart: false,
        };
        let parent = Rc::new(Self {
            folder,
            source: RefCell::new(source.clone()),
            live: RefCell::default(),
            family: Rc::new(RefCell::new(family)),
            sockets: Rc::new(RefCell::new(sockets)),
            home,
            control,
            metrics,
            edges: RefCell::default(),
            leaving: RefCell::default(),
            coming: RefCell::default(),
            agents: RefCell::default(),
            tables: RefCell::new(tables),
            writers: RefCell::default(),
            started: monotonic(),
            reloads: Cell::new(0),
            upgrades: Cell::new(0),
            change: RefCell::default(),
            stop: watch::Sender::new(false),
        });
        for index in 0..settings.nodes.len() {
            parent.start_agent(NodeId::new(u16::try_from(index)?)?, None)?;
        }
        parent.start_writers();
        for place in 0..settings.edges.len() {
            let ward = parent.new_edge(place, EdgeId::new(u8::try_from(place)?)?);
            ward.start();
            parent.edges.borrow_mut().push(ward);
        }
        Ok(parent)
    }

    pub(super) fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.family.borrow().settings)
    }

    /// A file of the pool's folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the agent of a node; `memory` is what one before it here left.
    pub(super) fn start_agent(&self, id: NodeId, memory: Option<OwnedFd>) -> anyhow::Result<()> {
        let settings = self.settings();
        let node = settings.nodes.get(id.index()).context("no such node")?;
        let agent = if is_here(node) {
            Agent::Here(agent_process::start(&settings, id, self.folder.path(), memory)?)
        } else {
            let ward = Ward::new(Role::Agent(id), Vec::new(), &self.family, &self.sockets);
            ward.start();
            Agent::Process(ward)
        };
        self.agents.borrow_mut().insert(id, agent);
        Ok(())
    }

    /// Starts who answers writers, if there is a table to answer over.
    pub(super) fn start_writers(&self) {
        if self.tables.borrow().is_empty() {
            return;
        }
        let ward = Ward::new(Role::Writers, Vec::new(), &self.family, &self.sockets);
        ward.start();
        self.writers.replace(Some(ward));
    }

    /// An edge for a place of the settings, not yet started.
    pub(super) fn new_edge(&self, place: usize, slot: EdgeId) -> Rc<Ward> {
        let shares = self.sockets.borrow().shares(&self.settings(), place);
        Ward::new(Role::Edge { place, slot }, shares, &self.family, &self.sockets)
    }

    /// Why a child can't start; ends only when one can't.
    pub(super) async fn failure(&self) -> String {
        let mut all: Vec<_> = self.edges.borrow().iter().map(|ward| ward.failed()).collect();
        for agent in self.agents.borrow().values() {
            if let Agent::Process(ward) = agent {
                all.push(ward.failed());
            }
        }
        all.extend(self.writers.borrow().iter().map(|ward| ward.failed()));
        let mut waits = tokio::task::JoinSet::new();
        for mut failed in all {
            waits.spawn_local(async move {
                // A child that is gone for good does not fail any more.
                failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone())
            });
        }
        while let Some(ended) = waits.join_next().await {
            if let Ok(Some(why)) = ended {
                return why;
            }
        }
        std::future::pending().await
    }

    /// Ends everything: edges first, so that requests in flight still find their servers.
    pub(super) async fn stop(&self) {
        handed::notify("STOPPING=1");
        // Whoever is about to start a child does not.
        self.stop.send_replace(true);
        let edges: Vec<_> = self.edges.take().into_iter().chain(self.leaving.take()).collect();
        edges.iter().for_each(|edge| edge.stop());
        for edge in edges {
            edge.wait_end().await;
        }
        let agents = self.agents.take();
        for agent in agents.values() {
            if let Agent::Process(ward) = agent {
                ward.stop();
            }
        }
        for agent in agents.into_values() {
            match agent {
                Agent::Process(ward) => ward.wait_end().await,
                Agent::Here(handle) => handle.stop(),
            }
        }
        let writers = self.writers.take();
        if let Some(ward) = writers {
            // The last one: what servers are still told to write, they can tell.
            ward.stop();
            ward.wait_end().await;
        }
        let settings = self.settings();
        for node in &settings.nodes {
            let file = options::state_file(self.folder.path(), &node.name);
            if file.exists() {
                reap_servers(&file, stop_timeout(&settings));
            }
        }
        if let Err(error) = self.folder.clear() {
            tracing::warn!(%error, "the pool's folder was not cleared");
        }
        self.tables.take().into_iter().for_each(|table| table.stop(self.folder.path()));
    }
}

impl Metrics {
    fn bind(address: std::net::SocketAddr) -> anyhow::Result<Self> {
        let bound = MetricsServer::listen(address);
        let listener = bound.with_context(|| format!("metrics can't be served at {address}"))?;
        Ok(Self { listener })
    }
}

/// Whether the parent itself holds a node's record.
pub(super) fn is_here(node: &Node) -> bool {
    matches!(node.servers, Servers::Addresses(_))
}

pub(super) fn stop_timeout(settings: &Settings) -> Duration {
    Duration::from_millis(settings.health.stop_timeout_ms.into())
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

pub(super) fn reap_servers(state_file: &Path, stop_timeout: Duration) {
    match agent::reap_leftovers(state_file, stop_timeout) {
        Ok(0) => {}
        Ok(count) => tracing::warn!("ended {count} servers that a dead agent had left"),
        Err(error) => tracing::warn!(%error, "servers of a dead agent may be left"),
    }
}

pub(super) fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut file = opened.with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn serve_home(settings: &Settings, folder: &Path) -> anyhow::Result<Home> {
    let region = places::site_record(settings)?;
    let record = SiteRecord::open(Arc::clone(&region) as Arc<_>)?;
    let server = RegionServer::bind(options::home_socket(folder), Arc::clone(&region))?;
    Ok(Home { region, record, _server: server })
}
