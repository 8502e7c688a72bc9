//! The program as a person meets it: exit codes, what goes to which stream, signals.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long anything here may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

fn polder(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
    command.current_dir(folder).env("XDG_RUNTIME_DIR", folder).env_remove("POLDER_LOG");
    command
}

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        polder(folder).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

const GOOD: &str = "[[sites]]\nname = \"shop\"\nhosts = [\"shop.localhost\"]\n\
                    command = [\"serve\", \"{port}\"]\n[[nodes]]\nname = \"n\"\ncount = 3\n";

#[test]
fn a_good_file_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("polder.toml"), GOOD).unwrap();
    // Without an argument, the file in the present folder is taken.
    let (code, out, err) = run(folder.path(), &["check"]);
    assert_eq!((code, &*err), (0, ""));
    assert!(out.starts_with("polder.toml is fine: 1 site, 3 nodes, 1 edge."), "{out}");
    let (code, out, _) = run(folder.path(), &["check", "--show", "--set", "pool.hold_ms=9"]);
    assert_eq!(code, 0);
    assert!(out.contains("hold_ms = 9"), "{out}");
    // What is shown is a settings file again.
    std::fs::write(folder.path().join("shown.toml"), &out).unwrap();
    assert_eq!(run(folder.path(), &["check", "shown.toml"]).0, 0);
}

#[test]
fn who_gets_what_under_load_is_told_in_the_order_of_priorities() {
    let folder = tempfile::tempdir().unwrap();
    let blog = "[[sites]]\nname = \"blog\"\nhosts = [\"blog.localhost\"]\npriority = 2\nsoft = 3\n\
                command = [\"serve\", \"{port}\"]\n";
    let text = format!("[pool]\npolicy = \"reconf_pq\"\n{GOOD}{blog}");
    std::fs::write(folder.path().join("polder.toml"), text).unwrap();
    let (code, out, err) = run(folder.path(), &["check", "--set", "sites.shop.soft=2"]);
    assert_eq!((code, &*err), (0, ""));
    let words = |start: &str| -> Vec<String> {
        let line = out.lines().rev().find(|line| line.trim_start().starts_with(start)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    // The larger priority gets all but what the other is promised.
    assert_eq!(words("blog"), ["blog", "2", "1", "3", "-", "2", "2"], "{out}");
    assert_eq!(words("shop"), ["shop", "0", "1", "2", "-", "2", "1"], "{out}");
    let last = |name: &str| out.rfind(&format!("  {name}")).unwrap();
    assert!(last("blog") < last("shop"), "{out}");
    assert!(out.contains("`soft` sums up to 5, and there are 3 nodes"), "{out}");
    let (_, out, _) = run(folder.path(), &["check", "--json", "--set", "sites.shop.soft=2"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["fine"], true);
    assert_eq!(
        (&report["sites"][1]["alone"], &report["sites"][0]["all_loaded"]),
        (&2.into(), &1.into())
    );
}

#[test]
fn a_bad_file_is_explained_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = GOOD.replace("count = 3", "cuont = 3\nmax_in_flight = 0");
    std::fs::write(folder.path().join("bad.toml"), text).unwrap();
    let (code, out, err) = run(folder.path(), &["check", "bad.toml"]);
    assert_eq!((code, &*out), (3, ""));
    assert!(err.contains("  --> bad.toml:7:1\n") && err.contains("mean `count`?"), "{err}");
    assert!(err.contains("  --> bad.toml:8:17\n") && err.contains("1 to 65_535"), "{err}");
    assert!(err.contains("2 problems in bad.toml"), "{err}");
    assert!(!err.contains('\u{1b}'), "{err}");
    let (code, out, _) = run(folder.path(), &["check", "--json", "bad.toml"]);
    assert_eq!(code, 3);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["problems"][1]["column"], 17);
}

#[test]
fn each_failure_has_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| run(folder.path(), arguments).0;
    assert_eq!(code(&["--help"]), 0);
    assert_eq!(code(&["--version"]), 0);
    assert_eq!(code(&["fly"]), 2);
    assert_eq!(code(&["--log-level", "loud", "status"]), 2);
    assert_eq!(code(&["check"]), 3);
    assert_eq!(code(&["check", "none.toml"]), 3);
    assert_eq!(code(&["status"]), 4);
    assert_eq!(code(&["drain", "n1", "--pool", "none"]), 4);
    let (_, _, err) = run(folder.path(), &["status"]);
    assert!(err.contains("no pool of yours runs here"), "{err}");
    let (_, _, err) = run(folder.path(), &["statsu"]);
    assert!(err.contains("'status'"), "{err}");
}

#[test]
fn every_command_explains_itself() {
    let folder = tempfile::tempdir().unwrap();
    let (_, help, _) = run(folder.path(), &["--help"]);
    let named: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Usage"))
        .take_while(|line| !line.starts_with("Options"))
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(named.len() >= 9, "{help}");
    for command in named {
        let (code, out, err) = run(folder.path(), &[command, "--help"]);
        assert_eq!(code, 0, "{command}: {err}");
        assert!(out.contains("Usage:"), "{command}: {out}");
    }
}

/// A started program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn first_line(&mut self) -> String {
        let mut line = String::new();
        let out = self.0.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        line
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn wait(&mut self) -> Option<i32> {
        let started = Instant::now();
        while started.elapsed() < DEADLINE {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }
}

#[test]
fn a_stub_serves_a_burst_and_ends_on_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let child = polder(folder.path())
            .args(["stub", "--site", "shop", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stub = Running(child);
        let told: serde_json::Value = serde_json::from_str(&stub.first_line()).unwrap();
        let address = told["listeners"][0]["address"].as_str().unwrap();
        let burst = ["load", "burst", "--to", address, "--host", "a", "--requests", "50", "--json"];
        let (code, out, err) = run(folder.path(), &burst);
        assert_eq!(code, 0, "{err}");
        // No bar where nobody watches.
        assert_eq!(err, "");
        let result: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&result["ok"], &result["failed"]), (&50.into(), &0.into()));
        stub.signal(signal);
        assert_eq!(stub.wait(), Some(0));
    }
}

#[test]
fn an_interrupted_load_tells_what_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let arguments = [
        "load",
        "constant",
        "--to",
        &address,
        "--host",
        "a",
        "--rate",
        "10",
        "--seconds",
        "300",
        "--timeout-ms",
        "200",
    ];
    let child = polder(folder.path())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut load = Running(child);
    // It has connected: it is under way, and its signal handler is in place.
    let (_connection, _) = listener.accept().unwrap();
    load.signal(rustix::process::Signal::INT);
    assert_eq!(load.wait(), Some(1), "requests that got no answer fail the command");
    let mut out = String::new();
    load.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert!(out.contains("timeout"), "{out}");
}

#[test]
fn a_reader_that_had_enough_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let node = |number| format!("[[nodes]]\nname = \"m{number}\"\n");
    let nodes: String = (0..5_000).map(node).collect();
    std::fs::write(folder.path().join("polder.toml"), format!("{GOOD}{nodes}")).unwrap();
    let mut child = polder(folder.path())
        .args(["check", "--show"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
