//! Starts both caches, and lets them race side by side.

use super::measure::{Race, Races};
use super::origin::{Pages, serve};
use super::plan::{AT_ONCE, Dialect, Plan, plan};
use super::race::Contender;
use crate::cores::Cores;
use crate::progress::Progress;
use crate::tools::version;
use crate::varnish::{Varnish, need_module};
use anyhow::{Context as _, bail};
use load::generate::Cancel;
use polder::rig::{Rig, RigOptions, RigServers, RigSite, StubAddresses};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

const SITE: &str = "race";
/// Edges of the pool; races take turns at them.
const EDGES: u8 = 2;
/// More than there are races at a time.
const MAX_IN_FLIGHT: u32 = 64;
/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// The version table is small: two tags on one word would void too much, never too little.
const SETTINGS: [&str; 2] =
    ["sites.race.tags=65536", "sites.race.cache={ mode = \"strict\", source = \"linearizable\" }"];

/// What Varnish does when it is told, as its documentation shows it. `{origin}` is filled in.
pub(super) const VCL: &str = r#"vcl 4.1;
import xkey;
backend origin { .host = "{host}"; .port = "{port}"; }
sub vcl_recv {
    if (req.method == "PURGE") {
        return (purge);
    }
    if (req.method == "XKEY") {
        set req.http.gone = xkey.purge(req.http.xkey);
        return (synth(200, "Purged " + req.http.gone));
    }
    if (req.method == "BAN") {
        ban("obj.http.xkey == " + req.http.xkey);
        return (synth(200, "Banned"));
    }
}
"#;

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) plan: Plan,
    pub(crate) ours: Races,
    pub(crate) varnish: Races,
    pub(crate) version: String,
}

/// Runs everything. Blocks for seconds, or for some minutes.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    measure_plan(quick, plan(quick), cancel)
}

/// Runs a plan.
pub(super) fn measure_plan(quick: bool, plan: Plan, cancel: &Cancel) -> anyhow::Result<Results> {
    let mut progress = Progress::new(plan.expected_s());
    progress.say("starting Varnish and a pool");
    need_module("xkey")?;
    let folder = tempfile::Builder::new().prefix("polder-fillrace-").tempdir()?;
    let pages = Pages::default();
    let origin = serve(pages.clone())?;
    let varnish = Varnish::start(Cores::find()?.others, &vcl(origin), &[], folder.path())?;
    let rig = pool(origin, cancel)?;
    let socket = rig.control().with_file_name(format!("tell-{SITE}.sock"));
    let (edges, host) = (rig.edges(), RigSite::new(SITE, 1).host());
    let ours = |race: usize| {
        let (edge, host) = (edges[race % edges.len()], host.clone());
        Contender::Ours { edge, host, writers: PathBuf::clone(&socket) }
    };
    let theirs = |race: usize| {
        let (address, dialect) = (varnish.address(), Dialect::of_race(race));
        Contender::Varnish { address, dialect }
    };
    let done = AtomicUsize::new(0);
    let (ours, theirs) = scope(|scope| {
        let ours = scope.spawn(|| races(plan.races, &pages, &ours, &done, cancel));
        let theirs = scope.spawn(|| races(plan.races, &pages, &theirs, &done, cancel));
        while !(ours.is_finished() && theirs.is_finished()) {
            let now_done = done.swap(0, Ordering::Relaxed);
            if now_done > 0 {
                progress.did(now_done as f64 / (2 * plan.races) as f64 * plan.expected_s());
                progress.say("racing");
            }
            sleep(PROGRESS_EVERY);
        }
        (ours.join(), theirs.join())
    });
    let found = |races: std::thread::Result<anyhow::Result<Races>>| match races {
        Ok(races) => races,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let (ours, varnish) = (found(ours)?, found(theirs)?);
    Ok(Results { quick, plan, ours, varnish, version: version("varnishd") })
}

/// So many races of one cache, [`AT_ONCE`] at a time.
fn races(
    count: usize,
    pages: &Pages,
    contender: &(impl Fn(usize) -> Contender + Sync),
    done: &AtomicUsize,
    cancel: &Cancel,
) -> anyhow::Result<Races> {
    let next = AtomicUsize::new(0);
    let drive = || {
        let mut mine = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(mine);
            }
            if cancel.is_cancelled() {
                bail!("interrupted");
            }
            mine.push(contender(number).race(pages, number)?);
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let drivers: Vec<anyhow::Result<Vec<Race>>> = scope(|scope| {
        let drivers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(drive)).collect();
        let joined = drivers.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined.map(|races| races.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let races: anyhow::Result<Vec<Vec<Race>>> = drivers.into_iter().collect();
    Ok(Races(races?.into_iter().flatten().collect()))
}

pub(super) fn vcl(origin: SocketAddr) -> String {
    let (host, port) = (origin.ip().to_string(), origin.port().to_string());
    VCL.replace("{host}", &host).replace("{port}", &port)
}

fn pool(origin: SocketAddr, cancel: &Cancel) -> anyhow::Result<Rig> {
    let mut options = RigOptions::new("fillrace", vec![RigSite::new(SITE, 1)]);
    options.edges = EDGES;
    options.node.max_in_flight = MAX_IN_FLIGHT;
    let mut servers = StubAddresses::default();
    servers.add(&RigOptions::node_name(0), SITE, origin);
    options.servers = RigServers::At(servers);
    options.overrides = SETTINGS.map(str::to_owned).to_vec();
    options.cancel = cancel.clone();
    Rig::start(&options).context("the pool")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varnish::check;

    #[test]
    fn varnish_understands_its_program() {
        let text = vcl("127.0.0.1:8080".parse().unwrap());
        assert!(!text.contains('{') || text.contains(".port = \"8080\""), "{text}");
        let checked = need_module("xkey").and_then(|()| check(&text));
        match checked {
            Err(error) if error.to_string().contains("is missing; it is in") => {
                println!("skipped: {error}");
            }
            checked => checked.unwrap(),
        }
    }
}
