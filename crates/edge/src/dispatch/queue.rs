//! Requests that wait for any server of one site, class by class.
//!
//! Who waits carries one number: the place of its class in the top byte, and below it when it
//! came. So whoever has the least goes first, within a queue and between queue and lanes. A site
//! without admission has one class, and one queue behind an empty list.

use super::core::Waiter;
use super::lanes::{Waiting, insert, skip_gone};
use crate::face::Rank;
use std::collections::VecDeque;

/// Bits of [`order`] that say when a request came.
const ARRIVAL_BITS: u32 = 56;

/// Who goes first: the least.
pub(super) const fn order(rank: Rank, arrival: u64) -> u64 {
    (rank.0 as u64) << ARRIVAL_BITS | arrival
}

/// The class in such a number.
pub(super) const fn rank_in(order: u64) -> Rank {
    Rank((order >> ARRIVAL_BITS) as u8)
}

/// Where somebody belongs when a site with `before` classes gets `after`: the last stay last.
pub(super) fn order_among(order: u64, before: usize, after: usize) -> u64 {
    let rank = usize::from(rank_in(order).0);
    let last = after.saturating_sub(1);
    let rank = if rank + 1 >= before { last } else { rank.min(last) };
    let arrival = order & ((1 << ARRIVAL_BITS) - 1);
    (rank as u64) << ARRIVAL_BITS | arrival
}

/// The queues of one site.
pub(super) struct Queues<W> {
    /// The last class: everybody, at a site without admission.
    last: VecDeque<Waiting<W>>,
    /// Those before it, the most important first.
    higher: Vec<VecDeque<Waiting<W>>>,
}

impl<W: Waiter> Queues<W> {
    pub(super) fn new(classes: usize) -> Self {
        let mut higher = Vec::new();
        higher.resize_with(classes.saturating_sub(1), VecDeque::new);
        Self { last: VecDeque::new(), higher }
    }

    /// Who waits, gone or not.
    pub(super) fn len(&self) -> usize {
        self.last.len() + self.higher.iter().map(VecDeque::len).sum::<usize>()
    }

    /// Who waits in one class.
    pub(super) fn len_of(&self, class: usize) -> usize {
        self.higher.get(class).unwrap_or(&self.last).len()
    }

    fn of(&mut self, order: u64) -> &mut VecDeque<Waiting<W>> {
        let class = usize::from(rank_in(order).0);
        self.higher.get_mut(class).unwrap_or(&mut self.last)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut VecDeque<Waiting<W>>> {
        self.higher.iter_mut().chain(std::iter::once(&mut self.last))
    }

    /// Whether nobody waits who goes before a newcomer of this class. Forgets those who are gone.
    pub(super) fn is_free_for(&mut self, rank: Rank) -> bool {
        for queue in self.all().take(usize::from(rank.0) + 1) {
            if queue.iter().any(|waiting| !waiting.waiter.is_gone()) {
                return false;
            }
            queue.clear();
        }
        true
    }

    /// The number of whoever goes first. Forgets those who are gone before it.
    pub(super) fn first(&mut self) -> Option<u64> {
        self.all().find_map(|queue| {
            skip_gone(queue);
            queue.front().map(|waiting| waiting.order)
        })
    }

    pub(super) fn pop_first(&mut self) -> Option<Waiting<W>> {
        self.all().find_map(VecDeque::pop_front)
    }

    /// Puts the first back.
    pub(super) fn put_back(&mut self, waiting: Waiting<W>) {
        self.of(waiting.order).push_front(waiting);
    }

    /// Somebody comes.
    pub(super) fn push(&mut self, waiting: Waiting<W>) {
        self.of(waiting.order).push_back(waiting);
    }

    /// Somebody comes from a lane.
    pub(super) fn insert(&mut self, waiting: Waiting<W>) {
        insert(self.of(waiting.order), waiting);
    }

    /// Takes whoever goes first of a class, if that is one of these.
    pub(super) fn pop_first_if(
        &mut self,
        class: usize,
        goes: impl Fn(&Waiting<W>) -> bool,
    ) -> Option<Waiting<W>> {
        let queue = self.higher.get_mut(class).unwrap_or(&mut self.last);
        if queue.front().is_some_and(goes) { queue.pop_front() } else { None }
    }

    pub(super) fn forget_gone(&mut self) {
        self.all().for_each(|queue| queue.retain(|waiting| !waiting.waiter.is_gone()));
    }

    /// The number of whoever goes last.
    pub(super) fn newest(&self) -> Option<u64> {
        let queues = std::iter::once(&self.last).chain(self.higher.iter().rev());
        queues.filter_map(VecDeque::back).map(|waiting| waiting.order).next()
    }

    /// Takes out whoever goes last.
    pub(super) fn pop_newest(&mut self) -> Option<Waiting<W>> {
        let queues = std::iter::once(&mut self.last).chain(self.higher.iter_mut().rev());
        queues.filter_map(VecDeque::pop_back).next()
    }

    /// Another number of classes; who waits keeps waiting.
    pub(super) fn set_classes(&mut self, before: usize, after: usize) {
        let old = std::mem::replace(self, Self::new(after));
        for mut waiting in old.higher.into_iter().flatten().chain(old.last) {
            waiting.order = order_among(waiting.order, before, after);
            self.insert(waiting);
        }
    }
}
