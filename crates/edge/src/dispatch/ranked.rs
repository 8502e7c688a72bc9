//! Admission by class: who waits and who is refused when a site has more than it can answer.
//!
//! ```text
//! goes      the highest class that waits, the longest waiting of it first
//! full      a higher class takes the place of the newest of the lowest that waits; who has nobody
//!           below is refused
//! objective who would be answered too late is refused at once, but for the highest class: it
//!           would wait, and make those behind it wait, for nothing; and whoever has waited too
//!           long after all, before it takes a server's time
//! ```
//!
//! A request that a server failed was let in once, and is never refused by prediction. A site
//! without classes has none of this: it costs a comparison.

use super::core::{Site, Waiter};
use super::counts::ClassCounts;
use super::drain::{Ahead, Drain};
use super::lanes::Waiting;
use super::queue::rank_in;
use crate::admission::CLASSES_MAX;
use crate::face::{Ask, Rank, Refusal};
use std::time::Duration;

/// What a site with classes keeps besides its queues.
pub(super) struct Ranked {
    counts: [ClassCounts; CLASSES_MAX],
    drain: Drain,
}

impl Ranked {
    /// For this many classes; none for one.
    pub(super) fn of(classes: usize) -> Option<Box<Self>> {
        let new = || Self { counts: [ClassCounts::default(); CLASSES_MAX], drain: Drain::new() };
        (classes > 1).then(|| Box::new(new()))
    }
}

/// Why a request may not wait, or who leaves for it.
pub(super) type MayWait<W> = Result<Option<(W, Refusal)>, Refusal>;

impl<W: Waiter> Site<W> {
    /// A request comes; its class as this site has them now.
    pub(super) fn arrives(&mut self, ask: &Ask<'_>) -> Rank {
        let Some(ranked) = &mut self.ranked else { return Rank(0) };
        let class = usize::from(ask.rank.0).min(self.rules.classes() - 1);
        if ask.avoid.is_empty() {
            ranked.counts[class].requests += 1;
            ranked.drain.arrived(class);
        }
        Rank(class as u8)
    }

    /// Whether one more request may wait, and whose place it takes.
    pub(super) fn may_wait(&mut self, ask: &Ask<'_>, now: Duration) -> MayWait<W> {
        if self.queued() >= self.rules.queue_max {
            self.forget_gone();
        }
        let is_full = self.queued() >= self.rules.queue_max;
        if self.ranked.is_none() {
            return if is_full { Err(Refusal::QueueFull) } else { Ok(None) };
        }
        if ask.avoid.is_empty() && self.is_late(ask.rank, now) {
            return Err(self.shed(ask.rank, now));
        }
        if !is_full {
            return Ok(None);
        }
        match self.take_lowest_below(ask.rank) {
            Some((waiter, rank)) => Ok(Some((waiter, self.shed(rank, now)))),
            None => Err(self.shed(ask.rank, now)),
        }
    }

    /// Whether a newcomer of this class would be answered too late.
    fn is_late(&self, rank: Rank, now: Duration) -> bool {
        let (Some(ranked), Some(objective)) = (&self.ranked, self.rules.objective) else {
            return false;
        };
        if rank == Rank(0) {
            return false;
        }
        let class = usize::from(rank.0);
        let queued: usize = (0..=class).map(|class| self.queue.len_of(class)).sum();
        let waiting = (queued + self.lanes.ahead(rank)) as u64;
        let ahead = Ahead { waiting, in_flight: self.in_flight.into() };
        ranked.drain.is_over(class, ahead, objective, now)
    }

    /// Takes out those who have waited too long to be answered in time.
    pub(super) fn shed_late(&mut self, now: Duration, out: &mut Vec<(W, Refusal)>) {
        let (Some(ranked), Some(objective)) = (&self.ranked, self.rules.objective) else { return };
        let in_flight = self.in_flight.into();
        let is_late = |waiting: &Waiting<W>| {
            let waited = now.saturating_sub(waiting.came);
            rank_in(waiting.order) > Rank(0)
                && waiting.avoid.is_empty()
                && ranked.drain.is_late(waited, in_flight, objective, now)
        };
        let mut late = Vec::new();
        for class in 1..self.rules.classes() {
            while let Some(waiting) = self.queue.pop_first_if(class, is_late) {
                late.push(waiting);
            }
        }
        if !self.lanes.is_empty() {
            self.lanes.take_out(is_late, &mut late);
        }
        for waiting in late.into_iter().filter(|waiting| !waiting.waiter.is_gone()) {
            let refusal = self.shed(rank_in(waiting.order), now);
            out.push((waiting.waiter, refusal));
        }
    }

    /// Takes out whoever goes last, if that is of a lower class.
    fn take_lowest_below(&mut self, rank: Rank) -> Option<(W, Rank)> {
        let (queue, lane) = (self.queue.newest(), self.lanes.newest());
        let last = queue.max(lane.map(|(order, _)| order))?;
        if rank_in(last) <= rank {
            return None;
        }
        let waiting = match lane {
            Some((order, place)) if order == last => self.lanes.take_newest(place),
            _ => self.queue.pop_newest(),
        };
        waiting.map(|waiting| (waiting.waiter, rank_in(last)))
    }

    /// A request of this class is refused for want of room.
    fn shed(&mut self, rank: Rank, now: Duration) -> Refusal {
        let queued = self.queued() as u64;
        let Some(ranked) = &mut self.ranked else { return Refusal::QueueFull };
        ranked.counts[usize::from(rank.0)].shed += 1;
        Refusal::Shed { retry_after_s: ranked.drain.retry_after_s(queued, now) }
    }

    /// A request has left its server.
    pub(super) fn answered(&mut self, now: Duration) {
        if let Some(ranked) = &mut self.ranked {
            ranked.drain.answered(now);
        }
    }

    /// Somebody waits now, or nobody does any more.
    pub(super) fn note_waiting(&mut self, now: Duration) {
        let waits = self.ranked.is_some() && self.queued() > 0;
        if let Some(ranked) = &mut self.ranked {
            ranked.drain.waits(waits, now);
        }
    }

    /// Other rules; who waits keeps waiting.
    pub(super) fn set_classes(&mut self, before: usize, after: usize) {
        if before != after {
            self.queue.set_classes(before, after);
            self.lanes.set_classes(before, after);
            self.ranked = Ranked::of(after);
        }
    }

    /// What was counted for each class; empty without classes.
    pub(super) fn class_counts(&self) -> Vec<ClassCounts> {
        let Some(ranked) = &self.ranked else { return Vec::new() };
        let mut lanes_before = 0;
        let of = |class: usize| {
            let lanes = self.lanes.ahead(Rank(class as u8));
            let queued = self.queue.len_of(class) + lanes - lanes_before;
            lanes_before = lanes;
            ClassCounts { queued: queued as u64, ..ranked.counts[class] }
        };
        (0..self.rules.classes()).map(of).collect()
    }
}
