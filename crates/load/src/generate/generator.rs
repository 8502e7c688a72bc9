//! The generator: its runtime, its connections, and the runs.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use thiserror::Error;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use super::client::{Plan, SitePlan};
use super::constant::{ConstantOptions, Steady};
use super::engine::Engine;
use super::open::Schedule;
use super::options::{GeneratorOptions, IN_FLIGHT_MAX};
use super::recorded::Recorded;
use super::recorder::Counts;
use super::report::{
    BurstReport, ConstantReport, HalfPeriod, ReplayReport, RunReport, Tally, WaveReport,
};
use crate::clock::{ThreadTask, ThreadTime, duration_ns};
use crate::stats::Latency;
use crate::trace::Replay;

/// Shortest time between two calls of a progress function: a terminal shows no more.
const PROGRESS_EVERY_MIN: Duration = Duration::from_millis(10);

/// Most half periods of a wave; an hour at one millisecond each.
const HALF_PERIODS_MAX: u64 = 3_600_000;

/// Most requests of an open run: three days at 10,000 per second; above it the set times would
/// begin to lose nanoseconds.
const CONSTANT_REQUESTS_MAX: f64 = 2.6e9;

/// How often a replay that seeks its first request looks for a stop that was asked for.
const PREPARE_LOOK: Duration = Duration::from_millis(20);

/// Why a run could not be made.
#[derive(Debug, Error)]
pub enum GenerateError {
    /// A setting makes no sense; the text says which and why.
    #[error("{0}")]
    Options(String),
    /// The runtime or the timer could not be made.
    #[error("cannot start the load generator: {0}")]
    Start(#[from] io::Error),
}

/// The state of a run in progress.
#[derive(Debug)]
pub struct Progress<'run> {
    /// Time since the run's start; nanoseconds.
    pub elapsed_ns: u64,
    /// One tally per site of the options, so far.
    pub sites: &'run [Tally],
    /// Latencies since the last call, per site.
    pub recent: &'run [Latency],
}

