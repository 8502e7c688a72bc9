//! The descriptor frame: what the owner of a region says first on its private socket.
//!
//! Little-endian, 128 bytes, written once by the owner for each peer, together with the region's
//! file (`SCM_RIGHTS`). Nothing follows, in either direction: the connection then only tells that
//! the owner lives.
//!
//! ```text
//! offset  bytes  field
//!      0      8  magic "PLDRSHM1"
//!      8      2  version of this frame, 1
//!     10      2  length of this frame in bytes, 128
//!     12      4  status: 0 region follows, 1 other user, 2 too many peers
//!     16      8  key                      (from here all 0 unless status is 0)
//!     24      8  incarnation
//!     32      8  length of the region in bytes
//!     40      4  atomic path: 0 processor, 1 adapter
//!     44      4  length of the label in bytes, 1 to 64
//!     48      8  GUID of the adapter, 0 for the processor
//!     56      8  reserved, 0
//!     64     64  label, UTF-8, filled up with 0
//! ```

use crate::region::{
    AtomicPath, Incarnation, LABEL_BYTES_MAX, MAX_REGION_BYTES, RegionDescriptor, RemoteKey,
    label_is_valid, length_is_valid,
};

/// Length of a frame in bytes.
pub const FRAME_BYTES: usize = 128;
/// The first 8 bytes of each frame.
pub const FRAME_MAGIC: [u8; 8] = *b"PLDRSHM1";
/// The version of the frame that this crate writes and reads.
pub const FRAME_VERSION: u16 = 1;

const LABEL_OFFSET: usize = FRAME_BYTES - LABEL_BYTES_MAX;

/// Why an owner gives a peer no region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The peer runs as another user.
    #[error("the peer runs as another user than the owner")]
    OtherUser,
    /// The owner serves as many peers as it may.
    #[error("the owner has as many peers as it may have")]
    TooManyPeers,
}

/// What a frame says: here is a region, or why there is none.
pub type Announcement = Result<RegionDescriptor, Refusal>;

/// Why bytes are no frame of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("frame truncated: {found_bytes} of {FRAME_BYTES} bytes")]
    Truncated {
        /// How many bytes there are.
        found_bytes: usize,
    },
    /// The first 8 bytes are not the magic number: something else speaks here.
    #[error("not a region socket: the frame starts with {found:02x?}")]
    Magic {
        /// The first 8 bytes.
        found: [u8; 8],
    },
    /// A frame of another version.
    #[error("frame version {found}, this program reads version {FRAME_VERSION}")]
    Version {
        /// The version that the frame states.
        found: u16,
    },
    /// A field holds a value that it cannot have.
    #[error("frame field {field} holds {found}: {rule}")]
    Field {
        /// Name of the field, as in the drawing of this module.
        field: &'static str,
        /// What it holds.
        found: u64,
        /// What it may hold.
        rule: &'static str,
    },
    /// The label is not printable UTF-8.
    #[error("frame field label is not printable UTF-8")]
    Label,
}

/// Writes a frame. The label is cut to what fits, at a character's end.
pub fn encode(announcement: &Announcement) -> [u8; FRAME_BYTES] {
    let mut frame = [0_u8; FRAME_BYTES];
    let mut put = |offset: usize, bytes: &[u8]| {
        frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    };
    put(0, &FRAME_MAGIC);
    put(8, &FRAME_VERSION.to_le_bytes());
    put(10, &(FRAME_BYTES as u16).to_le_bytes());
    let descriptor = match announcement {
        Ok(descriptor) => descriptor,
        Err(refusal) => {
            let status: u32 = match refusal {
                Refusal::OtherUser => 1,
                Refusal::TooManyPeers => 2,
            };
            put(12, &status.to_le_bytes());
            return frame;
        }
    };
    let (path, adapter) = match descriptor.atomic_path {
        AtomicPath::Cpu => (0_u32, 0_u64),
        AtomicPath::Adapter(guid) => (1, guid),
    };
    let label = &descriptor.label[..descriptor.label.floor_char_boundary(LABEL_BYTES_MAX)];
    put(16, &descriptor.key.0.to_le_bytes());
    put(24, &descriptor.incarnation.0.to_le_bytes());
    put(32, &descriptor.length_bytes.to_le_bytes());
    put(40, &path.to_le_bytes());
    put(44, &(label.len() as u32).to_le_bytes());
    put(48, &adapter.to_le_bytes());
    put(LABEL_OFFSET, label.as_bytes());
    frame
}

