//! The hash by which edges know that they share a pool under the same settings.
//!
//! It covers what a move depends on: the policy and its numbers, the sites with their ids and
//! guarantees, the nodes with their ids and limits, and where the home is. It does not cover where
//! an edge listens, its time-outs, or `mode`: an edge that only observes beside others that move
//! does no harm.
//!
//! FNV-1a with 64 bits (RFC 9923), over a text-free encoding in which each string has its length
//! before it: stable over versions of the compiler, unlike the hasher of the standard library.
//! Collisions by intent do not matter: who writes the settings file owns the pool.

use super::model::Settings;
use std::fmt;

/// The hash of a pool's settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SettingsHash(pub u64);

impl fmt::Display for SettingsHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// In JSON it is text: numbers there are doubles for many readers, and would lose digits.
impl serde::Serialize for SettingsHash {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for SettingsHash {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Raised when the encoding below changes, so that two versions never agree by accident.
const ENCODING_VERSION: u64 = 2;

#[derive(Clone, Copy)]
struct Fnv(u64);

impl Fnv {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    fn bytes(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(Self::PRIME);
        Self(bytes.iter().fold(self.0, step))
    }

    fn number(self, number: impl Into<u64>) -> Self {
        self.bytes(&number.into().to_le_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.number(text.len() as u64).bytes(text.as_bytes())
    }
}

impl Settings {
    /// The hash of what concerns the pool.
    #[must_use]
    pub fn pool_hash(&self) -> SettingsHash {
        let pool = &self.pool;
        let mut hash = Fnv(Fnv::OFFSET_BASIS)
            .number(ENCODING_VERSION)
            .text(&pool.name)
            .text(pool.policy.name())
            .number(pool.look_every_ms)
            .number(pool.idle_look_every_ms)
            .number(pool.hold_ms)
            .number(pool.high_load.to_bits())
            .number(pool.light_load.to_bits())
            .number(pool.node_dead_ms)
            .number(pool.slot_lease_ms)
            .number(self.sites.len() as u64);
        for site in &self.sites {
            hash = hash
                .text(&site.name)
                .number(site.terms.guarantee.hard)
                .number(site.terms.guarantee.soft)
                .number(site.terms.guarantee.max)
                .number(site.terms.priority.0)
                .number(site.terms.objective.map_or(0, |objective| objective.p99_us))
                .number(site.terms.unfit_pct)
                .number(site.terms.wants.0);
        }
        hash = hash.number(self.nodes.len() as u64);
        for node in &self.nodes {
            hash = hash
                .text(&node.name)
                .number(node.max_in_flight)
                .number(node.traits.capacity_pct)
                .number(node.traits.classes.0);
        }
        // What the bits of classes mean.
        hash = hash.number(self.classes.len() as u64);
        for class in &self.classes {
            hash = hash.text(class);
        }
        if let Some(home) = self.home() {
            hash = hash.number(home.get());
        }
        SettingsHash(hash.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_agrees_with_the_published_vectors() {
        let hash = |text: &str| Fnv(Fnv::OFFSET_BASIS).bytes(text.as_bytes()).0;
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }
}
