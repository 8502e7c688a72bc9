//! Steps 0 to 4 of a move, and the joining of free nodes.

use super::flaw;
use super::help::BumpPlan;
use super::repair::Renew;
use super::seen::{DepartState, Seen};
use super::{Machine, Next, Op, Outcome, Reply, Word};
use pool_model::{EdgeId, NodeId, Reason, SiteId};
use shared_state::words::{Arrive, Assign, Depart, Departure, Epoch};

/// What step 0 found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prepared<const FLAW: u8 = { flaw::NONE }> {
    /// The floor allows it: claim, then run this.
    Ready(AttemptOf<FLAW>),
    /// The donor needs a new epoch first.
    Bump(BumpPlan),
    /// Nodes of the donor carry old stamps and do not count: renew them, then look again.
    Renew(Renew),
    /// Not now.
    Refused(Refusal),
}

/// Why a move cannot be tried on what the look saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The donor would fall below its hard guarantee.
    DonorAtFloor,
    /// A departure from the donor is under way.
    DonorBusy,
    /// The guarantee of the donor is not in the shared words yet.
    FloorUnset,
    /// The node is not in the pool, or its word could not be read.
    NodeUnreadable,
    /// The node does not belong to the donor.
    NodeElsewhere,
    /// Donor and taker are the same site, or one of them is not in the pool.
    NoSuchSite,
    /// The taker has no epoch yet.
    TakerUnset,
    /// The node belongs to the taker already.
    AlreadyThere,
    /// The policy names no node that could be taken, or only ones that are paused.
    NoCandidate,
}

impl Refusal {
    /// The word used in logs, status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DonorAtFloor => "donor-at-floor",
            Self::DonorBusy => "donor-busy",
            Self::FloorUnset => "floor-unset",
            Self::NodeUnreadable => "node-unreadable",
            Self::NodeElsewhere => "node-elsewhere",
            Self::NoSuchSite => "no-such-site",
            Self::TakerUnset => "taker-unset",
            Self::AlreadyThere => "already-there",
            Self::NoCandidate => "no-candidate",
        }
    }
}

/// Step 0 for the sound protocol: may this node leave the donor? Pure; walks the nodes once.
#[must_use]
pub fn prepare(seen: &Seen, donor: SiteId, taker: Option<SiteId>, node: NodeId) -> Prepared {
    prepare_of(seen, donor, taker, node)
}

/// Step 0 for any variant; see [`prepare`].
#[doc(hidden)]
#[must_use]
pub fn prepare_of<const FLAW: u8>(
    seen: &Seen,
    donor: SiteId,
    taker: Option<SiteId>,
    node: NodeId,
) -> Prepared<FLAW> {
    let in_pool = |site: SiteId| site.index() < seen.sites.len();
    if !in_pool(donor) || taker.is_some_and(|taker| taker == donor || !in_pool(taker)) {
        return Prepared::Refused(Refusal::NoSuchSite);
    }
    let word = match seen.depart(donor) {
        DepartState::Idle(word) => word,
        DepartState::Pending(..) => return Prepared::Refused(Refusal::DonorBusy),
        DepartState::Unset | DepartState::Bad(_) => return Prepared::Bump(seen.bump_plan(donor)),
    };
    let Some(floor) = seen.floor(donor) else { return Prepared::Refused(Refusal::FloorUnset) };
    let Some(assign) = seen.assign(node) else {
        return Prepared::Refused(Refusal::NodeUnreadable);
    };
    if assign.site != Some(donor) {
        return Prepared::Refused(Refusal::NodeElsewhere);
    }
    let count = count::<FLAW>(seen, donor, word.epoch, node);
    if count.newer {
        return match Renew::plan(seen, donor) {
            Some(renew) if seen.has_no_newest(donor) => Prepared::Renew(renew),
            _ => Prepared::Bump(seen.bump_plan(donor)),
        };
    }
    if assign.stamp != word.epoch || count.others < u32::from(floor.hard) {
        return match Renew::plan(seen, donor) {
            Some(renew) if count.older => Prepared::Renew(renew),
            _ => Prepared::Refused(Refusal::DonorAtFloor),
        };
    }
    let low = if FLAW == flaw::NO_VERSION { 0 } else { assign.version_low() };
    let departure = Departure { node, taker, version_low: low };
    let Some(installed) = word.installed(departure) else {
        return Prepared::Bump(seen.bump_plan(donor));
    };
    let swap = Swap { pending: installed.pack(), assign: assign.pack() };
    let stamp = seen.arrival_stamp(taker);
    let at = AttemptAt::Install { idle: word.pack(), swap };
    Prepared::Ready(AttemptOf { donor, node, taker, stamp, at })
}

