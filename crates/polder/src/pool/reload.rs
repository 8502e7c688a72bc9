//! Other settings for a running pool.
//!
//! ```text
//! read      the file, whole; what is wrong with it, or can't change now, and nothing has changed
//! try       each edge says whether it could go on under it; sockets for new addresses
//! commit    the children's copy, the home's hash; each edge changes in place
//! agents    those concerned make room for their successors, over running servers
//! edges     those that listen otherwise, or did not follow, are replaced one after the other
//! ```
//!
//! While edges and home disagree nobody moves nodes, which ends with the last of them; an edge
//! that leaves agrees with everybody.

use super::asking::EDGE_PATIENCE;
use super::children::{Role, Ward};
use super::parent::{Agent, Parent, is_here, write_private};
use crate::control::{
    Code, NodeArguments, Refusal, ReloadArguments, Request, Response, UpdateArguments,
};
use crate::handed;
use crate::settings::{self, Change, Live, Settings, SettingsError};
use crate::status::{ChangeStatus, NodeState};
use pool_model::{EdgeId, NodeId};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The next copy of the settings, until all edges have agreed to it.
const SETTINGS_NEXT: &str = "settings.next.toml";
/// How long whoever asks for a reload waits for its end; replacing edges may take longer.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(15);
/// How long an edge that takes over may need until it serves: it finds its regions within
/// milliseconds, on a busy machine within seconds.
const SERVES_WITHIN: Duration = Duration::from_secs(20);
/// How long it waits for regions that others may not have either.
const ATTACH_GRACE: Duration = Duration::from_secs(3);
/// Between two looks at a child that comes or goes.
const POLL: Duration = Duration::from_millis(10);
/// How long an agent may take to be there again.
const AGENT_WITHIN: Duration = Duration::from_secs(10);

/// Where the next settings come from.
pub(super) enum Origin {
    /// A file, as it was read; what was set before is forgotten.
    File { file: PathBuf, text: String },
    /// What the file said, and these keys over it.
    Set(Live),
}

/// What a change is going to do.
pub(super) struct Plan {
    pub(super) new: Rc<Settings>,
    origin: Origin,
    pub(super) lines: Vec<String>,
    /// Places whose edge is replaced.
    replaced: Vec<usize>,
    /// Nodes whose agent is.
    agents: Vec<NodeId>,
    /// Whether there are other nodes than before: edges have a table of them.
    has_other_nodes: bool,
}

impl Parent {
    /// Reloads because a signal said so; what comes of it is logged.
    pub(super) fn reload_unasked(parent: &Rc<Self>) {
        let parent = Rc::clone(parent);
        tokio::task::spawn_local(async move {
            if let Err(refusal) = Self::ask_reload(&parent, ReloadArguments::default()).await {
                tracing::error!("not reloaded: {refusal}");
            }
        });
    }

    /// Reloads; answers at the end, or while edges are still being replaced.
    pub(super) async fn ask_reload(
        parent: &Rc<Self>,
        arguments: ReloadArguments,
    ) -> Result<Response, Refusal> {
        if arguments.dry_run {
            let plan = parent.plan_reload(&arguments)?;
            return Ok(Response::done(plan.text(&parent.settings())));
        }
        parent.begin("reload")?;
        handed::notify(&handed::reloading());
        let reloading = Rc::clone(parent);
        let task = tokio::task::spawn_local(async move {
            let outcome = reloading.reload(&arguments).await;
            reloading.end(&outcome);
            handed::notify("READY=1");
            outcome
        });
        match tokio::time::timeout(ANSWER_WITHIN, task).await {
            Ok(Ok(outcome)) => outcome.map(Response::done),
            Ok(Err(_)) => Err(Refusal::new(Code::Internal, "the reload panicked; see the log")),
            Err(_) => Ok(Response::done(
                "the settings are in force; processes are still being replaced: `polder status` \
                 tells when that is done",
            )),
        }
    }

