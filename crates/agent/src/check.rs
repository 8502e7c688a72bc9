//! One health check: connect, and for HTTP ask for a path and read the status. Nothing blocks;
//! the worker polls the socket.
//!
//! Back of the envelope: four to six system calls on loopback, some 60 us of CPU.

use crate::options::Check;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// `HTTP/1.1 200`: the bytes of a status line that are read.
const STATUS_BYTES: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Reading,
}

/// A check under way.
#[derive(Debug)]
pub(crate) struct Probe {
    socket: OwnedFd,
    address: SocketAddrV4,
    request: Option<String>,
    stage: Stage,
    head: Vec<u8>,
    pub(crate) ends: Instant,
}

impl Probe {
    /// Connects. Errors say what went wrong, for people.
    pub(crate) fn begin(
        address: SocketAddrV4,
        check: &Check,
        timeout: Duration,
    ) -> Result<Self, String> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
            .map_err(|errno| format!("no socket for a check: {errno}"))?;
        let request = match check {
            Check::Tcp => None,
            Check::Http { path } => Some(format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: polder-agent\r\n\
                 Connection: close\r\n\r\n"
            )),
        };
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(no_connection(address, errno)),
        }
        let head = Vec::with_capacity(STATUS_BYTES);
        let ends = Instant::now() + timeout;
        Ok(Self { socket, address, request, stage: Stage::Connecting, head, ends })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What the socket is polled for.
    pub(crate) fn events(&self) -> PollFlags {
        match self.stage {
            Stage::Connecting => PollFlags::OUT,
            Stage::Reading => PollFlags::IN,
        }
    }

    /// Goes on after the socket was found ready; the result once there is one.
    pub(crate) fn advance(&mut self) -> Option<Result<(), String>> {
        if self.stage == Stage::Connecting {
            match rustix::net::sockopt::socket_error(&self.socket) {
                Ok(Ok(())) => {}
                Ok(Err(errno)) | Err(errno) => {
                    return Some(Err(no_connection(self.address, errno)));
                }
            }
            let Some(request) = self.request.as_deref().map(str::as_bytes) else {
                return Some(Ok(()));
            };
            match rustix::net::send(&self.socket, request, SendFlags::NOSIGNAL) {
                // A new socket's buffer holds more than a request of ours.
                Ok(sent) if sent == request.len() => self.stage = Stage::Reading,
                Ok(_) => return Some(Err("the request was not taken whole".to_owned())),
                Err(errno) => return Some(Err(format!("the request was not taken: {errno}"))),
            }
            return None;
        }
        self.read()
    }

    fn read(&mut self) -> Option<Result<(), String>> {
        let mut buffer = [0_u8; 512];
        match rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty()) {
            Ok((0, _)) => Some(Err("closed without a response".to_owned())),
            Ok((received_bytes, _)) => {
                let missing = STATUS_BYTES - self.head.len();
                self.head.extend_from_slice(&buffer[..received_bytes.min(missing)]);
                (self.head.len() == STATUS_BYTES).then(|| judge(&self.head))
            }
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(errno) => Some(Err(format!("no response: {errno}"))),
        }
    }

    /// What a check that ran out of time ended with.
    pub(crate) fn timed_out(&self, timeout: Duration) -> String {
        let what = match self.stage {
            Stage::Connecting => "no connection",
            Stage::Reading => "no response",
        };
        format!("{what} within {} ms", timeout.as_millis())
    }
}

fn no_connection(address: SocketAddrV4, errno: Errno) -> String {
    format!("no connection to {address}: {errno}")
}

/// Status 200 to 399 passes.
fn judge(head: &[u8]) -> Result<(), String> {
    let status = head.strip_prefix(b"HTTP/1.").and_then(|rest| rest.get(2..5));
    match status {
        Some(digits) if digits.iter().all(u8::is_ascii_digit) => match digits[0] {
            b'2' | b'3' => Ok(()),
            _ => Err(format!("status {}", String::from_utf8_lossy(digits))),
        },
        _ => Err(format!("no HTTP response: {:?}", String::from_utf8_lossy(head))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_judged() {
        assert_eq!(judge(b"HTTP/1.1 200"), Ok(()));
        assert_eq!(judge(b"HTTP/1.0 399"), Ok(()));
        assert_eq!(judge(b"HTTP/1.1 503"), Err("status 503".to_owned()));
        assert_eq!(judge(b"HTTP/1.1 100"), Err("status 100".to_owned()));
        for noise in [&b"SSH-2.0-Open"[..], b"HTTP/1.1 2x0", b"HTTP/2 200\r\n", b""] {
            assert!(judge(noise).unwrap_err().starts_with("no HTTP response"));
        }
    }
}
