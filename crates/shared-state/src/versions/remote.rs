//! The machines over the face [`remote_memory::Remote`]: a step's operations become a batch.
//!
//! Back of the envelope: a validation is one batch, so one round trip, however many tags it has
//! (up to the transport's `batch_ops_max`); begin and end take seven and four.
//!
//! A batch that is not answered leaves its update as a dead writer would: pending, which is safe,
//! and to be settled. What of it lands late misses, for a settled word never has an old value
//! again.

use super::layout::TableLayout;
use super::steps::{Machine, Next, Op};
use remote_memory::{Op as RemoteOp, OpError, OpResult, WORD_BYTES};

/// A machine on its way over a connection. The caller submits the batches and hands back their
/// results, each before the next batch is asked for.
#[derive(Clone, Debug)]
pub struct Run<M> {
    machine: M,
    layout: TableLayout,
    ops: Vec<Op>,
    found: Vec<u64>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want<T> {
    /// Submit these operations and give the results to [`Run::reply`].
    Batch(Vec<RemoteOp>),
    /// The end.
    Done(T),
}

/// The transport answered something else than was asked, or the machine named no word.
fn misfit() -> OpError {
    OpError::NotSupported { reason: "the answer does not fit the version table" }
}

impl<M: Machine> Run<M> {
    /// Runs a machine on a table of this size.
    pub fn new(layout: TableLayout, machine: M) -> Self {
        Self { machine, layout, ops: Vec::new(), found: Vec::new() }
    }

    /// The next batch, of at most `batch_ops_max` operations (at least one). Asking again without
    /// a reply gives the same.
    ///
    /// # Errors
    /// The machine names a word that the table does not have.
    pub fn next(&mut self, batch_ops_max: usize) -> Result<Want<M::Outcome>, OpError> {
        while self.found.len() == self.ops.len() {
            if !self.ops.is_empty() {
                self.machine.reply(&self.found);
            }
            self.found.clear();
            match self.machine.next() {
                Next::Done(outcome) => {
                    self.ops.clear();
                    return Ok(Want::Done(outcome));
                }
                Next::Batch(ops) if ops.is_empty() => {
                    self.ops.clear();
                    self.machine.reply(&[]);
                }
                Next::Batch(ops) => self.ops = ops,
            }
        }
        let rest = self.ops.iter().skip(self.found.len()).take(batch_ops_max.max(1));
        let batch = rest.map(|&op| self.translated(op).ok_or_else(misfit));
        Ok(Want::Batch(batch.collect::<Result<_, _>>()?))
    }

    fn translated(&self, op: Op) -> Option<RemoteOp> {
        let offset_bytes = |place| Some(self.layout.index(place)? as u64 * WORD_BYTES);
        Some(match op {
            Op::Load(place) => {
                RemoteOp::Read { offset_bytes: offset_bytes(place)?, length_words: 1 }
            }
            Op::Swap { place, expected, new } => {
                RemoteOp::CompareAndSwap { offset_bytes: offset_bytes(place)?, expected, new }
            }
            Op::Draw => {
                let offset_bytes = offset_bytes(super::steps::Place::Sequence)?;
                RemoteOp::FetchAndAdd { offset_bytes, addend: 1 }
            }
        })
    }

    /// What the last batch brought.
    ///
    /// # Errors
    /// An operation failed, and with it the run: nobody knows how far it came.
    pub fn reply(&mut self, results: &[Result<OpResult, OpError>]) -> Result<(), OpError> {
        for result in results {
            let found = match result {
                Ok(OpResult::Read(words)) => *words.first().ok_or_else(misfit)?,
                Ok(OpResult::Swapped { found } | OpResult::Added { found }) => *found,
                Ok(OpResult::Written) => return Err(misfit()),
                Err(error) => return Err(error.clone()),
            };
            self.found.push(found);
        }
        if self.found.len() > self.ops.len() { Err(misfit()) } else { Ok(()) }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "remote_tests.rs"]
mod tests;
