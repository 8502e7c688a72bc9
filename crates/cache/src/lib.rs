//! An HTTP cache without sockets: what may be kept, what may be answered, and where it lies.
//!
//! RFC 9111 as a shared cache, `CDN-Cache-Control` (RFC 9213), `Cache-Status` (RFC 9211), and tags.
//! Nothing here reads a clock or opens a socket, and no caller waits: times are arguments, servers
//! are asked by the edge, and the disk tier ([`Disk`]) reads and writes in threads of its own. The
//! life of a request:
//!
//! ```text
//! cache.lookup(rules, request)
//!   Bypass    ask a server as the client asked;  head: cache.passed()
//!   Hit       strict: read the versions now; does hit.proof() hold?
//!               yes: cache.hit() is the answer      no: cache.refused() is mostly a fetch
//!   NotCached 504
//!   OnDisk    cache.recall(), then cache.recalled() looks up again
//!   Fetch     collapse.arrive(fetch.flight())
//!               (if fetch.is_shared(); else it is alone)
//!               Wait: until woken, then look up again (request.waited)
//!               Lead, Alone: strict: read the site's sequence, *then* ask a server
//!                 no response:  cache.failed(), else an error;   collapse.landed(NotStored)
//!                 its head:     cache.respond(.., prove)
//!                   Answer  this is the answer;                  collapse.landed(Stored)
//!                   Again   ask once more, with a sequence read anew
//!                   Pass    the head, and of the body what `deliver` says
//!                     fill: Ok   push each chunk; at the end cache.finish();
//!                                                                collapse.landed(Landing::of(..))
//!                     fill: Err                                  collapse.landed(Landing::of(..))
//!                 the client goes away before:                   collapse.crashed()
//! ```
//!
//! **Never older than a purge, in all modes.** A response carries the number of the last purge
//! *before* its server was asked ([`purge`]), so that one on its way while its page was purged is
//! not used. **Never older than an update, in mode `strict`.** The proof `P` is opaque here: the
//! edge makes it of versions that it read before it asked the server, and checks it after each
//! request's arrival.
//!
//! **Never shared** (see [`NotStored`]): what sets a cookie or answers an authorised request,
//! unless it says `public` or `s-maxage` (or, for the latter, `must-revalidate`); what was made for
//! a request with cookies, unless `Vary` names them or the site's setting says otherwise. What of a
//! request may reach a server unkeyed stands in [`forward`].
//!
//! `http-cache-semantics` decides as one object with its own parser, which splits quoted strings,
//! knows directives in small letters only and takes dates that are none; so the rules here are our
//! own.

mod cache;
mod collapse;
mod conditional;
mod date;
mod directives;
mod disk;
mod draft;
mod entry;
mod explain;
mod fetch;
pub mod files;
mod fill;
pub mod forward;
mod freshness;
mod key;
mod merge;
mod moment;
mod options;
pub mod purge;
mod range;
mod respond;
mod rules;
mod soft;
mod stats;
mod status;
mod store;
mod structured;
pub mod tags;
mod vary;

pub use cache::{Bypass, Cache, Hit, Lookup, OnDisk, Question};
pub use collapse::{Collapse, CollapseLimits, FlightId, Landing, Role, Ticket, Wake};
pub use disk::{Codec, Disk, DiskLimits, DiskStats, Done, Recalled};
pub use entry::{Answer, Entry};
pub use explain::Explained;
pub use fetch::Fetch;
pub use fill::Fill;
pub use freshness::Freshness;
pub use key::{Key, KeyRef, Request, Scheme};
pub use moment::UnixMs;
pub use options::{Cookies, Limits, Mode, Rules, Source, Unkeyed};
pub use purge::Purge;
pub use range::Cut;
pub use respond::{Deliver, Head, Reply};
pub use rules::NotStored;
pub use stats::{Audit, Stats};
pub use status::{CacheStatus, Forward};
pub use tags::Tags;
