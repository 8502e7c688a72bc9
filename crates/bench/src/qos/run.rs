//! Runs the plan.

use super::azure::{self, Azure};
use super::cases::{self, Case, CaseRound, CaseRun, Documents};
use super::equal::{Cell, EqualRound, Runner};
use super::overload::{self, Overload};
use super::plan::{self, FILE_BYTES, Plan};
use super::pools::{self, POLICIES, Scheme};
use super::traces::{self, Feed, Replayed};
use crate::burst::capacities;
use crate::progress::Progress;
use anyhow::{bail, ensure};
use load::generate::Cancel;
use load::stub::Capacity;
use polder::settings::PolicyName;
use serde_json::{Value, json};
use std::time::Duration;

/// The busiest minute of the World Cup needs so many nodes: more than a fixed half of them.
const WORLD_CUP_PEAK_NODES: f64 = 6.5;
/// Bursts of the least form.
const LEAST_REQUESTS: u64 = 1_024;
const LEAST_CUT: Duration = Duration::from_secs(5);
const LEAST_OVERLOAD: Duration = Duration::from_secs(10);

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) look_and_hold_ms: (u32, u32),
    /// What a stub node serves per second, measured in turn until within the limit.
    pub(crate) capacities: Vec<Capacity>,
    pub(crate) equal: Vec<Cell>,
    pub(crate) cases: Vec<CaseRun>,
    pub(crate) overload: Vec<Overload>,
    pub(crate) world_cup: Vec<Replayed>,
    pub(crate) azure: Option<Azure>,
    /// Why something is missing.
    pub(crate) skipped: Vec<String>,
}

/// Runs everything. Blocks for minutes.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let plan = Plan::of(quick);
    let mut progress = Progress::new(plan::expected_s(&plan) + traces_s(&plan));
    progress.say("measuring the capacity of a stub node");
    let capacities = capacities(pools::node(FILE_BYTES))?;
    let (equal, look_and_hold_ms) = equal(&plan, &mut progress, cancel)?;
    let mut results = Results {
        quick,
        look_and_hold_ms,
        capacities,
        equal,
        cases: all_cases(&plan, &mut progress, cancel)?,
        overload: Vec::new(),
        world_cup: Vec::new(),
        azure: None,
        skipped: Vec::new(),
    };
    if !plan.overload.is_zero() {
        progress.say("two equal sites, both overloaded");
        results.overload = overload::measure(&POLICIES, plan.overload, cancel)?;
        progress.did(plan.overload.as_secs_f64());
    }
    if plan.live_traces {
        world_cup(&mut results, &mut progress, cancel)?;
    }
    progress.say("the Azure pair");
    // Interrupted or broken, it ends the run; where traces are missing it is left out.
    match Feed::azure() {
        Ok(_) => results.azure = Some(azure::measure(plan.live_traces, cancel)?),
        Err(error) => results.skipped.push(format!("the Azure pair: {error}")),
    }
    Ok(results)
}

/// About how long the live traces take; seconds.
fn traces_s(plan: &Plan) -> f64 {
    if plan.live_traces { 4.0 * 30.0 + 2.0 * 60.0 } else { 0.0 }
}

fn equal(
    plan: &Plan,
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<(Vec<Cell>, (u32, u32))> {
    let mut cells = Vec::new();
    let mut look_and_hold_ms = None;
    let mut runners: Vec<Runner> = Vec::new();
    let mut body_bytes = None;
    for &round in &plan.equal {
        if body_bytes.replace(round.body_bytes) != Some(round.body_bytes) {
            // The old pools end before the new ones start.
            runners.clear();
            for scheme in Scheme::ALL {
                progress.say(&format!("starting {}", scheme.name()));
                let runner = Runner::start(scheme, round.body_bytes, cancel)?;
                let told = runner.look_and_hold_ms()?;
                ensure!(
                    *look_and_hold_ms.get_or_insert(told) == told,
                    "the pools look and hold differently: {told:?}"
                );
                runners.push(runner);
            }
        }
        cells.extend(rotate(round, &mut runners, progress, cancel)?);
    }
    Ok((cells, look_and_hold_ms.unwrap_or_default()))
}

/// All schemes in turn, so that what disturbs the machine disturbs all of them.
fn rotate(
    round: EqualRound,
    runners: &mut [Runner],
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<Vec<Cell>> {
    let mut cells: Vec<Cell> =
        runners.iter().map(|runner| Cell::new(runner.scheme, round)).collect();
    for number in 0..round.rotations {
        for (runner, cell) in runners.iter_mut().zip(&mut cells) {
            if number >= Plan::rotations(round, runner.scheme) {
                continue;
            }
            let (requests, name) = (round.requests, runner.scheme.name());
            progress.say(&format!("bursts of {requests}, {name}, rotation {}", number + 1));
            cell.rotations.push(runner.rotate(round, number)?);
            progress.did(plan::rotation_s(round, runner.scheme));
            if cancel.is_cancelled() {
                bail!("interrupted");
            }
        }
    }
    Ok(cells)
}

fn all_cases(
    plan: &Plan,
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<Vec<CaseRun>> {
    let mut runs = Vec::new();
    for &round in &plan.cases {
        for policy in POLICIES {
            let (number, documents) = (round.case.number(), round.documents.name());
            progress.say(&format!("case {number}, {documents}, {}", policy.name()));
            runs.push(cases::run(round, policy, cancel)?);
            progress.did(plan::case_s(round, policy));
        }
    }
    Ok(runs)
}

fn world_cup(
    results: &mut Results,
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let peak = WORLD_CUP_PEAK_NODES * pools::node(FILE_BYTES).capacity_per_second();
    let feed = match Feed::world_cup(folder.path(), peak) {
        Ok(feed) => feed,
        Err(error) => {
            results.skipped.push(format!("the World Cup: {error}"));
            return Ok(());
        }
    };
    for policy in [PolicyName::Rigid].into_iter().chain(POLICIES) {
        progress.say(&format!("the World Cup, {}", policy.name()));
        let pool = (policy.name().to_owned(), pools::prioritised(policy, FILE_BYTES));
        results.world_cup.extend(traces::replay(&feed, vec![pool], cancel)?);
        progress.did(feed.seconds());
    }
    Ok(())
}

/// All parts at work, small: what the tests run.
pub(crate) fn least(cancel: &Cancel) -> anyhow::Result<Value> {
    let overload = overload::measure(&POLICIES, LEAST_OVERLOAD, cancel)?;
    let mut cases = Vec::new();
    for (case, documents) in
        [(Case::LowFirst, Documents::Single(FILE_BYTES)), (Case::Together, Documents::Zipf)]
    {
        let cut = Some(LEAST_CUT);
        let round = CaseRound { case, documents, requests: LEAST_REQUESTS, cut };
        cases.push(cases::run(round, PolicyName::ReconfPq, cancel)?);
    }
    let met = |run: &CaseRun| run.sites.iter().map(|site| site.hard_met_pct).fold(100.0, f64::min);
    let late: usize = overload.iter().map(|one| one.moves_after_first_second).sum();
    let failed = |run: &CaseRun| run.sites.iter().map(|site| site.failed).sum::<u64>();
    Ok(json!({
        "moves_after_first_second": late,
        "hard_met_pct": cases.iter().map(met).fold(100.0, f64::min),
        "moves": cases.iter().map(|run| run.moves).sum::<usize>(),
        "failed_requests": cases.iter().map(failed).sum::<u64>()
            + overload.iter().map(|one| one.failed).sum::<u64>(),
    }))
}
