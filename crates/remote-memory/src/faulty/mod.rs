//! A transport in one process that goes wrong on purpose, in virtual time, from a seed.
//!
//! A [`Network`] holds regions and time; a [`QueuePair`] is a peer's connection with the face
//! [`Remote`](crate::Remote). There is no clock and no thread: time passes in
//! [`Network::advance`] and [`Network::run_next`] only, and the same seed with the same calls
//! gives the same run, which [`Network::fingerprint`] tells.
//!
//! It models a reliable connection of verbs, and where their rules leave room it is harsher than
//! an adapter:
//! - operations of one batch run in order at the owner, with others' between them; batches
//!   overtake each other, also on one connection;
//! - reads and writes of several words move cache line by cache line, in drawn order;
//! - a request can be late beyond its deadline and land afterwards, even over a connection that
//!   has long been broken and made again; a request or an answer can be lost;
//! - an owner that refuses an operation breaks the connection, and so does a deadline
//!   ([`Faults::timeout_breaks`]);
//! - an owner that crashes takes its regions with it: old keys are stale.

mod network;
mod queue_pair;
mod random;
mod requester;
mod responder;
mod settings;
mod world;

pub use network::{Network, Owner, OwnerError};
pub use queue_pair::QueuePair;
pub use settings::{Access, Faults, RegionSettings, capabilities};
pub use world::Statistics;
