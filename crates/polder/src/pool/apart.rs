//! One role of a pool alone on its machine: an edge, or the agent of a node.
//!
//! ```text
//! settings -> folder, lock -> the role's process, started again when it dies -> SIGTERM or SIGINT
//! ```
//!
//! What `up` has for a whole pool, this has for one process: it keeps the addresses of an edge, and
//! the memory of an agent, while they are started again.

use super::children::{Family, Role, Ward};
use super::parent::write_private;
use super::sockets::{Share, Sockets};
use super::up::UpOptions;
use super::{child, options};
use crate::control::{AskError, Code, Handler, Refusal, Request, Response, Server, ask_async};
use crate::handed;
use crate::metrics::{MetricsServer, Snapshot};
use crate::runtime_dir::{Base, CONTROL_SOCKET, RuntimeDir};
use crate::settings::Settings;
use crate::status::StatusReport;
use anyhow::{Context as _, bail};
use pool_model::{EdgeId, NodeId};
use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long an edge may take to answer its parent.
const EDGE_PATIENCE: Duration = Duration::from_secs(7);
/// The parent's copy of the settings file, which its child reads.
const SETTINGS_COPY: &str = "settings.toml";

/// Which role runs here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An edge.
    Edge(EdgeId),
    /// The agent of a node.
    Agent(NodeId),
}

impl Part {
    fn role(self) -> Role {
        match self {
            Self::Edge(id) => Role::Edge { place: id.index(), slot: id },
            Self::Agent(id) => Role::Agent(id),
        }
    }
}

/// The part of a pool's name, or of its folder, that tells roles of one machine apart.
#[must_use]
pub fn part_name(settings: &Settings, part: Part) -> String {
    match part {
        Part::Edge(id) => format!("edge-{id}"),
        Part::Agent(id) => format!("node-{}", settings.nodes[id.index()].name),
    }
}

/// Where the sockets of a role lie.
fn folder_of(settings: &Settings, part: Part) -> anyhow::Result<PathBuf> {
    let name = part_name(settings, part);
    let Some(folder) = &settings.pool.runtime_dir else {
        return Ok(Base::of_user().of_pool(&format!("{}-{name}", settings.pool.name)));
    };
    let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join(name))
}

/// Runs one role until SIGTERM or SIGINT. `begun` hears of its folder. Blocks.
pub fn run(
    settings: &Settings,
    options: &UpOptions,
    part: Part,
    begun: impl FnOnce(&Path),
) -> anyhow::Result<()> {
    let missing = settings.nodes.iter().find(|node| node.address.is_none());
    if let Some(node) = missing {
        bail!("node {} has no `address`: without one only `polder up` can run it", node.name);
    }
    let told = settings.sites.iter().find(|site| site.purge.is_some());
    if let (Some(site), Part::Edge(_)) = (told, part) {
        let why = "an edge alone does not know the others, which must hear of it too";
        bail!("site {} has `purge`, which only `polder up` can serve: {why}", site.name);
    }
    child::runtime()?.block_on(async {
        let mut ends = child::ends()?;
        let folder = RuntimeDir::take(folder_of(settings, part)?)?;
        let copy = folder.path().join(SETTINGS_COPY);
        write_private(&copy, &settings.to_toml())?;
        let (sockets, shares) = sockets_of(settings, part)?;
        let family = Family {
            program: options.program.clone(),
            settings: Rc::new(settings.clone()),
            version: options::SETTINGS_VERSION_MIN,
            file: copy,
            log_level: options.log_level.clone(),
            folder: folder.path().to_owned(),
            apart: true,
        };
        let (family, sockets) = (Rc::new(RefCell::new(family)), Rc::new(RefCell::new(sockets)));
        let ward = Ward::new(part.role(), shares, &family, &sockets);
        let mut failed = ward.failed();
        ward.start();
        let asker = Rc::new(Asker::new(folder.path(), part));
        let control = Server::bind(&folder.path().join(CONTROL_SOCKET))?;
        let mut serving = pin!(control.run(PartHandler(Rc::clone(&asker))));
        let metrics = settings.pool.metrics.filter(|_| matches!(part, Part::Edge(_)));
        let mut metrics = pin!(serve_metrics(Rc::clone(&asker), metrics));
        begun(folder.path());
        let outcome = loop {
            tokio::select! {
                () = ends.wait() => break Ok(()),
                () = asker.stopped() => break Ok(()),
                () = &mut serving => {}
                error = &mut metrics => break error,
                Ok(why) = failed.wait_for(Option::is_some) => {
                    break Err(anyhow::anyhow!(why.clone().unwrap_or_default()));
                }
            }
        };
        ward.stop();
        ward.wait_end().await;
        outcome
    })
}

