//! The node record: in the agent's memory, read by every edge.

use crate::header::{self, LayoutError, in_range};
use crate::seqlock::{self, Unstable};
use crate::slot::LiveEdges;
use crate::words::{Assign, Lease, Phase, Server};
use crate::{EDGES_MAX, LINE_WORDS, SITES_MAX};
use pool_model::{EdgeId, NodeId, SiteId};
use remote_memory::Mapped;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"POLDERND");
const KIND: &str = "node record";

// Word offsets; docs/layout.md draws them.
const NODE: usize = 4;
const MAX_IN_FLIGHT: usize = 5;
const ASSIGN: usize = LINE_WORDS;
const HEIR: usize = ASSIGN + 1;
const BEAT: usize = 2 * LINE_WORDS;
const BEAT_PERIOD_US: usize = BEAT + 1;
const READY: usize = BEAT + 2;
const SERVICE: usize = BEAT + 3;
const STATUS: usize = 3 * LINE_WORDS;
const WAKE: usize = 4 * LINE_WORDS;
const WARM: usize = 5 * LINE_WORDS;
const WARM_WORDS: usize = (SITES_MAX + 1) / 64;
const EDGES: usize = 7 * LINE_WORDS;
const SLOTS: usize = 8 * LINE_WORDS;
const SERVERS: usize = SLOTS + EDGES_MAX * LINE_WORDS;
const WORDS: usize = SERVERS + SITES_MAX + 1;
const PAGE_BYTES: u64 = 4_096;

/// The size of a node's region in bytes: whole pages.
pub const NODE_REGION_BYTES: u64 = (WORDS as u64 * 8).div_ceil(PAGE_BYTES) * PAGE_BYTES;

/// Requests that a node may take at once, at the most: what fits the 24 bits of a slot.
const MAX_IN_FLIGHT_LIMIT: u64 = (1 << 24) - 1;

/// A region without a successor. The word of one is never zero: its version is at least one.
const NO_HEIR: u64 = 0;

/// What the agent writes once, before the region is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeHeader {
    /// The node.
    pub node: NodeId,
    /// Requests that it takes at once.
    pub max_in_flight: u32,
}

/// `ready[n]`: the version for which the server of the assigned site answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The version of the assignment.
    pub version: u32,
    /// How the server of that version's site is.
    pub phase: Phase,
}

impl Ready {
    fn pack(self) -> u64 {
        u64::from(self.version) << 4 | self.phase as u64
    }

    fn unpack(word: u64) -> Self {
        let phase = Server::unpack((word & 0xf) << 12).phase;
        Self { version: (word >> 4) as u32 & 0x3fff_ffff, phase }
    }
}

/// How the service by which edges elsewhere reach the record is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// There is none: the record is mapped only.
    #[default]
    None = 0,
    /// Before all ordinary threads of the machine.
    RealTime = 1,
    /// As any other thread: so it was set.
    AsSet = 2,
    /// As any other thread: the process may not have it otherwise.
    NotPermitted = 3,
    /// As any other thread: its control group has no run time for real-time threads.
    NoRunTime = 4,
    /// As any other thread: the kernel refused for another reason.
    Refused = 5,
}

impl Service {
    fn unpack(word: u64) -> Self {
        let all = [Self::RealTime, Self::AsSet, Self::NotPermitted, Self::NoRunTime, Self::Refused];
        all.into_iter().find(|service| *service as u64 == word).unwrap_or(Self::None)
    }
}

/// What the agent tells about its machine; one checked record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentStatus {
    /// Runnable tasks (load average over one minute), thousandths.
    pub run_queue_milli: u64,
    /// CPU time in use, thousandths of all cores.
    pub cpu_permille: u64,
    /// Memory in use, KiB.
    pub memory_used_kib: u64,
    /// Memory in all, KiB.
    pub memory_total_kib: u64,
    /// Servers that answer.
    pub servers_ready: u64,
    /// The agent's process id.
    pub pid: u64,
}

/// A view of one node's region. Cheap to clone.
#[derive(Clone)]
pub struct NodeRecord {
    region: Arc<dyn Mapped>,
    header: NodeHeader,
}

