//! Starts everybody, and lets them take turns.

use super::application::Application;
use super::changes::{Changes, Kind};
use super::filling::{check, fill, write_files};
use super::measure::{Cell, Cells, Under};
use super::mixes::{Mix, paths};
use super::peers::{Nginx, Pool, Target, varnish_host, vcl};
use super::plan::{Block, Plan, Scheme, order, plan};
use super::validation::{Meanwhile, Sockets, validation_ns};
use crate::cores::{Cores, ProcessTime, family, pin_this_thread};
use crate::memory;
use crate::progress::Progress;
use crate::tools::{Counted, PathLoad, version, write_paths, wrk_paths};
use crate::varnish::Varnish;
use anyhow::{Context as _, bail};
use lab::{Groups, Quota};
use load::generate::{Cancel, Generator, GeneratorOptions, SiteTarget};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::{scope, sleep};
use std::time::Duration;
use tempfile::TempDir;

/// From new threads on the application's core to the first row: all have run by then.
const SETTLE: Duration = Duration::from_millis(500);
/// What a figure's processes leave in files is kept in memory where the system has such a folder.
const MEMORY_FOLDER: &str = "/dev/shm";
/// Tags whose validation is timed; an entry of a page has three.
const TAGS: [usize; 4] = [1, PAGE_TAGS, 10, 100];
/// Its own, that of its URL and that of its site.
pub(super) const PAGE_TAGS: usize = 3;
/// Parts in which caches are filled, each in the opposite order of the one before: whose pages came
/// first would be a percent slower else, of two that do the same.
const FILL_PARTS: usize = 4;
/// The group of the application's processes, where groups can be made.
const GROUP: &str = "application";

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) plan: Plan,
    pub(crate) cells: Cells,
    /// Nanoseconds, by tags, by threads on the application's core and by what changes.
    pub(crate) validation: Vec<Validation>,
    /// A word over plain `tcp` over a ping-pong.
    pub(crate) tcp_over_ping_pong: Option<f64>,
    /// What could not be measured, and why.
    pub(crate) lacking: Vec<String>,
    pub(crate) versions: Vec<String>,
}

/// What it takes to validate an entry.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Validation {
    pub(crate) threads: u32,
    pub(crate) tags: usize,
    pub(crate) meanwhile: Meanwhile,
    pub(crate) ns: f64,
}

/// Runs everything. Blocks for a minute, or for a quarter of an hour.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    measure_plan(quick, plan(quick), cancel)
}

/// Runs a plan.
pub(super) fn measure_plan(quick: bool, plan: Plan, cancel: &Cancel) -> anyhow::Result<Results> {
    let mut progress = Progress::new(plan.expected_s());
    progress.say("starting the application, nginx, Varnish and the pools");
    let versions = ["nginx", "varnishd", "wrk"].map(version).to_vec();
    // Before anything else runs, and while this thread may still use both cores.
    let tcp_over_ping_pong = Some(memory::tcp_over_ping_pong()?);
    let mut stage = Stage::start(&plan, cancel)?;
    let (mut cells, mut validation, mut round) = (Cells::default(), Vec::new(), 0);
    for block in &plan.blocks {
        if stage.compute(block.threads)? || validation.is_empty() {
            validation.extend(stage.validation(Meanwhile::Nothing)?);
        }
        for turn in 0..block.rounds {
            if block.is_short && [0, block.rounds / 2].contains(&turn) {
                stage.connect(block, turn > 0)?;
            }
            for scheme in order(&block.schemes, turn) {
                progress.say(&format!("{}, {} threads", scheme.name(), block.threads));
                cells.0.extend(stage.cell(block, scheme, round)?);
                progress.did(block.cell().as_secs_f64());
                if cancel.is_cancelled() {
                    bail!("interrupted");
                }
            }
            round += 1;
        }
    }
    // At the end: all pages are proved by their own words from then on.
    stage.compute(0)?;
    validation.extend(stage.validation(Meanwhile::Others)?);
    let lacking = stage.lacking.clone();
    Ok(Results { quick, plan, cells, validation, tcp_over_ping_pong, lacking, versions })
}

/// Everybody, ready.
struct Stage {
    cores: Cores,
    targets: BTreeMap<(Scheme, u8), Target>,
    /// The program for `wrk` of each mix, and of the static files.
    scripts: Vec<(Mix, PathBuf)>,
    static_script: PathBuf,
    /// Of short turns.
    generators: BTreeMap<Scheme, Generator>,
    tags_socket: PathBuf,
    threads: u32,
    lacking: Vec<String>,
    // In the order in which they go: those in front, the application, its group, their folder.
    _pools: Vec<Pool>,
    _nginx: Nginx,
    _varnish: Varnish,
    application: Application,
    _groups: Option<Groups>,
    _folder: TempDir,
}

