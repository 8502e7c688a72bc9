//! Recorded load: traces of real sites, replayed as open-loop load.
//!
//! ```text
//! file -> Source (decompress, bounded pieces) -> lines (pure parsers) -> Records
//!      -> Arrivals (start, duration, scale, sites; seeded) -> Replay (a thread) -> Generator
//! ```
//!
//! Two kinds of traces: *rates* count requests in intervals, and become seeded Poisson arrivals of
//! that rate; *requests* have one record each, and leave as recorded, stamps of whole seconds
//! spread over their second. Times, rates and lines are read as a stream: a file of any length
//! takes the same memory. Two formats are not in the order of time, and held whole up to a bound.
//!
//! A line that cannot be read is counted and named by its number; more than a bound of them is an
//! error.

mod arrivals;
mod format;
#[cfg(test)]
mod fuzz_tests;
mod lines;
mod moment;
mod random;
mod records;
mod replay;
mod source;
mod whole;

pub use arrivals::{Arrival, Arrivals, SiteRule, TraceWindow};
pub use format::Format;
pub use lines::LineReader;
pub(crate) use random::Random;
pub use records::{BadLine, Record, Records, What};
pub(crate) use replay::Next;
pub use replay::{Replay, ReplayOptions, TraceSummary};
pub use source::TraceError;

/// Bad lines that are accepted unless told otherwise: logs of weeks have a few.
pub const BAD_LINES_MAX: u64 = 100;
