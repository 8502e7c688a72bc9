//! What names a region: its key, its incarnation, its length and its one atomic path.

use std::fmt;

/// Longest label of a region in bytes. A label is for messages ("node-3"); 64 bytes keep the
/// descriptor frame at 128 bytes.
pub const LABEL_BYTES_MAX: usize = 64;

/// Largest region in bytes. A node's record takes some kilobytes and the site records of 500
/// sites 32 KB; a gibibyte leaves room for tables of versions, and bounds what a peer can make
/// us map.
pub const MAX_REGION_BYTES: u64 = 1 << 30;

/// Size in bytes of the only unit that is read, written and compared: one word.
pub const WORD_BYTES: u64 = 8;

/// Random 64 bits given to each region when it is made.
///
/// Regions are never reused: an owner that starts again makes a new region with a new
/// incarnation, so that a compare-and-swap that arrives late hits the dead region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// Remote key: the random 64 bits that name a region for a peer.
///
/// It guards against mistakes (a stale or foreign region), not against an attacker: the boundary
/// is the private socket, the connection or the protection domain through which it was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RemoteKey(pub u64);

impl Incarnation {
    /// Draws a new incarnation, never 0. Makes one system call.
    ///
    /// # Errors
    /// The system has no random numbers (a kernel without `getrandom`).
    pub fn random() -> Result<Self, getrandom::Error> {
        getrandom::u64().map(|bits| Self(bits.max(1)))
    }
}

impl RemoteKey {
    /// Draws a new key, never 0. Makes one system call.
    ///
    /// # Errors
    /// The system has no random numbers (a kernel without `getrandom`).
    pub fn random() -> Result<Self, getrandom::Error> {
        getrandom::u64().map(|bits| Self(bits.max(1)))
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// The one path over which the atomics of a region go.
///
/// The atomics of most adapters are atomic only among operations of the same adapter: a
/// compare-and-swap of the owner's processor between the adapter's load and its store is lost.
/// So each region states one path for all, the owner included; opening it over another path is
/// an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicPath {
    /// Atomics of the processor: shared memory and the TCP service, which may mix.
    Cpu,
    /// Atomics of the adapter with this GUID; local users go through it by loop-back.
    Adapter(u64),
}

/// What an owner grants on a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// All operations.
    ReadWrite,
    /// Reads only.
    ReadOnly,
}

/// All that a peer must know to open a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionDescriptor {
    /// Names the region in each operation.
    pub key: RemoteKey,
    /// Drawn when the region was made.
    pub incarnation: Incarnation,
    /// Length in bytes, a multiple of 8.
    pub length_bytes: u64,
    /// The path over which all its atomics go.
    pub atomic_path: AtomicPath,
    /// A name for messages, for example "node-3"; see [`label_is_valid`].
    pub label: String,
}

/// True for a length that a region may have: whole words, at least one, at most
/// [`MAX_REGION_BYTES`].
pub fn length_is_valid(length_bytes: u64) -> bool {
    (WORD_BYTES..=MAX_REGION_BYTES).contains(&length_bytes)
        && length_bytes.is_multiple_of(WORD_BYTES)
}

/// True for 1 to [`LABEL_BYTES_MAX`] bytes without control characters, which could garble a
/// terminal or a log.
pub fn label_is_valid(label: &str) -> bool {
    (1..=LABEL_BYTES_MAX).contains(&label.len()) && !label.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_differ_and_are_never_zero() {
        let keys: Vec<_> = (0..100).map(|_| RemoteKey::random().unwrap()).collect();
        for (index, key) in keys.iter().enumerate() {
            assert_ne!(key.0, 0);
            assert!(!keys[..index].contains(key), "key {key} was drawn twice");
        }
        assert_ne!(Incarnation::random().unwrap(), Incarnation::random().unwrap());
    }

    #[test]
    fn lengths_are_whole_words_within_the_limit() {
        for good in [8, 16, 4096, MAX_REGION_BYTES] {
            assert!(length_is_valid(good), "{good}");
        }
        for bad in [0, 1, 7, 9, 4095, MAX_REGION_BYTES + 8, u64::MAX] {
            assert!(!length_is_valid(bad), "{bad}");
        }
    }

    #[test]
    fn labels_are_short_and_printable() {
        assert!(label_is_valid("node-3"));
        assert!(label_is_valid(&"x".repeat(LABEL_BYTES_MAX)));
        assert!(!label_is_valid(&"x".repeat(LABEL_BYTES_MAX + 1)));
        for bad in ["", "a\0b", "a\nb", "\u{1b}[2J"] {
            assert!(!label_is_valid(bad), "{bad:?}");
        }
    }
}
