//! The listening half of a control socket.

use super::wire::{
    Code, REQUEST_MAX_BYTES, Refusal, Request, Response, decode_request, encode_response,
};
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::timeout;
use tracing::{debug, warn};

/// Connections served at once. Commands are short; a person, a script and a dashboard fit.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may wait for the rest of its next request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a peer may take to read a response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may take. A drain is begun, not awaited, so nothing takes long.
const HANDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// Pause after a failed accept (no file descriptors left): do not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What requests do. Runs on one thread; a slow request does not hold up others.
pub trait Handler: 'static {
    /// Carries out one request.
    fn handle(&self, request: Request) -> impl Future<Output = Result<Response, Refusal>>;
}

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there.
    #[error("{path}: another process listens there")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{path}: {cause}")]
    Io {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
}

/// A listening control socket. Its file goes when this is dropped.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Makes the socket and serves it. To be called within a tokio runtime.
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        Self::over(Self::listen(path)?, path.to_owned())
    }

    /// Makes the socket, mode 0600, in place of one that a dead process left. The folder must be
    /// private ([`crate::runtime_dir::check_private`]): the socket's own mode is set just after it
    /// is made.
    pub fn listen(path: &Path) -> Result<std::os::unix::net::UnixListener, BindError> {
        let failed = |cause| BindError::Io { path: path.to_owned(), cause };
        if path.exists() {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(BindError::InUse { path: path.to_owned() });
            }
            fs::remove_file(path).map_err(failed)?;
        }
        let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(listener)
    }

    /// Serves a socket that is there. To be called within a tokio runtime.
    pub fn over(
        listener: std::os::unix::net::UnixListener,
        path: PathBuf,
    ) -> Result<Self, BindError> {
        let made = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
        match made {
            Ok(listener) => Ok(Self { listener, path }),
            Err(cause) => Err(BindError::Io { path, cause }),
        }
    }

    /// Serves requests until the future is dropped.
    pub async fn run<H: Handler>(self, handler: H) {
        let handler = Rc::new(handler);
        let local = LocalSet::new();
        local.run_until(self.accept_all(handler)).await;
    }

    async fn accept_all<H: Handler>(&self, handler: Rc<H>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn_local(connection(stream, Rc::clone(&handler)));
                    }
                    Err(error) => {
                        warn!(%error, "control socket: accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            debug!(path = %self.path.display(), %error, "control socket was gone already");
        }
    }
}

/// Whether the peer is this process's user or root. The folder keeps others out already; this
/// holds even where somebody opened it.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) => peer.uid() == own || peer.uid() == 0,
        Err(_) => false,
    }
}

/// Serves one connection until its peer ends it, is silent for too long, or sends too much.
async fn connection<H: Handler>(stream: UnixStream, handler: Rc<H>) {
    if !is_trusted(&stream) {
        warn!("control socket: refused another user's connection");
        return;
    }
    let mut stream = BufReader::new(stream);
    loop {
        let (outcome, is_last) = match next_line(&mut stream).await {
            Line::End => return,
            Line::TooLong => {
                let text = format!("a request has at most {REQUEST_MAX_BYTES} bytes");
                (Err(Refusal::new(Code::TooLong, text)), true)
            }
            Line::Whole(line) => (answer(&line, &*handler).await, false),
        };
        let bytes = encode_response(outcome);
        let written = timeout(WRITE_TIMEOUT, stream.get_mut().write_all(&bytes)).await;
        if is_last || !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

async fn answer<H: Handler>(line: &[u8], handler: &H) -> Result<Response, Refusal> {
    let request = decode_request(line)?;
    debug!(?request, "control request");
    match timeout(HANDLE_TIMEOUT, handler.handle(request)).await {
        Ok(outcome) => outcome,
        Err(_) => {
            let text = format!("no answer within {} s", HANDLE_TIMEOUT.as_secs());
            Err(Refusal::new(Code::Timeout, text))
        }
    }
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

async fn next_line(stream: &mut BufReader<UnixStream>) -> Line {
    let mut line = Vec::new();
    let mut bounded = stream.take(REQUEST_MAX_BYTES as u64 + 1);
    match timeout(READ_TIMEOUT, bounded.read_until(b'\n', &mut line)).await {
        Ok(Ok(_)) if line.ends_with(b"\n") => Line::Whole(line),
        Ok(Ok(_)) if line.len() > REQUEST_MAX_BYTES => Line::TooLong,
        Ok(_) | Err(_) => Line::End,
    }
}
