//! Renewal of stamps after a bump, and live changes of a guarantee.

use super::help::BumpPlan;
use super::seen::{DepartState, Seen};
use super::{Machine, Next, Op, Outcome, Reply, Word};
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart, Epoch, Floor};

/// Stamps a site's nodes of older epochs with its present one, so that they count again. The
/// versions stay: nothing moves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    site: SiteId,
    epoch: Epoch,
    /// Still to do; taken from the end.
    left: Vec<(NodeId, u64)>,
    renewed: u32,
    missed: u32,
}

impl Renew {
    /// The nodes of a site that the look saw with older stamps; none if there are none.
    #[must_use]
    pub fn plan(seen: &Seen, site: SiteId) -> Option<Self> {
        let (DepartState::Idle(word) | DepartState::Pending(word, _)) = seen.depart(site) else {
            return None;
        };
        let epoch = word.epoch;
        let older = |assign: &Assign| assign.stamp != epoch && !assign.stamp.is_newer_than(epoch);
        let left: Vec<_> = seen
            .of_site(site)
            .filter(|(_, assign)| older(assign))
            .map(|(node, assign)| (node, assign.pack()))
            .collect();
        (!left.is_empty()).then_some(Self { site, epoch, left, renewed: 0, missed: 0 })
    }

    /// The site whose nodes are renewed.
    #[must_use]
    pub fn site(&self) -> SiteId {
        self.site
    }
}

impl Machine for Renew {
    fn next(&self) -> Next<Outcome> {
        let Some(&(node, raw)) = self.left.last() else {
            let Self { site, renewed, missed, .. } = *self;
            return Next::Done(Outcome::Renewed { site, renewed, missed });
        };
        let old = Assign::unpack(raw).unwrap_or(Assign::FREE);
        let new = old.renewed(self.epoch).pack();
        Next::Op(Op::CompareAndSwap { word: Word::Assign(node), expected: raw, new })
    }

    fn reply(&mut self, reply: Reply) {
        let Some((_, raw)) = self.left.pop() else { return };
        let done = reply == Reply::Swapped { found: raw };
        self.renewed += u32::from(done);
        self.missed += u32::from(!done);
    }
}

/// Changes a site's guarantee while edges move nodes: writes `floor`, then changes the idle
/// `depart` word, so that every install that was counted against the old guarantee misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetFloor {
    site: SiteId,
    seen: u64,
    new: u64,
    idle: Depart,
    at: FloorAt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum FloorAt {
    Write,
    Bind,
    Ended(Outcome),
}

/// What a change of a guarantee needs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FloorPlan {
    /// Nothing: run it.
    Ready(SetFloor),
    /// A departure is under way: help it, look again.
    Busy,
    /// The site has no epoch, or used its sequence up: bump, look again.
    Bump(BumpPlan),
    /// The site is not in the pool.
    NoSuchSite,
}

impl SetFloor {
    /// Prepares the change on what the look saw.
    #[must_use]
    pub fn plan(seen: &Seen, site: SiteId, floor: Floor) -> FloorPlan {
        if site.index() >= seen.sites.len() {
            return FloorPlan::NoSuchSite;
        }
        match seen.depart(site) {
            DepartState::Idle(idle) if idle.sequence < u8::MAX => {
                let (seen, new) = (seen.site(site).floor, floor.pack());
                FloorPlan::Ready(Self { site, seen, new, idle, at: FloorAt::Write })
            }
            DepartState::Pending(..) => FloorPlan::Busy,
            DepartState::Idle(_) | DepartState::Unset | DepartState::Bad(_) => {
                FloorPlan::Bump(seen.bump_plan(site))
            }
        }
    }
}

impl Machine for SetFloor {
    fn next(&self) -> Next<Outcome> {
        Next::Op(match self.at {
            FloorAt::Write => {
                let word = Word::Floor(self.site);
                Op::CompareAndSwap { word, expected: self.seen, new: self.new }
            }
            FloorAt::Bind => {
                let bound = Depart { sequence: self.idle.sequence + 1, ..self.idle };
                let word = Word::Depart(self.site);
                Op::CompareAndSwap { word, expected: self.idle.pack(), new: bound.pack() }
            }
            FloorAt::Ended(outcome) => return Next::Done(outcome),
        })
    }

    fn reply(&mut self, reply: Reply) {
        let site = self.site;
        let Next::Op(Op::CompareAndSwap { word, expected, .. }) = self.next() else { return };
        self.at = match (self.at, reply) {
            (_, Reply::Unreachable) => FloorAt::Ended(Outcome::Unreachable { word }),
            (_, Reply::Unknown | Reply::Value(_)) => FloorAt::Ended(Outcome::Unsettled { word }),
            (FloorAt::Write, Reply::Swapped { found })
                if found == expected || found == self.new =>
            {
                FloorAt::Bind
            }
            (FloorAt::Bind, Reply::Swapped { found }) if found == expected => {
                FloorAt::Ended(Outcome::FloorSet { site })
            }
            (_, Reply::Swapped { .. }) => FloorAt::Ended(Outcome::LostFloor { site }),
        };
    }
}
