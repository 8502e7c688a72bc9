//! The 64-bit words that edges compare and swap, packed from high to low as `docs/layout.md`
//! draws them. Packing is pure; any word that memory may hold unpacks without a panic.

use pool_model::{EdgeId, NodeId, Reason, SiteId};

/// The site number that stands for "none".
const NO_SITE: u64 = 0;
/// The node number that stands for "idle".
const NO_NODE: u64 = 0x3fff;

const fn field(word: u64, shift: u32, bits: u32) -> u64 {
    (word >> shift) & ((1 << bits) - 1)
}

fn site_bits(site: Option<SiteId>) -> u64 {
    site.map_or(NO_SITE, |site| u64::from(site.get()))
}

fn site_of(bits: u64) -> Option<SiteId> {
    u16::try_from(bits).ok().and_then(|number| SiteId::new(number).ok())
}

/// A site's epoch: a counter of 12 bits that is compared modulo (as in RFC 1982), then a random
/// nonce of 12 bits, so that two edges that bump at once do not draw the same epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epoch(u32);

impl Epoch {
    const COUNTER_BITS: u32 = 12;
    const NONCE_BITS: u32 = 12;
    const COUNTER_MASK: u32 = (1 << Self::COUNTER_BITS) - 1;
    const HALF: u32 = 1 << (Self::COUNTER_BITS - 1);

    /// The epoch of an empty record.
    pub const ZERO: Epoch = Epoch(0);

    /// From its two parts; higher bits are dropped.
    #[must_use]
    pub const fn new(counter: u32, nonce: u32) -> Self {
        let nonce = nonce & ((1 << Self::NONCE_BITS) - 1);
        Self(((counter & Self::COUNTER_MASK) << Self::NONCE_BITS) | nonce)
    }

    /// From 24 bits; higher bits are dropped.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0x00ff_ffff)
    }

    /// The 24 bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The counter.
    #[must_use]
    pub const fn counter(self) -> u32 {
        self.0 >> Self::NONCE_BITS
    }

    /// The nonce.
    #[must_use]
    pub const fn nonce(self) -> u32 {
        self.0 & ((1 << Self::NONCE_BITS) - 1)
    }

    /// Whether this epoch comes after `other`: by counter modulo 2^12, then by nonce.
    #[must_use]
    pub const fn is_newer_than(self, other: Self) -> bool {
        let ahead = self.counter().wrapping_sub(other.counter()) & Self::COUNTER_MASK;
        if ahead == 0 { self.nonce() > other.nonce() } else { ahead < Self::HALF }
    }

    /// The newer of two.
    #[must_use]
    pub const fn newer(self, other: Self) -> Self {
        if other.is_newer_than(self) { other } else { self }
    }

    /// The next epoch with this nonce: newer than `self` whatever the nonce is.
    #[must_use]
    pub const fn next(self, nonce: u32) -> Self {
        Self::new(self.counter() + 1, nonce)
    }
}

/// `assign[n]`: site 10, epoch stamp 24, version 30. It alone decides whose requests a node takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Assign {
    /// The site whose new requests the node accepts.
    pub site: Option<SiteId>,
    /// The epoch of that site under which the node was counted last.
    pub stamp: Epoch,
    /// Grows by one with each change of the site; 30 bits.
    pub version: u32,
}

impl Assign {
    const VERSION_BITS: u32 = 30;
    const VERSION_MASK: u32 = (1 << Self::VERSION_BITS) - 1;
    /// A node of no site, as an agent publishes it when it starts.
    pub const FREE: Assign = Assign { site: None, stamp: Epoch::ZERO, version: 0 };
    /// The word of a region that was given up: its successor holds the node's record.
    pub const TOMBSTONE: u64 = u64::MAX;

    /// The word in memory.
    #[must_use]
    pub fn pack(self) -> u64 {
        site_bits(self.site) << 54
            | u64::from(self.stamp.bits()) << Self::VERSION_BITS
            | u64::from(self.version & Self::VERSION_MASK)
    }

    /// From the word in memory; `None` for a tombstone.
    #[must_use]
    pub fn unpack(word: u64) -> Option<Self> {
        (word != Self::TOMBSTONE).then(|| Self {
            site: site_of(field(word, 54, 10)),
            stamp: Epoch::from_bits(field(word, 30, 24) as u32),
            version: field(word, 0, 30) as u32,
        })
    }

    /// The word after a change of site.
    #[must_use]
    pub const fn moved(self, site: Option<SiteId>, stamp: Epoch) -> Self {
        Self { site, stamp, version: self.version.wrapping_add(1) & Self::VERSION_MASK }
    }

