//! HTTP/1.1 load over keep-alive connections, with every request counted exactly once.
//!
//! A [`Generator`] owns a current-thread runtime and its connections; its calls block until the
//! run is over. Four shapes of load:
//!
//! - [`Generator::burst`]: `N` requests to one site, a set number in flight; over when the last
//!   response is there. [`Generator::rotate`] lets bursts follow one another over the sites.
//! - [`Generator::constant`]: requests leave at set times, whether or not earlier ones were
//!   answered, and latency counts from the set time (no coordinated omission).
//! - [`Generator::replay`]: the same, with times (and paths) of recorded traces.
//! - [`Generator::wave`], [`Generator::closed`]: for a time, a set number in flight, in turn to one
//!   and another site.
//!
//! A request fails when its connection cannot be made, breaks off, or stays silent for the
//! time-out, when its status is not 2xx, or when another site's server answered it. For each
//! [`Tally`] `requests == ok + failures.total()`.

mod client;
mod closed;
mod constant;
mod engine;
mod generator;
mod open;
mod options;
mod recorded;
mod recorder;
mod report;

pub use constant::{ConstantOptions, OUTSTANDING_MAX, Spacing};
pub use generator::{GenerateError, Generator, Progress, ProgressFn};
pub use open::LATE_US;
pub use options::{Cancel, GeneratorOptions, IN_FLIGHT_DEFAULT, IN_FLIGHT_MAX, SiteTarget};
pub use report::{
    BurstReport, Connections, ConstantReport, Failure, Failures, HalfPeriod, ReplayReport,
    RunReport, Tally, WaveReport,
};
