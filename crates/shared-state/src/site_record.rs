//! The site record: in the memory of the home, read and changed by every edge.

use crate::header::{self, LayoutError, in_range};
use crate::words::Lease;
use crate::{EDGES_MAX, LINE_WORDS, NODES_MAX, SITES_MAX};
use pool_model::{EdgeId, NodeId, SiteId};
use remote_memory::Mapped;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"POLDERST");
const KIND: &str = "site record";

// Word offsets; docs/layout.md draws them.
const SITES: usize = 4;
const SETTINGS_HASH: usize = 5;
const CONTROL: usize = LINE_WORDS;
const CORDON: usize = 2 * LINE_WORDS;
const CORDON_WORDS: usize = (NODES_MAX + 2) / 64;
const SITE_WORDS: usize = CORDON + CORDON_WORDS;

const DEPART: usize = 0;
const ARRIVE: usize = 1;
const FLOOR: usize = 2;

const ROW_LEASE: usize = 0;
const ROW_HASH: usize = 1;
const ROW_LOOK: usize = 2;
const ROW_PID: usize = 3;
const ROW_HEADER: usize = LINE_WORDS;

const PAUSED: u64 = 1;
const PAGE_BYTES: u64 = 4_096;

/// Words of a site in the row of an edge.
const ROW_SITE_WORDS: usize = 2;
const DEMAND: usize = 0;
const SERVICE: usize = 1;

const fn row_words(sites: usize) -> usize {
    ROW_HEADER + (ROW_SITE_WORDS * sites).div_ceil(LINE_WORDS) * LINE_WORDS
}

const fn words_needed(sites: usize) -> usize {
    SITE_WORDS + sites * LINE_WORDS + EDGES_MAX * row_words(sites)
}

/// The size in bytes of a region for this many sites: whole pages.
#[must_use]
pub const fn site_region_bytes(sites: usize) -> u64 {
    (words_needed(sites) as u64 * 8).div_ceil(PAGE_BYTES) * PAGE_BYTES
}

/// What the home writes once, before the region is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteHeader {
    /// Sites of the pool: 1 to this number.
    pub sites: u16,
    /// The hash of the settings for the pool.
    pub settings_hash: u64,
}

/// What one edge has of one site: queued 32, in flight 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeDemand {
    /// Requests that wait in this edge's queue.
    pub queued: u32,
    /// Requests that this edge has in flight.
    pub in_flight: u32,
}

impl EdgeDemand {
    fn pack(self) -> u64 {
        u64::from(self.queued) << 32 | u64::from(self.in_flight)
    }

    fn unpack(word: u64) -> Self {
        Self { queued: (word >> 32) as u32, in_flight: word as u32 }
    }

    /// Queued and in flight together.
    #[must_use]
    pub fn total(self) -> u64 {
        u64::from(self.queued) + u64::from(self.in_flight)
    }

    /// Whether requests wait and none is in flight.
    #[must_use]
    pub fn is_starving(self) -> bool {
        self.queued > 0 && self.in_flight == 0
    }
}

/// What one edge measured of one site's servers of late: served 32, mean time 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeService {
    /// Requests that the mean stands for: the weight of this edge among others. Zero when it
    /// served none for long; then the mean is that of earlier ones.
    pub served: u32,
    /// Mean time that a request held its place at a server, in microseconds; zero where nothing
    /// was measured yet.
    pub mean_us: u32,
}

impl EdgeService {
    fn pack(self) -> u64 {
        u64::from(self.served) << 32 | u64::from(self.mean_us)
    }

    fn unpack(word: u64) -> Self {
        Self { served: (word >> 32) as u32, mean_us: word as u32 }
    }
}

/// What one edge tells about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgeRow {
    /// Its lease; incarnation zero stands for no edge.
    pub lease: Lease,
    /// The hash of its settings for the pool.
    pub settings_hash: u64,
    /// How long its last look took, microseconds.
    pub look_us: u32,
    /// At what interval it looks now, microseconds.
    pub look_every_us: u32,
    /// Its process id.
    pub pid: u32,
}

/// A view of the home's region. Cheap to clone.
#[derive(Clone)]
pub struct SiteRecord {
    region: Arc<dyn Mapped>,
    sites: usize,
}

impl fmt::Debug for SiteRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteRecord").field("sites", &self.sites).finish_non_exhaustive()
    }
}

