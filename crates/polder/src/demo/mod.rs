//! `polder demo`: about a minute that shows what Polder does, on one machine, with nothing but
//! this program.
//!
//! ```text
//! part 1, watch:    one pool (three sites, eight nodes, two edges) under bursts that go from site
//!                   to site; a table shows nodes, rates, latencies and moves while it runs
//! part 2, compare:  that pool, the same nodes without moves, and a pool with more nodes: the same
//!                   traffic for each in turn, three rounds; the pools run side by side
//! end:              a table against the pool without moves, a picture, what to try next
//! ```
//!
//! The pools are [`crate::rig`]s, so everything runs on free loopback ports and in private folders,
//! and no process outlives this one. What is planned ([`plan`]), measured ([`results`]) and shown
//! ([`view`], [`screen`]) is kept apart; only [`watch`] and [`mod@compare`] touch pools.

mod arguments;
mod compare;
mod figure;
mod limits;
mod meter;
mod next;
mod plan;
mod results;
mod screen;
mod stage;
mod text;
mod traffic;
mod view;
mod watch;

use crate::rig::{MoveLog, Rig, RigError};
use crate::terminal::Style;
use arguments::Picture;
use compare::{Contender, compare};
use load::generate::{Cancel, GenerateError};
use load::plot::PlotError;
use plan::Scheme;
use results::Results;
use screen::Screen;
use stage::Stage;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use text::Line;
use view::head;

pub use arguments::DemoArguments;

/// How often it is looked for a wish to stop while a pool is kept.
const KEEP_POLL: Duration = Duration::from_millis(100);

/// Why the demo could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A pool did not start or did not answer.
    #[error("{cause}\n{}", advice(.cause))]
    Pool {
        /// What happened.
        #[from]
        cause: RigError,
    },
    /// No load could be made.
    #[error("{0}")]
    Load(#[from] GenerateError),
    /// There is no thread for the load.
    #[error("cannot start a thread: {0}; is the limit of processes too low? see `ulimit -u`")]
    Thread(io::Error),
    /// Too few open files are allowed.
    #[error("the demo needs 512 open files, and only {allowed} are allowed; try `ulimit -n 1024`")]
    FewFiles {
        /// The present limit.
        allowed: u64,
    },
    /// The picture could not be written.
    #[error("{0}; --svg FILE writes it elsewhere, --no-svg not at all")]
    Svg(#[from] PlotError),
    /// The folder for the picture cannot be written to.
    #[error(
        "cannot write {}: {cause}; --svg FILE writes it elsewhere, --no-svg not at all",
        path.display()
    )]
    SvgPlace {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Standard output took no more.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

/// What to do about a pool that does not run.
fn advice(cause: &RigError) -> &'static str {
    match cause {
        RigError::Io { cause, .. } if cause.raw_os_error() == Some(24) => {
            "Too few open files are allowed; try `ulimit -n 1024`."
        }
        RigError::Io { doing, .. } if doing.contains("folder") => {
            "Set TMPDIR to a folder with a short name that you may write to."
        }
        RigError::NotReady { .. } | RigError::Ask(_) | RigError::StubControl(_) => {
            "This machine may be too busy; try again when it is quieter."
        }
        _ => "Run it again with `--plain`; if it fails again, please report it with this text.",
    }
}

/// How the demo ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Requests that failed; none should.
    pub failed: u64,
    /// Whether somebody stopped it before its end.
    pub is_interrupted: bool,
}

/// Shows the demo on standard output. Blocks until it is over, or soon after `cancel` is set. To be
/// called from a program that lets [`crate::rig::hidden`] see its command line first.
///
/// # Errors
///
/// [`DemoError`] when pools do not run or something cannot be written. A reader of standard output
/// that goes away is no error; it ends the demo.
pub fn run(arguments: &DemoArguments, style: Style, cancel: &Cancel) -> Result<Ended, DemoError> {
    let picture = arguments.picture()?;
    limits::allow_files()?;
    let style = if arguments.plain { Style::PLAIN } else { style };
    let out = Box::new(io::stdout()) as Box<dyn Write>;
    let screen = Screen::new(out, style, cancel.clone());
    let total = Duration::from_secs(arguments.seconds);
    let mut stage = Stage::new(screen, total, cancel.clone());
    let mut results = Results::new(arguments.seed);
    let kept = match play(&mut stage, &mut results) {
        Ok(polder) => polder.filter(|_| arguments.keep),
        Err(DemoError::Pool { cause: RigError::Cancelled }) => None,
        Err(error) => return Err(error),
    };
    results.is_complete = results.has_all_rounds() && !cancel.is_cancelled();
    let told = tell(&mut stage, arguments.json, &picture, &results);
    if let Some(rig) = kept.filter(|_| results.is_complete) {
        keep(&mut stage, &rig);
    }
    told?;
    match stage.finish() {
        Ok(()) => Ok(Ended { failed: results.all.failed, is_interrupted: !results.is_complete }),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Ended::default()),
        Err(error) => Err(DemoError::Output(error)),
    }
}

