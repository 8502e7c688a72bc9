//! Starts all tiers before the same servers, and lets them take turns.

use super::measure::{Cell, Cells};
use super::plan::{NODES, Plan, Tier, node, plan, rate_per_second};
use crate::progress::Progress;
use crate::waits::Cost;
use anyhow::{Context as _, bail};
use load::generate::{Cancel, ConstantOptions, Generator, Spacing};
use polder::rig::{CpuSnapshot, Rig, RigOptions, RigServers, RigSite, StubAddresses};
use polder::settings::PolicyName;
use std::time::Duration;

/// Load of each tier before the first round.
const WARM_UP: Duration = Duration::from_millis(200);
/// No tier may fall so far behind that the generator sends less.
const OUTSTANDING_MAX: usize = 512;

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) plan: Plan,
    pub(crate) cells: Cells,
}

/// Runs everything. Blocks for a minute, or for some.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    measure_plan(quick, plan(quick), cancel)
}

/// Runs a plan.
pub(super) fn measure_plan(quick: bool, plan: Plan, cancel: &Cancel) -> anyhow::Result<Results> {
    let mut progress = Progress::new(plan.expected_s());
    progress.say("starting all edges");
    let mut runners: Vec<Runner> = Vec::new();
    for &tier in &plan.tiers {
        let servers = runners.first().and_then(|first| first.rigs.first());
        let servers = servers.map(|rig| rig.stub_addresses().clone());
        runners.push(Runner::start(tier, servers, cancel)?);
    }
    for runner in &mut runners {
        runner.load(0, WARM_UP)?;
    }
    let mut cells = Cells::default();
    for round in 0..plan.rounds {
        let count = runners.len();
        for step in 0..count {
            let runner = &mut runners[(round + step) % count];
            progress.say(&format!(
                "{}, round {} of {}",
                runner.tier.name(),
                round + 1,
                plan.rounds
            ));
            cells.0.push(runner.load(round, plan.cell)?);
            progress.did(plan.cell.as_secs_f64());
            if cancel.is_cancelled() {
                bail!("interrupted");
            }
        }
    }
    Ok(Results { quick, plan, cells })
}

/// One tier with its generator.
struct Runner {
    tier: Tier,
    generator: Generator,
    rigs: Vec<Rig>,
}

impl Runner {
    /// With servers of its own, or with those of another.
    fn start(tier: Tier, at: Option<StubAddresses>, cancel: &Cancel) -> anyhow::Result<Self> {
        let mut options = RigOptions::new("edges", vec![RigSite::new("site", NODES)]);
        (options.node, options.policy) = (node(), PolicyName::Rigid);
        options.cancel = cancel.clone();
        if let Some(at) = at {
            options.servers = RigServers::At(at);
        }
        let pools = if tier.shares { 1 } else { tier.edges };
        options.edges = if tier.shares { tier.edges } else { 1 };
        let rigs: Result<Vec<Rig>, _> = (0..pools).map(|_| Rig::start(&options)).collect();
        let rigs = rigs?;
        let mut load = rigs.first().context("a tier has an edge")?.load();
        load.edges = rigs.iter().flat_map(Rig::edges).collect();
        Ok(Self { tier, generator: Generator::new(load)?, rigs })
    }

    fn load(&mut self, round: usize, lasts: Duration) -> anyhow::Result<Cell> {
        let mut shape = ConstantOptions::new(rate_per_second(), lasts, 0);
        shape.outstanding_max = OUTSTANDING_MAX;
        shape.spacing = Spacing::Poisson { seed: round as u64 };
        let processes: Vec<_> = self.rigs.iter().flat_map(Rig::processes).copied().collect();
        let before = CpuSnapshot::of(&processes);
        let report = self.generator.constant(&shape)?;
        let spent = CpuSnapshot::of(&processes).since(&before);
        let cost = Cost::of(report.run.total().requests, &spent, report.run.cpu);
        Ok(Cell::of(self.tier, round, &report, cost))
    }
}
