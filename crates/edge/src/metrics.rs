//! What the data plane counts. Names are nouns with units; the doc comment is the help text.
//!
//! Each thread counts in a shard of its own, by relaxed additions that no other thread contends
//! for (a few nanoseconds each); a snapshot adds the shards up.

use crate::answer::Reason;
use crate::cached::CacheReport;
use crate::hosts::SiteSlot;
use crate::options::SiteOptions;
use pool_model::{NodeId, SiteId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Steps in each doubling of a latency: an error of at most one eighth.
const STEPS: usize = 8;
/// Doublings above the first steps: up to 2^27 us, which is over two minutes.
const DOUBLINGS: usize = 25;
const BUCKETS: usize = STEPS * (DOUBLINGS + 1);

/// A counter.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// For gauges: takes back what was added.
    pub(crate) fn take(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one thread counts for one site.
#[derive(Debug)]
pub(crate) struct SiteShard {
    /// By the first digit of the status; place 0 counts requests whose client went away.
    pub(crate) requests: [Count; 6],
    pub(crate) refusals: [Count; Reason::ALL.len()],
    pub(crate) retries: Count,
    pub(crate) connect_failures: Count,
    pub(crate) in_flight: Count,
    pub(crate) request_body_bytes: Count,
    pub(crate) response_body_bytes: Count,
    pub(crate) upgraded: Count,
    pub(crate) upgraded_open: Count,
    pub(crate) upgraded_bytes_in: Count,
    pub(crate) upgraded_bytes_out: Count,
    pub(crate) slower: Count,
    latency: [Count; BUCKETS],
    latency_us_sum: Count,
}

impl Default for SiteShard {
    fn default() -> Self {
        Self {
            requests: Default::default(),
            refusals: Default::default(),
            retries: Count::default(),
            connect_failures: Count::default(),
            in_flight: Count::default(),
            request_body_bytes: Count::default(),
            response_body_bytes: Count::default(),
            upgraded: Count::default(),
            upgraded_open: Count::default(),
            upgraded_bytes_in: Count::default(),
            upgraded_bytes_out: Count::default(),
            slower: Count::default(),
            latency: std::array::from_fn(|_| Count::default()),
            latency_us_sum: Count::default(),
        }
    }
}

impl SiteShard {
    pub(crate) fn record_latency(&self, taken: Duration) {
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        self.latency[bucket_of(micros)].add(1);
        self.latency_us_sum.add(micros);
    }
}

/// What one thread counts.
#[derive(Debug)]
pub(crate) struct Shard {
    /// One for each site, and one at the end for requests without a site.
    sites: Vec<SiteShard>,
    pub(crate) connections_accepted: Count,
    pub(crate) connections_open: Count,
    pub(crate) tls_handshakes: Count,
    pub(crate) tls_failures: Count,
    pub(crate) upstream_opened: Count,
    pub(crate) upstream_reused: Count,
    pub(crate) proxy_headers_refused: Count,
    /// Open upgraded connections by node: touched when one begins or ends.
    pub(crate) upgraded_by_node: Mutex<BTreeMap<NodeId, u64>>,
}

impl Shard {
    pub(crate) fn new(sites: usize) -> Self {
        Self {
            sites: (0..=sites).map(|_| SiteShard::default()).collect(),
            connections_accepted: Count::default(),
            connections_open: Count::default(),
            tls_handshakes: Count::default(),
            tls_failures: Count::default(),
            upstream_opened: Count::default(),
            upstream_reused: Count::default(),
            proxy_headers_refused: Count::default(),
            upgraded_by_node: Mutex::default(),
        }
    }

    pub(crate) fn site(&self, slot: Option<SiteSlot>) -> &SiteShard {
        let last = self.sites.len() - 1;
        &self.sites[slot.map_or(last, |slot| slot.0.min(last))]
    }
}

/// The counters of one site, or of the requests that had none.
#[derive(Clone, Debug, Default)]
pub struct SiteSnapshot {
    /// The site; none for requests whose host names no site.
    pub site: Option<SiteId>,
    /// Its name.
    pub name: String,
    /// Requests by the first digit of their status; place 0: the client went away before it.
    pub requests: [u64; 6],
    /// Answers of the edge itself, by reason, in the order of [`Reason::ALL`].
    pub refusals: [u64; Reason::ALL.len()],
    /// Attempts beyond the first.
    pub retries: u64,
    /// Connections to servers that could not be made.
    pub connect_failures: u64,
    /// Requests that are being served or wait, at this moment.
    pub in_flight: u64,
    /// Bytes of request bodies that were passed on.
    pub request_body_bytes: u64,
    /// Bytes of response bodies that were passed on.
    pub response_body_bytes: u64,
    /// Connections that were upgraded to another protocol.
    pub upgraded: u64,
    /// Those of them that are open at this moment.
    pub upgraded_open: u64,
    /// Bytes that they carried from clients to servers.
    pub upgraded_bytes_in: u64,
    /// Bytes that they carried from servers to clients.
    pub upgraded_bytes_out: u64,
    /// Requests that took longer than the site's objective; those that were refused or given up
    /// after it among them.
    pub slower: u64,
    /// Time from the request's head to the end of its response.
    pub latency: Latency,
}

impl SiteSnapshot {
    fn add(&mut self, shard: &SiteShard) {
        for (sum, count) in self.requests.iter_mut().zip(&shard.requests) {
            *sum += count.get();
        }
        for (sum, count) in self.refusals.iter_mut().zip(&shard.refusals) {
            *sum += count.get();
        }
        self.retries += shard.retries.get();
        self.connect_failures += shard.connect_failures.get();
        self.in_flight = self.in_flight.wrapping_add(shard.in_flight.get());
        self.request_body_bytes += shard.request_body_bytes.get();
        self.response_body_bytes += shard.response_body_bytes.get();
        self.upgraded += shard.upgraded.get();
        self.upgraded_open = self.upgraded_open.wrapping_add(shard.upgraded_open.get());
        self.upgraded_bytes_in += shard.upgraded_bytes_in.get();
        self.upgraded_bytes_out += shard.upgraded_bytes_out.get();
        self.slower += shard.slower.get();
        self.latency.add(shard);
    }

    /// The number of one kind of refusal.
    #[must_use]
    pub fn refused(&self, reason: Reason) -> u64 {
        self.refusals[reason.index()]
    }
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    counts: Vec<u64>,
    /// Sum of all times.
    pub sum_us: u64,
}

impl Latency {
    fn add(&mut self, shard: &SiteShard) {
        self.counts.resize(BUCKETS, 0);
        for (sum, count) in self.counts.iter_mut().zip(&shard.latency) {
            *sum += count.get();
        }
        self.sum_us += shard.latency_us_sum.get();
    }

    /// How many times were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many lie below a bound (rounded to the bucket it lies in).
    #[must_use]
    pub fn count_below_us(&self, bound_us: u64) -> u64 {
        self.counts.iter().take(bucket_of(bound_us)).sum()
    }

    /// The upper bound of the bucket in which the given share of the times ends; none without
    /// any.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let count = self.count();
        let wanted = (share.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, in_bucket) in self.counts.iter().enumerate() {
            seen += in_bucket;
            if seen >= wanted {
                return Some(upper_bound_us(bucket));
            }
        }
        None
    }
}

/// The counters of a whole edge.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// One for each site in the order of the options, and a last one for no site.
    pub sites: Vec<SiteSnapshot>,
    /// Client connections since the start.
    pub connections_accepted: u64,
    /// Client connections at this moment.
    pub connections_open: u64,
    /// TLS handshakes that were completed since the start.
    pub tls_handshakes: u64,
    /// TLS handshakes that failed, those whose client went away among them.
    pub tls_failures: u64,
    /// Connections made to servers since the start.
    pub upstream_opened: u64,
    /// Requests that went over a connection kept alive.
    pub upstream_reused: u64,
    /// Open upgraded connections by their node. They hold none of its room for requests.
    pub upgraded_by_node: BTreeMap<NodeId, u64>,
    /// Connections that were closed because they did not begin with a header of the PROXY
    /// protocol as they must.
    pub proxy_headers_refused: u64,
    /// What the cache holds and has done; none while no site has one.
    pub cache: Option<CacheReport>,
    /// Lines of the access log that were dropped, because its queue was full or its file could
    /// not be written.
    pub access_log_dropped: u64,
}

