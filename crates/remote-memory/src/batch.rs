//! What transports share on the requester's side: the table of open regions, and the checks of a
//! batch before anything is sent.

use std::collections::BTreeMap;

use crate::mapped::{AccessError, check_access};
use crate::region::{AtomicPath, RegionDescriptor, RemoteKey, WORD_BYTES, length_is_valid};
use crate::remote::{Atomics, Capabilities, Op, OpError, OpenError, SubmitError};

/// Most regions open on one connection: a machine holds the records of some hundred nodes at
/// most, each a region.
pub const OPEN_REGIONS_MAX: usize = 1024;

impl From<AccessError> for OpError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Misaligned { offset_bytes } => Self::Misaligned { offset_bytes },
            AccessError::OutOfBounds { offset_bytes, access_bytes, region_bytes } => {
                Self::OutOfBounds { offset_bytes, access_bytes, region_bytes }
            }
        }
    }
}

impl Op {
    /// The name of its kind, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::CompareAndSwap { .. } => "compare-and-swap",
            Self::FetchAndAdd { .. } => "fetch-and-add",
        }
    }

    /// Where it starts, in bytes from the region's start.
    pub fn offset_bytes(&self) -> u64 {
        match self {
            Self::Read { offset_bytes, .. }
            | Self::Write { offset_bytes, .. }
            | Self::CompareAndSwap { offset_bytes, .. }
            | Self::FetchAndAdd { offset_bytes, .. } => *offset_bytes,
        }
    }

    /// How many words it touches.
    pub fn length_words(&self) -> usize {
        match self {
            Self::Read { length_words, .. } => *length_words,
            Self::Write { words, .. } => words.len(),
            Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. } => 1,
        }
    }

    /// True for compare-and-swap and fetch-and-add.
    pub fn is_atomic(&self) -> bool {
        matches!(self, Self::CompareAndSwap { .. } | Self::FetchAndAdd { .. })
    }

    /// True for all that brings a value back.
    pub fn is_fetch(&self) -> bool {
        self.is_atomic() || matches!(self, Self::Read { .. })
    }

    /// Checks bounds and alignment against a region's length.
    ///
    /// # Errors
    /// The operation is misaligned or reaches beyond the region.
    pub fn check_access(&self, region_bytes: u64) -> Result<(), OpError> {
        let access_bytes = (self.length_words() as u64).saturating_mul(WORD_BYTES);
        Ok(check_access(region_bytes, self.offset_bytes(), access_bytes)?)
    }

    /// Checks the operation against the transport and the region.
    fn check(&self, region: &RegionDescriptor, transport: &Capabilities) -> Result<(), OpError> {
        if self.is_atomic() && transport.atomics == Atomics::None {
            return Err(OpError::NotSupported { reason: "it has no atomics" });
        }
        if self.length_words() == 0 {
            return Err(OpError::NotSupported { reason: "an operation moves at least one word" });
        }
        if self.length_words() > transport.op_words_max {
            return Err(OpError::NotSupported { reason: "more words than one operation takes" });
        }
        self.check_access(region.length_bytes)
    }
}

/// The regions that a connection knows.
#[derive(Debug, Default)]
pub(crate) struct OpenRegions {
    regions: BTreeMap<RemoteKey, RegionDescriptor>,
}

impl OpenRegions {
    pub(crate) fn open(
        &mut self,
        descriptor: &RegionDescriptor,
        transport: &Capabilities,
    ) -> Result<(), OpenError> {
        let length_bytes = descriptor.length_bytes;
        if !length_is_valid(length_bytes) {
            return Err(OpenError::BadLength { length_bytes });
        }
        if !path_fits(descriptor.atomic_path, transport.atomics) {
            return Err(OpenError::OtherAtomicPath {
                region: descriptor.atomic_path,
                transport: transport.atomics,
            });
        }
        match self.regions.get(&descriptor.key) {
            Some(open) if open == descriptor => Ok(()),
            Some(_) => Err(OpenError::KeyTaken { key: descriptor.key }),
            None if self.regions.len() >= OPEN_REGIONS_MAX => {
                Err(OpenError::TooManyRegions { max: OPEN_REGIONS_MAX })
            }
            None => {
                self.regions.insert(descriptor.key, descriptor.clone());
                Ok(())
            }
        }
    }

    pub(crate) fn close(&mut self, key: RemoteKey) {
        self.regions.remove(&key);
    }

    /// Checks all of a batch that can be checked before it is sent.
    pub(crate) fn check_batch(
        &self,
        key: RemoteKey,
        batch: &[Op],
        transport: &Capabilities,
        outstanding: usize,
    ) -> Result<(), SubmitError> {
        if batch.is_empty() {
            return Err(SubmitError::Empty);
        }
        let (ops, max) = (batch.len(), transport.batch_ops_max);
        if ops > max {
            return Err(SubmitError::BatchTooLong { ops, max });
        }
        let region = self.regions.get(&key).ok_or(SubmitError::NotOpen { key })?;
        for (index, op) in batch.iter().enumerate() {
            op.check(region, transport).map_err(|error| SubmitError::BadOp { index, error })?;
        }
        let max = transport.outstanding_ops_max;
        if ops > max.saturating_sub(outstanding) {
            return Err(SubmitError::QueueFull { outstanding, max });
        }
        Ok(())
    }
}

/// True if a transport with these atomics may open a region of this path.
///
/// Without atomics of its own it may open regions of the processor's path: an 8-byte store does
/// not break the processor's atomics. Among an adapter's atomics a foreign store does.
fn path_fits(region: AtomicPath, transport: Atomics) -> bool {
    match (region, transport) {
        (AtomicPath::Cpu, Atomics::None | Atomics::AgreeWithOwner) => true,
        (AtomicPath::Adapter(region), Atomics::Adapter(transport)) => region == transport,
        (AtomicPath::Cpu, Atomics::Adapter(_)) | (AtomicPath::Adapter(_), _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_opens_over_its_own_path_only() {
        let cases = [
            (AtomicPath::Cpu, Atomics::AgreeWithOwner, true),
            (AtomicPath::Cpu, Atomics::None, true),
            (AtomicPath::Cpu, Atomics::Adapter(1), false),
            (AtomicPath::Adapter(1), Atomics::Adapter(1), true),
            (AtomicPath::Adapter(1), Atomics::Adapter(2), false),
            (AtomicPath::Adapter(1), Atomics::AgreeWithOwner, false),
            (AtomicPath::Adapter(1), Atomics::None, false),
        ];
        for (region, transport, fits) in cases {
            assert_eq!(path_fits(region, transport), fits, "{region:?} over {transport:?}");
        }
    }
}
