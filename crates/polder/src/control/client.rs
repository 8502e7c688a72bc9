//! The asking half of a control socket.

use super::wire::{RESPONSE_MAX_BYTES, Refusal, Request, Response};
use super::wire::{decode_response, encode_request};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Pause between tries to connect while the listener's queue is full.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);
/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens.
    #[error("nobody listens at {path}: {cause}")]
    NotRunning {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It took too long.
    #[error("no answer at {path} within {} ms", .limit.as_millis())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// The connection broke off.
    #[error("the connection to {path} broke off: {cause}")]
    Broken {
        /// The socket.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// What came back makes no sense.
    #[error("{path} speaks another language: {text}")]
    Nonsense {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        text: String,
    },
    /// The request was understood, and refused.
    #[error("{0}")]
    Refused(Refusal),
}

/// Asks once. Blocks for `limit` at most.
pub fn ask(path: &Path, request: &Request, limit: Duration) -> Result<Response, AskError> {
    let deadline = Instant::now() + limit;
    let broken = |cause| explain(path, limit, cause);
    let mut stream = connect(path, deadline)
        .map_err(|cause| AskError::NotRunning { path: path.to_owned(), cause })?;
    stream.set_write_timeout(Some(left(deadline).map_err(broken)?)).map_err(broken)?;
    stream.write_all(&encode_request(request)).map_err(broken)?;
    let mut line = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    while !line.ends_with(b"\n") {
        stream.set_read_timeout(Some(left(deadline).map_err(broken)?)).map_err(broken)?;
        match stream.read(&mut chunk).map_err(broken)? {
            0 => return Err(broken(io::ErrorKind::UnexpectedEof.into())),
            count => line.extend_from_slice(&chunk[..count]),
        }
        check_length(path, &line)?;
    }
    understand(path, &line)
}

/// Asks once from within a tokio runtime.
pub async fn ask_async(
    path: &Path,
    request: &Request,
    limit: Duration,
) -> Result<Response, AskError> {
    match tokio::time::timeout(limit, exchange(path, request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(AskError::Timeout { path: path.to_owned(), limit }),
    }
}

async fn exchange(path: &Path, request: &Request) -> Result<Response, AskError> {
    let broken = |cause| AskError::Broken { path: path.to_owned(), cause };
    let mut stream = tokio::net::UnixStream::connect(path)
        .await
        .map_err(|cause| AskError::NotRunning { path: path.to_owned(), cause })?;
    stream.write_all(&encode_request(request)).await.map_err(broken)?;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if stream.read_buf(&mut line).await.map_err(broken)? == 0 {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        check_length(path, &line)?;
    }
    understand(path, &line)
}

/// Connects without waiting for a listener whose queue is full beyond the deadline.
fn connect(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(CONNECT_PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn explain(path: &Path, limit: Duration, cause: io::Error) -> AskError {
    let path = path.to_owned();
    match cause.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AskError::Timeout { path, limit },
        _ => AskError::Broken { path, cause },
    }
}

fn check_length(path: &Path, line: &[u8]) -> Result<(), AskError> {
    if line.len() <= RESPONSE_MAX_BYTES {
        return Ok(());
    }
    let text = format!("a response of more than {RESPONSE_MAX_BYTES} bytes");
    Err(AskError::Nonsense { path: path.to_owned(), text })
}

fn understand(path: &Path, line: &[u8]) -> Result<Response, AskError> {
    match decode_response(line) {
        Ok(outcome) => outcome.map_err(AskError::Refused),
        Err(text) => Err(AskError::Nonsense { path: path.to_owned(), text }),
    }
}