impl fmt::Debug for NodeRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeRecord").field("header", &self.header).finish_non_exhaustive()
    }
}

impl NodeRecord {
    /// Lays out a fresh region and publishes it. Only its owner calls this, once.
    pub fn publish(
        region: Arc<dyn Mapped>,
        header: NodeHeader,
        assign: Assign,
    ) -> Result<Self, LayoutError> {
        let found = region.words().len() as u64 * 8;
        if found < NODE_REGION_BYTES {
            let label = region.descriptor().label.clone();
            return Err(LayoutError::TooShort { label, found, needed: NODE_REGION_BYTES });
        }
        let max = u64::from(header.max_in_flight);
        in_range(&*region, "max_in_flight", max, MAX_IN_FLIGHT_LIMIT)?;
        let words = region.words();
        words[NODE].store(u64::from(header.node.get()), Ordering::Relaxed);
        words[MAX_IN_FLIGHT].store(max, Ordering::Relaxed);
        words[ASSIGN].store(assign.pack(), Ordering::Relaxed);
        words[BEAT].store(1, Ordering::Relaxed);
        header::publish(&*region, MAGIC);
        Ok(Self { region, header })
    }

    /// Opens a region that its owner has published. Noise, another version or another
    /// incarnation is refused by name.
    pub fn open(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        header::check(&*region, MAGIC, KIND, WORDS)?;
        Self::over(region)
    }

    /// Opens the region of a dead process that left its file to us. Its incarnation was lost with
    /// the process and is not checked.
    pub fn open_adopted(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        header::check_kind(&*region, MAGIC, KIND, WORDS)?;
        Self::over(region)
    }

    fn over(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        let words = region.words();
        let node = words[NODE].load(Ordering::Relaxed);
        let node = in_range(&*region, "node", node, u64::from(NodeId::MAX.get()))?;
        let max = words[MAX_IN_FLIGHT].load(Ordering::Relaxed);
        let max = in_range(&*region, "max_in_flight", max, MAX_IN_FLIGHT_LIMIT)?;
        let node = NodeId::new(node as u16).unwrap_or(NodeId::MIN);
        Ok(Self { region, header: NodeHeader { node, max_in_flight: max as u32 } })
    }

    /// Gives up a region: its assignment becomes a tombstone, so that every compare-and-swap that
    /// is still under way misses. Returns the last assignment; none if it was given up before.
    /// Only the owner or, of an adopted region, the owner's successor calls this.
    pub fn retire(region: &dyn Mapped) -> Result<Option<Assign>, LayoutError> {
        header::check_kind(region, MAGIC, KIND, WORDS)?;
        let last = region.words()[ASSIGN].swap(Assign::TOMBSTONE, Ordering::SeqCst);
        Ok(Assign::unpack(last))
    }

    /// Takes the node over from the region of a dead agent: this record, which nobody knows yet,
    /// gets the first assignment that `next` makes of the old one's last; then the old one becomes
    /// a tombstone. Returns the first assignment; none if the old region was given up for good.
    ///
    /// A successor may die at any instruction, before anybody could hold its region. So the old
    /// region also keeps what its successor began with, and the next one goes on from there.
    pub fn succeed(
        &self,
        old: &dyn Mapped,
        next: impl Fn(Assign) -> Assign,
    ) -> Result<Option<Assign>, LayoutError> {
        header::check_kind(old, MAGIC, KIND, WORDS)?;
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        let (assign, heir) = (&old.words()[ASSIGN], &old.words()[HEIR]);
        // Each turn but the last is an edge's move of the node, of which a look makes one.
        loop {
            let word = assign.load(Ordering::SeqCst);
            let last = match Assign::unpack(word) {
                Some(last) => last,
                None => match heir.load(Ordering::SeqCst) {
                    NO_HEIR => return Ok(None),
                    heir => Assign::unpack(heir).unwrap_or(Assign::FREE),
                },
            };
            let first = next(last);
            self.assign_word().store(first.pack(), Ordering::SeqCst);
            heir.store(first.pack(), Ordering::SeqCst);
            let swapped = assign.compare_exchange(word, Assign::TOMBSTONE, order.0, order.1);
            if swapped.is_ok() {
                return Ok(Some(first));
            }
        }
    }

