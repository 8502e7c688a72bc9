//! The demo as a person meets it: whole, twice at once, with few open files, stopped, killed, on a
//! terminal and with a reader that goes away.

#![allow(clippy::unwrap_used)]

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Processes of a demo are found by this variable, which children inherit.
const MARK: &str = "POLDER_DEMO_TEST";
/// One demo at a time: each takes all of a small machine.
static ALONE: Mutex<()> = Mutex::new(());
/// How long a demo of ten seconds may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(100);
const POLL: Duration = Duration::from_millis(20);

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A demo without what a login brings, whose processes can be found by `mark`.
fn demo(mark: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
    command.arg("demo").args(["--seconds", "10"]).args(arguments);
    surround(&mut command, mark);
    command
}

fn surround(command: &mut Command, mark: &str) {
    command.env(MARK, full(mark)).env_remove("XDG_RUNTIME_DIR").env_remove("POLDER_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

fn full(mark: &str) -> String {
    format!("{mark}-{}", std::process::id())
}

/// The processes that a demo with this mark has now.
fn processes(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={}", full(mark));
    let is_marked = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|one| one == wanted.as_bytes())
    };
    let numbers = fs::read_dir("/proc").unwrap().flatten();
    numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_marked).collect()
}

fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < limit, "{what}: not so after {limit:?}");
        sleep(POLL);
    }
}

fn wait_for_no_process(mark: &str) {
    wait_until("no process is left", Duration::from_secs(20), || processes(mark).is_empty());
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Reads until the table has a line with numbers: the pool runs, and load is made.
fn read_until_busy(out: &mut BufReader<ChildStdout>) -> Vec<String> {
    let mut lines = Vec::new();
    while !lines.last().is_some_and(|line: &String| line.contains(" ms ")) {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0, "it ended early: {lines:?}");
        lines.push(line);
    }
    lines
}

/// The object on the last line, and that it adds up.
fn checked_json(text: &str) -> Value {
    let last = text.lines().last().unwrap_or_default();
    let json: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}"));
    let of = |value: &Value, name: &str| value[name].as_u64().unwrap();
    assert_eq!(of(&json, "requests"), of(&json, "ok") + of(&json, "failed"), "{json}");
    assert_eq!(of(&json, "failed"), 0, "{text}");
    let parts = json["schemes"].as_array().unwrap().iter().chain([&json["watched"]]);
    let sum: u64 = parts.map(|part| of(part, "requests")).sum();
    assert!(sum > 0 && sum <= of(&json, "requests"), "{json}");
    json
}

fn check_whole(output: &Output) {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{complaints}");
    assert_eq!(complaints, "");
    assert!(!text.contains('\u{1b}'), "an escape without a terminal: {text:?}");
    let json = checked_json(&text);
    assert_eq!(json["partial"], false);
    assert!(json["moves"].as_u64().unwrap() > 0, "{text}");
    for scheme in json["schemes"].as_array().unwrap() {
        assert_eq!(scheme["rounds"], 3, "{text}");
        assert!(scheme["requests_per_s"].as_f64().unwrap() > 0.0, "{text}");
    }
    for name in ["rigid", "polder", "over-provisioned", "What to try next", "moved from"] {
        assert!(text.contains(name), "{name}: {text}");
    }
}

#[test]
fn a_demo_draws_its_picture_and_its_pool_can_be_kept() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo("kept", &["--keep"]).current_dir(&folder).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("--runtime-dir") {
        assert!(out.read_line(&mut text).unwrap() > 0, "it ended early: {text}");
    }
    let svg = fs::read_to_string(folder.path().join("polder-demo.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("over-provisioned, 18 nodes"));
    assert!(text.contains("The picture: ") && text.contains(" 0 failed."), "{text}");
    let words = text.lines().last().unwrap().split_whitespace().skip(1);
    let mut status = Command::new(env!("CARGO_BIN_EXE_polder"));
    let answer = status.args(words.filter(|word| *word != "--watch")).output().unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.contains("load") && answer.contains("video"), "the moves: {answer}");
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(0), "it was not stopped before its end");
    assert!(processes("kept").is_empty());
}

