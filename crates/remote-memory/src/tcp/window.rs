//! Batches between submitting and polling: a state machine without socket and clock.
//!
//! ```text
//! submit -> unsent -> sent -> answered ---------------> done -> poll
//!             |         |-> deadline: reported, its late answers are matched and dropped
//!             |-> deadline, or a break: never sent, did not take effect
//! ```
//! The responder answers in the order of sending, so answers belong to the oldest batch; one that
//! does not fit it is an error of the other side.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use super::error::WireError;
use super::message::{Reply, WireResult};
use crate::region::{RemoteKey, WORD_BYTES};
use crate::remote::{Completion, Op, OpError, OpResult, Ticket};

type Results = Vec<Result<OpResult, OpError>>;

/// A batch that waits to be sent.
pub(super) struct Unsent {
    pub(super) ticket: u64,
    pub(super) key: RemoteKey,
    pub(super) ops: Vec<Op>,
    deadline: Instant,
}

struct Sent {
    ticket: u64,
    ops: Vec<Op>,
    deadline: Instant,
    /// One for each operation that was answered, also after the report.
    results: Results,
    /// Whether its completion is made.
    reported: bool,
}

/// All batches of a requester.
#[derive(Default)]
pub(super) struct Window {
    next_ticket: u64,
    unsent: VecDeque<Unsent>,
    sent: VecDeque<Sent>,
    deadlines: BTreeSet<(Instant, u64)>,
    done: VecDeque<Completion>,
    /// Submitted and not polled.
    outstanding_ops: usize,
    /// Sent and reported without an answer.
    abandoned_ops: usize,
}

/// What an answer means for the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Well,
    /// An operation was refused: the connection is over.
    Refused,
}

impl Window {
    pub(super) fn outstanding_ops(&self) -> usize {
        self.outstanding_ops
    }

