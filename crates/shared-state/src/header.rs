//! The first line of each region: what it is, of which version, and over which path its words
//! may be changed.

use remote_memory::Mapped;
use std::sync::atomic::Ordering;
use thiserror::Error;

/// The version of the layout in `docs/layout.md`. A region of another version is refused.
pub const LAYOUT_VERSION: u64 = 3;

pub(crate) const MAGIC: usize = 0;
pub(crate) const VERSION: usize = 1;
pub(crate) const INCARNATION: usize = 2;

/// Why a region is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The region is shorter than its layout.
    #[error("region {label} has {found} bytes, its layout needs {needed}")]
    TooShort {
        /// The region's label.
        label: String,
        /// Its length in bytes.
        found: u64,
        /// What the layout needs, in bytes.
        needed: u64,
    },
    /// The region does not start with the magic of its kind.
    #[error("region {label} is no {kind}: it starts with {found:#018x}")]
    WrongMagic {
        /// The region's label.
        label: String,
        /// What it should be.
        kind: &'static str,
        /// What stands there.
        found: u64,
    },
    /// The region follows another version of the layout.
    #[error("region {label} has layout version {found}, this program knows {LAYOUT_VERSION}")]
    WrongVersion {
        /// The region's label.
        label: String,
        /// The version that stands there.
        found: u64,
    },
    /// The header's incarnation is not the one that the owner announced.
    #[error("region {label} was made anew: incarnation {found:#x} instead of {announced:#x}")]
    WrongIncarnation {
        /// The region's label.
        label: String,
        /// What stands in the header.
        found: u64,
        /// What the owner announced.
        announced: u64,
    },
    /// A field of the header is out of its range.
    #[error("region {label}: {field} is {found}, at most {max} is allowed")]
    OutOfRange {
        /// The region's label.
        label: String,
        /// The field.
        field: &'static str,
        /// What stands there.
        found: u64,
        /// The largest value allowed.
        max: u64,
    },
}

/// Writes magic, version and incarnation. The magic goes last, so that a half-written header is
/// refused.
pub(crate) fn publish(region: &dyn Mapped, magic: u64) {
    let words = region.words();
    words[VERSION].store(LAYOUT_VERSION, Ordering::Relaxed);
    words[INCARNATION].store(region.descriptor().incarnation.0, Ordering::Relaxed);
    words[MAGIC].store(magic, Ordering::Release);
}

/// Checks length, magic, version and incarnation of a region.
pub(crate) fn check(
    region: &dyn Mapped,
    magic: u64,
    kind: &'static str,
    needed_words: usize,
) -> Result<(), LayoutError> {
    check_kind(region, magic, kind, needed_words)?;
    let found = region.words()[INCARNATION].load(Ordering::Relaxed);
    let announced = region.descriptor().incarnation.0;
    if found != announced {
        let label = region.descriptor().label.clone();
        return Err(LayoutError::WrongIncarnation { label, found, announced });
    }
    Ok(())
}

/// Checks length, magic and version only: the incarnation of an adopted region was lost with the
/// process that announced it.
pub(crate) fn check_kind(
    region: &dyn Mapped,
    magic: u64,
    kind: &'static str,
    needed_words: usize,
) -> Result<(), LayoutError> {
    let (label, words) = (&region.descriptor().label, region.words());
    if words.len() < needed_words {
        let (found, needed) = (words.len() as u64 * 8, needed_words as u64 * 8);
        return Err(LayoutError::TooShort { label: label.clone(), found, needed });
    }
    let (found, version) = (words[MAGIC].load(Ordering::Acquire), &words[VERSION]);
    check_words(label, magic, kind, found, version.load(Ordering::Relaxed))
}

/// Checks the words of magic and version, wherever they were read.
pub(crate) fn check_words(
    label: &str,
    magic: u64,
    kind: &'static str,
    found: u64,
    version: u64,
) -> Result<(), LayoutError> {
    let label = || label.to_owned();
    if found != magic {
        return Err(LayoutError::WrongMagic { label: label(), kind, found });
    }
    if version != LAYOUT_VERSION {
        return Err(LayoutError::WrongVersion { label: label(), found: version });
    }
    Ok(())
}

/// Refuses a header field above its limit.
pub(crate) fn in_range(
    region: &dyn Mapped,
    field: &'static str,
    found: u64,
    max: u64,
) -> Result<u64, LayoutError> {
    if found > max {
        let label = region.descriptor().label.clone();
        return Err(LayoutError::OutOfRange { label, field, found, max });
    }
    Ok(found)
}
