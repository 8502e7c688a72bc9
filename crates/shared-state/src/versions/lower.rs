//! Taking an update's counts back under a new stamp: how `end` and `abort` do it, and `settle` for
//! a writer that died between `begin` and `end`.

use super::steps::{Change, Found, Held, Machine, Next, Op, Place, ROUNDS_MAX};
use super::word::{RecordPhase, Slot, Stamp, VersionWord};
use thiserror::Error;

/// Why an update's counts were not all taken back. They stay pending, which is safe, until the
/// writer is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum EndError {
    /// Somebody has settled the writer, or does so now: nothing is left to do here.
    #[error("the update was settled by somebody else")]
    Settled,
    /// The update began in another table.
    #[error("the update began in another version table")]
    OtherTable,
    /// The site's sequence has no stamps left; the table must be made anew.
    #[error("the site's sequence is used up; its version table must be made anew")]
    UsedUp,
    /// A word was changed by others in every round.
    #[error("a word changed in each of {ROUNDS_MAX} rounds; settle the writer")]
    Contended,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Enter(RecordPhase),
    Look,
    Swap(Vec<Change>),
    Leave,
    Done(Result<(), EndError>),
}

/// Lowers the counts of one record and frees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lower {
    held: Held,
    left: Vec<Slot>,
    rounds: u16,
    step: Step,
}

impl Lower {
    /// The end of an update, committed or not: all its slots are raised.
    #[must_use]
    pub fn new(held: Held) -> Self {
        let left = held.slots.clone();
        Self { held, left, rounds: 0, step: Step::Enter(RecordPhase::Begun) }
    }

    /// Takes back what a `begin` has raised so far.
    pub(super) fn undo(held: Held, from: RecordPhase) -> Self {
        Self { step: Step::Enter(from), ..Self::new(held) }
    }

    /// Goes on behind the swap that made the record ours.
    pub(super) fn entered(held: Held) -> Self {
        Self { step: Step::Look, ..Self::new(held) }
    }

    fn looked(&mut self, found: &[u64]) -> Step {
        let mut found = Found::new(found);
        let Some(stamp) = Stamp::new(found.value().saturating_add(1)) else {
            return Step::Done(Err(EndError::UsedUp));
        };
        let mut changes = Vec::with_capacity(self.left.len());
        for &slot in &self.left {
            let from = found.value();
            // A newer stamp than ours was drawn and written meanwhile: this word waits for the
            // next round and its stamp.
            if let Some(to) = VersionWord::unpack(from).ended(stamp) {
                changes.push(Change { slot, from, to: to.pack() });
            }
        }
        // Read behind the words: whoever settles us changes them behind the header.
        if found.value() != self.held.header(RecordPhase::Lowering).pack() {
            return Step::Done(Err(EndError::Settled));
        }
        self.rounds += 1;
        match changes.is_empty() {
            _ if self.left.is_empty() => Step::Leave,
            _ if self.rounds > ROUNDS_MAX => Step::Done(Err(EndError::Contended)),
            true => Step::Look,
            false => Step::Swap(changes),
        }
    }
}

impl Machine for Lower {
    type Outcome = Result<(), EndError>;

    fn next(&self) -> Next<Self::Outcome> {
        Next::Batch(match &self.step {
            Step::Done(outcome) => return Next::Done(*outcome),
            Step::Enter(from) => vec![self.held.swap(*from, RecordPhase::Lowering)],
            Step::Look => {
                let words = self.left.iter().map(|&slot| Op::Load(Place::Word(slot)));
                let header = Op::Load(self.held.place());
                [Op::Draw].into_iter().chain(words).chain([header]).collect()
            }
            Step::Swap(changes) => changes.iter().map(Change::op).collect(),
            Step::Leave => vec![self.held.swap(RecordPhase::Lowering, RecordPhase::Free)],
        })
    }

    fn reply(&mut self, found: &[u64]) {
        let settled = Step::Done(Err(EndError::Settled));
        let first = Found::new(found).value();
        self.step = match &self.step {
            Step::Enter(from) if first == self.held.header(*from).pack() => Step::Look,
            Step::Leave if first == self.held.header(RecordPhase::Lowering).pack() => {
                Step::Done(Ok(()))
            }
            Step::Enter(_) | Step::Leave => settled,
            Step::Look => self.looked(found),
            Step::Swap(changes) => {
                let (made, _) = Change::judge(changes, found);
                self.left.retain(|slot| !made.contains(slot));
                if self.left.is_empty() { Step::Leave } else { Step::Look }
            }
            Step::Done(outcome) => Step::Done(*outcome),
        };
    }
}
