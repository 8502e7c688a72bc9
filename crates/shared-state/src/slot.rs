//! One edge's counts of requests in flight at one node.
//!
//! Each edge writes its own line of 64 bytes in the node's record and reads the others', so that
//! together they keep the node's `max_in_flight` without a lock and without a message, and the
//! count of an edge that died vanishes with its lease.
//!
//! ```text
//! enter(v):  current := (v, n + 1)                    own word, then a full fence
//!            assign is no longer (site, v)?            undo: the node moved
//!            sum of all edges' slots > max_in_flight?  undo: the node is full
//! leave(v):  current -= 1, or the count of the earlier site that the request was sent to
//! ```
//!
//! Which slots count stands in one word of the record (`NodeRecord::edges`): an edge enters itself
//! when it takes its slot, before it sends anything, and is struck out once its lease has expired.
//! Two edges that enter at once both see each other's count or the later one does: the limit is
//! never passed; at the worst both undo and try again. Requests sent under an older version are
//! kept apart by site in three words and an overflow word, because they are in flight at another
//! server: they are load of the node, but do not count against the limit of the new site's
//! server. A count whose site this edge can't know counts against everybody.
//!
//! Fast path: no system call, no allocation, no lock. An `enter` with two live edges is about
//! ten loads, two stores and a fence on three cache lines: some 30 ns.

use crate::LINE_WORDS;
use crate::node_record::NodeRecord;
use crate::words::{Assign, Current, Earlier, Lease};
use pool_model::{EdgeId, SiteId};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use thiserror::Error;

const CURRENT: usize = 1;
const EARLIER: std::ops::Range<usize> = 2..6;

/// The edges whose slots count: bit `e` for edge `e`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveEdges(pub u64);

impl LiveEdges {
    /// The same with this edge.
    #[must_use]
    pub const fn with(self, edge: EdgeId) -> Self {
        Self(self.0 | 1 << edge.get())
    }

    /// The same without this edge.
    #[must_use]
    pub const fn without(self, edge: EdgeId) -> Self {
        Self(self.0 & !(1 << edge.get()))
    }

    /// Whether this edge is one of them.
    #[must_use]
    pub const fn contains(self, edge: EdgeId) -> bool {
        self.0 >> edge.get() & 1 == 1
    }

    /// The edges.
    pub fn iter(self) -> impl Iterator<Item = EdgeId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            EdgeId::new(bit as u8).ok()
        })
    }
}

/// Another edge holds the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the slot of edge {edge} belongs to incarnation {:#x}", found.incarnation)]
pub struct SlotTaken {
    /// The edge whose slot it is.
    pub edge: EdgeId,
    /// The lease that stands there.
    pub found: Lease,
}

/// What came of trying to send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// It counts as in flight; send it.
    Entered,
    /// The node serves another site or version now (none: its region was given up).
    Moved(Option<Assign>),
    /// All edges together have `max_in_flight` requests there.
    Full,
}

/// This edge's slot at one node. One owner: calls take `&mut self`, so threads share it behind
/// the lock of whoever dispatches.
#[derive(Debug)]
pub struct NodeSlot {
    record: NodeRecord,
    edge: EdgeId,
    lease: Lease,
    site: Option<SiteId>,
}

impl NodeSlot {
    /// Takes the edge's slot: `expected` is the lease word that was read there, zero or one that
    /// has expired. Counts that a dead edge left are cleared.
    pub fn take(
        record: NodeRecord,
        edge: EdgeId,
        expected: u64,
        lease: Lease,
    ) -> Result<Self, SlotTaken> {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let word = record.lease_word(edge);
        if let Err(found) = word.compare_exchange(expected, lease.pack(), order.0, order.1) {
            return Err(SlotTaken { edge, found: Lease::unpack(found) });
        }
        for word in &record.slot(edge)[CURRENT..] {
            word.store(0, Ordering::SeqCst);
        }
        record.set_edge(edge, true);
        let assign = record.assign();
        let mut slot = Self { record, edge, lease, site: None };
        slot.follow(assign.unwrap_or(Assign::FREE));
        Ok(slot)
    }

