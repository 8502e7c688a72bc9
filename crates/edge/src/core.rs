//! What the requests of one thread share.

use crate::access_log::LogQueue;
use crate::cached::{Cached, Caching, FarLinks};
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
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

/// What all threads of an edge share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) sites: SiteMap,
    pub(crate) forwarder: Forwarder,
    pub(crate) tls: Tls,
    pub(crate) labels: LabelRules,
    /// By site, in the order of the options.
    pub(crate) limiters: Vec<Option<Arc<Limiter>>>,
    pub(crate) stickiness: Vec<Option<Stickiness>>,
    pub(crate) caching: Vec<Option<Caching>>,
    /// The cache, if a site has one.
    pub(crate) cached: Option<Arc<Cached>>,
    /// `connections_max` of the whole edge.
    pub(crate) connections: Arc<Semaphore>,
    /// `upgraded_max` of the whole edge.
    pub(crate) upgraded: Arc<Semaphore>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// One thread's part, as long as its options hold ([`crate::live`]); what is counted here
/// outlives them.
pub(crate) struct Core<D> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: D,
    pub(crate) pool: Rc<Pool>,
    pub(crate) metrics: Arc<Shard>,
    pub(crate) log: Option<Rc<LogQueue>>,
    pub(crate) chance: Rc<Chance>,
    pub(crate) tunnels: Rc<Tunnels>,
    /// To version tables on other machines.
    pub(crate) far: Rc<FarLinks>,
    /// Held once by each audit of a hit that is under way.
    pub(crate) audits: Rc<()>,
    pub(crate) server: http1::Builder,
    /// No new connection, and each answer ends its connection.
    pub(crate) draining: Rc<Cell<bool>>,
    pub(crate) drain: Rc<Notify>,
    /// Draining, and connections that wait for a request end at once.
    pub(crate) closing: Rc<Cell<bool>>,
    pub(crate) close: Rc<Notify>,
    /// Places for TLS handshakes.
    pub(crate) handshakes: Rc<Semaphore>,
    /// Client connections of this thread.
    pub(crate) open: Rc<Cell<usize>>,
    pub(crate) closed: Rc<Notify>,
}

impl<D: Dispatcher> Core<D> {
    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }
}
