//! The writers' sockets: who may come in, and bytes to lines and back.
//!
//! One thread serves all connections of a site's desk, so that answering needs no lock. It sleeps
//! while nobody writes. Answers to lines that came together leave together. A connection that waits
//! at a gate is read meanwhile, so that its end frees its place, and answered no further.

use crate::desk::{Answered, Desk, Peer};
use crate::line::{Code, LINE_BYTES_MAX, Malformed};
use rustix::fs::{Gid, Mode};
use rustix::net::sockopt::socket_peercred;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::oneshot;

/// Connections of one site at once: processes of an application with one each. The next one is
/// told `error full`.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Connections that wait to be accepted, which happens at once.
const BACKLOG: u32 = 1_024;
/// Bytes that are read at once, so that no connection holds the others up for long: a thousand
/// short lines, some milliseconds.
const READ_BYTES: usize = 64 << 10;
/// What an idle connection keeps of its buffers.
const IDLE_BYTES: usize = 512;
/// The pause after a connection could not be accepted: there are no descriptors or no memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who may use a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The pool's own user, and root.
    Owner,
    /// These, and the members of a group: whom the kernel lets connect.
    Group(u32),
}

/// Why a socket is not served.
#[derive(Debug, Error)]
pub enum DoorError {
    /// It lies in somebody else's way.
    #[error("{}: is not a socket, left as it is", .0.display())]
    NotASocket(PathBuf),
    /// It is in use.
    #[error("{}: another process listens there", .0.display())]
    InUse(PathBuf),
    /// A system call failed.
    #[error("{}: {cause}", path.display())]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A socket that writers connect to; removed when this is dropped, if it is still ours.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    who: Who,
    path: PathBuf,
    identity: (u64, u64),
}

impl Door {
    /// Listens at a path, in the place of a dead process. To be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`DoorError`].
    pub fn open(path: &Path, who: Who) -> Result<Self, DoorError> {
        let failed = |cause: io::Error| DoorError::Io { path: path.to_owned(), cause };
        remove_dead(path)?;
        let socket = UnixSocket::new_stream().map_err(failed)?;
        socket.bind(path).map_err(failed)?;
        // Nobody can connect before `listen`, so that mode and group are set in time.
        let mode = match who {
            Who::Owner => 0o600,
            Who::Group(group) => {
                let group = Some(Gid::from_raw(group));
                rustix::fs::chown(path, None, group).map_err(|cause| failed(cause.into()))?;
                0o660
            }
        };
        let set = rustix::fs::chmod(path, Mode::from_raw_mode(mode));
        set.map_err(|cause| failed(cause.into()))?;
        let identity = identity(path).map_err(failed)?;
        let listener = socket.listen(BACKLOG).map_err(failed)?;
        Ok(Self { listener, who, path: path.to_owned(), identity })
    }

    /// Who connected, if that one may come in.
    fn judge(&self, stream: &UnixStream, connection: u64) -> io::Result<Option<Peer>> {
        let found = socket_peercred(stream)?;
        let uid = found.uid.as_raw();
        let is_owner = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let pid = found.pid.as_raw_pid().cast_unsigned();
        // Into a group's socket the kernel lets members only.
        let may = is_owner || matches!(self.who, Who::Group(_));
        Ok(may.then_some(Peer { connection, pid, uid, is_owner }))
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // A dead socket that stays is replaced by the next process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn remove_dead(path: &Path) -> Result<(), DoorError> {
    let failed = |cause: io::Error| DoorError::Io { path: path.to_owned(), cause };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !found.file_type().is_socket() {
        return Err(DoorError::NotASocket(path.to_owned()));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
        Ok(_) => Err(DoorError::InUse(path.to_owned())),
    }
}

/// What the connections of one site share.
struct Room {
    desk: RefCell<Desk>,
    connections: Cell<usize>,
    /// The number of the next connection.
    next: Cell<u64>,
    /// What was read last; nobody holds it over an await.
    buffer: RefCell<Box<[u8]>>,
    /// Connections that wait at a gate.
    waiting: RefCell<HashMap<u64, oneshot::Sender<()>>>,
    started: Instant,
}

impl Room {
    /// Tells those whose wait is over.
    fn tell_admitted(&self, desk: &mut Desk) {
        let admitted = desk.take_admitted();
        let mut waiting = self.waiting.borrow_mut();
        for tell in admitted.into_iter().filter_map(|connection| waiting.remove(&connection)) {
            // It may be ending at this moment.
            let _ = tell.send(());
        }
    }
}

/// Serves a site's writers until it is dropped; their connections then end too. To be awaited
/// within a tokio `LocalRuntime` or `LocalSet`.
pub async fn serve(desk: Desk, doors: Vec<Door>) {
    let room = Rc::new(Room {
        desk: RefCell::new(desk),
        connections: Cell::new(0),
        next: Cell::new(0),
        buffer: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
        waiting: RefCell::default(),
        started: Instant::now(),
    });
    let mut serving = tokio::task::JoinSet::new();
    for door in doors {
        serving.spawn_local(accept(door, Rc::clone(&room)));
    }
    // None of them ends.
    while serving.join_next().await.is_some() {}
}

async fn accept(door: Door, room: Rc<Room>) {
    // Dropped with this, which ends all of them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = door.listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a writer can't be let in");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let number = room.next.get();
        room.next.set(number + 1);
        match door.judge(&stream, number) {
            Ok(Some(peer)) => {
                connections.spawn_local(Connection::begin(&room, peer).run(stream));
            }
            Ok(None) => refuse(&stream, Code::Denied, "this user may not tell of changes"),
            Err(error) => tracing::warn!(%error, "a writer that nobody knows"),
        }
    }
}