#[test]
fn two_demos_run_side_by_side_with_few_open_files() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let start = |mark: &str| {
        let mut shell = Command::new("sh");
        let script = "ulimit -n 1024; exec \"$0\" demo --seconds 10 --plain --no-svg --json";
        shell.args(["-c", script, env!("CARGO_BIN_EXE_polder")]).current_dir(&folder);
        surround(&mut shell, mark);
        shell.spawn().unwrap()
    };
    let both = ["one", "other"].map(start);
    for output in both.map(|child| child.wait_with_output().unwrap()) {
        check_whole(&output);
    }
    assert!(processes("one").is_empty() && processes("other").is_empty());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "--no-svg writes nothing");
}

#[test]
fn ctrl_c_on_a_terminal_ends_it_soon_and_gives_the_cursor_back() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let inner = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let mut command = demo("ctrl-c", &["--json"]);
    command.env("TERM", "xterm").env_remove("NO_COLOR").current_dir(&folder).stdout(inner);
    let mut child = command.spawn().unwrap();
    drop(command);
    let reader = std::thread::spawn(move || {
        let (mut seen, mut chunk) = (Vec::new(), [0; 4_096]);
        let mut terminal = File::from(terminal);
        // The end of a terminal is an error.
        while let Ok(count @ 1..) = terminal.read(&mut chunk) {
            seen.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8(seen).unwrap()
    });
    wait_until("the pool runs", PATIENCE, || processes("ctrl-c").len() >= 5);
    sleep(Duration::from_secs(2));
    signal(&child, Signal::INT);
    let asked = Instant::now();
    let status = child.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(status.code(), Some(130));
    assert!(processes("ctrl-c").is_empty());
    let text = reader.join().unwrap().replace("\r\n", "\n");
    assert!(text.contains("\u{1b}[?25l") && text.contains("shop"), "{text:?}");
    let shown = text.rfind("\u{1b}[?25h").expect("the cursor is shown again");
    assert!(text.rfind("\u{1b}[?25l").unwrap() < shown, "{text:?}");
    assert!(text.contains("Interrupted: what follows is partial"), "{text:?}");
    let json = text.lines().find(|line| line.starts_with('{')).expect("results all the same");
    let json = checked_json(json);
    assert_eq!(json["partial"], true);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no picture of half a comparison");
}

#[test]
fn a_killed_demo_leaves_no_process_and_the_next_one_runs() {
    let _alone = alone();
    let start = |mark: &str| demo(mark, &["--plain", "--no-svg"]).spawn().unwrap();
    let mut killed = start("killed");
    let mut out = BufReader::new(killed.stdout.take().unwrap());
    read_until_busy(&mut out);
    let running = processes("killed").len();
    assert!(running >= 5, "itself, up, two edges, a stub: {running}");
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for_no_process("killed");
    let mut next = start("next");
    let mut out = BufReader::new(next.stdout.take().unwrap());
    let lines = read_until_busy(&mut out);
    assert!(lines.iter().any(|line| line.contains("shop")), "{lines:?}");
    signal(&next, Signal::TERM);
    assert_eq!(next.wait().unwrap().code(), Some(130));
    assert!(processes("next").is_empty());
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let _alone = alone();
    let mut child = demo("pipe", &["--plain", "--no-svg"]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(processes("pipe").is_empty());
}

#[test]
fn what_cannot_work_is_told_before_the_minute_has_passed() {
    let refused = |arguments: &[&str], code: i32| {
        let started = Instant::now();
        let output = demo("refused", arguments).output().unwrap();
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let missing = Path::new(env!("CARGO_TARGET_TMPDIR")).join("missing").join("a.svg");
    let told = refused(&["--svg", missing.to_str().unwrap()], 1);
    assert!(told.contains("a.svg") && told.contains("--no-svg"), "{told}");
    let told = refused(&["--seed", "one"], 2);
    assert!(told.contains("--seed"), "{told}");
    let told = refused(&["--svg", "a.svg", "--no-svg"], 2);
    assert!(told.contains("--no-svg"), "{told}");
}
