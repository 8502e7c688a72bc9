//! The look loop: one thread that looks at the pool, tells its host, and moves nodes.
//!
//! ```text
//! every look_every while the host has a request queued or in flight, else every idle_look_every;
//! the first queued request wakes the loop at once:
//!   tell     own lease and queues into the site record
//!   look     site words, then node words (protocol::Look)
//!   judge    which agents and edges are alive, by this thread's clock
//!   hand     what was seen to the host, which follows moves and lets requests go
//!   decide   run what decide::Core gives, each operation inline; at most one move
//! ```
//!
//! It serves the built-in edge and drivers of other proxies alike: what they have in common is
//! the face [`Host`]. Deadlines are absolute, so a late look does not shift the next ones. A look
//! that is at most half an interval late counts as made at its deadline: the holding time is a
//! number of looks, not the sum of their delays.

mod attach;
mod commands;
mod dial;
mod far;
mod faults;
mod host;
mod line;
mod memory;
mod pace;
mod pool;
mod reach;
mod run;
mod service;
mod shortfall;
mod status;
mod stop_point;
mod swaps;
mod update;

pub use commands::{Answer, Command, Commander, Gone};
pub use host::{FirstDispatch, Host, Link, NodeSeen, SiteSeen};
pub use line::{Dial, Line, Place};
pub use memory::Memory;
pub use pace::Pace;
pub use run::{Looper, LooperHandle, LooperOptions, StartError};
pub use shortfall::{BelowHard, Cause};
pub use status::{EdgeState, LoopStatus, MoveLine, NodeState, SiteState};
pub use update::Update;

use std::time::Duration;

/// The machine's monotonic clock: the same for all processes, so that what two of them noted can
/// be compared in a figure. Decisions compare only what this process noted itself.
#[must_use]
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
