//! The shared words of the pool, as arrays, and who stands where.

use crate::options::Options;
use moves::protocol::Word;
use pool_model::{NodeId, SiteId};
use shared_state::words::{Assign, Epoch};

/// How a node's memory and server are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeLife {
    /// All is well.
    Up,
    /// Its agent is gone: its memory can be read and its server serves, but it does not beat.
    Silent,
    /// The machine is gone.
    Down,
}

/// All words. A node's are in arrays of their own, so that a look streams over them.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    depart: Vec<u64>,
    arrive: Vec<u64>,
    floor: Vec<u64>,
    assign: Vec<u64>,
    /// Requests in flight at each node.
    load: Vec<u64>,
    /// Grows with each new region of a node: operations on an older one miss.
    incarnation: Vec<u32>,
    life: Vec<NodeLife>,
    /// The nodes of each site, in no order that matters.
    members: Vec<Vec<NodeId>>,
    /// Members that are not down.
    alive: Vec<u16>,
}

/// The site that an assignment names, if it is one of the pool.
fn site_of(word: u64) -> Option<SiteId> {
    Assign::unpack(word).and_then(|assign| assign.site)
}

impl Memory {
    /// Nodes stand where the options say and carry no stamps; site words are empty, as after the
    /// start of a home.
    pub(crate) fn new(options: &Options) -> Self {
        let sites = options.sites.len();
        let assign = options.nodes.iter().map(|node| Assign { site: node.site, ..Assign::FREE });
        let mut memory = Self {
            depart: vec![0; sites],
            arrive: vec![0; sites],
            floor: vec![0; sites],
            assign: assign.map(Assign::pack).collect(),
            load: vec![0; options.nodes.len()],
            incarnation: vec![1; options.nodes.len()],
            life: vec![NodeLife::Up; options.nodes.len()],
            members: vec![Vec::new(); sites],
            alive: vec![0; sites],
        };
        for index in 0..memory.assign.len() {
            let Some(node) = node_at(index) else { break };
            memory.enter(node, site_of(memory.assign[index]));
        }
        memory
    }

    /// A word as it stands.
    pub(crate) fn read(&self, word: Word) -> u64 {
        match word {
            Word::Depart(site) => self.depart[site.index()],
            Word::Arrive(site) => self.arrive[site.index()],
            Word::Floor(site) => self.floor[site.index()],
            Word::Assign(node) => self.assign[node.index()],
        }
    }

    /// Puts `new` where `expected` stands; gives back what was there.
    pub(crate) fn swap(&mut self, word: Word, expected: u64, new: u64) -> u64 {
        let place = match word {
            Word::Depart(site) => &mut self.depart[site.index()],
            Word::Arrive(site) => &mut self.arrive[site.index()],
            Word::Floor(site) => &mut self.floor[site.index()],
            Word::Assign(node) => {
                let found = self.assign[node.index()];
                if found == expected {
                    self.reassign(node, new);
                }
                return found;
            }
        };
        let found = *place;
        if found == expected {
            *place = new;
        }
        found
    }

    /// All site words are lost.
    pub(crate) fn wipe_home(&mut self) {
        for words in [&mut self.depart, &mut self.arrive, &mut self.floor] {
            words.fill(0);
        }
    }

    /// Whose requests a node accepts.
    pub(crate) fn site(&self, node: NodeId) -> Option<SiteId> {
        site_of(self.assign[node.index()])
    }

    /// The nodes that accept a site's requests, dead ones included.
    pub(crate) fn members(&self, site: SiteId) -> &[NodeId] {
        &self.members[site.index()]
    }

    /// How many of a site's nodes are not down.
    pub(crate) fn alive(&self, site: SiteId) -> u16 {
        self.alive[site.index()]
    }

    /// How a node is.
    pub(crate) fn life(&self, node: NodeId) -> NodeLife {
        self.life[node.index()]
    }

    /// The generation of a node's region.
    pub(crate) fn incarnation(&self, node: NodeId) -> u32 {
        self.incarnation[node.index()]
    }

    /// The load word of a node.
    pub(crate) fn load(&self, node: NodeId) -> u32 {
        u32::try_from(self.load[node.index()]).unwrap_or(u32::MAX)
    }