impl SiteRecord {
    /// Lays out a fresh region and publishes it. Only its owner calls this, once. All words of
    /// the sites are unset: the first edge that needs one opens its epoch.
    pub fn publish(region: Arc<dyn Mapped>, header: SiteHeader) -> Result<Self, LayoutError> {
        let sites = usize::from(header.sites).min(SITES_MAX);
        let needed = words_needed(sites) as u64 * 8;
        let found = region.words().len() as u64 * 8;
        if found < needed {
            let label = region.descriptor().label.clone();
            return Err(LayoutError::TooShort { label, found, needed });
        }
        region.words()[SITES].store(sites as u64, Ordering::Relaxed);
        region.words()[SETTINGS_HASH].store(header.settings_hash, Ordering::Relaxed);
        header::publish(&*region, MAGIC);
        Ok(Self { region, sites })
    }

    /// Opens a region that its owner has published.
    pub fn open(region: Arc<dyn Mapped>) -> Result<Self, LayoutError> {
        header::check(&*region, MAGIC, KIND, SITE_WORDS)?;
        let sites = region.words()[SITES].load(Ordering::Relaxed);
        let sites = in_range(&*region, "sites", sites, SITES_MAX as u64)? as usize;
        header::check(&*region, MAGIC, KIND, words_needed(sites))?;
        Ok(Self { region, sites })
    }

    /// Whether the header still is what it was when the record was opened.
    pub fn check(&self) -> Result<(), LayoutError> {
        header::check(&*self.region, MAGIC, KIND, words_needed(self.sites))
    }

    /// The region under the record.
    #[must_use]
    pub fn region(&self) -> &Arc<dyn Mapped> {
        &self.region
    }

    /// The number of sites.
    #[must_use]
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// The hash of the home's settings for the pool.
    #[must_use]
    pub fn settings_hash(&self) -> u64 {
        self.word(SETTINGS_HASH).load(Ordering::Relaxed)
    }

    /// Changes it. Only the home does: edges with another hash move nothing until theirs is this.
    pub fn set_settings_hash(&self, hash: u64) {
        self.word(SETTINGS_HASH).store(hash, Ordering::Relaxed);
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.region.words()[index]
    }

    fn site_word(&self, site: SiteId, which: usize) -> Option<&AtomicU64> {
        let place = site.index();
        (place < self.sites).then(|| self.word(SITE_WORDS + place * LINE_WORDS + which))
    }

    /// The site's `depart` word; none for a site that the region has no room for. Changed by
    /// compare-and-swap only, as are `arrive` and `floor`.
    #[must_use]
    pub fn depart_word(&self, site: SiteId) -> Option<&AtomicU64> {
        self.site_word(site, DEPART)
    }

    /// The site's `arrive` word.
    #[must_use]
    pub fn arrive_word(&self, site: SiteId) -> Option<&AtomicU64> {
        self.site_word(site, ARRIVE)
    }

    /// The site's `floor` word.
    #[must_use]
    pub fn floor_word(&self, site: SiteId) -> Option<&AtomicU64> {
        self.site_word(site, FLOOR)
    }

