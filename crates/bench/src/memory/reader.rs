//! The reader: how long each way takes, by its own clock.

use super::owner::{Served, key};
use super::plan::Way;
use anyhow::{Context as _, bail};
use load::clock::now_ns;
use remote_memory::shm::{Attachment, attach};
use remote_memory::tcp::{Requester, RequesterSettings, Security};
use remote_memory::{Mapped as _, Op, OpResult, Remote as _, RemoteKey, WORD_BYTES};
use shared_state::NodeRecord;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Bytes each way of the ping-pong: question and answer of a read of one word in plain text.
pub(super) const PING_BYTES: usize = 44;
/// Reads of shared memory between two looks at the clock.
pub(crate) const BATCH: u32 = 1_000;
/// Far longer than any answer takes of an owner that runs.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a stopped owner is waited for.
pub(crate) const STOPPED_PATIENCE: Duration = Duration::from_millis(200);
/// Tries of a checked read over `tcp`: its writer writes a hundred times a second.
const RECORD_TRIES_MAX: usize = 8;
/// Looks at the clock to tell what one costs.
const CLOCK_TRIES: u32 = 10_000;
/// Most samples of one cell: far above what the fastest way makes in the longest.
const SAMPLES_MAX: usize = 2_000_000;

/// All ways to one owner.
pub(super) struct Reader {
    record: NodeRecord,
    _attachment: Attachment,
    pong: TcpStream,
    plain: Requester,
    sealed: Requester,
    key: RemoteKey,
    assign_offset_bytes: u64,
    clock_ns: f64,
}

/// Times of one way in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// Nanoseconds for one read; for shared memory means of [`BATCH`] reads.
    pub(super) ns: Vec<f64>,
    pub(super) reads: u64,
}

impl Reader {
    /// Attaches and connects. Blocks.
    pub(super) fn attach(socket: &Path, served: &Served) -> anyhow::Result<Self> {
        let attachment = attach(socket, PATIENCE)?;
        let region = attachment.region();
        let key = region.descriptor().key;
        let record = NodeRecord::open(Arc::clone(&region) as Arc<dyn remote_memory::Mapped>)?;
        let pong = TcpStream::connect(served.pong)?;
        pong.set_nodelay(true)?;
        let connect = |address: SocketAddr, security: Security| -> anyhow::Result<Requester> {
            let settings = RequesterSettings { address, security, connect_max: PATIENCE };
            let mut requester = Requester::connect(settings)?;
            requester.open(region.descriptor())?;
            Ok(requester)
        };
        Ok(Self {
            plain: connect(served.plain, Security::PlainLoopback)?,
            sealed: connect(served.sealed, Security::Noise(self::key()))?,
            record,
            _attachment: attachment,
            pong,
            key,
            assign_offset_bytes: served.assign_offset_bytes,
            clock_ns: clock_ns(),
        })
    }

    /// Reads one way for a while.
    pub(super) fn times(&mut self, way: Way, lasts: Duration) -> anyhow::Result<Times> {
        let until_ns = now_ns() + u64::try_from(lasts.as_nanos())?;
        let (mut ns, mut reads) = (Vec::new(), 0);
        let per_sample = if way == Way::Shm { BATCH } else { 1 };
        loop {
            let start_ns = now_ns();
            match way {
                Way::Shm => self.checked_reads()?,
                Way::PingPong => self.ping()?,
                Way::TcpPlain => self.word(false)?,
                Way::TcpSealed => self.word(true)?,
                Way::TcpRecord => self.record()?,
            }
            let end_ns = now_ns();
            let taken_ns = ((end_ns - start_ns) as f64 - self.clock_ns).max(0.0);
            ns.push(taken_ns / f64::from(per_sample));
            reads += u64::from(per_sample);
            if end_ns >= until_ns || ns.len() >= SAMPLES_MAX {
                break;
            }
        }
        Ok(Times { ns, reads })
    }

    /// What a look reads of a node, so many times: its status, checked, and its assignment.
    pub(super) fn checked_reads(&self) -> anyhow::Result<()> {
        let mut failed = 0;
        for _ in 0..BATCH {
            let record = black_box(&self.record);
            let (status, assign) = (record.status(), record.assign());
            failed += u32::from(black_box(status).is_err() || black_box(assign).is_none());
        }
        if failed > 0 {
            bail!("{failed} of {BATCH} checked reads found no whole record");
        }
        Ok(())
    }

