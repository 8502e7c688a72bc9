//! A region of our own: a sealed memory file and our mapping of it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags};

use super::error::ShmError;
use crate::mapped::Mapped;
use crate::region::{
    AtomicPath, Incarnation, RegionDescriptor, RemoteKey, WORD_BYTES, label_is_valid,
    length_is_valid,
};
use crate::sys::Mapping;

/// File system type of memory files, `TMPFS_MAGIC` of `linux/magic.h`. Huge-page files have
/// another and may raise SIGBUS where the pool of huge pages is short.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// The label of an adopted region, whose own label was lost with the process that made it.
const ADOPTED_LABEL: &str = "adopted";

/// A region of this process. Its memory lives as long as anybody maps it.
pub struct OwnedRegion {
    descriptor: RegionDescriptor,
    file: OwnedFd,
    mapping: Mapping,
    adopted: bool,
}

impl OwnedRegion {
    /// Makes a region of `length_bytes` zero bytes with a new key and incarnation, sealed against
    /// shrinking, growing and further seals. Its atomics are the processor's. Does not block.
    ///
    /// # Errors
    /// Label or length is outside its limits, or the kernel refused (no memory, no descriptor).
    pub fn create(label: &str, length_bytes: u64) -> Result<Self, ShmError> {
        if !label_is_valid(label) {
            return Err(ShmError::BadLabel { label: label.to_owned() });
        }
        if !length_is_valid(length_bytes) {
            return Err(ShmError::BadLength { length_bytes });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(format!("polder:{label}"), flags)
            .map_err(ShmError::system("make a memory file"))?;
        rustix::fs::ftruncate(&file, length_bytes)
            .map_err(ShmError::system("size the memory file"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)
            .map_err(ShmError::system("seal the memory file"))?;
        Self::over(file, label, length_bytes, false)
    }

    /// Maps a region that an earlier process made and left us as an inherited file. It is an old
    /// region: it can be read and closed off (its words swapped to tombstones), but not served
    /// again. Key and incarnation are newly drawn, so nobody takes it for the one it was.
    ///
    /// # Errors
    /// The file is no sealed memory file of whole words, or the kernel refused.
    pub fn adopt(file: OwnedFd) -> Result<Self, ShmError> {
        let length_bytes = sealed_length_bytes(file.as_fd())?;
        Self::over(file, ADOPTED_LABEL, length_bytes, true)
    }

    /// Maps a region of this process once more, after another program took its place: the same
    /// region under the same names, as its owner. Nobody else may own it.
    ///
    /// # Errors
    /// The file is no sealed memory file of whole words, or the kernel refused.
    pub fn resume(
        file: OwnedFd,
        label: &str,
        key: RemoteKey,
        incarnation: Incarnation,
    ) -> Result<Self, ShmError> {
        let length_bytes = sealed_length_bytes(file.as_fd())?;
        let mut region = Self::over(file, label, length_bytes, false)?;
        (region.descriptor.key, region.descriptor.incarnation) = (key, incarnation);
        Ok(region)
    }

    fn over(
        file: OwnedFd,
        label: &str,
        length_bytes: u64,
        adopted: bool,
    ) -> Result<Self, ShmError> {
        let mapping = map(file.as_fd(), length_bytes)?;
        let descriptor = RegionDescriptor {
            key: RemoteKey::random().map_err(ShmError::Random)?,
            incarnation: Incarnation::random().map_err(ShmError::Random)?,
            length_bytes,
            atomic_path: AtomicPath::Cpu,
            label: label.to_owned(),
        };
        Ok(Self { descriptor, file, mapping, adopted })
    }

    /// True for a region of an earlier process.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }
}

impl Mapped for OwnedRegion {
    fn descriptor(&self) -> &RegionDescriptor {
        &self.descriptor
    }

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}

/// The region's file: hand it to a child that shall adopt the region.
impl AsFd for OwnedRegion {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Checks that mapping the file is safe (plain shared memory, sealed against shrinking, whole
/// words, within the limit) and returns its length in bytes.
pub(super) fn sealed_length_bytes(file: BorrowedFd<'_>) -> Result<u64, ShmError> {
    // Files that cannot have seals answer EINVAL.
    let seals = rustix::fs::fcntl_get_seals(file).map_err(|_| ShmError::NotSharedMemory)?;
    let kind = rustix::fs::fstatfs(file).map_err(ShmError::system("examine the region's file"))?;
    if kind.f_type != TMPFS_MAGIC {
        return Err(ShmError::NotSharedMemory);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err(ShmError::NotSealed);
    }
    // The size is read behind the check of the seal: from then on it cannot shrink.
    let stat = rustix::fs::fstat(file).map_err(ShmError::system("examine the region's file"))?;
    let length_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if !length_is_valid(length_bytes) {
        return Err(ShmError::BadLength { length_bytes });
    }
    Ok(length_bytes)
}

/// Maps a file whose length was checked.
pub(super) fn map(file: BorrowedFd<'_>, length_bytes: u64) -> Result<Mapping, ShmError> {
    let length_words = usize::try_from(length_bytes / WORD_BYTES)
        .map_err(|_| ShmError::BadLength { length_bytes })?;
    Mapping::new(file, length_words).map_err(ShmError::system("map the region"))
}
