//! Repair of what a dead writer left.
//!
//! A record in phase *begun* is ended in its writer's place: all its counts were raised, so each is
//! taken back once. In any other phase nobody knows which counts the writer changed before it
//! died. Then the record is put into the phase *settling*, in which it counts for nothing, and each
//! word that it lists gets the number of updates that do hold it, counted from all records, by a
//! compare-and-swap that succeeds only if the word did not change while they were counted:
//!
//! ```text
//! recount(x):  s := draw;  w := word x
//!              n := 0;  for each record r:  h := header of r
//!                  begun and lists x:               n += 1
//!                  raising or lowering, lists x:    not known: later again
//!              if s is newer than w's stamp:  compare-and-swap word x: w -> (s, n)
//! ```
//!
//! Counting instead of subtracting makes it idempotent: a settler may die at any step, several may
//! work at once, and a writer that is not dead after all finds its swaps missing (see the module).

use super::lower::{EndError, Lower};
use super::steps::{Change, Found, Held, Machine, Next, Op, Place, Shape};
use super::word::{RecordHeader, RecordPhase, Slot, Stamp, VersionWord, WriterId};
use thiserror::Error;

/// Why a record is not settled yet. Its words stay pending, which is safe; settle again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum SettleError {
    /// Another update is between two steps on the same word. If its writer lives, it goes on in a
    /// moment; if it is dead, it must be settled too.
    #[error("writer {writer} is between two steps on the same word; settle it too, or again")]
    Busy {
        /// Whose update it is.
        writer: WriterId,
    },
    /// The words changed in every round.
    #[error("a word changed in every round; settle again")]
    Contended,
    /// The site's sequence has no stamps left; the table must be made anew.
    #[error("the site's sequence is used up; its version table must be made anew")]
    UsedUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Look,
    Enter { from: u64, to: u64 },
    Entries,
    Lower(Lower),
    Words,
    Headers(Vec<Change>),
    Others { changes: Vec<Change>, active: Vec<(u16, RecordHeader)> },
    Swap(Vec<Change>),
    Leave,
    Done(Result<bool, SettleError>),
}

/// Settles one record of a writer, if it is that writer's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settle {
    shape: Shape,
    record: u16,
    writer: WriterId,
    rounds_left: u16,
    /// The header while we work on it.
    header: u64,
    left: Vec<Slot>,
    busy: Option<WriterId>,
    step: Step,
}

impl Settle {
    /// Only after the writer's transaction is known to be decided, committed or not. Gives up
    /// after so many rounds.
    #[must_use]
    pub fn new(shape: Shape, record: u16, writer: WriterId, rounds_max: u16) -> Self {
        let (header, left) = (0, Vec::new());
        let step = Step::Look;
        Self { shape, record, writer, rounds_left: rounds_max, header, left, busy: None, step }
    }

    fn looked(&mut self, found: u64) -> Step {
        let header = RecordHeader::unpack(found);
        let to = |phase| Step::Enter { from: found, to: header.at(phase).pack() };
        match header.phase {
            // Also behind a round of ours, in whose middle somebody else has finished it.
            RecordPhase::Free => Step::Done(Ok(self.header != 0)),
            _ if header.writer != self.writer => Step::Done(Ok(self.header != 0)),
            RecordPhase::Begun => to(RecordPhase::Lowering),
            // A header of noise becomes one of ours here, too.
            _ => to(RecordPhase::Settling),
        }
    }

    fn entered(&mut self, from: u64, to: u64, found: u64) -> Step {
        if found != from {
            return self.again(Step::Look);
        }
        self.header = to;
        Step::Entries
    }

    fn listed(&mut self, entries: &[u64]) -> Step {
        let RecordHeader { generation, phase, writer } = RecordHeader::unpack(self.header);
        let slots = self.shape.listed(RecordHeader::unpack(self.header), entries);
        if phase == RecordPhase::Lowering {
            let held = Held { record: self.record, generation, writer, slots };
            return Step::Lower(Lower::entered(held));
        }
        self.left = slots;
        if self.left.is_empty() { Step::Leave } else { Step::Words }
    }

    /// Another round, unless there were enough.
    fn again(&mut self, step: Step) -> Step {
        if self.rounds_left == 0 {
            let busy = self.busy.map(|writer| SettleError::Busy { writer });
            return Step::Done(Err(busy.unwrap_or(SettleError::Contended)));
        }
        self.rounds_left -= 1;
        step
    }

    /// The words as they are; the counts are not known yet.
    fn words(&self, found: &[u64]) -> Step {
        let mut found = Found::new(found);
        let Some(stamp) = Stamp::new(found.value().saturating_add(1)) else {
            return Step::Done(Err(SettleError::UsedUp));
        };
        let change = |&slot: &Slot| {
            let from = found.value();
            let to = VersionWord::unpack(from).restamped(stamp, 0)?;
            Some(Change { slot, from, to: to.pack() })
        };
        Step::Headers(self.left.iter().filter_map(change).collect())
    }

