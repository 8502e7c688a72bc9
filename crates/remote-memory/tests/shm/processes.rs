//! Owners and peers in processes of their own: stopped, killed, contending, asleep.
//!
//! A child is this test program again, told its part by the environment ([`child_part`]). It
//! ends when its standard input does, so none outlives the test.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use remote_memory::shm::{OwnedRegion, RegionServer, ShmError, attach};
use remote_memory::{Mapped, WaitEnd, Wake};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::support::{DEADLINE, eventually, private_directory};

const PART: &str = "POLDER_TEST_PART";
const SOCKET: &str = "POLDER_TEST_SOCKET";

/// Words of the test region: the owner counts in the first and copies the second to the third.
const COUNT: u64 = 0;
const QUESTION: u64 = 8;
const ANSWER: u64 = 16;

/// Additions of each contender; both together take milliseconds.
const ROUNDS: u64 = 50_000;

/// A child that is killed and reaped with the test.
pub(crate) struct Part {
    child: Child,
}

impl Part {
    pub(crate) fn start(part: &str, socket: &Path) -> Self {
        Self::start_as(part, socket, &mut Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts with a command prepared by the caller and waits until the child is ready.
    pub(crate) fn start_as(part: &str, socket: &Path, command: &mut Command) -> Self {
        let child = command
            .args(["processes::child_part", "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut part = Self { child };
        let ready = part.lines().any(|line| line.ends_with("ready"));
        assert!(ready, "the child ended before it was ready");
        part
    }

    /// What the child says, line by line. To be taken once for "ready", once for the rest.
    fn lines(&mut self) -> impl Iterator<Item = String> + '_ {
        // Unbuffered, so that nothing is lost between two takers.
        let stdout = self.child.stdout.as_mut().unwrap();
        std::iter::from_fn(move || {
            let mut line = Vec::new();
            let mut byte = [0];
            while stdout.read(&mut byte).unwrap() == 1 {
                if byte[0] == b'\n' {
                    return Some(String::from_utf8_lossy(&line).into_owned());
                }
                line.push(byte[0]);
            }
            None
        })
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits for the child's own end and returns what it said.
    pub(crate) fn finish(mut self) -> Vec<String> {
        let said: Vec<_> = self.lines().collect();
        assert!(self.child.wait().unwrap().success(), "the child failed: {said:?}");
        said
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the tests run this in processes of their own.
#[test]
fn child_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let socket = PathBuf::from(std::env::var(SOCKET).unwrap());
    std::thread::spawn(|| {
        // The parent's end of the pipe closes with the parent.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    match part.as_str() {
        "owner" => own(&socket, false),
        "owner with a program" => own(&socket, true),
        "contender" => contend(&socket),
        "sleeper" => sleep(&socket),
        "stranger" => {
            println!("ready");
            match attach(&socket, DEADLINE) {
                Ok(_) => println!("attached"),
                Err(error) => println!("error: {error:?}"),
            }
        }
        other => panic!("no part {other}"),
    }
}

fn own(socket: &Path, with_program: bool) {
    let region = Arc::new(OwnedRegion::create("child", 64).unwrap());
    let _server = RegionServer::bind(socket, Arc::clone(&region)).unwrap();
    if with_program {
        // A peer is connected while the program starts, so that it could inherit its socket.
        let _attachment = attach(socket, DEADLINE).unwrap();
        let mut program = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
        // Not waited for below: this process is killed, and the program outlives it.
        std::thread::spawn(move || program.wait());
    }
    println!("ready");
    // Ends with the process.
    loop {
        region.fetch_and_add(COUNT, 1).unwrap();
        region.write(ANSWER, region.read(QUESTION).unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn contend(socket: &Path) {
    let attachment = attach(socket, DEADLINE).unwrap();
    println!("ready");
    contend_on(&*attachment.region());
}

/// Adds to one word, and counts in another by compare-and-swap.
fn contend_on(region: &dyn Mapped) {
    let start = 24;
    region.fetch_and_add(start, 1).unwrap();
    eventually("both contend", || region.read(start) == Ok(2));
    for _ in 0..ROUNDS {
        region.fetch_and_add(0, 1).unwrap();
        let mut current = region.read(8).unwrap();
        // Each failure is a success of the other, which has a bounded number of them.
        loop {
            match region.compare_and_swap(8, current, current + 1).unwrap() {
                found if found == current => break,
                found => current = found,
            }
        }
    }
}

fn sleep(socket: &Path) {
    let attachment = attach(socket, DEADLINE).unwrap();
    let region = attachment.region();
    println!("ready");
    // A wake can come early: sleep until the word has changed.
    while region.read(0) == Ok(0) {
        assert_ne!(region.wait(0, 0, DEADLINE).unwrap(), WaitEnd::TimedOut);
    }
    region.write(8, 1).unwrap();
    region.wake(1, 1).unwrap();
}

#[test]
fn operations_do_not_need_the_owner_to_run() {
    let directory = private_directory();
    let socket = directory.path().join("owner.sock");
    let owner = Part::start("owner", &socket);
    let attachment = attach(&socket, DEADLINE).unwrap();
    let region = attachment.region();
    eventually("the owner counts", || region.read(COUNT).unwrap() > 3);

    kill_process(owner.pid(), Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(owner.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "{status:?}");
    let count = region.read(COUNT).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(region.read(COUNT), Ok(count), "a stopped owner counts nothing");
    // All four operations, and no answer from the owner.
    region.write(QUESTION, 40).unwrap();
    assert_eq!(region.compare_and_swap(QUESTION, 40, 41), Ok(40));
    assert_eq!(region.fetch_and_add(QUESTION, 1), Ok(41));
    assert_eq!(region.read(QUESTION), Ok(42));
    assert_eq!(region.fetch_and_add(COUNT, 1_000_000), Ok(count));
    assert_ne!(region.read(ANSWER), Ok(42));
    assert!(attachment.owner_alive(), "stopped is not dead");
    // Only attaching needs the owner's thread, and says so in time.
    let late = attach(&socket, Duration::from_millis(50)).err();
    assert!(matches!(late, Some(ShmError::Deadline { .. })), "{late:?}");

    kill_process(owner.pid(), Signal::CONT).unwrap();
    eventually("the owner has seen it", || region.read(ANSWER) == Ok(42));
    eventually("the owner counts on", || region.read(COUNT).unwrap() > count + 1_000_000);
}

#[test]
fn a_killed_owner_is_seen_and_its_region_stays_readable() {
    let directory = private_directory();
    let socket = directory.path().join("owner.sock");
    let mut owner = Part::start("owner", &socket);
    let attachment = attach(&socket, DEADLINE).unwrap();
    let region = attachment.region();
    assert!(attachment.owner_alive());
    eventually("the owner counts", || region.read(COUNT).unwrap() > 0);
    owner.kill();
    eventually("the end is seen", || !attachment.owner_alive());
    let count = region.read(COUNT).unwrap();
    assert_eq!(region.compare_and_swap(COUNT, count, 0), Ok(count));
    assert!(matches!(attach(&socket, DEADLINE).err(), Some(ShmError::NoOwner { .. })));

    // The next owner replaces the socket that the dead one left, with a new region.
    assert!(socket.exists());
    let _next = Part::start("owner", &socket);
    let again = attach(&socket, DEADLINE).unwrap();
    let (old, new) = (region.descriptor().clone(), again.region().descriptor().clone());
    assert_ne!((old.key, old.incarnation), (new.key, new.incarnation));
    eventually("the new owner counts", || again.region().read(COUNT).unwrap() > 0);
    assert_eq!(region.read(COUNT), Ok(0), "in memory of its own");
}

#[test]
fn processes_contend_without_losing_anything() {
    let directory = private_directory();
    let socket = directory.path().join("shared.sock");
    let region = Arc::new(OwnedRegion::create("shared", 64).unwrap());
    let _server = RegionServer::bind(&socket, Arc::clone(&region)).unwrap();
    let contender = Part::start("contender", &socket);
    contend_on(&*region);
    contender.finish();
    assert_eq!(region.read(0), Ok(2 * ROUNDS));
    assert_eq!(region.read(8), Ok(2 * ROUNDS));
}

#[test]
fn a_wake_reaches_a_sleeper_in_another_process() {
    let directory = private_directory();
    let socket = directory.path().join("shared.sock");
    let region = Arc::new(OwnedRegion::create("shared", 64).unwrap());
    let _server = RegionServer::bind(&socket, Arc::clone(&region)).unwrap();
    let sleeper = Part::start("sleeper", &socket);
    // The word stays 0 until somebody was woken, so a wake has reached the other process.
    eventually("the sleeper sleeps and is woken", || region.wake(0, 1).unwrap() == 1);
    region.write(0, 1).unwrap();
    region.wake(0, u32::MAX).unwrap();
    while region.read(8) == Ok(0) {
        assert_ne!(region.wait(1, 0, DEADLINE).unwrap(), WaitEnd::TimedOut);
    }
    sleeper.finish();
}

#[test]
fn a_program_that_the_owner_started_does_not_keep_its_connections() {
    let directory = private_directory();
    let socket = directory.path().join("owner.sock");
    let mut owner = Part::start("owner with a program", &socket);
    let attachment = attach(&socket, DEADLINE).unwrap();
    assert!(attachment.owner_alive());
    owner.kill();
    // The program lives on; it reads the standard input that this test holds open.
    eventually("the end is seen", || !attachment.owner_alive());
    eventually("nobody listens", || {
        matches!(attach(&socket, Duration::from_secs(1)).err(), Some(ShmError::NoOwner { .. }))
    });
}
