//! Traces read ahead on a thread of their own, so that a slow file does not delay a request.

use super::arrivals::{Arrival, Arrivals, SiteRule, TraceWindow};
use super::format::Format;
use super::records::{BadLine, Record, Records};
use super::source::TraceError;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

/// Arrivals that are handed over at once.
const BATCH: usize = 256;
/// Batches that wait: 16,000 arrivals, more than a second of the fastest replay.
const BATCHES_MAX: usize = 64;
/// Most traces in one replay: each has a site.
const TRACES_MAX: usize = 64;

/// What is replayed.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// One trace for all sites, or one for each site, all by the same clock.
    pub traces: Vec<PathBuf>,
    /// How they are written, if it is not to be found out.
    pub format: Option<Format>,
    /// The interval of formats that do not have one; nanoseconds.
    pub interval_ns: u64,
    /// Bad lines that are accepted in each trace.
    pub bad_lines_max: u64,
    /// Which requests go to which site.
    pub rules: Vec<SiteRule>,
    /// The path of requests, with `{url}` and `{size}` for what the trace says.
    pub path: Option<String>,
    /// What of the traces, how fast, how much.
    pub window: TraceWindow,
}

/// What was read of one trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSummary {
    /// The file.
    pub path: PathBuf,
    /// How it is written.
    pub format: Format,
    /// Lines read; for counts and binary records their number.
    pub lines: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first few of them.
    pub first_bad: Vec<BadLine>,
    /// Requests that no site takes.
    pub unmatched: u64,
}

enum Message {
    Batch(Vec<Arrival>),
    End(Result<Vec<TraceSummary>, TraceError>),
}

/// Traces being read.
pub struct Replay {
    messages: Receiver<Message>,
    /// In reverse: the next one is the last.
    batch: Vec<Arrival>,
    end: Option<Result<Vec<TraceSummary>, TraceError>>,
}

/// What there is to send.
pub(crate) enum Next {
    /// The set time of the next one, from the start; nanoseconds.
    At(u64),
    /// The reader is behind.
    NotYet,
    /// Nothing more.
    End,
}

impl Replay {
    /// Opens the traces and starts to read.
    ///
    /// # Errors
    ///
    /// [`TraceError`] for options that make no sense, and files that cannot be opened.
    pub fn start(options: ReplayOptions) -> Result<Self, TraceError> {
        let wrong = |text: String| Err(TraceError::Options(text));
        options.window.check()?;
        let (traces, sites) = (options.traces.len(), options.rules.len());
        if !(1..=TRACES_MAX).contains(&traces) || sites == 0 {
            return wrong(format!("a replay needs a site and 1 to {TRACES_MAX} traces"));
        }
        if traces > 1 && traces != sites {
            return wrong(format!("{traces} traces need as many sites, one for each: not {sites}"));
        }
        if options.interval_ns == 0 {
            return wrong("the interval of counts must last".to_owned());
        }
        let mut readers = Vec::new();
        for (place, path) in options.traces.iter().enumerate() {
            let (format, most) = (options.format, options.bad_lines_max);
            let mut records = Records::open(path, format, options.interval_ns, most)?;
            let first = records.read()?;
            let only_site = (traces > 1).then_some(place);
            readers.push(Reader { records, first, only_site });
        }
        let (sender, messages) = sync_channel(BATCHES_MAX);
        let work = move || {
            let end = read_all(readers, &options, &sender);
            // Nobody may want it any more.
            let _ = sender.send(Message::End(end));
        };
        let spawned = thread::Builder::new().name("trace".to_owned()).spawn(work);
        spawned.map_err(|error| TraceError::Options(format!("no thread to read: {error}")))?;
        Ok(Self { messages, batch: Vec::new(), end: None })
    }

    /// Waits until something is there, at most `patience`. Blocks.
    pub(crate) fn prepare(&mut self, patience: Duration) -> bool {
        if !self.batch.is_empty() || self.end.is_some() {
            return true;
        }
        match self.messages.recv_timeout(patience) {
            Ok(message) => {
                self.take(message);
                true
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => {
                self.lose();
                true
            }
        }
    }

    /// What is next. Does not block.
    pub(crate) fn peek(&mut self) -> Next {
        if self.batch.is_empty() && self.end.is_none() {
            match self.messages.try_recv() {
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => return Next::NotYet,
                Err(TryRecvError::Disconnected) => self.lose(),
            }
        }
        match self.batch.last() {
            Some(arrival) => Next::At(arrival.at_ns),
            None if self.end.is_some() => Next::End,
            None => Next::NotYet,
        }
    }

    /// Takes what [`Replay::peek`] showed.
    pub(crate) fn pop(&mut self) -> Option<Arrival> {
        self.batch.pop()
    }

    /// What was read, once all was; empty if the replay was stopped before.
    ///
    /// # Errors
    ///
    /// Why reading ended early.
    pub(crate) fn finish(mut self) -> Result<Vec<TraceSummary>, TraceError> {
        self.end.take().unwrap_or_else(|| Ok(Vec::new()))
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Batch(mut batch) => {
                batch.reverse();
                self.batch = batch;
            }
            Message::End(end) => self.end = Some(end),
        }
    }

    /// The thread ended without a word: it panicked.
    fn lose(&mut self) {
        let text = "the thread that reads the trace ended".to_owned();
        self.end = Some(Err(TraceError::Options(text)));
    }
}

