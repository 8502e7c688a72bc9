//! The settings of an edge's data plane, as plain values with units in their names.

use crate::access_log::LogOptions;
use crate::admission::{CLASSES_MAX, ClassRule};
use crate::cached::Versions;
use crate::face::RETRIES_MAX;
use crate::network::Network;
use crate::proxy_header::ProxyVersion;
use crate::purge::{Invalidator, PurgeOptions};
use crate::rate::RateOptions;
use crate::sticky::Sticky;
use crate::upstream::Upstream;
use pool_model::SiteId;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// More threads than this share cores in any machine we know; a larger number is a mistake.
const THREADS_MAX: usize = 256;

/// The smallest head buffer that hyper accepts.
const HEADER_BYTES_MIN: usize = 8 * 1024;

/// The window that HTTP/2 begins with (RFC 9113, 6.9.2): a smaller one can't be told in time.
const WINDOW_MIN: u64 = 65_535;

/// A smaller cache holds no page of usual size for long.
const CACHE_BYTES_MIN: u64 = 1 << 20;

/// A queue has room for all its lines from the start; this many take some 30 MiB.
const LOG_QUEUE_MAX: u64 = 1 << 20;

/// What is believed of `X-Forwarded-*` and `Forwarded` in a client's request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedTrust {
    /// Nothing: they are dropped and written anew from the connection.
    #[default]
    Rewrite,
    /// Everything: the edge stands behind another proxy and appends its own line.
    Append,
}

/// Whether clients of a site show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// They are not asked for one.
    #[default]
    Off,
    /// They are asked, and may have none; a bad one ends the handshake.
    Optional,
    /// Without a good one there is no connection, and no request of another connection.
    Required,
}

/// The files of a site's TLS, all PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteTls {
    /// The certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// Its private key, which not everyone may read.
    pub key: PathBuf,
    /// Who signs clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show one.
    pub client_certificate: ClientCertificate,
}

/// One site.
#[derive(Clone, Debug)]
pub struct SiteOptions {
    /// Its id in the pool.
    pub id: SiteId,
    /// Its name, for logs and metrics.
    pub name: String,
    /// Host names: exact (`www.example.org`) or a whole subtree (`*.example.org`, which stands
    /// for any number of labels, but not for `example.org` itself). Letter case is ignored.
    pub hosts: Vec<String>,
    /// Longest request body; a longer one gets 413.
    pub body_bytes_max: u64,
    /// Its certificate, if it is reached by TLS.
    pub tls: Option<SiteTls>,
    /// Whether, and how, each connection to its servers begins by telling for which client it was
    /// made. Such a connection serves requests of that client's connection only.
    pub proxy_protocol_out: Option<ProxyVersion>,
    /// Which of its requests go to one server.
    pub sticky: Option<Sticky>,
    /// How many requests this edge lets in.
    pub rate: RateOptions,
    /// How its responses are kept; none: not at all.
    pub cache: Option<Arc<cache::Rules>>,
    /// Who may tell over HTTP that its data changes; none: such requests are its servers' matter.
    pub purge: Option<PurgeOptions>,
    /// What proves its responses in mode `strict`; without it there are no hits in that mode.
    pub versions: Option<Versions>,
    /// Which of its requests go first, the most important first; the others form the last class.
    pub admission: Vec<ClassRule>,
    /// What it promises its clients: requests that take longer, from their heads to the ends of
    /// their responses, are counted.
    pub objective: Option<Duration>,
}

impl SiteOptions {
    /// A site with the default limit of 1 GiB on request bodies: large enough for what people
    /// upload to a web site, small enough to end a mistake within minutes.
    #[must_use]
    pub fn new(id: SiteId, name: &str, hosts: &[&str]) -> Self {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        let name = name.to_owned();
        let (tls, proxy_protocol_out, sticky) = (None, None, None);
        let (body_bytes_max, rate) = (1 << 30, RateOptions::default());
        let (admission, objective, cache) = (Vec::new(), None, None);
        let (purge, versions) = (None, None);
        Self {
            id,
            name,
            hosts,
            body_bytes_max,
            tls,
            proxy_protocol_out,
            sticky,
            rate,
            cache,
            purge,
            versions,
            admission,
            objective,
        }
    }
}

