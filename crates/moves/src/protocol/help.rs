//! What anybody does about a descriptor that was left pending: carry it out, or abort it by a
//! newer epoch.

use super::attempt::{Close, after};
use super::flaw;
use super::seen::{DepartState, Seen};
use super::{Machine, Next, Op, Outcome, Reply, Word};
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart, Departure, Epoch};

/// Times that a helper judges the node afresh after its swap missed. A miss means that the node
/// changed, which almost always ends the help; the next look comes soon enough for the rest.
const HELP_TRIES_MAX: u8 = 3;

/// What it takes to give a site a new epoch: the word that must still be there, and the newest
/// epoch known for the site. The random part comes from outside, when the plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BumpPlan {
    /// The site.
    pub site: SiteId,
    /// Its `depart` word as read, raw.
    pub word: u64,
    /// The newest of the word's epoch and of the stamps that the site's nodes carry.
    pub newest: Epoch,
}

impl BumpPlan {
    /// The machine, with a nonce drawn at random for this bump alone.
    #[must_use]
    pub fn draw(self, nonce: u32) -> Bump {
        Bump { plan: self, epoch: self.newest.next(nonce), ended: None }
    }
}

/// Gives a site a newer epoch and an idle descriptor. Nodes with older stamps do not count until
/// they are renewed, and writes that expect older stamps miss from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bump {
    plan: BumpPlan,
    epoch: Epoch,
    ended: Option<Outcome>,
}

impl Bump {
    /// The site that gets the epoch.
    #[must_use]
    pub fn site(&self) -> SiteId {
        self.plan.site
    }
}

impl Machine for Bump {
    fn next(&self) -> Next<Outcome> {
        let new = Depart::opened(self.epoch).pack();
        let word = Word::Depart(self.plan.site);
        let op = Op::CompareAndSwap { word, expected: self.plan.word, new };
        self.ended.map_or(Next::Op(op), Next::Done)
    }

    fn reply(&mut self, reply: Reply) {
        let site = self.plan.site;
        self.ended = Some(match reply {
            Reply::Swapped { found } if found == self.plan.word => Outcome::Bumped { site },
            Reply::Swapped { .. } | Reply::Value(_) => Outcome::LostBump { site },
            Reply::Unreachable => Outcome::Unreachable { word: Word::Depart(site) },
            Reply::Unknown => Outcome::Unsettled { word: Word::Depart(site) },
        });
    }
}

/// Help of the sound protocol.
pub type Help = HelpOf<{ flaw::NONE }>;

/// Carries out the departure that a site's descriptor names, whoever installed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HelpOf<const FLAW: u8> {
    donor: SiteId,
    word: u64,
    at: HelpAt,
}

/// What the look that found the descriptor knew beside it, and what the clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    /// The taker's epoch, which the node arrives under.
    stamp: Epoch,
    /// The newest epoch known for the donor, for an abort.
    newest: Epoch,
    /// Whether a node that cannot be read is given up.
    dead: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HelpAt {
    ReadNode(Known),
    ReadDepart { known: Known, assign: u64, tries: u8 },
    Swap { known: Known, assign: u64, tries: u8 },
    Close { moved: Option<(NodeId, Option<SiteId>, u32)> },
    Ended(Outcome),
}

impl<const FLAW: u8> HelpOf<FLAW> {
    /// Help for what the look saw pending at a site; none if nothing is. `dead` says that the
    /// node that it names was unreadable for so long that the move is to be aborted, if it still
    /// cannot be read.
    #[must_use]
    pub fn plan(seen: &Seen, donor: SiteId, dead: bool) -> Option<Self> {
        let DepartState::Pending(word, departure) = seen.depart(donor) else { return None };
        let stamp = seen.arrival_stamp(departure.taker);
        let known = Known { stamp, newest: seen.newest(donor), dead };
        Some(Self { donor, word: word.pack(), at: HelpAt::ReadNode(known) })
    }

    /// The site whose departure is helped.
    #[must_use]
    pub fn donor(&self) -> SiteId {
        self.donor
    }

    fn departure(&self) -> Option<Departure> {
        Depart::unpack(self.word).pending
    }

    fn must_bump(&self, known: Known) -> HelpAt {
        let plan = BumpPlan { site: self.donor, word: self.word, newest: known.newest };
        HelpAt::Ended(Outcome::MustBump(plan))
    }

