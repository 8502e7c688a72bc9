//! Whether a pool starts, serves, moves and stops here. Tells which processes it started before it
//! loads them, so that a test can interrupt it and look for them afterwards.

use crate::burst::Nodes;
use crate::cli::{Apps, SmokeArguments};
use anyhow::bail;
use lab::{ApacheOptions, ApacheProgram, Groups, Quota};
use load::generate::{Cancel, Generator};
use polder::rig::{NodeHistory, Rig, RigOptions, RigSite};
use serde_json::json;
use std::time::Duration;

/// Each site is loaded for so long before the other one is.
const HALF_PERIOD: Duration = Duration::from_millis(100);

/// How often moves are fetched: an edge keeps a thousand, and makes at most one in a look.
const FETCH_EVERY: Duration = Duration::from_millis(200);

/// What is asked for; stubs answer to every path.
const DOCUMENT: lab::Document = lab::DOCUMENTS[0];
/// Enough of a core that starting does not take long.
const NODE_CORES: f64 = 0.4;

/// Gives the rig servers by Apache, with a limit for each node.
fn apache(options: &mut RigOptions) -> anyhow::Result<(Nodes, Groups)> {
    let program = ApacheProgram::find()?;
    let mut groups = Groups::make()?;
    let apache = ApacheOptions { workers: 20, ..ApacheOptions::default() };
    let quota = Quota::of_core(NODE_CORES)?;
    let nodes = Nodes::make("smoke", options.nodes(), &program, &apache, &mut groups, quota)?;
    options.servers = nodes.servers(&groups);
    Ok((nodes, groups))
}

/// Runs two sites on four nodes.
pub(crate) fn run(arguments: SmokeArguments, cancel: &Cancel) -> anyhow::Result<()> {
    let sites = vec![RigSite::new("left", 2), RigSite::new("right", 2)];
    let mut options = RigOptions::new("smoke", sites);
    options.edges = 2;
    options.cancel = cancel.clone();
    // Outlives the rig.
    let _apache = match arguments.apps {
        Apps::Stub => None,
        Apps::Apache => Some(apache(&mut options)?),
    };
    let rig = Rig::start(&options)?;
    let processes: Vec<u32> = rig.processes().iter().map(|&(_, process)| process).collect();
    let folder = rig.control().parent().and_then(|run| run.parent());
    println!("{}", json!({ "processes": processes, "folder": folder }));
    let halves = u64::from(arguments.seconds) * 10;
    let mut load = rig.load();
    DOCUMENT.path.clone_into(&mut load.path);
    let (before, watcher) = (rig.status()?, rig.watch_moves(FETCH_EVERY)?);
    let wave = Generator::new(load)?.wave([0, 1], HALF_PERIOD, halves)?;
    if cancel.is_cancelled() {
        bail!("interrupted");
    }
    let total = wave.run.total();
    let after = rig.status()?;
    let history = NodeHistory::replay(&before, &watcher.finish()?, &after)?;
    let below_hard = |site: &RigSite| history.below(&site.name, site.hard.into(), (0, u64::MAX));
    let below_hard: Vec<_> = options.sites.iter().map(below_hard).collect();
    println!(
        "{}",
        json!({
            "requests": total.requests,
            "failed_requests": total.failures.total(),
            "adds_up": total.adds_up(),
            "moves": history.moves(),
            "below_hard_ns": below_hard.iter().map(|below| below.certain_ns).sum::<u64>(),
            "fewest_nodes": below_hard.iter().map(|below| below.fewest).min(),
            "edges": rig.edges().len(),
        })
    );
    Ok(())
}
