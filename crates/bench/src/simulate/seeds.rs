//! Seeds of faults, on two threads.

use crate::progress::Progress;
use load::generate::Cancel;
use policy::{Kind, Thresholds};
use serde::Serialize;
use sim::FaultCounts;
use sim::scenario::faults;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Threads, and so cores.
pub(super) const THREADS: u64 = 2;
/// Which policy decides.
pub(super) const POLICY: Kind = Kind::ReconfPq;
/// How often the progress is told.
const TOLD_EVERY: Duration = Duration::from_millis(250);
/// Violations that are kept with what led to them.
const KEPT_MAX: usize = 5;

/// A seed that broke a property.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Broken {
    pub(crate) seed: u64,
    pub(crate) what: String,
}

/// What all seeds together showed.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Seeds {
    pub(crate) seeds: u64,
    pub(crate) simulated_seconds: f64,
    pub(crate) violations: u64,
    pub(crate) broken: Vec<Broken>,
    pub(crate) looks: u64,
    pub(crate) requests: f64,
    pub(crate) moves: u64,
    pub(crate) claims: u64,
    /// Moves that another edge finished.
    pub(crate) take_overs: u64,
    pub(crate) faults: u64,
    pub(crate) crashes: u64,
    pub(crate) crashes_in_mid_move: u64,
    pub(crate) pauses: u64,
    pub(crate) node_failures: u64,
    pub(crate) agent_restarts: u64,
    pub(crate) wipes: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_replies: u64,
    pub(crate) late_landed: u64,
    pub(crate) late_missed: u64,
    /// Of all histories: equal wherever the same program runs.
    pub(crate) histories_hash: String,
    pub(crate) wall_s: f64,
}

#[derive(Default)]
struct Sum {
    seeds: Seeds,
    faults: FaultCounts,
    hash: u64,
}

/// Runs seeds 1 to `count`.
pub(super) fn measure(
    count: u64,
    progress: &mut Progress,
    expected_s: f64,
    cancel: &Cancel,
) -> anyhow::Result<Seeds> {
    let (next, done) = (AtomicU64::new(1), AtomicU64::new(0));
    let sum = Mutex::new(Sum::default());
    let started = Instant::now();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let workers: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| work(count, &next, &done, &sum, cancel))).collect();
        let mut told = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            std::thread::sleep(TOLD_EVERY);
            let now = done.load(Ordering::Relaxed);
            progress.did(expected_s * (now - told) as f64 / count as f64);
            progress.say(&format!("faults: {now} of {count} seeds"));
            told = now;
        }
        for worker in workers {
            worker.join().map_err(|_| anyhow::anyhow!("a simulation panicked"))??;
        }
        Ok(())
    })?;
    let sum = sum.into_inner().map_err(|_| anyhow::anyhow!("a simulation panicked"))?;
    Ok(finished(sum, started.elapsed().as_secs_f64()))
}

fn work(
    count: u64,
    next: &AtomicU64,
    done: &AtomicU64,
    sum: &Mutex<Sum>,
    cancel: &Cancel,
) -> anyhow::Result<()> {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed > count || cancel.is_cancelled() {
            return Ok(());
        }
        let policy = POLICY.build(Thresholds::default());
        let outcome = faults::run(seed, faults::FAULTS, policy)?;
        done.fetch_add(1, Ordering::Relaxed);
        let mut sum = sum.lock().map_err(|_| anyhow::anyhow!("a simulation panicked"))?;
        // A sum does not depend on which thread is done first.
        sum.hash = sum.hash.wrapping_add(outcome.history_hash);
        sum.faults.add(&outcome.faults);
        let all = &mut sum.seeds;
        all.seeds += 1;
        all.simulated_seconds += outcome.ended_ns as f64 / 1e9;
        all.looks += outcome.looks;
        all.requests += outcome.arrived();
        all.moves += outcome.moves_total;
        all.claims += outcome.counters.claims;
        all.take_overs += outcome.counters.helps;
        all.violations += u64::from(outcome.violations_total > 0);
        if let (Some(first), true) = (outcome.violations.first(), all.broken.len() < KEPT_MAX) {
            let what = format!("{:.6} s: {}", first.at_ns as f64 / 1e9, first.what);
            all.broken.push(Broken { seed, what });
        }
    }
}

fn finished(sum: Sum, wall_s: f64) -> Seeds {
    let faults = sum.faults;
    Seeds {
        faults: faults.faults,
        crashes: faults.crashes,
        crashes_in_mid_move: faults.crashes_in_mid_move,
        pauses: faults.pauses,
        node_failures: faults.node_failures,
        agent_restarts: faults.agent_restarts,
        wipes: faults.wipes,
        lost_requests: faults.requests_lost,
        lost_replies: faults.replies_lost,
        late_landed: faults.late_landed,
        late_missed: faults.late_missed,
        histories_hash: format!("{:016x}", sum.hash),
        wall_s,
        ..sum.seeds
    }
}