/// Everything that an edge's data plane can be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Addresses to listen on without TLS; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Addresses to listen on with TLS.
    pub tls_listen: Vec<SocketAddr>,
    /// Whether HTTP/2 is offered to clients that come by TLS (ALPN).
    pub http2: bool,
    /// Whether clients of `listen` may begin with HTTP/2 (prior knowledge).
    pub http2_plain: bool,
    /// Most requests at once on one HTTP/2 connection.
    pub http2_streams_max: u32,
    /// Bytes of one request's body that may be under way and unread (HTTP/2).
    pub http2_stream_window_bytes: u32,
    /// The same for all requests of one connection.
    pub http2_connection_window_bytes: u32,
    /// Requests that a client may give up on one HTTP/2 connection, beyond those that were
    /// answered; then the connection ends.
    pub http2_resets_max: u32,
    /// Threads, each with a runtime and listening sockets of its own.
    pub threads: usize,
    /// The sites.
    pub sites: Vec<SiteOptions>,
    /// The site of requests for a host that no site names; without it they get 421.
    pub default_site: Option<SiteId>,
    /// Longest request head; a longer one gets 431.
    pub header_bytes_max: usize,
    /// Most header lines in a request; more get 431.
    pub headers_max: usize,
    /// Longest request target; a longer one gets 414.
    pub uri_bytes_max: usize,
    /// Time for a whole request head, from its first byte (on a new connection: from the
    /// accept). Then 408 and close.
    pub header_timeout_ms: u64,
    /// Time that a client's connection may wait for its next request.
    pub keep_alive_idle_ms: u64,
    /// Time for a connection to a server.
    pub connect_timeout_ms: u64,
    /// Time without progress between the last byte of the request and the head of the response.
    pub response_header_timeout_ms: u64,
    /// Time without a byte of a body, in each direction and on both sides.
    pub body_idle_timeout_ms: u64,
    /// How long a body held back by `Expect: 100-continue` waits for the server's 100 before it
    /// is sent anyway (RFC 9110, 10.1.1, lets a client not wait forever).
    pub expect_wait_ms: u64,
    /// Bodies up to this length can be sent a second time.
    pub retry_body_max_bytes: usize,
    /// Most repetitions of one request at other servers, at most [`RETRIES_MAX`].
    pub retries_max: usize,
    /// Who speaks with the servers.
    pub upstream: Upstream,
    /// Idle connections kept for each server by each thread.
    pub upstream_idle_max: usize,
    /// How long an idle connection to a server is kept.
    pub upstream_idle_ms: u64,
    /// Most client connections of the whole edge; beyond it, accepting pauses.
    pub connections_max: usize,
    /// Time that requests in flight get to finish when the edge stops.
    pub drain_max_ms: u64,
    /// What is believed of forwarding headers.
    pub forwarded: ForwardedTrust,
    /// The edge's name in `Via`.
    pub via_name: String,
    /// Who must begin a connection with a header of the PROXY protocol. From everybody else such
    /// a header is no HTTP.
    pub proxy_protocol: Vec<Network>,
    /// Whether each request gets an id, `X-Request-Id`. A client's own is kept where `forwarded`
    /// trusts it.
    pub request_id: bool,
    /// Whether each request gets a `traceparent`. A client's own is continued.
    pub trace: bool,
    /// Whether clients may switch to another protocol with a server that agrees.
    pub upgrades: bool,
    /// Most upgraded connections of the whole edge; a request for one more gets 503.
    pub upgraded_max: usize,
    /// Time without a byte in either direction after which an upgraded connection is closed.
    pub upgrade_idle_ms: u64,
    /// Memory for the responses that the cache keeps, of all sites and threads.
    pub cache_bytes: u64,
    /// Who carries out what is told over HTTP.
    pub invalidator: Option<Invalidator>,
    /// Where the cache keeps what its memory has no room for; none: nowhere.
    pub cache_disk: Option<cache::DiskLimits>,
    /// The access log, if there is one.
    pub access_log: Option<LogOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            tls_listen: Vec::new(),
            http2: true,
            http2_plain: false,
            http2_streams_max: 100,
            http2_stream_window_bytes: 256 * 1024,
            http2_connection_window_bytes: 1 << 20,
            http2_resets_max: 100,
            threads: 1,
            sites: Vec::new(),
            default_site: None,
            header_bytes_max: 32 * 1024,
            headers_max: 100,
            uri_bytes_max: 8 * 1024,
            header_timeout_ms: 10_000,
            keep_alive_idle_ms: 60_000,
            connect_timeout_ms: 1_000,
            response_header_timeout_ms: 60_000,
            body_idle_timeout_ms: 30_000,
            expect_wait_ms: 1_000,
            retry_body_max_bytes: 64 * 1024,
            retries_max: 2,
            upstream: Upstream::Own,
            upstream_idle_max: 64,
            upstream_idle_ms: 30_000,
            connections_max: 10_000,
            drain_max_ms: 10_000,
            forwarded: ForwardedTrust::Rewrite,
            via_name: "polder".to_owned(),
            proxy_protocol: Vec::new(),
            request_id: true,
            trace: true,
            upgrades: true,
            upgraded_max: 10_000,
            upgrade_idle_ms: 3_600_000,
            cache_bytes: 256 << 20,
            invalidator: None,
            cache_disk: None,
            access_log: None,
        }
    }
}

