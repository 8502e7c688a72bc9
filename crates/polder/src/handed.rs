//! What a service manager hands to this program: sockets that listen already, and a place to say
//! how it goes (sd_listen_fds(3), sd_notify(3)).
//!
//! ```text
//! LISTEN_PID, LISTEN_FDS   sockets from descriptor 3 on, if the process id is ours
//! NOTIFY_SOCKET            a datagram socket; `@` in front stands for the abstract name space
//! ```

use crate::sys;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sendto, socket_with,
};
use std::env;
use std::io;
use std::net::TcpListener;
use std::process::Command;

/// The first descriptor that is handed over.
const FIRST: i32 = 3;
/// Sockets taken at the most: an address each, for more edges than there are.
const SOCKETS_MAX: i32 = 1_024;

const LISTEN: [&str; 3] = ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];
const NOTIFY: &str = "NOTIFY_SOCKET";

/// Keeps all this from a child.
pub(crate) fn hide(command: &mut Command) {
    for name in LISTEN.iter().chain([&NOTIFY]) {
        command.env_remove(name);
    }
}

/// Keeps the sockets from the program that takes this one's place: it gets them another way.
pub(crate) fn hide_sockets(command: &mut Command) {
    for name in LISTEN {
        command.env_remove(name);
    }
}

/// The sockets that were made for this process. To be called once, before anything is opened.
///
/// # Errors
/// One of them is no socket that listens for TCP.
pub(crate) fn sockets() -> io::Result<Vec<TcpListener>> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<i64>().ok());
    let (pid, count) = (number("LISTEN_PID"), number("LISTEN_FDS"));
    if pid != Some(std::process::id().into()) {
        return Ok(Vec::new());
    }
    let count = count.and_then(|count| i32::try_from(count).ok()).unwrap_or(0).min(SOCKETS_MAX);
    let mut sockets = Vec::new();
    for number in FIRST..FIRST + count {
        let file = sys::inherited(number)?;
        fcntl_setfd(&file, FdFlags::CLOEXEC)?;
        let listens = rustix::net::sockopt::socket_acceptconn(&file).unwrap_or(false);
        let socket = TcpListener::from(file);
        if !listens || socket.local_addr().is_err() {
            let text = format!("descriptor {number} from LISTEN_FDS does not listen for TCP");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Says something to the service manager, if there is one: `READY=1`, `RELOADING=1`,
/// `STOPPING=1`, `STATUS=...`. Does not block; what does not get through is left unsaid.
pub(crate) fn notify(words: &str) {
    if let Some(name) = env::var_os(NOTIFY)
        && let Err(error) = name.to_str().map_or(Ok(()), |name| send(name, words))
    {
        tracing::debug!(%error, "the service manager does not hear");
    }
}

fn send(name: &str, words: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        None => SocketAddrUnix::new(name)?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    sendto(&socket, words.as_bytes(), SendFlags::NOSIGNAL, &address)?;
    Ok(())
}

/// The words for the beginning of a reload: with the time, by which the manager knows which
/// `READY=1` belongs to it.
pub(crate) fn reloading() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
    format!("RELOADING=1\nMONOTONIC_USEC={micros}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn words_reach_the_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.to_str().unwrap(), "READY=1").unwrap();
        send(path.to_str().unwrap(), &reloading()).unwrap();
        let mut buffer = [0; 100];
        let mut next = || {
            let count = manager.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..count]).into_owned()
        };
        assert_eq!(next(), "READY=1");
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert!(send("/nowhere/at/all", "READY=1").is_err());
    }

    #[test]
    fn sockets_for_somebody_else_are_left_alone() {
        // No test of ours runs under a service manager with sockets for it.
        assert!(sockets().unwrap().is_empty());
    }
}
