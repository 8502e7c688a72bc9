//! Starts everybody, and lets them take turns.

use super::measure::{Cell, Cells};
use super::origin::ORIGIN_PROCESS;
use super::peers::{Certificate, Peer, certificate};
use super::plan::{
    BROWSER_LINES, CONNECTIONS, FIXED_CONNECTIONS, FIXED_SHARE, HTTP2_SHAPE, Kind, Plan, Proxy,
    order, plan,
};
use crate::children::Helper;
use crate::cores::{Cores, ProcessTime, pin_process};
use crate::progress::Progress;
use crate::tools::{Counted, Front, H2load, Load, cipher, h2load, version, wrk};
use anyhow::{Context as _, bail};
use load::clock::now_ns;
use load::generate::Cancel;
use polder::rig::{Part, Rig, RigFront, RigOptions, RigServers, RigSite, StubAddresses};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// The one site; its host is `front.test`.
const SITE: &str = "front";
/// More than there are connections: nothing waits in Polder, as nothing does in its peers.
const MAX_IN_FLIGHT: u32 = 1_024;
/// Load of each before the first round.
const WARM_UP: Duration = Duration::from_millis(200);
/// What a figure's processes leave in files is kept in memory where the system has such a folder.
const MEMORY_FOLDER: &str = "/dev/shm";

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) plan: Plan,
    pub(crate) cells: Cells,
    /// Requests per second of the fixed rate.
    pub(crate) fixed_rate: Option<u32>,
    /// What each proxy agreed on with an OpenSSL client.
    pub(crate) ciphers: Vec<(Proxy, String)>,
    pub(crate) versions: Vec<String>,
}

/// Runs everything. Blocks for a minute, or for some.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    measure_plan(quick, plan(quick), cancel)
}

/// Runs a plan.
pub(super) fn measure_plan(quick: bool, plan: Plan, cancel: &Cancel) -> anyhow::Result<Results> {
    let mut progress = Progress::new(plan.expected_s());
    progress.say("starting nginx, HAProxy and the pools");
    let versions = ["nginx", "haproxy", "wrk", "h2load"].map(version).to_vec();
    let stage = Stage::start(&plan.fronts(), cancel)?;
    let ciphers = stage.ciphers(&plan)?;
    let fixed_rate = stage.warm_up(&plan)?;
    let mut cells = Cells::default();
    for round in 0..plan.rounds {
        for row in &plan.rows {
            for proxy in order(row.proxies, round) {
                progress.say(&format!("{}, {}", row.kind.title(), proxy.name()));
                cells.0.push(stage.cell(row.kind, proxy, round, plan.cell_s, fixed_rate)?);
                progress.did(f64::from(plan.cell_s));
                if cancel.is_cancelled() {
                    bail!("interrupted");
                }
            }
        }
    }
    let fixed_rate = fixed_rate.map(|rate| rate * FIXED_CONNECTIONS);
    Ok(Results { quick, plan, cells, fixed_rate, ciphers, versions })
}

/// Where load goes, and whose time it costs.
#[derive(Clone, Copy)]
struct Target {
    address: SocketAddr,
    process: u32,
}

/// Everybody, ready.
struct Stage {
    cores: Cores,
    host: String,
    browser_lines: Vec<String>,
    pools: Vec<(Front, Rig)>,
    peers: Vec<(Proxy, Peer)>,
    _origin: Helper,
    folder: TempDir,
}

impl Stage {
    fn start(fronts: &[Front], cancel: &Cancel) -> anyhow::Result<Self> {
        let cores = Cores::find()?;
        let places = [PathBuf::from(MEMORY_FOLDER), std::env::temp_dir()];
        let place = places.iter().find(|place| place.is_dir()).context("no temporary folder")?;
        let folder = tempfile::Builder::new().prefix("polder-proxy-").tempdir_in(place)?;
        let site = RigSite::new(SITE, 1);
        let pem = certificate(folder.path(), &site.host())?;
        let mut origin = Helper::start(cores.others, ORIGIN_PROCESS, &[])?;
        let address: SocketAddr = origin.hear()?;
        let mut peers = Vec::new();
        for proxy in [Proxy::Nginx, Proxy::Haproxy] {
            let peer = Peer::start(proxy, cores.measured, address, &pem, folder.path())?;
            peers.push((proxy, peer));
        }
        let mut pools = Vec::new();
        for &front in fronts {
            pools.push((front, pool(front, address, &pem, &cores, cancel)?));
        }
        let host = site.host();
        let browser_lines = BROWSER_LINES.map(str::to_owned).to_vec();
        Ok(Self { cores, host, browser_lines, pools, peers, _origin: origin, folder })
    }

    fn target(&self, proxy: Proxy, front: Front) -> anyhow::Result<Target> {
        if let Some((_, peer)) = self.peers.iter().find(|(name, _)| *name == proxy) {
            return Ok(Target { address: peer.address(front), process: peer.process() });
        }
        let pool = self.pools.iter().find(|(found, _)| *found == front);
        let (_, rig) = pool.context("there is a pool for each front")?;
        let address = *rig.edges().first().context("a pool has an edge")?;
        Ok(Target { address, process: edge_of(rig)? })
    }

