//! Rates and latencies of the last second, from what runs tell several times a second. Pure.

use super::traffic::Recent;
use load::stats::Latency;
use std::collections::VecDeque;

/// How far back the meter reaches: short enough to see a burst begin, long enough that a quiet
/// site has some tens of requests; seconds.
const REACH_S: f64 = 1.0;
/// Most samples kept: a hundred each second would be more than anybody draws.
const SAMPLES_MAX: usize = 100;

#[derive(Debug)]
struct Sample {
    from_s: f64,
    sites: Vec<Recent>,
}

/// The last second of all sites.
#[derive(Debug, Default)]
pub(super) struct Meter {
    samples: VecDeque<Sample>,
    now_s: f64,
    requests: u64,
    failed: u64,
}

impl Meter {
    /// Adds what happened up to `now_s`, in seconds since any moment.
    pub(super) fn add(&mut self, now_s: f64, sites: Vec<Recent>) {
        self.failed += sites.iter().map(|site| site.failed).sum::<u64>();
        self.requests += sites.iter().map(|site| site.ok + site.failed).sum::<u64>();
        self.samples.push_back(Sample { from_s: self.now_s, sites });
        self.now_s = now_s;
        let is_old = |sample: &Sample| sample.from_s + REACH_S < now_s;
        while self.samples.len() > SAMPLES_MAX
            || (self.samples.len() > 1 && self.samples.front().is_some_and(is_old))
        {
            self.samples.pop_front();
        }
    }

    /// Good responses of a site per second.
    pub(super) fn rate(&self, site: usize) -> f64 {
        let ok: u64 = self.recent(site).map(|recent| recent.ok).sum();
        let from_s = self.samples.front().map_or(self.now_s, |sample| sample.from_s);
        if self.now_s > from_s { ok as f64 / (self.now_s - from_s) } else { 0.0 }
    }

    /// Latencies of a site.
    pub(super) fn latency(&self, site: usize) -> Latency {
        let mut latency = Latency::default();
        self.recent(site).for_each(|recent| latency.add(&recent.latency));
        latency
    }

    /// All requests since the beginning.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Of these, those that failed.
    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    fn recent(&self, site: usize) -> impl Iterator<Item = &Recent> {
        self.samples.iter().filter_map(move |sample| sample.sites.get(site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(ok: u64, failed: u64, latency_us: u64) -> Recent {
        let mut latency = Latency::default();
        (0..ok).for_each(|_| latency.record_ns(latency_us * 1_000));
        Recent { ok, failed, latency }
    }

    #[test]
    fn the_meter_forgets_what_is_older_than_a_second_but_counts_all() {
        let mut meter = Meter::default();
        assert_eq!(meter.rate(0), 0.0);
        for tick in 1..=8u32 {
            let slow = if tick <= 4 { 90_000 } else { 2_000 };
            let now_s = f64::from(tick) / 4.0;
            meter.add(now_s, vec![recent(100, 0, slow), recent(0, 1, 0)]);
        }
        assert!((meter.rate(0) - 400.0).abs() < 1e-9, "{}", meter.rate(0));
        assert_eq!((meter.rate(1), meter.rate(7)), (0.0, 0.0));
        assert_eq!(meter.latency(0).count(), 400);
        assert!(meter.latency(0).p99_us() < 2_100);
        assert_eq!((meter.requests(), meter.failed()), (808, 8));
        // A long stall leaves one sample, spread over the stall.
        meter.add(12.0, vec![recent(1_000, 0, 2_000), recent(0, 0, 0)]);
        assert!((meter.rate(0) - 100.0).abs() < 1e-9, "{}", meter.rate(0));
    }
}
