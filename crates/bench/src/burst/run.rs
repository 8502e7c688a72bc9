//! Runs the plan: three rigs side by side, their rotations in turn.

use super::measure::{Burst, Cell, Measured, Rotation};
use super::plan::{Plan, Round, expected_s, expected_total_s, plans};
use super::scenario::{Scenario, Scheme};
use crate::progress::Progress;
use crate::waits::Cost;
use anyhow::{Context as _, bail};
use load::clock::{ThreadTime, window_of};
use load::generate::{BurstReport, Cancel, Generator};
use load::stub::{Capacity, NodeOptions, measure_capacity};
use polder::rig::{MoveLog, Rig, RigNode, RigOptions, RigServers};
use std::time::Duration;

/// How far a stub may be from the capacity that it states.
pub(crate) const CAPACITY_DEVIATION_MAX: f64 = 0.02;
/// Requests in flight while it is measured: as in the bursts, so that a short stall of the machine
/// leaves the queue filled.
const CAPACITY_IN_FLIGHT: usize = 64;
/// How long each of these measurements takes.
const CAPACITY_FOR: Duration = Duration::from_millis(500);
/// Tries until one is within the limit: a stall longer than the queue lasts is the machine's.
const CAPACITY_TRIES_MAX: usize = 4;

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    /// What a stub node serves per second, measured in turn until within the limit.
    pub(crate) capacities: Vec<Capacity>,
    /// `look_every_ms` and `hold_ms` as all pools said them.
    pub(crate) look_and_hold_ms: (u32, u32),
    pub(crate) scenarios: Vec<Measured>,
}

/// Runs everything. Blocks for minutes.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let plans = plans(quick);
    let mut progress = Progress::new(expected_total_s(&plans));
    progress.say("measuring the capacity of a stub node");
    let capacities = capacities(RigNode::default())?;
    let mut look_and_hold_ms = None;
    let mut scenarios = Vec::new();
    for plan in &plans {
        let mut runners = Vec::new();
        for scheme in Scheme::ALL {
            progress.say(&format!("starting {}, {}", plan.scenario.title(), scheme.name()));
            runners.push(Runner::start(&plan.scenario, scheme, cancel)?);
        }
        for runner in &runners {
            let told = runner.look_and_hold_ms()?;
            if *look_and_hold_ms.get_or_insert(told) != told {
                bail!("the pools look and hold differently: {told:?}");
            }
        }
        scenarios.push(scenario(plan, &mut runners, &mut progress, cancel)?);
    }
    let look_and_hold_ms = look_and_hold_ms.context("there was nothing to measure")?;
    Ok(Results { quick, capacities, look_and_hold_ms, scenarios })
}

/// What a stub node of this kind serves, measured in turn until it is within
/// [`CAPACITY_DEVIATION_MAX`] of what it states.
pub(crate) fn capacities(node: RigNode) -> anyhow::Result<Vec<Capacity>> {
    let options = NodeOptions {
        workers: node.workers,
        service_time: node.service_time,
        body_bytes: node.body_bytes,
        ..NodeOptions::named("n1")
    };
    let mut measured = Vec::new();
    for _ in 0..CAPACITY_TRIES_MAX {
        let capacity = measure_capacity(&options, CAPACITY_IN_FLIGHT, CAPACITY_FOR)?;
        measured.push(capacity);
        if capacity.deviation().abs() <= CAPACITY_DEVIATION_MAX {
            break;
        }
    }
    Ok(measured)
}

