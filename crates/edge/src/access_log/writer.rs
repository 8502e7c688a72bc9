//! The thread that writes the log: it empties the queues of the edge's threads in turn.

use super::line::{LogFormat, gap};
use super::{Counts, LogTarget, Queued};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// How long a line may wait to be written while there is little to write.
const WAIT: Duration = Duration::from_millis(100);

/// Lines are written together up to about this size, so that a busy edge makes few system calls.
const BATCH_BYTES: usize = 64 * 1024;

/// How often the file is looked at, while there is something to write: whoever renames it waits
/// no longer before it is opened anew.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Owner writes, group reads, as logs usually are: they name clients and what they asked for.
const FILE_MODE: u32 = 0o640;

/// Where the lines go.
pub(super) enum Output {
    Stdout,
    File(File),
}

impl Output {
    pub(super) fn open(target: &LogTarget) -> io::Result<Self> {
        Ok(match target {
            LogTarget::Stdout => Self::Stdout,
            LogTarget::File(path) => Self::File(open(path)?),
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::File(file) => file.write_all(bytes),
        }
    }
}

/// Opens for appending, so that several edges can share a file: each writes whole lines.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(FILE_MODE).open(path)
}

/// The writer's own things.
pub(super) struct Writer {
    pub(super) target: LogTarget,
    pub(super) format: LogFormat,
    pub(super) output: Output,
    pub(super) queues: Vec<Receiver<Queued>>,
    pub(super) counts: Arc<Counts>,
    pub(super) batch: Vec<u8>,
    pub(super) batch_lines: u64,
    /// Lines dropped that the log tells of.
    pub(super) told: u64,
    pub(super) looked: Instant,
    pub(super) is_failing: bool,
}

impl Writer {
    /// Writes until all queues have ended.
    pub(super) fn run(mut self) {
        loop {
            self.collect();
            let idle = self.batch.is_empty();
            self.reopen();
            self.write();
            if self.queues.is_empty() {
                return;
            }
            if idle {
                std::thread::park_timeout(WAIT);
            }
        }
    }

    /// Takes what fits into a batch, and forgets the queues that have ended.
    fn collect(&mut self) {
        let Self { queues, batch, batch_lines, counts, .. } = self;
        queues.retain(|queue| {
            while batch.len() < BATCH_BYTES {
                match queue.try_recv() {
                    Ok(Queued { line, bytes }) => {
                        batch.extend_from_slice(&line);
                        *batch_lines += 1;
                        bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    }
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return false,
                }
            }
            true
        });
        let dropped = counts.dropped.load(Ordering::Relaxed);
        // After the lines that were queued when the first one was dropped.
        if dropped > self.told && !self.is_failing {
            gap(self.format, dropped - self.told, &mut self.batch);
            self.told = dropped;
        }
    }

    fn write(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        match self.output.write_all(&self.batch) {
            Ok(()) if self.is_failing => {
                tracing::info!("the access log can be written again");
                self.is_failing = false;
            }
            Ok(()) => {}
            Err(error) => {
                if !self.is_failing {
                    tracing::error!(%error, "the access log can't be written: lines are dropped");
                }
                self.is_failing = true;
                self.counts.dropped.fetch_add(self.batch_lines, Ordering::Relaxed);
            }
        }
        self.batch.clear();
        self.batch_lines = 0;
    }

    /// Opens the file anew when that was asked for, or when its path names another one by now.
    fn reopen(&mut self) {
        let LogTarget::File(path) = &self.target else { return };
        let asked = self.counts.reopen.swap(false, Ordering::Relaxed);
        if !asked && (self.batch.is_empty() || self.looked.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Instant::now();
        if !asked && self.is_current(path) {
            return;
        }
        match open(path) {
            Ok(file) => self.output = Output::File(file),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the access log can't be reopened");
            }
        }
    }

    fn is_current(&self, path: &Path) -> bool {
        let Output::File(file) = &self.output else { return true };
        let same = |open: std::fs::Metadata, named: std::fs::Metadata| {
            (open.dev(), open.ino()) == (named.dev(), named.ino())
        };
        file.metadata().and_then(|open| Ok(same(open, path.metadata()?))).unwrap_or(false)
    }
}
