//! Starts the owner, keeps it busy, and reads.

use super::measure::{Cell, Cells, Sized};
use super::owner::{OWNER_PROCESS, Served};
use super::plan::{Busy, Plan, Way, plan};
use super::reader::{Reader, Times};
use crate::children::Helper;
use crate::cores::{Cores, ProcessTime, pin_this_thread};
use crate::progress::Progress;
use anyhow::{Context as _, bail};
use load::generate::Cancel;
use load::stats::{median, quantile};
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;

/// From new work of the owner to the first read: its threads have all run by then.
const SETTLE: Duration = Duration::from_millis(200);
/// How long a stopped owner is read.
const STOPPED_FOR: Duration = Duration::from_millis(100);

/// Everything that was measured.
pub(crate) struct Results {
    pub(crate) quick: bool,
    pub(crate) plan: Plan,
    pub(crate) cells: Cells,
    pub(crate) sizes: Vec<Sized>,
    /// How the threads that answer over `tcp` are scheduled.
    pub(crate) priority: String,
    pub(crate) stopped: Stopped,
}

/// What an owner still gives that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Stopped {
    pub(crate) shm_reads: u64,
    pub(crate) shm_p50_ns: Option<f64>,
    pub(crate) tcp_answers: bool,
}

/// Runs everything. Blocks for a minute, or for some.
pub(crate) fn measure(quick: bool, cancel: &Cancel) -> anyhow::Result<Results> {
    measure_plan(quick, plan(quick), cancel)
}

/// Runs a plan. The reader has a thread of its own, for it stays on its core.
pub(super) fn measure_plan(quick: bool, plan: Plan, cancel: &Cancel) -> anyhow::Result<Results> {
    let cores = Cores::find()?;
    let Owner { helper: owner, served, socket, folder: _folder } = Owner::start(cores)?;
    let read = || {
        pin_this_thread(cores.others)?;
        let reader = Reader::attach(&socket, &served)?;
        let mut stage = Stage { owner, reader, progress: Progress::new(plan.expected_s()) };
        let mut cells = Cells::default();
        for &busy in &plan.busy {
            stage.under(busy, &plan, cancel, &mut cells)?;
        }
        let sizes = stage.sizes(&plan, cancel)?;
        let stopped = stage.stopped()?;
        Ok((cells, sizes, stopped))
    };
    let done = std::thread::scope(|scope| scope.spawn(read).join());
    let (cells, sizes, stopped): (_, _, _) = match done {
        Ok(read) => read.map_err(|error: anyhow::Error| error)?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    Ok(Results { quick, plan, cells, sizes, priority: served.priority, stopped })
}

/// For each of so many rounds, the p50 of a word over `tcp` in plain text over that of a ping-pong.
pub(super) fn over_ping_pong(rounds: usize, lasts: Duration) -> anyhow::Result<Vec<f64>> {
    let cores = Cores::find()?;
    let owner = Owner::start(cores)?;
    let read = || {
        pin_this_thread(cores.others)?;
        let mut reader = Reader::attach(&owner.socket, &owner.served)?;
        let mut p50 = |way| {
            let times = reader.times(way, lasts)?;
            quantile(&times.ns, 0.5).context("a cell has a sample")
        };
        (0..rounds).map(|_| Ok(p50(Way::TcpPlain)? / p50(Way::PingPong)?)).collect()
    };
    let done = std::thread::scope(|scope| scope.spawn(read).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The owner in its process.
struct Owner {
    // In the order in which they go: the process, then the folder of its socket.
    helper: Helper,
    served: Served,
    socket: PathBuf,
    folder: TempDir,
}

impl Owner {
    fn start(cores: Cores) -> anyhow::Result<Self> {
        // As a socket of `shm` wants it.
        let private = Permissions::from_mode(0o700);
        let folder =
            tempfile::Builder::new().prefix("polder-memory-").permissions(private).tempdir()?;
        let socket = folder.path().join("node.sock");
        let arguments = [socket.display().to_string()];
        let mut helper = Helper::start(cores.measured, OWNER_PROCESS, &arguments)?;
        let served: Served = helper.hear()?;
        Ok(Self { helper, served, socket, folder })
    }
}

struct Stage {
    owner: Helper,
    reader: Reader,
    progress: Progress,
}

impl Stage {
    fn under(
        &mut self,
        busy: Busy,
        plan: &Plan,
        cancel: &Cancel,
        cells: &mut Cells,
    ) -> anyhow::Result<()> {
        self.progress.say(busy.name());
        let _threads: usize = self.owner.ask(busy.command())?;
        sleep(SETTLE);
        for round in 0..plan.rounds {
            for way in plan.ways(busy, round) {
                cells.0.push(self.cell(way, busy, round, plan.lasts(way, busy))?);
                self.progress.did(plan.lasts(way, busy).as_secs_f64());
                if cancel.is_cancelled() {
                    bail!("interrupted");
                }
            }
        }
        let _none: usize = self.owner.ask(Busy::Idle.command())?;
        Ok(())
    }

    fn cell(
        &mut self,
        way: Way,
        busy: Busy,
        round: usize,
        lasts: Duration,
    ) -> anyhow::Result<Cell> {
        let owner = self.owner.process().id();
        let before = ProcessTime::of(owner)?;
        let Times { ns, reads } = self.reader.times(way, lasts)?;
        let spent = ProcessTime::of(owner)?.since(before);
        let owner_us = spent.run_ns as f64 / 1e3 / reads.max(1) as f64;
        Ok(Cell {
            way,
            busy,
            round,
            reads,
            p50_ns: quantile(&ns, 0.5).context("a cell has a sample")?,
            p999_ns: quantile(&ns, 0.999).context("a cell has a sample")?,
            owner_us: (busy == Busy::Idle).then_some(owner_us),
        })
    }

    /// Figure 5: reads of several lengths on an idle owner.
    fn sizes(&mut self, plan: &Plan, cancel: &Cancel) -> anyhow::Result<Vec<Sized>> {
        let mut sizes = Vec::new();
        for &words in &plan.sizes_words {
            for way in [Way::Shm, Way::TcpPlain, Way::TcpSealed] {
                self.progress.say("reads of several lengths");
                let mut medians = Vec::new();
                for _ in 0..plan.rounds {
                    let times = self.reader.sized(way, words, plan.short)?;
                    medians.extend(quantile(&times, 0.5));
                    self.progress.did(plan.short.as_secs_f64());
                    if cancel.is_cancelled() {
                        bail!("interrupted");
                    }
                }
                let p50_ns = median(&medians).context("there was a round")?;
                sizes.push(Sized { way, bytes: words * 8, p50_ns });
            }
        }
        Ok(sizes)
    }

    /// Shared memory needs nobody on the other side.
    fn stopped(&mut self) -> anyhow::Result<Stopped> {
        self.owner.process().signal(Signal::STOP)?;
        let read = self.reader.times(Way::Shm, STOPPED_FOR);
        let tcp_answers = self.reader.is_answered();
        self.owner.process().signal(Signal::CONT)?;
        let Times { ns, reads } = read?;
        Ok(Stopped { shm_reads: reads, shm_p50_ns: quantile(&ns, 0.5), tcp_answers })
    }
}