    fn ping(&mut self) -> anyhow::Result<()> {
        let mut bytes = [1; PING_BYTES];
        self.pong.write_all(&bytes)?;
        Ok(self.pong.read_exact(&mut bytes)?)
    }

    fn word(&mut self, sealed: bool) -> anyhow::Result<()> {
        let requester = if sealed { &mut self.sealed } else { &mut self.plain };
        read(requester, self.key, self.assign_offset_bytes, 1, PATIENCE)?;
        Ok(())
    }

    /// What [`Reader::checked_reads`] reads, once, over `tcp`. Operations of a batch take effect in
    /// order: the seqlock is read again after what it guards.
    fn record(&mut self) -> anyhow::Result<()> {
        let checked = NodeRecord::checked_range();
        let offset_bytes = checked.start as u64 * WORD_BYTES;
        let words = |offset_bytes, length_words| Op::Read { offset_bytes, length_words };
        let batch = vec![
            words(offset_bytes, checked.len()),
            words(offset_bytes, 1),
            words(self.assign_offset_bytes, 1),
        ];
        for _ in 0..RECORD_TRIES_MAX {
            let read = exchange(&mut self.sealed, self.key, batch.clone(), PATIENCE)?;
            let [status, again, _assign] = &read[..] else { bail!("three reads brought another") };
            let sequence = status.first().context("a read of words brings words")?;
            if sequence % 2 == 0 && again.first() == Some(sequence) {
                return Ok(());
            }
        }
        bail!("the record did not hold still for {RECORD_TRIES_MAX} reads")
    }

    /// Reads of so many words, from the region's start: nanoseconds each.
    pub(super) fn sized(
        &mut self,
        way: Way,
        words: usize,
        lasts: Duration,
    ) -> anyhow::Result<Vec<f64>> {
        let until_ns = now_ns() + u64::try_from(lasts.as_nanos())?;
        let (region, mut copy) = (Arc::clone(self.record.region()), vec![0; words]);
        let mut ns = Vec::new();
        loop {
            let start_ns = now_ns();
            match way {
                Way::Shm => {
                    for _ in 0..BATCH {
                        black_box(&region).read_into(0, &mut copy)?;
                        black_box(&copy);
                    }
                }
                Way::TcpPlain => drop(read(&mut self.plain, self.key, 0, words, PATIENCE)?),
                Way::TcpSealed => drop(read(&mut self.sealed, self.key, 0, words, PATIENCE)?),
                Way::PingPong | Way::TcpRecord => bail!("{} has one size", way.name()),
            }
            let end_ns = now_ns();
            let per = if way == Way::Shm { f64::from(BATCH) } else { 1.0 };
            ns.push(((end_ns - start_ns) as f64 - self.clock_ns).max(0.0) / per);
            if end_ns >= until_ns || ns.len() >= SAMPLES_MAX {
                break;
            }
        }
        Ok(ns)
    }

    /// Whether a word comes over `tcp` within [`STOPPED_PATIENCE`].
    pub(super) fn is_answered(&mut self) -> bool {
        let place = self.assign_offset_bytes;
        read(&mut self.plain, self.key, place, 1, STOPPED_PATIENCE).is_ok()
    }
}

fn read(
    requester: &mut Requester,
    key: RemoteKey,
    offset_bytes: u64,
    length_words: usize,
    deadline: Duration,
) -> anyhow::Result<Vec<u64>> {
    let batch = vec![Op::Read { offset_bytes, length_words }];
    exchange(requester, key, batch, deadline)?.pop().context("one result for one operation")
}

/// Carries out a batch of reads.
fn exchange(
    requester: &mut Requester,
    key: RemoteKey,
    batch: Vec<Op>,
    deadline: Duration,
) -> anyhow::Result<Vec<Vec<u64>>> {
    requester.submit(key, batch, deadline)?;
    let mut done = Vec::with_capacity(1);
    // Ends with the answer, or at the deadline.
    while requester.poll(&mut done) == 0 {
        requester.wait(deadline);
    }
    let completion = done.pop().context("a completion was told")?;
    let words = |result| match result {
        Ok(OpResult::Read(words)) => Ok(words),
        Ok(other) => bail!("a read brought {other:?}"),
        Err(error) => Err(anyhow::Error::new(error)),
    };
    completion.results.into_iter().map(words).collect()
}

/// What a look at the clock costs.
fn clock_ns() -> f64 {
    let start_ns = now_ns();
    for _ in 0..CLOCK_TRIES {
        black_box(now_ns());
    }
    (now_ns() - start_ns) as f64 / f64::from(CLOCK_TRIES)
}