/// Reads a frame. Never panics, whatever the bytes; bytes behind the frame are not looked at.
///
/// # Errors
/// The bytes are no frame of this version, or a field holds what it cannot hold.
pub fn decode(bytes: &[u8]) -> Result<Announcement, FrameError> {
    let Some(frame) = bytes.first_chunk::<FRAME_BYTES>() else {
        return Err(FrameError::Truncated { found_bytes: bytes.len() });
    };
    let magic = bytes_at::<8>(frame, 0);
    if magic != FRAME_MAGIC {
        return Err(FrameError::Magic { found: magic });
    }
    let version = u16::from_le_bytes(bytes_at(frame, 8));
    if version != FRAME_VERSION {
        return Err(FrameError::Version { found: version });
    }
    let length = u16::from_le_bytes(bytes_at(frame, 10));
    check("length", length.into(), usize::from(length) == FRAME_BYTES, "must be 128")?;
    match u32_at(frame, 12) {
        0 => decode_descriptor(frame).map(Ok),
        1 => Ok(Err(Refusal::OtherUser)),
        2 => Ok(Err(Refusal::TooManyPeers)),
        other => Err(FrameError::Field {
            field: "status",
            found: other.into(),
            rule: "must be 0, 1 or 2",
        }),
    }
}

fn decode_descriptor(frame: &[u8; FRAME_BYTES]) -> Result<RegionDescriptor, FrameError> {
    const _: () = assert!(MAX_REGION_BYTES == 1 << 30, "the rule below says 2^30");
    let length_bytes = u64_at(frame, 32);
    let rule = "must be a multiple of 8, at least 8 and at most 2^30";
    check("region length", length_bytes, length_is_valid(length_bytes), rule)?;
    let adapter = u64_at(frame, 48);
    let atomic_path = match u32_at(frame, 40) {
        0 => {
            check("adapter", adapter, adapter == 0, "must be 0 for the processor")?;
            AtomicPath::Cpu
        }
        1 => AtomicPath::Adapter(adapter),
        other => {
            let (field, rule) = ("atomic path", "must be 0 or 1");
            return Err(FrameError::Field { field, found: other.into(), rule });
        }
    };
    let reserved = u64_at(frame, 56);
    check("reserved", reserved, reserved == 0, "must be 0")?;
    let label_bytes = u32_at(frame, 44);
    let label = usize::try_from(label_bytes)
        .ok()
        .and_then(|length| frame[LABEL_OFFSET..].get(..length))
        .ok_or(FrameError::Field {
            field: "label length",
            found: label_bytes.into(),
            rule: "must be 1 to 64",
        })?;
    let label = str::from_utf8(label).map_err(|_| FrameError::Label)?;
    if !label_is_valid(label) {
        return Err(FrameError::Label);
    }
    Ok(RegionDescriptor {
        key: RemoteKey(u64_at(frame, 16)),
        incarnation: Incarnation(u64_at(frame, 24)),
        length_bytes,
        atomic_path,
        label: label.to_owned(),
    })
}

fn check(
    field: &'static str,
    found: u64,
    holds: bool,
    rule: &'static str,
) -> Result<(), FrameError> {
    if holds { Ok(()) } else { Err(FrameError::Field { field, found, rule }) }
}

/// The `N` bytes at a constant offset inside the frame.
fn bytes_at<const N: usize>(frame: &[u8; FRAME_BYTES], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&frame[offset..offset + N]);
    bytes
}

fn u32_at(frame: &[u8; FRAME_BYTES], offset: usize) -> u32 {
    u32::from_le_bytes(bytes_at(frame, offset))
}

fn u64_at(frame: &[u8; FRAME_BYTES], offset: usize) -> u64 {
    u64::from_le_bytes(bytes_at(frame, offset))
}
