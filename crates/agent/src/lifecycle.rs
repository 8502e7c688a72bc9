//! The life of one server, as a state machine without clock, process or socket.
//!
//! ```text
//!            wanted             told to start        started
//!   Absent ---------> Waiting ---------------> Launching ---------> Up
//!     ^                  ^  (pause doubles with    | failed          | died, or replaced because
//!     |                  |   each death)           |                 | it answers nothing
//!     |                  +-------------------------+-----------------+
//!     +------------------------- Stopping <--------------------------+  not wanted any more
//! ```
//!
//! Each start has a number ([`Run`]); news of an earlier one is late and ignored.

use crate::options::{Health, ServerKind, ServerSpec, ms};
use pool_model::SiteId;
use shared_state::words::Phase;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Time since the agent started, on its monotonic clock.
pub(crate) type Now = Duration;

/// First pause between two checks of a server that starts. A program of ours listens within a few
/// ms; the pause doubles up to [`START_CHECK_MAX`], so that a slow one is not hammered.
pub(crate) const START_CHECK_MIN: Duration = Duration::from_millis(20);
/// The longest such pause: what a slow start loses at the most before it is seen.
pub(crate) const START_CHECK_MAX: Duration = Duration::from_millis(250);
/// Doublings after which the pause before a restart has reached any sensible maximum.
const BACKOFF_DOUBLINGS_MAX: u32 = 20;

/// The number of a start of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Run(pub(crate) u64);

/// A process that was started, by this agent or by one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// When the kernel started it, in clock ticks since boot: tells it from a later process with
    /// the same id.
    pub(crate) start_ticks: u64,
    pub(crate) address: SocketAddrV4,
}

/// What the shell shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Start,
    /// `quiet`: a pass need not wake anybody.
    Check {
        address: SocketAddrV4,
        quiet: bool,
    },
    Terminate,
    Kill,
}

/// What the shell saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Started(Process),
    StartFailed(String),
    Exited(String),
    Checked(Result<(), String>),
}

/// What one turn of the agent knows besides the news.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) now: Now,
    /// The site that the node is assigned to.
    pub(crate) site: Option<SiteId>,
    /// Whether no live edge has a request of an earlier assignment here.
    pub(crate) drained: bool,
    /// Whether an edge watches.
    pub(crate) watched: bool,
    /// Whether the agent ends.
    pub(crate) stopping: bool,
}

/// How a server that runs answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) ready: bool,
    /// When it last became ready, if it ever was in this run.
    pub(crate) ready_since: Option<Now>,
    passed: u32,
    failed: u32,
    answered_at: Now,
    check_at: Now,
    /// When the check was asked for whose result is not here yet.
    pub(crate) asked_at: Option<Now>,
    pause: Duration,
}

impl Answers {
    fn new(now: Now) -> Self {
        Self {
            ready: false,
            ready_since: None,
            passed: 0,
            failed: 0,
            answered_at: now,
            check_at: now,
            asked_at: None,
            pause: START_CHECK_MIN,
        }
    }

    /// Nothing is expected to change: the next check may wait for a beat.
    fn is_steady(&self) -> bool {
        self.ready && self.failed == 0
    }

    fn note(&mut self, passed: bool, now: Now, rules: &Health) {
        self.asked_at = None;
        if passed {
            (self.passed, self.failed) = (self.passed.saturating_add(1), 0);
            self.answered_at = now;
            if !self.ready && self.passed >= rules.rise {
                (self.ready, self.ready_since) = (true, Some(now));
            }
        } else {
            (self.passed, self.failed) = (0, self.failed.saturating_add(1));
            self.ready &= self.failed < rules.fall;
        }
    }

