//! What one look at the shared words saw, raw, and the pure questions asked of it.

use super::help::BumpPlan;
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart, Departure, Epoch, Floor};
use std::fmt;

/// The three words of a site, raw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SiteWords {
    /// `depart[D]`.
    pub depart: u64,
    /// `arrive[T]`.
    pub arrive: u64,
    /// `floor[D]`.
    pub floor: u64,
}

/// The result of a look: raw words, by index of site ([`SiteId::index`]) and node. The buffers are
/// made once and reused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The words of each site.
    pub sites: Vec<SiteWords>,
    /// `assign` of each node; none where it could not be read.
    pub nodes: Vec<Option<u64>>,
    /// Whether a node counts towards its site's floor: its beat is fresh and it is not cordoned.
    /// A look leaves this alone; whoever reads the nodes' records keeps it true to them. A node
    /// whose word could not be read counts for nobody either way.
    pub counted: Vec<bool>,
}

/// What a `depart` word says, checked against the size of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DepartState {
    /// Never written: the record is new or was wiped. Bump it.
    Unset,
    /// No departure under way.
    Idle(Depart),
    /// A departure under way.
    Pending(Depart, Departure),
    /// Nonsense: a node or site outside the pool, or a form that nobody writes. What it stood
    /// for cannot be known: bump it, and report a bad word.
    Bad(Depart),
}

/// A word that nobody writes, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadWord {
    /// A site's `depart`.
    Depart(SiteId, u64),
    /// A site's `floor`.
    Floor(SiteId, u64),
    /// A node's `assign`.
    Assign(NodeId, u64),
}

impl BadWord {
    /// Whether both lie at the same place.
    #[must_use]
    pub fn is_at_place_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Depart(site, _), Self::Depart(at, _))
            | (Self::Floor(site, _), Self::Floor(at, _)) => site == at,
            (Self::Assign(node, _), Self::Assign(at, _)) => node == at,
            _ => false,
        }
    }
}

impl fmt::Display for BadWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, owner, word) = match *self {
            Self::Depart(site, word) => ("depart", format!("site {site}"), word),
            Self::Floor(site, word) => ("floor", format!("site {site}"), word),
            Self::Assign(node, word) => ("assign", format!("node {node}"), word),
        };
        write!(f, "the word `{name}` of {owner} holds nonsense: {word:#018x}")
    }
}

impl Seen {
    /// Buffers for sites 1 to `sites` and nodes 0 to `nodes - 1`. All nodes count.
    #[must_use]
    pub fn new(sites: u16, nodes: u16) -> Self {
        Self {
            sites: vec![SiteWords::default(); usize::from(sites)],
            nodes: vec![None; usize::from(nodes)],
            counted: vec![true; usize::from(nodes)],
        }
    }

    /// The words of a site; empty ones for a site outside the pool.
    #[must_use]
    pub fn site(&self, site: SiteId) -> SiteWords {
        self.sites.get(site.index()).copied().unwrap_or_default()
    }

    /// The assignment of a node; none if it is not in the pool, was not read, or was given up.
    #[must_use]
    pub fn assign(&self, node: NodeId) -> Option<Assign> {
        Assign::unpack((*self.nodes.get(node.index())?)?)
    }

    /// The guarantee as the shared word states it; none while nobody wrote it, and for one that
    /// no settings can say: more than there are nodes, or more than the site may have.
    #[must_use]
    pub fn floor(&self, site: SiteId) -> Option<Floor> {
        let raw = self.site(site).floor;
        let floor = Floor::unpack(raw);
        let sane = floor.hard <= floor.max && usize::from(floor.hard) <= self.nodes.len();
        (raw != 0 && sane).then_some(floor)
    }

    /// What the site's descriptor says.
    #[must_use]
    pub fn depart(&self, site: SiteId) -> DepartState {
        let raw = self.site(site).depart;
        if Depart::is_unset(raw) {
            return DepartState::Unset;
        }
        let word = Depart::unpack(raw);
        if word.pack() != raw {
            return DepartState::Bad(word);
        }
        let Some(departure) = word.pending else { return DepartState::Idle(word) };
        let node_known = departure.node.index() < self.nodes.len();
        let taker_known = departure.taker.is_none_or(|t| t != site && t.index() < self.sites.len());
        if node_known && taker_known {
            DepartState::Pending(word, departure)
        } else {
            DepartState::Bad(word)
        }
    }

    /// Whether a node's word is one that nobody writes: a site outside the pool. (A tombstone is
    /// no nonsense: its successor is published elsewhere.)
    #[must_use]
    pub fn is_bad_assign(&self, node: NodeId) -> bool {
        let site = self.assign(node).and_then(|assign| assign.site);
        site.is_some_and(|site| site.index() >= self.sites.len())
    }

    /// All words that nobody writes.
    pub fn bad_words(&self) -> impl Iterator<Item = BadWord> {
        let ids = (0..self.sites.len()).filter_map(|index| SiteId::from_index(index).ok());
        let sites = ids.flat_map(|site| {
            let words = self.site(site);
            let depart = matches!(self.depart(site), DepartState::Bad(_));
            let floor = words.floor != 0 && self.floor(site).is_none();
            [
                depart.then_some(BadWord::Depart(site, words.depart)),
                floor.then_some(BadWord::Floor(site, words.floor)),
            ]
        });
        let nodes = self.nodes.iter().enumerate().filter_map(|(index, raw)| {
            let node = NodeId::new(u16::try_from(index).ok()?).ok()?;
            self.is_bad_assign(node).then_some(BadWord::Assign(node, (*raw)?))
        });
        sites.flatten().chain(nodes)
    }

    /// The epoch under which a node arrives at a site; zero for "to none", and for a site without
    /// a record, whose nodes are then renewed before they count.
    #[must_use]
    pub fn arrival_stamp(&self, taker: Option<SiteId>) -> Epoch {
        taker.map_or(Epoch::ZERO, |site| Depart::unpack(self.site(site).depart).epoch)
    }

    /// The newest of the descriptor's epoch and all stamps of the site's nodes that were read.
    #[must_use]
    pub fn newest(&self, site: SiteId) -> Epoch {
        let start = Depart::unpack(self.site(site).depart).epoch;
        self.of_site(site).fold(start, |newest, (_, assign)| newest.newer(assign.stamp))
    }

    /// Whether the stamps of a site's nodes stand all around the counter's circle, as noise in
    /// its word may leave them: each is older than some other, so no bump is newer than all. Once
    /// those older than the descriptor are renewed, the rest lies within half of the circle, where
    /// one is the newest again.
    #[must_use]
    pub fn has_no_newest(&self, site: SiteId) -> bool {
        let newest = self.newest(site);
        self.of_site(site).any(|(_, assign)| assign.stamp.is_newer_than(newest))
    }

    /// All readable nodes assigned to a site.
    pub fn of_site(&self, site: SiteId) -> impl Iterator<Item = (NodeId, Assign)> {
        let number = |index: usize| u16::try_from(index).ok().and_then(|n| NodeId::new(n).ok());
        self.nodes.iter().enumerate().filter_map(move |(index, raw)| {
            let assign = Assign::unpack((*raw)?)?;
            (assign.site == Some(site)).then_some((number(index)?, assign))
        })
    }

    /// What it takes to give the site a new epoch.
    #[must_use]
    pub fn bump_plan(&self, site: SiteId) -> BumpPlan {
        BumpPlan { site, word: self.site(site).depart, newest: self.newest(site) }
    }
}