    fn ciphers(&self, plan: &Plan) -> anyhow::Result<Vec<(Proxy, String)>> {
        let proxies = plan.rows.iter().find(|row| row.kind == Kind::Tls).map(|row| row.proxies);
        let agreed = |&proxy: &Proxy| {
            let address = self.target(proxy, Front::Tls)?.address;
            Ok((proxy, cipher(address, &self.host)?))
        };
        proxies.unwrap_or_default().iter().map(agreed).collect()
    }

    /// A little load on each, for connections to the origin and caches; says what rate each
    /// connection of the fixed rate has.
    fn warm_up(&self, plan: &Plan) -> anyhow::Result<Option<u32>> {
        let mut slowest = f64::INFINITY;
        for row in &plan.rows {
            for &proxy in row.proxies {
                let front = row.kind.front();
                let load = self.some_load(self.target(proxy, front)?.address, WARM_UP);
                let connections = CONNECTIONS;
                let shape = H2load { front, connections, streams: 1, rate: None };
                let counted = h2load(&load, shape, self.folder.path())?;
                if counted.requests == 0 || counted.failed > 0 {
                    let failed = counted.failed;
                    bail!("{}, {}: {failed} failed", row.kind.title(), proxy.name());
                }
                if front == Front::Http1 {
                    slowest = slowest.min(counted.per_second);
                }
            }
        }
        let wanted = plan.rows.iter().any(|row| row.kind == Kind::FixedRate);
        let each = (slowest * FIXED_SHARE / f64::from(FIXED_CONNECTIONS)).floor();
        Ok((wanted && each.is_finite()).then_some(each.max(1.0) as u32))
    }

    fn some_load(&self, address: SocketAddr, lasts: Duration) -> Load<'_> {
        Load { core: self.cores.others, address, host: &self.host, lasts, headers: &[] }
    }

    fn cell(
        &self,
        kind: Kind,
        proxy: Proxy,
        round: usize,
        seconds: u32,
        fixed_rate: Option<u32>,
    ) -> anyhow::Result<Cell> {
        let target = self.target(proxy, kind.front())?;
        let (began_ns, before) = (now_ns(), ProcessTime::of(target.process)?);
        let counted = self.load(kind, target.address, seconds, fixed_rate)?;
        let spent = ProcessTime::of(target.process)?.since(before);
        let elapsed_ns = (now_ns() - began_ns).max(1) as f64;
        Ok(Cell {
            kind,
            proxy,
            round,
            cpu_us: spent.run_ns as f64 / 1e3 / counted.requests.max(1) as f64,
            per_second: counted.per_second,
            p50_us: counted.p50_us,
            p99_us: counted.p99_us,
            requests: counted.requests,
            failed: counted.failed,
            // The scheduler's clock runs on while a virtual machine stands still; ours does not.
            wait_pct: (100.0 * spent.wait_ns as f64 / elapsed_ns).min(100.0),
        })
    }

    fn load(
        &self,
        kind: Kind,
        address: SocketAddr,
        seconds: u32,
        fixed_rate: Option<u32>,
    ) -> anyhow::Result<Counted> {
        let mut load = self.some_load(address, Duration::from_secs(u64::from(seconds)));
        if kind == Kind::Headers {
            load.headers = &self.browser_lines;
        }
        let front = kind.front();
        let shape = match kind {
            Kind::Saturated | Kind::Headers | Kind::Tls => return wrk(&load, front, CONNECTIONS),
            Kind::FixedRate => {
                H2load { front, connections: FIXED_CONNECTIONS, streams: 1, rate: fixed_rate }
            }
            Kind::Http2 => {
                H2load { front, connections: HTTP2_SHAPE.0, streams: HTTP2_SHAPE.1, rate: None }
            }
        };
        h2load(&load, shape, self.folder.path())
    }
}

/// A pool of one edge with one thread, which alone has the measured core.
fn pool(
    front: Front,
    origin: SocketAddr,
    pem: &Certificate,
    cores: &Cores,
    cancel: &Cancel,
) -> anyhow::Result<Rig> {
    let mut options = RigOptions::new("proxy", vec![RigSite::new(SITE, 1)]);
    options.node.max_in_flight = MAX_IN_FLIGHT;
    let mut servers = StubAddresses::default();
    servers.add(&RigOptions::node_name(0), SITE, origin);
    options.servers = RigServers::At(servers);
    // The others neither make ids nor begin traces unless told to, and keep at least so many
    // connections to the origin.
    let overrides = ["http.request_id=false", "http.trace=false", "http.upstream_idle_max=256"];
    options.overrides = overrides.map(str::to_owned).to_vec();
    options.cancel = cancel.clone();
    options.front = match front {
        Front::Http1 => RigFront::Http1,
        Front::Http2 => RigFront::Http2,
        Front::Tls => RigFront::Tls { certificate: pem.certificate.clone(), key: pem.key.clone() },
    };
    let rig = Rig::start(&options)?;
    for &(part, process) in rig.processes() {
        let core = if part == Part::Edge { cores.measured } else { cores.others };
        pin_process(process, core)?;
    }
    Ok(rig)
}

fn edge_of(rig: &Rig) -> anyhow::Result<u32> {
    let edge = rig.processes().iter().find(|(part, _)| *part == Part::Edge);
    Ok(edge.context("a pool has an edge")?.1)
}