/// Escapes for a terminal whose cursor the demo may have hidden: for whoever ends the program
/// without waiting for [`run`].
pub const RESTORE_TERMINAL: &str = screen::SHOW_CURSOR;

/// Both parts. Gives Polder's pool back, which still runs.
fn play(stage: &mut Stage<'_>, results: &mut Results) -> Result<Option<Rig>, DemoError> {
    let doing = "starting a pool";
    stage.draw(&head(&stage.progress(doing)));
    if !stage.draws() {
        let seconds = stage.total().as_secs();
        let text = "three sites share eight nodes behind two edges";
        stage.say(&[Line::of(format!("Polder demo: {text}; about {seconds} s"))]);
    }
    let polder = start(Scheme::Polder, stage)?;
    let mut log = MoveLog::default();
    let watched = watch::watch(stage, &polder, &mut log, results);
    add_moves(&log, results);
    watched?;
    stage.keep_picture();
    if stage.is_cancelled() {
        return Ok(Some(polder));
    }
    stage.draw(&head(&stage.progress("2 of 2: starting two more pools")));
    let rigid = Contender { scheme: Scheme::Rigid, rig: start(Scheme::Rigid, stage)? };
    let over = start(Scheme::OverProvisioned, stage)?;
    let over = Contender { scheme: Scheme::OverProvisioned, rig: over };
    let contenders = [rigid, Contender { scheme: Scheme::Polder, rig: polder }, over];
    let compared = compare(stage, &contenders, &mut log, results);
    add_moves(&log, results);
    compared?;
    let [_, polder, _] = contenders;
    Ok(Some(polder.rig))
}

fn start(scheme: Scheme, stage: &Stage<'_>) -> Result<Rig, DemoError> {
    let mut options = scheme.rig();
    options.cancel = stage.cancel().clone();
    Ok(Rig::start(&options)?)
}

fn add_moves(log: &MoveLog, results: &mut Results) {
    results.moves = log.len();
    results.move_ms = log.iter().filter_map(|one| one.move_ms).collect();
}

/// Writes the picture and prints what it came to. A picture that cannot be written is an error, but
/// takes nothing from what is printed.
fn tell(
    stage: &mut Stage<'_>,
    with_json: bool,
    picture: &Picture,
    results: &Results,
) -> Result<(), DemoError> {
    let heading = match results.is_complete {
        true => "The same bursts for three pools",
        false => "Interrupted: what follows is partial",
    };
    let mut lines = vec![Line::default(), Line::bold(heading)];
    if results.schemes.iter().any(|result| !result.rounds.is_empty()) {
        lines.extend(results.table());
        lines.push(Line::default());
    }
    lines.extend(results.notes());
    let drawn = if results.is_complete { draw(picture, results, &mut lines) } else { Ok(None) };
    if results.is_complete {
        lines.push(Line::default());
        lines.extend(next::lines(&next::Surroundings::read()));
    }
    if with_json {
        let svg = drawn.as_ref().ok().copied().flatten().and_then(Path::to_str);
        lines.push(Line::of(results.json(svg).to_string()));
    }
    stage.say(&lines);
    drawn.map(drop)
}

/// Writes the picture, says so, and tells where it lies.
fn draw<'p>(
    picture: &'p Picture,
    results: &Results,
    lines: &mut Vec<Line>,
) -> Result<Option<&'p Path>, DemoError> {
    match picture {
        Picture::Unwanted => Ok(None),
        Picture::Impossible(why) => {
            lines.push(Line::of(format!("No picture: {why}")));
            Ok(None)
        }
        Picture::At(path) => {
            figure::figure(results).write(path)?;
            let shown = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            lines.push(Line::of(format!("The picture: {}", shown.display())));
            Ok(Some(path))
        }
    }
}

/// Says how to reach the pool and waits for a wish to stop.
fn keep(stage: &mut Stage<'_>, rig: &Rig) {
    let edges: Vec<String> = rig.edges().iter().map(ToString::to_string).collect();
    let hosts: Vec<String> = rig.options().sites.iter().map(crate::rig::RigSite::host).collect();
    let folder = rig.control().parent().unwrap_or(Path::new("")).display().to_string();
    stage.say(&[
        Line::default(),
        Line::bold("The pool goes on until Ctrl-C"),
        Line::of(format!("  polder status --watch --moves --runtime-dir {folder}")),
        Line::of(format!(
            "  polder load burst --to {} --host {}",
            edges.join(","),
            hosts.join(",")
        )),
    ]);
    while !stage.is_cancelled() {
        stage.pause(KEEP_POLL, || stage.is_cancelled());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let io = |code| io::Error::from_raw_os_error(code);
        let files = RigError::Io { doing: "cannot start the pool", cause: io(24) };
        assert!(DemoError::from(files).to_string().contains("ulimit -n 1024"));
        let folder = RigError::Io { doing: "cannot make a private folder", cause: io(13) };
        assert!(DemoError::from(folder).to_string().contains("TMPDIR"));
        assert!(DemoError::from(RigError::WrongAnswer).to_string().contains("--plain"));
        assert!(DemoError::FewFiles { allowed: 64 }.to_string().contains("ulimit"));
    }
}