    /// What the agent wrote before publishing.
    #[must_use]
    pub fn header(&self) -> NodeHeader {
        self.header
    }

    /// The region under the record.
    #[must_use]
    pub fn region(&self) -> &Arc<dyn Mapped> {
        &self.region
    }

    /// Whether the header still is what it was when the record was opened.
    pub fn check(&self) -> Result<(), LayoutError> {
        header::check(&*self.region, MAGIC, KIND, WORDS)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.region.words()[index]
    }

    /// The assignment word. Edges change it by compare-and-swap only; its agent only loads it.
    #[must_use]
    pub fn assign_word(&self) -> &AtomicU64 {
        self.word(ASSIGN)
    }

    /// The assignment, or none when the region was given up.
    #[must_use]
    pub fn assign(&self) -> Option<Assign> {
        Assign::unpack(self.word(ASSIGN).load(Ordering::SeqCst))
    }

    /// The agent's heartbeat: changes as long as the agent lives.
    #[must_use]
    pub fn beat(&self) -> u64 {
        self.word(BEAT).load(Ordering::Acquire)
    }

    /// Raises the heartbeat and says when the next one is due. The agent only.
    pub fn beat_once(&self, next_within: Duration) {
        let period_us = u64::try_from(next_within.as_micros()).unwrap_or(u64::MAX);
        self.word(BEAT_PERIOD_US).store(period_us, Ordering::Relaxed);
        let beat = self.word(BEAT).load(Ordering::Relaxed).wrapping_add(1).max(1);
        self.word(BEAT).store(beat, Ordering::Release);
    }

    /// Within which time the agent promised its next beat. An idle agent promises a long one.
    #[must_use]
    pub fn beat_period(&self) -> Duration {
        Duration::from_micros(self.word(BEAT_PERIOD_US).load(Ordering::Relaxed))
    }

    /// The version whose server answers.
    #[must_use]
    pub fn ready(&self) -> Ready {
        Ready::unpack(self.word(READY).load(Ordering::Acquire))
    }

    /// Tells for which version the server answers. The agent only.
    pub fn set_ready(&self, ready: Ready) {
        self.word(READY).store(ready.pack(), Ordering::Release);
    }

