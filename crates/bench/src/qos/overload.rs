//! Two equal sites that both ask for more than there is: neither can be helped, so nothing moves
//! for long.

use super::pools::{HARD, HIGH, LOW, NODES, SITES, SOFT, WORKERS};
use super::streams::{Shape, Stream};
use super::traces::FETCH_EVERY;
use load::clock::now_ns;
use load::generate::Cancel;
use polder::rig::{Rig, RigNode, RigOptions, RigSite};
use polder::settings::PolicyName;
use serde::Serialize;
use std::thread::sleep;
use std::time::Duration;

/// Slow nodes: load without end at little cost, 200 requests/s each.
const SERVICE_TIME: Duration = Duration::from_millis(20);
/// Within this, pools may settle.
const SETTLE: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody wants to stop.
const POLL: Duration = Duration::from_millis(50);

/// What one policy did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Overload {
    pub(crate) policy: &'static str,
    pub(crate) seconds: f64,
    pub(crate) moves: usize,
    /// Of those, later than [`SETTLE`] after both sites were loaded.
    pub(crate) moves_after_first_second: usize,
    pub(crate) failed: u64,
}

fn options(policy: PolicyName) -> RigOptions {
    let site = |name: &str| {
        let site = RigSite::new(name, NODES / 2);
        if policy == PolicyName::ReconfPq { site.with_guarantee(HARD, SOFT) } else { site }
    };
    let mut options = RigOptions::new(policy.name(), SITES.map(site).to_vec());
    let (workers, max_in_flight) = (WORKERS, 2 * WORKERS);
    options.node =
        RigNode { workers, service_time: SERVICE_TIME, max_in_flight, ..RigNode::default() };
    options.policy = policy;
    options
}

/// Loads pools of all these policies at the same time. Blocks for `lasts`.
pub(crate) fn measure(
    policies: &[PolicyName],
    lasts: Duration,
    cancel: &Cancel,
) -> anyhow::Result<Vec<Overload>> {
    let mut rigs = Vec::new();
    for &policy in policies {
        let mut options = options(policy);
        options.cancel = cancel.clone();
        let rig = Rig::start(&options)?;
        let watcher = rig.watch_moves(FETCH_EVERY)?;
        rigs.push((policy, watcher, rig));
    }
    let start_ns = now_ns();
    let both =
        |rig: &Rig| [HIGH, LOW].map(|site| Stream::start(rig.load(), site, Shape::Throughout));
    let streams: Vec<[Stream; 2]> = rigs.iter().map(|(.., rig)| both(rig)).collect();
    let ends_ns = start_ns + load::clock::duration_ns(lasts);
    while now_ns() < ends_ns && !cancel.is_cancelled() {
        sleep(POLL);
    }
    streams.iter().flatten().for_each(Stream::stop);
    let mut measured = Vec::new();
    for ((policy, watcher, _rig), streams) in rigs.into_iter().zip(streams) {
        let log = watcher.finish()?;
        let settled_ns = start_ns + load::clock::duration_ns(SETTLE);
        let mut failed = 0;
        for stream in streams {
            failed += stream.finish()?.tally.failures.total();
        }
        measured.push(Overload {
            policy: policy.name(),
            seconds: lasts.as_secs_f64(),
            moves: log.decided_within(start_ns, ends_ns).count(),
            moves_after_first_second: log.decided_within(settled_ns, ends_ns).count(),
            failed,
        });
    }
    if cancel.is_cancelled() {
        anyhow::bail!("interrupted");
    }
    Ok(measured)
}
