//! The reader's side: what a cache reads before it asks the origin, and at each hit.

use super::layout::{CLOSED, RETIRED};
use super::steps::{Found, Machine, Next, Op, Place};
use super::word::{Filled, Slot, Stamp, VersionWord};
use remote_memory::Incarnation;

/// Reads what an entry will hold. Done **before** the origin is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fill {
    done: Option<Option<Filled>>,
}

impl Fill {
    /// What two words say: nothing while no hit may be served, or when the sequence is used up.
    pub(super) fn judge(live: u64, sequence: u64) -> Option<Filled> {
        let sequence = Stamp::new(sequence)?;
        let incarnation = Incarnation(live);
        (live != CLOSED && live != RETIRED).then_some(Filled { incarnation, sequence })
    }
}

impl Machine for Fill {
    /// None: the response must not be stored.
    type Outcome = Option<Filled>;

    fn next(&self) -> Next<Self::Outcome> {
        match self.done {
            Some(filled) => Next::Done(filled),
            None => Next::Batch(vec![Op::Load(Place::Live), Op::Load(Place::Sequence)]),
        }
    }

    fn reply(&mut self, found: &[u64]) {
        let mut found = Found::new(found);
        self.done = Some(Self::judge(found.value(), found.value()));
    }
}

/// Validates an entry. Done **after** the request arrived; the words are read in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    filled: Filled,
    slots: Vec<Slot>,
    done: Option<bool>,
}

impl Check {
    /// For an entry that was filled under `filled` and depends on the tags of these slots.
    #[must_use]
    pub fn new(filled: Filled, slots: Vec<Slot>) -> Self {
        Self { filled, slots, done: None }
    }
}

impl Machine for Check {
    /// Whether the entry is as new as the origin was when the first word was read.
    type Outcome = bool;

    fn next(&self) -> Next<Self::Outcome> {
        if let Some(valid) = self.done {
            return Next::Done(valid);
        }
        let words = self.slots.iter().map(|&slot| Op::Load(Place::Word(slot)));
        Next::Batch([Op::Load(Place::Live)].into_iter().chain(words).collect())
    }

    fn reply(&mut self, found: &[u64]) {
        let (live, words) = found.split_first().unwrap_or((&CLOSED, &[]));
        let unchanged =
            |&word: &u64| VersionWord::unpack(word).is_unchanged_since(self.filled.sequence);
        let all = words.len() == self.slots.len() && words.iter().all(unchanged);
        self.done = Some(*live == self.filled.incarnation.0 && *live != CLOSED && all);
    }
}
