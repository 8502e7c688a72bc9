//! What the parent answers: it asks its edges and puts their answers together.

use super::children::{Role, Ward};
use super::options;
use super::parent::Parent;
use crate::control::{
    AskError, Code, FirstDispatch, Handler, Refusal, Request, Response, ask_async,
};
use crate::metrics::Snapshot;
use crate::status::{EdgeStatus, MoveRecord, NodeState, StatusReport, Warning};
use moves::looper::monotonic;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// How long an edge may take to carry out what the parent asks.
pub(super) const EDGE_PATIENCE: Duration = Duration::from_secs(7);
/// How long edges may take to tell what they know: they are asked at the same time, and whoever
/// looks at a pool, one of whose edges is stopped, waits no longer. They answer within
/// milliseconds, on a busy machine within some tenths of a second.
const TELLS_WITHIN: Duration = Duration::from_secs(3);
/// How long a starting pool may take until all nodes serve and all writers may connect, before it
/// is said that some don't.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a pool that starts.
const READY_POLL: Duration = Duration::from_millis(20);

impl Ward {
    /// Asks an edge.
    pub(super) async fn ask(
        &self,
        request: &Request,
        patience: Duration,
    ) -> Result<Response, AskError> {
        let Role::Edge { slot, .. } = self.role else {
            let text = "only edges answer";
            return Err(AskError::Refused(Refusal::new(Code::Internal, text)));
        };
        ask_async(&options::edge_control(&self.folder(), slot), request, patience).await
    }

    pub(super) fn number(&self) -> u32 {
        match self.role {
            Role::Edge { slot, .. } => slot.get().into(),
            Role::Agent(node) => node.get().into(),
            Role::Writers => 0,
        }
    }
}

impl Parent {
    /// Edges that serve, by place.
    pub(super) fn serving(&self) -> Vec<Rc<Ward>> {
        self.edges.borrow().clone()
    }

    /// Edges that others took over from, and that have not ended.
    pub(super) fn still_leaving(&self) -> Vec<Rc<Ward>> {
        self.leaving.borrow_mut().retain(|ward| !ward.has_ended());
        self.leaving.borrow().clone()
    }

    /// The state of the pool; edges that don't answer in time are told as dead.
    pub(super) async fn status(&self) -> Result<StatusReport, Refusal> {
        let (mut reports, mut dead) = (Vec::new(), Vec::new());
        for (edge, answer) in ask_all(self.serving(), &Request::Status, TELLS_WITHIN).await {
            match answer {
                Ok(Response::Status(report)) => reports.push(*report),
                _ => dead.push(edge.number()),
            }
        }
        let merged = StatusReport::merge(reports);
        let mut report =
            merged.ok_or_else(|| Refusal::new(Code::Timeout, "no edge answers; see its log"))?;
        for edge in dead {
            report.edges.push(EdgeStatus { edge, ..EdgeStatus::default() });
            report.warnings.push(Warning::EdgeDead { edge });
        }
        for edge in self.still_leaving() {
            report.edges.push(EdgeStatus {
                edge: edge.number(),
                pid: edge.pid().unwrap_or(0),
                alive: true,
                leaving: true,
                age_s: edge.age().as_secs(),
                ..EdgeStatus::default()
            });
        }
        report.edges.sort_by_key(|edge| (edge.leaving, edge.edge));
        let pool = &mut report.pool;
        pool.uptime_s = monotonic().saturating_sub(self.started).as_secs();
        let metrics = self.metrics.as_ref().and_then(|metrics| metrics.listener.local_addr().ok());
        pool.metrics = metrics.map(|address| address.to_string());
        env!("CARGO_PKG_VERSION").clone_into(&mut pool.program);
        pool.pid = std::process::id();
        (pool.reloads, pool.upgrades) = (self.reloads.get(), self.upgrades.get());
        pool.change.clone_from(&self.change.borrow());
        pool.differs = self.differs();
        Ok(report)
    }

    async fn moves(&self, request: &Request, limit: usize) -> Vec<MoveRecord> {
        let (mut all, mut first) = (Vec::new(), Vec::new());
        let edges: Vec<_> = self.serving().into_iter().chain(self.still_leaving()).collect();
        for (_, answer) in ask_all(edges.clone(), request, TELLS_WITHIN).await {
            if let Ok(Response::Moves(moves)) = answer {
                all.extend(moves);
            }
        }
        for (_, answer) in ask_all(edges, &Request::FirstDispatches, TELLS_WITHIN).await {
            if let Ok(Response::FirstDispatches(dispatches)) = answer {
                first.extend(dispatches);
            }
        }
        all.sort_by_key(|one| one.effect_ns);
        earliest_dispatches(&mut all, &first);
        all.split_off(all.len().saturating_sub(limit))
    }

