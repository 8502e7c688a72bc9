//! A child process, known by its number and by a descriptor of it: one that this program started,
//! or one that it took over from the program whose place it has.

use crate::sys;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use tokio::io::unix::AsyncFd;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody knows: somebody else asked first.
    Unknown,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// A child. It is killed when this is dropped before its end.
pub(super) struct Process {
    pid: u32,
    descriptor: AsyncFd<OwnedFd>,
    has_ended: bool,
}

impl Process {
    /// A child of this process. To be called within a tokio runtime.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidInput)?;
        let descriptor = pidfd_open(number, PidfdFlags::empty())?;
        Ok(Self { pid, descriptor: sys::watched(descriptor)?, has_ended: false })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends it a signal; one that has ended needs none.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(self.descriptor.get_ref(), signal);
    }

    /// Waits for its end. Dropped before, nothing is lost.
    pub(super) async fn wait(&mut self) -> io::Result<Ended> {
        loop {
            let mut ready = self.descriptor.readable().await?;
            let id = WaitId::PidFd(self.descriptor.get_ref().as_fd());
            match waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOHANG) {
                Ok(Some(status)) => {
                    self.has_ended = true;
                    let code = status.exit_status().map(Ended::Code);
                    let signal = || status.terminating_signal().map(Ended::Signal);
                    return Ok(code.or_else(signal).unwrap_or(Ended::Unknown));
                }
                Ok(None) => ready.clear_ready(),
                Err(_) => {
                    self.has_ended = true;
                    return Ok(Ended::Unknown);
                }
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn ends_are_told_and_nobody_is_left() {
        crate::pool::child::runtime().unwrap().block_on(async {
            let spawn = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
            let mut quick = Process::of(spawn("exit 7").id()).unwrap();
            assert_eq!(quick.wait().await.unwrap(), Ended::Code(7));
            let mut slow = Process::of(spawn("sleep 600").id()).unwrap();
            slow.signal(Signal::TERM);
            assert_eq!(slow.wait().await.unwrap(), Ended::Signal(Signal::TERM.as_raw()));
            let dropped = spawn("sleep 600").id();
            let other =
                pidfd_open(Pid::from_raw(dropped.cast_signed()).unwrap(), PidfdFlags::empty());
            drop(Process::of(dropped).unwrap());
            let id = WaitId::PidFd(other.as_ref().unwrap().as_fd());
            let ended = waitid(id, WaitIdOptions::EXITED).unwrap().unwrap();
            assert_eq!(ended.terminating_signal(), Some(Signal::KILL.as_raw()));
        });
    }
}
