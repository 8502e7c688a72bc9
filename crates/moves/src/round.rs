//! What the decision core keeps from a look to the next.

use crate::plan::{Plan, Ripe};
use crate::protocol::{BumpPlan, Task};
use pool_model::{PoolView, Reason, SiteId};
use shared_state::words::Departure;

/// A departure of another edge that this one finishes or aborts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Helping {
    pub(crate) site: SiteId,
    pub(crate) departure: Departure,
    pub(crate) reason: Reason,
    pub(crate) started_ns: u64,
}

/// Which task the shell runs at present.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Running {
    Nothing,
    /// A claim; then this.
    Claim {
        sent_ns: u64,
        then: Task,
    },
    Move,
    Help(Helping),
    /// The bump that aborts what could not be helped.
    Abort(Helping),
    Other,
}

/// The state of one look, until the next.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The shell was told to look again: the next look continues this one.
    pub(crate) again: bool,
    pub(crate) looks_again: u8,
    pub(crate) want_look: bool,
    pub(crate) follow: Option<Task>,
    /// The move that a claim was made for.
    pub(crate) claimed: Option<Task>,
    pub(crate) must_bump: Option<(BumpPlan, Option<Helping>)>,
    pub(crate) repair_at: usize,
    pub(crate) needs: Vec<Ripe>,
    /// The look as the policy is shown it, where that is not what was seen.
    pub(crate) shown: Option<Box<PoolView>>,
    pub(crate) need_at: usize,
    pub(crate) plan: Option<Plan>,
    /// The one move of this look was made.
    pub(crate) moved: bool,
    pub(crate) running: Running,
}

impl Round {
    pub(crate) fn new() -> Self {
        Self {
            again: false,
            looks_again: 0,
            want_look: false,
            follow: None,
            claimed: None,
            must_bump: None,
            repair_at: 0,
            needs: Vec::new(),
            shown: None,
            need_at: 0,
            plan: None,
            moved: false,
            running: Running::Nothing,
        }
    }

    /// A regular look starts over; one that was asked for goes on.
    pub(crate) fn looked(&mut self) {
        if !std::mem::take(&mut self.again) {
            (self.looks_again, self.moved, self.plan) = (0, false, None);
        }
        // An event that is not claimed yet must be found ripe again by the fresh look.
        self.plan.take_if(|plan| plan.claimed_ns.is_none());
        (self.want_look, self.repair_at, self.need_at) = (false, 0, 0);
        (self.claimed, self.must_bump, self.running) = (None, None, Running::Nothing);
        self.needs.clear();
        self.shown = None;
    }
}