impl Stage {
    fn start(plan: &Plan, cancel: &Cancel) -> anyhow::Result<Self> {
        let cores = Cores::find()?;
        // What this thread starts of its own, load above all, is on the core of caches.
        pin_this_thread(cores.measured)?;
        let places = [PathBuf::from(MEMORY_FOLDER), std::env::temp_dir()];
        let place = places.iter().find(|place| place.is_dir()).context("no temporary folder")?;
        let folder = tempfile::Builder::new().prefix("polder-cache-").tempdir_in(place)?;
        let starting = Application::start(cores.others)?;
        let mut groups = Groups::make();
        let joined = match &mut groups {
            Ok(groups) => join(groups, starting.process()).map_err(|error| format!("{error:#}")),
            Err(error) => Err(error.to_string()),
        };
        let application = starting.wait()?;
        let address = application.serving.address;
        let files = folder.path().join("static");
        let static_paths = write_files(&files, address)?;
        let nginx = Nginx::start(cores.measured, address, folder.path(), &files)?;
        let varnish = Varnish::start(cores.measured, &vcl(address), &[], folder.path())?;
        let mut stage = Self {
            cores,
            targets: BTreeMap::new(),
            scripts: Vec::new(),
            static_script: write_paths(folder.path(), "static", &static_paths)?,
            generators: BTreeMap::new(),
            tags_socket: PathBuf::new(),
            threads: 0,
            lacking: Vec::new(),
            _pools: Vec::new(),
            _nginx: nginx,
            _varnish: varnish,
            application,
            _groups: groups.ok(),
            _folder: folder,
        };
        if joined.is_err() && !stage.application.serving.is_flat {
            stage.lacks("the application's processes are not scheduled as one group");
        }
        stage.peers();
        stage.pools(plan, joined, cancel)?;
        stage.fill(plan)?;
        Ok(stage)
    }

    fn lacks(&mut self, what: impl Into<String>) {
        self.lacking.push(what.into());
    }

    fn peers(&mut self) {
        for scheme in [Scheme::NginxHit, Scheme::NginxAsks, Scheme::NginxStatic] {
            self.targets.insert((scheme, 1), self._nginx.target(scheme));
        }
        for scheme in [Scheme::VarnishHit, Scheme::VarnishAsks] {
            let target = Target {
                addresses: vec![self._varnish.address()],
                host: varnish_host(scheme),
                processes: family(self._varnish.process()),
                table: None,
            };
            self.targets.insert((scheme, 1), target);
        }
    }

    /// `joined` is the file of the application's group, or why there is none.
    fn pools(
        &mut self,
        plan: &Plan,
        joined: Result<PathBuf, String>,
        cancel: &Cancel,
    ) -> anyhow::Result<()> {
        let address = self.application.serving.address;
        for edges in plan.edges() {
            let pool = Pool::near(edges, address, self.cores, cancel)?;
            for scheme in [Scheme::NoCache, Scheme::Strict, Scheme::Unvalidated] {
                self.targets.insert((scheme, edges), pool.target(scheme));
            }
            if edges == 1 {
                self.tags_socket = pool.tags_socket();
            }
            self._pools.push(pool);
        }
        let far = |is_real_time| Pool::far(is_real_time, address, self.cores, cancel);
        let normal = joined.map_err(anyhow::Error::msg).and_then(|file| {
            let pool = far(false)?;
            // Else the group of this session would compete with the whole application.
            fs::write(file, pool.answers()?.to_string())?;
            Ok(pool)
        });
        for (scheme, pool) in [(Scheme::StrictTcp, normal), (Scheme::StrictTcpFifo, far(true))] {
            match pool {
                Ok(pool) => {
                    self.targets.insert((scheme, 1), pool.target(Scheme::Strict));
                    self._pools.push(pool);
                }
                Err(error) => self.lacks(format!("{}: {error:#}", scheme.name())),
            }
        }
        Ok(())
    }