/// One trace: its first record was read, to know when all of them begin.
struct Reader {
    records: Records,
    first: Option<Record>,
    only_site: Option<usize>,
}

/// Reads all traces side by side, in the order of time.
fn read_all(
    readers: Vec<Reader>,
    options: &ReplayOptions,
    sender: &SyncSender<Message>,
) -> Result<Vec<TraceSummary>, TraceError> {
    let firsts = readers.iter().filter_map(|reader| reader.first.as_ref());
    let origin_ns = firsts.map(|record| record.at_ns).min().unwrap_or(0);
    let records: Vec<_> = readers.into_iter().map(std::cell::RefCell::new).collect();
    let mut streams = Vec::new();
    for (place, reader) in records.iter().enumerate() {
        let next = move || {
            let reader = &mut *reader.borrow_mut();
            match reader.first.take() {
                Some(first) => Ok(Some(first)),
                None => reader.records.read(),
            }
        };
        let only_site = reader.borrow().only_site;
        // With a trace for each site, the trace decides.
        let rules = only_site.map_or_else(|| options.rules.clone(), |_| vec![SiteRule::default()]);
        let mut window = options.window;
        window.seed = window.seed.wrapping_add(place as u64);
        let mut arrivals = Arrivals::new(next, window, rules, options.path.clone(), origin_ns);
        let first = arrivals.read()?;
        streams.push((arrivals, first, only_site));
    }
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let times = streams.iter().enumerate();
        let oldest = times.filter_map(|(place, stream)| Some((stream.1.as_ref()?.at_ns, place)));
        let Some((_, place)) = oldest.min() else { break };
        let (arrivals, next, only_site) = &mut streams[place];
        if let Some(mut arrival) = next.take() {
            arrival.site = only_site.unwrap_or(arrival.site);
            batch.push(arrival);
        }
        *next = arrivals.read()?;
        if batch.len() == BATCH {
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            if sender.send(Message::Batch(full)).is_err() {
                return Ok(Vec::new());
            }
        }
    }
    let unmatched: Vec<u64> = streams.iter().map(|stream| stream.0.unmatched()).collect();
    drop(streams);
    // If nobody wants it, nobody wants the summary either.
    let _ = sender.send(Message::Batch(batch));
    let summaries = records.into_iter().zip(unmatched).zip(&options.traces);
    Ok(summaries
        .map(|((reader, unmatched), path)| summary(&reader.into_inner(), unmatched, path))
        .collect())
}

fn summary(reader: &Reader, unmatched: u64, path: &std::path::Path) -> TraceSummary {
    let (bad_lines, first_bad) = reader.records.bad_lines();
    TraceSummary {
        path: path.to_owned(),
        format: reader.records.format(),
        lines: reader.records.lines(),
        bad_lines,
        first_bad: first_bad.to_vec(),
        unmatched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn options(traces: Vec<PathBuf>, sites: usize) -> ReplayOptions {
        ReplayOptions {
            traces,
            format: None,
            interval_ns: 1_000_000_000,
            bad_lines_max: 0,
            rules: vec![SiteRule::default(); sites],
            path: None,
            window: TraceWindow::default(),
        }
    }

    fn drain(mut replay: Replay) -> (Vec<Arrival>, Result<Vec<TraceSummary>, TraceError>) {
        let mut all = Vec::new();
        loop {
            match replay.peek() {
                Next::At(_) => all.extend(replay.pop()),
                Next::NotYet => assert!(replay.prepare(Duration::from_secs(30))),
                Next::End => return (all, replay.finish()),
            }
        }
    }

    #[test]
    fn two_traces_run_by_one_clock() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
        let late = "2023-11-16 18:00:02,1,1\n2023-11-16 18:00:04,1,1\n";
        let early = "2023-11-16 18:00:01,1,1\n2023-11-16 18:00:03,1,1\n";
        let traces = vec![
            write("late", &format!("{head}{late}")),
            write("early", &format!("{head}{early}")),
        ];
        let (all, summaries) = drain(Replay::start(options(traces.clone(), 2)).unwrap());
        let told: Vec<(u64, usize)> =
            all.iter().map(|one| (one.at_ns / 1_000_000_000, one.site)).collect();
        assert_eq!(told, [(0, 1), (1, 0), (2, 1), (3, 0)]);
        let summaries = summaries.unwrap();
        assert_eq!((summaries[0].lines, summaries[0].format), (3, Format::Tokens));
        assert!(Replay::start(options(traces, 3)).is_err(), "two traces, three sites");
    }

    #[test]
    fn an_error_in_the_middle_comes_behind_what_was_good() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        fs::write(&path, "100 100 100 x 100").unwrap();
        let mut options = options(vec![path], 1);
        options.format = Some(Format::Counts);
        let (all, end) = drain(Replay::start(options).unwrap());
        assert!(all.len() >= 256, "{}", all.len());
        assert!(matches!(end, Err(TraceError::BadLines { .. })), "{end:?}");
    }

    #[test]
    fn a_replay_that_is_dropped_leaves_no_blocked_thread_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        fs::write(&path, "9000000 9000000").unwrap();
        let replay = Replay::start(options(vec![path], 1)).unwrap();
        // The thread's next send fails, and it ends; nothing is left to wait for here.
        drop(replay);
    }
}