/// A function called now and then during runs, on the generator's thread: it must not block.
pub type ProgressFn = Box<dyn FnMut(&Progress<'_>)>;

/// Makes load. Its calls block until the run is over; call them from a thread that is not inside
/// an async runtime. Connections stay open from one run to the next.
pub struct Generator {
    // Dropped first: its connections live in the runtime.
    engine: Engine,
    runtime: LocalRuntime,
}

impl Generator {
    /// Checks the options and makes the runtime; connects to nothing yet.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Options`] for options that make no sense, [`GenerateError::Start`] when
    /// the runtime cannot be made.
    pub fn new(options: GeneratorOptions) -> Result<Self, GenerateError> {
        let cancel = options.cancel.clone();
        let in_flight = options.in_flight;
        let plan = plan(options)?;
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        Ok(Self { engine: Engine::new(plan, in_flight, cancel), runtime })
    }

    /// From now on calls `function` during runs, about every `every` (at least 10 ms).
    pub fn on_progress(&mut self, every: Duration, function: ProgressFn) {
        self.engine.set_progress(every.max(PROGRESS_EVERY_MIN), function);
    }

    /// Sends `requests` requests to one site, `in_flight` at a time; returns after the last
    /// response.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Options`] when there is no such site. Failed requests are no error: they
    /// are counted.
    pub fn burst(&mut self, site: usize, requests: u64) -> Result<BurstReport, GenerateError> {
        self.known(&[site])?;
        let meter = CpuMeter::start();
        let recorder = self.engine.recorder(Some(requests));
        let mut left = requests;
        let next_site = Box::new(move |_| {
            left = left.checked_sub(1)?;
            Some(site)
        });
        let clients = usize::try_from(requests).unwrap_or(usize::MAX);
        let run = self.engine.closed(clients, next_site, Rc::clone(&recorder));
        self.runtime.block_on(run);
        let mut counts = recorder.take();
        Ok(BurstReport {
            site,
            start_ns: recorder.start_ns,
            end_ns: counts.end_ns,
            tally: counts.tallies.swap_remove(site),
            ok_at_ns: counts.ok_at_ns.unwrap_or_default(),
            connections: self.engine.take_connections(),
            cpu: meter.read(),
        })
    }

    /// Bursts of `requests` requests to each of `sites` in turn, `rotations` times; each starts at
    /// the last response of the one before. `after_each` sees every report as it is made. Stops
    /// early when cancelled.
    ///
    /// # Errors
    ///
    /// As [`Generator::burst`].
    pub fn rotate(
        &mut self,
        sites: &[usize],
        requests: u64,
        rotations: usize,
        after_each: &mut dyn FnMut(&BurstReport),
    ) -> Result<Vec<BurstReport>, GenerateError> {
        self.known(sites)?;
        let mut reports = Vec::new();
        for _ in 0..rotations {
            for &site in sites {
                if self.engine.is_cancelled() {
                    return Ok(reports);
                }
                let report = self.burst(site, requests)?;
                after_each(&report);
                reports.push(report);
            }
        }
        Ok(reports)
    }

    /// Sends requests at set times for a while; latency counts from the set time. Returns when all
    /// were answered or have failed.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Options`] for a rate, duration or number of requests that makes no sense
    /// or an unknown site; [`GenerateError::Start`] when the timer cannot be made.
    pub fn constant(&mut self, options: &ConstantOptions) -> Result<ConstantReport, GenerateError> {
        self.known(&options.sites)?;
        let wanted = options.rate_per_second * options.duration.as_secs_f64();
        if !(options.rate_per_second > 0.0 && (1.0..=CONSTANT_REQUESTS_MAX).contains(&wanted)) {
            let text = "the rate must be above 0 and give between 1 and 2.6e9 requests in the \
                        duration";
            return Err(GenerateError::Options(text.to_owned()));
        }
        check_in_flight(options.outstanding_max)?;
        let meter = CpuMeter::start();
        let recorder = self.engine.recorder(None);
        let schedule = Rc::new(RefCell::new(Steady::new(options, wanted as u64)));
        let run = self.engine.open(schedule, options.outstanding_max, Rc::clone(&recorder));
        let (late, peak_in_flight) = self.runtime.block_on(run)?;
        let run = self.report(recorder.start_ns, recorder.take(), &meter);
        Ok(ConstantReport { run, late, peak_in_flight })
    }

    /// Sends the requests of traces when they are due; latency counts from then. Returns when all
    /// were answered or have failed. `outstanding_max` is as of [`ConstantOptions`]. The rules of
    /// the replay are those of this generator's sites, in their order.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Start`] when the timer cannot be made. What was wrong with a trace is told
    /// in the report, beside what was sent until then.
    pub fn replay(
        &mut self,
        mut replay: Replay,
        outstanding_max: usize,
    ) -> Result<ReplayReport, GenerateError> {
        check_in_flight(outstanding_max)?;
        // The clock starts with the first request, however long the way to it in the file.
        while !replay.prepare(PREPARE_LOOK) && !self.engine.is_cancelled() {}
        let meter = CpuMeter::start();
        let recorder = self.engine.recorder(None);
        let recorded = Rc::new(RefCell::new(Recorded::new(replay, self.engine.sites())));
        let schedule: Rc<RefCell<dyn Schedule>> = Rc::<RefCell<Recorded>>::clone(&recorded);
        let run = self.engine.open(schedule, outstanding_max, Rc::clone(&recorder));
        let (late, peak_in_flight) = self.runtime.block_on(run)?;
        let run = self.report(recorder.start_ns, recorder.take(), &meter);
        let constant = ConstantReport { run, late, peak_in_flight };
        let traces = recorded.borrow_mut().finish();
        Ok(ReplayReport { constant, traces })
    }

    /// Keeps `in_flight` requests in flight to one site for `duration`, then awaits those under
    /// way.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Options`] when there is no such site.
    pub fn closed(&mut self, site: usize, duration: Duration) -> Result<RunReport, GenerateError> {
        self.wave([site, site], duration, 1).map(|wave| wave.run)
    }

    /// A square wave: keeps `in_flight` requests in flight to `sites[0]` for `half_period`, then to
    /// `sites[1]`, and so on for `halves` half periods, then awaits those under way.
    ///
    /// # Errors
    ///
    /// [`GenerateError::Options`] for an unknown site, an empty half period, or too many of them.
    pub fn wave(
        &mut self,
        sites: [usize; 2],
        half_period: Duration,
        halves: u64,
    ) -> Result<WaveReport, GenerateError> {
        self.known(&sites)?;
        let half_ns = duration_ns(half_period);
        if half_ns == 0 || halves > HALF_PERIODS_MAX {
            let text = format!("a half period must last and there may be {HALF_PERIODS_MAX}");
            return Err(GenerateError::Options(text));
        }
        let meter = CpuMeter::start();
        let recorder = self.engine.recorder(None);
        let start_ns = recorder.start_ns;
        let half_at = move |now: u64| now.saturating_sub(start_ns) / half_ns;
        let next_site = Box::new(move |now| {
            let half = half_at(now);
            (half < halves).then(|| sites[(half % 2) as usize])
        });
        let run = self.engine.closed(usize::MAX, next_site, Rc::clone(&recorder));
        self.runtime.block_on(run);
        let run = self.report(start_ns, recorder.take(), &meter);
        let begun = if run.end_ns > start_ns { half_at(run.end_ns) + 1 } else { 0 };
        let half = |number: u64| HalfPeriod {
            start_ns: start_ns + number * half_ns,
            site: sites[(number % 2) as usize],
        };
        Ok(WaveReport { run, halves: (0..begun.min(halves)).map(half).collect() })
    }

    fn report(&self, start_ns: u64, counts: Counts, meter: &CpuMeter) -> RunReport {
        RunReport {
            start_ns,
            end_ns: counts.end_ns,
            sites: counts.tallies,
            connections: self.engine.take_connections(),
            cpu: meter.read(),
        }
    }

    fn known(&self, sites: &[usize]) -> Result<(), GenerateError> {
        let count = self.engine.sites();
        if sites.is_empty() {
            return Err(GenerateError::Options("a run needs a site".to_owned()));
        }
        match sites.iter().find(|&&site| site >= count) {
            Some(site) => {
                let text = format!("there is no site {site}: the generator has {count}");
                Err(GenerateError::Options(text))
            }
            None => Ok(()),
        }
    }
}

fn check_in_flight(in_flight: usize) -> Result<(), GenerateError> {
    if (1..=IN_FLIGHT_MAX).contains(&in_flight) {
        return Ok(());
    }
    let text = format!("requests in flight must be 1 to {IN_FLIGHT_MAX}, not {in_flight}");
    Err(GenerateError::Options(text))
}

fn plan(options: GeneratorOptions) -> Result<Plan, GenerateError> {
    let wrong = |text: String| GenerateError::Options(text);
    check_in_flight(options.in_flight)?;
    if options.edges.is_empty() || options.sites.is_empty() {
        return Err(wrong("load needs at least one address and one site".to_owned()));
    }
    if options.timeout.is_zero() {
        return Err(wrong("the time-out of a request must not be zero".to_owned()));
    }
    let header = |text: &str| {
        HeaderValue::from_str(text).map_err(|_| wrong(format!("{text:?} is no header value")))
    };
    let mut sites = Vec::new();
    for site in &options.sites {
        let expect_site = site.expect_site.as_deref().map(header).transpose()?;
        sites.push(SitePlan { host: header(&site.host)?, expect_site });
    }
    let uri_of = |path: &String| {
        let found = PathAndQuery::from_maybe_shared(path.clone()).ok();
        let found = found.filter(|path| path.as_str().starts_with('/')).map(Uri::from);
        found.ok_or_else(|| wrong(format!("{path:?} is no path: it must start with /")))
    };
    let uri = uri_of(&options.path)?;
    let uris: Result<Vec<Uri>, _> = options.paths.iter().map(uri_of).collect();
    Ok(Plan {
        edges: options.edges,
        sites,
        method: options.method,
        uri,
        uris: uris?,
        uris_taken: Cell::default(),
        body: options.body,
        timeout: options.timeout,
        last_id: options.request_ids.then(|| Cell::new(0)),
        connections: Cell::default(),
    })
}

/// CPU time of the calling thread between two points.
struct CpuMeter {
    task: ThreadTask,
    before: ThreadTime,
}

impl CpuMeter {
    fn start() -> Self {
        let task = ThreadTask::current();
        Self { task, before: task.time() }
    }

    fn read(&self) -> ThreadTime {
        self.task.time().since(self.before)
    }
}
