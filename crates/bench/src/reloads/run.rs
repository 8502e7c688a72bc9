//! Runs the pool, the load, and the changes.

use crate::progress::Progress;
use anyhow::{Context as _, bail};
use load::generate::{Cancel, Generator, GeneratorOptions, Tally};
use polder::control::{AskError, ReloadArguments, Request, Response, UpgradeArguments, ask};
use polder::rig::{Rig, RigOptions, RigServers, RigSite};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

/// Connections, each with one request at a time.
const CONNECTIONS: usize = 64;
/// Edges, of one thread each.
const EDGES: u8 = 2;
/// Nodes, each with an agent and its servers in processes of their own.
const NODES: u16 = 4;
/// Load before the first change and after the last one.
const AROUND: Duration = Duration::from_secs(1);
/// One run of the generator; between two it looks whether the changes are done.
const SLICE: Duration = Duration::from_millis(500);
/// What one change may take, far above what it does.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at an upgrade.
const POLL: Duration = Duration::from_millis(20);
/// What a reload and an upgrade take about, for the progress.
const RELOAD_S: f64 = 0.05;
const UPGRADE_S: f64 = 2.0;

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) requests: Tally,
    pub(crate) seconds: f64,
    pub(crate) connections: u64,
    pub(crate) reload_ms: Vec<f64>,
    pub(crate) upgrade_ms: Vec<f64>,
    /// What was told of changes that failed.
    pub(crate) failed_changes: Vec<String>,
}

/// Runs everything. Blocks for a minute or two.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let (reloads, upgrades) = if quick { (100, 2) } else { (1_000, 20) };
    let mut options = RigOptions::new("reloads", vec![RigSite::new("red", NODES)]);
    (options.edges, options.servers) = (EDGES, RigServers::Agents);
    options.cancel = cancel.clone();
    let rig = Rig::start(&options)?;
    let mut load = rig.load();
    load.in_flight = CONNECTIONS;
    let mut progress =
        Progress::new(f64::from(reloads) * RELOAD_S + f64::from(upgrades) * UPGRADE_S);
    let done = AtomicBool::new(false);
    scope(|threads| {
        let loading = threads.spawn(|| keep_loading(load, &done));
        let changed = change(&rig, (reloads, upgrades), &mut progress, cancel);
        done.store(true, Ordering::Relaxed);
        let loaded = loading.join().map_err(|_| anyhow::anyhow!("the generator panicked"))??;
        let (reload_ms, upgrade_ms, failed_changes) = changed?;
        let (requests, seconds, connections) = loaded;
        Ok(Results { requests, seconds, connections, reload_ms, upgrade_ms, failed_changes })
    })
}

fn keep_loading(options: GeneratorOptions, done: &AtomicBool) -> anyhow::Result<(Tally, f64, u64)> {
    let mut generator = Generator::new(options)?;
    let (mut requests, mut seconds, mut connections) = (Tally::default(), 0.0, 0);
    // Bounded by the changes, each of which has its time.
    while !done.load(Ordering::Relaxed) {
        let report = generator.closed(0, SLICE)?;
        requests.merge(&report.total());
        seconds += report.seconds();
        connections += report.connections.made;
    }
    Ok((requests, seconds, connections))
}

type Changed = (Vec<f64>, Vec<f64>, Vec<String>);

fn change(
    rig: &Rig,
    (reloads, upgrades): (u32, u32),
    progress: &mut Progress,
    cancel: &Cancel,
) -> anyhow::Result<Changed> {
    let text = std::fs::read_to_string(rig.settings()).context("the rig's settings")?;
    let (mut reload_ms, mut upgrade_ms, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    sleep(AROUND);
    for number in 0..reloads {
        if cancel.is_cancelled() {
            bail!("interrupted");
        }
        progress.say("reloads under 64 connections");
        std::fs::write(rig.settings(), changed(&text, number)).context("the rig's settings")?;
        let started = Instant::now();
        match ask(rig.control(), &Request::Reload(ReloadArguments::default()), PATIENCE) {
            Ok(Response::Done(_)) => reload_ms.push(started.elapsed().as_secs_f64() * 1e3),
            Ok(other) => bail!("a reload was answered by {other:?}"),
            Err(error) => failed.push(error.to_string()),
        }
        progress.did(RELOAD_S);
    }
    for _ in 0..upgrades {
        if cancel.is_cancelled() {
            bail!("interrupted");
        }
        progress.say("upgrades under 64 connections");
        let started = Instant::now();
        match upgrade(rig)? {
            None => upgrade_ms.push(started.elapsed().as_secs_f64() * 1e3),
            Some(why) => failed.push(why),
        }
        progress.did(UPGRADE_S);
    }
    sleep(AROUND);
    Ok((reload_ms, upgrade_ms, failed))
}

/// Other numbers in tables of the edges, the sites and the decisions.
fn changed(text: &str, number: u32) -> String {
    let (retries, hold_ms, queue_max) = (1 + number % 3, 2 + number % 7, 10_000 + number % 11);
    text.replace("\n[http]\n", &format!("\n[http]\nretries_max = {retries}\n"))
        .replace("[pool]\n", &format!("[pool]\nhold_ms = {hold_ms}\n"))
        .replace("queue_max = 10000\n", &format!("queue_max = {queue_max}\n"))
}

/// Replaces the program by itself; why it failed, if it did.
fn upgrade(rig: &Rig) -> anyhow::Result<Option<String>> {
    let before = rig.status()?.pool.upgrades;
    match ask(rig.control(), &Request::Upgrade(UpgradeArguments::default()), PATIENCE) {
        // The old program ends without another word.
        Err(AskError::Broken { .. }) => {}
        Err(error) => return Ok(Some(error.to_string())),
        Ok(other) => bail!("an upgrade was answered by {other:?}"),
    }
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        sleep(POLL);
        let Ok(report) = rig.status() else { continue };
        let change = report.pool.change.filter(|_| report.pool.upgrades != before);
        match change.and_then(|change| Some((change.succeeded?, change.text))) {
            Some((true, _)) => return Ok(None),
            Some((false, why)) => return Ok(Some(why)),
            None => {}
        }
    }
    Ok(Some(format!("an upgrade is not done within {PATIENCE:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reload_has_something_to_change() {
        let text = "[pool]\nname = \"x\"\n\n[http]\nupstream_idle_ms = 1\nqueue_max = 10000\n";
        let first = changed(text, 0);
        assert!(first.contains("hold_ms = 2\n") && first.contains("retries_max = 1\n"));
        assert!((1..50).all(|number| changed(text, number) != changed(text, number - 1)));
    }
}