    /// Whether a person has paused all moves.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.word(CONTROL).load(Ordering::Acquire) & PAUSED != 0
    }

    /// Pauses or resumes all moves.
    pub fn set_paused(&self, paused: bool) {
        if paused {
            self.word(CONTROL).fetch_or(PAUSED, Ordering::AcqRel);
        } else {
            self.word(CONTROL).fetch_and(!PAUSED, Ordering::AcqRel);
        }
    }

    /// Whether a person has taken the node out of service.
    #[must_use]
    pub fn is_cordoned(&self, node: NodeId) -> bool {
        let place = node.index();
        self.word(CORDON + place / 64).load(Ordering::Acquire) >> (place % 64) & 1 == 1
    }

    /// Takes the node out of service, or back into it.
    pub fn set_cordoned(&self, node: NodeId, cordoned: bool) {
        let (word, bit) = self.cordon_bit(node);
        if cordoned {
            word.fetch_or(bit, Ordering::AcqRel);
        } else {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// The word and the bit that say that a node is out of service.
    #[must_use]
    pub fn cordon_bit(&self, node: NodeId) -> (&AtomicU64, u64) {
        let place = node.index();
        (self.word(CORDON + place / 64), 1 << (place % 64))
    }

    /// The word and the bit that say that all moves are paused.
    #[must_use]
    pub fn paused_bit(&self) -> (&AtomicU64, u64) {
        (self.word(CONTROL), PAUSED)
    }

    fn row(&self, edge: EdgeId) -> usize {
        Self::row_range(self.sites, edge).start
    }

    /// Where the row of an edge lies in a record of so many sites, by its words' index. Only that
    /// edge writes it.
    #[must_use]
    pub const fn row_range(sites: usize, edge: EdgeId) -> Range<usize> {
        let start = SITE_WORDS + sites * LINE_WORDS + edge.get() as usize * row_words(sites);
        start..start + row_words(sites)
    }

    /// What an edge reads of a record elsewhere in each look, by the words' index, in rising
    /// order: all but what is said of nodes above `nodes`, and the rows of edges above `edge`.
    #[must_use]
    pub fn watched(sites: usize, nodes: usize, edge: EdgeId) -> [Range<usize>; 2] {
        let said = CORDON + nodes.div_ceil(64).min(CORDON_WORDS);
        [0..said, SITE_WORDS..Self::row_range(sites, edge).end]
    }

    /// The edge's lease on its row: taken by compare-and-swap, then beaten by plain stores.
    #[must_use]
    pub fn lease_word(&self, edge: EdgeId) -> &AtomicU64 {
        self.word(self.row(edge) + ROW_LEASE)
    }

    /// What the edge tells about itself.
    #[must_use]
    pub fn edge_row(&self, edge: EdgeId) -> EdgeRow {
        let row = self.row(edge);
        let look = self.word(row + ROW_LOOK).load(Ordering::Relaxed);
        EdgeRow {
            lease: Lease::unpack(self.word(row + ROW_LEASE).load(Ordering::Acquire)),
            settings_hash: self.word(row + ROW_HASH).load(Ordering::Relaxed),
            look_us: look as u32,
            look_every_us: (look >> 32) as u32,
            pid: self.word(row + ROW_PID).load(Ordering::Relaxed) as u32,
        }
    }

    /// Writes what the edge tells about itself, the lease last. That edge only.
    pub fn set_edge_row(&self, edge: EdgeId, told: &EdgeRow) {
        let row = self.row(edge);
        self.word(row + ROW_HASH).store(told.settings_hash, Ordering::Relaxed);
        let look = u64::from(told.look_every_us) << 32 | u64::from(told.look_us);
        self.word(row + ROW_LOOK).store(look, Ordering::Relaxed);
        self.word(row + ROW_PID).store(u64::from(told.pid), Ordering::Relaxed);
        self.word(row + ROW_LEASE).store(told.lease.pack(), Ordering::Release);
    }

    fn row_site_word(&self, edge: EdgeId, site: SiteId, which: usize) -> Option<&AtomicU64> {
        let place = site.index();
        let at = self.row(edge) + ROW_HEADER + ROW_SITE_WORDS * place + which;
        (place < self.sites).then(|| self.word(at))
    }

    /// What the edge has of the site.
    #[must_use]
    pub fn demand(&self, edge: EdgeId, site: SiteId) -> EdgeDemand {
        self.row_site_word(edge, site, DEMAND)
            .map(|word| EdgeDemand::unpack(word.load(Ordering::Acquire)))
            .unwrap_or_default()
    }

    /// Writes what the edge has of the site. That edge only.
    pub fn set_demand(&self, edge: EdgeId, site: SiteId, demand: EdgeDemand) {
        if let Some(word) = self.row_site_word(edge, site, DEMAND) {
            word.store(demand.pack(), Ordering::Release);
        }
    }

    /// What the edge measured of the site's servers.
    #[must_use]
    pub fn service(&self, edge: EdgeId, site: SiteId) -> EdgeService {
        self.row_site_word(edge, site, SERVICE)
            .map(|word| EdgeService::unpack(word.load(Ordering::Acquire)))
            .unwrap_or_default()
    }

    /// Writes what the edge measured of the site's servers. That edge only.
    pub fn set_service(&self, edge: EdgeId, site: SiteId, service: EdgeService) {
        if let Some(word) = self.row_site_word(edge, site, SERVICE) {
            word.store(service.pack(), Ordering::Release);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
#[path = "site_record_tests.rs"]
mod tests;