/// A setting that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A number lies outside its range.
    #[error("{name} = {given} is not within {min} to {max}")]
    OutOfRange {
        /// The field.
        name: &'static str,
        /// What it was set to.
        given: u64,
        /// The least allowed.
        min: u64,
        /// The most allowed.
        max: u64,
    },
    /// There is no address to listen on.
    #[error("listen is empty: name at least one address")]
    NoListener,
    /// A host name that no request could carry.
    #[error("site {site}: `{host}` is no host name (write `www.example.org` or `*.example.org`)")]
    BadHost {
        /// The site.
        site: String,
        /// The name given.
        host: String,
    },
    /// Two sites want one host.
    #[error("sites {first} and {second} both name the host `{host}`")]
    HostTwice {
        /// The host.
        host: String,
        /// The site that named it first.
        first: String,
        /// The other one.
        second: String,
    },
    /// Two sites have one id.
    #[error("site id {0} is given twice")]
    SiteTwice(SiteId),
    /// The default site is none of the sites.
    #[error("the default site {0} is not among the sites")]
    UnknownDefault(SiteId),
    /// A sticky cookie that could not be set.
    #[error("site {0}: the sticky cookie's name or one of its values is not a token")]
    BadCookie(String),
    /// More admission classes than there may be.
    #[error("site {0} has more than {CLASSES_MAX} admission classes, the last one among them")]
    TooManyClasses(String),
    /// `via_name` is not a token.
    #[error("via_name `{0}` must consist of letters, digits, `-`, `.` and `_`")]
    BadViaName(String),
}

impl Options {
    /// Checks the ranges. Host names are checked where they are put into the table of sites.
    pub fn check(&self) -> Result<(), OptionsError> {
        if self.listen.is_empty() && self.tls_listen.is_empty() {
            return Err(OptionsError::NoListener);
        }
        let day_ms = 24 * 3600 * 1000;
        let ranges = [
            ("threads", self.threads as u64, 1, THREADS_MAX as u64),
            ("header_bytes_max", self.header_bytes_max as u64, HEADER_BYTES_MIN as u64, 1 << 20),
            ("headers_max", self.headers_max as u64, 8, 1_000),
            ("uri_bytes_max", self.uri_bytes_max as u64, 16, 60_000),
            ("http2_streams_max", self.http2_streams_max.into(), 1, 10_000),
            (
                "http2_stream_window_bytes",
                self.http2_stream_window_bytes.into(),
                WINDOW_MIN,
                1 << 30,
            ),
            (
                "http2_connection_window_bytes",
                self.http2_connection_window_bytes.into(),
                WINDOW_MIN,
                1 << 30,
            ),
            ("http2_resets_max", self.http2_resets_max.into(), 1, 1 << 20),
            ("header_timeout_ms", self.header_timeout_ms, 1, day_ms),
            ("keep_alive_idle_ms", self.keep_alive_idle_ms, 1, day_ms),
            ("connect_timeout_ms", self.connect_timeout_ms, 1, day_ms),
            ("response_header_timeout_ms", self.response_header_timeout_ms, 1, day_ms),
            ("body_idle_timeout_ms", self.body_idle_timeout_ms, 1, day_ms),
            ("expect_wait_ms", self.expect_wait_ms, 0, day_ms),
            ("retry_body_max_bytes", self.retry_body_max_bytes as u64, 0, 16 << 20),
            ("retries_max", self.retries_max as u64, 0, RETRIES_MAX as u64),
            ("upstream_idle_max", self.upstream_idle_max as u64, 0, 65_536),
            ("upstream_idle_ms", self.upstream_idle_ms, 1, day_ms),
            ("connections_max", self.connections_max as u64, 1, 1 << 24),
            ("drain_max_ms", self.drain_max_ms, 0, day_ms),
            ("upgraded_max", self.upgraded_max as u64, 0, 1 << 24),
            ("upgrade_idle_ms", self.upgrade_idle_ms, 1, day_ms),
            ("cache_bytes", self.cache_bytes, CACHE_BYTES_MIN, 1 << 44),
            ("access_log.queue_max", self.log_queue_max(), 1, LOG_QUEUE_MAX),
        ];
        for (name, given, min, max) in ranges {
            if given < min || given > max {
                return Err(OptionsError::OutOfRange { name, given, min, max });
            }
        }
        let is_over = |site: &&SiteOptions| site.admission.len() >= CLASSES_MAX;
        if let Some(site) = self.sites.iter().find(is_over) {
            return Err(OptionsError::TooManyClasses(site.name.clone()));
        }
        let token = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if self.via_name.is_empty() || !self.via_name.bytes().all(token) {
            return Err(OptionsError::BadViaName(self.via_name.clone()));
        }
        Ok(())
    }

    fn log_queue_max(&self) -> u64 {
        self.access_log.as_ref().map_or(1, |log| log.queue_max as u64)
    }

    pub(crate) fn header_timeout(&self) -> Duration {
        Duration::from_millis(self.header_timeout_ms)
    }

    pub(crate) fn body_idle(&self) -> Duration {
        Duration::from_millis(self.body_idle_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed() {
        assert_eq!(Options::default().check(), Ok(()));
    }

    #[test]
    fn a_bad_number_is_named() {
        let options = Options { retries_max: 9, ..Options::default() };
        let words = options.check().unwrap_err().to_string();
        assert_eq!(words, "retries_max = 9 is not within 0 to 8");
        let options = Options { via_name: "a b".to_owned(), ..Options::default() };
        assert!(matches!(options.check(), Err(OptionsError::BadViaName(_))));
        let options = Options { listen: Vec::new(), ..Options::default() };
        assert_eq!(options.check(), Err(OptionsError::NoListener));
    }
}
