//! The burst figure with real servers: Apache httpd on nodes that each have a fifth of a core, so
//! that what a node can serve follows from what a request costs.
//!
//! Scenario B, rigid beside reconf. At most [`B`]`.usable` nodes are busy at once, which leaves
//! half of a machine with two cores to the edge and the generator. An over-provisioned pool is
//! left out: its twenty nodes would be busy one site at a time too, but take 80 more servers.

mod nodes;
mod report;

use super::measure::{Cell, Measured};
use super::plan::{LONG, Round};
use super::run::Runner;
use super::scenario::{B, Scheme};
use crate::output::Output;
use crate::progress::Progress;
use anyhow::{Context as _, bail, ensure};
use lab::{ApacheOptions, ApacheProgram, Groups, Quota};
use load::generate::Cancel;
use nodes::NodeCapacity;
pub(crate) use nodes::Nodes;

/// The share of a core that a node has: the least that Linux gives in periods of 5 ms.
const NODE_CORES: f64 = 0.2;
/// CPU time that a request burns on top of what Apache takes for a static file (about 90 us):
/// together so much that five nodes serve what edge and generator carry with a third of a core.
const BURN_US: u32 = 70;
/// Processes of a server beyond what edges send it at once: for checks, and for a connection that
/// is just being closed.
const SPARE_WORKERS: u16 = 2;
/// What is asked for: 1 KiB, as in the paper.
const DOCUMENT: lab::Document = lab::DOCUMENTS[0];
/// Cores that the figure needs: the busy nodes take one of them.
const CORES_MIN: usize = 2;
/// What one node is expected to serve, for the progress bar only; requests per second.
const EXPECTED_PER_S: f64 = 1_200.0;

/// The schemes, in the order of their turns.
const SCHEMES: [Scheme; 2] = [Scheme::Rigid, Scheme::Reconf];

/// Everything that was measured.
struct Results {
    quick: bool,
    quota: Quota,
    groups: lab::Version,
    /// What each node served alone: a list for each scheme.
    capacities: Vec<(Scheme, Vec<NodeCapacity>)>,
    /// CPU time of Apache for each rotation.
    uses: Vec<Use>,
    measured: Measured,
    look_and_hold_ms: (u32, u32),
}

/// What the nodes of one pool used in a rotation.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Use {
    #[serde(skip)]
    scheme: Scheme,
    requests_per_burst: u64,
    /// CPU time of Apache; microseconds per request.
    apache_us: f64,
    /// Of the quotas of all usable nodes.
    used_pct: f64,
}

/// Measures and prints.
pub(super) fn run(output: &Output, cancel: &Cancel) -> anyhow::Result<()> {
    let results = measure(output.quick, cancel)?;
    let text = report::text(&results);
    output.finish(&text, &report::raw(&results), &report::summary(&results))
}

/// The quick form is three bursts of 16K for each scheme, the first discarded; the full form four
/// rotations of three lengths, the first of each discarded.
fn rounds(quick: bool) -> Vec<Round> {
    if quick {
        let (rotations, sites) = (1, 3);
        return vec![Round { requests: LONG, rotations, sites, discarded_bursts: 1 }];
    }
    let (rotations, sites) = (4, B.sites());
    let round = |requests| Round { requests, rotations, sites, discarded_bursts: sites };
    [1_024, 4_096, LONG].map(round).to_vec()
}

fn expected_s(scheme: Scheme, round: &Round) -> f64 {
    let nodes = if scheme == Scheme::Reconf { B.usable } else { B.nodes[0] };
    round.sites as f64 * round.requests as f64 / (f64::from(nodes) * EXPECTED_PER_S)
}

fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let cores = std::thread::available_parallelism()?.get();
    ensure!(cores >= CORES_MIN, "the figure needs {CORES_MIN} cores, and here is {cores}");
    let rounds = rounds(quick);
    let each = |round: &Round| -> f64 {
        SCHEMES.iter().map(|&scheme| expected_s(scheme, round)).sum::<f64>()
            * round.rotations as f64
    };
    let mut progress = Progress::new(rounds.iter().map(each).sum());
    let program = ApacheProgram::find().context("real servers")?;
    let mut groups = Groups::make().context("nodes of a fifth of a core")?;
    let quota = Quota::of_core(NODE_CORES)?;
    let mut pools = Vec::new();
    let mut capacities = Vec::new();
    for scheme in SCHEMES {
        progress.say(&format!("starting {} with Apache", scheme.name()));
        let pool = Pool::start(scheme, &program, &mut groups, quota, cancel)?;
        progress.say(&format!("measuring each node of {}", scheme.name()));
        capacities.push((scheme, pool.nodes.capacities(DOCUMENT.path)?));
        pools.push(pool);
    }
    let told = pools[0].runner.look_and_hold_ms()?;
    ensure!(pools[1].runner.look_and_hold_ms()? == told, "the pools look and hold differently");
    let mut cells = Vec::new();
    let mut uses = Vec::new();
    for round in &rounds {
        let mut new = SCHEMES.map(|scheme| Cell::new(scheme, round));
        for number in 0..round.rotations {
            for (pool, cell) in pools.iter_mut().zip(&mut new) {
                progress.say(&format!("bursts of {}, {}", round.requests, pool.scheme.name()));
                uses.push(pool.rotate(round, number, cell)?);
                progress.did(expected_s(pool.scheme, round));
                if cancel.is_cancelled() {
                    bail!("interrupted");
                }
            }
        }
        cells.extend(new);
    }
    let measured = Measured { scenario: B, cells };
    let groups = groups.version();
    Ok(Results { quick, quota, groups, capacities, uses, measured, look_and_hold_ms: told })
}

/// One pool with its generator and its nodes.
struct Pool {
    scheme: Scheme,
    // The servers end before the folder and the groups that they need.
    runner: Runner,
    nodes: Nodes,
}

impl Pool {
    fn start(
        scheme: Scheme,
        program: &ApacheProgram,
        groups: &mut Groups,
        quota: Quota,
        cancel: &Cancel,
    ) -> anyhow::Result<Self> {
        let mut options = B.rig(scheme);
        options.cancel = cancel.clone();
        let at_once = u16::try_from(options.node.max_in_flight)?;
        let workers = at_once + SPARE_WORKERS;
        let apache = ApacheOptions { workers, burn_us: BURN_US, ..ApacheOptions::default() };
        let nodes = Nodes::make(scheme.name(), options.nodes(), program, &apache, groups, quota)?;
        options.servers = nodes.servers(groups);
        let runner = Runner::with(&B, scheme, &options, DOCUMENT.path)?;
        Ok(Self { scheme, runner, nodes })
    }

    fn rotate(&mut self, round: &Round, number: usize, cell: &mut Cell) -> anyhow::Result<Use> {
        let before_ns = self.nodes.cpu_ns();
        let rotation = self.runner.rotate(round, number)?;
        let spent_ns = self.nodes.cpu_ns().saturating_sub(before_ns) as f64;
        let requests: u64 = rotation.bursts.iter().map(|burst| burst.ok + burst.failed).sum();
        let busy_ns: u64 = rotation.bursts.iter().map(|burst| burst.end_ns - burst.start_ns).sum();
        let quota_ns = busy_ns as f64 * f64::from(B.usable) * self.nodes.quota().cores();
        cell.rotations.push(rotation);
        Ok(Use {
            scheme: self.scheme,
            requests_per_burst: round.requests,
            apache_us: spent_ns / 1e3 / requests.max(1) as f64,
            used_pct: 100.0 * spent_ns / quota_ns.max(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_keep_bursts_and_the_quick_one_fits_its_time() {
        for quick in [true, false] {
            for round in rounds(quick) {
                assert!(round.discarded_bursts < round.rotations * round.sites);
                assert!(round.sites <= B.sites());
            }
        }
        let [round] = rounds(true)[..] else { panic!("one length") };
        let seconds: f64 = SCHEMES.iter().map(|&scheme| expected_s(scheme, &round)).sum();
        assert!((20.0..38.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn busy_nodes_leave_half_of_two_cores() {
        let busy_cores = f64::from(B.usable) * NODE_CORES;
        assert!(busy_cores <= 0.5 * CORES_MIN as f64, "{busy_cores}");
        Quota::of_core(NODE_CORES).unwrap();
    }
}
