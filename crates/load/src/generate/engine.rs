//! Carries runs out: clients, connections and reports of progress.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::client::{Client, Plan};
use super::closed::{ClosedRun, NextSite};
use super::generator::ProgressFn;
use super::open::{OpenRun, Schedule};
use super::options::Cancel;
use super::recorder::Recorder;
use super::report::Connections;
use crate::clock::now_ns;
use crate::timer::PreciseTimer;

/// All of a generator but its runtime.
pub(super) struct Engine {
    plan: Rc<Plan>,
    in_flight: usize,
    cancel: Cancel,
    idle: Vec<Client>,
    clients_made: usize,
    progress: Option<(Duration, ProgressFn)>,
}

impl Engine {
    pub(super) fn new(plan: Plan, in_flight: usize, cancel: Cancel) -> Self {
        let plan = Rc::new(plan);
        Self { plan, in_flight, cancel, idle: Vec::new(), clients_made: 0, progress: None }
    }

    pub(super) fn set_progress(&mut self, every: Duration, function: ProgressFn) {
        self.progress = Some((every, function));
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(super) fn sites(&self) -> usize {
        self.plan.sites.len()
    }

    /// Connections since the last call.
    pub(super) fn take_connections(&self) -> Connections {
        self.plan.connections.take()
    }

    pub(super) fn recorder(&self, burst_requests: Option<u64>) -> Rc<Recorder> {
        let live = self.progress.is_some();
        Rc::new(Recorder::new(self.plan.sites.len(), live, burst_requests))
    }

    /// A closed run of at most `clients` clients, and at most `in_flight`.
    pub(super) async fn closed(
        &mut self,
        clients: usize,
        next_site: NextSite,
        recorder: Rc<Recorder>,
    ) {
        let run = Rc::new(ClosedRun {
            plan: Rc::clone(&self.plan),
            next_site: RefCell::new(next_site),
            recorder: Rc::clone(&recorder),
            cancel: self.cancel.clone(),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..clients.min(self.in_flight) {
            let client = self.take_client();
            tasks.spawn_local(Rc::clone(&run).work(client));
        }
        let mut ticks = self.ticks();
        loop {
            tokio::select! {
                biased;
                ended = tasks.join_next() => match ended {
                    Some(ended) => self.idle.push(unless_panicked(ended)),
                    None => break,
                },
                () = tick(&mut ticks) => self.show(&recorder),
            }
        }
        self.show(&recorder);
    }

    /// An open run of at most `outstanding_max` requests in flight; returns how many left late and
    /// the most in flight.
    pub(super) async fn open(
        &mut self,
        schedule: Rc<RefCell<dyn Schedule>>,
        outstanding_max: usize,
        recorder: Rc<Recorder>,
    ) -> io::Result<(u64, usize)> {
        let run = Rc::new(OpenRun {
            plan: Rc::clone(&self.plan),
            recorder: Rc::clone(&recorder),
            cancel: self.cancel.clone(),
            timer: PreciseTimer::new()?,
            start_ns: recorder.start_ns,
            schedule,
            late: Cell::new(0),
            idle: RefCell::new(std::mem::take(&mut self.idle)),
        });
        let mut tasks = JoinSet::new();
        let mut peak = 0;
        let mut ticks = self.ticks();
        while tokio::select! {
            more = run.wait() => more,
            () = tick(&mut ticks) => { self.show(&recorder); true }
        } {
            while let Some(ended) = tasks.try_join_next() {
                unless_panicked(ended);
            }
            while tasks.len() < outstanding_max {
                let Some(due) = run.take_due(now_ns()) else { break };
                let idle = run.idle.borrow_mut().pop();
                let client = idle.unwrap_or_else(|| self.new_client());
                tasks.spawn_local(Rc::clone(&run).work(client, due));
            }
            peak = peak.max(tasks.len());
        }
        while let Some(ended) = tasks.join_next().await {
            unless_panicked(ended);
        }
        self.show(&recorder);
        self.idle = run.idle.take();
        Ok((run.late.get(), peak))
    }

    fn take_client(&mut self) -> Client {
        self.idle.pop().unwrap_or_else(|| self.new_client())
    }

    fn new_client(&mut self) -> Client {
        self.clients_made += 1;
        Client::new(self.clients_made - 1)
    }

    fn ticks(&self) -> Option<Interval> {
        let (every, _) = self.progress.as_ref()?;
        let mut ticks = tokio::time::interval_at(Instant::now() + *every, *every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Some(ticks)
    }

    fn show(&mut self, recorder: &Recorder) {
        if let Some((_, function)) = &mut self.progress {
            recorder.show(function.as_mut());
        }
    }
}

async fn tick(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Clients do not panic; should one, the run must not go on with wrong counts.
fn unless_panicked<T>(ended: Result<T, JoinError>) -> T {
    match ended {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("a client's task was aborted by nobody: {error}"),
        },
    }
}