    /// One change at a time.
    pub(super) fn begin(&self, what: &str) -> Result<(), Refusal> {
        let mut change = self.change.borrow_mut();
        if let Some(ChangeStatus { what, succeeded: None, at_unix_ms, .. }) = &*change {
            let since_s = unix_ms().saturating_sub(*at_unix_ms) / 1_000;
            let text = format!("one {what} is under way, for {since_s} s; try again after it");
            return Err(Refusal::new(Code::Refused, text));
        }
        *change = Some(ChangeStatus {
            what: what.to_owned(),
            at_unix_ms: unix_ms(),
            succeeded: None,
            text: String::new(),
        });
        Ok(())
    }

    pub(super) fn end(&self, outcome: &Result<String, Refusal>) {
        let (succeeded, text) = match outcome {
            Ok(text) => (true, text.clone()),
            Err(refusal) => (false, refusal.text.clone()),
        };
        let mut change = self.change.borrow_mut();
        let Some(change) = &mut *change else { return };
        (change.succeeded, change.text) = (Some(succeeded), text);
        let what = &change.what;
        if succeeded {
            tracing::info!("{what}: {}", change.text);
        } else {
            tracing::warn!("{what} failed: {}", change.text);
        }
    }

    async fn reload(&self, arguments: &ReloadArguments) -> Result<String, Refusal> {
        let plan = self.plan_reload(arguments)?;
        let old = self.settings();
        self.agree(&plan).await?;
        self.reloads.set(self.reloads.get().wrapping_add(1));
        self.carry_out(&plan, &old).await?;
        let kept = self.guarantees_hold(&old, &plan.new).await;
        Ok(format!("{}{}", plan.text(&old), kept.text()))
    }

    /// Makes the change that all edges have agreed to. It is made when this comes back; only
    /// processes that are to be replaced may not be.
    pub(super) async fn carry_out(&self, plan: &Plan, old: &Settings) -> Result<(), Refusal> {
        self.commit(plan, old);
        let late = self.update_edges(plan).await;
        for &node in &plan.agents {
            self.renew_agent(node).await.map_err(|error| internal(format!("{error:#}")))?;
        }
        let gone = self.nodes_go(plan, old).await;
        for number in old.nodes.len()..plan.new.nodes.len() {
            let started = node_id(number).map(|node| self.start_agent(node, None));
            started.transpose().map_err(|error| internal(format!("{error:#}")))?;
        }
        for edge in plan.replaced.iter().filter_map(|&place| self.edge_at(place)).chain(late) {
            edge.outdated.set(true);
        }
        self.settle_edges().await?;
        self.agents_go(gone).await;
        self.sockets.borrow_mut().retain(&plan.new);
        Ok(())
    }

    /// Reads the file and finds out what to do. Nothing has changed afterwards.
    fn plan_reload(&self, arguments: &ReloadArguments) -> Result<Plan, Refusal> {
        let source = self.source.borrow();
        let file = arguments.file.clone().unwrap_or_else(|| source.file.clone());
        let text = settings::read_text(&file).map_err(|error| unusable(&error))?;
        let checked = settings::check_text(&file, &text, &source.overrides);
        let new = checked.map_err(|error| unusable(&error))?.settings;
        self.plan(new, Origin::File { file, text })
    }

    /// Finds out how to get to these settings.
    pub(super) fn plan(&self, new: Settings, origin: Origin) -> Result<Plan, Refusal> {
        let old = self.settings();
        let new = settings::arranged(&old, new);
        let changes = settings::changes(&old, &new).map_err(|refused| {
            Refusal::new(Code::Refused, format!("{}; nothing has changed", refused.join(";\n")))
        })?;
        let nodes = (0..old.nodes.len().min(new.nodes.len())).filter_map(node_id);
        let agents = nodes.filter(|&node| settings::concerns_agent(&old, &new, node)).collect();
        Ok(Plan {
            lines: settings::differences(&old, &new),
            replaced: self.replaced(&changes, &new),
            agents,
            has_other_nodes: old.nodes.len() != new.nodes.len(),
            new: Rc::new(new),
            origin,
        })
    }

