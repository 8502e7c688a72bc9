//! The child processes of a rig, and what can go wrong with them.

use super::entry::{POOL_PROCESS, STUB_PROCESS};
use super::stub_process::{StubAddresses, StubSpec};
use crate::control::AskError;
use load::stub::ControlError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Between two looks at a child that is to end.
const WAIT_POLL: Duration = Duration::from_millis(5);
/// How long a child may take to end once it was told to: above the rig's `drain_max_ms` and what
/// agents give their servers.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What of a child's log is shown when it fails.
const LOG_SHOWN_BYTES: usize = 4_000;

/// Why there is no rig, or no answer from one.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// A system call failed.
    #[error("{doing}: {cause}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
    /// The stub process ended or spoke nonsense.
    #[error("the stub process does not start: {0}")]
    Stub(String),
    /// The pool ended while it started.
    #[error("the pool ended ({status}) while it started; its log says:\n{log}")]
    Ended {
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The pool does not serve in time.
    #[error("the pool does not serve after {after:?}: {missing}; its log says:\n{log}")]
    NotReady {
        /// How long was waited.
        after: Duration,
        /// What is missing.
        missing: String,
        /// The end of its log.
        log: String,
    },
    /// Somebody asked to stop.
    #[error("interrupted")]
    Cancelled,
    /// The pool's control socket did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The pool answered something else than was asked.
    #[error("the pool gave an answer that does not fit the question")]
    WrongAnswer,
    /// The stub's control endpoint did not answer.
    #[error(transparent)]
    StubControl(#[from] ControlError),
}

/// Says what was tried when a system call fails.
pub(super) fn doing(doing: &'static str) -> impl FnOnce(io::Error) -> RigError {
    move |cause| RigError::Io { doing, cause }
}

/// A child that ends when this is dropped.
#[derive(Debug)]
pub(super) struct Ending {
    child: Child,
}

impl Ending {
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Ending {
    /// Asks it to end, waits, and kills it if that does not help. Blocks up to [`END_PATIENCE`].
    fn drop(&mut self) {
        // The stub process ends when its standard input does.
        drop(self.child.stdin.take());
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let deadline = Instant::now() + END_PATIENCE;
        if let (None, Some(pid)) = (self.ended(), pid) {
            // It may have ended just now; it is not yet waited for, so the number is still its own.
            let _ = kill_process(pid, Signal::TERM);
        }
        while self.ended().is_none() {
            if Instant::now() > deadline {
                // Nothing better is left to do.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            sleep(WAIT_POLL);
        }
    }
}

/// Starts the stub process and reads where its servers are.
pub(super) fn start_stub(
    program: &Path,
    spec: &StubSpec,
    log: &Path,
) -> Result<(Ending, StubAddresses), RigError> {
    let spawned = Command::new(program)
        .arg(STUB_PROCESS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log_file(log)?)
        .process_group(0)
        .spawn();
    let mut child = Ending { child: spawned.map_err(doing("cannot start the stub process"))? };
    let spec = serde_json::to_string(spec).map_err(|error| RigError::Stub(error.to_string()))?;
    if let Some(stdin) = &mut child.child.stdin {
        writeln!(stdin, "{spec}").map_err(doing("cannot tell the stub what to serve"))?;
    }
    let mut line = String::new();
    if let Some(stdout) = child.child.stdout.take() {
        let read = BufReader::new(stdout).read_line(&mut line);
        read.map_err(doing("cannot hear where the stub serves"))?;
    }
    let addresses = serde_json::from_str(&line)
        .map_err(|_| RigError::Stub(format!("it said {line:?}; {}", log_end(log))))?;
    Ok((child, addresses))
}

/// Starts `up` with a settings file. It warns on its log, and no more: a line for each move would
/// be part of what is measured.
pub(super) fn start_pool(
    program: &Path,
    settings: &Path,
    overrides: &[String],
    log: &Path,
) -> Result<Ending, RigError> {
    let mut command = Command::new(program);
    let me = std::process::id().to_string();
    command.arg(POOL_PROCESS).arg(me).arg(settings);
    for one in overrides {
        command.arg("--set").arg(one);
    }
    let spawned = command
        .env("POLDER_LOG", "warn")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log_file(log)?)
        // Ctrl-C reaches the owner alone, which then stops its rig in order.
        .process_group(0)
        .spawn();
    Ok(Ending { child: spawned.map_err(doing("cannot start the pool"))? })
}

fn log_file(path: &Path) -> Result<Stdio, RigError> {
    let file = File::options().create(true).append(true).open(path);
    Ok(Stdio::from(file.map_err(doing("cannot write a log"))?))
}

/// The end of a log, for an error.
pub(super) fn log_end(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let tail = &bytes[bytes.len().saturating_sub(LOG_SHOWN_BYTES)..];
    String::from_utf8_lossy(tail).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_ends_even_if_it_ignores_the_end_of_its_input() {
        let spawn = |command: &mut Command| command.stdin(Stdio::piped()).spawn().unwrap();
        for arguments in [vec!["cat"], vec!["sleep", "600"]] {
            let child = Ending { child: spawn(Command::new(arguments[0]).args(&arguments[1..])) };
            let path = format!("/proc/{}/stat", child.id());
            assert!(Path::new(&path).exists());
            drop(child);
            assert!(!Path::new(&path).exists());
        }
    }

    #[test]
    fn a_child_that_fails_is_told_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let options = crate::rig::RigOptions::new("x", vec![]);
        // `false` reads no specification and says nothing.
        let error = start_stub(Path::new("/bin/false"), &StubSpec::of(&options), &log).unwrap_err();
        assert!(matches!(error, RigError::Stub(_) | RigError::Io { .. }), "{error}");
        std::fs::write(&log, "x".repeat(9_000) + "the end\n").unwrap();
        let shown = log_end(&log);
        assert!(shown.ends_with("the end") && shown.len() <= LOG_SHOWN_BYTES);
    }
}
