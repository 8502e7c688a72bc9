//! Stand-in servers with an exact capacity.
//!
//! A [`StubNode`] has `W` workers and a service time `t` and serves exactly `W / t` requests per
//! second ([`Schedule`] says how). Its servers, one listener per site, share that capacity. One
//! [`StubServer`] hosts any number of nodes in one thread.
//!
//! Life of a request: a connection's task reads the head and books the request
//! (`StubNode::arrive`), reads the body to its end, sleeps on the precise timer until the booked
//! time, and hands the reply to hyper.

mod control;
mod measure;
mod node;
mod record;
mod reply;
mod schedule;
mod server;
mod thread;
mod usage;

pub use control::{ControlError, fetch_record, post_reset};
pub use measure::{Capacity, MeasureError, measure_capacity};
pub use node::{Faults, NodeOptions, StubNode};
pub use record::{FULLY_USED_SHARE, NodeRecord, SiteRecord, StubRecord};
pub use schedule::{Booking, QueueFull, Schedule, WORKERS_MAX};
pub use server::{ListenOn, ListenerInfo, StubError, StubOptions, StubServer};
pub use usage::WINDOWS_KEPT;
