//! Runs the four parts.

use super::measure::{Churn, Idle, Requests, Wave, followed, moves_of, per_node_per_hold_max};
use super::sampler::Sampler;
use crate::progress::Progress;
use crate::waits::Cost;
use anyhow::bail;
use load::clock::ThreadTime;
use load::generate::{Cancel, Generator, WaveReport};
use polder::rig::{CpuSnapshot, MoveLog, Part, Rig, RigOptions, RigServers, RigSite};
use std::time::{Duration, Instant};

/// Connections, and requests in flight.
const CONNECTIONS: usize = 64;
/// Nodes that each of the two sites starts with.
const NODES_EACH: u16 = 4;
/// Churn: the shortest hold there is, so that a load of two looks moves a node.
const CHURN_HOLD_MS: u32 = 1;
/// Churn: half periods that are tried; the one with the most moves a second is kept. Six nodes
/// follow at two looks for each, once the left site has finished what it had.
const CHURN_HALF_PERIODS_MS: [u64; 5] = [8, 11, 14, 17, 20];
/// Churn: half periods in each of these tries.
const CHURN_TRIED_HALVES: u64 = 24;
/// Churn: half periods between two questions for the moves. At most six nodes move in each, and an
/// edge remembers a thousand moves.
const CHURN_HALVES: u64 = 100;
/// Churn: what it gives up after; ten times what it should take.
const CHURN_PATIENCE: Duration = Duration::from_secs(400);
/// Waves: hold and look.
pub(crate) const WAVE_HOLD_MS: u32 = 200;
const WAVE_LOOK_MS: u32 = 20;
/// Without requests: how long the pool gets to come to rest first.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Between two looks at Ctrl-C while nothing happens.
const PAUSE: Duration = Duration::from_millis(50);
/// The idle pool is that of the demo: three sites, eight nodes.
const IDLE_NODES: [u16; 3] = [3, 3, 2];

/// How much of everything.
struct Amounts {
    moves: usize,
    square: Duration,
    slow_halves: u64,
    idle: Duration,
}

const FULL: Amounts = Amounts {
    moves: 10_000,
    square: Duration::from_secs(60),
    slow_halves: 30,
    idle: Duration::from_secs(30),
};
const QUICK: Amounts = Amounts {
    moves: 500,
    square: Duration::from_secs(10),
    slow_halves: 10,
    idle: Duration::from_secs(10),
};

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) churn: Churn,
    pub(crate) square: Wave,
    pub(crate) slow: Wave,
    pub(crate) idle: Idle,
}

impl Results {
    pub(crate) fn moves_per_node_per_hold_max(&self) -> usize {
        per_node_per_hold_max(&self.square.moves, u64::from(WAVE_HOLD_MS) * 1_000_000)
    }
}

/// Runs everything. Blocks for minutes.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let amounts = if quick { QUICK } else { FULL };
    let slow_half = Duration::from_millis(u64::from(WAVE_HOLD_MS) * 10);
    let slow_s = slow_half.as_secs_f64() * amounts.slow_halves as f64;
    let churn_s = amounts.moves as f64 / 200.0;
    let waves_s = amounts.square.as_secs_f64() + slow_s;
    let mut progress = Progress::new(churn_s + waves_s + amounts.idle.as_secs_f64());
    progress.say("moves as fast as they go");
    let churn = churn(amounts.moves, cancel)?;
    progress.did(churn_s);
    let mut pool = TwoSites::start("waves", cancel, |options| {
        (options.look_every_ms, options.hold_ms) = (Some(WAVE_LOOK_MS), Some(WAVE_HOLD_MS));
    })?;
    progress.say("a square wave of half the hold time");
    let half = Duration::from_millis(u64::from(WAVE_HOLD_MS) / 2);
    let halves = (amounts.square.as_secs_f64() / half.as_secs_f64()).round() as u64;
    let square = pool.wave(half, halves)?;
    progress.did(amounts.square.as_secs_f64());
    progress.say("the same wave at ten holds");
    let slow = pool.wave(slow_half, amounts.slow_halves)?;
    progress.did(slow_s);
    drop(pool);
    progress.say("an idle pool");
    let idle = idle(amounts.idle, cancel)?;
    Ok(Results { quick, churn, square, slow, idle })
}

/// A pool of two sites, and its generator.
struct TwoSites {
    generator: Generator,
    rig: Rig,
    cancel: Cancel,
}

fn site_name(index: usize) -> String {
    ["left", "right"].get(index).map_or_else(String::new, |&name| name.to_owned())
}

impl TwoSites {
    fn start(
        name: &str,
        cancel: &Cancel,
        change: impl FnOnce(&mut RigOptions),
    ) -> anyhow::Result<Self> {
        let sites = (0..2).map(|site| RigSite::new(site_name(site), NODES_EACH)).collect();
        let mut options = RigOptions::new(name, sites);
        options.cancel = cancel.clone();
        change(&mut options);
        let rig = Rig::start(&options)?;
        let mut load = rig.load();
        load.in_flight = CONNECTIONS;
        Ok(Self { generator: Generator::new(load)?, rig, cancel: cancel.clone() })
    }

