//! Regions of an owner elsewhere, reached over TCP by a small service in the owner.
//!
//! The fallback where there is neither shared memory nor an adapter, and the honest baseline: the
//! same one-sided operations, run by the processor of the owner as its own atomics are, so that
//! shared memory and this transport may mix on one region. It costs what it costs: the owner must
//! get to run ([`Priority`] says whether its service runs before other threads), and a stopped
//! owner answers nothing.
//!
//! The owner makes a [`Responder`] and serves regions; a peer makes a [`Requester`], learns what
//! is served ([`Requester::served`]) and speaks [`Remote`](crate::Remote). Frames are drawn in
//! [`record`] (outer) and [`message`] (inner).
//!
//! Who may connect: who holds the pool's key ([`PreSharedKey`], Noise `NNpsk0`, in both
//! directions), or, where both sides are set to it, anybody on the loopback device. Holders of the
//! key trust each other: there is no protection between peers of one pool.
//!
//! What is known of an operation without a result:
//!
//! | what happened | results | took effect |
//! | --- | --- | --- |
//! | the deadline passed after it was sent | `TimedOut`, then `Flushed` | maybe, or later |
//! | the connection broke after it was sent | `Disconnected`, then `Flushed` | maybe, or later |
//! | the owner refused an operation before it | `Flushed` | no, but peers must not rely on it |
//! | one of both before it was sent | `NotSent` | no |
//!
//! Back of the envelope for a batch of one with an idle owner: 2 sends, 2 receives and 2 wake-ups,
//! as a plain ping-pong has them, one wait more on each side, and with encryption 2.5 us for
//! sealing and opening four small records.

mod alarm;
mod channel;
mod error;
mod limiter;
mod link;
pub mod message;
mod peer;
mod priority;
pub mod record;
mod requester;
mod responder;
mod security;
mod served;
mod service;
mod stream;
mod window;

pub use error::{ConnectError, KeyError, NotFirst, Priority, Refusal, ServeError, WireError};
pub use requester::{Requester, RequesterSettings};
pub use responder::{Responder, ResponderCounts, ResponderSettings};
pub use security::{KEY_BYTES, PreSharedKey, Security};
pub use service::{GREETING_PEERS_MAX, PEERS_MAX};
