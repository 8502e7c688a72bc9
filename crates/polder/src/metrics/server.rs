//! The HTTP server of `/metrics` and `/healthz`. Loopback only: whoever is on this machine may
//! read, nobody may change anything.

use super::families::{CONTENT_TYPE, text};
use crate::status::StatusReport;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE as CONTENT_TYPE_FIELD};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};
use tracing::{debug, warn};

/// Connections served at once: a few scrapers and a person.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take for its whole life; a scraper connects anew.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// How long a request's head may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept (no file descriptors left): do not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a report comes from.
pub trait Snapshot: 'static {
    /// A fresh report, or why there is none.
    fn report(&self) -> impl Future<Output = Result<StatusReport, String>>;
}

/// A listening server.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
}

impl MetricsServer {
    /// Listens; port 0 takes a free one. An address that other machines could reach is refused.
    pub fn listen(address: SocketAddr) -> io::Result<std::net::TcpListener> {
        if !address.ip().is_loopback() {
            let text = format!("{address} is not a loopback address");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        std::net::TcpListener::bind(address)
    }

    /// Serves a socket that listens already. To be called within a tokio runtime.
    pub fn over(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the future is dropped.
    pub async fn run<S: Snapshot>(self, snapshot: S) {
        let snapshot = Rc::new(snapshot);
        LocalSet::new().run_until(self.accept_all(snapshot)).await;
    }

    async fn accept_all<S: Snapshot>(&self, snapshot: Rc<S>) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            tokio::select! {
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn_local(connection(stream, Rc::clone(&snapshot)));
                    }
                    Err(error) => {
                        warn!(%error, "metrics: accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }
}

async fn connection<S: Snapshot>(stream: TcpStream, snapshot: Rc<S>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let snapshot = Rc::clone(&snapshot);
        async move {
            Ok::<_, Infallible>(answer(request.method(), request.uri().path(), &*snapshot).await)
        }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_MAX, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "metrics: connection failed"),
        Err(_) => debug!("metrics: connection took too long"),
    }
}

async fn answer<S: Snapshot>(method: &Method, path: &str, snapshot: &S) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => match snapshot.report().await {
            Ok(report) => {
                let mut response = plain(StatusCode::OK, text(report));
                let kind = HeaderValue::from_static(CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE_FIELD, kind);
                response
            }
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/healthz" => match snapshot.report().await.map(|report| report.ailments()) {
            Ok(ailments) if ailments.is_empty() => plain(StatusCode::OK, "ok\n".into()),
            Ok(ailments) => {
                plain(StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", ailments.join("\n")))
            }
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics and /healthz\n".into()),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE_FIELD, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;
    use std::cell::Cell;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Healthy at first, then with an ailment, then without a report.
    #[derive(Default)]
    struct Ageing(Cell<usize>);

    impl Snapshot for Ageing {
        async fn report(&self) -> Result<StatusReport, String> {
            self.0.set(self.0.get() + 1);
            let mut report = example();
            match self.0.get() {
                1 => Ok(report),
                2 => {
                    report.sites[1].nodes = 0;
                    Ok(report)
                }
                _ => Err("no edge answers".into()),
            }
        }
    }

    fn bound(address: &str) -> io::Result<MetricsServer> {
        MetricsServer::over(MetricsServer::listen(address.parse().unwrap())?)
    }

    async fn ask(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        ask(address, &head).await
    }

    fn with_server<F: Future<Output = ()>>(test: impl FnOnce(SocketAddr) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = bound("127.0.0.1:0").unwrap();
            let address = server.address();
            tokio::select! {
                () = server.run(Ageing::default()) => panic!("the server ended"),
                () = test(address) => {}
            }
        });
    }

    #[test]
    fn health_is_told_by_status_and_words() {
        with_server(|address| async move {
            assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
            let ill = get(address, "/healthz").await;
            assert!(ill.starts_with("HTTP/1.1 503 "), "{ill}");
            assert!(ill.ends_with("site blog has 0 of 1 nodes\n"), "{ill}");
            assert!(get(address, "/healthz").await.ends_with("no edge answers\n"));
        });
    }

    #[test]
    fn metrics_have_their_type() {
        with_server(|address| async move {
            let metrics = get(address, "/metrics").await;
            assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
            assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
            assert!(metrics.ends_with("# EOF\n"), "{metrics}");
        });
    }

    #[test]
    fn nothing_else_is_served() {
        with_server(|address| async move {
            assert!(get(address, "/").await.starts_with("HTTP/1.1 404 "));
            let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            assert!(ask(address, post).await.starts_with("HTTP/1.1 405 "));
            assert!(ask(address, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
            let _silent = TcpStream::connect(address).await.unwrap();
            assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200 "));
        });
    }

    #[test]
    fn other_machines_are_kept_out() {
        assert!(MetricsServer::listen("0.0.0.0:0".parse().unwrap()).is_err());
    }
}