    fn headers(&mut self, changes: Vec<Change>, found: &[u64]) -> Step {
        if found.get(usize::from(self.record)) != Some(&self.header) {
            // Somebody else has settled it.
            return Step::Done(Ok(true));
        }
        let headers = found.iter().map(|&word| RecordHeader::unpack(word));
        let counts = |phase| !matches!(phase, RecordPhase::Free | RecordPhase::Settling);
        let active: Vec<_> = (0..).zip(headers).filter(|(_, h)| counts(h.phase)).collect();
        Step::Others { changes, active }
    }

    /// Gives each word its count, and leaves out those whose count is not known.
    fn counted(
        &mut self,
        mut changes: Vec<Change>,
        active: &[(u16, RecordHeader)],
        found: &[u64],
    ) -> Step {
        self.busy = None;
        let records = found.chunks(usize::from(self.shape.entries.max(1)));
        for ((_, header), entries) in active.iter().zip(records) {
            let listed = self.shape.listed(*header, entries);
            let is_known = header.phase == RecordPhase::Begun;
            changes.retain_mut(|change| {
                let holds = listed.contains(&change.slot);
                // As many as there are records at the most, which is far below the limit.
                change.to += u64::from(holds && is_known);
                if holds && !is_known {
                    self.busy = Some(header.writer);
                }
                !holds || is_known
            });
        }
        if changes.is_empty() { self.again(Step::Words) } else { Step::Swap(changes) }
    }

    fn swapped(&mut self, changes: &[Change], found: &[u64]) -> Step {
        let (made, _) = Change::judge(changes, found);
        self.left.retain(|slot| !made.contains(slot));
        if self.left.is_empty() { Step::Leave } else { self.again(Step::Words) }
    }
}

impl Machine for Settle {
    /// Whether there was anything to settle.
    type Outcome = Result<bool, SettleError>;

    fn next(&self) -> Next<Self::Outcome> {
        let place = Place::Header(self.record);
        Next::Batch(match &self.step {
            Step::Done(outcome) => return Next::Done(*outcome),
            Step::Look => vec![Op::Load(place)],
            Step::Enter { from, to } => vec![Op::Swap { place, expected: *from, new: *to }],
            Step::Entries => self.shape.load_entries(self.record).collect(),
            Step::Lower(lower) => match lower.next() {
                Next::Batch(ops) => ops,
                Next::Done(Ok(())) => return Next::Done(Ok(true)),
                Next::Done(Err(EndError::UsedUp)) => return Next::Done(Err(SettleError::UsedUp)),
                Next::Done(Err(_)) => return Next::Done(Err(SettleError::Contended)),
            },
            Step::Words => {
                let words = self.left.iter().map(|&slot| Op::Load(Place::Word(slot)));
                [Op::Draw].into_iter().chain(words).collect()
            }
            // Behind the words, before they are swapped.
            Step::Headers(_) => {
                (0..self.shape.records).map(|record| Op::Load(Place::Header(record))).collect()
            }
            Step::Others { active, .. } => {
                active.iter().flat_map(|&(record, _)| self.shape.load_entries(record)).collect()
            }
            Step::Swap(changes) => changes.iter().map(Change::op).collect(),
            Step::Leave => {
                let free = RecordHeader::unpack(self.header).at(RecordPhase::Free);
                vec![Op::Swap { place, expected: self.header, new: free.pack() }]
            }
        })
    }

    fn reply(&mut self, found: &[u64]) {
        let first = Found::new(found).value();
        let step = std::mem::replace(&mut self.step, Step::Look);
        self.step = match step {
            Step::Look => self.looked(first),
            Step::Enter { from, to } => self.entered(from, to, first),
            Step::Entries => self.listed(found),
            Step::Lower(mut lower) => {
                lower.reply(found);
                match lower.next() {
                    // Another settler has taken it over. It may have died at that: what it left
                    // would stay pending, while we said that nothing does.
                    Next::Done(Err(EndError::Settled)) => self.again(Step::Look),
                    _ => Step::Lower(lower),
                }
            }
            Step::Words => self.words(found),
            Step::Headers(changes) => self.headers(changes, found),
            Step::Others { changes, active } => self.counted(changes, &active, found),
            Step::Swap(changes) => self.swapped(&changes, found),
            // If it was changed meanwhile, somebody else has freed it.
            Step::Leave => Step::Done(Ok(true)),
            Step::Done(outcome) => Step::Done(outcome),
        };
    }
}