    fn run(&mut self, half: Duration, halves: u64) -> anyhow::Result<WaveReport> {
        let report = self.generator.wave([0, 1], half, halves)?;
        if self.cancel.is_cancelled() {
            bail!("interrupted");
        }
        Ok(report)
    }

    fn wave(&mut self, half: Duration, halves: u64) -> anyhow::Result<Wave> {
        let before = self.rig.cpu();
        let report = self.run(half, halves)?;
        let spent = self.rig.cpu().since(&before);
        let (start_ns, end_ns) = (report.run.start_ns, report.run.end_ns);
        let mut log = MoveLog::default();
        log.add(self.rig.moves()?);
        let moves: Vec<_> = moves_of(&log)
            .into_iter()
            .filter(|one| (start_ns..=end_ns).contains(&one.decided_ns))
            .collect();
        let cost = Cost::of(report.run.total().requests, &spent, report.run.cpu);
        Ok(Wave {
            half_period_ms: u64::try_from(half.as_millis())?,
            followed: followed(&report.halves, end_ns, &moves, site_name),
            requests: Requests::of(&[report]),
            moves,
            start_ns,
            wait_pct: cost.wait_pct,
        })
    }
}

fn churn(wanted: usize, cancel: &Cancel) -> anyhow::Result<Churn> {
    let mut pool =
        TwoSites::start("churn", cancel, |options| options.hold_ms = Some(CHURN_HOLD_MS))?;
    let told = pool.rig.status()?.pool;
    let sampler = Sampler::start(pool.rig.control().to_owned())?;
    let (mut log, mut waves) = (MoveLog::default(), Vec::new());
    let before = pool.rig.cpu();
    let started = Instant::now();
    let (mut half, mut best) = (Duration::ZERO, 0.0);
    for tried in CHURN_HALF_PERIODS_MS.map(Duration::from_millis) {
        let known = log.len();
        waves.push(pool.run(tried, CHURN_TRIED_HALVES)?);
        log.add(pool.rig.moves()?);
        let rate = (log.len() - known) as f64 / tried.as_secs_f64();
        if rate > best {
            (half, best) = (tried, rate);
        }
    }
    if half.is_zero() {
        bail!("no node moved at all");
    }
    while log.len() < wanted && started.elapsed() < CHURN_PATIENCE {
        waves.push(pool.run(half, CHURN_HALVES)?);
        log.add(pool.rig.moves()?);
    }
    let spent = pool.rig.cpu().since(&before);
    let samples = sampler.finish();
    let moves_counted = pool.rig.status()?.edges.iter().map(|edge| edge.moves).sum();
    let requests = Requests::of(&waves);
    let generator = waves.iter().fold(ThreadTime::default(), |sum, wave| ThreadTime {
        run_ns: sum.run_ns + wave.run.cpu.run_ns,
        wait_ns: sum.wait_ns + wave.run.cpu.wait_ns,
    });
    Ok(Churn {
        look_every_ms: told.look_every_ms,
        hold_ms: told.hold_ms,
        half_period_ms: u64::try_from(half.as_millis())?,
        moves: moves_of(&log),
        moves_counted,
        cost: Cost::of(requests.sent, &spent, generator),
        requests,
        look_cpu_pct: samples.look_cpu_pct,
        look_every_ms_longest: samples.look_every_ms_longest,
    })
}

/// One edge and eight agents, all with the product's defaults, and no request.
fn idle(lasts: Duration, cancel: &Cancel) -> anyhow::Result<Idle> {
    let site = |(index, &nodes): (usize, &u16)| RigSite::new(format!("site{}", index + 1), nodes);
    let mut options = RigOptions::new("idle", IDLE_NODES.iter().enumerate().map(site).collect());
    (options.servers, options.threads) = (RigServers::Agents, None);
    options.cancel = cancel.clone();
    let rig = Rig::start(&options)?;
    rest(SETTLE, cancel)?;
    let before = rig.cpu();
    rest(lasts, cancel)?;
    let spent: CpuSnapshot = rig.cpu().since(&before);
    Ok(Idle {
        seconds: spent.seconds(),
        agents: spent.part(Part::Agent).processes,
        edges: spent.part(Part::Edge).processes,
        agents_cpu_pct: spent.core_pct(Part::Agent),
        edge_cpu_pct: spent.core_pct(Part::Edge),
    })
}

fn rest(lasts: Duration, cancel: &Cancel) -> anyhow::Result<()> {
    let until = Instant::now() + lasts;
    while Instant::now() < until {
        if cancel.is_cancelled() {
            bail!("interrupted");
        }
        std::thread::sleep(PAUSE.min(until.saturating_duration_since(Instant::now())));
    }
    Ok(())
}
