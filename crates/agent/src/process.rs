//! Processes: starting one, knowing it again, signalling its group, burying it.
//!
//! A process is held by a pidfd, which never means another one, and is known again by its id and
//! the time that the kernel started it (field 22 of `/proc/PID/stat`, proc_pid_stat(5)).

use crate::command::Filled;
use crate::lifecycle::Process;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A server's log is emptied when it is longer: enough for the last errors of a server that keeps
/// dying, and bounded.
pub(crate) const LOG_BYTES_MAX: u64 = 1 << 20;

/// The environment variable by which a process of an agent is found even if it was never noted:
/// its value is the agent's state file.
const MARK: &str = "POLDER_STATE_FILE";
/// Environments are not read beyond this: the mark comes with the agent's own few variables, and
/// a list longer than this holds something else.
const ENVIRONMENT_BYTES_MAX: u64 = 1 << 20;

/// A process and its group, of which it is the leader.
#[derive(Debug)]
pub(crate) struct Held {
    pidfd: OwnedFd,
    pid: Pid,
    is_child: bool,
}

impl Held {
    /// Finds the very process that was noted; none if it has ended.
    pub(crate) fn find(pid: u32, start_ticks: u64) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // The identity is read with the pidfd in hand: what it confirms stays true.
        let identity = identity_of(pid)?;
        let is_it = identity.start_ticks == start_ticks && !identity.is_zombie;
        is_it.then_some(Self { pidfd, pid, is_child: false })
    }

    /// Sends a signal to the whole group. A group that is gone is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        match rustix::process::kill_process_group(self.pid, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => tracing::warn!(pid = self.pid.as_raw_pid(), %error, "cannot signal"),
        }
    }

    /// The descriptor that becomes readable when the process ends.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// After the process has ended: ends what is left of its group, buries it, says how it ended.
    pub(crate) fn bury(self) -> String {
        if !self.is_child {
            // Its parent has buried it. A group without its leader keeps the id from being given
            // away; a living process of this id is somebody else.
            if identity_of(self.pid).is_none_or(|identity| identity.is_zombie) {
                self.signal(Signal::KILL);
            }
            return "ended".to_owned();
        }
        // While the leader is not buried, its id and its group's id cannot mean anybody else.
        self.signal(Signal::KILL);
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exited with status {code}"),
                (_, Some(signal)) => format!("killed by signal {signal}"),
                _ => "ended".to_owned(),
            },
            _ => "ended".to_owned(),
        }
    }

    /// Waits until the process has ended. **Blocks** at most `timeout`.
    pub(crate) fn wait_end(&self, timeout: Duration) -> bool {
        let ends = Instant::now() + timeout;
        // Each turn ends with the process, with the time-out, or after a signal to ourselves.
        loop {
            let left = ends.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&timespec(left))) {
                Ok(0) => return false,
                Err(Errno::INTR) if !left.is_zero() => {}
                Ok(_) => return true,
                Err(_) => return false,
            }
        }
    }
}

/// A duration as `poll` takes it; at most a day, so that the kernel never refuses it.
pub(crate) fn timespec(duration: Duration) -> rustix::time::Timespec {
    let seconds = duration.as_secs().min(24 * 3600);
    rustix::time::Timespec {
        tv_sec: seconds.cast_signed(),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The mark of processes that belong to this state file.
fn mark_of(state_file: &Path) -> OsString {
    std::path::absolute(state_file).unwrap_or_else(|_| state_file.to_owned()).into_os_string()
}

/// Kills every process that bears the mark of this state file, alone: children that outlived
/// their leader, and a server whose agent was killed before it could note it. Returns how many.
/// Reads the environment of all our processes, about 20 us for each.
pub(crate) fn kill_marked(state_file: &Path) -> io::Result<usize> {
    let mut mark = OsString::from(format!("{MARK}="));
    mark.push(mark_of(state_file));
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|pid| *pid != rustix::process::getpid()) else { continue };
        let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if bears(pid, mark.as_encoded_bytes())
            && rustix::process::pidfd_send_signal(&pidfd, Signal::KILL).is_ok()
        {
            killed += 1;
        }
    }
    Ok(killed)
}

/// Whether one variable of the process's environment is this one. Processes of other users, dead
/// ones and those that overwrote it bear no mark.
fn bears(pid: Pid, variable: &[u8]) -> bool {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{}/environ", pid.as_raw_pid()));
    let read = file.and_then(|f| f.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment));
    read.is_ok() && environment.split(|byte| *byte == 0).any(|found| found == variable)
}

/// What tells a process from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) start_ticks: u64,
    is_zombie: bool,
}

/// Whether the process that was noted still runs.
pub(crate) fn is_alive(pid: u32, start_ticks: u64) -> bool {
    Held::find(pid, start_ticks).is_some()
}

/// When this process started, in clock ticks since boot.
pub(crate) fn own_start_ticks() -> u64 {
    identity_of(rustix::process::getpid()).map_or(0, |identity| identity.start_ticks)
}

fn identity_of(pid: Pid) -> Option<Identity> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    parse_stat(&stat)
}

