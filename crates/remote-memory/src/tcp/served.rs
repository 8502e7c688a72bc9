//! The regions of an owner, and running operations on them.
//!
//! **This is a hot path**: no lock, no allocation but for a longer answer, and no system call but
//! for an addition, which wakes who sleeps on its word (some 100 ns where nobody does).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::ServeError;
use super::message::{
    Request, SERVED_REGIONS_MAX, WireOp, WireResult, begin_reply, push_read, push_result,
};
use crate::inline::wake_sleepers;
use crate::mapped::{AccessError, Mapped, check_access};
use crate::region::{Access, AtomicPath, RegionDescriptor, RemoteKey, WORD_BYTES};

struct Served {
    region: Arc<dyn Mapped>,
    access: Access,
}

/// What is served now.
#[derive(Default)]
pub(super) struct Regions {
    served: BTreeMap<RemoteKey, Served>,
}

impl Regions {
    pub(super) fn add(
        &mut self,
        region: Arc<dyn Mapped>,
        access: Access,
    ) -> Result<(), ServeError> {
        let key = region.descriptor().key;
        if region.descriptor().atomic_path != AtomicPath::Cpu {
            return Err(ServeError::OtherAtomicPath { key });
        }
        if self.served.contains_key(&key) {
            return Err(ServeError::KeyTaken { key });
        }
        if self.served.len() >= SERVED_REGIONS_MAX {
            return Err(ServeError::TooManyRegions { max: SERVED_REGIONS_MAX });
        }
        self.served.insert(key, Served { region, access });
        Ok(())
    }

    pub(super) fn remove(&mut self, key: RemoteKey) -> bool {
        self.served.remove(&key).is_some()
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = &RegionDescriptor> {
        self.served.values().map(|served| served.region.descriptor())
    }

    /// Runs the operations of a request in order, up to the first that fails, and writes the
    /// reply into `reply`. False if one failed.
    pub(super) fn execute(&self, request: &Request<'_>, reply: &mut Vec<u8>) -> bool {
        begin_reply(request.ticket, reply);
        let Some(served) = self.served.get(&request.key) else {
            push_result(&WireResult::StaleKey, reply);
            return false;
        };
        for op in &request.ops {
            if let Err(refusal) = served.run(op, reply) {
                push_result(&refusal, reply);
                return false;
            }
        }
        true
    }
}

impl Served {
    fn run(&self, op: &WireOp<'_>, reply: &mut Vec<u8>) -> Result<(), WireResult<'static>> {
        if self.access == Access::ReadOnly && !matches!(op, WireOp::Read { .. }) {
            return Err(WireResult::Refused);
        }
        let region = &*self.region;
        let result = match *op {
            WireOp::Read { offset_bytes, words } => {
                let words = words_at(region, offset_bytes, words)?;
                push_read(words.iter().map(|word| word.load(Ordering::Acquire)), reply);
                return Ok(());
            }
            WireOp::Write { offset_bytes, words } => {
                let (values, _) = words.as_chunks::<{ WORD_BYTES as usize }>();
                let words = words_at(region, offset_bytes, values.len())?;
                for (word, value) in words.iter().zip(values) {
                    word.store(u64::from_le_bytes(*value), Ordering::Release);
                }
                WireResult::Written
            }
            WireOp::CompareAndSwap { offset_bytes, expected, new } => {
                let found = region.compare_and_swap(offset_bytes, expected, new);
                WireResult::Found(found.map_err(refusal)?)
            }
            WireOp::FetchAndAdd { offset_bytes, addend } => {
                let found = region.fetch_and_add(offset_bytes, addend).map_err(refusal)?;
                wake_sleepers(region, offset_bytes);
                WireResult::Found(found)
            }
        };
        push_result(&result, reply);
        Ok(())
    }
}

/// The words of an access, if they all lie in the region.
fn words_at(
    region: &dyn Mapped,
    offset_bytes: u64,
    count: usize,
) -> Result<&[std::sync::atomic::AtomicU64], WireResult<'static>> {
    let words = region.words();
    let region_bytes = words.len() as u64 * WORD_BYTES;
    check_access(region_bytes, offset_bytes, count as u64 * WORD_BYTES).map_err(refusal)?;
    // Within the region, whose length in words is a `usize`.
    let start = (offset_bytes / WORD_BYTES) as usize;
    words.get(start..start + count).ok_or(WireResult::OutOfBounds(region_bytes))
}

fn refusal(error: AccessError) -> WireResult<'static> {
    match error {
        AccessError::Misaligned { .. } => WireResult::Misaligned,
        AccessError::OutOfBounds { region_bytes, .. } => WireResult::OutOfBounds(region_bytes),
    }
}
