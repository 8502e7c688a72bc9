//! Under a service manager: its unit files, the sockets that it hands over, what it is told.

#![allow(clippy::unwrap_used)] // A failed step of a test is a failed test.

mod common;

use common::client::Connection;
use common::pool::{PROGRAM, Recipe};
use common::{PATIENCE, eventually, process};
use polder::control::{ReloadArguments, Request, UpgradeArguments, ask};
use rustix::process::Signal;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// The most that systemd may find exposed, of 10; below 2 it says "OK".
const EXPOSURE_MAX: &str = "20";

/// The unit files with this build's program.
fn units() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    for name in ["polder.service", "polder.socket"] {
        let text = std::fs::read_to_string(from.join(name)).unwrap();
        std::fs::write(folder.path().join(name), text.replace("/usr/bin/polder", PROGRAM)).unwrap();
    }
    folder
}

fn analyze(arguments: &[&str], units: &[PathBuf]) -> Option<(bool, String)> {
    let Ok(output) = Command::new("systemd-analyze").args(arguments).args(units).output() else {
        println!("skipped: systemd-analyze is not there");
        return None;
    };
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let folder = units();
    let units = ["polder.service", "polder.socket"].map(|name| folder.path().join(name));
    let Some((ok, said)) = analyze(&["verify", "--man=no"], &units) else { return };
    // It looks at the whole machine; only what concerns these units counts.
    let concerns: Vec<_> = said.lines().filter(|line| line.contains("polder.")).collect();
    assert!(ok && concerns.is_empty(), "{said}");
}

#[test]
fn systemd_finds_little_exposed() {
    let folder = units();
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let service = [folder.path().join("polder.service")];
    let Some((ok, said)) = analyze(&["security", "--offline=true", &threshold], &service) else {
        return;
    };
    assert!(ok, "{said}");
}

/// Plays the service manager: holds a socket, hears what it is told, starts the pool with both.
struct Manager {
    home: TempDir,
    socket: TcpListener,
    told: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let home = tempfile::Builder::new().prefix("polder-t-").tempdir_in("/tmp").unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = UnixDatagram::bind(home.path().join("notify")).unwrap();
        told.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut recipe = Recipe::new(&[("red", "")], 1).agents(Duration::from_millis(1));
        // Two edges share it.
        recipe.edges = 2;
        let address = socket.local_addr().unwrap();
        let text = recipe.text(&home.path().join("run"), &[address, address], None);
        std::fs::write(home.path().join("polder.toml"), text).unwrap();
        Self { home, socket, told }
    }

    fn address(&self) -> SocketAddr {
        self.socket.local_addr().unwrap()
    }

    fn control(&self) -> PathBuf {
        self.home.path().join("run/control.sock")
    }

    fn start(&self) -> Child {
        let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" up \"$1\" 3<&0 </dev/null";
        let log = File::options().create(true).append(true).open(self.home.path().join("log"));
        Command::new("sh")
            .args(["-c", script, PROGRAM])
            .arg(self.home.path().join("polder.toml"))
            .env("NOTIFY_SOCKET", self.home.path().join("notify"))
            .stdin(Stdio::from(OwnedFd::from(self.socket.try_clone().unwrap())))
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    /// The next thing that it is told.
    fn hear(&self) -> String {
        let mut buffer = [0; 200];
        let log = || std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        let heard = self.told.recv(&mut buffer);
        let count = heard.unwrap_or_else(|error| panic!("{error}; log:\n{}", log()));
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    fn served(&self) -> u16 {
        Connection::open(self.address()).unwrap().request("GET", "red.test", "/").unwrap().status
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for pid in process::with(self.home.path()) {
            process::signal(pid, Signal::KILL);
        }
    }
}

#[test]
fn sockets_of_the_manager_outlive_the_pool_and_the_program() {
    let manager = Manager::new();
    let mut first = manager.start();
    assert_eq!((manager.hear().as_str(), manager.served()), ("READY=1", 200));
    let reload = Request::Reload(ReloadArguments::default());
    ask(&manager.control(), &reload, PATIENCE).unwrap();
    assert!(manager.hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(manager.hear(), "READY=1");
    // Another program in the same process still has the socket, and the manager's ear.
    let upgrade = Request::Upgrade(UpgradeArguments::default());
    assert!(ask(&manager.control(), &upgrade, PATIENCE).is_err(), "the connection breaks off");
    assert!(manager.hear().starts_with("RELOADING=1"));
    assert_eq!((manager.hear().as_str(), manager.served()), ("READY=1", 200));
    // It dies. Who comes now waits, and is served by the next.
    process::signal(first.id(), Signal::KILL);
    first.wait().unwrap();
    eventually("its edges have ended", || {
        let left = process::with(manager.home.path());
        !left.iter().any(|pid| process::command_line(*pid).contains("edge-process"))
    });
    let mut waits = Connection::open(manager.address()).unwrap();
    waits.send("GET", "red.test", "/").unwrap();
    let mut second = manager.start();
    assert_eq!(waits.receive().unwrap().status, 200);
    while manager.hear() != "READY=1" {}
    process::signal(second.id(), Signal::TERM);
    assert_eq!(manager.hear(), "STOPPING=1");
    assert_eq!(second.wait().unwrap().code(), Some(0));
}
