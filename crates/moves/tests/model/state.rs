//! The world that the machines run in: words, edges, one late compare-and-swap, budgets, ghosts.

use moves::protocol::{
    AttemptOf, Bump, Close, HelpOf, LookOf, Machine, Next, Op, Outcome, Renew, Reply, Seen,
    SetFloor, SiteWords, Word,
};
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart, Epoch, Floor};

pub(crate) const SITES_MAX: usize = 3;
pub(crate) const NODES_MAX: usize = 4;
pub(crate) const EDGES_MAX: usize = 3;
pub(crate) const HOMES: usize = 2;

/// The epoch that the first home starts with. Nonces of later bumps are higher.
pub(crate) const FIRST_EPOCH: Epoch = Epoch::new(1, 1);

/// Stands for "not read" or "nothing to remember" among a look's node words; nobody reads it
/// as a word, because it is the tombstone.
pub(crate) const NOTHING: u64 = Assign::TOMBSTONE;

pub(crate) fn site(index: usize) -> SiteId {
    SiteId::from_index(index).expect("a site of the model")
}

pub(crate) fn node(index: usize) -> NodeId {
    NodeId::new(u16::try_from(index).expect("few nodes")).expect("a node of the model")
}

/// How often each thing may still happen. Every counter is bounded, else bumps make the space
/// infinite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budgets {
    pub(crate) installs: u8,
    pub(crate) bumps: u8,
    pub(crate) crashes: u8,
    pub(crate) zombies: u8,
    pub(crate) failures: u8,
    pub(crate) wipes: u8,
    pub(crate) home_changes: u8,
    /// Verdicts "unreachable" about a node that is alive.
    pub(crate) false_unreachable: u8,
    /// Live changes of the first site's guarantee.
    pub(crate) raises: u8,
}

/// What one edge does at present. Values that no longer matter are not in it, so that states that
/// behave alike are the same state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Doing<const FLAW: u8> {
    Nothing,
    /// Killed, for good.
    Dead,
    /// Reading, with a donor and a taker in mind.
    Looking(Looking<FLAW>),
    Attempt(AttemptOf<FLAW>),
    Close(Close),
    Help(HelpOf<FLAW>),
    Bump(Bump),
    Renew(Renew),
    SetFloor(SetFloor),
}

/// A look under way: the real cursor, and of what it read only what concerns donor and taker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Looking<const FLAW: u8> {
    pub(crate) look: LookOf<FLAW>,
    pub(crate) donor: u8,
    /// The taker, or `donor` itself for "to none".
    pub(crate) taker: u8,
    /// The donor's descriptor, once read.
    pub(crate) depart: Option<u64>,
    /// The taker's descriptor; zero until it is read or where it does not matter.
    pub(crate) taker_depart: u64,
    /// The donor's guarantee; the first one until another is read.
    pub(crate) floor: u64,
    pub(crate) nodes: [u64; NODES_MAX],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Edge<const FLAW: u8> {
    pub(crate) home: u8,
    pub(crate) doing: Doing<FLAW>,
}

/// A node: its memory answers while it is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) alive: bool,
    pub(crate) assign: u64,
}

/// A compare-and-swap that was sent, was given up by its edge, and is still under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Zombie {
    pub(crate) home: u8,
    pub(crate) op: Op,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State<const FLAW: u8> {
    pub(crate) nodes: [Node; NODES_MAX],
    /// `depart` of each site on each home.
    pub(crate) departs: [[u64; SITES_MAX]; HOMES],
    /// `floor` of each site; only the first site's ever changes.
    pub(crate) floors: [u64; SITES_MAX],
    /// Ghost: the first site's new guarantee was made binding.
    pub(crate) bound: bool,
    /// Ghost: it was met since it was promised.
    pub(crate) reached: bool,
    pub(crate) edges: [Edge<FLAW>; EDGES_MAX],
    pub(crate) zombie: Option<Zombie>,
    pub(crate) left: Budgets,
    /// Ghost: descriptors ever installed, by donor.
    pub(crate) installs: [u8; SITES_MAX],
    /// Ghost: nodes that ever left, by donor.
    pub(crate) departures: [u8; SITES_MAX],
}

