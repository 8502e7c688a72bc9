//! Child processes of the figures: each on one core, none outlives this program.
//!
//! A child is started through this program's hidden sub-command `pinned-process`, which ties itself
//! to its parent, takes its core, and becomes the program that is wanted. Helpers are this program
//! itself: they are told and tell by lines of JSON.
//!
//! Each has a session of its own. Ctrl-C so reaches this program alone, which then ends its
//! children in order. And the kernel, which may share its cores out by sessions
//! (`sched_autogroup_enabled`), does not take from a reader what two hundred threads of an owner
//! have had on another core.

use crate::cores::pin_this_thread;
use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The hidden sub-command that all children begin as.
const PINNED_PROCESS: &str = "pinned-process";
/// How long a child may take to end once it was told to.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks at a child that is to end.
const END_POLL: Duration = Duration::from_millis(5);
/// The longest line of a helper.
const LINE_MAX_BYTES: u64 = 1 << 16;

/// `pinned-process PARENT CORE PROGRAM [ARGUMENT]...`; nothing for another command line.
pub(crate) fn hidden(arguments: &[OsString]) -> Option<ExitCode> {
    (arguments.get(1)? == PINNED_PROCESS).then(|| {
        let Err(error) = become_pinned(&arguments[2..]);
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn become_pinned(arguments: &[OsString]) -> anyhow::Result<std::convert::Infallible> {
    let [parent, core, program, rest @ ..] = arguments else {
        bail!("{PINNED_PROCESS} needs a parent, a core and a program");
    };
    let number = |text: &OsStr| text.to_str().and_then(|text| text.parse::<u32>().ok());
    let parent = number(parent).context("the number of the parent process is wrong")?;
    let core = number(core).context("the number of the core is wrong")?;
    // All three outlast the change of program.
    rustix::process::setsid().context("cannot have a session")?;
    agent::die_with_parent(parent).context("cannot be tied to the parent process")?;
    pin_this_thread(usize::try_from(core)?)?;
    let error = Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// The command that starts a program on a core. The program's standard streams are the caller's
/// to set.
pub(crate) fn pinned<S: AsRef<OsStr>>(
    core: usize,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("cannot tell this program's path")?;
    let mut command = Command::new(own);
    let (parent, core) = (std::process::id().to_string(), core.to_string());
    command.args([PINNED_PROCESS, &parent, &core]).arg(program).args(arguments);
    Ok(command)
}

/// A child that ends when this is dropped; that blocks until it has.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Self> {
        Ok(Self(command.spawn().context("cannot start a child process")?))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        // It is not waited for yet, so the number is still its own.
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a child has a number")?, signal).context("cannot send a signal")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended() {
            // It may have ended just now.
            let _ = self.signal(Signal::TERM);
        }
        let deadline = Instant::now() + END_PATIENCE;
        while !self.has_ended() {
            if Instant::now() > deadline {
                // Nothing better is left to do.
                let _ = self.0.kill();
                let _ = self.0.wait();
                return;
            }
            sleep(END_POLL);
        }
    }
}

/// A child that is this program: each line that it is told is answered by one of JSON. Its first
/// line says that it is ready, its standard input's end ends it.
#[derive(Debug)]
pub(crate) struct Helper {
    name: &'static str,
    // In the order in which they go: the end of its input, then the process.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    process: Process,
}

impl Helper {
    /// Starts a hidden sub-command on a core.
    pub(crate) fn start(
        core: usize,
        name: &'static str,
        arguments: &[String],
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot tell this program's path")?;
        let words = std::iter::once(name).chain(arguments.iter().map(String::as_str));
        let mut command = pinned(core, own, words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(&mut command)?;
        let stdin = process.0.stdin.take().context("a helper has an input")?;
        let stdout = process.0.stdout.take().context("a helper has an output")?;
        Ok(Self { name, stdin, stdout: BufReader::new(stdout), process })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// The next thing that it tells. Blocks for it.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        let mut limited = self.stdout.by_ref().take(LINE_MAX_BYTES);
        limited.read_line(&mut line).with_context(|| format!("{}: cannot be heard", self.name))?;
        serde_json::from_str(&line).with_context(|| format!("{} said {line:?}", self.name))
    }

    /// Tells it something and hears its answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, line: &str) -> anyhow::Result<T> {
        writeln!(self.stdin, "{line}").with_context(|| format!("{}: has ended", self.name))?;
        self.hear()
    }
}

/// A helper's side: says a line.
pub(crate) fn say(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

/// A helper's side: the next line that it is told; none when its parent is done with it.
pub(crate) fn told() -> anyhow::Result<Option<String>> {
    let mut line = String::new();
    let mut limited = std::io::stdin().lock().take(LINE_MAX_BYTES);
    let bytes = limited.read_line(&mut line)?;
    Ok((bytes > 0).then(|| line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_child_ends() {
        let process = Process::start(Command::new("sleep").arg("600")).unwrap();
        let path = format!("/proc/{}", process.id());
        assert!(std::path::Path::new(&path).exists());
        drop(process);
        assert!(!std::path::Path::new(&path).exists());
    }

    #[test]
    fn other_command_lines_are_left_alone() {
        let run = |words: &[&str]| hidden(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(run(&["bench", "burst"]), None);
        assert_eq!(run(&["bench"]), None);
        assert_eq!(run(&["bench", PINNED_PROCESS, "1"]), Some(ExitCode::FAILURE));
    }
}