    /// Writes the load word of a node.
    pub(crate) fn set_load(&mut self, node: NodeId, in_flight: u32) {
        self.load[node.index()] = u64::from(in_flight);
    }

    /// Changes how a node is; its words stay.
    pub(crate) fn set_life(&mut self, node: NodeId, life: NodeLife) {
        let was = std::mem::replace(&mut self.life[node.index()], life);
        if let Some(alive) = self.site(node).and_then(|site| self.alive.get_mut(site.index())) {
            *alive = (*alive + u16::from(life != NodeLife::Down))
                .saturating_sub(u16::from(was != NodeLife::Down));
        }
    }

    /// A restarted machine publishes a new region: no site, no history.
    pub(crate) fn reboot(&mut self, node: NodeId) {
        self.set_life(node, NodeLife::Up);
        self.incarnation[node.index()] += 1;
        self.load[node.index()] = 0;
        self.reassign(node, Assign::FREE.pack());
    }

    /// A restarted agent publishes a new region over servers that went on: the same site and
    /// version, without a stamp.
    pub(crate) fn adopt(&mut self, node: NodeId) {
        self.set_life(node, NodeLife::Up);
        self.incarnation[node.index()] += 1;
        let last = Assign::unpack(self.assign[node.index()]).unwrap_or(Assign::FREE);
        self.reassign(node, last.renewed(Epoch::ZERO).pack());
    }

    fn reassign(&mut self, node: NodeId, word: u64) {
        let (old, new) = (self.site(node), site_of(word));
        self.assign[node.index()] = word;
        if old != new {
            self.leave(node, old);
            self.enter(node, new);
        }
    }

    fn leave(&mut self, node: NodeId, site: Option<SiteId>) {
        let Some(site) = site else { return };
        if let Some(members) = self.members.get_mut(site.index()) {
            members.retain(|&member| member != node);
            self.alive[site.index()] -= u16::from(self.life[node.index()] != NodeLife::Down);
        }
    }

    fn enter(&mut self, node: NodeId, site: Option<SiteId>) {
        let Some(site) = site else { return };
        if let Some(members) = self.members.get_mut(site.index()) {
            members.push(node);
            self.alive[site.index()] += u16::from(self.life[node.index()] != NodeLife::Down);
        }
    }
}

/// The node at a place of a table.
pub(crate) fn node_at(index: usize) -> Option<NodeId> {
    u16::try_from(index).ok().and_then(|number| NodeId::new(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{NodeSpec, SiteSpec};
    use pool_model::{NodeTraits, SiteTerms};

    fn memory() -> Memory {
        let site = SiteSpec { terms: SiteTerms::default(), service_ns: 1, slow_ns: 1 };
        let node =
            |site| NodeSpec { traits: NodeTraits::default(), max_in_flight: 1, site: Some(site) };
        let two = SiteId::new(2).unwrap();
        Memory::new(&Options::new(
            vec![site; 2],
            vec![node(SiteId::MIN), node(SiteId::MIN), node(two)],
        ))
    }

    #[test]
    fn members_and_the_living_follow_the_words() {
        let mut memory = memory();
        let (one, two) = (SiteId::MIN, SiteId::new(2).unwrap());
        let node = NodeId::new(1).unwrap();
        let word = Word::Assign(node);
        let old = memory.read(word);
        let new = Assign::unpack(old).unwrap().moved(Some(two), Epoch::ZERO).pack();
        assert_eq!(memory.swap(word, old, new), old);
        assert_eq!(memory.swap(word, old, new), new, "a second one misses");
        assert_eq!((memory.members(one).len(), memory.members(two).len()), (1, 2));
        memory.set_life(node, NodeLife::Silent);
        assert_eq!(memory.alive(two), 2);
        memory.set_life(node, NodeLife::Down);
        memory.set_life(node, NodeLife::Down);
        assert_eq!((memory.alive(two), memory.members(two).len()), (1, 2));
        memory.reboot(node);
        assert_eq!((memory.alive(two), memory.site(node), memory.incarnation(node)), (1, None, 2));
    }
}
