//! Shared memory: regions of one process, peers in others, and all that must be refused.

#![allow(clippy::unwrap_used)] // Test code: a panic is the report.

mod mapped;
mod processes;
mod refusing;
mod serving;
mod support;
mod users;
