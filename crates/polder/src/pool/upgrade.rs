//! Another program in the place of this one, without an end: same process, same children, same
//! sockets.
//!
//! ```text
//! try       the new program reads the state that it would get, and says that it could go on
//! hand over state and open files into a socket; exec: the process keeps its number, its children
//!           notice nothing
//! resume    the new program takes the files, serves the home and looks after the children
//! finish    agents, then edges, make room for new ones one after the other
//! ```
//!
//! What can fail is tried before the exec, which is the only step that can't be taken back. A new
//! edge that does not serve leaves the old one in its place.

use super::children::{Family, Role, Ward, WardState};
use super::parcel::{self, Parcel};
use super::parent::{Agent, Home, Metrics, Parent, SETTINGS_COPY, UpOptions};
use super::reload::renew;
use super::sockets::{GroupState, Sockets};
use super::tables::{Table, TableState};
use super::{child, options};
use crate::control::{Code, Refusal, Response, UpgradeArguments};
use crate::handed;
use crate::logging::LEVEL_VARIABLE;
use crate::runtime_dir::RuntimeDir;
use crate::settings::{self, Live};
use crate::status::ChangeStatus;
use anyhow::{Context as _, bail};
use pool_model::{EdgeId, NodeId};
use remote_memory::shm::{OwnedRegion, RegionServer};
use remote_memory::{Incarnation, Mapped as _, RemoteKey};
use serde::{Deserialize, Serialize};
use shared_state::SiteRecord;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The form of the state. A program that knows another one refuses it.
const FORMAT: u32 = 1;
/// How long the new program may take to say that it could go on.
const TRIAL_WITHIN: Duration = Duration::from_secs(10);
/// What it then says.
const TRIAL_PASSED: &str = "it can go on";
/// What of a new program's complaint is told.
const COMPLAINT_SHOWN_BYTES: usize = 2_000;

/// Everything that the next program has to know; files follow in the order of the fields.
#[derive(Debug, Serialize, Deserialize)]
struct State {
    format: u32,
    /// The version of the program that wrote it.
    written_by: String,
    folder: PathBuf,
    source: PathBuf,
    /// What the settings file said; an older program did not keep it.
    #[serde(default)]
    text: Option<String>,
    overrides: Vec<String>,
    #[serde(default)]
    live: Live,
    log_level: Option<String>,
    program: PathBuf,
    settings_version: u32,
    started_ns: u64,
    reloads: u32,
    upgrades: u32,
    change: Option<ChangeStatus>,
    has_metrics: bool,
    home_key: u64,
    home_incarnation: u64,
    sockets: Vec<GroupState>,
    edges: Vec<WardState>,
    agents: Vec<WardState>,
    /// Nodes whose record lies in this process.
    here: Vec<u16>,
    /// Version tables; an older program had none.
    #[serde(default)]
    tables: Vec<TableState>,
    #[serde(default)]
    writers: Option<WardState>,
}

impl Parent {
    /// Hands over to another program. It answers only if that fails: else the connection breaks
    /// off with this program's end, and the next one's status tells the rest.
    pub(super) async fn ask_upgrade(
        parent: &Rc<Self>,
        arguments: UpgradeArguments,
    ) -> Result<Response, Refusal> {
        parent.begin("upgrade")?;
        let outcome = parent.upgrade(arguments).await;
        let Err(error) = outcome;
        let refusal = Refusal::new(Code::Refused, format!("{error:#}; the old program goes on"));
        parent.end(&Err(refusal.clone()));
        Err(refusal)
    }

