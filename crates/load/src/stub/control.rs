//! The control endpoint of a stub: `GET /stats?since=WINDOW` and `POST /reset`, and the small
//! client for it.
//!
//! It has a listener of its own, so that asking takes nothing from the capacity of a node. There
//! is no access control: it belongs on the loopback interface.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::node::StubNode;
use super::record::StubRecord;
use crate::clock::ThreadTask;

/// Time that a stub gets for an answer; it answers within a millisecond unless overloaded.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest answer that is read: 20 nodes of 4 sites with all windows kept take less.
const ANSWER_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Connections to the control endpoint at a time; one is usual.
const CONNECTIONS_MAX: usize = 16;

/// Why a stub's control endpoint gave no record.
#[derive(Debug, Error)]
pub enum ControlError {
    /// The connection failed or timed out.
    #[error("the stub's control endpoint {address} does not answer: {cause}")]
    Io {
        /// The address asked.
        address: SocketAddr,
        /// What went wrong.
        cause: io::Error,
    },
    /// It answered something else than 200 with a record.
    #[error("the stub's control endpoint {address} answered {answer:?}")]
    Answer {
        /// The address asked.
        address: SocketAddr,
        /// The beginning of the answer, or the parser's complaint.
        answer: String,
    },
}

/// Serves the endpoint until its task is aborted.
pub(super) async fn serve(listener: TcpListener, nodes: Rc<[Arc<StubNode>]>, task: ThreadTask) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if connections.len() >= CONNECTIONS_MAX {
            continue;
        }
        let nodes = Rc::clone(&nodes);
        connections.spawn_local(async move {
            let handler = service_fn(|request| {
                let response = answer(&request, &nodes, task);
                async move { Ok::<_, Infallible>(response) }
            });
            // An error is a client that went away.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await;
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    nodes: &[Arc<StubNode>],
    task: ThreadTask,
) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/stats") => stats(request.uri().query(), nodes, task),
        (&Method::POST, "/reset") => {
            nodes.iter().for_each(|node| node.reset());
            plain(StatusCode::OK, "reset\n")
        }
        _ => plain(StatusCode::NOT_FOUND, "use GET /stats?since=WINDOW or POST /reset\n"),
    }
}

fn stats(query: Option<&str>, nodes: &[Arc<StubNode>], task: ThreadTask) -> Response<Full<Bytes>> {
    let since = match query {
        None => Some(0),
        Some(query) => query.strip_prefix("since=").and_then(|number| number.parse().ok()),
    };
    let Some(since) = since else {
        return plain(StatusCode::BAD_REQUEST, "since must be the number of a window\n");
    };
    match serde_json::to_vec(&StubRecord::of(nodes, task, since)) {
        Ok(json) => {
            let mut response = Response::new(Full::from(json));
            let json = http::HeaderValue::from_static("application/json");
            response.headers_mut().insert(http::header::CONTENT_TYPE, json);
            response
        }
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the record cannot be written\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
}

/// Asks a stub, possibly of another process, for its records with the finished windows from number
/// `since_window` on. Blocks for at most ten seconds.
///
/// # Errors
///
/// [`ControlError`] when it does not answer or not with a record.
pub fn fetch_record(address: SocketAddr, since_window: u64) -> Result<StubRecord, ControlError> {
    let body = ask(address, &format!("GET /stats?since={since_window}"))?;
    serde_json::from_slice(&body)
        .map_err(|cause| ControlError::Answer { address, answer: cause.to_string() })
}

/// Tells a stub, possibly of another process, to forget its counters, peaks and windows. Blocks for
/// at most ten seconds.
///
/// # Errors
///
/// [`ControlError`] when it does not answer or refuses.
pub fn post_reset(address: SocketAddr) -> Result<(), ControlError> {
    ask(address, "POST /reset").map(|_| ())
}

/// Sends one request, reads to the end of the connection, returns the body of a 200.
fn ask(address: SocketAddr, line: &str) -> Result<Vec<u8>, ControlError> {
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = StdStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let head = format!("{line} HTTP/1.1\r\nHost: stub\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|cause| ControlError::Io { address, cause })?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    match end {
        Some(end) if answer.starts_with(b"HTTP/1.1 200 ") => Ok(answer[end + 4..].to_vec()),
        _ => {
            let start = &answer[..answer.len().min(120)];
            let answer = String::from_utf8_lossy(start).into_owned();
            Err(ControlError::Answer { address, answer })
        }
    }
}