/// The nodes of a donor as the floor sees them.
struct Count {
    /// Nodes other than the one that leaves, which stand in the epoch and count.
    others: u32,
    /// Some node carries an older stamp.
    older: bool,
    /// Some node carries a newer stamp: a newer home rules.
    newer: bool,
}

fn count<const FLAW: u8>(seen: &Seen, donor: SiteId, epoch: Epoch, leaving: NodeId) -> Count {
    let mut count = Count { others: 0, older: false, newer: false };
    for (node, assign) in seen.of_site(donor) {
        let stands = assign.stamp == epoch;
        let newer = assign.stamp.is_newer_than(epoch);
        count.newer |= newer;
        count.older |= !stands && !newer;
        let counts = stands || (FLAW == flaw::COUNT_OLDER && !newer);
        let alive = seen.counted.get(node.index()).copied().unwrap_or(false);
        count.others += u32::from(counts && alive && node != leaving);
    }
    count
}

/// Step 1: takes one event of a taker for this edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    taker: SiteId,
    expected: u64,
    new: Arrive,
    ended: Option<Outcome>,
}

impl Claim {
    /// Claims the event after the `arrive` word that the look read.
    #[must_use]
    pub fn new(seen: &Seen, taker: SiteId, edge: EdgeId, reason: Reason) -> Self {
        let expected = seen.site(taker).arrive;
        let new = Arrive::unpack(expected).claimed(edge, reason);
        Self { taker, expected, new, ended: None }
    }

    /// The site that the claim is for.
    #[must_use]
    pub fn taker(&self) -> SiteId {
        self.taker
    }
}

impl Machine for Claim {
    fn next(&self) -> Next<Outcome> {
        let word = Word::Arrive(self.taker);
        let op = Op::CompareAndSwap { word, expected: self.expected, new: self.new.pack() };
        self.ended.map_or(Next::Op(op), Next::Done)
    }

    fn reply(&mut self, reply: Reply) {
        let taker = self.taker;
        self.ended = Some(match reply {
            Reply::Swapped { found } if found == self.expected => {
                Outcome::Claimed { taker, counter: self.new.counter }
            }
            Reply::Swapped { .. } | Reply::Value(_) => Outcome::LostClaim { taker },
            Reply::Unreachable => Outcome::Unreachable { word: Word::Arrive(taker) },
            Reply::Unknown => Outcome::Unsettled { word: Word::Arrive(taker) },
        });
    }
}

/// Steps 2 and 3 of the sound protocol.
pub type Attempt = AttemptOf<{ flaw::NONE }>;

/// Steps 2 and 3: writes the intent into the donor's word, then moves the node. Made by
/// [`prepare`]. After [`Outcome::Moved`] comes the [`Close`] that it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptOf<const FLAW: u8> {
    donor: SiteId,
    node: NodeId,
    taker: Option<SiteId>,
    stamp: Epoch,
    at: AttemptAt,
}

/// The two words that step 3 goes by: the descriptor that we installed, the node as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Swap {
    pending: u64,
    assign: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AttemptAt {
    Install {
        idle: u64,
        swap: Swap,
    },
    /// Only in the variant that closes too early.
    EarlyClose(Swap),
    Swap(Swap),
    Ended(Outcome),
}

impl<const FLAW: u8> AttemptOf<FLAW> {
    /// The site that gives.
    #[must_use]
    pub fn donor(&self) -> SiteId {
        self.donor
    }

    /// The node that leaves.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The site that takes; none to set the node free.
    #[must_use]
    pub fn taker(&self) -> Option<SiteId> {
        self.taker
    }

    fn close(&self, pending: u64) -> Close {
        Close::new(self.donor, pending)
    }

    fn swapped(&self, swap: Swap, found: u64) -> Outcome {
        let old = Assign::unpack(swap.assign).unwrap_or(Assign::FREE);
        if found == swap.assign {
            let version = after::<FLAW>(old, self.taker, self.stamp).version;
            let close = (FLAW != flaw::IDLE_BEFORE_SWAP).then(|| self.close(swap.pending));
            let (from, to) = (Some(self.donor), self.taker);
            return Outcome::Moved { node: self.node, from, to, version, close };
        }
        // The node seen changed means that the descriptor was carried out: it may be closed. A
        // node that only has a newer stamp means that it was aborted.
        let done = Assign::unpack(found)
            .is_some_and(|found| found.site != old.site || found.version != old.version);
        let close = done.then(|| self.close(swap.pending));
        Outcome::CasMissedLate { node: self.node, close }
    }
}

/// The node's word after its departure.
pub(super) fn after<const FLAW: u8>(old: Assign, taker: Option<SiteId>, stamp: Epoch) -> Assign {
    let moved = old.moved(taker, stamp);
    if FLAW == flaw::NO_VERSION { Assign { version: old.version, ..moved } } else { moved }
}

