//! All servers of a node together: the rules, without clock, process or socket.
//!
//! The shell feeds one turn at a time (what it heard, what the node's record says, what time it
//! is) and carries out the actions that come back. What edges shall read is derived from the
//! state, so that it cannot disagree with it.

use crate::lifecycle::{Action, Look, News, Now, Process, Run, Server, State};
use crate::options::{Health, Options, ms};
use pool_model::SiteId;
use shared_state::Ready;
use shared_state::words::{self, Assign, Phase};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the assignment is read while servers start only when assigned: an edge that cannot
/// ring is noticed within this time. 20 reads a second cost 0.05 % of a core.
const ASSIGN_POLL: Duration = Duration::from_millis(50);
/// How often the slots are read while a server drains.
const DRAIN_POLL: Duration = Duration::from_millis(20);
/// By how much a check may exceed its time-out before supervision itself counts as broken, and
/// the beat stops: generous, since a paused virtual machine is no fault of the node.
const OVERDUE_SLACK: Duration = Duration::from_secs(5);

/// News about one run of one site's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) site: SiteId,
    pub(crate) run: Run,
    pub(crate) news: News,
}

/// Something to do for one run of one site's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) site: SiteId,
    pub(crate) run: Run,
    pub(crate) action: Action,
}

/// The servers of a node.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    rules: Health,
    drain_max: Duration,
    servers: BTreeMap<SiteId, Server>,
    any_on_assignment: bool,
    assign: Option<Assign>,
}

impl Supervisor {
    pub(crate) fn new(options: &Options) -> Self {
        let servers = options.servers.iter().map(|spec| (spec.site, Server::new(spec)));
        Self {
            rules: options.health,
            drain_max: ms(options.drain_max_ms),
            servers: servers.collect(),
            any_on_assignment: options.servers.iter().any(|spec| spec.is_on_assignment()),
            assign: None,
        }
    }

    /// Takes over a process that an earlier agent left, before the first turn. Returns its run.
    pub(crate) fn adopt(
        &mut self,
        site: SiteId,
        process: Process,
        restarts: u32,
        now: Now,
    ) -> Option<Run> {
        let server = self.servers.get_mut(&site)?;
        server.adopt(process, restarts, now);
        Some(server.run)
    }

    /// One turn.
    pub(crate) fn turn(
        &mut self,
        look: &Look,
        assign: Option<Assign>,
        reports: impl IntoIterator<Item = Report>,
    ) -> Vec<Order> {
        self.assign = assign;
        for Report { site, run, news } in reports {
            if let Some(server) = self.servers.get_mut(&site).filter(|server| server.run == run) {
                server.hear(news, look, &self.rules);
            }
        }
        let mut orders = Vec::new();
        for (&site, server) in &mut self.servers {
            if let Some(action) = server.turn(site, look, self.drain_max, &self.rules) {
                orders.push(Order { site, run: server.run, action });
            }
        }
        self.check_invariants();
        orders
    }

    /// When the next turn is needed, apart from beats, if nothing happens before.
    pub(crate) fn next_due(&self, now: Now) -> Option<Now> {
        let draining = self.servers.values().any(Server::is_draining);
        let poll = match (draining, self.any_on_assignment) {
            (true, _) => Some(now + DRAIN_POLL),
            (false, true) => Some(now + ASSIGN_POLL),
            (false, false) => None,
        };
        self.servers.values().filter_map(Server::next_due).chain(poll).min()
    }

    /// Whether a server of another site waits for its last requests, so that the slots must be
    /// read.
    pub(crate) fn needs_slots(&self, assigned: Option<SiteId>) -> bool {
        let last = |(&site, server): (&SiteId, &Server)| {
            let up = matches!(server.state, State::Up { .. });
            server.on_assignment && up && Some(site) != assigned
        };
        self.any_on_assignment && self.servers.iter().any(last)
    }

    /// Whether a check was asked for and never came back: supervision does not work, and the
    /// agent must not say that it lives.
    pub(crate) fn is_overdue(&self, now: Now) -> bool {
        let patience = ms(self.rules.check_timeout_ms) + OVERDUE_SLACK;
        let asked = self.servers.values().filter_map(|server| match server.state {
            State::Up { answers, .. } => answers.asked_at,
            _ => None,
        });
        asked.into_iter().any(|asked_at| now.saturating_sub(asked_at) > patience)
    }

    /// Whether nothing runs any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.servers.values().all(|server| server.state == State::Absent)
    }

    /// Whether every process that was taken over has been judged.
    pub(crate) fn is_settled(&self) -> bool {
        let waiting =
            |server: &Server| server.process().is_some() && server.phase() == Phase::Starting;
        !self.servers.values().any(waiting)
    }

    /// The servers, for status and the state file.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (SiteId, &Server)> {
        self.servers.iter().map(|(&site, server)| (site, server))
    }

    /// The server word of a site.
    pub(crate) fn word(server: &Server) -> words::Server {
        let restarts = u16::try_from(server.restarts).unwrap_or(u16::MAX);
        match server.address() {
            Some(address) => words::Server {
                address: *address.ip(),
                port: address.port(),
                phase: server.phase(),
                restarts,
            },
            None => words::Server { phase: server.phase(), restarts, ..words::Server::ABSENT },
        }
    }

    /// The word `ready`: how the assigned site's server is, and for which version.
    pub(crate) fn ready(&self) -> Ready {
        let Some(assign) = self.assign else { return Ready { version: 0, phase: Phase::Absent } };
        let server = assign.site.and_then(|site| self.servers.get(&site));
        Ready { version: assign.version, phase: server.map_or(Phase::Absent, Server::phase) }
    }

    fn check_invariants(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        for (site, server) in &self.servers {
            let word = Self::word(server);
            assert!(!server.is_warm() || word.is_ready(), "{site:?} is warm without a server");
            let up = matches!(server.state, State::Up { .. });
            assert!(up || word.phase != Phase::Ready, "{site:?} is ready without a process");
            assert!(!server.is_draining() || up, "{site:?} drains without a process");
        }
    }
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
