//! Fills an edge with idle connections.

use super::clients::{Asked, CLIENTS_PROCESS};
use crate::children::Helper;
use crate::cores::Cores;
use crate::progress::Progress;
use crate::proxy::origin::ORIGIN_PROCESS;
use anyhow::{Context as _, bail};
use load::generate::Cancel;
use polder::rig::{Part, Rig, RigOptions, RigServers, RigSite, StubAddresses};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

/// Connections that are wanted.
const WANTED: u64 = 50_000;
/// Connections of the least form.
const LEAST: u64 = 400;
/// Of the limit on descriptors, so many at the most; percent.
const OF_LIMIT_PCT: u64 = 90;
/// Connections, and requests, before the first look: what an edge needs once is there then.
const WARM_UP: usize = 256;
/// From the last request to a look at the memory.
const SETTLE: Duration = Duration::from_millis(500);
const SITE: &str = "idle";

/// Memory of a process; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// In memory at all.
    pub(crate) rss: u64,
    /// The same, but what is shared counts in part.
    pub(crate) pss: u64,
}

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    /// The limit on descriptors of a process that may not be raised.
    pub(crate) descriptors_max: Option<u64>,
    pub(crate) opened: Asked,
    pub(crate) again: Asked,
    pub(crate) before: Memory,
    pub(crate) idle: Memory,
    pub(crate) after_again: Memory,
    pub(crate) after_close: Memory,
}

/// Runs everything. Blocks for some seconds, with 50,000 connections for half a minute.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    let descriptors_max = getrlimit(Resource::Nofile).maximum;
    let allowed = descriptors_max.map_or(WANTED, |most| most * OF_LIMIT_PCT / 100);
    measure_with(quick, WANTED.min(allowed), descriptors_max, cancel)
}

/// A few connections, for tests.
pub(super) fn measure_least(cancel: &Cancel) -> anyhow::Result<Results> {
    measure_with(true, LEAST, getrlimit(Resource::Nofile).maximum, cancel)
}

fn measure_with(
    quick: bool,
    connections: u64,
    descriptors_max: Option<u64>,
    cancel: &Cancel,
) -> anyhow::Result<Results> {
    let mut progress = Progress::new(4.0);
    progress.say("starting a pool");
    let core = Cores::find()?.others;
    let mut origin = Helper::start(core, ORIGIN_PROCESS, &[])?;
    let rig = pool(origin.hear()?, connections, cancel)?;
    let edge = rig.processes().iter().find(|(part, _)| *part == Part::Edge);
    let edge = edge.context("a pool has an edge")?.1;
    let site = RigSite::new(SITE, 1).host();
    let address = *rig.edges().first().context("a pool has an edge")?;
    let mut clients = Helper::start(core, CLIENTS_PROCESS, &[address.to_string(), site])?;
    let _ready: Asked = clients.hear()?;
    let mut look = |clients: &mut Helper, command: &str| -> anyhow::Result<(Asked, Memory)> {
        progress.say(command);
        let asked = clients.ask(command)?;
        sleep(SETTLE);
        progress.did(1.0);
        if cancel.is_cancelled() {
            bail!("interrupted");
        }
        Ok((asked, Memory::of(edge)?))
    };
    look(&mut clients, &format!("open {WARM_UP}"))?;
    let (_, before) = look(&mut clients, "close")?;
    let (opened, idle) = look(&mut clients, &format!("open {connections}"))?;
    let (again, after_again) = look(&mut clients, "again")?;
    let (_, after_close) = look(&mut clients, "close")?;
    Ok(Results { quick, descriptors_max, opened, again, before, idle, after_again, after_close })
}

fn pool(origin: SocketAddr, connections: u64, cancel: &Cancel) -> anyhow::Result<Rig> {
    let mut options = RigOptions::new("idle", vec![RigSite::new(SITE, 1)]);
    let mut servers = StubAddresses::default();
    servers.add(&RigOptions::node_name(0), SITE, origin);
    options.servers = RigServers::At(servers);
    options.cancel = cancel.clone();
    // With room for those that are being closed.
    options.overrides.push(format!("http.connections_max={}", connections + 1_000));
    Ok(Rig::start(&options)?)
}

impl Memory {
    fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let field = |name: &str| kib(&text, name).with_context(|| format!("{path} has no {name}"));
        Ok(Self { rss: field("Rss:")? * 1_024, pss: field("Pss:")? * 1_024 })
    }
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

impl Results {
    /// What each connection added, by the larger of both measures; bytes.
    pub(crate) fn bytes_per_connection(&self) -> Option<f64> {
        per_connection(self.before, self.idle, self.opened.open)
    }

    /// The same after a second request on each.
    pub(crate) fn bytes_after_again(&self) -> Option<f64> {
        per_connection(self.before, self.after_again, self.again.open)
    }
}

fn per_connection(before: Memory, after: Memory, connections: usize) -> Option<f64> {
    let rss = after.rss.saturating_sub(before.rss);
    let pss = after.pss.saturating_sub(before.pss);
    (connections > 0).then(|| rss.max(pss) as f64 / connections as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_and_shared_among_connections() {
        let own = Memory::of(std::process::id()).unwrap();
        assert!(own.rss > 100_000 && own.pss > 0 && own.pss <= own.rss, "{own:?}");
        assert!(Memory::of(u32::MAX).is_err());
        let before = Memory { rss: 1_000, pss: 900 };
        let after = Memory { rss: 3_000, pss: 3_100 };
        assert_eq!(per_connection(before, after, 2), Some(1_100.0));
        assert_eq!(per_connection(after, before, 2), Some(0.0));
        assert_eq!(per_connection(before, after, 0), None);
    }
}