/// What one edge listens with, and its share, which is all of it.
fn sockets_of(settings: &Settings, part: Part) -> anyhow::Result<(Sockets, Vec<Share>)> {
    let Part::Edge(id) = part else { return Ok(Default::default()) };
    let mut own = settings.clone();
    for (place, edge) in own.edges.iter_mut().enumerate() {
        if place != id.index() {
            (edge.listen, edge.tls_listen) = Default::default();
        }
    }
    let mut sockets = Sockets::from_outside(handed::sockets()?)?;
    sockets.prepare(&own)?;
    let shares = sockets.shares(&own, id.index());
    Ok((sockets, shares))
}

/// Serves `/metrics` and `/healthz` for as long as the role runs.
async fn serve_metrics(asker: Rc<Asker>, address: Option<SocketAddr>) -> anyhow::Result<()> {
    let Some(address) = address else {
        return std::future::pending().await;
    };
    let server = MetricsServer::listen(address)
        .and_then(MetricsServer::over)
        .with_context(|| format!("metrics can't be served at {address}"))?;
    server.run(Reports(asker)).await;
    Ok(())
}

struct Reports(Rc<Asker>);

impl Snapshot for Reports {
    async fn report(&self) -> Result<StatusReport, String> {
        match self.0.ask(&Request::Status).await {
            Ok(Response::Status(report)) => Ok(*report),
            Ok(_) => Err("the edge gave no status".to_owned()),
            Err(refusal) => Err(refusal.to_string()),
        }
    }
}

/// Passes commands on to the role's process.
struct Asker {
    /// The edge's control socket; an agent has none.
    edge: Option<PathBuf>,
    started: Instant,
    stop: watch::Sender<bool>,
}

impl Asker {
    fn new(folder: &Path, part: Part) -> Self {
        let edge = match part {
            Part::Edge(id) => Some(options::edge_control(folder, id)),
            Part::Agent(_) => None,
        };
        Self { edge, started: Instant::now(), stop: watch::channel(false).0 }
    }

    async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        // The sender lives as long as this.
        drop(stop.wait_for(|stop| *stop).await);
    }

    async fn ask(&self, request: &Request) -> Result<Response, Refusal> {
        let Some(edge) = &self.edge else {
            let text = "only an agent runs here: ask an edge of the pool";
            return Err(Refusal::new(Code::Refused, text));
        };
        match ask_async(edge, request, EDGE_PATIENCE).await {
            Ok(Response::Status(mut report)) => {
                report.pool.uptime_s = self.started.elapsed().as_secs();
                Ok(Response::Status(report))
            }
            Ok(response) => Ok(response),
            Err(AskError::Refused(refusal)) => Err(refusal),
            Err(error) => Err(Refusal::new(Code::Timeout, error.to_string())),
        }
    }
}

struct PartHandler(Rc<Asker>);

impl Handler for PartHandler {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        if matches!(request, Request::Stop) {
            self.0.stop.send_replace(true);
            return Ok(Response::done("it drains and stops"));
        }
        self.0.ask(&request).await
    }
}
