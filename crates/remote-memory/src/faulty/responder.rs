//! The owner's side: performs the operations of a batch, one step at a time.

use super::settings::Access;
use super::world::{Batch, BatchId, Event, Region, World, nanos};
use crate::region::{AtomicPath, WORD_BYTES};
use crate::remote::{Atomics, Capabilities, Op, OpError, OpResult};

/// Words in a cache line of 64 bytes.
const LINE_WORDS: usize = 8;

/// A read or write of several cache lines, partly done.
#[derive(Debug)]
pub(super) struct Transfer {
    /// What a read has so far.
    values: Vec<u64>,
    /// Ranges of the operation's words still to move, the next one last.
    lines: Vec<(usize, usize)>,
}

impl World {
    /// Performs one step of a batch: an operation, or one cache line of it.
    pub(super) fn execute(&mut self, id: BatchId) {
        // Taken out while the regions and the plan change.
        let Some(mut batch) = self.batches.remove(&id) else { return };
        if batch.lives
            && let Some(result) = self.step(&mut batch)
        {
            self.finish_op(id, &mut batch, result);
        }
        if batch.lives {
            let gap_ns = self.draw_gap_ns(&batch);
            self.plan(gap_ns, Event::Execute(id));
        }
        let refused = !batch.lives && batch.next_op < batch.ops.len();
        let (connection, generation) = (batch.connection, batch.generation);
        self.batches.insert(id, batch);
        if refused && self.connection(connection).generation == generation {
            // The owner's queue pair is in the error state: it performs nothing more.
            self.connection(connection).owner_side_broken = true;
            self.drop_requests(connection);
        }
        self.forget_if_over(id);
    }

    /// One step at the region; a result when the operation is done.
    fn step(&mut self, batch: &mut Batch) -> Option<Result<OpResult, OpError>> {
        let capabilities = &self.connections[batch.connection.0].capabilities;
        let op = &batch.ops[batch.next_op];
        let Some(region) = self.regions.get_mut(&batch.key) else {
            return Some(Err(OpError::StaleKey));
        };
        if let Err(error) = check(region, op, capabilities) {
            return Some(Err(error));
        }
        let transfer = match batch.transfer.take() {
            Some(transfer) => transfer,
            None => {
                let mut transfer = Transfer::new(op);
                // Cache lines move in any order (Fisher and Yates).
                for last in (1..transfer.lines.len()).rev() {
                    let other = self.random.between(0, last as u64) as usize;
                    transfer.lines.swap(last, other);
                }
                transfer
            }
        };
        match transfer.advance(region, op) {
            Ok(result) => Some(Ok(result)),
            Err(unfinished) => {
                batch.transfer = Some(unfinished);
                None
            }
        }
    }

    /// Books a result and sends the answer.
    fn finish_op(&mut self, id: BatchId, batch: &mut Batch, result: Result<OpResult, OpError>) {
        let index = batch.next_op;
        batch.transfer = None;
        batch.fetches += usize::from(batch.ops[index].is_fetch());
        if let Ok(OpResult::Swapped { found } | OpResult::Added { found }) = &result {
            self.mix(*found);
        }
        if result.is_ok() {
            self.statistics.landed += 1;
            self.statistics.landed_late += u64::from(batch.reported);
            batch.next_op += 1;
            batch.lives = batch.next_op < batch.ops.len();
        } else {
            self.statistics.refused += 1;
            batch.lives = false;
        }
        if index >= batch.replies_lost_from {
            self.statistics.replies_lost += 1;
            return;
        }
        let arrives_ns = (self.now_ns + self.draw_way_ns()).max(batch.last_reply_ns);
        batch.last_reply_ns = arrives_ns;
        self.plan(arrives_ns - self.now_ns, Event::Reply { batch: id, index, result });
    }

    /// Time until the next step. Reads and atomics beyond the limit wait for earlier ones to
    /// come back.
    fn draw_gap_ns(&mut self, batch: &Batch) -> u64 {
        let gap_max_ns = nanos(self.faults.gap_max);
        let mut gap_ns = self.random.between(0, gap_max_ns);
        let capabilities = &self.connections[batch.connection.0].capabilities;
        let limit = capabilities.outstanding_fetches_max.max(1);
        let starts = batch.transfer.is_none() && batch.ops[batch.next_op].is_fetch();
        if starts && batch.fetches > 0 && batch.fetches.is_multiple_of(limit) {
            gap_ns += self.draw_way_ns() + self.draw_way_ns();
        }
        gap_ns
    }
}

/// Checks an operation as the owner's adapter does, which knows the real region.
fn check(region: &Region, op: &Op, capabilities: &Capabilities) -> Result<(), OpError> {
    op.check_access(region.descriptor.length_bytes)?;
    if region.access == Access::ReadOnly && !matches!(op, Op::Read { .. }) {
        return Err(OpError::AccessDenied { op: op.name() });
    }
    let agrees = match region.descriptor.atomic_path {
        AtomicPath::Cpu => capabilities.atomics == Atomics::AgreeWithOwner,
        AtomicPath::Adapter(guid) => capabilities.atomics == Atomics::Adapter(guid),
    };
    if op.is_atomic() && !agrees {
        // Only a forged descriptor comes this far.
        return Err(OpError::AccessDenied { op: op.name() });
    }
    Ok(())
}

impl Transfer {
    /// Splits an operation at the boundaries of cache lines.
    fn new(op: &Op) -> Self {
        let length_words = op.length_words();
        let first_word = (op.offset_bytes() / WORD_BYTES) as usize;
        let mut lines = Vec::new();
        let mut start = 0;
        while start < length_words {
            let to_boundary = LINE_WORDS - (first_word + start) % LINE_WORDS;
            let end = length_words.min(start + to_boundary);
            lines.push((start, end));
            start = end;
        }
        let values = if op.is_fetch() { vec![0; length_words] } else { Vec::new() };
        Self { values, lines }
    }

    /// Moves one line; gives itself back if there are more. Bounds were checked.
    fn advance(mut self, region: &mut Region, op: &Op) -> Result<OpResult, Self> {
        let first_word = (op.offset_bytes() / WORD_BYTES) as usize;
        let (start, end) = self.lines.pop().unwrap_or((0, 0));
        let memory = &mut region.words[first_word + start..first_word + end];
        let result = match op {
            Op::Read { .. } => {
                self.values[start..end].copy_from_slice(memory);
                None
            }
            Op::Write { words, .. } => {
                memory.copy_from_slice(&words[start..end]);
                Some(OpResult::Written)
            }
            Op::CompareAndSwap { expected, new, .. } => {
                let found = memory[0];
                if found == *expected {
                    memory[0] = *new;
                }
                Some(OpResult::Swapped { found })
            }
            Op::FetchAndAdd { addend, .. } => {
                let found = memory[0];
                memory[0] = found.wrapping_add(*addend);
                Some(OpResult::Added { found })
            }
        };
        if !self.lines.is_empty() {
            return Err(self);
        }
        Ok(result.unwrap_or(OpResult::Read(self.values)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_split_at_cache_lines() {
        let lines = |offset_bytes, length_words| {
            Transfer::new(&Op::Read { offset_bytes, length_words }).lines
        };
        assert_eq!(lines(0, 8), [(0, 8)]);
        assert_eq!(lines(56, 2), [(0, 1), (1, 2)]);
        assert_eq!(lines(32, 20), [(0, 4), (4, 12), (12, 20)]);
    }
}
