//! The access log: a line for each request, which never waits for the disk.
//!
//! ```text
//! thread 0 ── bounded queue ──┐
//! thread 1 ── bounded queue ──┼── one thread that writes ── file, or standard output
//! thread n ── bounded queue ──┘
//! ```
//!
//! A queue that is full drops the line and counts it; the log tells of the gap when it goes on.
//! Without a log nothing is done or kept for it. With one a request costs about a microsecond and
//! an allocation or two; no lock, and a system call only to wake a writer that falls behind.

mod line;
mod writer;

pub(crate) use line::Line;
pub use line::LogFormat;

use crate::answer::Reason;
use crate::face::Rank;
use crate::labels::Labels;
use http::request::Parts;
use http::{HeaderValue, Method, Uri, Version, header};
use pool_model::NodeId;
use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes that wait in one queue. Lines have a few hundred, but a client may choose what they
/// quote: so that long ones cost no more memory than `queue_max` short ones.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// The writer is woken when a queue has taken this part of what it holds since the last time.
const WAKE_PART: usize = 4;

/// How long the end of an edge waits for the last lines: a disk that takes longer loses them.
const END_WAIT: Duration = Duration::from_secs(1);

/// The status that stands for a client which went away before its response.
const STATUS_GONE: u16 = 499;

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// The standard output of the process.
    Stdout,
    /// A file, which may be renamed at any time: within a second of writing it is opened anew.
    File(PathBuf),
}

/// The settings of an access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Where it is written.
    pub target: LogTarget,
    /// How its lines look.
    pub format: LogFormat,
    /// Lines that may wait to be written, for each thread of the edge.
    pub queue_max: usize,
    /// What nodes are called, by their number; the number itself where a name is missing.
    pub nodes: Vec<String>,
}

/// A line in a queue, and what counts the bytes there.
struct Queued {
    line: Vec<u8>,
    bytes: Arc<AtomicUsize>,
}

/// What the threads of an edge and the writer share.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    dropped: AtomicU64,
    reopen: AtomicBool,
}

/// The log of an edge, on the side of whoever starts it.
#[derive(Debug)]
pub(crate) struct AccessLog {
    counts: Arc<Counts>,
    writer: Thread,
    /// Closed when the writer has ended.
    ended: Receiver<()>,
}

/// A remote control of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogControl {
    counts: Arc<Counts>,
    writer: Thread,
}

impl LogControl {
    /// Lines that were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Has the file opened anew.
    pub(crate) fn reopen(&self) {
        self.counts.reopen.store(true, Ordering::Relaxed);
        self.writer.unpark();
    }
}

impl AccessLog {
    /// Opens the log and starts its writer; a queue for each thread.
    pub(crate) fn start(
        options: &Arc<LogOptions>,
        threads: usize,
    ) -> io::Result<(Self, Vec<LogQueue>)> {
        let output = writer::Output::open(&options.target)?;
        let counts = Arc::new(Counts::default());
        let channel = || mpsc::sync_channel(options.queue_max);
        let (senders, queues): (Vec<_>, Vec<_>) = (0..threads).map(|_| channel()).unzip();
        let writer = writer::Writer {
            target: options.target.clone(),
            format: options.format,
            output,
            queues,
            counts: Arc::clone(&counts),
            batch: Vec::new(),
            batch_lines: 0,
            told: 0,
            looked: Instant::now(),
            is_failing: false,
        };
        let (alive, ended) = mpsc::sync_channel::<()>(1);
        let thread = std::thread::Builder::new().name("edge-log".to_owned()).spawn(move || {
            writer.run();
            drop(alive);
        })?;
        let writer = thread.thread().clone();
        let queue = |sender| LogQueue {
            options: Arc::clone(options),
            sender,
            bytes: Arc::default(),
            since_wake: Cell::new(0),
            counts: Arc::clone(&counts),
            writer: writer.clone(),
        };
        let queues = senders.into_iter().map(queue).collect();
        Ok((Self { counts, writer, ended }, queues))
    }

    pub(crate) fn control(&self) -> LogControl {
        LogControl { counts: Arc::clone(&self.counts), writer: self.writer.clone() }
    }

    /// Waits for the last lines. To be called when the edge's threads have ended.
    pub(crate) fn end(&self) {
        self.writer.unpark();
        if self.ended.recv_timeout(END_WAIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the access log is too slow: its last lines are lost");
        }
    }
}