    /// Edges that can't go on as they are.
    fn replaced(&self, changes: &[Change], new: &Settings) -> Vec<usize> {
        let concerns_all = changes.iter().any(|change| {
            matches!(change, Change::NodeAdded(_) | Change::NodeRemoved | Change::AccessLog(_))
        });
        let listens_otherwise = |wanted: usize| {
            let is_it =
                |one: &Change| matches!(one, Change::Edge { place, .. } if *place == wanted);
            changes.iter().any(is_it)
        };
        let sockets = self.sockets.borrow();
        let edges = self.edges.borrow();
        let replaced = edges.iter().enumerate().take(new.edges.len()).filter(|(place, edge)| {
            concerns_all
                || edge.outdated.get()
                || listens_otherwise(*place)
                || edge.shares != sockets.shares(new, *place)
        });
        replaced.map(|(place, _)| place).collect()
    }

    /// A yes of each edge, and sockets for all; else nothing has changed.
    pub(super) async fn agree(&self, plan: &Plan) -> Result<(), Refusal> {
        let next = self.path(SETTINGS_NEXT);
        let written = write_private(&next, &plan.new.to_toml());
        written.map_err(|error| internal(format!("{error:#}")))?;
        let mut agreed = Ok(());
        for edge in self.serving() {
            if agreed.is_err() || plan.has_other_nodes {
                break;
            }
            let request = Request::Update(UpdateArguments {
                file: next.clone(),
                version: self.family.borrow().version,
                is_trial: true,
                is_all: !plan.is_replaced(&edge),
            });
            if let Err(crate::control::AskError::Refused(refusal)) =
                edge.ask(&request, EDGE_PATIENCE).await
            {
                let text = format!("{}: {}; nothing has changed", edge.name(), refusal.text);
                agreed = Err(Refusal::new(Code::Refused, text));
            }
        }
        if agreed.is_ok() {
            let refused = |error: edge::StartError| {
                Refusal::new(Code::Refused, format!("{error}; nothing has changed"))
            };
            agreed = self.sockets.borrow_mut().prepare(&plan.new).map_err(refused);
        }
        if agreed.is_err() {
            // A copy that nobody reads does no harm.
            let _ = std::fs::remove_file(&next);
        }
        agreed
    }

    /// From here on the new settings are those of the pool: children that start read them.
    fn commit(&self, plan: &Plan, old: &Settings) {
        let mut family = self.family.borrow_mut();
        if let Err(error) = std::fs::rename(self.path(SETTINGS_NEXT), &family.file) {
            tracing::error!(%error, "children that start get the old settings");
        }
        let (before, after) = (old.pool_hash(), plan.new.pool_hash());
        if before != after {
            family.version = family.version.wrapping_add(1);
        }
        family.settings = Rc::clone(&plan.new);
        match &plan.origin {
            Origin::File { file, text } => {
                let mut source = self.source.borrow_mut();
                source.file.clone_from(file);
                source.text.clone_from(text);
                self.live.take();
            }
            Origin::Set(live) => drop(self.live.replace(live.clone())),
        }
        self.home.record.set_settings_hash(after.0);
    }

    /// Tells all edges; those that did not follow come back.
    async fn update_edges(&self, plan: &Plan) -> Vec<Rc<Ward>> {
        let mut late = Vec::new();
        if plan.has_other_nodes {
            return late;
        }
        let (file, version) = {
            let family = self.family.borrow();
            (family.file.clone(), family.version)
        };
        for edge in self.serving() {
            let is_all = !plan.is_replaced(&edge);
            let arguments =
                UpdateArguments { file: file.clone(), version, is_trial: false, is_all };
            if let Err(error) = edge.ask(&Request::Update(arguments), EDGE_PATIENCE).await {
                tracing::warn!(%error, "{} does not follow and is replaced", edge.name());
                late.push(edge);
            }
        }
        late
    }

