//! The pure core of the move protocol: step machines that ask for one operation at a time.
//!
//! A machine is asked with [`Machine::next`] what it wants, and told with [`Machine::reply`] how
//! that went. It reads no clock, does no I/O, draws no random number and allocates nothing for an
//! operation (only [`Renew`] holds a list, made once). Production, simulation and the model
//! checker run the same machines; what differs is who answers.
//!
//! The life of a move, in operations (`D` donor, `T` taker, `n` node, `E` the epoch of `D`):
//!
//! ```text
//! look     read depart, arrive, floor of all sites; then assign of all nodes       Look
//! step 0   count the nodes of D that stay and stand in E; pure                     prepare()
//! step 1   CAS arrive[T]: u -> u+1                                                 Claim
//! step 2   CAS depart[D]: (E,s,idle) -> (E,s+1,n,T,v)                              Attempt
//! step 3   CAS assign[n]: (D,E,v) -> (T,epoch of T,v+1)      takes effect here     Attempt
//! step 4   CAS depart[D]: (E,s+1,n,T,v) -> (E,s+1,idle)      anybody may do it     Close
//! repair   a dead edge's move: Help; a new epoch: Bump; old stamps: Renew
//! ```
//!
//! Every CAS compares the full word, so it is right whenever it succeeds, however late it lands.
//! Why floors hold is argued in the design notes and checked in `tests/`.

mod attempt;
mod help;
mod look;
mod repair;
mod seen;
mod task;

pub use attempt::{Attempt, AttemptOf, Claim, Close, Join, Prepared, Refusal, prepare, prepare_of};
pub use help::{Bump, BumpPlan, Help, HelpOf};
pub use look::{Look, LookOf, Looked};
pub use repair::{FloorPlan, Renew, SetFloor};
pub use seen::{BadWord, DepartState, Seen, SiteWords};
pub use task::Task;

use pool_model::{NodeId, SiteId};

/// One of the 64-bit words that edges read and compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// `depart[D]`: the descriptor of the departure under way from a site.
    Depart(SiteId),
    /// `arrive[T]`: the counter of claims for a site.
    Arrive(SiteId),
    /// `floor[D]`: the hard guarantee and the upper bound of a site.
    Floor(SiteId),
    /// `assign[n]`: whose requests a node accepts. It alone decides.
    Assign(NodeId),
}

/// A one-sided operation on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Fetch the word; answered by [`Reply::Value`].
    Read(Word),
    /// Store `new` if the word is `expected`; answered by [`Reply::Swapped`].
    CompareAndSwap {
        /// Which word.
        word: Word,
        /// The full word that must be there.
        expected: u64,
        /// The full word to put there.
        new: u64,
    },
}

/// How an operation went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The word that was read.
    Value(u64),
    /// The word that a compare-and-swap found; it took place exactly if that is the expected one.
    Swapped {
        /// What was in memory just before.
        found: u64,
    },
    /// The memory cannot be reached, and the operation did not and will not take place.
    Unreachable,
    /// No answer in time. A compare-and-swap may still land: the machine forgets it, and the next
    /// look finds out.
    Unknown,
}

/// What a machine wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next<O> {
    /// Perform this, then call `reply`.
    Op(Op),
    /// It is over; asking again gives the same.
    Done(O),
}

/// A part of the protocol that proceeds by one operation at a time.
pub trait Machine {
    /// What the machine wants now; asking does not change it.
    fn next(&self) -> Next<Outcome>;

    /// Answers the operation that `next` asked for. Ignored when nothing was asked for.
    fn reply(&mut self, reply: Reply);

    /// Runs to the end with a function that performs operations. Blocks as long as that does.
    fn drive(&mut self, mut perform: impl FnMut(Op) -> Reply) -> Outcome
    where
        Self: Sized,
    {
        loop {
            match self.next() {
                Next::Op(op) => self.reply(perform(op)),
                Next::Done(outcome) => return outcome,
            }
        }
    }
}