/// The log of an edge, on the side of one thread.
pub(crate) struct LogQueue {
    options: Arc<LogOptions>,
    sender: SyncSender<Queued>,
    bytes: Arc<AtomicUsize>,
    since_wake: Cell<usize>,
    counts: Arc<Counts>,
    writer: Thread,
}

impl LogQueue {
    fn node(&self, node: NodeId) -> String {
        let name = self.options.nodes.get(node.index());
        name.map_or_else(|| node.to_string(), Clone::clone)
    }

    fn send(&self, line: &Line<'_>) {
        let mut bytes = Vec::with_capacity(512);
        line.write(self.options.format, &mut bytes);
        let count = bytes.len();
        let waiting = self.bytes.fetch_add(count, Ordering::Relaxed);
        let queued = Queued { line: bytes, bytes: Arc::clone(&self.bytes) };
        if waiting + count > QUEUE_BYTES_MAX || self.sender.try_send(queued).is_err() {
            self.bytes.fetch_sub(count, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.since_wake.update(|lines| lines + 1);
        if self.since_wake.get() > self.options.queue_max / WAKE_PART {
            self.since_wake.set(0);
            self.writer.unpark();
        }
    }
}

/// What is remembered of a request until its line is written.
#[derive(Debug)]
pub(crate) struct Entry {
    at: Duration,
    method: Method,
    target: Uri,
    version: Version,
    host: Option<HeaderValue>,
    agent: Option<HeaderValue>,
    referer: Option<HeaderValue>,
    pub(crate) status: u16,
    pub(crate) reason: Option<Reason>,
    /// The response broke off.
    pub(crate) is_cut: bool,
    pub(crate) node: Option<NodeId>,
    /// Its admission class, where the site has some.
    pub(crate) rank: Rank,
    pub(crate) retries: u32,
    /// What the cache did, where the site has one.
    pub(crate) cache: Option<&'static str>,
    pub(crate) first_byte: Option<Duration>,
    /// Bytes of the edge's own answer.
    pub(crate) text_bytes: u64,
}

/// What is known only at the end.
pub(crate) struct Ended<'a> {
    pub(crate) client: IpAddr,
    pub(crate) is_tls: bool,
    pub(crate) site: Option<&'a str>,
    pub(crate) class: Option<&'a str>,
    pub(crate) labels: &'a Labels,
    pub(crate) duration: Duration,
    pub(crate) bytes: u64,
    pub(crate) bytes_in: u64,
}

fn bytes(value: &Option<HeaderValue>) -> Option<&[u8]> {
    value.as_ref().map(HeaderValue::as_bytes)
}

impl Entry {
    pub(crate) fn new(parts: &Parts) -> Self {
        let field = |name| parts.headers.get(name).cloned();
        Self {
            at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            method: parts.method.clone(),
            target: parts.uri.clone(),
            version: parts.version,
            host: field(header::HOST),
            agent: field(header::USER_AGENT),
            referer: field(header::REFERER),
            status: 0,
            reason: None,
            is_cut: false,
            node: None,
            rank: Rank::default(),
            retries: 0,
            cache: None,
            first_byte: None,
            text_bytes: 0,
        }
    }

    pub(crate) fn write(&self, to: &LogQueue, ended: &Ended<'_>) {
        let text_bytes = if self.method == Method::HEAD { 0 } else { self.text_bytes };
        let node = self.node.map(|node| to.node(node));
        let gone = self.status == 0;
        let reason = match self.reason {
            Some(reason) => Some(reason.name()),
            None if gone => Some("client-gone"),
            None => self.is_cut.then_some("response-cut"),
        };
        to.send(&Line {
            at: self.at,
            client: ended.client,
            site: ended.site,
            class: ended.class,
            host: bytes(&self.host),
            method: &self.method,
            target: &self.target,
            version: self.version,
            status: if gone { STATUS_GONE } else { self.status },
            bytes: ended.bytes + text_bytes,
            bytes_in: ended.bytes_in,
            duration: ended.duration,
            first_byte: self.first_byte,
            node: node.as_deref(),
            retries: self.retries,
            cache: self.cache,
            request_id: ended.labels.id(),
            trace_id: ended.labels.trace_id(),
            is_tls: ended.is_tls,
            agent: bytes(&self.agent),
            referer: bytes(&self.referer),
            reason,
        });
    }
}
