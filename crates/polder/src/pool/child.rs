//! What the hidden sub-commands `edge-process` and `agent-process` do.

use super::edge_process::EdgeProcess;
use super::{agent_process, options};
use crate::control::{Handler, Refusal, Request, Response, Server};
use crate::settings;
use anyhow::{Context as _, bail};
use pool_model::{EdgeId, NodeId};
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

/// What a child is told by its parent.
#[derive(Clone, Debug)]
pub struct ChildArguments {
    /// The parent's copy of the settings file.
    pub file: PathBuf,
    /// What was set on the command line.
    pub overrides: Vec<String>,
    /// The pool's folder.
    pub folder: PathBuf,
    /// Which edge, or which node.
    pub index: u16,
    /// The parent's process id.
    pub parent: u32,
    /// Whether standard input is the memory of a dead agent.
    pub adopt: bool,
    /// Whether the pool's other roles run on other machines.
    pub apart: bool,
}

impl ChildArguments {
    fn load(&self) -> anyhow::Result<settings::Settings> {
        let checked = settings::load(&self.file, &self.overrides)?;
        Ok(checked.settings)
    }
}

/// Runs an edge until SIGTERM or SIGINT, then drains it. Blocks.
pub fn edge(arguments: &ChildArguments) -> anyhow::Result<()> {
    agent::die_with_parent(arguments.parent).context("cannot be tied to the parent process")?;
    let settings = arguments.load()?;
    let number = u8::try_from(arguments.index).context("edge number")?;
    let id = EdgeId::new(number)?;
    if id.index() >= settings.edges.len() {
        bail!("the settings have no edge {id}");
    }
    let hash = settings.pool_hash();
    let process = EdgeProcess::start(&settings, hash, id, (&arguments.folder, arguments.apart))?;
    let control = Rc::new(process.control(&settings, hash, id));
    runtime()?.block_on(async {
        let server = Server::bind(&options::edge_control(&arguments.folder, id))?;
        let mut serving = pin!(server.run(EdgeHandler(Rc::clone(&control))));
        let mut ends = ends()?;
        let mut samples = tokio::time::interval(SAMPLE_EVERY);
        loop {
            tokio::select! {
                () = ends.wait() => return anyhow::Ok(()),
                () = &mut serving => {}
                _ = samples.tick() => control.sample(),
            }
        }
    })?;
    process.drain();
    Ok(())
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

struct EdgeHandler(Rc<super::edge_process::EdgeControl>);

impl Handler for EdgeHandler {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        // The parent asks one thing at a time, and the loop answers within a look.
        self.0.answer(&request)
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
    for one in &arguments.overrides {
        line.extend(["--set".to_owned(), one.clone()]);
    }
    for (is_set, flag) in [(arguments.adopt, "--adopt"), (arguments.apart, "--apart")] {
        if is_set {
            line.push(flag.to_owned());
        }
    }
    line
}
