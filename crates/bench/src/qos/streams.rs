//! Load of one site on a thread of its own, so that two sites are loaded side by side.

use anyhow::{Context as _, anyhow};
use load::clock::{ThreadTime, now_ns};
use load::generate::{Cancel, Generator, GeneratorOptions};
use load::stats::WindowCounts;
use load::trace::{Replay, ReplayOptions};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use load::clock::WINDOW_NS;
use load::generate::{RunReport, Tally};

/// How often the main thread looks whether a stream has ended, or somebody pressed Ctrl-C.
const POLL: Duration = Duration::from_millis(5);
/// A stream without an end of its own is stopped by its owner; this bounds a forgotten one.
const THROUGHOUT_MAX: Duration = Duration::from_secs(600);

/// What a stream does.
pub(crate) enum Shape {
    /// So many requests.
    Burst(u64),
    /// Requests until it is stopped.
    Throughout,
    /// Those of a trace, when they are due; so many in flight at most.
    Replay(Box<ReplayOptions>, usize),
}

/// What it did.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) tally: Tally,
    pub(crate) cpu: ThreadTime,
}

impl Done {
    fn of(run: RunReport, site: usize) -> Self {
        let RunReport { start_ns, end_ns, mut sites, cpu, .. } = run;
        Self { start_ns, end_ns, tally: sites.swap_remove(site), cpu }
    }

    /// Good responses per second from one moment to another, in whole windows of 10 ms.
    pub(crate) fn rate_within(&self, from_ns: u64, to_ns: u64) -> f64 {
        rate_within(&self.tally.completions, from_ns, to_ns)
    }
}

/// Events per second in the whole windows between two moments.
fn rate_within(counts: &WindowCounts, from_ns: u64, to_ns: u64) -> f64 {
    let (from, to) = (from_ns.div_ceil(WINDOW_NS), to_ns / WINDOW_NS);
    if to <= from {
        return 0.0;
    }
    let windows = counts.counts().iter().zip(counts.first_window()..);
    let within = windows.filter(|(_, window)| (from..to).contains(window));
    let events: u64 = within.map(|(&count, _)| u64::from(count)).sum();
    events as f64 / ((to - from) * WINDOW_NS) as f64 * 1e9
}

/// A stream under way.
pub(crate) struct Stream {
    cancel: Cancel,
    thread: Option<JoinHandle<anyhow::Result<Done>>>,
}

impl Stream {
    /// Starts it. `options` are those of the pool; its own flag to stop takes the place of theirs.
    pub(crate) fn start(mut options: GeneratorOptions, site: usize, shape: Shape) -> Self {
        let cancel = Cancel::default();
        options.cancel = cancel.clone();
        let thread = std::thread::spawn(move || {
            let mut generator = Generator::new(options)?;
            match shape {
                Shape::Burst(requests) => {
                    let burst = generator.burst(site, requests)?;
                    let (start_ns, end_ns) = (burst.start_ns, burst.end_ns);
                    Ok(Done { start_ns, end_ns, tally: burst.tally, cpu: burst.cpu })
                }
                Shape::Throughout => Ok(Done::of(generator.closed(site, THROUGHOUT_MAX)?, site)),
                Shape::Replay(options, outstanding_max) => {
                    let report = generator.replay(Replay::start(*options)?, outstanding_max)?;
                    report.traces.context("reading a trace")?;
                    Ok(Done::of(report.constant.run, site))
                }
            }
        });
        Self { cancel, thread: Some(thread) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Sends no more.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
    }

    /// Waits for what is in flight, and tells.
    pub(crate) fn finish(mut self) -> anyhow::Result<Done> {
        let joined = self.thread.take().map(JoinHandle::join);
        let joined = joined.context("a stream is finished once")?;
        joined.map_err(|_| anyhow!("a thread that made load panicked"))?
    }
}

impl Drop for Stream {
    /// Nobody wants to know: it sends no more, and ends by itself.
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// Waits until all streams are over, or for so long; whether they are. Stops them on Ctrl-C.
pub(crate) fn wait(
    streams: &[&Stream],
    most: Option<Duration>,
    cancel: &Cancel,
) -> anyhow::Result<bool> {
    let started_ns = now_ns();
    while !streams.iter().all(|stream| stream.is_over()) {
        if cancel.is_cancelled() {
            streams.iter().for_each(|stream| stream.stop());
            anyhow::bail!("interrupted");
        }
        let waited = Duration::from_nanos(now_ns() - started_ns);
        if most.is_some_and(|most| waited >= most) {
            return Ok(false);
        }
        sleep(POLL);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::generate::SiteTarget;
    use load::stub::{NodeOptions, StubOptions, StubServer};

    #[test]
    fn rates_count_whole_windows_only() {
        let mut counts = WindowCounts::default();
        for at_ms in [95, 100, 105, 110, 119, 120] {
            counts.add(at_ms * 1_000_000);
        }
        let rate =
            |from_ms: u64, to_ms: u64| rate_within(&counts, from_ms * 1_000_000, to_ms * 1_000_000);
        // The windows that begin at 100 and 110 ms, two events each.
        assert!((rate(98, 125) - 200.0).abs() < 1e-9, "{}", rate(98, 125));
        assert_eq!((rate(101, 109), rate(500, 600)), (0.0, 0.0));
    }

    #[test]
    fn a_stream_without_end_is_stopped_and_tells() {
        let stub = StubServer::start(&StubOptions::every_site_on_every_node(
            vec![NodeOptions::named("n1")],
            &["s"],
        ))
        .unwrap();
        let to = vec![stub.address("n1", "s").unwrap()];
        let options = || GeneratorOptions::new(to.clone(), vec![SiteTarget::host("s.test")]);
        let stream = Stream::start(options(), 0, Shape::Throughout);
        let burst = Stream::start(options(), 0, Shape::Burst(100));
        let cancel = Cancel::default();
        assert!(wait(&[&burst], None, &cancel).unwrap());
        assert!(!wait(&[&stream], Some(Duration::from_millis(20)), &cancel).unwrap());
        stream.stop();
        let (stream, burst) = (stream.finish().unwrap(), burst.finish().unwrap());
        assert_eq!(burst.tally.ok, 100);
        assert!(stream.tally.ok > 0 && stream.tally.failures.total() == 0);
        assert!(stream.rate_within(burst.start_ns, burst.end_ns + 20_000_000) > 0.0);
        cancel.cancel();
        let stream = Stream::start(options(), 0, Shape::Throughout);
        assert!(wait(&[&stream], None, &cancel).is_err());
        stream.finish().unwrap();
    }
}
