//! A version table in the memory of another machine, for an edge: opened from its header, filled
//! from and validated by batches. Whoever has the connection submits them; see [`Run`].

use super::check::{Check, Fill};
use super::layout::{HEADER_WORDS, TableLayout};
use super::remote::Run;
use super::word::{Filled, Slot};
use crate::header::LayoutError;
use remote_memory::{Op as RemoteOp, OpError, OpResult, RegionDescriptor};
use thiserror::Error;

/// Why a far table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FarError {
    /// Its header could not be read.
    #[error("the header of version table {label} cannot be read")]
    Unread {
        /// The region's label.
        label: String,
        /// What went wrong; nothing where the answer does not fit.
        source: Option<OpError>,
    },
    /// The region is not what it should be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

/// What an edge knows of a far table. The descriptor came from its owner.
#[derive(Clone, Debug)]
pub struct FarTable {
    descriptor: RegionDescriptor,
    layout: TableLayout,
}

impl FarTable {
    /// What is to be read first; the results go to [`FarTable::open`].
    #[must_use]
    pub fn header_batch() -> Vec<RemoteOp> {
        vec![RemoteOp::Read { offset_bytes: 0, length_words: HEADER_WORDS }]
    }

    /// Checks the header that was read.
    ///
    /// # Errors
    /// It was not read, or is noise, of another version or of another incarnation.
    pub fn open(
        descriptor: RegionDescriptor,
        results: &[Result<OpResult, OpError>],
    ) -> Result<Self, FarError> {
        let source = match results.first() {
            Some(Ok(OpResult::Read(words))) => {
                if let Ok(header) = <&[u64; HEADER_WORDS]>::try_from(&words[..]) {
                    let layout = TableLayout::of_header(&descriptor, header)?;
                    return Ok(Self { descriptor, layout });
                }
                None
            }
            Some(Err(error)) => Some(error.clone()),
            _ => None,
        };
        Err(FarError::Unread { label: descriptor.label, source })
    }

    /// What names the table; batches go to its key.
    #[must_use]
    pub fn descriptor(&self) -> &RegionDescriptor {
        &self.descriptor
    }

    /// Where everything lies; its [`bits`](TableLayout::bits) find a tag's slot.
    #[must_use]
    pub fn layout(&self) -> TableLayout {
        self.layout
    }

    /// What an entry is to hold, read **before** the origin is asked; none: the response must not
    /// be stored.
    #[must_use]
    pub fn fill(&self) -> Run<Fill> {
        Run::new(self.layout, Fill::default())
    }

    /// Validates an entry; its first batch is submitted **after** the request arrived. If it is
    /// not answered, the entry is not valid. One run serves all requests that arrived before.
    #[must_use]
    pub fn check(&self, filled: Filled, slots: Vec<Slot>) -> Run<Check> {
        Run::new(self.layout, Check::new(filled, slots))
    }
}
