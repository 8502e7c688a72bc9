//! All regions that an edge can reach: mapped, or mirrored and reached by a line.
//!
//! Looks and dispatches read records as if all were mapped. What differs is here: mirrors are
//! refreshed before they are read, and what is compared and swapped goes to the region itself.

use super::attach::Target;
use super::far::{Answers, Far, Shape, refresh};
use super::host::Link;
use super::line::Line;
use super::memory::Memory;
use super::monotonic;
use crate::protocol::{Op, Reply, Word};
use pool_model::{EdgeId, NodeId};
use remote_memory::{Mapped as _, Mirror, Wake as _};
use shared_state::slot::{self, LiveEdges};
use shared_state::words::Assign;
use shared_state::{NodeRecord, SiteRecord};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Tries of one change of a word of bits: each that misses met another change.
const CHANGE_TRIES_MAX: u32 = 16;

/// The records, and the lines to those that are elsewhere.
pub(super) struct Reach {
    /// The records, mapped and mirrored alike.
    pub(super) memory: Memory,
    edge: EdgeId,
    sites: usize,
    deadline: Duration,
    home: Option<Far>,
    nodes: Vec<Option<Far>>,
    /// The highest edge whose words the last refresh read.
    last_read: EdgeId,
}

impl Reach {
    pub(super) fn new(edge: EdgeId, sites: usize, nodes: usize, deadline: Duration) -> Self {
        Self {
            memory: Memory { home: None, nodes: vec![None; nodes] },
            edge,
            sites,
            deadline,
            home: None,
            nodes: std::iter::repeat_with(|| None).take(nodes).collect(),
            last_read: edge,
        }
    }

    /// A mapped home is used from now on.
    pub(super) fn home_found(&mut self, record: SiteRecord) {
        (self.memory.home, self.home) = (Some(record), None);
    }

    /// A node's mapped record is used from now on.
    pub(super) fn node_found(&mut self, node: NodeId, record: NodeRecord) {
        if let (Some(place), Some(far)) =
            (self.memory.nodes.get_mut(node.index()), self.nodes.get_mut(node.index()))
        {
            (*place, *far) = (Some(record), None);
        }
    }

    /// A line to a home elsewhere is up.
    pub(super) fn home_reached(
        &mut self,
        record: SiteRecord,
        mirror: Arc<Mirror>,
        line: Box<dyn Line>,
    ) {
        let shape =
            Shape { own: SiteRecord::row_range(record.sites(), self.edge), ..Shape::default() };
        self.home = Some(Far::new(line, mirror, shape, self.deadline));
        self.memory.home = Some(record);
    }

    /// A line to a node elsewhere is up.
    pub(super) fn node_reached(
        &mut self,
        record: NodeRecord,
        mirror: Arc<Mirror>,
        line: Box<dyn Line>,
    ) {
        let shape = Shape {
            watched: NodeRecord::watched(self.edge, self.sites).to_vec(),
            own: NodeRecord::slot_range(self.edge),
            checked: Some(NodeRecord::checked_range()),
            bits: Some(NodeRecord::edges_index()),
            bell: Some(NodeRecord::wake_index()),
        };
        let place = record.header().node.index();
        if let Some(far) = self.nodes.get_mut(place) {
            *far = Some(Far::new(line, mirror, shape, self.deadline));
            self.memory.nodes[place] = Some(record);
        }
    }

    /// Whether a line leads to a region that is mirrored already; then it is used, and the mirror
    /// stays. The line comes back if not.
    pub(super) fn resume(
        &mut self,
        target: Target,
        mirror: &Mirror,
        line: Box<dyn Line>,
    ) -> Result<(), Box<dyn Line>> {
        let far = match target {
            Target::Home => self.home.as_mut(),
            Target::Node(node) => self.nodes.get_mut(node.index()).and_then(Option::as_mut),
        };
        match far.filter(|far| far.mirror.descriptor() == mirror.descriptor()) {
            Some(far) => {
                far.resume(line);
                if target == Target::Home && self.memory.home.is_none() {
                    let mirror: Arc<Mirror> = Arc::clone(&far.mirror);
                    self.memory.home = SiteRecord::open(mirror).ok();
                }
                Ok(())
            }
            None => Err(line),
        }
    }

    /// Forgets the record of a target: what stands there is not believed any more.
    pub(super) fn forget(&mut self, target: Target) {
        match target {
            Target::Home => (self.memory.home, self.home) = (None, None),
            Target::Node(node) => {
                if let Some(place) = self.memory.nodes.get_mut(node.index()) {
                    *place = None;
                    self.nodes[node.index()] = None;
                }
            }
        }
    }

    /// Reads what is elsewhere: the site words, and only then the nodes'. Blocks for two round
    /// trips, at most for two deadlines. The targets whose lines were cut since the last time are
    /// appended to `cut`.
    pub(super) fn refresh(&mut self, cut: &mut Vec<Target>) {
        if self.home.is_none() && self.nodes.iter().all(Option::is_none) {
            return;
        }
        let edges = self.last_edge();
        self.last_read = edges;
        if let (Some(far), Some(record)) = (&mut self.home, &self.memory.home) {
            far.watch(&SiteRecord::watched(record.sites(), self.nodes.len(), edges));
        }
        if let Some(far) = &mut self.home {
            refresh(&mut [far], monotonic);
        }
        if self.home.as_ref().is_some_and(|far| !far.is_up()) {
            self.memory.home = None;
        } else if let (Some(far), None) = (&self.home, &self.memory.home) {
            let mirror: Arc<Mirror> = Arc::clone(&far.mirror);
            self.memory.home = SiteRecord::open(mirror).ok();
        }
        let watched = NodeRecord::watched(edges, self.sites);
        let mut fars: Vec<&mut Far> = self.nodes.iter_mut().flatten().collect();
        fars.iter_mut().for_each(|far| far.watch(&watched));
        refresh(&mut fars, monotonic);
        if self.home.as_mut().is_some_and(Far::take_cut) {
            cut.push(Target::Home);
        }
        for (index, far) in self.nodes.iter_mut().enumerate() {
            let node = u16::try_from(index).ok().and_then(|index| NodeId::new(index).ok());
            if far.as_mut().is_some_and(Far::take_cut) {
                cut.extend(node.map(Target::Node));
            }
        }
    }