    /// The record that the slot lies in.
    #[must_use]
    pub fn record(&self) -> &NodeRecord {
        &self.record
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.record.slot(self.edge)[index]
    }

    fn current(&self) -> Current {
        Current::unpack(self.word(CURRENT).load(Ordering::Relaxed))
    }

    fn set_current(&self, current: Current) {
        self.word(CURRENT).store(current.pack(), Ordering::SeqCst);
    }

    /// Raises the lease. Called at each look.
    pub fn beat(&mut self) {
        if !self.record.edges().contains(self.edge) {
            // Somebody took this edge for dead: it was stopped, or starved, for too long.
            self.record.set_edge(self.edge, true);
        }
        self.lease = self.lease.beaten();
        self.record.lease_word(self.edge).store(self.lease.pack(), Ordering::Release);
    }

    /// Follows the node to a new assignment: what is in flight under the old one is kept apart.
    pub fn follow(&mut self, assign: Assign) {
        let current = self.current();
        if current.version == assign.version && self.site == assign.site {
            return;
        }
        if current.in_flight > 0 {
            self.put_aside(self.site, current.in_flight);
        }
        self.site = assign.site;
        self.set_current(Current { version: assign.version, in_flight: 0 });
    }

    /// Adds to the word of an earlier site, to a free word, or to the overflow word.
    fn put_aside(&self, site: Option<SiteId>, in_flight: u32) {
        let words = &self.record.slot(self.edge)[EARLIER];
        let load = |word: &AtomicU64| Earlier::unpack(word.load(Ordering::Relaxed));
        let (last, first) = words.split_last().expect("the range of earlier words is not empty");
        let same = |word: &&AtomicU64| load(word).in_flight > 0 && load(word).site == site;
        let free = |word: &&AtomicU64| load(word).in_flight == 0;
        let found = first.iter().find(same).or_else(|| first.iter().find(free));
        let (word, site) = found.map_or((last, None), |word| (word, site));
        let in_flight = load(word).in_flight.saturating_add(in_flight);
        word.store(Earlier { site, in_flight }.pack(), Ordering::SeqCst);
    }

    /// Counts one request of `assign`'s site in, if the node still has that assignment and room.
    pub fn enter(&mut self, assign: Assign, max_in_flight: u32) -> Enter {
        self.follow(assign);
        let current = self.current();
        self.set_current(Current { in_flight: current.in_flight + 1, ..current });
        fence(Ordering::SeqCst);
        let now = self.record.assign();
        let moved = now.is_none_or(|n| n.site != assign.site || n.version != assign.version);
        let all = self.record.edges().with(self.edge);
        if moved || server_load(&self.record, assign.site, all) > max_in_flight {
            self.set_current(current);
            return if moved { Enter::Moved(now) } else { Enter::Full };
        }
        Enter::Entered
    }

    /// Counts one request out that was sent to `site` under `version`.
    pub fn leave(&mut self, site: SiteId, version: u32) {
        let current = self.current();
        if current.version == version && self.site == Some(site) {
            let in_flight = current.in_flight.saturating_sub(1);
            return self.set_current(Current { in_flight, ..current });
        }
        self.leave_earlier(site);
    }

    /// Counts one request out that was sent to `site` under an earlier assignment, or was carried
    /// over from an earlier region.
    pub fn leave_earlier(&mut self, site: SiteId) {
        let words = &self.record.slot(self.edge)[EARLIER];
        let of = |wanted: Option<SiteId>| {
            words.iter().find(|word| {
                let earlier = Earlier::unpack(word.load(Ordering::Relaxed));
                earlier.in_flight > 0 && earlier.site == wanted
            })
        };
        if let Some(word) = of(Some(site)).or_else(|| of(None)) {
            let earlier = Earlier::unpack(word.load(Ordering::Relaxed));
            let in_flight = earlier.in_flight - 1;
            word.store(Earlier { in_flight, ..earlier }.pack(), Ordering::SeqCst);
        }
    }

