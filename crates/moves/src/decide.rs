//! The decision core of one edge: looks come in, machines to run come out.
//!
//! Pure; it ties the policy, the event rules and the protocol's machines together. For each look:
//!
//! ```text
//! repair     for each site: no epoch or nonsense -> Bump; pending for too long -> Help;
//!            guarantee not written -> SetFloor
//! needs      for each site: ask the policy, ask the event rules whether the need is ripe
//! order      floor, admin, take-back, load; then the higher priority; then who has least of its
//!            soft guarantee; then id
//! move       at most one, for the first need that has a stage (a move to another site that
//!            prepares the one wanted) or a candidate: step 0 on a candidate, Claim, own clock
//!            checked, Attempt, Close; a lost install tries the next donor under the same claim,
//!            at most three times
//! ```
//!
//! A donor that needs a new epoch or renewed stamps gets them at once, followed by another look.

mod repair;
mod requests;

use crate::events::{Events, Need, Timing};
use crate::plan::{Asked, Plan, Ripe, TRIES_MAX, Try, ending_of, rotate_donors};
use crate::protocol::{Claim, Outcome, Refusal, Seen, Task};
use crate::record::{Counters, Ending, MoveRecord, Records};
use crate::round::{Round, Running};
use policy::{Candidate, Policy, Stage};
use pool_model::{EdgeId, Guarantee, NodeId, PoolView, Reason, SiteId, SiteTerms};
use repair::helped_record;
use std::collections::VecDeque;

/// Extra looks within one look: bump, renew and one lost install each call for a fresh one.
const LOOKS_AGAIN_MAX: u8 = 3;

/// Requests by persons that wait; more than anybody types before the first is done.
pub const REQUESTS_MAX: usize = 64;

/// How long a request is tried, in nanoseconds: 5 s, which a person still waits for.
pub const REQUEST_WAIT_NS: u64 = 5_000_000_000;

/// Whether moves are made or only logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Decide and move.
    #[default]
    Move,
    /// Decide and log; write nothing at all, help and repair included.
    Observe,
}

/// What a [`Core`] is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// This edge.
    pub edge: EdgeId,
    /// The clock's part of the rules.
    pub timing: Timing,
    /// Sites 1, 2, ... as this edge's settings state them.
    pub sites: Vec<SiteTerms>,
    /// Nodes in the pool.
    pub nodes: u16,
    /// The version of the settings, not zero. Where the shared words carry an older one, this
    /// edge writes its own; where they carry a newer one, or the same with other numbers, it
    /// makes no moves.
    pub settings_version: u32,
    /// Whether moves are made.
    pub mode: Mode,
}

/// What one call sees. `seen` and `view` are those of the latest look until the next one.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// The shell's monotonic clock, now.
    pub now_ns: u64,
    /// The raw words.
    pub seen: &'a Seen,
    /// The same look as the policy sees it.
    pub view: &'a PoolView,
    /// Who decides.
    pub policy: &'a dyn Policy,
    /// Whether a node's server for a site is known not to answer, so that another node serves
    /// that site sooner. Asked only when a node is wanted.
    pub is_unready: &'a dyn Fn(NodeId, SiteId) -> bool,
    /// How long one of this edge's operations takes, for the politeness of helping.
    pub op_time_ns: u64,
    /// Twelve random bits, fresh for each call.
    pub nonce: u32,
}

/// What the shell does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Run this to its end and hand the outcome to [`Core::ended`].
    Run(Task),
    /// Look once more at once and hand that to [`Core::looked`].
    LookAgain,
    /// Nothing more in this look.
    Rest,
}

/// Too many requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{REQUESTS_MAX} requests to move nodes wait already; try again when some are done")]
pub struct RequestsFull;

/// The decision core of one edge.
#[derive(Clone, Debug)]
pub struct Core {
    options: Options,
    events: Events,
    counters: Counters,
    records: Records,
    requests: VecDeque<Asked>,
    paused: Vec<bool>,
    paused_all: bool,
    conflict: bool,
    round: Round,
}

/// What the policy offers of the nodes whose server for the taker may answer; of all nodes only
/// if there is none: a node whose server keeps crashing would be moved, serve nobody, and the
/// taker would still be loaded. Asks for all nodes only where one that is offered is unready.
fn policy_candidates(
    input: &Input<'_>,
    view: &PoolView,
    taker: SiteId,
    reason: Reason,
) -> Vec<Candidate> {
    let candidates = input.policy.candidates(view, taker, reason);
    if !candidates.iter().any(|candidate| (input.is_unready)(candidate.node, taker)) {
        return candidates;
    }
    let mut ready = view.clone();
    for node in &mut ready.nodes {
        node.movable &= !(input.is_unready)(node.id, taker);
    }
    let others = input.policy.candidates(&ready, taker, reason);
    if others.is_empty() { candidates } else { others }
}

