//! Owners and peers in processes of their own: stopped, killed, contending, asleep.
//!
//! A child is this test program again, told its part by the environment ([`child_part`]). It
//! ends when its standard input does, so none outlives the test.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
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

/// Two words, one for each contender: how many starts it has come to.
const STARTS: u64 = 0;
/// Words that the contenders share, each on a cache line of its own: a neighbour's traffic would
/// keep them from meeting.
const ADDED: u64 = 128;
const SWAPPED: u64 = 256;
const WON: u64 = 384;

/// Rounds of the contenders, whose halves both start together: within one, a part of a time
/// slice, both are on processors of their own. All rounds take some tenths of a second.
const ROUNDS: u64 = 200;
/// Additions of each contender in a round, and values that they swap their way through.
const STEPS: u64 = 10_000;
/// Turns of waiting for the other before leaving the processor: some 100 us.
const SPINS_MAX: u32 = 50_000;

/// A child that is killed and reaped with the test.
pub(crate) struct Part {
    child: Child,
    /// Taken out of `child`, whose `wait` would close it: it tells of this test's end only.
    _stdin: Option<ChildStdin>,
}

impl Part {
    pub(crate) fn start(part: &str, socket: &Path) -> Self {
        Self::start_as(part, socket, &mut Command::new(std::env::current_exe().unwrap()))
    }

    /// Starts with a command prepared by the caller and waits until the child is ready.
    pub(crate) fn start_as(part: &str, socket: &Path, command: &mut Command) -> Self {
        let mut child = command
            .args(["processes::child_part", "--exact", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let _stdin = child.stdin.take();
        let mut part = Self { child, _stdin };
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
    println!("ready");
    if with_program {
        // The peer asks for it once it is connected, so that the program could inherit that.
        eventually("a peer asks", || region.read(QUESTION) == Ok(1));
        let mut program = Command::new("cat").stdout(Stdio::null()).spawn().unwrap();
        // Not waited for below: this process is killed, and the program outlives it.
        std::thread::spawn(move || program.wait());
    }
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
    contend_on(&*attachment.region(), 1);
}

/// Adds to one word, and takes another from value to value, which one contender can for each.
fn contend_on(region: &dyn Mapped, me: u64) {
    let mut won = 0;
    for round in 0..ROUNDS {
        start_together(region, me, 2 * round + 1);
        for _ in 0..STEPS {
            region.fetch_and_add(ADDED, 1).unwrap();
        }
        start_together(region, me, 2 * round + 2);
        for value in round * STEPS..(round + 1) * STEPS {
            let found = region.compare_and_swap(SWAPPED, value, value + 1).unwrap();
            assert!(found >= value, "the word went back to {found}, behind {value}");
            won += u64::from(found == value);
        }
    }
    region.fetch_and_add(WON, won).unwrap();
}

/// Waits for the other contender without leaving the processor, if it comes soon.
fn start_together(region: &dyn Mapped, me: u64, start: u64) {
    region.write(STARTS + 8 * me, start).unwrap();
    let mut spins = 0;
    let there = || region.read(STARTS + 8 * (1 - me)).unwrap() >= start;
    while !there() && spins < SPINS_MAX {
        spins += 1;
        std::hint::spin_loop();
    }
    eventually("the other contender comes", there);
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
    let region = Arc::new(OwnedRegion::create("shared", 4096).unwrap());
    let _server = RegionServer::bind(&socket, Arc::clone(&region)).unwrap();
    let contender = Part::start("contender", &socket);
    contend_on(&*region, 0);
    contender.finish();
    assert_eq!(region.read(ADDED), Ok(2 * ROUNDS * STEPS));
    assert_eq!(region.read(SWAPPED), Ok(ROUNDS * STEPS));
    assert_eq!(region.read(WON), Ok(ROUNDS * STEPS), "each value has one winner");
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
    attachment.region().write(QUESTION, 1).unwrap();
    eventually("the program runs", || attachment.region().read(ANSWER) == Ok(1));
    assert!(attachment.owner_alive());
    owner.kill();
    // The program lives on; it reads the standard input that this test holds open.
    eventually("the end is seen", || !attachment.owner_alive());
    eventually("nobody listens", || {
        matches!(attach(&socket, Duration::from_secs(1)).err(), Some(ShmError::NoOwner { .. }))
    });
}