    async fn upgrade(&self, arguments: UpgradeArguments) -> anyhow::Result<Infallible> {
        let program = arguments.program.unwrap_or_else(|| self.source.borrow().program.clone());
        self.try_program(&program).await?;
        let parcel = self.pack(&program).context("the state can't be handed over")?;
        let mut command = Command::new(&program);
        handed::hide_sockets(&mut command);
        if let Some(level) = &self.source.borrow().log_level {
            command.env(LEVEL_VARIABLE, level);
        }
        handed::notify(&handed::reloading());
        tracing::info!("handing over to {}", program.display());
        let error = command.arg(child::PARENT_PROCESS).stdin(Stdio::from(parcel)).exec();
        handed::notify("READY=1");
        Err(error).with_context(|| format!("{} can't be run", program.display()))
    }

    /// Lets the program read the state, in a process of its own.
    async fn try_program(&self, program: &Path) -> anyhow::Result<()> {
        let parcel = self.pack(program).context("the state can't be handed over")?;
        let mut command = Command::new(program);
        handed::hide(&mut command);
        let mut command = tokio::process::Command::from(command);
        let running = command
            .args([child::PARENT_PROCESS, "--trial"])
            .stdin(Stdio::from(parcel))
            .kill_on_drop(true)
            .output();
        let shown = program.display();
        let Ok(output) = tokio::time::timeout(TRIAL_WITHIN, running).await else {
            bail!("{shown} does not say within {TRIAL_WITHIN:?} that it could go on");
        };
        let output = output.with_context(|| format!("{shown} can't be run"))?;
        if output.status.success() && output.stdout.starts_with(TRIAL_PASSED.as_bytes()) {
            return Ok(());
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let complaint: String = complaint.trim().chars().take(COMPLAINT_SHOWN_BYTES).collect();
        bail!("{shown} could not go on ({}): {complaint}", output.status);
    }

    /// The state, as the next program's standard input.
    fn pack(&self, program: &Path) -> io::Result<OwnedFd> {
        let (mut edges, mut agents, mut here) = (Vec::new(), Vec::new(), Vec::new());
        let mut memories = Vec::new();
        let mut note = |ward: &Ward, list: &mut Vec<WardState>| {
            if let Some((state, memory)) = ward.state() {
                list.push(state);
                memories.extend(memory);
            }
        };
        for edge in self.serving().iter().chain(&self.still_leaving()) {
            note(edge, &mut edges);
        }
        for agent in self.agents.borrow().values() {
            if let Agent::Process(ward) = agent {
                note(ward, &mut agents);
            }
        }
        for (node, agent) in &*self.agents.borrow() {
            if let Agent::Here(handle) = agent {
                here.push(node.get());
                memories.push(handle.region_file()?);
            }
        }
        let sockets = self.sockets.borrow();
        let (groups, listening) = sockets.state();
        let source = self.source.borrow();
        let tables = self.tables.borrow();
        let writers = self.writers.borrow().as_ref().and_then(|ward| ward.state());
        let home = self.home.region.descriptor();
        let state = State {
            format: FORMAT,
            written_by: env!("CARGO_PKG_VERSION").to_owned(),
            folder: self.folder.path().to_owned(),
            source: source.file.clone(),
            text: Some(source.text.clone()),
            overrides: source.overrides.clone(),
            live: self.live.borrow().clone(),
            log_level: source.log_level.clone(),
            program: program.to_owned(),
            settings_version: self.family.borrow().version,
            started_ns: u64::try_from(self.started.as_nanos()).unwrap_or(u64::MAX),
            reloads: self.reloads.get(),
            upgrades: self.upgrades.get(),
            change: self.change.borrow().clone(),
            has_metrics: self.metrics.is_some(),
            home_key: home.key.0,
            home_incarnation: home.incarnation.0,
            sockets: groups,
            edges,
            agents,
            here,
            tables: tables.iter().map(Table::state).collect(),
            writers: writers.map(|(state, _)| state),
        };
        let mut files = vec![self.folder.lock(), self.control.as_fd(), self.home.region.as_fd()];
        files.extend(self.metrics.iter().map(|metrics| metrics.listener.as_fd()));
        files.extend(listening);
        files.extend(memories.iter().map(OwnedFd::as_fd));
        files.extend(tables.iter().map(Table::file));
        parcel::pack(&serde_json::to_string(&state)?, &files)
    }

    /// The other side: takes the state from standard input. With `is_trial` it says that it could,
    /// and does nothing.
    pub(super) fn resume(is_trial: bool) -> anyhow::Result<Option<Rc<Self>>> {
        let Parcel { words, files } =
            parcel::unpack(io::stdin().as_fd()).context("the state that was handed over")?;
        let form: Form = serde_json::from_str(&words).context("the state that was handed over")?;
        if form.format != FORMAT {
            let (format, by) = (form.format, form.written_by);
            bail!("the running program {by} hands over in form {format}, this one knows {FORMAT}");
        }
        let state: State =
            serde_json::from_str(&words).context("the state that was handed over")?;
        let settings = settings::load_running(&state.folder.join(SETTINGS_COPY))
            .context("the settings of the running pool")?;
        if is_trial {
            println!("{TRIAL_PASSED}");
            return Ok(None);
        }
        let family = Family {
            program: state.program.clone(),
            settings: Rc::new(settings),
            version: state.settings_version,
            file: state.folder.join(SETTINGS_COPY),
            log_level: state.log_level.clone(),
            folder: state.folder.clone(),
            apart: false,
        };
        Self::with(state, family, files).map(Some)
    }

    fn with(state: State, family: Family, files: Vec<OwnedFd>) -> anyhow::Result<Rc<Self>> {
        let mut files = files.into_iter();
        let mut next = || files.next().context("a file is missing");
        let folder = RuntimeDir::resume(state.folder.clone(), File::from(next()?));
        let control = UnixListener::from(next()?);
        let names = (RemoteKey(state.home_key), Incarnation(state.home_incarnation));
        let home = resume_home(next()?, names, folder.path())?;
        let metrics = state.has_metrics.then(&mut next).transpose()?;
        let sockets = Sockets::resumed(state.sockets, &mut files);
        let source = UpOptions {
            file: state.source,
            text: state.text.unwrap_or_else(|| family.settings.to_toml()),
            overrides: state.overrides,
            log_level: state.log_level,
            program: state.program,
        };
        let family = Rc::new(RefCell::new(family));
        let parent = Rc::new(Self {
            folder,
            source: RefCell::new(source),
            live: RefCell::new(state.live),
            family,
            sockets: Rc::new(RefCell::new(sockets)),
            home,
            control,
            metrics: metrics.map(|listener| Metrics { listener: listener.into() }),
            edges: RefCell::default(),
            leaving: RefCell::default(),
            coming: RefCell::default(),
            agents: RefCell::new(BTreeMap::new()),
            tables: RefCell::default(),
            writers: RefCell::default(),
            started: Duration::from_nanos(state.started_ns),
            reloads: Cell::new(state.reloads),
            upgrades: Cell::new(state.upgrades.wrapping_add(1)),
            change: RefCell::new(state.change),
            stop: tokio::sync::watch::Sender::new(false),
        });
        parent.take_children(&state.edges, &state.agents, &mut files)?;
        for number in state.here {
            // What is missing is made anew.
            parent.start_agent(NodeId::new(number)?, files.next())?;
        }
        parent.take_tables(state.tables, state.writers.as_ref(), &mut files)?;
        parent.start_missing()?;
        Ok(parent)
    }

    fn take_tables(
        &self,
        tables: Vec<TableState>,
        writers: Option<&WardState>,
        files: &mut impl Iterator<Item = OwnedFd>,
    ) -> anyhow::Result<()> {
        for state in tables {
            let file = files.next().context("a version table's file is missing")?;
            self.tables.borrow_mut().push(Table::resume(state, file, self.folder.path())?);
        }
        let Some(state) = writers else {
            self.start_writers();
            return Ok(());
        };
        let ward = Ward::new(Role::Writers, Vec::new(), &self.family, &self.sockets);
        ward.resume(state, None).with_context(|| ward.name())?;
        self.writers.replace(Some(ward));
        Ok(())
    }

    fn take_children(
        &self,
        edges: &[WardState],
        agents: &[WardState],
        files: &mut impl Iterator<Item = OwnedFd>,
    ) -> anyhow::Result<()> {
        let mut take = |role: Role, state: &WardState| -> anyhow::Result<Rc<Ward>> {
            let ward = Ward::new(role, state.shares.clone(), &self.family, &self.sockets);
            let memory = if state.has_memory { files.next() } else { None };
            ward.resume(state, memory).with_context(|| ward.name())?;
            Ok(ward)
        };
        let mut serving = BTreeMap::new();
        for state in edges {
            let slot = EdgeId::new(state.slot.context("an edge without a number")?)?;
            let ward = take(Role::Edge { place: state.number, slot }, state)?;
            if state.is_leaving {
                ward.leave();
                self.leaving.borrow_mut().push(ward);
            } else {
                serving.insert(state.number, ward);
            }
        }
        // A place whose edge was just being started again has none.
        for place in 0..self.settings().edges.len() {
            let ward = match serving.remove(&place) {
                Some(ward) => ward,
                None => {
                    let taken = serving.values().cloned();
                    let slot = self.free_slot(taken).map_err(|why| anyhow::anyhow!("{why}"))?;
                    let ward = self.new_edge(place, slot);
                    ward.start();
                    ward
                }
            };
            self.edges.borrow_mut().push(ward);
        }
        for state in agents {
            let node = NodeId::new(u16::try_from(state.number)?)?;
            let ward = take(Role::Agent(node), state)?;
            self.agents.borrow_mut().insert(node, Agent::Process(ward));
        }
        Ok(())
    }

    /// Agents that were just being started when the other program took over.
    fn start_missing(&self) -> anyhow::Result<()> {
        for index in 0..self.settings().nodes.len() {
            let node = NodeId::new(u16::try_from(index)?)?;
            if !self.agents.borrow().contains_key(&node) {
                self.start_agent(node, None)?;
            }
        }
        Ok(())
    }

    /// Children run the new program: agents first, then edges.
    pub(super) async fn finish_upgrade(&self) {
        let outcome = self.renew_children().await;
        self.end(&outcome);
        handed::notify("READY=1");
    }

    async fn renew_children(&self) -> Result<String, Refusal> {
        let nodes: Vec<NodeId> = {
            let agents = self.agents.borrow();
            let own = agents.iter().filter(|(_, agent)| matches!(agent, Agent::Process(_)));
            own.map(|(&node, _)| node).collect()
        };
        for node in nodes {
            let renewed = self.renew_agent(node).await;
            renewed.map_err(|error| Refusal::new(Code::Internal, format!("{error:#}")))?;
        }
        let writers = self.writers.borrow().clone();
        if let Some(ward) = writers {
            renew(&ward).await;
        }
        for edge in self.serving() {
            edge.outdated.set(true);
        }
        self.settle_edges().await?;
        let program = self.source.borrow().program.display().to_string();
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!("the pool runs {program}, version {version}; no server was stopped"))
    }
}

/// What is read of a state first: the rest may have another form.
#[derive(Deserialize)]
struct Form {
    format: u32,
    written_by: String,
}

fn resume_home(
    file: OwnedFd,
    (key, incarnation): (RemoteKey, Incarnation),
    folder: &Path,
) -> anyhow::Result<Home> {
    let region = Arc::new(OwnedRegion::resume(file, "home", key, incarnation)?);
    let record = SiteRecord::open(Arc::clone(&region) as Arc<_>)?;
    let server = RegionServer::bind(options::home_socket(folder), Arc::clone(&region))?;
    Ok(Home { region, record, _server: server })
}