impl Core {
    /// A core that has seen nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let sites = u16::try_from(options.sites.len()).unwrap_or(u16::MAX);
        let events = Events::new(options.timing, options.edge, sites, options.nodes);
        Self {
            events,
            counters: Counters::default(),
            records: Records::default(),
            requests: VecDeque::new(),
            paused: vec![false; usize::from(sites)],
            paused_all: false,
            conflict: false,
            round: Round::new(),
            options,
        }
    }

    /// Counts since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The latest attempts at moves.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Whether the shared guarantees are not those of this edge's settings: then it makes no
    /// moves.
    #[must_use]
    pub fn settings_conflict(&self) -> bool {
        self.conflict
    }

    /// Changes the mode.
    pub fn set_mode(&mut self, mode: Mode) {
        self.options.mode = mode;
    }

    /// The mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// Stops or resumes the policy's moves to and from one site, or all. Requests by persons and
    /// repairs go on.
    pub fn set_paused(&mut self, site: Option<SiteId>, paused: bool) {
        match site {
            None => self.paused_all = paused,
            Some(site) => {
                if let Some(entry) = self.paused.get_mut(site.index()) {
                    *entry = paused;
                }
            }
        }
    }

    /// Whether the policy's moves for this site are stopped.
    #[must_use]
    pub fn is_paused(&self, site: SiteId) -> bool {
        self.paused_all || self.paused.get(site.index()).copied().unwrap_or(false)
    }

    /// New settings for the same edge, sites and nodes. Guarantees carry a newer version where they
    /// differ, and hold once every site's [`Outcome::FloorSet`] has come.
    pub fn update(&mut self, options: Options) {
        self.events.set_timing(options.timing);
        self.options = options;
    }

    /// What it goes by.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Takes in a look. `serving` says whether a node was seen serving the site that it is
    /// assigned to.
    pub fn looked(&mut self, input: &Input<'_>, serving: impl Fn(NodeId) -> bool) {
        self.counters.looks += 1;
        self.events.looked(input.now_ns, input.seen, serving);
        self.round.looked();
        self.judge_words(input.seen);
        self.find_needs(input);
        for asked in &mut self.requests {
            asked.tried = false;
        }
        // A claimed event whose first tries were lost goes on with what the fresh look offers.
        if let Some(mut plan) = self.round.plan.take() {
            plan.refill(self.fresh_candidates(input, &plan));
            self.round.plan = Some(plan);
        }
    }

    fn fresh_candidates(&self, input: &Input<'_>, plan: &Plan) -> Vec<Candidate> {
        let (Some(taker), None) = (plan.taker, plan.request) else {
            let same = plan.candidate().or(plan.last_candidate());
            let donor = |node| input.seen.assign(node).and_then(|assign| assign.site);
            return same.map(|c| Candidate { donor: donor(c.node), ..c }).into_iter().collect();
        };
        let Some(needs) = plan.stage_of else {
            return self.candidates(input, taker, plan.reason);
        };
        let best = self.candidates(input, needs, plan.reason).first().copied();
        let stage = self.stage(input, needs, plan.reason, best).filter(|s| s.to == taker);
        stage.map(|stage| stage.candidate).into_iter().collect()
    }

    /// The policy's first step of two, where nobody who has a part in it is paused or unready.
    fn stage(
        &self,
        input: &Input<'_>,
        needs: SiteId,
        reason: Reason,
        best: Option<Candidate>,
    ) -> Option<Stage> {
        let stage = input.policy.stage(self.shown(input), needs, reason, best)?;
        let Stage { to, candidate: Candidate { node, donor } } = stage;
        let paused = self.is_paused(to) || donor.is_some_and(|donor| self.is_paused(donor));
        (!paused && !(input.is_unready)(node, to)).then_some(stage)
    }

    /// The look as the policy is shown it for candidates.
    fn shown<'a>(&'a self, input: &'a Input<'_>) -> &'a PoolView {
        self.round.shown.as_deref().unwrap_or(input.view)
    }

    /// The policy's candidates, less those of paused donors, in this edge's own order.
    fn candidates(&self, input: &Input<'_>, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        let mut candidates = policy_candidates(input, self.shown(input), taker, reason);
        candidates.retain(|c| c.donor.is_none_or(|donor| !self.is_paused(donor)));
        rotate_donors(&mut candidates, self.options.edge);
        candidates
    }

    /// What to do next in this look. Does not block; at most linear in nodes.
    pub fn next(&mut self, input: &Input<'_>) -> Work {
        if let Some(task) = self.round.follow.take() {
            return self.run(Running::Other, task);
        }
        self.expire_requests(input.now_ns);
        if self.options.mode == Mode::Observe {
            self.observe(input);
            return Work::Rest;
        }
        if let Some((plan, helping)) = self.round.must_bump.take()
            && self.events.take_bump(input.now_ns, plan.site)
        {
            let running = helping.map_or(Running::Other, Running::Abort);
            return self.run(running, Task::Bump(plan.draw(input.nonce)));
        }
        if let Some(task) = self.repair(input) {
            return Work::Run(task);
        }
        if std::mem::take(&mut self.round.want_look) {
            if self.round.looks_again >= LOOKS_AGAIN_MAX {
                return Work::Rest;
            }
            self.round.looks_again += 1;
            self.round.again = true;
            return Work::LookAgain;
        }
        if self.conflict {
            return Work::Rest;
        }
        self.next_move(input)
    }

    /// Takes in how the task that [`Core::next`] gave has ended.
    pub fn ended(&mut self, now_ns: u64, outcome: &Outcome) {
        self.counters.count(outcome);
        match std::mem::replace(&mut self.round.running, Running::Nothing) {
            Running::Claim { sent_ns, then } => {
                let Outcome::Claimed { taker, counter } = *outcome else {
                    self.round.plan = None;
                    return;
                };
                self.events.claimed(taker, counter);
                if let Some(plan) = &mut self.round.plan {
                    plan.claimed_ns = Some(sent_ns);
                    self.round.claimed = Some(then);
                }
            }
            Running::Move => self.move_ended(now_ns, outcome),
            Running::Help(helping) => self.help_ended(now_ns, &helping, outcome),
            Running::Abort(helping) => {
                if let Outcome::Bumped { .. } = outcome {
                    self.round.want_look = true;
                    self.push(Some(helped_record(now_ns, &helping, Ending::Aborted, None)));
                }
            }
            Running::Other | Running::Nothing => {
                let looks = matches!(
                    outcome,
                    Outcome::Bumped { .. } | Outcome::Renewed { .. } | Outcome::FloorSet { .. }
                );
                self.round.want_look |= looks;
            }
        }
    }

    fn run(&mut self, running: Running, task: Task) -> Work {
        self.round.running = running;
        Work::Run(task)
    }

    /// Asks the policy for each site, and keeps what is ripe, most urgent first.
    fn find_needs(&mut self, input: &Input<'_>) {
        let mut restless = Vec::new();
        for site in &input.view.sites {
            let Guarantee { hard, soft, .. } = site.terms.guarantee;
            let paused = self.is_paused(site.id);
            let is_light = input.policy.is_light(input.view, site.id);
            if self.events.is_restless(input.now_ns, site.id, is_light) {
                restless.push(site.id);
            }
            let reason = input.policy.need(input.view, site.id).filter(|_| !paused);
            let need = Need { reason, nodes: site.nodes, hard };
            let ripe = self.events.ripe(input.now_ns, input.op_time_ns, site.id, &need);
            let Some(reason) = reason.filter(|_| ripe) else { continue };
            let (taker, nodes, load) = (site.id, site.nodes, site.load());
            let priority = site.terms.priority;
            self.round.needs.push(Ripe { reason, taker, priority, nodes, soft, load });
        }
        self.round.needs.sort_by(Ripe::order);
        if !self.round.needs.is_empty() && !restless.is_empty() {
            let shown = PoolView { restless, ..input.view.clone() };
            self.round.shown = Some(Box::new(shown));
        }
    }

    /// Goes on with the plan at hand, or starts the next.
    fn next_move(&mut self, input: &Input<'_>) -> Work {
        loop {
            if self.round.moved {
                return Work::Rest;
            }
            if self.round.plan.is_none() && !self.start_plan(input) {
                return Work::Rest;
            }
            let Some(mut plan) = self.round.plan.take() else { return Work::Rest };
            if self.gave_up(&plan, input.now_ns) {
                continue;
            }
            if let Some(task) = self.round.claimed.take() {
                self.round.plan = Some(plan);
                return self.run(Running::Move, task);
            }
            match plan.advance(input.seen) {
                Try::Ready(task) => {
                    let claims = plan.taker.filter(|_| plan.claimed_ns.is_none());
                    let reason = plan.reason;
                    self.round.plan = Some(plan);
                    let Some(taker) = claims else { return self.run(Running::Move, task) };
                    let claim = Claim::new(input.seen, taker, self.options.edge, reason);
                    let running = Running::Claim { sent_ns: input.now_ns, then: task };
                    return self.run(running, Task::Claim(claim));
                }
                Try::Bump(bump) => {
                    if self.events.take_bump(input.now_ns, bump.site) {
                        self.round.plan = Some(plan);
                        return self.run(Running::Other, Task::Bump(bump.draw(input.nonce)));
                    }
                    plan.skip_donor();
                    self.round.plan = Some(plan);
                }
                Try::Renew(task) => {
                    self.round.plan = Some(plan);
                    return self.run(Running::Other, task);
                }
                Try::Exhausted => {
                    if plan.claimed_ns.is_some() && self.round.looks_again < LOOKS_AGAIN_MAX {
                        self.round.looks_again += 1;
                        self.round.again = true;
                        self.round.plan = Some(plan);
                        return Work::LookAgain;
                    }
                    self.refused(&plan, input.now_ns);
                }
            }
        }
    }

    /// Ends a plan whose claim is too old or whose tries are used up.
    fn gave_up(&mut self, plan: &Plan, now_ns: u64) -> bool {
        let late = plan.claimed_ns.is_some_and(|sent| self.options.timing.is_late(sent, now_ns));
        let ending = if late {
            self.counters.late_moves += 1;
            Ending::DroppedLate
        } else if plan.tries >= TRIES_MAX {
            Ending::LostInstall
        } else {
            return false;
        };
        self.round.claimed = None;
        self.push(plan.record(now_ns, ending));
        true
    }

    /// Picks the most urgent need or request that this look has not tried yet.
    fn start_plan(&mut self, input: &Input<'_>) -> bool {
        loop {
            let need = self.round.needs.get(self.round.need_at).copied();
            let floor_first = need.filter(|need| need.reason < Reason::Admin);
            if floor_first.is_none()
                && let Some(plan) = self.requested_plan(input)
            {
                self.round.plan = Some(plan);
                return true;
            }
            let Some(need) = need else { return false };
            self.round.need_at += 1;
            let candidates = self.candidates(input, need.taker, need.reason);
            let best = candidates.first().copied();
            if let Some(stage) = self.stage(input, need.taker, need.reason, best) {
                self.round.plan = Some(Plan::staged(&need, stage, input.now_ns));
                return true;
            }
            if candidates.is_empty() {
                continue;
            }
            self.round.plan = Some(Plan::new(&need, candidates, input.now_ns));
            return true;
        }
    }

    /// A plan ran out of candidates. A need is simply asked again at the next look; a request is
    /// answered where waiting would not help.
    fn refused(&mut self, plan: &Plan, now_ns: u64) {
        let refusal = plan.refusal;
        if plan.claimed_ns.is_some() {
            self.push(plan.record(now_ns, Ending::LostInstall));
            return;
        }
        let definite =
            matches!(refusal, Refusal::DonorAtFloor | Refusal::NoSuchSite | Refusal::AlreadyThere);
        if definite && let Some(id) = plan.request {
            self.requests.retain(|asked| asked.id != id);
            self.push(plan.record(now_ns, Ending::Refused(refusal)));
        }
    }

    fn move_ended(&mut self, now_ns: u64, outcome: &Outcome) {
        let Some(mut plan) = self.round.plan.take() else { return };
        match *outcome {
            Outcome::LostInstall { .. } | Outcome::LostJoin { .. } => {
                plan.tries += 1;
                plan.skip_donor();
                self.round.plan = Some(plan);
                return;
            }
            Outcome::Moved { close, .. } | Outcome::CasMissedLate { close, .. } => {
                self.round.follow = close.map(Task::Close);
            }
            _ => {}
        }
        // Whatever became of it, the next move waits for a look that shows it.
        self.round.moved = true;
        let Some(ending) = ending_of(outcome) else { return };
        let mut record = plan.record(now_ns, ending);
        if let (Some(record), Outcome::Moved { version, .. }) = (&mut record, outcome) {
            record.version = Some(*version);
        }
        self.push(record);
        if let Some(id) = plan.request {
            self.requests.retain(|asked| asked.id != id);
        }
    }

    fn push(&mut self, record: Option<MoveRecord>) {
        if let Some(record) = record {
            self.records.push(record);
        }
    }
}
