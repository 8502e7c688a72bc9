//! The look: reads all site words, and only after all of them the nodes' words.
//!
//! The order is what makes a count valid: the floor is counted over words read *after* the
//! descriptor, so a departure in between changes the descriptor and the install misses. For each
//! site `depart` is read before `floor`, because [`SetFloor`](super::SetFloor) writes them the
//! other way round. A shell that prefetches in batches must keep both orders.
//!
//! Fast path: no allocation, no call. About 5 ns for each word on top of the read itself, so
//! 1,000 nodes cost about 5 us.

use super::flaw;
use super::seen::Seen;
use super::{Next, Op, Reply, Word};
use pool_model::{NodeId, SiteId};

/// How a look ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Looked {
    /// All site words were read, and every node that answered.
    Complete,
    /// A site word could not be read: another home must be used.
    HomeLost,
}

/// A look of the sound protocol.
pub type Look = LookOf<{ flaw::NONE }>;

/// The cursor of a look; what it reads goes to a [`Seen`], which is handed in with each reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookOf<const FLAW: u8> {
    sites: u16,
    nodes: u16,
    at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Site(u16, Part),
    Node(u16),
    Ended(Looked),
}

/// Which word of a site; in the order of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    Depart,
    Arrive,
    Floor,
}

impl<const FLAW: u8> LookOf<FLAW> {
    /// A look at everything that the buffers have room for.
    #[must_use]
    pub fn new(seen: &Seen) -> Self {
        let sites = u16::try_from(seen.sites.len()).unwrap_or(u16::MAX).min(SiteId::MAX.get());
        let nodes = u16::try_from(seen.nodes.len()).unwrap_or(u16::MAX).min(NodeId::MAX.get() + 1);
        let mut look = Self { sites, nodes, at: At::Site(0, Part::Depart) };
        if FLAW == flaw::NODES_BEFORE_DEPART {
            look.at = At::Node(0);
        }
        look.skip_empty();
        look
    }

    /// What to read next.
    #[must_use]
    pub fn next(&self) -> Next<Looked> {
        match self.at {
            At::Site(index, part) => {
                let Ok(site) = SiteId::from_index(usize::from(index)) else {
                    return Next::Done(Looked::Complete);
                };
                Next::Op(Op::Read(match part {
                    Part::Depart => Word::Depart(site),
                    Part::Arrive => Word::Arrive(site),
                    Part::Floor => Word::Floor(site),
                }))
            }
            At::Node(index) => match NodeId::new(index) {
                Ok(node) => Next::Op(Op::Read(Word::Assign(node))),
                Err(_) => Next::Done(Looked::Complete),
            },
            At::Ended(looked) => Next::Done(looked),
        }
    }

    /// Stores what was read and goes on.
    pub fn reply(&mut self, seen: &mut Seen, reply: Reply) {
        let value = match reply {
            Reply::Value(value) => Some(value),
            Reply::Swapped { .. } | Reply::Unreachable | Reply::Unknown => None,
        };
        match self.at {
            At::Site(index, part) => {
                let words = seen.sites.get_mut(usize::from(index));
                let (Some(value), Some(words)) = (value, words) else {
                    self.at = At::Ended(Looked::HomeLost);
                    return;
                };
                match part {
                    Part::Depart => words.depart = value,
                    Part::Arrive => words.arrive = value,
                    Part::Floor => words.floor = value,
                }
                self.at = match part {
                    Part::Depart => At::Site(index, Part::Arrive),
                    Part::Arrive => At::Site(index, Part::Floor),
                    Part::Floor => At::Site(index + 1, Part::Depart),
                };
            }
            At::Node(index) => {
                if let Some(node) = seen.nodes.get_mut(usize::from(index)) {
                    *node = value;
                }
                self.at = At::Node(index + 1);
            }
            At::Ended(_) => return,
        }
        self.skip_empty();
    }

    /// Runs the look to its end with a function that reads. Blocks as long as that does.
    pub fn drive(&mut self, seen: &mut Seen, mut perform: impl FnMut(Op) -> Reply) -> Looked {
        loop {
            match self.next() {
                Next::Op(op) => self.reply(seen, perform(op)),
                Next::Done(looked) => return looked,
            }
        }
    }

    /// Moves on where a table has come to its end.
    fn skip_empty(&mut self) {
        let nodes_first = FLAW == flaw::NODES_BEFORE_DEPART;
        match self.at {
            At::Site(index, Part::Depart) if index >= self.sites => {
                self.at = if nodes_first { At::Ended(Looked::Complete) } else { At::Node(0) };
                if !nodes_first {
                    self.skip_empty();
                }
            }
            At::Node(index) if index >= self.nodes => {
                self.at = if nodes_first {
                    At::Site(0, Part::Depart)
                } else {
                    At::Ended(Looked::Complete)
                };
            }
            At::Site(..) | At::Node(_) | At::Ended(_) => {}
        }
    }
}
