//! The load of one run: bursts on one thread, the trickle on another, and what both tell while
//! they run.

use super::DemoError;
use super::plan::{Burst, TRICKLE_PER_SITE};
use load::clock::{WINDOW_NS, window_of};
use load::generate::{ConstantOptions, Generator, GeneratorOptions, ProgressFn, RunReport, Tally};
use load::stats::Latency;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the threads tell how far they are: twice for each picture.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// A request without a response for so long has failed: far above what the longest queue of the
/// demo takes (64 clients, 4,000 requests per second), even on a machine that stalls.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What happened at one site since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    pub(super) ok: u64,
    pub(super) failed: u64,
    pub(super) latency: Latency,
}

#[derive(Debug)]
struct Shared {
    sites: Vec<Recent>,
    burst: Option<usize>,
}

/// What runs tell while they run.
#[derive(Clone, Debug)]
pub(super) struct Live(Arc<Mutex<Shared>>);

impl Live {
    pub(super) fn new(sites: usize) -> Self {
        let shared = Shared { sites: vec![Recent::default(); sites], burst: None };
        Self(Arc::new(Mutex::new(shared)))
    }

    /// What happened since the last call, and which site has a burst.
    pub(super) fn take(&self) -> (Vec<Recent>, Option<usize>) {
        let mut shared = self.lock();
        let empty = vec![Recent::default(); shared.sites.len()];
        (std::mem::replace(&mut shared.sites, empty), shared.burst)
    }

    fn begin(&self, burst: Option<usize>) {
        self.lock().burst = burst;
    }