    pub(super) fn abandoned_ops(&self) -> usize {
        self.abandoned_ops
    }

    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn first_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    pub(super) fn submit(&mut self, key: RemoteKey, ops: Vec<Op>, deadline: Instant) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.outstanding_ops += ops.len();
        self.deadlines.insert((deadline, ticket));
        self.unsent.push_back(Unsent { ticket, key, ops, deadline });
        Ticket(ticket)
    }

    /// The next batch to send, with [`Window::sent`] afterwards.
    pub(super) fn next_unsent(&self) -> Option<&Unsent> {
        self.unsent.front()
    }

    /// Notes that all of the next batch was handed to the connection.
    pub(super) fn sent(&mut self) {
        let Some(Unsent { ticket, ops, deadline, .. }) = self.unsent.pop_front() else { return };
        let results = Vec::with_capacity(ops.len());
        self.sent.push_back(Sent { ticket, ops, deadline, results, reported: false });
    }

    /// Takes an answer.
    ///
    /// # Errors
    /// It does not fit the oldest batch.
    pub(super) fn answered(&mut self, reply: &Reply<'_>) -> Result<Answer, WireError> {
        let unasked = WireError::Order { what: "an answer that nobody waits for" };
        let batch = self.sent.front_mut().filter(|batch| batch.ticket == reply.ticket);
        let batch = batch.ok_or(unasked.clone())?;
        for result in &reply.results {
            let op = batch.ops.get(batch.results.len()).ok_or(unasked.clone())?;
            let result = result_of(op, result)?;
            let refused = result.is_err();
            batch.results.push(result);
            self.abandoned_ops -= usize::from(batch.reported);
            if refused {
                self.finish_oldest();
                return Ok(Answer::Refused);
            }
        }
        if batch.results.len() == batch.ops.len() {
            self.finish_oldest();
        }
        Ok(Answer::Well)
    }

    fn finish_oldest(&mut self) {
        let Some(batch) = self.sent.pop_front() else { return };
        if batch.reported {
            self.abandoned_ops -= batch.ops.len() - batch.results.len();
        } else {
            self.deadlines.remove(&(batch.deadline, batch.ticket));
            self.report(batch.ticket, batch.results, batch.ops.len(), &OpError::Flushed);
        }
    }

    /// Reports the batches whose deadlines have come before they were sent.
    pub(super) fn expire_unsent(&mut self, now: Instant) {
        if self.first_deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        for batch in std::mem::take(&mut self.unsent) {
            if batch.deadline <= now {
                self.deadlines.remove(&(batch.deadline, batch.ticket));
                self.report_unsent(&batch);
            } else {
                self.unsent.push_back(batch);
            }
        }
    }

    /// Reports all batches whose deadlines have come.
    pub(super) fn expire(&mut self, now: Instant) {
        self.expire_unsent(now);
        while let Some((deadline, ticket)) = self.deadlines.first().copied() {
            if deadline > now {
                return;
            }
            self.deadlines.pop_first();
            if let Ok(index) = self.sent.binary_search_by_key(&ticket, |sent| sent.ticket) {
                let batch = &mut self.sent[index];
                batch.reported = true;
                self.abandoned_ops += batch.ops.len() - batch.results.len();
                let (results, count) = (batch.results.clone(), batch.ops.len());
                self.report(ticket, results, count, &OpError::TimedOut);
            }
        }
    }

    /// Reports everything: the connection is over.
    pub(super) fn break_off(&mut self, first: &OpError) {
        self.deadlines.clear();
        self.abandoned_ops = 0;
        for batch in std::mem::take(&mut self.sent) {
            if !batch.reported {
                self.report(batch.ticket, batch.results, batch.ops.len(), first);
            }
        }
        for batch in std::mem::take(&mut self.unsent) {
            self.report_unsent(&batch);
        }
    }

    /// Moves what is done to `out`.
    pub(super) fn poll(&mut self, out: &mut Vec<Completion>) -> usize {
        let count = self.done.len();
        for completion in self.done.drain(..) {
            self.outstanding_ops -= completion.results.len();
            out.push(completion);
        }
        count
    }

    fn report_unsent(&mut self, batch: &Unsent) {
        let results = vec![Err(OpError::NotSent); batch.ops.len()];
        self.done.push_back(Completion { ticket: Ticket(batch.ticket), results });
    }

    /// Completes a batch: what is known, then `first`, then flushed.
    fn report(&mut self, ticket: u64, mut results: Results, count: usize, first: &OpError) {
        if results.len() < count && results.last().is_none_or(Result::is_ok) {
            results.push(Err(first.clone()));
        }
        results.resize(count, Err(OpError::Flushed));
        self.done.push_back(Completion { ticket: Ticket(ticket), results });
    }
}

/// What an answer means for its operation.
fn result_of(op: &Op, result: &WireResult<'_>) -> Result<Result<OpResult, OpError>, WireError> {
    let offset_bytes = op.offset_bytes();
    let access_bytes = (op.length_words() as u64).saturating_mul(WORD_BYTES);
    Ok(match (op, result) {
        (Op::Read { length_words, .. }, WireResult::Read(bytes)) => {
            let (words, _) = bytes.as_chunks::<{ WORD_BYTES as usize }>();
            if words.len() != *length_words {
                return Err(WireError::Order { what: "a read of another length" });
            }
            Ok(OpResult::Read(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
        }
        (Op::Write { .. }, WireResult::Written) => Ok(OpResult::Written),
        (Op::CompareAndSwap { .. }, WireResult::Found(found)) => {
            Ok(OpResult::Swapped { found: *found })
        }
        (Op::FetchAndAdd { .. }, WireResult::Found(found)) => Ok(OpResult::Added { found: *found }),
        (_, WireResult::StaleKey) => Err(OpError::StaleKey),
        (_, WireResult::Refused) => Err(OpError::AccessDenied { op: op.name() }),
        (_, WireResult::Misaligned) => Err(OpError::Misaligned { offset_bytes }),
        (_, WireResult::OutOfBounds(region_bytes)) => {
            let region_bytes = *region_bytes;
            Err(OpError::OutOfBounds { offset_bytes, access_bytes, region_bytes })
        }
        _ => return Err(WireError::Order { what: "an answer to another operation" }),
    })
}
