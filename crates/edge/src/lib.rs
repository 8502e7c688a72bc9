//! The tier that clients reach: listeners, sites, queues, balancing, drain, retries.
//!
//! The data plane is hyper's server in front, for HTTP/1.1 and HTTP/2, and a client of our own
//! behind (or hyper's low-level one, see [`Upstream`]), on one current-thread runtime for each
//! thread; nothing is shared between threads but counters. The life of a request:
//!
//! 1. `accept` takes the connection; `admit` finds out who comes and what they speak: by a PROXY
//!    header (`proxy_in`), a TLS handshake (`tls`), or HTTP/2's preface. `http1` or `http2` serves
//!    it over a `wire`, which watches its time.
//! 2. `head` refuses what readers could take differently; `labels` gives the request its id;
//!    `hosts` finds the site; `rate` refuses who asks too often; `sticky` says to which server the
//!    request belongs, `admission` how important it is.
//!    Where the site has a cache, `cached` answers what it can, and keeps what comes of the rest;
//!    `purge` takes what tells of changes, where a site lets it be told so.
//! 3. A [`Dispatcher`] gives a [`Permit`] as soon as a server has room ([`face`]).
//! 4. `attempt` sends the request over a connection of `upstream`, its head written by
//!    `forward`, its body streamed by `upload`; where rule 5 of the design allows, a failure
//!    leads to another server.
//!    A server that switches to another protocol leads on to `upgrade` instead of 5.
//! 5. `download` streams the response; with its end from the server's side the permit goes, and
//!    `access_log` has its line.
//!
//! Absent by design: no remote operation on the path of a request; no lock and no box there but
//! hyper's own, the dispatcher's, and the gate of `Expect: 100-continue`; no knowledge of the pool
//! outside the dispatcher.

mod accept;
mod access_log;
mod admission;
mod admit;
mod answer;
mod attempt;
mod cached;
mod caller;
mod core;
pub mod dispatch;
mod download;
mod edge;
pub mod face;
mod fast_path;
mod forward;
#[cfg(test)]
mod fuzz_tests;
mod head;
mod hosts;
mod http1;
mod http2;
mod labels;
mod listen;
mod live;
mod metrics;
mod network;
mod options;
mod proxy_header;
mod proxy_in;
mod purge;
mod rate;
mod serve;
mod spare;
mod sticky;
mod stream;
mod sys;
mod tls;
#[cfg(test)]
mod told_fuzz_tests;
mod upgrade;
mod upload;
mod upstream;
mod watchdog;
mod wire;

pub use access_log::{LogFormat, LogOptions, LogTarget};
pub use admission::{CLASSES_MAX, ClassRule, HeaderRule, LAST_CLASS};
pub use answer::{REASON_HEADER, Reason, Source};
pub use cached::{CacheControl, CachePurge, CacheReport, StoredResponse, StoredResponses};
pub use cached::{FarVersions, SITE_TAG, Versions, url_tag};
pub use edge::{Closer, Edge, MetricsReader, StartError};
pub use face::{Ask, Dispatcher, Permit, RETRIES_MAX, Rank, Refusal, Stick, Verdict};
pub use listen::Listening;
pub use live::UpdateError;
pub use metrics::{Latency, SiteSnapshot, Snapshot};
pub use network::{Network, NetworkError};
pub use options::{ClientCertificate, ForwardedTrust, Options, OptionsError, SiteOptions, SiteTls};
pub use proxy_header::ProxyVersion;
pub use purge::{INVALIDATION_HEADER, PurgeOptions, PurgeToken};
pub use purge::{Invalidated, Invalidation, Invalidations, Invalidator, PURGES_MAX, invalidations};
pub use rate::{CLIENTS_MAX, PER_S_MAX, Rate, RateOptions};
pub use sticky::{HashBy, Sticky, StickyCookie, is_token};
pub use tls::TlsError;
pub use upstream::Upstream;
