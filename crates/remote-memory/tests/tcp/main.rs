//! The TCP service under everything that peers and networks do to it.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

mod contention;
mod deadlines;
mod frames;
mod fuzz;
mod losing;
mod proxy;
mod refusing;
mod support;
mod waking;
