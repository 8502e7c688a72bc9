//! One region elsewhere: its mirror, and the line by which it is read and changed.
//!
//! Each look refreshes the mirror by one batch: this edge's own words are written, then all that
//! it watches is read. What the protocol compares and swaps goes by the same line, one operation
//! at a time, and what it found goes into the mirror.
//!
//! ```text
//!          refreshed                         no answer within the deadline
//! Up  ─────────────────► Up        Up  ──────────────────────────────────► Silent
//! Silent: each look sends one batch if none is under way, and waits for nothing
//! Silent ── an answer ──► Up       Silent for SILENT_MAX, or broken ──► the line is given up
//! ```
//!
//! Back of the envelope for a node's record over TCP: 8 words there, some 80 words back, one
//! round trip and about 10 us of processor time here.

use super::line::Line;
use crate::protocol::Reply;
use remote_memory::{
    Completion, ConnectionState, Mapped as _, Mirror, Op, OpError, OpResult, Ticket, WORD_BYTES,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A line that has been silent for so long is given up and dialled again: after a partition a new
/// connection is up long before an old one's resending, which backs off, finds the owner again.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(1);

/// Turns of one wait, each of which a completion, an event or a deadline ends.
const WAIT_TURNS_MAX: u32 = 100_000;

/// Words of a slot.
const TOLD_WORDS: usize = 8;

/// What a region is like, as far as the mirror is concerned.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// What is read in each look.
    pub(super) watched: Vec<Range<usize>>,
    /// What this edge alone writes.
    pub(super) own: Range<usize>,
    /// Words that are only believed while their first, a seqlock, stays the same.
    pub(super) checked: Option<Range<usize>>,
    /// A word of bits that this edge sets and clears in the mirror.
    pub(super) bits: Option<usize>,
    /// The word whose sleeper an addition wakes.
    pub(super) bell: Option<usize>,
}

/// Whether the owner answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    Yes,
    /// Not within the deadline, since then: its machine, or the way to it, is gone.
    Silent(Duration),
    /// The connection ended: the process is gone, or began anew. Its machine may be well.
    Gone,
}

/// What an operation of a refreshing batch is for.
#[derive(Clone, Debug)]
enum Part {
    /// A change, which says nothing.
    Change,
    /// A read of watched words from this one on.
    Watched(usize),
    /// The second read of the seqlock.
    Sequence,
}

/// One region elsewhere.
pub(super) struct Far {
    line: Option<Box<dyn Line>>,
    is_cut: bool,
    pub(super) mirror: Arc<Mirror>,
    shape: Shape,
    deadline: Duration,
    pub(super) answers: Answers,
    /// The batch that refreshes the mirror, while it is under way.
    asked: Option<(Ticket, Vec<Part>, Duration)>,
    /// The word of bits as the region had it last.
    bits: u64,
    ring: bool,
    /// This edge's words as the region had them at the last refresh.
    pub(super) told: [AtomicU64; TOLD_WORDS],
    /// How long the last refresh took.
    pub(super) took: Duration,
    done: Vec<Completion>,
}

impl Far {
    pub(super) fn new(
        line: Box<dyn Line>,
        mirror: Arc<Mirror>,
        shape: Shape,
        deadline: Duration,
    ) -> Self {
        let bits = shape.bits.map_or(0, |index| mirror.words()[index].load(Ordering::SeqCst));
        Self {
            line: Some(line),
            is_cut: false,
            mirror,
            shape,
            deadline,
            answers: Answers::Yes,
            asked: None,
            bits,
            ring: false,
            told: Default::default(),
            took: Duration::ZERO,
            done: Vec::new(),
        }
    }

    /// Goes on with a new line to the same region.
    pub(super) fn resume(&mut self, line: Box<dyn Line>) {
        (self.line, self.asked, self.answers) = (Some(line), None, Answers::Yes);
        self.is_cut = false;
    }

    /// Takes note of more words to watch.
    pub(super) fn watch(&mut self, watched: &[Range<usize>]) {
        if self.shape.watched != watched {
            self.shape.watched = watched.to_vec();
        }
    }

    /// Whether the owner answers.
    pub(super) fn is_up(&self) -> bool {
        self.answers == Answers::Yes
    }

    /// Whether the line was given up and has to be dialled again. Told once.
    pub(super) fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// Whether the next look should wait for this region.
    fn is_awaited(&self) -> bool {
        self.is_up() && self.asked.is_some()
    }

