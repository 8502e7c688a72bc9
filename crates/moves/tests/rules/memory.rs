//! Words in plain memory, and short names for what the tests build.

use moves::protocol::{Look, Looked, Op, Reply, Seen, Word};
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Depart, Departure, Epoch, Floor};
use std::collections::HashMap;

pub(crate) const E: Epoch = Epoch::new(5, 77);

pub(crate) fn site(number: u16) -> SiteId {
    SiteId::new(number).expect("a site of the test")
}

pub(crate) fn node(number: u16) -> NodeId {
    NodeId::new(number).expect("a node of the test")
}

#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) words: HashMap<Word, u64>,
    pub(crate) sites: u16,
    pub(crate) nodes: u16,
    /// Operations performed.
    pub(crate) ops: Vec<Op>,
}

impl Memory {
    /// Sites with these guarantees in epoch [`E`], idle; a node at the site of each entry (zero
    /// for none), counted, in version 7.
    pub(crate) fn new(hard: &[u16], nodes: &[u16]) -> Self {
        let mut memory =
            Self { words: HashMap::new(), sites: hard.len() as u16, nodes: 0, ops: Vec::new() };
        for (index, &hard) in hard.iter().enumerate() {
            let id = site(index as u16 + 1);
            memory.words.insert(Word::Depart(id), Depart::opened(E).pack());
            memory.words.insert(Word::Arrive(id), 0);
            let floor = Floor { settings_version: 1, hard, max: 100 };
            memory.words.insert(Word::Floor(id), floor.pack());
        }
        for &at in nodes {
            let home = (at > 0).then(|| site(at));
            memory.put(memory.nodes, Assign { site: home, stamp: E, version: 7 });
        }
        memory
    }

    /// Sets a node's word; a new node if there is none of that number.
    pub(crate) fn put(&mut self, number: u16, assign: Assign) {
        self.nodes = self.nodes.max(number + 1);
        self.words.insert(Word::Assign(node(number)), assign.pack());
    }

    pub(crate) fn assign(&self, number: u16) -> Assign {
        Assign::unpack(self.words[&Word::Assign(node(number))]).expect("no tombstone")
    }

    pub(crate) fn depart(&self, of: u16) -> Depart {
        Depart::unpack(self.words[&Word::Depart(site(of))])
    }

    /// Leaves a descriptor pending, as an edge that died after step 2.
    pub(crate) fn install(&mut self, from: u16, number: u16, to: Option<u16>) {
        let version_low = self.assign(number).version_low();
        let departure = Departure { node: node(number), taker: to.map(site), version_low };
        let word = self.depart(from).installed(departure).expect("sequence left");
        self.words.insert(Word::Depart(site(from)), word.pack());
    }

    /// One that misses answers "unreachable".
    pub(crate) fn perform(&mut self, op: Op) -> Reply {
        self.ops.push(op);
        let (Op::Read(word) | Op::CompareAndSwap { word, .. }) = op;
        let Some(place) = self.words.get_mut(&word) else { return Reply::Unreachable };
        let found = *place;
        let Op::CompareAndSwap { expected, new, .. } = op else { return Reply::Value(found) };
        if found == expected {
            *place = new;
        }
        Reply::Swapped { found }
    }

    pub(crate) fn look(&mut self) -> Seen {
        let mut seen = Seen::new(self.sites, self.nodes);
        let mut look = Look::new(&seen);
        let looked = look.drive(&mut seen, |op| self.perform(op));
        assert_eq!(looked, Looked::Complete);
        seen
    }
}