impl<const FLAW: u8> State<FLAW> {
    /// Carries out an operation of an edge that uses `home`. `arrive` is constant in the model and
    /// not asked for here.
    pub(crate) fn perform(&mut self, home: u8, op: Op) -> Reply {
        let (Op::Read(word) | Op::CompareAndSwap { word, .. }) = op;
        let place = match word {
            Word::Depart(site) => &mut self.departs[usize::from(home)][site.index()],
            Word::Assign(node) => {
                let node = &mut self.nodes[node.index()];
                if !node.alive {
                    return Reply::Unreachable;
                }
                &mut node.assign
            }
            Word::Floor(site) => &mut self.floors[site.index()],
            Word::Arrive(_) => unreachable!("constant in the model"),
        };
        let Op::CompareAndSwap { expected, new, .. } = op else { return Reply::Value(*place) };
        let found = *place;
        if found == expected {
            *place = new;
            self.note(word, found, new);
        }
        Reply::Swapped { found }
    }

    fn note(&mut self, word: Word, old: u64, new: u64) {
        match word {
            Word::Depart(_) if is_bind(old, new) => self.bound = true,
            Word::Depart(site) if Depart::unpack(new).pending.is_some() => {
                self.installs[site.index()] += 1;
                self.left.installs = self.left.installs.saturating_sub(1);
            }
            Word::Assign(_) => {
                let site = |raw| Assign::unpack(raw).and_then(|assign: Assign| assign.site);
                if let Some(donor) = site(old).filter(|_| site(old) != site(new)) {
                    self.departures[donor.index()] += 1;
                }
            }
            _ => {}
        }
    }

    /// Nodes assigned to a site, the dead ones included: a node that fails stays where it was, so
    /// this is alive(D) + failures(D).
    pub(crate) fn alive_and_failed(&self, site: SiteId) -> usize {
        let of = |node: &Node| Assign::unpack(node.assign).and_then(|assign| assign.site);
        self.nodes.iter().filter(|node| of(node) == Some(site)).count()
    }
}

impl<const FLAW: u8> Doing<FLAW> {
    /// The operation that it wants, for anything but a look.
    pub(crate) fn next(&self) -> Option<Next<Outcome>> {
        Some(match self {
            Self::Nothing | Self::Dead | Self::Looking(_) => return None,
            Self::Attempt(machine) => machine.next(),
            Self::Close(machine) => machine.next(),
            Self::Help(machine) => machine.next(),
            Self::Bump(machine) => machine.next(),
            Self::Renew(machine) => machine.next(),
            Self::SetFloor(machine) => machine.next(),
        })
    }

    pub(crate) fn reply(&mut self, reply: Reply) {
        match self {
            Self::Nothing | Self::Dead | Self::Looking(_) => {}
            Self::Attempt(machine) => machine.reply(reply),
            Self::Close(machine) => machine.reply(reply),
            Self::Help(machine) => machine.reply(reply),
            Self::Bump(machine) => machine.reply(reply),
            Self::Renew(machine) => machine.reply(reply),
            Self::SetFloor(machine) => machine.reply(reply),
        }
    }

    /// The operation that the next step performs.
    pub(crate) fn next_op(&self) -> Option<Op> {
        if let Self::Looking(looking) = self {
            let Next::Op(op) = looking.look.next() else { return None };
            return Some(op);
        }
        match self.next()? {
            Next::Op(op) => Some(op),
            Next::Done(_) => None,
        }
    }
}

impl<const FLAW: u8> Looking<FLAW> {
    /// Whether a read can tell anything that matters: the words of other sites do not concern
    /// this look, `arrive` never changes here, and `floor` only where a row `raises` the first
    /// site's.
    pub(crate) fn matters(&self, op: Op, raises: bool) -> bool {
        match op {
            Op::Read(Word::Depart(site)) => {
                let index = site.index();
                index == usize::from(self.donor)
                    || (index == usize::from(self.taker) && self.taker_matters())
            }
            Op::Read(Word::Floor(site)) => raises && site.index() == 0 && self.donor == 0,
            Op::Read(Word::Assign(_)) => true,
            Op::Read(_) | Op::CompareAndSwap { .. } => false,
        }
    }

