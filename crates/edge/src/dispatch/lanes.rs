//! Requests that wait for one certain server, in a lane for each such server.
//!
//! A lane keeps the order of class and arrival, and so do the site's queues for any server; both
//! carry numbers of one sequence ([`super::queue`]), so that whoever has the least goes first
//! wherever both could go.
//! Sites without stickiness have no lanes: an empty list costs them a comparison.

use super::core::Waiter;
use super::queue::{order_among, rank_in};
use crate::face::Rank;
use pool_model::NodeId;
use std::collections::VecDeque;
use std::time::Duration;

/// Somebody who waits, and for what.
pub(crate) struct Waiting<W> {
    pub(crate) waiter: W,
    pub(crate) avoid: Vec<NodeId>,
    /// Who goes first: the least.
    pub(crate) order: u64,
    /// When it came.
    pub(crate) came: Duration,
    /// In a lane: until when it waits for its server.
    pub(crate) until: Duration,
    /// In a lane: what it is bound by.
    pub(crate) stick: Option<crate::face::Stick>,
}

/// Puts somebody into a queue by order. Who comes now belongs at the end of its class; only who
/// changes queues has to find its place.
pub(crate) fn insert<W>(queue: &mut VecDeque<Waiting<W>>, waiting: Waiting<W>) {
    let place = queue.partition_point(|other| other.order < waiting.order);
    queue.insert(place, waiting);
}

/// Forgets who waits no more at the front.
pub(crate) fn skip_gone<W: Waiter>(queue: &mut VecDeque<Waiting<W>>) {
    while queue.front().is_some_and(|first| first.waiter.is_gone()) {
        queue.pop_front();
    }
}

struct Lane<W> {
    /// The server's node, as a place in the core.
    place: usize,
    queue: VecDeque<Waiting<W>>,
    /// Its first was tried in this turn and found no room.
    blocked: bool,
}

/// The lanes of one site; none is empty between two calls of the core.
pub(crate) struct Lanes<W>(Vec<Lane<W>>);

impl<W: Waiter> Lanes<W> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|lane| lane.queue.len()).sum()
    }

    /// Whether somebody waits for this server who goes before a newcomer of this class.
    pub(crate) fn go_before(&self, place: usize, rank: Rank) -> bool {
        let first = |lane: &Lane<W>| lane.queue.front().is_some_and(|w| rank_in(w.order) <= rank);
        self.0.iter().any(|lane| lane.place == place && first(lane))
    }

    /// How many who wait here go before a newcomer of this class.
    pub(crate) fn ahead(&self, rank: Rank) -> usize {
        let before = |waiting: &Waiting<W>| rank_in(waiting.order) <= rank;
        self.0.iter().map(|lane| lane.queue.partition_point(before)).sum()
    }

    /// Whoever goes last: its number and server.
    pub(crate) fn newest(&self) -> Option<(u64, usize)> {
        let last = |lane: &Lane<W>| Some((lane.queue.back()?.order, lane.place));
        self.0.iter().filter_map(last).max()
    }

    /// Takes the last of a server's lane.
    pub(crate) fn take_newest(&mut self, place: usize) -> Option<Waiting<W>> {
        let at = self.0.iter().position(|lane| lane.place == place)?;
        let newest = self.0[at].queue.pop_back();
        self.forget_empty(at);
        newest
    }

    fn forget_empty(&mut self, at: usize) {
        if self.0[at].queue.is_empty() {
            self.0.swap_remove(at);
        }
    }

    /// Another number of classes; who waits keeps waiting.
    pub(crate) fn set_classes(&mut self, before: usize, after: usize) {
        for lane in &mut self.0 {
            for waiting in &mut lane.queue {
                waiting.order = order_among(waiting.order, before, after);
            }
            lane.queue.make_contiguous().sort_by_key(|waiting| waiting.order);
        }
    }

    pub(crate) fn insert(&mut self, place: usize, waiting: Waiting<W>) {
        match self.0.iter_mut().find(|lane| lane.place == place) {
            Some(lane) => insert(&mut lane.queue, waiting),
            None => self.0.push(Lane { place, queue: VecDeque::from([waiting]), blocked: false }),
        }
    }

    /// Forgets who waits no more.
    pub(crate) fn forget_gone(&mut self) {
        for lane in &mut self.0 {
            lane.queue.retain(|waiting| !waiting.waiter.is_gone());
        }
        self.0.retain(|lane| !lane.queue.is_empty());
    }

    /// Takes out some of those who wait.
    pub(crate) fn take_out(
        &mut self,
        goes: impl Fn(&Waiting<W>) -> bool,
        out: &mut Vec<Waiting<W>>,
    ) {
        for lane in &mut self.0 {
            let mut at = 0;
            while at < lane.queue.len() {
                if goes(&lane.queue[at]) { out.extend(lane.queue.remove(at)) } else { at += 1 }
            }
        }
        self.0.retain(|lane| !lane.queue.is_empty());
    }

    /// A turn begins: every lane may be tried.
    pub(crate) fn unblock(&mut self) {
        self.0.iter_mut().for_each(|lane| lane.blocked = false);
    }

    /// The lane whose first goes first, of those not blocked: its number and server.
    pub(crate) fn oldest(&mut self) -> Option<(u64, usize)> {
        for lane in &mut self.0 {
            skip_gone(&mut lane.queue);
        }
        self.0.retain(|lane| !lane.queue.is_empty());
        let free = self.0.iter().filter(|lane| !lane.blocked);
        free.filter_map(|lane| Some((lane.queue.front()?.order, lane.place))).min()
    }

    /// Takes the first of a server's lane.
    pub(crate) fn take_first(&mut self, place: usize) -> Option<Waiting<W>> {
        let at = self.0.iter().position(|lane| lane.place == place)?;
        let first = self.0[at].queue.pop_front();
        self.forget_empty(at);
        first
    }

    /// Puts the first back, and leaves its lane alone for this turn.
    pub(crate) fn block(&mut self, place: usize, first: Waiting<W>) {
        self.insert(place, first);
        if let Some(lane) = self.0.iter_mut().find(|lane| lane.place == place) {
            lane.blocked = true;
        }
    }
}