fn scenario(
    plan: &Plan,
    runners: &mut [Runner],
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<Measured> {
    let mut cells = Vec::new();
    for round in &plan.rounds {
        let mut new: Vec<Cell> =
            runners.iter().map(|runner| Cell::new(runner.scheme, round)).collect();
        for number in 0..round.rotations {
            for (runner, cell) in runners.iter_mut().zip(&mut new) {
                let (scenario, requests) = (plan.scenario, round.requests);
                progress.say(&format!(
                    "{}: bursts of {requests}, {}, rotation {} of {}",
                    scenario.name,
                    runner.scheme.name(),
                    number + 1,
                    round.rotations,
                ));
                cell.rotations.push(runner.rotate(round, number)?);
                progress.did(expected_s(&scenario, runner.scheme, requests));
                if cancel.is_cancelled() {
                    bail!("interrupted");
                }
            }
        }
        cells.append(&mut new);
    }
    Ok(Measured { scenario: plan.scenario, cells })
}

/// One pool with its generator.
pub(super) struct Runner {
    scheme: Scheme,
    scenario: Scenario,
    generator: Generator,
    rig: Rig,
}

impl Runner {
    fn start(scenario: &Scenario, scheme: Scheme, cancel: &Cancel) -> anyhow::Result<Self> {
        let mut options = scenario.rig(scheme);
        options.cancel = cancel.clone();
        Self::with(scenario, scheme, &options, "/")
    }

    /// With a pool of other options than the scenario's own; requests ask for `path`.
    pub(super) fn with(
        scenario: &Scenario,
        scheme: Scheme,
        options: &RigOptions,
        path: &str,
    ) -> anyhow::Result<Self> {
        let rig = Rig::start(options)?;
        let mut load = rig.load();
        path.clone_into(&mut load.path);
        let generator = Generator::new(load)?;
        Ok(Self { scheme, scenario: *scenario, generator, rig })
    }

    /// `look_every_ms` and `hold_ms`, as the pool says them.
    pub(super) fn look_and_hold_ms(&self) -> anyhow::Result<(u32, u32)> {
        let pool = self.rig.status()?.pool;
        Ok((pool.look_every_ms, pool.hold_ms))
    }

    /// One burst to each site of the round; `number` counts the round's rotations.
    pub(super) fn rotate(&mut self, round: &Round, number: usize) -> anyhow::Result<Rotation> {
        let sites: Vec<usize> = (0..round.sites).collect();
        let before = self.rig.cpu();
        let reports = self.generator.rotate(&sites, round.requests, 1, &mut |_| {})?;
        let spent = self.rig.cpu().since(&before);
        let generator = reports.iter().fold(ThreadTime::default(), |sum, report| ThreadTime {
            run_ns: sum.run_ns + report.cpu.run_ns,
            wait_ns: sum.wait_ns + report.cpu.wait_ns,
        });
        let requests = reports.iter().map(|report| report.tally.requests).sum();
        let cost = Cost::of(requests, &spent, generator);
        let first = number * sites.len();
        let kept = |place: usize| first + place >= round.discarded_bursts;
        let mut bursts: Vec<Burst> =
            reports.iter().enumerate().map(|(place, r)| Burst::of(r, kept(place))).collect();
        self.add_moves(&mut bursts)?;
        let mut rotation = Rotation { bursts, full_use_pct: None, used_nodes: Vec::new(), cost };
        self.add_use(&mut rotation, &reports)?;
        Ok(rotation)
    }

    fn add_moves(&self, bursts: &mut [Burst]) -> anyhow::Result<()> {
        if self.scheme != Scheme::Reconf {
            return Ok(());
        }
        let mut log = MoveLog::default();
        log.add(self.rig.moves()?);
        for burst in bursts {
            burst.add_moves(&log, &Scenario::site_name(burst.site));
        }
        Ok(())
    }

    /// Reads the stubs' windows, if the servers are stubs.
    fn add_use(&self, rotation: &mut Rotation, reports: &[BurstReport]) -> anyhow::Result<()> {
        if self.rig.options().servers != RigServers::OneStub {
            return Ok(());
        }
        let (Some(first), Some(last)) = (reports.first(), reports.last()) else { return Ok(()) };
        let end = window_of(last.end_ns) + 1;
        let record = self.rig.stub_record(window_of(first.start_ns))?;
        rotation.used_nodes = record.fully_used_nodes(window_of(first.start_ns), end);
        let kept = rotation.bursts.iter().position(|burst| burst.kept);
        rotation.full_use_pct = kept.map(|place| {
            let from = window_of(reports[place].start_ns);
            let usable = usize::from(self.scenario.usable);
            100.0 * record.share_of_full_use(usable, from, end)
        });
        Ok(())
    }
}