    fn unreadable(&self, known: Known, departure: Departure) -> HelpAt {
        if FLAW == flaw::ABORT_KEEPS_EPOCH {
            return HelpAt::Close { moved: None };
        }
        if known.dead {
            return self.must_bump(known);
        }
        HelpAt::Ended(Outcome::NodeUnreadable { donor: self.donor, node: departure.node })
    }

    /// What the node's word, as just read or found, calls for.
    fn judge(&self, known: Known, departure: Departure, raw: u64, tries: u8) -> HelpAt {
        let Some(assign) = Assign::unpack(raw) else { return self.unreadable(known, departure) };
        let versioned = FLAW != flaw::NO_DESCRIPTOR_VERSION && FLAW != flaw::NO_VERSION;
        let other_version = versioned && assign.version_low() != departure.version_low;
        if assign.site != Some(self.donor) || other_version {
            return HelpAt::Close { moved: None };
        }
        let epoch = Depart::unpack(self.word).epoch;
        let taken = FLAW == flaw::HELPER_TAKES_NEWER && assign.stamp.is_newer_than(epoch);
        if assign.stamp != epoch && !taken {
            return self.must_bump(known);
        }
        if tries >= HELP_TRIES_MAX {
            return HelpAt::Ended(Outcome::HelpedByOther { donor: self.donor });
        }
        if FLAW == flaw::NO_REREAD {
            return HelpAt::Swap { known, assign: raw, tries };
        }
        HelpAt::ReadDepart { known, assign: raw, tries }
    }

    fn swap(&self, known: Known, departure: Departure, raw: u64) -> Assign {
        let old = Assign::unpack(raw).unwrap_or(Assign::FREE);
        after::<FLAW>(old, departure.taker, known.stamp)
    }
}

impl<const FLAW: u8> Machine for HelpOf<FLAW> {
    fn next(&self) -> Next<Outcome> {
        let Some(departure) = self.departure() else {
            return Next::Done(Outcome::HelpedByOther { donor: self.donor });
        };
        let (depart, assign) = (Word::Depart(self.donor), Word::Assign(departure.node));
        Next::Op(match self.at {
            HelpAt::ReadNode(_) => Op::Read(assign),
            HelpAt::ReadDepart { .. } => Op::Read(depart),
            HelpAt::Swap { known, assign: raw, .. } => {
                let new = self.swap(known, departure, raw).pack();
                Op::CompareAndSwap { word: assign, expected: raw, new }
            }
            HelpAt::Close { .. } => return Close::new(self.donor, self.word).next(),
            HelpAt::Ended(outcome) => return Next::Done(outcome),
        })
    }

    fn reply(&mut self, reply: Reply) {
        let Next::Op(Op::Read(word) | Op::CompareAndSwap { word, .. }) = self.next() else {
            return;
        };
        let Some(departure) = self.departure() else { return };
        let donor = self.donor;
        self.at = match (self.at, reply) {
            (HelpAt::Ended(_), _) => return,
            (HelpAt::ReadNode(known), Reply::Value(raw)) => self.judge(known, departure, raw, 0),
            (HelpAt::ReadNode(known), _) => self.unreadable(known, departure),
            (HelpAt::ReadDepart { known, assign, tries }, Reply::Value(raw)) => {
                if raw == self.word {
                    HelpAt::Swap { known, assign, tries }
                } else {
                    HelpAt::Ended(Outcome::HelpedByOther { donor })
                }
            }
            (HelpAt::Swap { known, assign, tries }, Reply::Swapped { found }) => {
                if found == assign {
                    let version = self.swap(known, departure, assign).version;
                    let moved = Some((departure.node, departure.taker, version));
                    HelpAt::Close { moved }
                } else {
                    self.judge(known, departure, found, tries + 1)
                }
            }
            (HelpAt::Close { moved: None }, Reply::Swapped { found }) if found != self.word => {
                HelpAt::Ended(Outcome::HelpedByOther { donor })
            }
            // A descriptor that this close did not reach is closed by the next helper.
            (HelpAt::Close { moved }, _) => HelpAt::Ended(Outcome::Helped { donor, moved }),
            (_, Reply::Unreachable) => HelpAt::Ended(Outcome::Unreachable { word }),
            (_, _) => HelpAt::Ended(Outcome::Unsettled { word }),
        };
    }
}
