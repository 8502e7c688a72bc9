//! The same bytes through our edge, nginx and HAProxy, each before the same origin: nobody may see
//! two messages where another sees one.
//!
//! We may refuse what others take. What we and another take must mean the same to both, and what
//! we alone take stands in a short list with its reason. `cargo xtask fuzz http_requests` and
//! `http_responses` run as long as they are told; the corpus holds what once mattered.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../common/mod.rs"]
mod common;
mod peers;
mod recorder;
mod requests;
mod responses;

use common::options;
use edge::Options;

/// How long everybody waits for bytes that do not come: beside the loopback's microseconds an age,
/// and short enough for many cases.
const IDLE_MS: u64 = 100;

/// How often a case is repeated before its result counts: on a busy machine one of the three may
/// have given up waiting.
const REPEATS: usize = 4;

/// An edge that waits as long as the peers do, and takes any host.
fn edge_options() -> Options {
    Options {
        default_site: Some(common::site()),
        header_timeout_ms: IDLE_MS,
        keep_alive_idle_ms: IDLE_MS,
        body_idle_timeout_ms: IDLE_MS,
        expect_wait_ms: 1,
        retries_max: 0,
        ..options()
    }
}

/// Repeats a check that found something; it counts only if it is found each time.
fn confirmed<T>(mut check: impl FnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    for _ in 0..REPEATS {
        match check() {
            Ok(found) => return found,
            Err(why) => last = why,
        }
    }
    panic!("{last}")
}