    /// Another agent takes over from this one, over the same servers.
    pub(super) async fn renew_agent(&self, node: NodeId) -> anyhow::Result<()> {
        let agent = self.agents.borrow_mut().remove(&node);
        match agent {
            Some(Agent::Process(ward)) => {
                renew(&ward).await;
                self.agents.borrow_mut().insert(node, Agent::Process(ward));
            }
            Some(Agent::Here(handle)) => {
                let memory = handle.region_file()?;
                handle.leave();
                self.start_agent(node, Some(memory))?;
            }
            None => {}
        }
        Ok(())
    }

    /// Nodes that are to go take no new requests, and finish what they have.
    async fn nodes_go(&self, plan: &Plan, old: &Settings) -> Vec<NodeId> {
        let gone: Vec<NodeId> =
            (plan.new.nodes.len()..old.nodes.len()).filter_map(node_id).collect();
        for &node in &gone {
            let name = old.nodes[node.index()].name.clone();
            let arguments = NodeArguments { node: name.clone() };
            if let Err(refusal) = self.any(&Request::Drain(arguments)).await {
                tracing::warn!("node {name} goes all the same: {refusal}");
            }
        }
        let limit = Duration::from_millis(old.pool.drain_max_ms.into());
        let started = Instant::now();
        while !gone.is_empty() && started.elapsed() < limit {
            let Ok(report) = self.status().await else { break };
            let busy = |node: &&NodeId| {
                let seen = report.nodes.get(node.index());
                seen.is_some_and(|seen| seen.in_flight > 0)
            };
            if !gone.iter().any(|node| busy(&node)) {
                break;
            }
            tokio::time::sleep(POLL).await;
        }
        gone
    }

    /// Their agents stop their servers, once no edge knows them.
    async fn agents_go(&self, gone: Vec<NodeId>) {
        for node in gone {
            let agent = self.agents.borrow_mut().remove(&node);
            match agent {
                Some(Agent::Process(ward)) => {
                    ward.stop();
                    ward.wait_end().await;
                }
                Some(Agent::Here(handle)) => handle.stop(),
                None => {}
            }
            // The next node with this number starts in service.
            self.home.record.set_cordoned(node, false);
        }
    }

    fn edge_at(&self, place: usize) -> Option<Rc<Ward>> {
        self.edges.borrow().get(place).cloned()
    }

    /// An edge for each place of the settings, none of them outdated.
    pub(super) async fn settle_edges(&self) -> Result<(), Refusal> {
        let wanted = self.settings().edges.len();
        for place in 0..wanted {
            let is_current = self.edge_at(place).is_some_and(|edge| !edge.outdated.get());
            if !is_current {
                self.replace_edge(place).await?;
            }
        }
        let surplus = {
            let mut edges = self.edges.borrow_mut();
            let wanted = wanted.min(edges.len());
            edges.split_off(wanted)
        };
        surplus.iter().for_each(|edge| edge.leave());
        self.leaving.borrow_mut().extend(surplus);
        Ok(())
    }

    /// A new process serves a place; then the one that did leaves.
    async fn replace_edge(&self, place: usize) -> Result<(), Refusal> {
        let slot = self.free_slot(std::iter::empty())?;
        let edge = self.new_edge(place, slot);
        self.coming.replace(Some(Rc::clone(&edge)));
        edge.start();
        let served = self.serves(&edge).await;
        if let Err(why) = served {
            edge.stop();
            // As long as it lasts it may answer clients.
            self.leaving.borrow_mut().extend(self.coming.take());
            let stays = match self.edge_at(place) {
                Some(old) => format!("{} goes on instead", old.name()),
                None => "nobody listens in its place".to_owned(),
            };
            let text = format!("{} does not serve: {why}; {stays}", edge.name());
            return Err(Refusal::new(Code::Refused, text));
        }
        self.coming.take();
        let mut edges = self.edges.borrow_mut();
        if place < edges.len() {
            let old = std::mem::replace(&mut edges[place], edge);
            old.leave();
            self.leaving.borrow_mut().push(old);
        } else {
            edges.push(edge);
        }
        Ok(())
    }