    /// This edge's requests in flight, by the site that they were sent for; none stands for
    /// several sites.
    #[must_use]
    pub fn counts(&self) -> Vec<Earlier> {
        let current = Earlier { site: self.site, in_flight: self.current().in_flight };
        let earlier = self.record.slot(self.edge)[EARLIER].iter();
        let earlier = earlier.map(|word| Earlier::unpack(word.load(Ordering::Relaxed)));
        std::iter::once(current).chain(earlier).filter(|count| count.in_flight > 0).collect()
    }

    /// Takes over what is in flight from the slot of a region that was given up: the servers have
    /// outlived their agent, and so have the requests. They leave by [`NodeSlot::leave_earlier`].
    pub fn carry(&mut self, counts: &[Earlier]) {
        for count in counts {
            self.put_aside(count.site, count.in_flight);
        }
    }

    /// This edge's requests in flight under the present version.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.current().in_flight
    }
}

fn slot_count(slot: &[AtomicU64], counts: impl Fn(Earlier) -> bool) -> u32 {
    let current = Current::unpack(slot[CURRENT].load(Ordering::SeqCst)).in_flight;
    let earlier = slot[EARLIER].iter().map(|word| Earlier::unpack(word.load(Ordering::SeqCst)));
    earlier.filter(|e| counts(*e)).fold(current, |sum, e| sum.saturating_add(e.in_flight))
}

/// Requests of all live edges at the node's server for this site; a count that may be another
/// site's counts too.
#[must_use]
pub fn server_load(record: &NodeRecord, site: Option<SiteId>, live: LiveEdges) -> u32 {
    live.iter()
        .map(|edge| slot_count(record.slot(edge), |e| e.site == site || e.site.is_none()))
        .fold(0, u32::saturating_add)
}

/// What all live edges together may have at the server of `site`, as far as this one takes part,
/// where the record is a copy that is brought up to date once a look: what they had at the look,
/// and this edge's part of the room that was left, in equal parts and rounded up. `told` is this
/// edge's slot as the look left it in the record itself.
///
/// Between two looks an edge cannot see what others take. Let `n` edges share a server that takes
/// `m` requests. Whoever looked last saw what the others had at their looks, and keeps the sum of
/// that and its own below `m`; each of the others has taken at most its part since, and no part is
/// larger than `m / n` rounded up. So all together never have more than `m + (n - 1) * m / n`,
/// rounded up; and, if all look in turn, `m` and one less than there are edges, by rounding.
#[must_use]
pub fn fair_limit(
    record: &NodeRecord,
    site: SiteId,
    edge: EdgeId,
    told: &[AtomicU64],
    max_in_flight: u32,
) -> u32 {
    let live = record.edges().with(edge);
    let others = server_load(record, Some(site), live.without(edge));
    let own = slot_count(told, |e| e.site == Some(site) || e.site.is_none());
    let taken = others.saturating_add(own);
    let room = max_in_flight.saturating_sub(taken);
    taken.saturating_add(room.div_ceil(live.0.count_ones().max(1)))
}

/// Requests of all live edges at the node, whatever their site.
#[must_use]
pub fn node_load(record: &NodeRecord, live: LiveEdges) -> u32 {
    live.iter().map(|edge| slot_count(record.slot(edge), |_| true)).fold(0, u32::saturating_add)
}

/// Whether no live edge has a request of an earlier assignment at the node.
#[must_use]
pub fn is_drained(record: &NodeRecord, assign: Assign, live: LiveEdges) -> bool {
    live.iter().all(|edge| {
        let slot = record.slot(edge);
        let current = Current::unpack(slot[CURRENT].load(Ordering::SeqCst));
        let fresh = current.version == assign.version || current.in_flight == 0;
        fresh && slot_count(slot, |_| true) == current.in_flight
    })
}

const _: () = assert!(EARLIER.end <= LINE_WORDS);

#[cfg(test)]
#[cfg(not(loom))]
#[path = "slot_tests.rs"]
mod tests;