pub(crate) fn snapshot(shards: &[Arc<Shard>], sites: &[SiteOptions]) -> Snapshot {
    let names = sites.iter().map(|site| (Some(site.id), site.name.clone()));
    let mut sum = Snapshot::default();
    for (slot, (site, name)) in names.chain([(None, String::new())]).enumerate() {
        let mut one = SiteSnapshot { site, name, ..SiteSnapshot::default() };
        for shard in shards {
            one.add(&shard.sites[slot]);
        }
        sum.sites.push(one);
    }
    for shard in shards {
        sum.connections_accepted += shard.connections_accepted.get();
        sum.connections_open = sum.connections_open.wrapping_add(shard.connections_open.get());
        sum.tls_handshakes += shard.tls_handshakes.get();
        sum.tls_failures += shard.tls_failures.get();
        sum.upstream_opened += shard.upstream_opened.get();
        sum.upstream_reused += shard.upstream_reused.get();
        let by_node = shard.upgraded_by_node.lock().unwrap_or_else(PoisonError::into_inner);
        for (&node, count) in &*by_node {
            *sum.upgraded_by_node.entry(node).or_default() += count;
        }
        sum.proxy_headers_refused += shard.proxy_headers_refused.get();
    }
    sum
}

/// Log-linear: values below [`STEPS`] have a bucket each, then each doubling has [`STEPS`].
fn bucket_of(micros: u64) -> usize {
    let steps = STEPS as u64;
    if micros < steps {
        return micros as usize;
    }
    let doubling = micros.ilog2() - STEPS.ilog2();
    let step = (micros >> doubling) - steps;
    let bucket = (doubling as usize + 1) * STEPS + step as usize;
    bucket.min(BUCKETS - 1)
}

