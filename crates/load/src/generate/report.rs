//! What a run has to tell.

use std::collections::BTreeMap;
use std::fmt;

use crate::clock::ThreadTime;
use crate::stats::{Latency, WindowCounts};
use crate::trace::{TraceError, TraceSummary};

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection could be made, at any edge.
    Connect,
    /// The connection broke after the request, or a part of it, was sent and before the response's
    /// head was complete. Also on a kept connection: a browser would send the request once more,
    /// but that would hide what a test must see.
    Transport,
    /// The connection broke within the response's body.
    Body,
    /// No complete response within the time-out.
    Timeout,
    /// A server of another site answered.
    WrongSite,
    /// The status was not 2xx.
    Status(u16),
    /// Open loop only: no room to send it within the time-out.
    Unsent,
}

/// Failed requests by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// See [`Failure::Connect`].
    pub connect: u64,
    /// See [`Failure::Transport`].
    pub transport: u64,
    /// See [`Failure::Body`].
    pub body: u64,
    /// See [`Failure::Timeout`].
    pub timeout: u64,
    /// See [`Failure::WrongSite`].
    pub wrong_site: u64,
    /// See [`Failure::Unsent`].
    pub unsent: u64,
    /// Requests per status that was not 2xx.
    pub status: BTreeMap<u16, u64>,
}

impl Failures {
    /// Failed requests of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        let status: u64 = self.status.values().sum();
        self.connect
            + self.transport
            + self.body
            + self.timeout
            + self.wrong_site
            + self.unsent
            + status
    }

    /// Counts one.
    pub fn add(&mut self, failure: Failure) {
        match failure {
            Failure::Connect => self.connect += 1,
            Failure::Transport => self.transport += 1,
            Failure::Body => self.body += 1,
            Failure::Timeout => self.timeout += 1,
            Failure::WrongSite => self.wrong_site += 1,
            Failure::Unsent => self.unsent += 1,
            Failure::Status(code) => *self.status.entry(code).or_default() += 1,
        }
    }

    /// Adds all of another record.
    pub fn merge(&mut self, other: &Self) {
        self.connect += other.connect;
        self.transport += other.transport;
        self.body += other.body;
        self.timeout += other.timeout;
        self.wrong_site += other.wrong_site;
        self.unsent += other.unsent;
        for (&code, &count) in &other.status {
            *self.status.entry(code).or_default() += count;
        }
    }
}

impl fmt::Display for Failures {
    /// Such as `3 (2 transport, 1 status 503)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.total())?;
        let mut parts: Vec<String> = [
            (self.connect, "connect"),
            (self.transport, "transport"),
            (self.body, "body"),
            (self.timeout, "timeout"),
            (self.wrong_site, "wrong site"),
            (self.unsent, "unsent"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
        parts.extend(self.status.iter().map(|(code, count)| format!("{count} status {code}")));
        if parts.is_empty() { Ok(()) } else { write!(out, " ({})", parts.join(", ")) }
    }
}

/// The requests of one site, each counted once.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests whose outcome is known: `ok` and failed ones together, counted on their own.
    pub requests: u64,
    /// Complete responses with a 2xx status.
    pub ok: u64,
    /// The others.
    pub failures: Failures,
    /// Latencies of the `ok` ones; to the end of the body.
    pub latency: Latency,
    /// When the `ok` ones were complete.
    pub completions: WindowCounts,
}

impl Tally {
    /// Whether every request was counted exactly once.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.requests == self.ok + self.failures.total() && self.ok == self.latency.count()
    }

    /// Adds all of another tally but its windows, which need not be of the same time.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.ok += other.ok;
        self.failures.merge(&other.failures);
        self.latency.add(&other.latency);
    }
}

/// Connections of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Made.
    pub made: u64,
    /// Attempts that failed at one address; the next one was tried.
    pub refused: u64,
}

/// What every run reports.
#[derive(Clone, Debug, Default)]
pub struct RunReport {
    /// Start of the run on the monotonic clock; nanoseconds.
    pub start_ns: u64,
    /// The last response; nanoseconds.
    pub end_ns: u64,
    /// One tally per site, in the order of the options.
    pub sites: Vec<Tally>,
    /// Connections made for it.
    pub connections: Connections,
    /// CPU time of the generator's thread in this run.
    pub cpu: ThreadTime,
}