    /// The word after a renewal: same site, same version, newer stamp.
    #[must_use]
    pub const fn renewed(self, stamp: Epoch) -> Self {
        Self { stamp, ..self }
    }

    /// The eight low bits of the version, as a descriptor carries them.
    #[must_use]
    pub const fn version_low(self) -> u8 {
        self.version as u8
    }
}

/// What a pending descriptor says: this node leaves for that site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Departure {
    /// The node that leaves.
    pub node: NodeId,
    /// Where it goes; none to set it free.
    pub taker: Option<SiteId>,
    /// The node's version modulo 256 before it leaves.
    pub version_low: u8,
}

/// `depart[D]`: epoch 24, seq 8, node 14 (0x3fff = idle), taker 10, version 8. All departures
/// from a site pass through its one word, which anybody may complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Depart {
    /// The site's epoch.
    pub epoch: Epoch,
    /// Departures in this epoch.
    pub sequence: u8,
    /// The departure under way.
    pub pending: Option<Departure>,
}

impl Depart {
    /// The word in memory.
    #[must_use]
    pub fn pack(self) -> u64 {
        let (node, taker, low) = match self.pending {
            Some(d) => (u64::from(d.node.get()), site_bits(d.taker), u64::from(d.version_low)),
            None => (NO_NODE, NO_SITE, 0),
        };
        let epoch = u64::from(self.epoch.bits());
        epoch << 40 | u64::from(self.sequence) << 32 | node << 18 | taker << 8 | low
    }

    /// From the word in memory. An empty record (zero) reads as pending for node 0 in epoch
    /// zero, which nobody installs; see [`Depart::is_unset`].
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        let node = u16::try_from(field(word, 18, 14)).ok().and_then(|n| NodeId::new(n).ok());
        Self {
            epoch: Epoch::from_bits(field(word, 40, 24) as u32),
            sequence: field(word, 32, 8) as u8,
            pending: node.map(|node| Departure {
                node,
                taker: site_of(field(word, 8, 10)),
                version_low: field(word, 0, 8) as u8,
            }),
        }
    }

    /// Whether the word was never written: it must be bumped before it is used.
    #[must_use]
    pub const fn is_unset(word: u64) -> bool {
        word == 0
    }

    /// The idle word that opens an epoch.
    #[must_use]
    pub const fn opened(epoch: Epoch) -> Self {
        Self { epoch, sequence: 0, pending: None }
    }

    /// The word that announces a departure. `None` when the sequence is used up: bump first.
    #[must_use]
    pub fn installed(self, departure: Departure) -> Option<Self> {
        let sequence = self.sequence.checked_add(1)?;
        Some(Self { sequence, pending: Some(departure), ..self })
    }

    /// The word after the departure was carried out.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self { pending: None, ..self }
    }
}

/// `arrive[T]`: counter 40, claimer 8, reason 4, spare 12. One high load, one claim, one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arrive {
    /// Claims so far: the shared update counter of the papers.
    pub counter: u64,
    /// The edge that claimed last.
    pub claimer: Option<EdgeId>,
    /// Why.
    pub reason: Option<Reason>,
}

impl Arrive {
    const COUNTER_BITS: u32 = 40;
    /// Nobody has claimed yet.
    pub const NONE: Arrive = Arrive { counter: 0, claimer: None, reason: None };

    /// The word in memory.
    #[must_use]
    pub fn pack(self) -> u64 {
        let reason = match self.reason {
            None => 0,
            Some(Reason::Load) => 1,
            Some(Reason::Floor) => 2,
            Some(Reason::TakeBack) => 3,
            Some(Reason::Admin) => 4,
        };
        let claimer = self.claimer.map_or(0, |edge| u64::from(edge.get()) + 1);
        field(self.counter, 0, Self::COUNTER_BITS) << 24 | claimer << 16 | reason << 12
    }

    /// From the word in memory.
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        let reason = match field(word, 12, 4) {
            1 => Some(Reason::Load),
            2 => Some(Reason::Floor),
            3 => Some(Reason::TakeBack),
            4 => Some(Reason::Admin),
            _ => None,
        };
        let claimer = (field(word, 16, 8) as u8).checked_sub(1).and_then(|e| EdgeId::new(e).ok());
        Self { counter: field(word, 24, Self::COUNTER_BITS), claimer, reason }
    }

    /// The word after one more claim.
    #[must_use]
    pub const fn claimed(self, claimer: EdgeId, reason: Reason) -> Self {
        let counter = (self.counter + 1) & ((1 << Self::COUNTER_BITS) - 1);
        Self { counter, claimer: Some(claimer), reason: Some(reason) }
    }
}

