//! What the requests of one thread share.

use crate::access_log::LogQueue;
use crate::face::Dispatcher;
use crate::forward::Forwarder;
use crate::hosts::SiteMap;
use crate::labels::{Chance, LabelRules};
use crate::metrics::Shard;
use crate::options::Options;
use crate::rate::Limiter;
use crate::sticky::Stickiness;
use crate::tls::Tls;
use crate::upgrade::Tunnels;
use crate::upstream::Pool;
use hyper::server::conn::http1;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

/// What all threads of an edge share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) sites: SiteMap,
    pub(crate) forwarder: Forwarder,
    pub(crate) tls: Tls,
    pub(crate) labels: LabelRules,
    /// By site, in the order of the options.
    pub(crate) limiters: Vec<Option<Limiter>>,
    pub(crate) stickiness: Vec<Option<Stickiness>>,
    /// `connections_max` of the whole edge.
    pub(crate) connections: Arc<Semaphore>,
    /// `upgraded_max` of the whole edge.
    pub(crate) upgraded: Arc<Semaphore>,
}

/// One thread's part.
pub(crate) struct Core<D> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: D,
    pub(crate) pool: Pool,
    pub(crate) metrics: Arc<Shard>,
    pub(crate) log: Option<LogQueue>,
    pub(crate) chance: Chance,
    pub(crate) tunnels: Rc<Tunnels>,
    pub(crate) server: http1::Builder,
    /// No new connection, and each answer ends its connection.
    pub(crate) draining: Cell<bool>,
    pub(crate) drain: Notify,
    /// Draining, and connections that wait for a request end at once.
    pub(crate) closing: Cell<bool>,
    pub(crate) close: Notify,
    /// Places for TLS handshakes.
    pub(crate) handshakes: Semaphore,
    /// Client connections of this thread.
    pub(crate) open: Cell<usize>,
    pub(crate) closed: Notify,
}

impl<D: Dispatcher> Core<D> {
    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }
}