    /// How the service of edges elsewhere is scheduled.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::unpack(self.word(SERVICE).load(Ordering::Relaxed))
    }

    /// Tells how the service of edges elsewhere is scheduled. The agent only.
    pub fn set_service(&self, service: Service) {
        self.word(SERVICE).store(service as u64, Ordering::Relaxed);
    }

    /// Whether the node has a server of this site that answers, before any move.
    #[must_use]
    pub fn is_warm(&self, site: SiteId) -> bool {
        let number = usize::from(site.get());
        self.word(WARM + number / 64).load(Ordering::Acquire) >> (number % 64) & 1 == 1
    }

    /// Says whether there is a server of this site that answers. The agent only.
    pub fn set_warm(&self, site: SiteId, warm: bool) {
        let number = usize::from(site.get());
        debug_assert!(number / 64 < WARM_WORDS);
        let word = self.word(WARM + number / 64);
        let bit = 1 << (number % 64);
        let old = word.load(Ordering::Relaxed);
        word.store(if warm { old | bit } else { old & !bit }, Ordering::Release);
    }

    /// Where the site's server listens and how it is.
    #[must_use]
    pub fn server(&self, site: SiteId) -> Server {
        Server::unpack(self.word(SERVERS + usize::from(site.get())).load(Ordering::Acquire))
    }

    /// Says where the site's server listens and how it is. The agent only.
    pub fn set_server(&self, site: SiteId, server: Server) {
        let word = self.word(SERVERS + usize::from(site.get()));
        word.store(server.pack(), Ordering::Release);
    }

    /// Whether requests of `site` may be sent to the node under `assign`: a warm server at once,
    /// any other as soon as the agent has seen it answer under this version.
    #[must_use]
    pub fn takes(&self, site: SiteId, assign: Assign) -> bool {
        if assign.site != Some(site) {
            return false;
        }
        let ready = self.ready();
        self.is_warm(site) || (ready.version == assign.version && ready.phase == Phase::Ready)
    }

    /// What the agent tells about its machine.
    pub fn status(&self) -> Result<AgentStatus, Unstable> {
        let mut body = [0; 6];
        seqlock::read(&self.region.words()[STATUS..STATUS + LINE_WORDS], &mut body)?;
        let [run_queue_milli, cpu_permille, memory_used_kib, memory_total_kib, servers_ready, pid] =
            body;
        Ok(AgentStatus {
            run_queue_milli,
            cpu_permille,
            memory_used_kib,
            memory_total_kib,
            servers_ready,
            pid,
        })
    }

    /// Writes what the agent tells about its machine. The agent only.
    pub fn set_status(&self, s: &AgentStatus) {
        let body = [
            s.run_queue_milli,
            s.cpu_permille,
            s.memory_used_kib,
            s.memory_total_kib,
            s.servers_ready,
            s.pid,
        ];
        seqlock::write(&self.region.words()[STATUS..STATUS + LINE_WORDS], &body);
    }

    /// The index of the futex word that an edge changes to wake the agent.
    #[must_use]
    pub const fn wake_index() -> usize {
        WAKE
    }

    /// The value of the wake word's low half.
    #[must_use]
    pub fn wake_value(&self) -> u32 {
        self.word(WAKE).load(Ordering::Acquire) as u32
    }

    /// Changes the wake word. The caller then wakes the futex.
    pub fn ring(&self) {
        self.word(WAKE).fetch_add(1, Ordering::AcqRel);
    }

    /// The words of one edge's slot.
    #[must_use]
    pub fn slot(&self, edge: EdgeId) -> &[AtomicU64] {
        &self.region.words()[Self::slot_range(edge)]
    }

    /// Where these words lie, by their index. Only that edge writes them.
    #[must_use]
    pub const fn slot_range(edge: EdgeId) -> Range<usize> {
        let start = SLOTS + edge.get() as usize * LINE_WORDS;
        start..start + LINE_WORDS
    }

    /// What an edge reads of a record elsewhere in each look, by the words' index, in rising
    /// order: all but the slots of edges above `edge`, and the servers of sites above `sites`.
    #[must_use]
    pub fn watched(edge: EdgeId, sites: usize) -> [Range<usize>; 2] {
        [0..Self::slot_range(edge).end, SERVERS..SERVERS + sites.min(SITES_MAX) + 1]
    }

    /// The words that belong together, the first of which is their seqlock: a copy of them holds
    /// if the seqlock, read again after them, is even and still the same.
    #[must_use]
    pub const fn checked_range() -> Range<usize> {
        STATUS..STATUS + LINE_WORDS
    }

    /// Where [`NodeRecord::edges`] lies, by its index.
    #[must_use]
    pub const fn edges_index() -> usize {
        EDGES
    }

    /// The edges whose slots count: an edge enters itself before it sends its first request, and
    /// whoever sees its lease expired strikes it out. A live edge that was struck out by mistake
    /// enters itself again at its next look.
    #[must_use]
    pub fn edges(&self) -> LiveEdges {
        LiveEdges(self.word(EDGES).load(Ordering::SeqCst))
    }

    /// Enters an edge, or strikes it out.
    pub fn set_edge(&self, edge: EdgeId, counts: bool) {
        let bit = LiveEdges::default().with(edge).0;
        if counts {
            self.word(EDGES).fetch_or(bit, Ordering::SeqCst);
        } else {
            self.word(EDGES).fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// One edge's lease on its slot.
    #[must_use]
    pub fn lease_word(&self, edge: EdgeId) -> &AtomicU64 {
        &self.slot(edge)[0]
    }

    /// One edge's lease on its slot, unpacked.
    #[must_use]
    pub fn lease(&self, edge: EdgeId) -> Lease {
        Lease::unpack(self.lease_word(edge).load(Ordering::Acquire))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "node_record_tests.rs"]
mod tests;
