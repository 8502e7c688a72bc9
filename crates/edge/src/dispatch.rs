//! Which server takes a request, and who waits: queues, balancing, counts in shared memory.
//!
//! ```text
//! request(S):  it belongs to a server that serves S and is full     -> wait in that server's lane
//!              S's queue is not empty, or no server of S has room   -> wait in the queue
//!              else choose a server and count the request in its slot -> permit
//! left(n):     count out; who waits longest for n's site goes next
//! look:        follow nodes that moved, forget edges that died, share room with edges whose
//!              queues are not empty, then let go whoever now finds room
//! ```
//!
//! A site may have classes of requests: a higher one goes first, takes the place of a lower one in
//! a full queue, and lower ones are refused that would be answered too late ([`ranked`]).
//!
//! A sticky request that has waited `stick_wait` for its server, or whose server is gone, changes
//! to the queue and keeps its place by arrival.
//!
//! [`core`] is the pure part: one lock is held around it for a few hundred nanoseconds, twice a
//! request; nothing in it blocks, allocates per request or reads a clock. [`handle`] is the shell:
//! waiting, time-outs, permits.

mod admit;
mod core;
mod counts;
mod drain;
mod handle;
mod health;
mod lanes;
mod node;
mod queue;
mod ranked;
mod service;
mod slow_start;
mod stick;

pub use core::{DispatchOptions, SiteRules};
pub use counts::{ClassCounts, SiteCounts};
pub use handle::{Dispatch, NodePermit};
pub use health::{EJECT_MAX, HealthOptions};
