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
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs;
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
/// The longest output of a program that is timed.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
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

/// What a program printed, and the CPU time of all its threads. Blocks until it has ended.
pub(crate) fn timed_output(command: &mut Command) -> anyhow::Result<(String, Duration)> {
    let mut process = Process::start(command.stdout(Stdio::piped()))?;
    let mut text = String::new();
    let stdout = process.0.stdout.take().context("a child has an output")?;
    stdout.take(OUTPUT_BYTES_MAX).read_to_string(&mut text)?;
    let path = format!("/proc/{}/stat", process.id());
    let deadline = Instant::now() + END_PATIENCE;
    // While nobody waits for it, what has ended still tells what its threads have cost.
    let ticks = loop {
        let stat = fs::read_to_string(&path)?;
        let (state, ticks) = state_and_ticks(&stat).context("a process has a state")?;
        if state == "Z" {
            break ticks;
        }
        ensure!(Instant::now() < deadline, "it closed its output and does not end");
        sleep(END_POLL);
    };
    let status = process.0.wait()?;
    ensure!(status.success(), "{status}:\n{text}");
    let seconds = ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64;
    Ok((text, Duration::from_secs_f64(seconds)))
}

/// The state of a process and the ticks of its CPU time, of user and system.
fn state_and_ticks(stat: &str) -> Option<(&str, u64)> {
    // The name in parentheses may hold anything; what follows its last one is not.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |place: usize| fields.get(place)?.parse::<u64>().ok();
    Some((fields.first()?, ticks(11)? + ticks(12)?))
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
    fn the_time_of_what_has_ended_is_known() {
        let mut shell = Command::new("sh");
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done";
        let (text, spent) = timed_output(shell.args(["-c", work])).unwrap();
        assert_eq!(text, "done\n");
        assert!(spent > Duration::ZERO, "{spent:?}");
        assert!(timed_output(Command::new("sh").args(["-c", "exit 3"])).is_err());
        assert_eq!(state_and_ticks("1 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13"), Some(("S", 23)));
        assert_eq!(state_and_ticks("1 (a"), None);
    }

    #[test]
    fn other_command_lines_are_left_alone() {
        let run = |words: &[&str]| hidden(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(run(&["bench", "burst"]), None);
        assert_eq!(run(&["bench"]), None);
        assert_eq!(run(&["bench", PINNED_PROCESS, "1"]), Some(ExitCode::FAILURE));
    }
}