    /// The first edge that answers carries it out.
    pub(super) async fn any(&self, request: &Request) -> Result<Response, Refusal> {
        let mut last = Refusal::new(Code::Timeout, "no edge answers; see its log");
        for edge in self.serving() {
            match edge.ask(request, EDGE_PATIENCE).await {
                Ok(response) => return Ok(response),
                Err(AskError::Refused(refusal)) => return Err(refusal),
                Err(error) => last = Refusal::new(Code::Timeout, error.to_string()),
            }
        }
        Err(last)
    }

    /// Waits until all edges answer, all nodes serve and all sites' writers may connect, or for as
    /// long as that may take.
    pub(super) async fn ready(&self, started: Instant) -> (StatusReport, Vec<String>) {
        loop {
            tokio::time::sleep(READY_POLL).await;
            let Ok(report) = self.status().await else { continue };
            let mut missing = missing(&report);
            missing.extend(self.without_writers().await);
            if missing.is_empty() || started.elapsed() > READY_PATIENCE {
                return (report, missing);
            }
        }
    }

    /// Sockets of writers at which nobody listens yet, in words.
    async fn without_writers(&self) -> Vec<String> {
        let settings = self.settings();
        let mut missing = Vec::new();
        for site in &settings.sites {
            let Some(tags) = &site.tags else { continue };
            let own = options::tell_socket(self.folder.path(), &site.name);
            for socket in [Some(&own), tags.socket.as_ref()].into_iter().flatten() {
                if !is_open(socket).await {
                    let (name, socket) = (&site.name, socket.display());
                    missing.push(format!("writers of site {name} are not answered at {socket}"));
                }
            }
        }
        missing
    }

    pub(super) async fn stopped(&self) {
        // The sender lives as long as this.
        drop(self.stop.subscribe().wait_for(|stop| *stop).await);
    }
}

/// Whether somebody listens at a socket. Who does takes a connection at once, or has too many.
async fn is_open(socket: &Path) -> bool {
    match UnixStream::connect(socket).await {
        Ok(_) => true,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Asks edges at the same time; their answers are in their order.
pub(super) async fn ask_all(
    edges: Vec<Rc<Ward>>,
    request: &Request,
    patience: Duration,
) -> Vec<(Rc<Ward>, Result<Response, AskError>)> {
    let mut asked = JoinSet::new();
    for (place, edge) in edges.into_iter().enumerate() {
        let request = request.clone();
        asked.spawn_local(async move {
            let answer = edge.ask(&request, patience).await;
            (place, edge, answer)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(place, ..)| *place);
    answers.into_iter().map(|(_, edge, answer)| (edge, answer)).collect()
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
pub(super) fn missing(report: &StatusReport) -> Vec<String> {
    let dead = report.edges.iter().filter(|edge| !edge.alive);
    let idle = report.nodes.iter().filter(|node| {
        let waits = matches!(node.state, NodeState::Waiting | NodeState::Unreachable);
        waits || node.servers.iter().any(|server| server == "starting")
    });
    dead.map(|edge| format!("edge {} does not answer", edge.edge))
        .chain(idle.map(|node| format!("node {} is {}", node.name, node.state.name())))
        .collect()
}

pub(super) struct ParentHandler(pub(super) Rc<Parent>);

impl Handler for ParentHandler {
    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        let parent = &self.0;
        match request {
            Request::Status => Ok(Response::Status(Box::new(parent.status().await?))),
            Request::Moves(ref arguments) => {
                Ok(Response::Moves(parent.moves(&request, arguments.limit).await))
            }
            Request::Stop => {
                parent.stop.send_replace(true);
                Ok(Response::done("the pool drains and stops"))
            }
            Request::Reload(arguments) => Parent::ask_reload(parent, arguments).await,
            Request::Sites(arguments) => parent.sites(&arguments),
            Request::SetSite(arguments) => Parent::ask_set_site(parent, arguments).await,
            Request::Upgrade(arguments) => Parent::ask_upgrade(parent, arguments).await,
            Request::CachePurge(ref arguments) => parent.cache_purge(&request, arguments).await,
            Request::CacheForget(_) => parent.edges_forget(&request).await,
            Request::CacheExplain(_) => parent.cache_explain(&request).await,
            Request::Update(_) => Err(Refusal::new(Code::Refused, "that is asked of an edge")),
            _ => parent.any(&request).await,
        }
    }
}

/// For metrics.
pub(super) struct Reports(pub(super) Rc<Parent>);

impl Snapshot for Reports {
    async fn report(&self) -> Result<StatusReport, String> {
        self.0.status().await.map_err(|refusal| refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

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
            ..MoveRecord::default()
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

    #[tokio::test]
    async fn a_socket_is_open_while_somebody_listens() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("tell.sock");
        assert!(!is_open(&socket).await, "it is not there");
        let listener = UnixListener::bind(&socket).unwrap();
        assert!(is_open(&socket).await);
        drop(listener);
        assert!(socket.exists() && !is_open(&socket).await, "a dead process has left it");
    }
}
