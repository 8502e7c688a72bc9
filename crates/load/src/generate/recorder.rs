//! Where the outcomes of a run are counted.

use std::cell::RefCell;

use super::generator::Progress;
use super::report::{Failure, Tally};
use crate::clock::now_ns;
use crate::stats::Latency;

/// Counts of one run, shared by its clients.
pub(super) struct Recorder {
    /// Start of the run.
    pub(super) start_ns: u64,
    counts: RefCell<Counts>,
}

/// What was counted.
pub(super) struct Counts {
    /// One per site of the options.
    pub(super) tallies: Vec<Tally>,
    /// When each good response was complete; for bursts only.
    pub(super) ok_at_ns: Option<Vec<u64>>,
    /// The last outcome, or the start.
    pub(super) end_ns: u64,
    /// Latencies since the last report of progress; for runs with progress only.
    recent: Option<Vec<Latency>>,
}

impl Recorder {
    /// An empty record; the run starts now.
    pub(super) fn new(sites: usize, live: bool, burst_requests: Option<u64>) -> Self {
        let expected = burst_requests.and_then(|requests| usize::try_from(requests).ok());
        // A huge burst grows its list instead of taking gigabytes at once.
        let ok_at_ns = expected.map(|requests| Vec::with_capacity(requests.min(1 << 20)));
        let tallies = vec![Tally::default(); sites];
        let recent = live.then(|| vec![Latency::default(); sites]);
        let start_ns = now_ns();
        let counts = Counts { tallies, ok_at_ns, end_ns: start_ns, recent };
        Self { start_ns, counts: RefCell::new(counts) }
    }

    /// Counts one request, once; its latency runs from `from_ns` to `now`.
    pub(super) fn record(&self, site: usize, from_ns: u64, now: u64, outcome: Result<(), Failure>) {
        let counts = &mut *self.counts.borrow_mut();
        let tally = &mut counts.tallies[site];
        tally.requests += 1;
        counts.end_ns = counts.end_ns.max(now);
        if let Err(failure) = outcome {
            tally.failures.add(failure);
            return;
        }
        tally.ok += 1;
        tally.latency.record_ns(now.saturating_sub(from_ns));
        tally.completions.add(now);
        if let Some(recent) = &mut counts.recent {
            recent[site].record_ns(now.saturating_sub(from_ns));
        }
        if let Some(ok_at_ns) = &mut counts.ok_at_ns {
            ok_at_ns.push(now);
        }
    }

    /// Shows the state of the run and starts a new interval of recent latencies.
    pub(super) fn show(&self, to: &mut dyn FnMut(&Progress<'_>)) {
        let counts = &mut *self.counts.borrow_mut();
        let elapsed_ns = now_ns().saturating_sub(self.start_ns);
        let recent = counts.recent.as_deref().unwrap_or_default();
        to(&Progress { elapsed_ns, sites: &counts.tallies, recent });
        counts.recent.iter_mut().flatten().for_each(Latency::clear);
    }

    /// Takes what was counted, leaving nothing.
    pub(super) fn take(&self) -> Counts {
        let empty = Counts { tallies: Vec::new(), ok_at_ns: None, end_ns: 0, recent: None };
        self.counts.replace(empty)
    }
}
