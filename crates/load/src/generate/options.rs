//! What a generator sends where.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;

/// Requests in flight unless told otherwise: the paper's clients kept 64.
pub const IN_FLIGHT_DEFAULT: usize = 64;

/// Most requests in flight: below the usual limit of 1,024 open files, with room for the rest of
/// the process.
pub const IN_FLIGHT_MAX: usize = 768;

/// Time-out of a request unless told otherwise: above any queue time-out of an edge, so that a
/// request that the edge gives up shows as its 503.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Stops a run from another thread or a signal handler: no request is sent any more, those in
/// flight are awaited and counted.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks all runs with this flag to stop. Does not block.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One site that requests go to.
#[derive(Clone, Debug)]
pub struct SiteTarget {
    /// Value of the `Host` header.
    pub host: String,
    /// When set, a response whose `X-Site` header differs counts as failed: a server of another
    /// site has answered. Responses without that header pass.
    pub expect_site: Option<String>,
}

impl SiteTarget {
    /// A site by its host name; responses are taken from any server.
    #[must_use]
    pub fn host(host: impl Into<String>) -> Self {
        Self { host: host.into(), expect_site: None }
    }

    /// A site by its host name, to be answered only by stubs of the site `site`.
    #[must_use]
    pub fn served_as(host: impl Into<String>, site: impl Into<String>) -> Self {
        Self { host: host.into(), expect_site: Some(site.into()) }
    }
}

/// What a generator sends, and where.
#[derive(Clone, Debug)]
pub struct GeneratorOptions {
    /// Addresses that clients reach; connections are spread over them in turn. A connection that
    /// cannot be made at one is tried at the next, as clients with several addresses do.
    pub edges: Vec<SocketAddr>,
    /// The sites; runs name them by their place here.
    pub sites: Vec<SiteTarget>,
    /// Method of all requests.
    pub method: Method,
    /// Path of all requests, in origin form.
    pub path: String,
    /// Paths that closed runs ask for instead, in turn and over again; none for `path`.
    pub paths: Vec<String>,
    /// Body of all requests; usually empty.
    pub body: Bytes,
    /// Whether each request carries an `X-Request-Id` that is unique in this generator.
    pub request_ids: bool,
    /// Requests, and so connections, in flight in closed runs; 1..=[`IN_FLIGHT_MAX`].
    pub in_flight: usize,
    /// A request without a complete response for so long has failed.
    pub timeout: Duration,
    /// Stops the generator's runs.
    pub cancel: Cancel,
}

impl GeneratorOptions {
    /// GET requests for `/`, 64 in flight.
    #[must_use]
    pub fn new(edges: Vec<SocketAddr>, sites: Vec<SiteTarget>) -> Self {
        Self {
            edges,
            sites,
            method: Method::GET,
            path: "/".to_owned(),
            paths: Vec::new(),
            body: Bytes::new(),
            request_ids: false,
            in_flight: IN_FLIGHT_DEFAULT,
            timeout: TIMEOUT_DEFAULT,
            cancel: Cancel::default(),
        }
    }
}
