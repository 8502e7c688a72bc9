//! Records to requests that leave at set times. Pure but for the records it is given.
//!
//! ```text
//! rates:     within an interval, gaps are exponential with the interval's mean: a Poisson process
//!            whose rate is the trace's. Columns are drawn by their share.
//! requests:  a window in trace time sorts them; stamps of whole seconds are spread over them.
//!            scale < 1 keeps each by chance, scale > 1 sends some more than once.
//! both:      offset from the trace's first record, less `start`, divided by `compress`.
//! ```

use super::random::Random;
use super::records::{Record, What};
use super::source::TraceError;
use http::Uri;
use http::uri::PathAndQuery;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Logs are written when responses end, and some are sorted by nothing finer than the minute.
const SORT_WINDOW_NS: i64 = 60_000_000_000;
/// Requests that wait to be sorted: beyond it the window gets shorter instead of the memory larger.
const SORTED_MAX: usize = 100_000;
/// Requests of rates follow each other no closer: ten million in a second of the replay are more
/// than any generator sends, and times of years keep growing by it.
const GAP_NS_MIN: f64 = 100.0;
/// A request is sent so many times at most.
const COPIES_MAX: u64 = 10_000;

/// What of a trace is replayed, how fast, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TraceWindow {
    /// Where to begin, from the trace's first record; seconds of the trace.
    pub start_s: f64,
    /// How much to replay; seconds of the trace; all of it when `None`.
    pub duration_s: Option<f64>,
    /// Seconds of the trace in one second.
    pub compress: f64,
    /// Requests for each of the trace's.
    pub scale: f64,
    /// Decides every draw.
    pub seed: u64,
}

impl Default for TraceWindow {
    /// All of it, as it was.
    fn default() -> Self {
        Self { start_s: 0.0, duration_s: None, compress: 1.0, scale: 1.0, seed: 1 }
    }
}

impl TraceWindow {
    /// Refuses what makes no sense.
    ///
    /// # Errors
    ///
    /// [`TraceError::Options`].
    pub fn check(&self) -> Result<(), TraceError> {
        let wrong = |text: &str| Err(TraceError::Options(text.to_owned()));
        // A century; nanoseconds of it fit 64 bits.
        let is_time = |seconds: f64| (0.0..=3.2e9).contains(&seconds);
        if !is_time(self.start_s) || self.duration_s.is_some_and(|s| !is_time(s) || s == 0.0) {
            return wrong("start and duration must be times from 0 to 100 years");
        }
        if !(1e-3..=1e9).contains(&self.compress) {
            return wrong("compression must be 0.001 to 1e9");
        }
        if !(1e-9..=COPIES_MAX as f64).contains(&self.scale) {
            return wrong("the scale must be 1e-9 to 10,000");
        }
        Ok(())
    }
}

/// Which requests go to a site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteRule {
    /// Those whose path begins so; the longest prefix wins. Without one, what no prefix fits, in
    /// turn with the other sites without.
    pub prefix: Option<String>,
}

/// A request that is to leave at a set time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// From the start of the replay; nanoseconds.
    pub at_ns: u64,
    /// Place of its site.
    pub site: usize,
    /// Its path, where it is not the replay's own.
    pub uri: Option<Uri>,
}

/// The arrivals of one trace.
pub struct Arrivals<R> {
    /// Gives the records in the order of the file.
    records: R,
    window: TraceWindow,
    rules: Vec<SiteRule>,
    /// With `{url}` and `{size}` in it.
    path: Option<String>,
    origin_ns: i64,
    random: Random,
    turn: usize,
    number: u64,
    interval: Option<Interval>,
    sorted: BinaryHeap<Reverse<Waiting>>,
    newest_ns: i64,
    given_ns: f64,
    has_ended: bool,
    unmatched: u64,
}

/// An interval of a trace of rates, under way.
struct Interval {
    next_ns: f64,
    end_ns: f64,
    mean_gap_ns: f64,
    counts: Vec<f64>,
    size_bytes: Option<u64>,
}