    /// Fills all caches, and looks whether they answer as they should.
    fn fill(&mut self, plan: &Plan) -> anyhow::Result<()> {
        for mix in plan.mixes() {
            let paths = match paths(mix) {
                Ok(paths) => paths,
                Err(error) => {
                    self.lacks(format!("{}: {error:#}", mix.name()));
                    continue;
                }
            };
            let folder = self._folder.path();
            let script = write_paths(folder, &format!("{mix:?}"), &paths.asked)?;
            self.scripts.push((mix, script));
            let is_filled = |&(scheme, edges): &(Scheme, u8)| {
                let keeps = !matches!(scheme, Scheme::NoCache | Scheme::NginxStatic);
                keeps && (edges == 1 || mix == Mix::Pages)
            };
            let filled = self.targets.iter().filter(|(of, _)| is_filled(of));
            let mut filled: Vec<_> = filled.collect();
            for part in paths.all.chunks(paths.all.len().div_ceil(FILL_PARTS).max(1)) {
                for ((scheme, _), target) in filled.iter().copied() {
                    for &edge in &target.addresses {
                        fill(*scheme, edge, &target.host, part)
                            .with_context(|| scheme.name().to_owned())?;
                    }
                }
                filled.reverse();
            }
        }
        for (&(scheme, _), target) in &self.targets {
            check(scheme, target).with_context(|| scheme.name().to_owned())?;
        }
        Ok(())
    }

    /// From now on so many threads compute on the application's core; whether that is new.
    fn compute(&mut self, threads: u32) -> anyhow::Result<bool> {
        let is_new = self.threads != threads;
        if is_new {
            self.application.compute(threads)?;
            self.threads = threads;
            sleep(SETTLE);
        }
        Ok(is_new)
    }

    fn validation(&self, meanwhile: Meanwhile) -> anyhow::Result<Vec<Validation>> {
        let strict =
            self.targets.get(&(Scheme::Strict, 1)).and_then(|target| target.table.as_ref());
        let writers = strict.context("a strict site has a version table")?;
        let (sockets, threads) = (Sockets { tags: &self.tags_socket, writers }, self.threads);
        let of = |tags| {
            let ns = validation_ns(&sockets, tags, meanwhile)?;
            Ok(Validation { threads, tags, meanwhile, ns })
        };
        TAGS.into_iter().map(of).collect()
    }

    /// One cell; none where the scheme or the mix is lacking.
    fn cell(
        &mut self,
        block: &Block,
        scheme: Scheme,
        round: usize,
    ) -> anyhow::Result<Option<Cell>> {
        let target = self.targets.get(&(scheme, block.edges)).cloned();
        let script = self.scripts.iter().find(|(mix, _)| *mix == block.mix).cloned();
        let Some((target, (_, script))) = target.zip(script) else { return Ok(None) };
        let is_static = scheme == Scheme::NginxStatic;
        let script = if is_static { self.static_script.clone() } else { script };
        let tables = self.tables(&target, block);
        let address = self.application.serving.address;
        let changes = Changes::begin(block.changes, self.cores.measured, address, &tables)?;
        let before = times(&target.processes);
        let loaded = match block.is_short {
            true => self.short_load(block, scheme),
            false => self.load(&target, block, &script),
        };
        let spent_ns: u64 = times(&target.processes)
            .iter()
            .zip(&before)
            .map(|(after, before)| after.since(*before).run_ns)
            .sum();
        let changes_per_second = changes.end()?;
        let (counted, load) = loaded?;
        let per = |ns: f64| ns / 1e3 / counted.requests.max(1) as f64;
        Ok(Some(Cell {
            under: Under {
                mix: block.mix,
                threads: block.threads,
                edges: block.edges,
                connections: block.connections,
                changes: block.changes,
                is_alone: block.is_alone,
                is_short: block.is_short,
            },
            scheme,
            round,
            per_second: counted.per_second,
            p50_us: counted.p50_us,
            p99_us: counted.p99_us,
            requests: counted.requests,
            failed: counted.failed,
            cache_us: per(spent_ns as f64),
            load_us: per(load.as_nanos() as f64),
            changes_per_second,
        }))
    }

    /// Whose writers are told of changes: first the table of this row.
    fn tables(&self, target: &Target, block: &Block) -> Vec<PathBuf> {
        let own = target.table.clone();
        match block.changes {
            // All that keep the page must hear of it, also those that are idle now.
            Kind::Updates => {
                let all = self.targets.values().filter_map(|target| target.table.clone());
                let others = all.filter(|table| Some(table) != own.as_ref());
                own.iter().cloned().chain(others).collect()
            }
            // The same work for those that have no table.
            Kind::Ticks => {
                let strict = self.targets.get(&(Scheme::Strict, block.edges));
                own.or_else(|| strict?.table.clone()).into_iter().collect()
            }
        }
    }