    /// The taker's epoch is only used by a move: not where the donor must be bumped anyway.
    fn taker_matters(&self) -> bool {
        self.depart.is_none_or(|raw| !Depart::is_unset(raw))
    }

    /// Fills what the real functions are given: the words remembered, and the constant floors.
    pub(crate) fn fill(&self, seen: &mut Seen, hard: &[u16], nodes: usize) {
        resize(seen, hard.len(), nodes);
        for (words, &hard) in seen.sites.iter_mut().zip(hard) {
            *words = SiteWords { depart: 0, arrive: 0, floor: floor(hard) };
        }
        seen.sites[usize::from(self.donor)].floor = self.floor;
        seen.sites[usize::from(self.taker)].depart = self.taker_depart;
        seen.sites[usize::from(self.donor)].depart = self.depart.unwrap_or(0);
        for (read, &raw) in seen.nodes.iter_mut().zip(&self.nodes) {
            *read = (raw != NOTHING).then_some(raw);
        }
    }

    /// Takes back what a reply wrote, and forgets what can make no difference any more.
    pub(crate) fn remember(&mut self, seen: &Seen, donor_read: bool) {
        if donor_read {
            self.depart = Some(seen.sites[usize::from(self.donor)].depart);
        }
        self.floor = seen.sites[usize::from(self.donor)].floor;
        if self.taker != self.donor {
            self.taker_depart = seen.sites[usize::from(self.taker)].depart;
        }
        if !self.taker_matters() {
            // Any taker does: keep one of them.
            self.taker = u8::from(self.donor == 0);
            self.taker_depart = 0;
        }
        for (kept, raw) in self.nodes.iter_mut().zip(&seen.nodes) {
            *kept = raw.unwrap_or(NOTHING);
        }
        let donor = site(usize::from(self.donor));
        normalise(&mut self.nodes, donor, self.depart);
    }
}

/// Forgets node words that can make no difference: nodes of other sites, and all but the newest
/// stamp where the descriptor calls for help or a bump, or a newer epoch rules.
pub(crate) fn normalise(nodes: &mut [u64; NODES_MAX], donor: SiteId, depart: Option<u64>) {
    for raw in nodes.iter_mut() {
        if Assign::unpack(*raw).is_none_or(|assign| assign.site != Some(donor)) {
            *raw = NOTHING;
        }
    }
    let Some(depart) = depart else { return };
    let word = Depart::unpack(depart);
    let stamps = || nodes.iter().filter_map(|&raw| Assign::unpack(raw)).map(|assign| assign.stamp);
    let newest = stamps().fold(word.epoch, Epoch::newer);
    let newer = newest.is_newer_than(word.epoch);
    if word.pending.is_none() && !newer {
        return;
    }
    *nodes = [NOTHING; NODES_MAX];
    if newer {
        nodes[0] = Assign { site: Some(donor), stamp: newest, version: 0 }.pack();
    }
}

/// Makes room for these numbers; all nodes count.
pub(crate) fn resize(seen: &mut Seen, sites: usize, nodes: usize) {
    seen.sites.resize(sites, SiteWords::default());
    seen.nodes.resize(nodes, None);
    seen.counted.resize(nodes, true);
}

/// Whether a change of a descriptor is the second step of a new guarantee.
fn is_bind(old: u64, new: u64) -> bool {
    let (old, new) = (Depart::unpack(old), Depart::unpack(new));
    let idle = old.pending.is_none() && new.pending.is_none();
    idle && old.epoch == new.epoch && new.sequence == old.sequence.wrapping_add(1)
}

pub(crate) fn floor(hard: u16) -> u64 {
    Floor { settings_version: 1, hard, max: u16::MAX }.pack()
}
