//! The first part: a pool under bursts, shown while it runs.

use super::plan::{BURST_WATCHED, SITES, bursts, watched};
use super::results::Results;
use super::stage::{Stage, wait_pct};
use super::traffic::{Live, Traffic};
use super::view::{LiveView, MOVES_SHOWN, MoveView, SiteView};
use super::view::{picture, plain_heading, plain_line, plain_move};
use super::{DemoError, meter::Meter};
use crate::rig::{MoveLog, Rig};
use crate::status::StatusReport;
use load::clock::now_ns;
use std::time::{Duration, Instant};

/// How often the picture is drawn: often enough to see moves happen, and far below what would
/// take CPU time from the pool.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// How often a plain line is written.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// How often moves are fetched: an edge keeps a thousand.
const MOVES_EVERY: Duration = Duration::from_millis(500);
/// A pool that gave no answer so often in a row is not asked again.
const UNANSWERED_MAX: u32 = 3;
/// What the part is called.
const DOING: &str = "1 of 2: load moves, nodes follow";

/// Shows the pool under bursts. Blocks for the share of the demo's time that is for it.
pub(super) fn watch(
    stage: &mut Stage<'_>,
    rig: &Rig,
    log: &mut MoveLog,
    results: &mut Results,
) -> Result<(), DemoError> {
    let length = watched(stage.total(), stage.elapsed());
    let bursts = bursts(results.seed, length, BURST_WATCHED);
    let before = rig.cpu();
    let live = Live::new(SITES.len());
    let load = rig.load();
    let mut watcher = Watcher {
        live: live.clone(),
        rig,
        log,
        clients: load.in_flight,
        meter: Meter::default(),
        burst: None,
        report: None,
        unanswered: 0,
        moves_at: None,
        moves_said: 0,
        said_at: None,
    };
    let traffic = Traffic::start(load, bursts, &live)?;
    let mut watching = Ok(());
    while !traffic.is_over() {
        stage.pause(DRAW_EVERY, || traffic.is_over());
        if watching.is_ok() {
            watching = watcher.tick(stage);
            if watching.is_err() {
                stage.cancel().cancel();
            }
        }
    }
    let outcome = traffic.finish()?;
    watching?;
    if let Ok(moves) = rig.moves() {
        // Those since the last picture; without them the count is that of the picture.
        log.add(moves);
    }
    results.watched.add(&outcome.tally);
    results.all.add(&outcome.tally);
    results.watched_s = outcome.seconds();
    results.watched_wait_pct = wait_pct(&rig.cpu().since(&before), outcome.wait_ns);
    Ok(())
}

/// Gathers what is shown.
struct Watcher<'a> {
    live: Live,
    rig: &'a Rig,
    log: &'a mut MoveLog,
    clients: usize,
    meter: Meter,
    burst: Option<usize>,
    report: Option<StatusReport>,
    unanswered: u32,
    moves_at: Option<Instant>,
    moves_said: usize,
    said_at: Option<Instant>,
}

impl Watcher<'_> {
    fn tick(&mut self, stage: &mut Stage<'_>) -> Result<(), DemoError> {
        let (recent, burst) = self.live.take();
        self.burst = burst;
        self.meter.add(stage.elapsed().as_secs_f64(), recent);
        self.ask(stage)?;
        let view = self.view(stage);
        if stage.draws() {
            stage.draw(&picture(&view));
        } else if burst.is_some() && self.said_at.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
            self.say(stage, &view);
        }
        Ok(())
    }

    /// Asks the pool who serves what. A single answer that does not come in time is no reason to
    /// give up: the machine may be busy.
    fn ask(&mut self, stage: &Stage<'_>) -> Result<(), DemoError> {
        let answer = self.rig.status().and_then(|report| {
            self.report = Some(report);
            if self.moves_at.is_none_or(|at| at.elapsed() >= MOVES_EVERY) {
                self.log.add(self.rig.moves()?);
                self.moves_at = Some(Instant::now());
            }
            Ok(())
        });
        self.unanswered = if answer.is_ok() { 0 } else { self.unanswered + 1 };
        match answer {
            Err(error) if self.unanswered >= UNANSWERED_MAX && !stage.is_cancelled() => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    fn view(&self, stage: &Stage<'_>) -> LiveView {
        let site = |(place, &(name, nodes)): (usize, &(&str, u16))| {
            let told = self.report.as_ref().and_then(|report| report.sites.get(place));
            let latency = self.meter.latency(place);
            let moves = self.log.iter().filter(|one| one.to.as_deref() == Some(name)).count();
            SiteView {
                name: name.to_owned(),
                nodes: told.map_or(u32::from(nodes), |told| told.nodes),
                per_second: self.meter.rate(place),
                p50_us: latency.p50_us(),
                p99_us: latency.p99_us(),
                queued: told.map_or(0, |told| told.queued),
                moves: moves as u64,
            }
        };
        let now_ns = now_ns();
        let mut moves: Vec<MoveView> =
            self.log.iter().map(|told| MoveView::of(told, now_ns)).collect();
        moves.reverse();
        moves.truncate(MOVES_SHOWN);
        LiveView {
            progress: stage.progress(DOING),
            sites: SITES.iter().enumerate().map(site).collect(),
            burst: self.burst,
            clients: self.clients,
            requests: self.meter.requests(),
            failed: self.meter.failed(),
            moves,
            hold_ms: self.report.as_ref().map_or(0, |report| report.pool.hold_ms),
        }
    }

    fn say(&mut self, stage: &mut Stage<'_>, view: &LiveView) {
        let mut lines = Vec::new();
        if self.said_at.is_none() {
            lines.push(plain_heading(view));
        }
        lines.push(plain_line(view));
        if self.log.len() > self.moves_said {
            lines.extend(view.moves.first().map(plain_move));
        }
        self.moves_said = self.log.len();
        self.said_at = Some(Instant::now());
        stage.say(&lines);
    }
}