    /// A function for a generator. `counted` is what it has told of the present run; whoever starts
    /// a new run empties it.
    fn listener(&self, counted: Rc<RefCell<Vec<(u64, u64)>>>) -> ProgressFn {
        let live = self.clone();
        Box::new(move |progress| {
            let mut counted = counted.borrow_mut();
            counted.resize(progress.sites.len(), (0, 0));
            let mut shared = live.lock();
            let told = progress.sites.iter().zip(progress.recent).zip(counted.iter_mut());
            for (((tally, latency), counted), site) in told.zip(&mut shared.sites) {
                let now = (tally.ok, tally.failures.total());
                site.ok += now.0 - counted.0;
                site.failed += now.1 - counted.1;
                site.latency.add(latency);
                *counted = now;
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // Counts are whole after each change; a thread that panicked ends the demo anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Its first request; nanoseconds of the monotonic clock.
    pub(super) start_ns: u64,
    /// Its last response.
    pub(super) end_ns: u64,
    /// All requests; without windows.
    pub(super) tally: Tally,
    /// Good responses in each 10 ms window of the monotonic clock that has one; as many as the
    /// longest demo has.
    windows: BTreeMap<u64, u32>,
    /// How long the thread that makes load waited for a CPU; nanoseconds. Of several threads the
    /// longest.
    pub(super) wait_ns: u64,
}

impl Outcome {
    /// Adds what the same thread made next.
    fn add(&mut self, run: &RunReport) {
        self.widen(run.start_ns, run.end_ns);
        self.wait_ns += run.cpu.wait_ns;
        for site in &run.sites {
            self.tally.merge(site);
            for (window, &count) in
                (site.completions.first_window()..).zip(site.completions.counts())
            {
                *self.windows.entry(window).or_default() += count;
            }
        }
    }

    /// Adds what another thread made at the same time.
    fn join(&mut self, other: &Self) {
        self.widen(other.start_ns, other.end_ns);
        self.wait_ns = self.wait_ns.max(other.wait_ns);
        self.tally.merge(&other.tally);
        for (&window, count) in &other.windows {
            *self.windows.entry(window).or_default() += count;
        }
    }

    fn widen(&mut self, start_ns: u64, end_ns: u64) {
        if start_ns < end_ns {
            let is_first = self.start_ns == self.end_ns;
            self.start_ns = if is_first { start_ns } else { self.start_ns.min(start_ns) };
            self.end_ns = self.end_ns.max(end_ns);
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.start_ns) as f64 / 1e9
    }

    /// Good responses per second.
    pub(super) fn rate(&self) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { self.tally.ok as f64 / seconds } else { 0.0 }
    }

    /// Seconds since the start, and good responses per second, `group` windows together. The last
    /// group, which is not whole, belongs to no point.
    pub(super) fn rate_points(&self, group: u64) -> Vec<(f64, f64)> {
        let seconds = (group * WINDOW_NS) as f64 / 1e9;
        let first = window_of(self.start_ns);
        let groups = window_of(self.end_ns).saturating_sub(first) / group;
        let point = |number: u64| {
            let from = first + number * group;
            let sum: u64 = self.windows.range(from..from + group).map(|(_, &n)| u64::from(n)).sum();
            (number as f64 * seconds, sum as f64 / seconds)
        };
        (0..groups).map(point).collect()
    }
}

/// Load under way.
#[derive(Debug)]
pub(super) struct Traffic {
    bursts: JoinHandle<Result<Outcome, DemoError>>,
    trickle: JoinHandle<Result<Outcome, DemoError>>,
}

impl Traffic {
    /// Starts both threads; they stop early when the options' flag is set.
    pub(super) fn start(
        mut load: GeneratorOptions,
        bursts: Vec<Burst>,
        live: &Live,
    ) -> Result<Self, DemoError> {
        load.timeout = TIMEOUT;
        let length = bursts.iter().map(|burst| burst.length).sum();
        let spawn = std::thread::Builder::new().name("bursts".into());
        let (for_bursts, told) = (load.clone(), live.clone());
        let bursts = spawn.spawn(move || make_bursts(for_bursts, &bursts, &told));
        let bursts = bursts.map_err(DemoError::Thread)?;
        let spawn = std::thread::Builder::new().name("trickle".into());
        let told = live.clone();
        let trickle = spawn.spawn(move || make_trickle(load, length, &told));
        Ok(Self { bursts, trickle: trickle.map_err(DemoError::Thread)? })
    }

    pub(super) fn is_over(&self) -> bool {
        self.bursts.is_finished() && self.trickle.is_finished()
    }

    /// Blocks until both threads have ended.
    pub(super) fn finish(self) -> Result<Outcome, DemoError> {
        let bursts = self.bursts.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        let trickle = self.trickle.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        let mut outcome = bursts?;
        outcome.join(&trickle?);
        Ok(outcome)
    }
}

/// Bursts end at set times, so that runs of different pools have the same traffic at the same time.
fn make_bursts(
    load: GeneratorOptions,
    bursts: &[Burst],
    live: &Live,
) -> Result<Outcome, DemoError> {
    let cancel = load.cancel.clone();
    let counted = Rc::default();
    let mut generator = Generator::new(load)?;
    generator.on_progress(TELL_EVERY, live.listener(Rc::clone(&counted)));
    let started = Instant::now();
    let mut until = Duration::ZERO;
    let mut outcome = Outcome::default();
    for burst in bursts {
        until += burst.length;
        let left = until.saturating_sub(started.elapsed());
        if cancel.is_cancelled() || left.is_zero() {
            continue;
        }
        live.begin(Some(burst.site));
        counted.borrow_mut().clear();
        outcome.add(&generator.closed(burst.site, left)?);
    }
    live.begin(None);
    Ok(outcome)
}

fn make_trickle(
    load: GeneratorOptions,
    duration: Duration,
    live: &Live,
) -> Result<Outcome, DemoError> {
    let sites = load.sites.len();
    let mut generator = Generator::new(load)?;
    generator.on_progress(TELL_EVERY, live.listener(Rc::default()));
    let rate = f64::from(TRICKLE_PER_SITE) * sites as f64;
    let options =
        ConstantOptions { sites: (0..sites).collect(), ..ConstantOptions::new(rate, duration, 0) };
    let mut outcome = Outcome::default();
    outcome.add(&generator.constant(&options)?.run);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::generate::SiteTarget;
    use load::stub::{NodeOptions, StubOptions, StubServer};

    #[test]
    fn bursts_and_trickle_are_counted_once_and_told_while_they_run() {
        let names = ["red", "blue"];
        let options = StubOptions::every_site_on_every_node(vec![NodeOptions::named("n1")], &names);
        let stub = StubServer::start(&options).unwrap();
        // Each listener serves one site; the load goes to one of them, whatever host it names.
        let edges = vec![stub.listeners()[0].address];
        let sites = names.map(SiteTarget::host).to_vec();
        let live = Live::new(2);
        let length = Duration::from_millis(300);
        let bursts = [1, 0].map(|site| Burst { site, length }).to_vec();
        let traffic = Traffic::start(GeneratorOptions::new(edges, sites), bursts, &live).unwrap();
        let outcome = traffic.finish().unwrap();
        assert!(outcome.tally.adds_up());
        assert_eq!(outcome.tally.failures.total(), 0);
        let trickle = u64::from(TRICKLE_PER_SITE) * 2 * 6 / 10;
        assert!(outcome.tally.ok > 2 * trickle, "{}", outcome.tally.ok);
        let (told, burst) = live.take();
        assert_eq!(burst, None);
        assert_eq!(told.iter().map(|site| site.ok).sum::<u64>(), outcome.tally.ok);
        assert!(told.iter().all(|site| site.ok == site.latency.count() && site.failed == 0));
        assert_eq!(live.take().0[0].ok, 0, "what was taken is not told again");
        let windows: u64 = outcome.windows.values().map(|&count| u64::from(count)).sum();
        assert_eq!(windows, outcome.tally.ok);
        assert!(outcome.seconds() >= 0.55, "{}", outcome.seconds());
        let points = outcome.rate_points(10);
        assert!(points.len() >= 5 && points.iter().any(|point| point.1 > 500.0), "{points:?}");
    }

    #[test]
    fn traffic_that_is_cancelled_ends_soon_and_load_that_makes_no_sense_is_an_error() {
        let edges = vec![std::net::SocketAddr::from(([127, 0, 0, 1], 9))];
        let options = GeneratorOptions::new(edges, vec![SiteTarget::host("red")]);
        let bursts = vec![Burst { site: 0, length: Duration::from_secs(600) }];
        let live = Live::new(1);
        let traffic = Traffic::start(options.clone(), bursts, &live).unwrap();
        options.cancel.cancel();
        let outcome = traffic.finish().unwrap();
        assert_eq!(outcome.tally.ok, 0);
        let nowhere = GeneratorOptions::new(Vec::new(), vec![SiteTarget::host("red")]);
        let bursts = vec![Burst { site: 0, length: Duration::from_secs(1) }];
        let traffic = Traffic::start(nowhere, bursts, &live).unwrap();
        assert!(matches!(traffic.finish(), Err(DemoError::Load(_))));
    }
}
