//! Starting, draining and stopping an edge.

use crate::accept::run;
use crate::access_log::{AccessLog, LogControl, LogQueue};
use crate::core::{Core, Shared};
use crate::face::Dispatcher;
use crate::forward::Forwarder;
use crate::hosts::SiteMap;
use crate::labels::LabelRules;
use crate::listen::{Listener, listen_all};
use crate::metrics::{Shard, Snapshot, snapshot};
use crate::options::{ForwardedTrust, Options, OptionsError, SiteOptions};
use crate::rate::Limiter;
use crate::sticky::Stickiness;
use crate::tls::{Tls, TlsError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Semaphore, watch};

/// Why an edge did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is wrong.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// A certificate can't be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The access log can't be opened, or its thread not be started.
    #[error("can't start the access log: {0}")]
    AccessLog(#[source] io::Error),
    /// A thread, or its runtime, could not be made.
    #[error("can't start a thread of the edge: {0}")]
    Thread(#[source] io::Error),
}

/// What the threads are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Take requests.
    Serve,
    /// Take no more connections; each answer ends its connection.
    Drain,
    /// The same, and close connections that wait for a request.
    Close,
    /// Cut what is in flight.
    Stop,
}

/// A running edge. Dropping it stops it at once, without draining.
#[derive(Debug)]
pub struct Edge {
    addresses: Vec<SocketAddr>,
    stage: watch::Sender<Stage>,
    threads: Vec<JoinHandle<()>>,
    shards: Vec<Arc<Shard>>,
    shared: Arc<Shared>,
    options: Options,
    log: Option<AccessLog>,
}

impl Edge {
    /// Listens, and starts the threads. Blocks until all of them run.
    pub fn start<D: Dispatcher>(options: Options, dispatcher: &D) -> Result<Self, StartError> {
        options.check()?;
        let sites = SiteMap::new(&options.sites, options.default_site)?;
        let tls = Tls::new(&options)?;
        let (addresses, listeners) = listen_all(&options)?;
        let shared = Arc::new(Shared {
            sites,
            tls,
            forwarder: Forwarder::new(options.forwarded, &options.via_name),
            labels: LabelRules {
                request_id: options.request_id,
                trusts_id: options.forwarded == ForwardedTrust::Append,
                trace: options.trace,
            },
            limiters: options.sites.iter().map(|site| Limiter::new(&site.rate)).collect(),
            stickiness: stickiness(&options.sites)?,
            connections: Arc::new(Semaphore::new(options.connections_max)),
            upgraded: Arc::new(Semaphore::new(options.upgraded_max)),
            options: options.clone(),
        });
        let (log, mut queues) = match options.access_log.clone().map(Arc::new) {
            None => (None, Vec::new()),
            Some(log) => {
                let started = AccessLog::start(&log, options.threads);
                let (log, queues) = started.map_err(StartError::AccessLog)?;
                (Some(log), queues)
            }
        };
        let (stage, _) = watch::channel(Stage::Serve);
        let (threads, shards) = (Vec::new(), Vec::new());
        let mut edge = Self { addresses, stage, threads, shards, shared, options, log };
        for (number, sockets) in listeners.into_iter().enumerate() {
            edge.start_thread(number, dispatcher.clone(), sockets, queues.pop())?;
        }
        Ok(edge)
    }

    fn start_thread<D: Dispatcher>(
        &mut self,
        number: usize,
        dispatcher: D,
        sockets: Vec<Listener>,
        log: Option<LogQueue>,
    ) -> Result<(), StartError> {
        let metrics = Arc::new(Shard::new(self.options.sites.len()));
        self.shards.push(Arc::clone(&metrics));
        let (shared, stage) = (Arc::clone(&self.shared), self.stage.subscribe());
        let (started, ready) = mpsc::sync_channel(1);
        let body = move || match runtime() {
            Ok(runtime) => {
                let core = Core::new(shared, dispatcher, metrics, log);
                // The receiver waits for exactly this.
                let _ = started.send(Ok(()));
                runtime.block_on(run(core, sockets, stage));
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = std::thread::Builder::new().name(format!("edge-{number}"));
        self.threads.push(thread.spawn(body).map_err(StartError::Thread)?);
        let died = |_| Err(io::Error::other("it ended before it ran"));
        ready.recv().unwrap_or_else(died).map_err(StartError::Thread)
    }

    /// The addresses listened on with their real ports, in the order of the options: first those
    /// without TLS, then those with it.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The addresses listened on with TLS.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.addresses[self.options.listen.len()..]
    }

    /// Reads the certificates of these sites anew, for connections that come from now on; sites
    /// that the edge does not know are ignored, those missing have the files that the edge
    /// started with. Blocks while it reads.
    ///
    /// # Errors
    /// A file is wrong; then all certificates stay as they were.
    pub fn renew_certificates(&self, sites: &[SiteOptions]) -> Result<(), TlsError> {
        self.shared.tls.renew(sites, &self.options)
    }

    /// What was counted so far. A few microseconds.
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        self.metrics_reader().snapshot()
    }

    /// A reader of the counters that outlives borrows of the edge.
    #[must_use]
    pub fn metrics_reader(&self) -> MetricsReader {
        let log = self.log.as_ref().map(AccessLog::control);
        MetricsReader { shards: self.shards.clone(), options: self.options.clone(), log }
    }

    /// Has the file of the access log opened anew, soon: for whoever has just renamed it. Without
    /// a log, or without a file, nothing happens.
    pub fn reopen_access_log(&self) {
        if let Some(log) = &self.log {
            log.control().reopen();
        }
    }

    /// Takes no more connections, and ends those it has with the next answer (HTTP/2: by GOAWAY).
    /// A client that is between two requests keeps its connection until it has sent the second,
    /// or until `drain_max_ms` is over; then what is in flight is cut. For edges that another one
    /// takes over from. Does not block; [`Edge::join`] does.
    pub fn drain(&self) {
        self.raise(Stage::Drain);
    }

    /// Like [`Edge::drain`], but closes connections between two requests at once: there is nobody
    /// whom those clients would lose a request to. Does not block.
    pub fn close(&self) {
        self.raise(Stage::Close);
    }

    fn raise(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let later = *stage < to;
            if later {
                *stage = to;
            }
            later
        });
    }

    /// Closes, unless it drains already, and blocks until all threads have ended: `drain_max_ms`
    /// at most.
    pub fn join(mut self) {
        if *self.stage.borrow() == Stage::Serve {
            self.close();
        }
        self.join_threads();
    }

    fn join_threads(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the edge panicked");
            }
        }
        if let Some(log) = self.log.take() {
            log.end();
        }
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Stop);
        self.join_threads();
    }
}

/// Reads an edge's counters from any thread, also after the edge has ended.
#[derive(Clone, Debug)]
pub struct MetricsReader {
    shards: Vec<Arc<Shard>>,
    options: Options,
    log: Option<LogControl>,
}

impl MetricsReader {
    /// What was counted so far. A few microseconds.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = snapshot(&self.shards, &self.options.sites);
        snapshot.access_log_dropped = self.log.as_ref().map_or(0, LogControl::dropped);
        snapshot
    }
}

fn stickiness(sites: &[SiteOptions]) -> Result<Vec<Option<Stickiness>>, OptionsError> {
    let of = |site: &SiteOptions| {
        let Some(sticky) = &site.sticky else { return Ok(None) };
        let ready = Stickiness::new(sticky);
        ready.map(Some).ok_or_else(|| OptionsError::BadCookie(site.name.clone()))
    };
    sites.iter().map(of).collect()
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}
