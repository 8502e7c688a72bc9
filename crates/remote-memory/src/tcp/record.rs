//! The outer frames: one preamble of each side, then records with a length in front.
//!
//! ```text
//! preamble, 16 bytes, first from the requester, then from the responder; never encrypted, but
//! the requester's is the prologue of the handshake, so a change under way breaks it
//! offset  bytes  field
//!      0      8  magic "PLDRTCP1"
//!      8      2  version of the wire, 1
//!     10      1  security: 0 plain, 1 Noise_NNpsk0_25519_AESGCM_SHA256
//!     11      1  status, 0 from the requester; from the responder 0 proceed, 1 other version,
//!                2 other security, 3 too many peers, 4 other key (the connection then ends)
//!     12      4  reserved, 0
//!
//! record, from either side
//!      0      4  length of the body in bytes, 1 to 65,535
//!      4      n  body: a message; with Noise sealed, 16 bytes longer
//! ```

use super::error::{Refusal, WireError};

/// Length of a preamble in bytes.
pub const PREAMBLE_BYTES: usize = 16;
/// The first 8 bytes of each preamble.
pub const PREAMBLE_MAGIC: [u8; 8] = *b"PLDRTCP1";
/// The version of the wire that this crate speaks.
pub const PREAMBLE_VERSION: u16 = 1;
/// Length in bytes of what stands in front of each body.
pub const RECORD_HEADER_BYTES: usize = 4;
/// Longest body of a record in bytes: the longest message that Noise allows.
pub const RECORD_BYTES_MAX: usize = 65_535;

/// What a preamble says beside magic and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// How records are protected, by number.
    pub security: u8,
    /// Whether to go on. Nothing is from a requester, or from a responder that agrees.
    pub refusal: Option<Refusal>,
}

impl Preamble {
    /// Writes it.
    pub fn encode(&self) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..8].copy_from_slice(&PREAMBLE_MAGIC);
        bytes[8..10].copy_from_slice(&PREAMBLE_VERSION.to_le_bytes());
        bytes[10] = self.security;
        bytes[11] = match self.refusal {
            None => 0,
            Some(Refusal::OtherVersion) => 1,
            Some(Refusal::OtherSecurity) => 2,
            Some(Refusal::TooManyPeers) => 3,
            Some(Refusal::OtherKey) => 4,
        };
        bytes
    }

    /// Reads it, if all its bytes are there; nothing otherwise. A wrong magic number is seen from
    /// its first byte on.
    ///
    /// # Errors
    /// The bytes are no preamble of this version. A refusal is read from any version.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, WireError> {
        let seen = bytes.len().min(PREAMBLE_MAGIC.len());
        if bytes[..seen] != PREAMBLE_MAGIC[..seen] {
            let mut found = [0; 8];
            found[..seen].copy_from_slice(&bytes[..seen]);
            return Err(WireError::Magic { found });
        }
        let Some(bytes) = bytes.first_chunk::<PREAMBLE_BYTES>() else { return Ok(None) };
        let refusal = match bytes[11] {
            0 => None,
            1 => Some(Refusal::OtherVersion),
            2 => Some(Refusal::OtherSecurity),
            3 => Some(Refusal::TooManyPeers),
            4 => Some(Refusal::OtherKey),
            found => {
                let rule = "must be 0 to 4";
                return Err(WireError::Field { field: "status", found: found.into(), rule });
            }
        };
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != PREAMBLE_VERSION && refusal.is_none() {
            return Err(WireError::Version { found: version });
        }
        let [.., a, b, c, d] = *bytes;
        let reserved = u32::from_le_bytes([a, b, c, d]);
        if reserved != 0 {
            let (field, found, rule) = ("reserved", reserved.into(), "must be 0");
            return Err(WireError::Field { field, found, rule });
        }
        Ok(Some(Self { security: bytes[10], refusal }))
    }
}

/// The length of the first record's body in bytes, if the header and the whole body are there.
///
/// # Errors
/// The header states a length that no record has.
pub fn first_record(bytes: &[u8]) -> Result<Option<usize>, WireError> {
    let Some(header) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else { return Ok(None) };
    let found_bytes = u32::from_le_bytes(*header);
    let length = usize::try_from(found_bytes).unwrap_or(usize::MAX);
    if !(1..=RECORD_BYTES_MAX).contains(&length) {
        return Err(WireError::RecordLength { found_bytes });
    }
    Ok((bytes.len() - RECORD_HEADER_BYTES >= length).then_some(length))
}

/// The header in front of a body of this length, at most [`RECORD_BYTES_MAX`].
pub fn record_header(length: usize) -> [u8; RECORD_HEADER_BYTES] {
    debug_assert!((1..=RECORD_BYTES_MAX).contains(&length), "a record of {length} bytes");
    (length as u32).to_le_bytes()
}