fn refuse(stream: &UnixStream, code: Code, words: &str) {
    // A new connection has room for a line; else it learns of it by the end of the connection.
    let _ = stream.try_write(format!("error {} {words}\n", code.name()).as_bytes());
}

/// One connection; however it ends, the desk hears of it.
struct Connection {
    room: Rc<Room>,
    peer: Peer,
}

impl Connection {
    fn begin(room: &Rc<Room>, peer: Peer) -> Self {
        room.connections.set(room.connections.get() + 1);
        Self { room: Rc::clone(room), peer }
    }

    async fn run(self, mut stream: UnixStream) {
        if self.room.connections.get() > CONNECTIONS_MAX {
            refuse(&stream, Code::Full, "as many writers are connected as may be");
            return;
        }
        let (mut kept, mut answers) = (Vec::new(), Vec::new());
        while stream.readable().await.is_ok() {
            let before = kept.len();
            match self.read(&stream, &mut kept) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let mut searched = before;
            loop {
                let (rest, waits) = self.answer_lines(&kept, searched, &mut answers);
                kept.drain(..rest);
                let is_endless = waits.is_none() && kept.len() >= LINE_BYTES_MAX;
                if is_endless {
                    let (code, why) = (Code::Malformed.name(), Malformed::TooLong);
                    answers.extend_from_slice(format!("error {code} {why}\n").as_bytes());
                }
                if stream.write_all(&answers).await.is_err() || is_endless {
                    return;
                }
                answers.clear();
                let Some(told) = waits else { break };
                if !self.wait(&stream, told, &mut kept).await {
                    return;
                }
                answers.extend_from_slice(b"ok\n");
                searched = 0;
            }
            // A thousand idle connections keep a thousand small buffers.
            answers.shrink_to(IDLE_BYTES);
            kept.shrink_to(IDLE_BYTES);
        }
    }

    fn read(&self, stream: &UnixStream, kept: &mut Vec<u8>) -> io::Result<usize> {
        let mut buffer = self.room.buffer.borrow_mut();
        let count = stream.try_read(&mut buffer)?;
        kept.extend_from_slice(&buffer[..count]);
        Ok(count)
    }

    /// Whether it was let in. What it sends meanwhile is kept, as long as there is room.
    async fn wait(
        &self,
        stream: &UnixStream,
        mut told: oneshot::Receiver<()>,
        kept: &mut Vec<u8>,
    ) -> bool {
        loop {
            let has_room = kept.len() < LINE_BYTES_MAX;
            tokio::select! {
                told = &mut told => return told.is_ok(),
                ready = stream.readable(), if has_room => {
                    let read = ready.and_then(|()| self.read(stream, kept));
                    match read {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Ok(0) | Err(_) => return false,
                        Ok(_) => {}
                    }
                }
            }
        }
    }

    /// Answers all whole lines, of which none ends before `searched`, or those up to one that has
    /// to wait. Where the rest begins, and what to wait for.
    fn answer_lines(
        &self,
        bytes: &[u8],
        searched: usize,
        answers: &mut Vec<u8>,
    ) -> (usize, Option<oneshot::Receiver<()>>) {
        let mut desk = self.room.desk.borrow_mut();
        let now = self.room.started.elapsed();
        let (mut from, mut search) = (0, searched);
        while let Some(length) = bytes[search..].iter().position(|&byte| byte == b'\n') {
            let end = search + length;
            let answered = desk.answer(&bytes[from..end], &self.peer, now, answers);
            (from, search) = (end + 1, end + 1);
            if answered == Answered::Later {
                let (tell, told) = oneshot::channel();
                self.room.waiting.borrow_mut().insert(self.peer.connection, tell);
                self.room.tell_admitted(&mut desk);
                return (from, Some(told));
            }
        }
        self.room.tell_admitted(&mut desk);
        (from, None)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.room.connections.set(self.room.connections.get() - 1);
        self.room.waiting.borrow_mut().remove(&self.peer.connection);
        let mut desk = self.room.desk.borrow_mut();
        desk.disconnected(self.peer.connection);
        self.room.tell_admitted(&mut desk);
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