    /// Sends the batch of a look, unless the last one is still under way.
    fn ask(&mut self, now: Duration) {
        if self.asked.is_some() {
            return;
        }
        let Some(line) = &mut self.line else { return };
        let capabilities = line.capabilities();
        let (words_max, adds_wake) = (capabilities.op_words_max, capabilities.adds_wake);
        let (mut ops, mut parts) = (Vec::new(), Vec::new());
        let words = self.mirror.words();
        let load = |index: usize| words.get(index).map_or(0, |w| w.load(Ordering::SeqCst));
        for start in self.shape.own.clone().step_by(words_max) {
            let end = self.shape.own.end.min(start + words_max);
            ops.push(Op::Write {
                offset_bytes: at(start),
                words: (start..end).map(load).collect(),
            });
            parts.push(Part::Change);
        }
        if let Some(index) = self.shape.bits.filter(|&index| load(index) != self.bits) {
            let (expected, new) = (self.bits, load(index));
            ops.push(Op::CompareAndSwap { offset_bytes: at(index), expected, new });
            parts.push(Part::Change);
        }
        if let Some(index) = self.shape.bell.filter(|_| self.ring && adds_wake) {
            ops.push(Op::FetchAndAdd { offset_bytes: at(index), addend: 1 });
            parts.push(Part::Change);
        }
        for (start, op) in reads(&self.shape.watched, words_max) {
            ops.push(op);
            parts.push(Part::Watched(start));
        }
        if let Some(checked) = &self.shape.checked {
            ops.push(Op::Read { offset_bytes: at(checked.start), length_words: 1 });
            parts.push(Part::Sequence);
        }
        let key = self.mirror.descriptor().key;
        match line.submit(key, ops, self.deadline) {
            Ok(ticket) => {
                self.ring = false;
                self.asked = Some((ticket, parts, now));
            }
            Err(_) => self.cut(),
        }
    }

    /// Takes in what came. Does not block.
    pub(super) fn poll(&mut self, now: Duration) {
        let Some(line) = &mut self.line else { return };
        let mut done = std::mem::take(&mut self.done);
        line.poll(&mut done);
        for completion in done.drain(..) {
            self.completed(completion, now);
        }
        self.done = done;
        let broken = self.line.as_ref().is_some_and(|l| l.connection() == ConnectionState::Broken);
        let tired = matches!(self.answers, Answers::Silent(since) if now > since + SILENT_MAX);
        if broken || tired {
            self.cut();
        }
    }

    fn completed(&mut self, completion: Completion, now: Duration) {
        let Some((_, parts, since)) = self.asked.take_if(|asked| asked.0 == completion.ticket)
        else {
            // A bell that was rung between two looks.
            return;
        };
        let failed = completion.results.iter().find_map(|result| result.as_ref().err());
        match failed {
            None => {
                self.answers = Answers::Yes;
                self.took = now.saturating_sub(since);
                self.apply(&parts, completion.results);
            }
            Some(error) => self.failed(error, now),
        }
    }

    fn failed(&mut self, error: &OpError, now: Duration) {
        if matches!(error, OpError::TimedOut) {
            if self.is_up() {
                self.answers = Answers::Silent(now);
            }
        } else {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.is_cut |= self.line.is_some();
        (self.line, self.asked) = (None, None);
        if self.is_up() {
            self.answers = Answers::Gone;
        }
    }

    /// Brings the mirror up to date with what was read.
    fn apply(&mut self, parts: &[Part], results: Vec<Result<OpResult, OpError>>) {
        let mut keep = vec![self.shape.own.clone()];
        keep.extend(self.shape.checked.clone().filter(|checked| !holds(checked, parts, &results)));
        for (part, result) in parts.iter().zip(results) {
            let (Part::Watched(start), Ok(OpResult::Read(words))) = (part, result) else {
                continue;
            };
            let word = |index: usize| words.get(index.checked_sub(*start)?).copied();
            if let Some(bits) = self.shape.bits.and_then(word) {
                self.bits = bits;
            }
            for (told, index) in self.told.iter().zip(self.shape.own.clone()) {
                if let Some(word) = word(index) {
                    told.store(word, Ordering::Relaxed);
                }
            }
            self.mirror.put(*start, &words, &keep);
        }
    }

    /// Reads a word of the region itself, and puts it into the mirror. Blocks, at most for the
    /// deadline.
    pub(super) fn read(&mut self, index: usize, clock: impl Fn() -> Duration) -> Reply {
        let op = Op::Read { offset_bytes: at(index), length_words: 1 };
        match self.perform(op, clock) {
            Ok(OpResult::Read(words)) => {
                let value = words.first().copied().unwrap_or(0);
                self.mirror.put(index, &[value], &[]);
                Reply::Value(value)
            }
            Ok(_) => Reply::Unknown,
            Err(reply) => reply,
        }
    }

    /// Compares and swaps a word of the region itself; the mirror then has what is there. Blocks,
    /// at most for the deadline.
    pub(super) fn swap(
        &mut self,
        index: usize,
        (expected, new): (u64, u64),
        clock: impl Fn() -> Duration,
    ) -> Reply {
        let op = Op::CompareAndSwap { offset_bytes: at(index), expected, new };
        match self.perform(op, clock) {
            Ok(OpResult::Swapped { found }) => {
                let now_there = if found == expected { new } else { found };
                self.mirror.put(index, &[now_there], &[]);
                Reply::Swapped { found }
            }
            Ok(_) => Reply::Unknown,
            Err(reply) => reply,
        }
    }

    fn perform(&mut self, op: Op, clock: impl Fn() -> Duration) -> Result<OpResult, Reply> {
        let Some(line) = self.line.as_mut().filter(|_| self.answers == Answers::Yes) else {
            return Err(Reply::Unreachable);
        };
        let key = self.mirror.descriptor().key;
        let Ok(ticket) = line.submit(key, vec![op], self.deadline) else {
            return Err(Reply::Unreachable);
        };
        for _ in 0..WAIT_TURNS_MAX {
            let Some(line) = &mut self.line else { break };
            let mut done = std::mem::take(&mut self.done);
            line.poll(&mut done);
            let ours = done.iter().position(|completion| completion.ticket == ticket);
            let ours = ours.map(|place| done.swap_remove(place));
            for other in done.drain(..) {
                self.completed(other, clock());
            }
            self.done = done;
            if let Some(mut completion) = ours {
                return completion.results.pop().unwrap_or(Err(OpError::Flushed)).map_err(
                    |error| {
                        self.failed(&error, clock());
                        if error.may_have_landed() { Reply::Unknown } else { Reply::Unreachable }
                    },
                );
            }
            sleep(std::iter::once(&mut *self));
        }
        self.cut();
        Err(Reply::Unknown)
    }

    /// Wakes the owner's sleeper with the next batch, which leaves at once if none is under way.
    pub(super) fn ring(&mut self) {
        self.ring = true;
        let Some(index) = self.shape.bell else { return };
        let Some(line) = self.line.as_mut().filter(|l| l.capabilities().adds_wake) else { return };
        let op = Op::FetchAndAdd { offset_bytes: at(index), addend: 1 };
        // The look that follows sends it, with what was asked; nobody waits for its answer.
        if line.submit(self.mirror.descriptor().key, vec![op], self.deadline).is_ok() {
            self.ring = false;
        }
    }

    fn arm(&mut self) -> Option<BorrowedFd<'_>> {
        self.line.as_mut()?.arm()
    }
}

