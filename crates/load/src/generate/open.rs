//! An open loop over any schedule.
//!
//! The pacer sleeps on the precise timer until the next set time and hands the request to an idle
//! client. When all clients are in use, the requests that are due wait in their schedule; each
//! client takes the oldest when it gets free.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use http::Uri;

use super::client::{Client, Plan};
use super::options::Cancel;
use super::recorder::Recorder;
use super::report::Failure;
use crate::clock::{duration_ns, now_ns};
use crate::timer::PreciseTimer;

/// A request that leaves later than this after its set time counts as late; microseconds. It is
/// what a busy but healthy generator stays below.
pub const LATE_US: u64 = 1_000;

/// How often the pacer looks for a stop that was asked for.
const LOOK_NS: u64 = 10_000_000;

/// How often it looks while all clients are in use. They take what is due themselves; this bounds
/// how late the first request leaves once they have caught up.
const SATURATED_LOOK_NS: u64 = 1_000_000;

/// How often the pacer looks for more of a schedule that is read while it runs.
const NOT_YET_LOOK_NS: u64 = 500_000;

/// Which requests leave when, counted from the start of the run. Does not block.
pub(super) trait Schedule {
    /// The set time of the next one.
    fn peek(&mut self) -> Planned;

    /// Takes the one that [`Schedule::peek`] showed.
    fn pop(&mut self) -> Option<Due>;
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planned {
    /// A request, so many nanoseconds after the start.
    At(u64),
    /// Nothing is known yet.
    NotYet,
    /// Nothing more.
    End,
}

/// A request that is due.
pub(super) struct Due {
    pub(super) site: usize,
    /// In a schedule from the start of the run, in a run by the machine's clock; nanoseconds.
    pub(super) set_ns: u64,
    /// Another path than the plan's.
    pub(super) uri: Option<Uri>,
}

/// An open run, shared by pacer and clients.
pub(super) struct OpenRun {
    pub(super) plan: Rc<Plan>,
    pub(super) recorder: Rc<Recorder>,
    pub(super) cancel: Cancel,
    pub(super) timer: PreciseTimer,
    pub(super) start_ns: u64,
    pub(super) schedule: Rc<RefCell<dyn Schedule>>,
    pub(super) late: Cell<u64>,
    pub(super) idle: RefCell<Vec<Client>>,
}

impl OpenRun {
    /// Takes the oldest request that is due at `now`. Requests that waited for longer than the
    /// time-out are counted as failed and passed over.
    pub(super) fn take_due(&self, now: u64) -> Option<Due> {
        let mut schedule = self.schedule.borrow_mut();
        loop {
            let Planned::At(from_start_ns) = schedule.peek() else { return None };
            let set_ns = self.start_ns.saturating_add(from_start_ns);
            if set_ns > now || self.cancel.is_cancelled() {
                return None;
            }
            let due = schedule.pop()?;
            if now - set_ns <= duration_ns(self.plan.timeout) {
                if now - set_ns > LATE_US * 1_000 {
                    self.late.set(self.late.get() + 1);
                }
                return Some(Due { set_ns, ..due });
            }
            self.recorder.record(due.site, set_ns, now, Err(Failure::Unsent));
        }
    }

    /// Waits until the next request is due, or for a look. False when all were taken.
    pub(super) async fn wait(&self) -> bool {
        let planned = self.schedule.borrow_mut().peek();
        if planned == Planned::End || self.cancel.is_cancelled() {
            return false;
        }
        let now = now_ns();
        let until = match planned {
            Planned::At(from_start_ns) => {
                let set_ns = self.start_ns.saturating_add(from_start_ns);
                if set_ns > now { set_ns.min(now + LOOK_NS) } else { now + SATURATED_LOOK_NS }
            }
            Planned::NotYet | Planned::End => now + NOT_YET_LOOK_NS,
        };
        self.timer.sleep_until(until).await;
        true
    }

    /// A client's loop: the given request, then all that are due, then back among the idle ones.
    pub(super) async fn work(self: Rc<Self>, mut client: Client, first: Due) {
        let mut due = Some(first);
        while let Some(Due { site, set_ns, uri }) = due {
            let outcome = client.exchange(&self.plan, site, uri.as_ref()).await;
            let now = now_ns();
            self.recorder.record(site, set_ns, now, outcome);
            due = self.take_due(now);
        }
        self.idle.borrow_mut().push(client);
    }
}