/// The smallest value above a bucket.
fn upper_bound_us(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64 + 1;
    }
    let doubling = bucket / STEPS - 1;
    ((STEPS + bucket % STEPS + 1) as u64) << doubling
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(micros in 0_u64..100_000_000) {
            let bucket = bucket_of(micros);
            prop_assert!(micros < upper_bound_us(bucket));
            prop_assert!(bucket == 0 || upper_bound_us(bucket - 1) <= micros);
            prop_assert!(upper_bound_us(bucket) <= micros + micros / STEPS as u64 + 1);
        }
    }

    #[test]
    fn quantiles_come_from_all_threads() {
        let shards = [Arc::new(Shard::new(1)), Arc::new(Shard::new(1))];
        for index in 0..100_u64 {
            let site = shards[index as usize % 2].site(Some(SiteSlot(0)));
            site.record_latency(Duration::from_micros(if index < 98 { 100 } else { 9_000 }));
            site.requests[2].add(1);
        }
        shards[0].site(None).refusals[Reason::UnknownSite.index()].add(3);
        let options = [SiteOptions::new(SiteId::MIN, "one", &["one"])];
        let sum = snapshot(&shards, &options);
        let site = &sum.sites[0];
        assert_eq!((site.requests[2], site.latency.count()), (100, 100));
        let median = site.latency.quantile_us(0.5).unwrap();
        assert!((100..=113).contains(&median), "{median}");
        assert!(site.latency.quantile_us(0.99).unwrap() >= 9_000);
        assert_eq!(site.latency.count_below_us(1_000), 98);
        assert_eq!(sum.sites[1].refused(Reason::UnknownSite), 3);
        assert_eq!(sum.sites[1].latency.quantile_us(0.5), None);
    }
}