/// Refreshes mirrors, all at the same time: sends to each, then waits for those that answer, at
/// most until their deadlines.
pub(super) fn refresh(fars: &mut [&mut Far], clock: impl Fn() -> Duration) {
    let now = clock();
    fars.iter_mut().for_each(|far| far.ask(now));
    for _ in 0..WAIT_TURNS_MAX {
        if !poll_all(fars, clock()) {
            return;
        }
        for far in fars.iter_mut().filter(|far| far.is_awaited()) {
            far.arm();
        }
        // What came before the alarm was set does not set it off.
        if !poll_all(fars, clock()) {
            return;
        }
        sleep(fars.iter_mut().map(|far| &mut **far).filter(|far| far.is_awaited()));
    }
}

/// Takes in what came; whether some region is still awaited.
fn poll_all(fars: &mut [&mut Far], now: Duration) -> bool {
    fars.iter_mut().for_each(|far| far.poll(now));
    fars.iter().any(|far| far.is_awaited())
}

/// Sleeps until a completion, or until a deadline has passed.
fn sleep<'a>(fars: impl Iterator<Item = &'a mut Far>) {
    let mut longest = Duration::ZERO;
    let mut fds = Vec::new();
    for far in fars {
        longest = longest.max(far.deadline);
        fds.extend(far.arm().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
    }
    if fds.is_empty() {
        // On transports without alarms sleeping makes no sense.
        return std::hint::spin_loop();
    }
    // A signal ends it early, and the next turn finds out what came.
    let _ = rustix::event::poll(&mut fds, Timespec::try_from(longest).ok().as_ref());
}

/// Whether the checked words were read while nobody wrote them.
fn holds(checked: &Range<usize>, parts: &[Part], results: &[Result<OpResult, OpError>]) -> bool {
    let (mut before, mut after) = (None, None);
    for (part, result) in parts.iter().zip(results) {
        let Ok(OpResult::Read(words)) = result else { continue };
        match part {
            Part::Watched(start) if (*start..start + words.len()).contains(&checked.start) => {
                before = Some(words[checked.start - start]);
            }
            Part::Sequence => after = words.first().copied(),
            _ => {}
        }
    }
    before.is_some() && before == after && before.is_some_and(|word| word.is_multiple_of(2))
}

/// Reads of these words, each with the index of its first.
pub(super) fn reads(ranges: &[Range<usize>], words_max: usize) -> Vec<(usize, Op)> {
    let read = |start: usize, end: usize| {
        (start, Op::Read { offset_bytes: at(start), length_words: end - start })
    };
    let split = |range: &Range<usize>| {
        let end = range.end;
        range.clone().step_by(words_max).map(move |at| read(at, end.min(at + words_max)))
    };
    ranges.iter().flat_map(split).collect()
}

/// The offset of a word in bytes.
pub(super) const fn at(index: usize) -> u64 {
    index as u64 * WORD_BYTES
}

#[cfg(test)]
#[path = "far_tests.rs"]
mod tests;
