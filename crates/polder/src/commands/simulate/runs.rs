//! Makes all runs, a few at once, with a bar for who watches.

use super::plan::{Plan, Run};
use crate::commands::CommandError;
use crate::terminal::Style;
use indicatif::{ProgressBar, ProgressStyle};
use sim::{Outcome, Simulation};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Steps of the bar for each run.
const BAR_STEPS: u64 = 1_000;

/// A run and what it showed.
#[derive(Debug)]
pub(super) struct Done {
    /// Windows of time that lie within the traffic.
    pub(super) windows: usize,
    pub(super) run: Run,
    pub(super) outcome: Outcome,
}

impl Done {
    /// Whether every site's requests were in time often enough.
    pub(super) fn is_enough(&self, enough: f64) -> bool {
        self.outcome.sites.iter().all(|site| site.in_time() >= enough)
    }
}

/// Makes all runs of a plan; in its order. Blocks until all are done.
pub(super) fn all(plan: &Plan, style: Style) -> Result<Vec<Done>, CommandError> {
    let bar = bar(plan.runs.len(), style);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Done)>> = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(plan.runs.len());
    let work = || -> Result<(), CommandError> {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(&run) = plan.runs.get(place) else { return Ok(()) };
            let outcome = one(plan, &run, &bar)?;
            let mut done = done.lock().map_err(|_| panicked())?;
            let window_ns = plan.options(&run).window_ns;
            let windows = usize::try_from(plan.duration_ns / window_ns).unwrap_or(usize::MAX);
            done.push((place, Done { windows, run, outcome }));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| panicked())?)
    })?;
    bar.finish_and_clear();
    let mut done = done.into_inner().map_err(|_| panicked())?;
    done.sort_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

fn panicked() -> CommandError {
    CommandError::Pool("a simulation ended in the middle; this is a fault of the program".into())
}

fn one(plan: &Plan, run: &Run, bar: &ProgressBar) -> Result<Outcome, CommandError> {
    let simulation = Simulation::new(plan.options(run), plan.traffic(), plan.policy(run))
        .map_err(|error| CommandError::Argument(error.to_string()))?;
    let mut shown = 0;
    let outcome = simulation.run_watched(|until_ns| {
        let now = until_ns.saturating_mul(BAR_STEPS) / plan.duration_ns.max(1);
        bar.inc(now.saturating_sub(shown));
        shown = now;
    });
    Ok(outcome)
}

fn bar(runs: usize, style: Style) -> ProgressBar {
    if !style.is_terminal {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(BAR_STEPS * runs as u64);
    let what = if runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
    if let Ok(look) = ProgressStyle::with_template("{bar:40} {percent:>3} %  {elapsed}  {msg}") {
        bar.set_style(look);
    }
    bar.set_message(what);
    bar
}