    /// The highest edge that has a slot anywhere, or this one.
    fn last_edge(&self) -> EdgeId {
        let own = LiveEdges::default().with(self.edge);
        let records = self.memory.nodes.iter().flatten();
        let all = LiveEdges(records.fold(own.0, |all, record| all | record.edges().0));
        all.iter().last().unwrap_or(self.edge)
    }

    /// Whether an edge's words in a node's record were ever read: an edge that is new there is
    /// read from the next refresh on.
    pub(super) fn has_read(&self, place: usize, edge: EdgeId) -> bool {
        edge <= self.last_read || self.link(place) == Link::Mapped
    }

    /// How a node's record is read.
    pub(super) fn link(&self, place: usize) -> Link {
        match self.nodes.get(place).and_then(Option::as_ref).map(|far| far.answers) {
            None => Link::Mapped,
            Some(Answers::Yes) => Link::Mirrored,
            Some(Answers::Silent(_)) => Link::Silent,
            Some(Answers::Gone) => Link::Gone,
        }
    }

    /// What this edge may bring the node's server to until the next look.
    pub(super) fn limit(&self, place: usize, assign: Option<Assign>) -> u32 {
        let Some(Some(record)) = self.memory.nodes.get(place) else { return 0 };
        let max = record.header().max_in_flight;
        let site = assign.and_then(|assign| assign.site);
        match (self.nodes.get(place).and_then(Option::as_ref), site) {
            (Some(far), Some(site)) => slot::fair_limit(record, site, self.edge, &far.told, max),
            _ => max,
        }
    }

    /// The time of one operation, the longest of all regions, if any is elsewhere.
    pub(super) fn op_time(&self) -> Option<Duration> {
        self.home.iter().chain(self.nodes.iter().flatten()).map(|far| far.took).max()
    }

    /// Answers a look, from what was mapped or refreshed.
    pub(super) fn read(&self, op: Op) -> Reply {
        match op {
            Op::Read(Word::Assign(node)) if !self.link(node.index()).is_fresh() => {
                Reply::Unreachable
            }
            _ => self.memory.perform(op),
        }
    }

    /// Performs one operation of a task, where the word itself is. Blocks for one round trip where
    /// that is elsewhere, at most for a deadline.
    pub(super) fn perform(&mut self, op: Op) -> Reply {
        let (Op::Read(word) | Op::CompareAndSwap { word, .. }) = op;
        let far = match word {
            Word::Assign(node) => self.nodes.get_mut(node.index()).and_then(Option::as_mut),
            _ => self.home.as_mut(),
        };
        let Some(far) = far else { return self.memory.perform(op) };
        let place = self.memory.word(word).and_then(|word| far.mirror.index_of(word));
        let Some(place) = place else { return Reply::Unreachable };
        match op {
            Op::Read(_) => far.read(place, monotonic),
            Op::CompareAndSwap { expected, new, .. } => far.swap(place, (expected, new), monotonic),
        }
    }

    /// Wakes a node's agent.
    pub(super) fn ring(&mut self, node: NodeId) {
        if let Some(Some(far)) = self.nodes.get_mut(node.index()) {
            far.ring();
        } else if let Some(Some(record)) = self.memory.nodes.get(node.index()) {
            record.ring();
            // An agent that sleeps through this notices at its next beat.
            let _ = record.region().wake(NodeRecord::wake_index(), u32::MAX);
        }
    }

    /// Wakes all agents.
    pub(super) fn ring_all(&mut self) {
        for index in 0..self.nodes.len() {
            if let Some(node) = u16::try_from(index).ok().and_then(|n| NodeId::new(n).ok()) {
                self.ring(node);
            }
        }
    }

    /// Pauses or resumes all moves; false if the home can't be reached.
    pub(super) fn set_paused(&mut self, paused: bool) -> bool {
        self.set_bit(SiteRecord::paused_bit, paused)
    }

    /// Takes a node out of service, or back; false if the home can't be reached.
    pub(super) fn set_cordoned(&mut self, node: NodeId, cordoned: bool) -> bool {
        self.set_bit(|home| home.cordon_bit(node), cordoned)
    }

    fn set_bit(&mut self, place: impl Fn(&SiteRecord) -> (&AtomicU64, u64), is_set: bool) -> bool {
        let Some(home) = &self.memory.home else { return false };
        let (word, bit) = place(home);
        let with = |word: u64| if is_set { word | bit } else { word & !bit };
        let Some(far) = &mut self.home else {
            use std::sync::atomic::Ordering::SeqCst;
            return word.fetch_update(SeqCst, SeqCst, |word| Some(with(word))).is_ok();
        };
        let Some(index) = far.mirror.index_of(word) else { return false };
        let Reply::Value(mut seen) = far.read(index, monotonic) else { return false };
        for _ in 0..CHANGE_TRIES_MAX {
            match far.swap(index, (seen, with(seen)), monotonic) {
                Reply::Swapped { found } if found == seen => return true,
                Reply::Swapped { found } => seen = found,
                _ => return false,
            }
        }
        false
    }
}