/// The program's name stands in parentheses and may hold anything, parentheses too: fields are
/// counted from the last one. State is field 3, the start time field 22.
fn parse_stat(stat: &str) -> Option<Identity> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_zombie = matches!(fields.next()?, "Z" | "X");
    let start_ticks = fields.nth(22 - 4)?.parse().ok()?;
    Some(Identity { start_ticks, is_zombie })
}

/// Starts a program in a group of its own, its output appended to `log`, marked as one that the
/// agent with this state file started. The caller holds it and
/// buries it. **Blocks** for the start of the program, about a millisecond.
pub(crate) fn start(
    filled: &Filled,
    address: SocketAddrV4,
    log: &Path,
    state_file: &Path,
) -> io::Result<(Held, Process)> {
    let log = open_log(log).map_err(|error| {
        io::Error::new(error.kind(), format!("its log {}: {error}", log.display()))
    })?;
    let (program, arguments) =
        filled.argv.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut child = Command::new(program)
        .args(arguments)
        .envs(filled.env.iter().map(|(name, value)| (name, value)))
        .env(MARK, mark_of(state_file))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let raw = child.id();
    let pid = Pid::from_child(&child);
    // The child stays a zombie until it is buried, so its id means nobody else.
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(errno) => {
            // A process that cannot be held must not run; it has just started.
            child.kill()?;
            child.wait()?;
            return Err(errno.into());
        }
    };
    let start_ticks = identity_of(pid).map_or(0, |identity| identity.start_ticks);
    let held = Held { pidfd, pid, is_child: true };
    Ok((held, Process { pid: raw, start_ticks, address }))
}

fn open_log(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    trim_log(&file)?;
    Ok(file)
}

/// Empties a log that has grown too long; its writers append, so they go on at its start.
fn trim_log(file: &File) -> io::Result<()> {
    if file.metadata()?.len() > LOG_BYTES_MAX {
        file.set_len(0)?;
    }
    Ok(())
}

/// Empties the log at `path` if it has grown too long.
pub(crate) fn trim_log_at(path: &Path) {
    // A log that cannot be opened was reported when its server could not start.
    if let Ok(file) = OpenOptions::new().append(true).open(path) {
        let _ = trim_log(&file);
    }
}

/// A port that nobody listens on. Somebody else may take it before the server does; then the
/// server fails to bind and starts again with another.
pub(crate) fn free_port(host: Ipv4Addr) -> io::Result<SocketAddrV4> {
    let listener = TcpListener::bind(SocketAddrV4::new(host, 0))?;
    let port = listener.local_addr()?.port();
    Ok(SocketAddrV4::new(host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(seconds: &str) -> (Held, Process) {
        let directory = tempfile::tempdir().unwrap();
        let argv = vec!["sleep".to_owned(), seconds.to_owned()];
        let filled = Filled { argv, env: Vec::new() };
        let address = free_port(Ipv4Addr::LOCALHOST).unwrap();
        let log = directory.path().join("log");
        start(&filled, address, &log, &directory.path().join("state")).unwrap()
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let numbers: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("17 (a) b (c)) S {}", numbers.join(" "));
        assert_eq!(parse_stat(&stat), Some(Identity { start_ticks: 22, is_zombie: false }));
        let dead = format!("17 (a) Z {}", numbers.join(" "));
        assert!(parse_stat(&dead).unwrap().is_zombie);
        for bad in ["", "17 (a", "17 (a) S 4 5", "17 (a) S 4 5 6 7 8 9 x x x x x x x x x x x x x x"]
        {
            assert_eq!(parse_stat(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_process_is_known_again_until_it_ends() {
        let (held, process) = sleeper("60");
        assert!(is_alive(process.pid, process.start_ticks));
        assert!(!is_alive(process.pid, process.start_ticks + 1), "a recycled id is someone else");
        assert!(!held.wait_end(Duration::from_millis(1)));
        held.signal(Signal::TERM);
        assert!(held.wait_end(Duration::from_secs(10)));
        assert!(!is_alive(process.pid, process.start_ticks), "a zombie does not run");
        assert_eq!(held.bury(), "killed by signal 15");
    }

    #[test]
    fn the_whole_group_ends_with_its_leader() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let script = "sleep 60 & echo $!; exit 3".to_owned();
        let filled = Filled { argv: vec!["sh".into(), "-c".into(), script], env: Vec::new() };
        let address = free_port(Ipv4Addr::LOCALHOST).unwrap();
        let (held, _) = start(&filled, address, &log, &log).unwrap();
        assert!(held.wait_end(Duration::from_secs(10)));
        let member: i32 = std::fs::read_to_string(&log).unwrap().trim().parse().unwrap();
        let member = Pid::from_raw(member).unwrap();
        assert_eq!(held.bury(), "exited with status 3");
        let ends = Instant::now() + Duration::from_secs(10);
        while identity_of(member).is_some_and(|identity| !identity.is_zombie) {
            assert!(Instant::now() < ends, "the group outlives its leader");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_long_log_is_emptied_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, vec![b'x'; LOG_BYTES_MAX as usize + 1]).unwrap();
        assert_eq!(open_log(&path).unwrap().metadata().unwrap().len(), 0);
    }
}
