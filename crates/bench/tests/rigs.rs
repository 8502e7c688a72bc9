//! Pools of the figures as whole processes: with few files, without a terminal, two at once,
//! interrupted, killed. None may leave a process or a folder behind.

#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Far above what a start or a stop takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const BENCH: &str = env!("CARGO_BIN_EXE_bench");

/// A smoke run that goes on until it is ended, and what it started.
struct Running {
    child: Child,
    processes: Vec<u64>,
    folder: PathBuf,
}

impl Running {
    fn start() -> Self {
        let spawned = Command::new(BENCH)
            .args(["smoke", "--seconds", "600"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = spawned.unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let processes = told["processes"].as_array().unwrap().iter();
        let processes: Vec<u64> = processes.map(|number| number.as_u64().unwrap()).collect();
        let folder = PathBuf::from(told["folder"].as_str().unwrap());
        assert_eq!(processes.len(), 4, "stub, parent and two edges: {line}");
        assert!(processes.iter().all(|&process| is_alive(process)) && folder.is_dir());
        Self { child, processes, folder }
    }

    fn end(&mut self, signal: &str) -> Option<i32> {
        let number = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &number]).status().unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end after {signal}");
            sleep(Duration::from_millis(20));
        }
    }

    fn wait_for_the_others(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.processes.iter().any(|&process| is_alive(process)) {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.processes);
            sleep(Duration::from_millis(20));
        }
    }
}

/// Whether a process runs; one that has ended and is not waited for does not.
fn is_alive(process: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

fn result(stdout: &[u8]) -> Value {
    let text = String::from_utf8_lossy(stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn two_pools_at_once_serve_and_move_with_few_files_and_without_a_terminal() {
    let start = || {
        Command::new("sh")
            .args(["-c", "ulimit -n 1024 && exec \"$0\" smoke", BENCH])
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let both = [start(), start()];
    for child in both {
        let output = child.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{log}");
        let result = result(&output.stdout);
        assert_eq!(result["failed_requests"], 0, "{result}");
        assert_eq!(result["adds_up"], true);
        assert!(result["requests"].as_u64().unwrap() > 100, "{result}");
        assert!(result["moves"].as_u64().unwrap() > 0, "{result}");
        // Replayed from all moves of both edges: one node is promised to each site, and one of
        // the four moved.
        assert_eq!(result["below_hard_ns"], 0, "{result}");
        assert_eq!(result["fewest_nodes"], 1, "{result}");
    }
}

#[test]
fn an_interrupted_figure_leaves_nothing() {
    let mut running = Running::start();
    let code = running.end("-INT");
    assert_eq!(code, Some(1), "it says that it was interrupted");
    running.wait_for_the_others();
    assert!(!running.folder.exists());
}

#[test]
fn a_killed_figure_leaves_no_process_and_the_next_one_removes_its_folder() {
    let mut running = Running::start();
    assert_eq!(running.end("-KILL"), None);
    running.wait_for_the_others();
    let place = running.folder.parent().map(Path::to_owned).unwrap();
    let next = Command::new(BENCH).arg("smoke").env("TMPDIR", place).output().unwrap();
    assert!(next.status.success(), "{}", String::from_utf8_lossy(&next.stderr));
    assert!(!running.folder.exists(), "{}", running.folder.display());
}

#[test]
fn a_pool_of_limited_apache_nodes_serves_and_moves_and_a_killed_one_leaves_nothing_for_long() {
    let smoke = |seconds: &str| {
        let mut command = Command::new(BENCH);
        command.args(["smoke", "--apps", "apache", "--seconds", seconds]).stdin(Stdio::null());
        command
    };
    // This one is killed while it serves.
    let piped = smoke("600").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut killed = piped.unwrap();
    let mut line = String::new();
    BufReader::new(killed.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = killed.wait_with_output().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_lack =
            ["no CPU quota can be given", "was not found"].iter().any(|w| log.contains(w));
        assert!(is_lack, "{log}");
        eprintln!("skipped: {log}");
        return;
    }
    let number = killed.id();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let output = smoke("1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = result(&output.stdout);
    assert_eq!(result["failed_requests"], 0, "{result}");
    assert!(result["requests"].as_u64().unwrap() > 100, "{result}");
    assert!(result["moves"].as_u64().unwrap() > 0, "{result}");
    // The next run has removed what the killed one left, groups and folders.
    let left = format!("polder-lab-{number}-");
    for place in ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup", "/tmp"] {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        assert!(!names.any(|name| name.starts_with(&left)), "{place}");
    }
}

#[test]
fn the_help_names_the_figures_and_hides_the_rest() {
    let output = Command::new(BENCH).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for figure in ["burst", "sensitivity", "churn", "all"] {
        assert!(help.contains(figure), "{help}");
    }
    for hidden in ["smoke", "edge-process", "stub-process"] {
        assert!(!help.contains(hidden), "{help}");
    }
}