    /// When the next check is due after a result at `now`.
    fn plan(&mut self, now: Now, watched: bool, rules: &Health) {
        let pause = if self.is_steady() && !watched {
            ms(rules.idle_check_every_ms.max(rules.check_every_ms))
        } else if self.ready || self.ready_since.is_some() {
            ms(rules.check_every_ms)
        } else if self.passed > 0 {
            START_CHECK_MIN
        } else {
            let pause = self.pause;
            self.pause = (pause * 2).min(START_CHECK_MAX);
            pause
        };
        self.check_at = now + pause;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    /// It starts when its pause is over.
    Waiting,
    Launching,
    /// `process` is none for a server that is only an address.
    Up {
        process: Option<Process>,
        address: SocketAddrV4,
        answers: Answers,
    },
    /// `replace`: it starts anew when it has ended.
    Stopping {
        process: Process,
        kill_at: Now,
        killed: bool,
        replace: bool,
    },
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    fixed_address: Option<SocketAddrV4>,
    pub(crate) on_assignment: bool,
    pub(crate) run: Run,
    pub(crate) state: State,
    /// When the server of a site that has left is stopped even if it is not drained.
    pub(crate) drain_until: Option<Now>,
    /// An earlier agent's edges are unknown here: "drained" cannot be believed.
    drain_blind: bool,
    deaths_in_a_row: u32,
    /// When the pause after its last death is over.
    start_at: Now,
    pub(crate) restarts: u32,
    pub(crate) last_error: Option<String>,
    /// Why the last check of a server that starts failed: no news, unless it never passes one.
    start_error: Option<String>,
}

impl Server {
    pub(crate) fn new(spec: &ServerSpec) -> Self {
        let fixed_address = match spec.kind {
            ServerKind::Address(address) => Some(address),
            ServerKind::Command(_) => None,
        };
        Self {
            fixed_address,
            on_assignment: spec.is_on_assignment(),
            run: Run(0),
            state: State::Absent,
            drain_until: None,
            drain_blind: false,
            deaths_in_a_row: 0,
            start_at: Duration::ZERO,
            restarts: 0,
            last_error: None,
            start_error: None,
        }
    }

    /// Takes over a process that an earlier agent left. Its checks must pass anew.
    pub(crate) fn adopt(&mut self, process: Process, restarts: u32, now: Now) {
        self.run = Run(self.run.0 + 1);
        self.restarts = restarts;
        self.drain_blind = true;
        let (address, answers) = (process.address, Answers::new(now));
        self.state = State::Up { process: Some(process), address, answers };
    }

    /// How it is, for edges and for people.
    pub(crate) fn phase(&self) -> Phase {
        let began = if self.deaths_in_a_row > 0 { Phase::Failing } else { Phase::Starting };
        match &self.state {
            State::Absent => Phase::Absent,
            State::Waiting | State::Launching => began,
            State::Up { answers, .. } if answers.ready => Phase::Ready,
            State::Up { process, answers, .. } => {
                let was_ready = answers.ready_since.is_some();
                let silent = process.is_none() && answers.failed > 0;
                let again = self.deaths_in_a_row > 1;
                if was_ready || silent || again { Phase::Failing } else { Phase::Starting }
            }
            State::Stopping { replace: true, .. } => Phase::Failing,
            State::Stopping { .. } => Phase::Stopping,
        }
    }

    /// Whether requests may be sent to it before any move.
    pub(crate) fn is_warm(&self) -> bool {
        !self.on_assignment && self.phase() == Phase::Ready
    }

    pub(crate) fn process(&self) -> Option<Process> {
        match self.state {
            State::Up { process, .. } => process,
            State::Stopping { process, .. } => Some(process),
            _ => None,
        }
    }