/// A request that waits to be sorted; ordered by its time, then by its place in the file.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    at_ns: i64,
    number: u64,
    site: usize,
    url: Option<String>,
    size_bytes: Option<u64>,
}

impl<R: FnMut() -> Result<Option<Record>, TraceError>> Arrivals<R> {
    /// `origin_ns` is the time from which offsets count; `path` may have `{url}` and `{size}` in
    /// it, and is what the trace says, or `/`, when `None`. There is a rule for each site.
    pub fn new(
        records: R,
        window: TraceWindow,
        rules: Vec<SiteRule>,
        path: Option<String>,
        origin_ns: i64,
    ) -> Self {
        // Without a placeholder it is the generator's path for all.
        let path = path.filter(|path| path.contains('{'));
        let random = Random::new(window.seed);
        Self {
            records,
            window,
            rules,
            path,
            origin_ns,
            random,
            turn: 0,
            number: 0,
            interval: None,
            sorted: BinaryHeap::new(),
            newest_ns: i64::MIN,
            given_ns: 0.0,
            has_ended: false,
            unmatched: 0,
        }
    }

    /// The next arrival; their times never go back. None at the end.
    ///
    /// # Errors
    ///
    /// As the records.
    pub fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        loop {
            if let Some(arrival) = self.of_interval() {
                return Ok(Some(arrival));
            }
            if let Some(arrival) = self.of_sorted() {
                return Ok(Some(arrival));
            }
            if self.has_ended {
                return Ok(None);
            }
            match (self.records)()? {
                Some(record) => self.take(record),
                None => self.has_ended = true,
            }
        }
    }

    /// Requests that no site takes.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// The window in nanoseconds from the origin.
    fn bounds_ns(&self) -> (f64, f64) {
        let start_ns = self.window.start_s * 1e9;
        let end_ns = self.window.duration_s.map_or(f64::INFINITY, |s| start_ns + s * 1e9);
        (start_ns, end_ns)
    }

    fn take(&mut self, record: Record) {
        let offset_ns = record.at_ns.saturating_sub(self.origin_ns);
        let (start_ns, end_ns) = self.bounds_ns();
        match record.what {
            What::Rates { width_ns, counts, size_bytes } => {
                let from_ns = offset_ns as f64;
                if from_ns >= end_ns {
                    self.has_ended = true;
                    return;
                }
                let sum: f64 = counts.iter().sum::<f64>() * self.window.scale;
                let next_ns = from_ns.max(start_ns);
                let end_ns = (from_ns + width_ns as f64).min(end_ns);
                if sum > 0.0 && next_ns < end_ns {
                    let least_ns = GAP_NS_MIN * self.window.compress.max(1.0);
                    let mean_gap_ns = (width_ns as f64 / sum).max(least_ns);
                    self.interval =
                        Some(Interval { next_ns, end_ns, mean_gap_ns, counts, size_bytes });
                }
            }
            What::Request { url, size_bytes, resolution_ns } => {
                // Those of a disordered log may come later and still be within.
                if offset_ns.saturating_sub(SORT_WINDOW_NS) as f64 >= end_ns {
                    self.has_ended = true;
                    return;
                }
                self.newest_ns = self.newest_ns.max(offset_ns);
                let Some(site) = self.site_of(url.as_deref()) else {
                    self.unmatched += 1;
                    return;
                };
                for _ in 0..self.copies() {
                    let spread_ns = self.random.unit() * resolution_ns as f64;
                    let at_ns = offset_ns.saturating_add(spread_ns as i64);
                    if (start_ns..end_ns).contains(&(at_ns as f64)) {
                        self.number += 1;
                        let (url, number) = (url.clone(), self.number);
                        self.sorted.push(Reverse(Waiting { at_ns, number, site, url, size_bytes }));
                    }
                }
            }
        }
    }

    /// How often a request is sent: the scale in the mean.
    fn copies(&mut self) -> u64 {
        let whole = self.window.scale.floor();
        let one_more = self.random.unit() < self.window.scale - whole;
        whole as u64 + u64::from(one_more)
    }

    fn of_interval(&mut self) -> Option<Arrival> {
        let gap = self.random_gap()?;
        let interval = self.interval.as_mut()?;
        interval.next_ns += gap * interval.mean_gap_ns;
        if interval.next_ns >= interval.end_ns {
            self.interval = None;
            return None;
        }
        let (at_ns, size_bytes) = (interval.next_ns, interval.size_bytes);
        // Of an interval that comes too late in the file all leaves at once, as late requests do.
        self.given_ns = self.given_ns.max(at_ns);
        let at_ns = self.given_ns;
        let column = self.column();
        let site = match self.rules.len() {
            // One column for all sites.
            sites if column.is_none() => self.next_turn(sites),
            sites => column.unwrap_or(0) % sites.max(1),
        };
        Some(self.arrival(at_ns, site, None, size_bytes))
    }

    /// A draw, if there is an interval to draw for: none is wasted, so that seeds mean the same.
    fn random_gap(&mut self) -> Option<f64> {
        self.interval.is_some().then(|| self.random.exponential())
    }

    /// A column by its share; none if there is but one.
    fn column(&mut self) -> Option<usize> {
        let counts = &self.interval.as_ref()?.counts;
        if counts.len() < 2 {
            return None;
        }
        let mut left = self.random.unit() * counts.iter().sum::<f64>();
        let found = counts.iter().position(|count| {
            left -= count;
            left < 0.0
        });
        // Rounding may leave a hair.
        Some(found.unwrap_or(counts.len() - 1))
    }

    /// The oldest request, once nothing older is to be expected.
    fn of_sorted(&mut self) -> Option<Arrival> {
        let oldest_ns = self.sorted.peek()?.0.at_ns;
        let is_settled = self.newest_ns.saturating_sub(oldest_ns) >= SORT_WINDOW_NS;
        if !is_settled && !self.has_ended && self.sorted.len() < SORTED_MAX {
            return None;
        }
        let Reverse(Waiting { at_ns, site, url, size_bytes, .. }) = self.sorted.pop()?;
        // What came too late to be sorted leaves at once.
        self.given_ns = self.given_ns.max(at_ns as f64);
        Some(self.arrival(self.given_ns, site, url.as_deref(), size_bytes))
    }

    fn site_of(&mut self, url: Option<&str>) -> Option<usize> {
        let fits = |rule: &SiteRule| {
            let prefix = rule.prefix.as_deref()?;
            url?.starts_with(prefix).then_some(prefix.len())
        };
        let longest = (0..self.rules.len()).rev().max_by_key(|&place| fits(&self.rules[place]));
        if let Some(place) = longest.filter(|&place| fits(&self.rules[place]).is_some()) {
            return Some(place);
        }
        let open: Vec<usize> =
            (0..self.rules.len()).filter(|&place| self.rules[place].prefix.is_none()).collect();
        if open.is_empty() { None } else { Some(open[self.next_turn(open.len())]) }
    }

    fn next_turn(&mut self, sites: usize) -> usize {
        self.turn = self.turn.wrapping_add(1);
        self.turn.wrapping_sub(1) % sites.max(1)
    }

    fn arrival(&self, at_ns: f64, site: usize, url: Option<&str>, size: Option<u64>) -> Arrival {
        let from_start_ns = (at_ns - self.bounds_ns().0).max(0.0);
        let text = match &self.path {
            Some(path) => {
                let size = size.unwrap_or(0).to_string();
                Some(path.replace("{url}", url.unwrap_or("/")).replace("{size}", &size))
            }
            None => url.map(str::to_owned),
        };
        let uri = text.and_then(|text| PathAndQuery::from_maybe_shared(text).ok()).map(Uri::from);
        Arrival { at_ns: (from_start_ns / self.window.compress) as u64, site, uri }
    }
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
