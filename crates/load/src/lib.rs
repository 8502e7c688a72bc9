//! Load, stub servers with an exact capacity, and plots. Knows no Polder type.
//!
//! Five parts, each usable alone:
//!
//! - [`stub`]: stand-in HTTP/1.1 servers. A node has `W` workers and a service time `t`; it serves
//!   exactly `W / t` requests per second, whatever the timers of the machine do.
//! - [`generate`]: HTTP/1.1 load over keep-alive connections: bursts, an open loop without
//!   coordinated omission, a square wave. Every request is counted exactly once.
//! - [`trace`]: recorded load of real sites, to be replayed by a generator.
//! - [`stats`]: latency histograms, medians with spread, counts in windows of time.
//! - [`plot`]: SVG pictures of all this.
//!
//! All times are nanoseconds of the machine's monotonic clock ([`clock::now_ns`]), so that the
//! records of stubs and generators of several processes can be laid side by side.

pub mod clock;
pub mod generate;
pub mod plot;
pub mod stats;
pub mod stub;
mod sys;
mod timer;
pub mod trace;