    pub(crate) fn address(&self) -> Option<SocketAddrV4> {
        match self.state {
            State::Up { address, .. } => Some(address),
            _ => self.process().map(|process| process.address),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// When the server needs a turn, apart from steady checks, which wait for a beat.
    pub(crate) fn next_due(&self) -> Option<Now> {
        let due = match self.state {
            State::Waiting => Some(self.start_at),
            State::Up { answers, .. } if answers.asked_at.is_none() && !answers.is_steady() => {
                Some(answers.check_at)
            }
            State::Stopping { kill_at, killed: false, .. } => Some(kill_at),
            _ => None,
        };
        [due, self.drain_until].into_iter().flatten().min()
    }

    /// What the shell reported about the latest run.
    pub(crate) fn hear(&mut self, news: News, look: &Look, rules: &Health) {
        match (news, &mut self.state) {
            (News::Started(process), State::Launching) => {
                let (address, answers) = (process.address, Answers::new(look.now));
                self.state = State::Up { process: Some(process), address, answers };
                self.start_error = None;
            }
            (News::StartFailed(error), State::Launching) => self.die(error, None, look, rules),
            (News::Exited(how), State::Up { answers, .. }) => {
                let ready_since = answers.ready_since;
                self.die(how, ready_since, look, rules);
            }
            (News::Exited(_), State::Stopping { replace: true, .. }) => {
                self.pause(look.now, rules);
            }
            (News::Exited(_), State::Stopping { .. }) => self.state = State::Absent,
            (News::Checked(result), State::Up { process, answers, .. }) => {
                answers.note(result.is_ok(), look.now, rules);
                answers.plan(look.now, look.watched, rules);
                let starts = process.is_some() && answers.ready_since.is_none();
                match result {
                    Ok(()) => {}
                    Err(error) if starts => self.start_error = Some(error),
                    Err(error) => self.last_error = Some(error),
                }
            }
            // Late news: a check of a server that has stopped since.
            _ => {}
        }
    }

    fn die(&mut self, how: String, ready_since: Option<Now>, look: &Look, rules: &Health) {
        self.last_error = Some(how);
        self.count_death(ready_since, look.now, rules);
        self.pause(look.now, rules);
    }

    /// A server that was ready for long enough starts with the shortest pause again.
    fn count_death(&mut self, ready_since: Option<Now>, now: Now, rules: &Health) {
        let calm = ready_since.is_some_and(|since| now >= since + ms(rules.restart_max_ms));
        self.deaths_in_a_row = if calm { 1 } else { self.deaths_in_a_row.saturating_add(1) };
    }

    /// Waits before the next start; the pause also holds when the site leaves and comes back.
    fn pause(&mut self, now: Now, rules: &Health) {
        let doublings = self.deaths_in_a_row.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        let pause = (ms(rules.restart_min_ms) * (1 << doublings)).min(ms(rules.restart_max_ms));
        self.start_at = now + pause;
        self.state = State::Waiting;
    }

    /// Whether there shall be a server, and how long one that is not wanted may drain.
    fn is_wanted(&mut self, site: SiteId, look: &Look, drain_max: Duration) -> bool {
        if look.stopping {
            self.drain_until = None;
            return false;
        }
        if !self.on_assignment {
            return true;
        }
        if look.site == Some(site) {
            (self.drain_until, self.drain_blind) = (None, false);
            return true;
        }
        if !matches!(self.state, State::Up { .. }) {
            self.drain_until = None;
            return false;
        }
        let until = *self.drain_until.get_or_insert(look.now + drain_max);
        let over = look.now >= until || (look.drained && !self.drain_blind);
        if over {
            self.drain_until = None;
        }
        !over
    }

    /// One turn: what to do now, if anything.
    pub(crate) fn turn(
        &mut self,
        site: SiteId,
        look: &Look,
        drain_max: Duration,
        rules: &Health,
    ) -> Option<Action> {
        let wanted = self.is_wanted(site, look, drain_max);
        if self.state == State::Absent && wanted {
            self.state = match self.fixed_address {
                None => State::Waiting,
                Some(address) => {
                    State::Up { process: None, address, answers: Answers::new(look.now) }
                }
            };
        }
        match &mut self.state {
            State::Waiting if !wanted => {
                self.state = State::Absent;
                None
            }
            State::Waiting if look.now >= self.start_at => {
                self.restarts = self.restarts.saturating_add(u32::from(self.deaths_in_a_row > 0));
                self.run = Run(self.run.0 + 1);
                self.state = State::Launching;
                Some(Action::Start)
            }
            State::Up { .. } => self.turn_up(wanted, look, rules),
            State::Stopping { kill_at, killed: killed @ false, .. } if look.now >= *kill_at => {
                *killed = true;
                Some(Action::Kill)
            }
            State::Absent | State::Waiting | State::Launching | State::Stopping { .. } => None,
        }
    }

    /// One turn of a server that runs: stop it, replace it, or check it.
    fn turn_up(&mut self, wanted: bool, look: &Look, rules: &Health) -> Option<Action> {
        let State::Up { process, address, answers } = &mut self.state else { return None };
        let silent_for = look.now.saturating_sub(answers.answered_at);
        let replace = silent_for >= ms(rules.unresponsive_max_ms) && !answers.ready;
        match *process {
            Some(process) if !wanted || replace => {
                if wanted {
                    let ready_since = answers.ready_since;
                    self.note_silence(silent_for);
                    self.count_death(ready_since, look.now, rules);
                }
                self.drain_until = None;
                let kill_at = look.now + ms(rules.stop_timeout_ms);
                self.state = State::Stopping { process, kill_at, killed: false, replace: wanted };
                Some(Action::Terminate)
            }
            None if !wanted => {
                self.state = State::Absent;
                None
            }
            _ if answers.asked_at.is_none() && look.now >= answers.check_at => {
                answers.asked_at = Some(look.now);
                Some(Action::Check { address: *address, quiet: answers.is_steady() })
            }
            _ => None,
        }
    }

    fn note_silence(&mut self, silent_for: Duration) {
        let last = self.start_error.as_deref().or(self.last_error.as_deref());
        let last = last.unwrap_or("no check came back");
        let error = format!("replaced: no answer for {} ms ({last})", silent_for.as_millis());
        self.last_error = Some(error);
    }
}
