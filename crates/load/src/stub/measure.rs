//! Does a stub really serve `W / t` requests per second here?

use std::time::Duration;

use thiserror::Error;

use super::node::NodeOptions;
use super::server::{StubError, StubOptions, StubServer};
use crate::clock::WINDOW_NS;
use crate::generate::{GenerateError, Generator, GeneratorOptions, SiteTarget};

/// Windows left out at both ends of a measurement: connecting and draining.
const EDGE_WINDOWS: usize = 5;

/// Fewest whole windows that a measurement needs.
const WINDOWS_MIN: usize = 10;

/// A measured capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Requests served per second under saturating load.
    pub measured_per_second: f64,
    /// `W / t`.
    pub exact_per_second: f64,
    /// Requests counted.
    pub requests: u64,
}

impl Capacity {
    /// Deviation from the exact capacity; -0.01 is 1 % too few.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.measured_per_second / self.exact_per_second - 1.0
    }
}

/// Why a capacity could not be measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The stub did not start.
    #[error(transparent)]
    Stub(#[from] StubError),
    /// The load did not start.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// Requests failed, or too few were made to tell.
    #[error("the capacity cannot be told: {0}")]
    Load(String),
}

/// Drives a node like `options` over loopback with `in_flight` requests in flight for `duration`
/// (about a second is right) and tells what it served per second in the middle of that time.
///
/// Blocks; starts a stub in a thread of its own and makes the load in the calling one.
///
/// # Errors
///
/// [`MeasureError`] when stub or load do not start, requests fail, or the time is too short.
pub fn measure_capacity(
    options: &NodeOptions,
    in_flight: usize,
    duration: Duration,
) -> Result<Capacity, MeasureError> {
    let stub_options = StubOptions::every_site_on_every_node(vec![options.clone()], &["measured"]);
    let stub = StubServer::start(&stub_options)?;
    let edges = stub.listeners().iter().map(|listener| listener.address).collect();
    let mut load = GeneratorOptions::new(edges, vec![SiteTarget::host("measured")]);
    load.in_flight = in_flight;
    let report = Generator::new(load)?.closed(0, duration)?;
    let tally = &report.sites[0];
    if tally.failures.total() > 0 {
        return Err(MeasureError::Load(format!("{} requests failed", tally.failures)));
    }
    let counts = tally.completions.counts();
    if counts.len() < 2 * EDGE_WINDOWS + WINDOWS_MIN {
        return Err(MeasureError::Load("the measurement was too short".to_owned()));
    }
    let middle = &counts[EDGE_WINDOWS..counts.len() - EDGE_WINDOWS];
    let requests: u64 = middle.iter().map(|&count| u64::from(count)).sum();
    let seconds = middle.len() as f64 * WINDOW_NS as f64 / 1e9;
    Ok(Capacity {
        measured_per_second: requests as f64 / seconds,
        exact_per_second: options.capacity_per_second(),
        requests,
    })
}
