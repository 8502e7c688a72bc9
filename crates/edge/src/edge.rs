//! Starting, draining and stopping an edge.

use crate::accept::run;
use crate::access_log::{AccessLog, LogControl, LogQueue};
use crate::cached::{self, CacheControl};
use crate::core::{Core, Shared};
use crate::face::Dispatcher;
use crate::listen::{Listener, Listening, listen_all};
use crate::live::{self, Changes, UpdateError};
use crate::metrics::{Shard, Snapshot, snapshot};
use crate::options::{Options, OptionsError, SiteOptions};
use crate::tls::TlsError;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

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
    /// Those from the start: what counters are made for.
    options: Options,
    /// What the threads serve under, and how they hear of changes.
    current: Mutex<(Arc<Shared>, Changes)>,
    log: Option<AccessLog>,
    cache: CacheControl,
}

impl Edge {
    /// Listens, and starts the threads. Blocks until all of them run.
    pub fn start<D: Dispatcher>(options: Options, dispatcher: &D) -> Result<Self, StartError> {
        Self::start_on(options, dispatcher, Vec::new())
    }

    /// The same with sockets that somebody keeps for edges that come and go; what is listed in
    /// `options.listen` and not handed over is opened.
    pub fn start_on<D: Dispatcher>(
        options: Options,
        dispatcher: &D,
        mut handed: Vec<Listening>,
    ) -> Result<Self, StartError> {
        let shared = Arc::new(live::shared(options, None)?);
        let options = shared.options.clone();
        let (addresses, listeners) = listen_all(&options, &mut handed)?;
        let (log, mut queues) = match options.access_log.clone().map(Arc::new) {
            None => (None, Vec::new()),
            Some(log) => {
                let started = AccessLog::start(&log, options.threads);
                let (log, queues) = started.map_err(StartError::AccessLog)?;
                (Some(log), queues)
            }
        };
        let (stage, _) = watch::channel(Stage::Serve);
        let mut edge = Self {
            addresses,
            stage,
            threads: Vec::new(),
            shards: Vec::new(),
            options,
            log,
            cache: CacheControl::default(),
            current: Mutex::new((Arc::clone(&shared), Changes::default())),
        };
        edge.cache.set(&shared);
        for (number, sockets) in listeners.into_iter().enumerate() {
            edge.start_thread(number, &shared, dispatcher.clone(), sockets, queues.pop())?;
        }
        Ok(edge)
    }

    /// Serves new connections and requests under other options; what has begun ends under the
    /// old ones. Blocks until all threads do so, for milliseconds. Listeners, threads and the
    /// names of sites are those from the start.
    ///
    /// # Errors
    /// See [`UpdateError`]. The threads serve on in any case.
    pub fn update(&self, options: Options) -> Result<(), UpdateError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, changes) = &mut *current;
        live::check_fixed(&before.options, &options)?;
        let shared = Arc::new(live::shared(options, Some(before))?);
        let owed = live::resize(&shared, &before.options);
        let old = std::mem::replace(before, Arc::clone(&shared));
        self.cache.set(&shared);
        let told = changes.tell(&shared, owed);
        cached::forget_changed(&old.options, &shared.options, shared.cached.as_ref());
        told
    }

    /// Whether [`Edge::update`] would take these options.
    ///
    /// # Errors
    /// Why not.
    pub fn check_update(&self, options: Options) -> Result<(), UpdateError> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        live::check_fixed(&current.0.options, &options)?;
        live::shared(options, Some(&current.0))?;
        Ok(())
    }

    fn start_thread<D: Dispatcher>(
        &mut self,
        number: usize,
        shared: &Arc<Shared>,
        dispatcher: D,
        sockets: Vec<Listener>,
        log: Option<LogQueue>,
    ) -> Result<(), StartError> {
        let metrics = Arc::new(Shard::new(self.options.sites.len()));
        self.shards.push(Arc::clone(&metrics));
        let (shared, stage) = (Arc::clone(shared), self.stage.subscribe());
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        let changes = current.1.add();
        let (started, ready) = mpsc::sync_channel(1);
        let body = move || match runtime() {
            Ok(runtime) => {
                let core = Core::new(shared, dispatcher, metrics, log);
                // The receiver waits for exactly this.
                let _ = started.send(Ok(()));
                runtime.block_on(run(core, sockets, changes, stage));
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
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.0.tls.renew(sites, &self.options)
    }

    /// What was counted so far. A few microseconds.
    #[must_use]
    pub fn metrics(&self) -> Snapshot {
        self.metrics_reader().snapshot()
    }

    /// Reaches the cache from any thread, also while options change.
    #[must_use]
    pub fn cache(&self) -> CacheControl {
        self.cache.clone()
    }

    /// A reader of the counters that outlives borrows of the edge.
    #[must_use]
    pub fn metrics_reader(&self) -> MetricsReader {
        let log = self.log.as_ref().map(AccessLog::control);
        MetricsReader {
            shards: self.shards.clone(),
            options: self.options.clone(),
            log,
            cache: self.cache.clone(),
        }
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
        raise(&self.stage, to);
    }

    /// Closes the edge from wherever it is, also while somebody waits for its end.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer { stage: self.stage.clone() }
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

/// See [`Edge::closer`].
#[derive(Clone, Debug)]
pub struct Closer {
    stage: watch::Sender<Stage>,
}

impl Closer {
    /// As [`Edge::close`].
    pub fn close(&self) {
        raise(&self.stage, Stage::Close);
    }
}

fn raise(stage: &watch::Sender<Stage>, to: Stage) {
    stage.send_if_modified(|stage| {
        let later = *stage < to;
        if later {
            *stage = to;
        }
        later
    });
}

/// Reads an edge's counters from any thread, also after the edge has ended.
#[derive(Clone, Debug)]
pub struct MetricsReader {
    shards: Vec<Arc<Shard>>,
    options: Options,
    log: Option<LogControl>,
    cache: CacheControl,
}

impl MetricsReader {
    /// What was counted so far. A few microseconds.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = snapshot(&self.shards, &self.options.sites);
        snapshot.cache = self.cache.report();
        snapshot.access_log_dropped = self.log.as_ref().map_or(0, LogControl::dropped);
        snapshot
    }
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}