    /// Until an edge answers and has found the nodes' records; else why not.
    async fn serves(&self, edge: &Ward) -> Result<(), String> {
        let failed = edge.failed();
        let started = Instant::now();
        loop {
            tokio::time::sleep(POLL).await;
            if *self.stop.borrow() {
                return Err("the pool stops".to_owned());
            }
            if failed.borrow().is_some() {
                return Err("it ended at once; the log has its reason".to_owned());
            }
            if let Ok(Response::Status(report)) = edge.ask(&Request::Status, EDGE_PATIENCE).await {
                let is_there = |state| state != NodeState::Unreachable;
                let has_all = report.nodes.iter().all(|node| is_there(node.state));
                if has_all || started.elapsed() > ATTACH_GRACE {
                    return Ok(());
                }
            }
            if started.elapsed() > SERVES_WITHIN {
                return Err(format!("it does not answer within {SERVES_WITHIN:?}"));
            }
        }
    }

    /// A number that no edge has, these included.
    pub(super) fn free_slot(
        &self,
        others: impl Iterator<Item = Rc<Ward>>,
    ) -> Result<EdgeId, Refusal> {
        let taken: Vec<EdgeId> = self
            .serving()
            .into_iter()
            .chain(self.still_leaving())
            .chain(others)
            .filter_map(|ward| match ward.role {
                Role::Edge { slot, .. } => Some(slot),
                Role::Agent(_) | Role::Writers => None,
            })
            .collect();
        let mut numbers = (0..=EdgeId::MAX.get()).filter_map(|number| EdgeId::new(number).ok());
        numbers.find(|slot| !taken.contains(slot)).ok_or_else(|| {
            let text = "all numbers of edges are in use: wait until those that leave have ended";
            Refusal::new(Code::Refused, text)
        })
    }
}

/// Until another process has begun in the place of this one, or long enough.
pub(super) async fn renew(ward: &Ward) {
    let before = ward.pid();
    ward.start_again();
    let started = Instant::now();
    while (ward.pid() == before || ward.pid().is_none()) && started.elapsed() < AGENT_WITHIN {
        tokio::time::sleep(POLL).await;
    }
}

impl Plan {
    fn is_replaced(&self, edge: &Ward) -> bool {
        match edge.role {
            Role::Edge { place, .. } => {
                self.replaced.contains(&place) || place >= self.new.edges.len()
            }
            Role::Agent(_) | Role::Writers => false,
        }
    }

    /// What it does, in words.
    pub(super) fn text(&self, old: &Settings) -> String {
        if self.lines.is_empty() && self.replaced.is_empty() {
            return "the settings are the same".to_owned();
        }
        // Writing to a string does not fail.
        let mut text = String::new();
        let _ = write!(text, "{} differ{}:", count(self.lines.len(), "setting"), s(&self.lines));
        for line in &self.lines {
            let _ = write!(text, "\n  {line}");
        }
        if !self.replaced.is_empty() {
            let edges = count(self.replaced.len(), "edge");
            let _ = write!(text, "\n{edges} replaced by another process on the same sockets");
        }
        let here = |node: &&NodeId| old.nodes.get(node.index()).is_some_and(is_here);
        let agents = self.agents.iter().filter(|node| !here(node)).count();
        if agents > 0 {
            let agents = count(agents, "agent");
            let _ = write!(text, "\n{agents} started again over running servers");
        }
        text
    }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The ending of a verb for one.
fn s<T>(of: &[T]) -> &'static str {
    if of.len() == 1 { "s" } else { "" }
}

fn node_id(number: usize) -> Option<NodeId> {
    NodeId::new(u16::try_from(number).ok()?).ok()
}

/// Settings that can't be used, as an answer.
pub(super) fn unusable(error: &SettingsError) -> Refusal {
    let text = match error {
        SettingsError::Wrong { .. } => format!("{error}\nnothing has changed"),
        _ => format!("{error}; nothing has changed"),
    };
    Refusal::new(Code::Settings, text)
}

fn internal(text: String) -> Refusal {
    Refusal::new(Code::Internal, text)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
