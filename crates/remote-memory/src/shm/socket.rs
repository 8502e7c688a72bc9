//! The private socket: where it may lie, who may speak, and how a dead owner's is replaced.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::ShmError;

/// Connections that wait for the server's thread, which accepts at once; more peers than this
/// do not start within one of its turns.
const LISTEN_BACKLOG: i32 = 64;
/// How often the directory's lock is tried, and the pause between: another owner holds it for
/// microseconds while it binds. 1,000 x 1 ms outlast a machine under load.
const LOCK_ATTEMPTS_MAX: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A listening socket at a path, unlinked on drop if it is still ours.
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket file that we made.
    identity: (u64, u64),
}

impl Listener {
    /// Binds the path, replacing the socket of a dead owner. Blocks at most a second, while
    /// another owner binds in the same directory.
    pub(super) fn bind(path: &Path) -> Result<Self, ShmError> {
        let address = address_of(path)?;
        let directory = parent_of(path);
        check_private(directory)?;
        // The lock closes the gap between finding a dead socket and unlinking it, in which
        // another owner could have bound the path.
        let _lock = lock_directory(directory)?;
        let socket = new_socket()?;
        match rustix::net::bind(&socket, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => {
                remove_dead_socket(path, &address)?;
                rustix::net::bind(&socket, &address)
                    .map_err(ShmError::system("bind the region's socket"))?;
            }
            Err(errno) => return Err(ShmError::system("bind the region's socket")(errno)),
        }
        // Nobody can connect before `listen`, so the mode is set in time.
        rustix::fs::chmod(path, Mode::from_raw_mode(0o600))
            .map_err(ShmError::system("set the socket's mode"))?;
        let identity =
            identity_of(path).ok_or_else(|| ShmError::NotASocket { path: path.to_owned() })?;
        let listener = Self { socket, path: path.to_owned(), identity };
        rustix::net::listen(&listener.socket, LISTEN_BACKLOG)
            .map_err(ShmError::system("listen on the region's socket"))?;
        Ok(listener)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if identity_of(&self.path) == Some(self.identity) {
            // A failure leaves a dead socket, which the next owner replaces.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A new stream socket, closed on exec, that never blocks.
pub(super) fn new_socket() -> Result<OwnedFd, ShmError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(ShmError::system("make a Unix socket"))
}

pub(super) fn address_of(path: &Path) -> Result<SocketAddrUnix, ShmError> {
    SocketAddrUnix::new(path).map_err(|_| ShmError::PathTooLong { path: path.to_owned() })
}

/// The user at the other end: of the process that connected, or that listened.
pub(super) fn peer_uid(socket: impl AsFd) -> Result<u32, ShmError> {
    rustix::net::sockopt::socket_peercred(socket)
        .map(|credentials| credentials.uid.as_raw())
        .map_err(ShmError::system("read the peer's user"))
}

/// Our own user, or root: who else could read our memory anyway.
pub(super) fn uid_is_trusted(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn check_private(directory: &Path) -> Result<(), ShmError> {
    let metadata = std::fs::metadata(directory).map_err(|error| ShmError::System {
        operation: "examine the socket's directory",
        source: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })?;
    let mode = metadata.permissions().mode() & 0o7777;
    let uid = metadata.uid();
    let ours = uid == rustix::process::geteuid().as_raw();
    if metadata.is_dir() && ours && mode & 0o077 == 0 {
        return Ok(());
    }
    Err(ShmError::DirectoryNotPrivate { path: directory.to_owned(), mode, uid })
}

/// Locks the directory against other owners that bind in it; the lock ends with the file.
fn lock_directory(directory: &Path) -> Result<File, ShmError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(ShmError::system("open the socket's directory"))?;
    for _ in 0..LOCK_ATTEMPTS_MAX {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file.into()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(errno) => return Err(ShmError::system("lock the socket's directory")(errno)),
        }
    }
    Err(ShmError::system("lock the socket's directory (another process holds it)")(
        Errno::WOULDBLOCK,
    ))
}

/// Unlinks the socket at `path` if nobody listens on it.
fn remove_dead_socket(path: &Path, address: &SocketAddrUnix) -> Result<(), ShmError> {
    // Connecting to any other kind of file also answers ECONNREFUSED, so look first.
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if !is_socket {
        return Err(ShmError::NotASocket { path: path.to_owned() });
    }
    match rustix::net::connect(new_socket()?, address) {
        Err(Errno::CONNREFUSED) => {
            rustix::fs::unlink(path).map_err(ShmError::system("remove the socket of a dead owner"))
        }
        // Connected, or its backlog is full, or it is not ours to reach: somebody lives here.
        _ => Err(ShmError::AlreadyServed { path: path.to_owned() }),
    }
}

fn identity_of(path: &Path) -> Option<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    metadata.file_type().is_socket().then(|| (metadata.dev(), metadata.ino()))
}