    /// Connections for short turns. Whoever connects first is some percent slower, also of two that
    /// do the same: so halfway all connect anew, in the opposite order.
    fn connect(&mut self, block: &Block, is_reversed: bool) -> anyhow::Result<()> {
        self.generators.clear();
        let mut schemes = block.schemes.clone();
        if is_reversed {
            schemes.reverse();
        }
        for scheme in schemes {
            let Some(target) = self.targets.get(&(scheme, block.edges)) else { continue };
            let host = vec![SiteTarget::host(target.host.clone())];
            let mut options = GeneratorOptions::new(target.addresses.clone(), host);
            options.paths = paths(block.mix)?.asked;
            options.in_flight = block.connections as usize;
            let mut generator = Generator::new(options)?;
            // Connections are made when they are first used.
            generator.closed(0, block.cell())?;
            self.generators.insert(scheme, generator);
        }
        Ok(())
    }

    /// Load by this program, for a short while, over connections that stay.
    fn short_load(&mut self, block: &Block, scheme: Scheme) -> anyhow::Result<(Counted, Duration)> {
        let generator = self.generators.get_mut(&scheme).context("it has connections")?;
        let report = generator.closed(0, block.cell())?;
        let total = report.total();
        let counted = Counted {
            requests: total.ok,
            failed: total.failures.total(),
            per_second: report.throughput_per_second(),
            p50_us: total.latency.p50_us() as f64,
            p99_us: total.latency.p99_us() as f64,
        };
        Ok((counted, Duration::from_nanos(report.cpu.run_ns)))
    }

    /// Load on all edges at once, each with its part of the connections.
    fn load(
        &self,
        target: &Target,
        block: &Block,
        script: &Path,
    ) -> anyhow::Result<(Counted, Duration)> {
        let edges = u32::try_from(target.addresses.len())?;
        let core = if block.is_alone { self.cores.others } else { self.cores.measured };
        let one = |address: SocketAddr| {
            wrk_paths(&PathLoad {
                core,
                address,
                host: &target.host,
                seconds: block.cell_s,
                connections: (block.connections / edges).max(1),
                script,
            })
        };
        if let [address] = target.addresses[..] {
            return one(address);
        }
        let loads = scope(|scope| {
            let all: Vec<_> =
                target.addresses.iter().map(|&address| scope.spawn(move || one(address))).collect();
            let joined = all.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined
                .map(|load| load.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<anyhow::Result<Vec<_>>>()
        })?;
        together(&loads).context("there is an edge")
    }
}

/// Several loads as one: rates add up; of the times the median is the mean of medians, weighted by
/// answers, and the 99th percentile the worst.
fn together(loads: &[(Counted, Duration)]) -> Option<(Counted, Duration)> {
    let requests: u64 = loads.iter().map(|(counted, _)| counted.requests).sum();
    let weighted: f64 = loads.iter().map(|(one, _)| one.p50_us * one.requests as f64).sum();
    let counted = Counted {
        requests,
        failed: loads.iter().map(|(counted, _)| counted.failed).sum(),
        per_second: loads.iter().map(|(counted, _)| counted.per_second).sum(),
        p50_us: weighted / requests.max(1) as f64,
        p99_us: loads.iter().map(|(counted, _)| counted.p99_us).reduce(f64::max)?,
    };
    Some((counted, loads.iter().map(|(_, spent)| *spent).sum()))
}

/// What has ended since counts for nothing: nginx has a process that does so when it has looked
/// through its cache, after a minute.
fn times(processes: &[u32]) -> Vec<ProcessTime> {
    processes.iter().map(|&process| ProcessTime::of(process).unwrap_or_default()).collect()
}

/// Puts the application's process, which has started nothing yet, into a group; its file.
fn join(groups: &mut Groups, process: u32) -> anyhow::Result<PathBuf> {
    groups.add(GROUP, Quota::of_core(1.0)?)?;
    let file = PathBuf::from(groups.join_path(GROUP));
    fs::write(&file, process.to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_several_edges_are_one() {
        let counted = |requests, per_second, p50_us, p99_us| Counted {
            requests,
            failed: 1,
            per_second,
            p50_us,
            p99_us,
        };
        let second = Duration::from_secs(1);
        let loads =
            [(counted(100, 50.0, 10.0, 90.0), second), (counted(300, 150.0, 30.0, 70.0), second)];
        let (all, spent) = together(&loads).unwrap();
        assert_eq!((all.requests, all.failed, all.per_second), (400, 2, 200.0));
        assert_eq!((all.p50_us, all.p99_us, spent), (25.0, 90.0, 2 * second));
        assert_eq!(together(&[]), None);
    }
}
