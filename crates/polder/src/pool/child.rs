//! What the hidden sub-commands `edge-process` and `agent-process` do.

use super::edge_process::{EdgeControl, Seat};
use super::{agent_process, options, parcel, writers_process};
use crate::control::{Handler, Refusal, Request, Response, Server};
use crate::settings;
use anyhow::{Context as _, bail};
use edge::Listening;
use pool_model::{EdgeId, NodeId};
use rustix::fs::FileType;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often an edge notes its counters, for rates.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The hidden sub-command of an edge.
pub(crate) const EDGE_PROCESS: &str = "edge-process";
/// The hidden sub-command of an agent.
pub(crate) const AGENT_PROCESS: &str = "agent-process";
/// The hidden sub-command of who answers writers.
pub(crate) const WRITERS_PROCESS: &str = "writers-process";
/// The hidden sub-command of a program that takes the place of a pool's parent.
pub(crate) const PARENT_PROCESS: &str = "parent-process";

/// What a child is told by its parent.
#[derive(Clone, Debug)]
pub struct ChildArguments {
    /// The parent's copy of the settings, which names every value.
    pub file: PathBuf,
    /// The pool's folder.
    pub folder: PathBuf,
    /// Which edge of the settings, or which node.
    pub index: u16,
    /// An edge's number: its slot in each record.
    pub slot: u8,
    /// The version of the settings in the shared words.
    pub version: u32,
    /// The parent's process id.
    pub parent: u32,
    /// Whether standard input is the memory of a dead agent.
    pub adopt: bool,
    /// Whether the pool's other roles run on other machines.
    pub apart: bool,
}

impl ChildArguments {
    fn load(&self) -> anyhow::Result<settings::Settings> {
        Ok(settings::load_running(&self.file)?)
    }
}

/// Runs an edge until SIGTERM or SIGINT, then drains it; answers its parent all the time. Blocks.
pub fn edge(arguments: &ChildArguments) -> anyhow::Result<()> {
    agent::die_with_parent(arguments.parent).context("cannot be tied to the parent process")?;
    let settings = arguments.load()?;
    let place = usize::from(arguments.index);
    if place >= settings.edges.len() {
        bail!("the settings have no edge at place {place}");
    }
    let slot = EdgeId::new(arguments.slot)?;
    let sockets = parents_sockets()?;
    let seat = Seat {
        place,
        slot,
        version: arguments.version,
        folder: arguments.folder.clone(),
        apart: arguments.apart,
    };
    let control = Rc::new(EdgeControl::start(&settings, seat, sockets)?);
    runtime()?.block_on(async {
        let server = Server::bind(&options::edge_control(&arguments.folder, slot))?;
        let mut serving = pin!(server.run(EdgeHandler(Rc::clone(&control))));
        let mut ends = ends()?;
        let mut leaves = signal(SignalKind::quit())?;
        let mut samples = tokio::time::interval(SAMPLE_EVERY);
        let mut drained = None;
        loop {
            let is_drained = drained.is_some();
            tokio::select! {
                () = end_of(&mut drained) => return anyhow::Ok(()),
                () = ends.wait() => {
                    control.close();
                    drained.get_or_insert_with(|| control.drain());
                }
                _ = leaves.recv(), if !is_drained => drained = Some(control.drain()),
                () = &mut serving => {}
                _ = samples.tick() => control.sample(),
            }
        }
    })
}

/// Ends with the drain, once there is one.
async fn end_of(drained: &mut Option<tokio::task::JoinHandle<()>>) {
    match drained {
        // A drain that panicked has ended as well.
        Some(drained) => drop(drained.await),
        None => std::future::pending().await,
    }
}

/// The parent hands over the sockets that it keeps, as standard input.
fn parents_sockets() -> anyhow::Result<Vec<Listening>> {
    let input = rustix::fs::fstat(std::io::stdin().as_fd()).context("standard input")?;
    if !FileType::from_raw_mode(input.st_mode).is_socket() {
        // Nobody keeps sockets for an edge that was started by hand: it opens its own.
        return Ok(Vec::new());
    }
    let parcel = parcel::unpack(std::io::stdin().as_fd()).context("the parent's sockets")?;
    let told: Vec<(SocketAddr, usize)> = serde_json::from_str(&parcel.words)?;
    let mut files = parcel.files.into_iter();
    let listening = told.into_iter().map(|(wanted, count)| {
        let sockets = files.by_ref().take(count).map(TcpListener::from).collect();
        Listening { wanted, sockets }
    });
    Ok(listening.collect())
}

/// Runs an agent until SIGTERM or SIGINT, then stops its servers. Blocks.
pub fn agent(arguments: &ChildArguments) -> anyhow::Result<()> {
    let settings = arguments.load()?;
    let id = NodeId::new(arguments.index)?;
    if id.index() >= settings.nodes.len() {
        bail!("the settings have no node {id}");
    }
    let adopt = arguments.adopt.then(dead_agents_memory).transpose()?;
    let place = (arguments.folder.as_path(), arguments.apart);
    agent_process::run(&settings, id, place, adopt, arguments.parent)
}

/// Answers the writers of all sites until SIGTERM or SIGINT. Blocks.
pub fn writers(arguments: &ChildArguments) -> anyhow::Result<()> {
    writers_process::run(&arguments.load()?, &arguments.folder, arguments.parent)
}

/// The parent hands the memory file over as standard input: no number to guess, nothing unsafe.
fn dead_agents_memory() -> anyhow::Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned().context("the dead agent's memory")
}

pub(super) fn runtime() -> anyhow::Result<tokio::runtime::LocalRuntime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .context("no runtime for the main thread")
}

/// SIGTERM and SIGINT.
pub(super) struct Ends {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

pub(super) fn ends() -> anyhow::Result<Ends> {
    let (term, int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(Ends { term, int })
}

impl Ends {
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

struct EdgeHandler(Rc<EdgeControl>);

impl Handler for EdgeHandler {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        match &request {
            Request::CacheExplain(arguments) => self.0.explain(arguments).await,
            // The parent asks one thing at a time, and the loop answers within a look.
            _ => self.0.answer(&request),
        }
    }
}

/// The arguments that make this program a child.
pub(super) fn command_line(role: &str, arguments: &ChildArguments) -> Vec<String> {
    let shown = |path: &Path| path.display().to_string();
    let mut line = vec![
        role.to_owned(),
        "--file".to_owned(),
        shown(&arguments.file),
        "--folder".to_owned(),
        shown(&arguments.folder),
        "--index".to_owned(),
        arguments.index.to_string(),
        "--parent".to_owned(),
        arguments.parent.to_string(),
    ];
    if role == EDGE_PROCESS {
        line.extend(["--slot".to_owned(), arguments.slot.to_string()]);
        line.extend(["--version-of-settings".to_owned(), arguments.version.to_string()]);
    }
    for (is_set, flag) in [(arguments.adopt, "--adopt"), (arguments.apart, "--apart")] {
        if is_set {
            line.push(flag.to_owned());
        }
    }
    line
}