/// `floor[D]`: settings version 32, hard 16, max 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Floor {
    /// The version of the settings that wrote it.
    pub settings_version: u32,
    /// The hard guarantee.
    pub hard: u16,
    /// The upper bound.
    pub max: u16,
}

impl Floor {
    /// The word in memory.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.settings_version as u64) << 32 | (self.hard as u64) << 16 | self.max as u64
    }

    /// From the word in memory.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self { settings_version: (word >> 32) as u32, hard: (word >> 16) as u16, max: word as u16 }
    }
}

/// A lease: the incarnation of an edge and a counter that it raises at each look. It is judged
/// by the reader's own clock ("unchanged for so long"), never by a time stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Drawn at random when the edge starts; zero stands for nobody.
    pub incarnation: u32,
    /// Raised at each look.
    pub beat: u32,
}

impl Lease {
    /// The word in memory.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.incarnation as u64) << 32 | self.beat as u64
    }

    /// From the word in memory.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self { incarnation: (word >> 32) as u32, beat: word as u32 }
    }

    /// The next beat.
    #[must_use]
    pub const fn beaten(self) -> Self {
        Self { beat: self.beat.wrapping_add(1), ..self }
    }
}

/// What one edge sends to a node under the node's present version: version 30, in flight 24.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Current {
    /// The version of the assignment that these requests were sent under.
    pub version: u32,
    /// Requests in flight.
    pub in_flight: u32,
}

impl Current {
    /// The word in memory.
    #[must_use]
    pub const fn pack(self) -> u64 {
        (self.version as u64 & 0x3fff_ffff) << 24 | (self.in_flight as u64 & 0x00ff_ffff)
    }

    /// From the word in memory.
    #[must_use]
    pub const fn unpack(word: u64) -> Self {
        Self { version: field(word, 24, 30) as u32, in_flight: field(word, 0, 24) as u32 }
    }
}

/// What one edge still has in flight at a node for a site that it served earlier: site 10,
/// count 24. Site none with a count above zero stands for "several sites".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Earlier {
    /// The site whose server holds these requests.
    pub site: Option<SiteId>,
    /// Requests in flight.
    pub in_flight: u32,
}

impl Earlier {
    /// The word in memory.
    #[must_use]
    pub fn pack(self) -> u64 {
        site_bits(self.site) << 24 | u64::from(self.in_flight & 0x00ff_ffff)
    }

    /// From the word in memory.
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        Self { site: site_of(field(word, 24, 10)), in_flight: field(word, 0, 24) as u32 }
    }
}

/// Where a server stands. The order of the numbers is part of the layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is none.
    #[default]
    Absent,
    /// Its process runs, its checks have not passed yet.
    Starting,
    /// It answers.
    Ready,
    /// Its checks fail, or it keeps dying.
    Failing,
    /// It is being stopped.
    Stopping,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Self::Absent, Self::Starting, Self::Ready, Self::Failing, Self::Stopping];

    fn from_bits(bits: u64) -> Self {
        usize::try_from(bits).ok().and_then(|n| Self::ALL.get(n).copied()).unwrap_or_default()
    }

    /// The word used in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Failing => "failing",
            Self::Stopping => "stopping",
        }
    }
}

/// `server[n][s]`: IPv4 address 32, port 16, phase 4, restarts 12. Where a site's server on a node
/// listens, and how it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// Where it listens.
    pub address: std::net::Ipv4Addr,
    /// Its port; zero for none.
    pub port: u16,
    /// How it is.
    pub phase: Phase,
    /// How often it was started again; stays at 4,095.
    pub restarts: u16,
}

impl Server {
    /// No server.
    pub const ABSENT: Server = Server {
        address: std::net::Ipv4Addr::UNSPECIFIED,
        port: 0,
        phase: Phase::Absent,
        restarts: 0,
    };

    /// The word in memory.
    #[must_use]
    pub fn pack(self) -> u64 {
        let restarts = u64::from(self.restarts.min(0xfff));
        u64::from(self.address.to_bits()) << 32
            | u64::from(self.port) << 16
            | (self.phase as u64) << 12
            | restarts
    }

    /// From the word in memory.
    #[must_use]
    pub fn unpack(word: u64) -> Self {
        Self {
            address: std::net::Ipv4Addr::from_bits((word >> 32) as u32),
            port: field(word, 16, 16) as u16,
            phase: Phase::from_bits(field(word, 12, 4)),
            restarts: field(word, 0, 12) as u16,
        }
    }

    /// Whether requests may be sent to it.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self.phase == Phase::Ready && self.port != 0
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