/// How a machine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The claim is ours: this event is ours to handle.
    Claimed {
        /// The taker.
        taker: SiteId,
        /// The value of the shared counter after the claim.
        counter: u64,
    },
    /// Another edge handles this event.
    LostClaim {
        /// The taker.
        taker: SiteId,
    },
    /// The node has changed hands, by our own compare-and-swap. Requests may go to it at once.
    Moved {
        /// The node.
        node: NodeId,
        /// The donor; none for a free node.
        from: Option<SiteId>,
        /// The taker; none if it was set free.
        to: Option<SiteId>,
        /// The version of the assignment that now holds.
        version: u32,
        /// Step 4, to be run next. None where there was no descriptor.
        close: Option<Close>,
    },
    /// The donor's descriptor changed since the look: another departure, or a new epoch.
    LostInstall {
        /// The donor.
        donor: SiteId,
    },
    /// The free node was taken by somebody else.
    LostJoin {
        /// The node.
        node: NodeId,
    },
    /// Step 3 came too late and missed: a helper was faster, or the descriptor was aborted.
    CasMissedLate {
        /// The node.
        node: NodeId,
        /// Step 4, where the node was seen changed; anybody may do it.
        close: Option<Close>,
    },
    /// A descriptor that another edge left pending was carried out and closed.
    Helped {
        /// The donor.
        donor: SiteId,
        /// The node that this edge's compare-and-swap moved, with its new version; none if that
        /// had been done already and only the descriptor was open.
        moved: Option<(NodeId, Option<SiteId>, u32)>,
    },
    /// Nothing to help any more: somebody else was faster.
    HelpedByOther {
        /// The donor.
        donor: SiteId,
    },
    /// The node that the descriptor names cannot be read, and is not yet given up.
    NodeUnreadable {
        /// The donor.
        donor: SiteId,
        /// The node.
        node: NodeId,
    },
    /// The descriptor must be aborted by a new epoch: run the [`Bump`] that the plan gives.
    MustBump(BumpPlan),
    /// The site has a new epoch.
    Bumped {
        /// The site.
        site: SiteId,
    },
    /// Somebody else changed the descriptor first.
    LostBump {
        /// The site.
        site: SiteId,
    },
    /// Old stamps were replaced.
    Renewed {
        /// The site.
        site: SiteId,
        /// Nodes that stand in the present epoch now.
        renewed: u32,
        /// Nodes that changed first, or did not answer.
        missed: u32,
    },
    /// The descriptor is idle again.
    Closed {
        /// The donor.
        donor: SiteId,
    },
    /// The new guarantee holds from now on.
    FloorSet {
        /// The site.
        site: SiteId,
    },
    /// The guarantee was not set, or not made binding; look again and repeat.
    LostFloor {
        /// The site.
        site: SiteId,
    },
    /// A word could not be reached.
    Unreachable {
        /// Which.
        word: Word,
    },
    /// A compare-and-swap was not answered in time. It may still land; the next look tells.
    Unsettled {
        /// Which word it was for.
        word: Word,
    },
}

/// Switches that break one rule each, so that tests can show that the checker notices.
///
/// Production uses [`flaw::NONE`] only, through the aliases [`Look`], [`Attempt`] and [`Help`]. As
/// constants of the type they cost nothing.
#[doc(hidden)]
pub mod flaw {
    /// The sound protocol.
    pub const NONE: u8 = 0;
    /// A helper does not compare the node's version with the descriptor's.
    pub const NO_DESCRIPTOR_VERSION: u8 = 1;
    /// The descriptor is closed before the node is swapped.
    pub const IDLE_BEFORE_SWAP: u8 = 2;
    /// A look reads the nodes before the descriptors.
    pub const NODES_BEFORE_DEPART: u8 = 3;
    /// An abort closes the descriptor within its epoch.
    pub const ABORT_KEEPS_EPOCH: u8 = 4;
    /// Nodes of older stamps count towards the floor.
    pub const COUNT_OLDER: u8 = 5;
    /// A helper moves nodes that are stamped newer than the descriptor.
    pub const HELPER_TAKES_NEWER: u8 = 6;
    /// Moves do not raise the node's version, and descriptors do not carry it.
    pub const NO_VERSION: u8 = 7;
    /// A helper does not read the descriptor again before it swaps. Implied by the version, so
    /// this one breaks nothing.
    pub const NO_REREAD: u8 = 8;
}