impl RunReport {
    /// Length of the run; seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Good responses per second over the whole run, all sites together.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        let ok: u64 = self.sites.iter().map(|tally| tally.ok).sum();
        let seconds = self.seconds();
        if seconds > 0.0 { ok as f64 / seconds } else { 0.0 }
    }

    /// All sites together, without windows.
    #[must_use]
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.sites.iter().for_each(|tally| total.merge(tally));
        total
    }

    /// CPU time of the generator per request; microseconds; 0 without requests.
    #[must_use]
    pub fn cpu_us_per_request(&self) -> f64 {
        let requests: u64 = self.sites.iter().map(|tally| tally.requests).sum();
        if requests == 0 { 0.0 } else { self.cpu.run_ns as f64 / 1e3 / requests as f64 }
    }
}

/// A burst: `N` requests to one site.
#[derive(Clone, Debug, Default)]
pub struct BurstReport {
    /// Place of the site in the options.
    pub site: usize,
    /// Start of the burst: just before its first request; nanoseconds.
    pub start_ns: u64,
    /// Its last response; nanoseconds.
    pub end_ns: u64,
    /// Its requests.
    pub tally: Tally,
    /// When each good response was complete, in that order; nanoseconds.
    pub ok_at_ns: Vec<u64>,
    /// Connections made for it.
    pub connections: Connections,
    /// CPU time of the generator's thread in this burst.
    pub cpu: ThreadTime,
}

impl BurstReport {
    /// Length of the burst; seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Good responses per second.
    #[must_use]
    pub fn throughput_per_second(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.tally.ok as f64 / seconds } else { 0.0 }
    }

    /// Time from the start to the `k`-th good response (the first is 1); milliseconds. `None` when
    /// there were fewer.
    #[must_use]
    pub fn ms_to_response(&self, k: usize) -> Option<f64> {
        let at_ns = *self.ok_at_ns.get(k.checked_sub(1)?)?;
        Some(at_ns.saturating_sub(self.start_ns) as f64 / 1e6)
    }
}

/// An open loop at a set rate.
#[derive(Clone, Debug, Default)]
pub struct ConstantReport {
    /// As of every run; latencies count from the set times.
    pub run: RunReport,
    /// Requests that left more than [`super::LATE_US`] after their set time.
    pub late: u64,
    /// The most requests in flight at any moment.
    pub peak_in_flight: usize,
}

/// A replay of traces.
#[derive(Debug)]
pub struct ReplayReport {
    /// As of an open loop; latencies count from the set times.
    pub constant: ConstantReport,
    /// What was read of each trace, or why reading ended early; empty if the replay was stopped.
    pub traces: Result<Vec<TraceSummary>, TraceError>,
}

/// One half period of a square wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfPeriod {
    /// Its start on the monotonic clock; nanoseconds.
    pub start_ns: u64,
    /// Place of the loaded site in the options.
    pub site: usize,
}

/// A square wave: two sites in turn.
#[derive(Clone, Debug, Default)]
pub struct WaveReport {
    /// As of every run.
    pub run: RunReport,
    /// The half periods that were begun, in order.
    pub halves: Vec<HalfPeriod>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_named() {
        let mut failures = Failures::default();
        assert_eq!(failures.to_string(), "0");
        failures.add(Failure::Transport);
        failures.add(Failure::Status(503));
        failures.add(Failure::Status(503));
        assert_eq!(failures.to_string(), "3 (1 transport, 2 status 503)");
        let mut twice = failures.clone();
        twice.merge(&failures);
        assert_eq!(twice.total(), 6);
    }

    #[test]
    fn a_tally_that_counts_twice_or_not_at_all_does_not_add_up() {
        let mut tally = Tally { requests: 2, ok: 1, ..Tally::default() };
        tally.latency.record_ns(5_000);
        assert!(!tally.adds_up());
        tally.failures.add(Failure::Timeout);
        assert!(tally.adds_up());
        tally.ok += 1;
        assert!(!tally.adds_up());
    }

    #[test]
    fn time_to_the_kth_response() {
        let burst = BurstReport {
            start_ns: 1_000_000,
            end_ns: 5_000_000,
            ok_at_ns: vec![3_000_000, 5_000_000],
            ..BurstReport::default()
        };
        assert_eq!(burst.ms_to_response(1), Some(2.0));
        assert_eq!(burst.ms_to_response(2), Some(4.0));
        assert_eq!(burst.ms_to_response(3), None);
        assert_eq!(burst.ms_to_response(0), None);
    }
}