impl<const FLAW: u8> Machine for AttemptOf<FLAW> {
    fn next(&self) -> Next<Outcome> {
        let depart = Word::Depart(self.donor);
        Next::Op(match self.at {
            AttemptAt::Install { idle, swap } => {
                Op::CompareAndSwap { word: depart, expected: idle, new: swap.pending }
            }
            AttemptAt::EarlyClose(swap) => {
                let new = Depart::unpack(swap.pending).closed().pack();
                Op::CompareAndSwap { word: depart, expected: swap.pending, new }
            }
            AttemptAt::Swap(swap) => {
                let old = Assign::unpack(swap.assign).unwrap_or(Assign::FREE);
                let new = after::<FLAW>(old, self.taker, self.stamp).pack();
                let word = Word::Assign(self.node);
                Op::CompareAndSwap { word, expected: swap.assign, new }
            }
            AttemptAt::Ended(outcome) => return Next::Done(outcome),
        })
    }

    fn reply(&mut self, reply: Reply) {
        let Next::Op(Op::CompareAndSwap { word, .. }) = self.next() else { return };
        self.at = match (self.at, reply) {
            (AttemptAt::Ended(_), _) => return,
            (_, Reply::Unreachable) => AttemptAt::Ended(Outcome::Unreachable { word }),
            (_, Reply::Unknown | Reply::Value(_)) => AttemptAt::Ended(Outcome::Unsettled { word }),
            (AttemptAt::Install { idle, swap }, Reply::Swapped { found }) => {
                if found != idle {
                    AttemptAt::Ended(Outcome::LostInstall { donor: self.donor })
                } else if FLAW == flaw::IDLE_BEFORE_SWAP {
                    AttemptAt::EarlyClose(swap)
                } else {
                    AttemptAt::Swap(swap)
                }
            }
            (AttemptAt::EarlyClose(swap), Reply::Swapped { .. }) => AttemptAt::Swap(swap),
            (AttemptAt::Swap(swap), Reply::Swapped { found }) => {
                AttemptAt::Ended(self.swapped(swap, found))
            }
        };
    }
}

/// Step 4: makes a carried-out descriptor idle. Nobody waits for it, and anybody may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Close {
    donor: SiteId,
    pending: u64,
    ended: bool,
}

impl Close {
    /// Only right once the node that `pending` names was seen changed.
    pub(super) fn new(donor: SiteId, pending: u64) -> Self {
        Self { donor, pending, ended: false }
    }
}

impl Machine for Close {
    fn next(&self) -> Next<Outcome> {
        if self.ended {
            return Next::Done(Outcome::Closed { donor: self.donor });
        }
        let new = Depart::unpack(self.pending).closed().pack();
        let word = Word::Depart(self.donor);
        Next::Op(Op::CompareAndSwap { word, expected: self.pending, new })
    }

    fn reply(&mut self, _reply: Reply) {
        // Whatever the answer: a descriptor that is still open is closed by the next helper.
        self.ended = true;
    }
}

/// Takes a free node; there is no donor, so no descriptor is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Join {
    node: NodeId,
    taker: SiteId,
    expected: u64,
    new: Assign,
    ended: Option<Outcome>,
}

impl Join {
    /// Checks on what the look saw that the node is free and the taker is in the pool.
    pub fn plan(seen: &Seen, node: NodeId, taker: SiteId) -> Result<Self, Refusal> {
        if taker.index() >= seen.sites.len() {
            return Err(Refusal::NoSuchSite);
        }
        if Depart::is_unset(seen.site(taker).depart) {
            // The node would arrive with a stamp that does not count.
            return Err(Refusal::TakerUnset);
        }
        let assign = seen.assign(node).ok_or(Refusal::NodeUnreadable)?;
        if assign.site.is_some() {
            return Err(Refusal::NodeElsewhere);
        }
        let new = assign.moved(Some(taker), seen.arrival_stamp(Some(taker)));
        Ok(Self { node, taker, expected: assign.pack(), new, ended: None })
    }
}

impl Machine for Join {
    fn next(&self) -> Next<Outcome> {
        let word = Word::Assign(self.node);
        let op = Op::CompareAndSwap { word, expected: self.expected, new: self.new.pack() };
        self.ended.map_or(Next::Op(op), Next::Done)
    }

    fn reply(&mut self, reply: Reply) {
        let word = Word::Assign(self.node);
        self.ended = Some(match reply {
            Reply::Swapped { found } if found == self.expected => Outcome::Moved {
                node: self.node,
                from: None,
                to: Some(self.taker),
                version: self.new.version,
                close: None,
            },
            Reply::Swapped { .. } | Reply::Value(_) => Outcome::LostJoin { node: self.node },
            Reply::Unreachable => Outcome::Unreachable { word },
            Reply::Unknown => Outcome::Unsettled { word },
        });
    }
}
