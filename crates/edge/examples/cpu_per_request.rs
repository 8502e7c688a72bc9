//! Prints the CPU time that one edge thread spends on a proxied request.
//!
//! One thread of the edge stands between 64 connections that ask for 1 KiB as fast as they get it
//! and an origin that answers from memory; both run on threads of their own in this process. The
//! time is the scheduler's own count for the edge's thread, user and kernel together. The edge
//! runs twice, with its own client towards servers and with hyper's; they take turns with nginx
//! and HAProxy where these are installed (one process, connections kept, no access log), in an
//! order that rotates. The medians of the rounds' ratios to nginx are printed. Whoever is measured
//! has core 0, clients and origin have core 1.
//!
//! ```sh
//! cargo run --release -p edge --example cpu_per_request [ROUNDS]
//! ```

#![allow(clippy::print_stdout)]

use edge::{Ask, Dispatcher, Edge, Options, Permit, Refusal, SiteOptions, Upstream, Verdict};
use pool_model::{NodeId, SiteId};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const CONNECTIONS: usize = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_secs(2);
const REQUEST: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: a.example\r\n\
    User-Agent: cpu\r\nAccept: */*\r\n\r\n";

/// One server with room for everybody.
#[derive(Clone)]
struct One(SocketAddr);

impl Dispatcher for One {
    type Permit = One;

    async fn acquire(&self, _site: SiteId, _ask: Ask<'_>) -> Result<One, Refusal> {
        Ok(self.clone())
    }
}

impl Permit for One {
    fn node(&self) -> NodeId {
        NodeId::MIN
    }

    fn address(&self) -> SocketAddr {
        self.0
    }

    fn report(&self, _verdict: Verdict) {}
}

fn response() -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nServer: tiny\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
        Content-Type: text/html\r\nContent-Length: 1024\r\n\
        Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nConnection: keep-alive\r\n\
        ETag: \"65a1\"\r\nAccept-Ranges: bytes\r\n\r\n";
    [head.as_bytes(), &[b'x'; 1024]].concat()
}

/// Answers each head; requests have no body here.
async fn answer(mut stream: TcpStream, response: Arc<Vec<u8>>) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        if buffer.ends_with(b"\r\n\r\n") {
            buffer.clear();
            stream.write_all(&response).await?;
        }
    }
}

async fn origin(listener: TcpListener) -> io::Result<()> {
    let response = Arc::new(response());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(answer(stream, Arc::clone(&response)));
    }
}

/// Asks again and again. The edge changes the head's length, but not from one answer to the next.
async fn ask(address: SocketAddr, answered: Arc<AtomicU64>) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        stream.write_all(REQUEST).await?;
        let mut filled = 0;
        loop {
            let count = stream.read(&mut buffer[filled..]).await?;
            filled += count;
            let head = buffer[..filled].windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if count == 0 || head.is_some_and(|at| filled == at + 4 + 1024) {
                break;
            }
        }
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Nanoseconds that a thread has run, by its directory in /proc.
fn run_ns(task: &Path) -> io::Result<u64> {
    let stat = std::fs::read_to_string(task.join("schedstat"))?;
    let run = stat.split(' ').next().and_then(|word| word.parse().ok());
    run.ok_or_else(|| io::Error::other("schedstat has no run time"))
}

/// The directories of all threads of edges.
fn edge_tasks() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        if std::fs::read_to_string(path.join("comm"))?.trim() == "edge-0" {
            found.push(path);
        }
    }
    Ok(found)
}

/// An edge of one thread and that thread's directory.
fn start_edge(upstream: Upstream, origin: SocketAddr) -> Result<(Edge, PathBuf), Box<dyn Error>> {
    let before = edge_tasks()?;
    let sites = vec![SiteOptions::new(SiteId::MIN, "one", &["a.example"])];
    let edge = Edge::start(Options { sites, upstream, ..Options::default() }, &One(origin))?;
    let task = edge_tasks()?.into_iter().find(|task| !before.contains(task));
    Ok((edge, task.ok_or("the edge has no thread")?))
}

/// Keeps a thread, or all threads that a process will start, on one core.
fn pin(task: &Path, core: &str) -> io::Result<()> {
    let id = task.file_name().unwrap_or_default();
    let told = Command::new("taskset").args(["-cp", core]).arg(id).stdout(Stdio::null()).status();
    if !told.is_ok_and(|status| status.success()) {
        return Err(io::Error::other("taskset (of util-linux) could not pin a thread"));
    }
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Another proxy with one process, killed when dropped.
struct Peer {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

fn nginx_settings(place: &Path, address: SocketAddr, origin: SocketAddr) -> String {
    let place = place.display();
    format!(
        "daemon off; master_process off; pid {place}/pid; error_log {place}/log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000;\n\
         client_body_temp_path {place}/a; proxy_temp_path {place}/b;\n\
         fastcgi_temp_path {place}/c; uwsgi_temp_path {place}/d; scgi_temp_path {place}/e;\n\
         upstream u {{ server {origin}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen {address}; location / {{ proxy_pass http://u;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header X-Forwarded-For $remote_addr;\n\
         proxy_set_header X-Forwarded-Proto http; }} }} }}\n"
    )
}

fn haproxy_settings(address: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 1000\n\
         defaults\n  mode http\n  timeout connect 1s\n  timeout client 60s\n\
         \x20 timeout server 60s\n  timeout http-request 10s\n  timeout http-keep-alive 60s\n\
         \x20 http-reuse always\n  option forwardfor\n\
         frontend f\n  bind {address}\n  http-request set-header X-Forwarded-Proto http\n\
         \x20 default_backend b\n\
         backend b\n  server s {origin} pool-max-conn 1000\n"
    )
}

impl Peer {
    fn start(name: &'static str, origin: SocketAddr) -> io::Result<Self> {
        let directory = std::env::temp_dir().join(format!("edge-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let address = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let (settings, arguments) = match name {
            "nginx" => (nginx_settings(&directory, address, origin), ["-q", "-c"]),
            _ => (haproxy_settings(address, origin), ["-db", "-f"]),
        };
        let file = directory.join("settings");
        std::fs::write(&file, settings)?;
        let mut command = Command::new(name);
        let process = command.args(arguments).arg(&file).stderr(Stdio::null()).spawn()?;
        let peer = Self { process, address, directory };
        // It listens within milliseconds, if at all.
        for _ in 0..100 {
            if std::net::TcpStream::connect(address).is_ok() {
                return Ok(peer);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other(format!("{name} does not listen")))
    }

    fn task(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}", self.process.id()))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Microseconds of CPU for one request, in one round.
fn round(name: &str, address: SocketAddr, task: &Path) -> io::Result<f64> {
    let answered = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&answered);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let clients = std::thread::spawn(move || {
        runtime()?.block_on(async {
            for _ in 0..CONNECTIONS {
                tokio::spawn(ask(address, Arc::clone(&counter)));
            }
            let _ = stopped.await;
            io::Result::Ok(())
        })
    });
    std::thread::sleep(ROUND / 4);
    let before = (run_ns(task)?, answered.load(Ordering::Relaxed));
    std::thread::sleep(ROUND);
    let after = (run_ns(task)?, answered.load(Ordering::Relaxed));
    drop(stop);
    clients.join().map_err(|_| io::Error::other("the clients panicked"))??;
    let requests = (after.1 - before.1).max(1);
    let cost_us = (after.0 - before.0) as f64 / requests as f64 / 1e3;
    let rate = requests as f64 / ROUND.as_secs_f64();
    println!("{name}: {cost_us:.1} us of CPU per request at {rate:.0} requests/s");
    Ok(cost_us)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One of those that are compared, and its costs, round by round.
struct Entry {
    name: &'static str,
    address: SocketAddr,
    task: PathBuf,
    costs: Vec<f64>,
}

fn report(entries: &[Entry]) {
    let nginx = entries.iter().find(|entry| entry.name == "nginx");
    for entry in entries {
        let cost = median(entry.costs.clone());
        print!("{}: median {cost:.2} us", entry.name);
        if let Some(nginx) = nginx {
            let ratios = entry.costs.iter().zip(&nginx.costs).map(|(cost, nginx)| cost / nginx);
            print!(", median of ratios to nginx {:.3}", median(ratios.collect()));
        }
        println!();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |word| word.parse())?;
    pin(Path::new(&std::process::id().to_string()), "1")?;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let server = listener.local_addr()?;
    std::thread::spawn(move || {
        runtime()?.block_on(async { origin(TcpListener::from_std(listener)?).await })
    });
    let mut entries = Vec::new();
    let mut add = |name, address, task| {
        entries.push(Entry { name, address, task, costs: Vec::new() });
    };
    let own = start_edge(Upstream::Own, server)?;
    let hyper = start_edge(Upstream::Hyper, server)?;
    add("own", own.0.addresses()[0], own.1);
    add("hyper", hyper.0.addresses()[0], hyper.1);
    let mut peers = Vec::new();
    for name in ["nginx", "haproxy"] {
        match Peer::start(name, server) {
            Ok(peer) => {
                add(name, peer.address, peer.task());
                peers.push(peer);
            }
            Err(error) => println!("{name} skipped: {error}"),
        }
    }
    for entry in &entries {
        pin(&entry.task, "0")?;
    }
    for number in 0..rounds {
        let count = entries.len();
        for step in 0..count {
            let entry = &mut entries[(number + step) % count];
            entry.costs.push(round(entry.name, entry.address, &entry.task)?);
        }
    }
    report(&entries);
    for (name, edge) in [("own", &own.0), ("hyper", &hyper.0)] {
        let counted = edge.metrics();
        println!(
            "{name}: connections to the origin: {} opened, {} requests over kept ones; p99 {} us",
            counted.upstream_opened,
            counted.upstream_reused,
            counted.sites[0].latency.quantile_us(0.99).unwrap_or(0),
        );
    }
    Ok(())
}
