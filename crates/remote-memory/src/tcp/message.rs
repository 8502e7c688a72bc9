//! The messages inside records: what peers and owners say to each other.
//!
//! ```text
//! All numbers are little-endian; a message starts at an offset of its own.
//!
//! hello, requester to responder, once, first        welcome, responder to requester, its answer
//! offset  bytes  field                              offset  bytes  field
//!      0      1  kind, 1                                 0      1  kind, 2
//!      1      7  reserved, 0                             1      1  regions, 0 to 16
//!                                                        2      6  reserved, 0
//!                                                        8  128 n  descriptor frames (see `frame`)
//!
//! request: operations of one batch, in order; a long batch takes several, the last one says so.
//! Their answers fit one reply.
//! offset  bytes  field                              reply: their results, in order, at most up to
//!      0      1  kind, 3                            the first that failed
//!      1      1  flags: 1 = last of the batch       offset  bytes  field
//!      2      2  operations, 1 to 256                    0      1  kind, 4
//!      4      4  reserved, 0                             1      1  reserved, 0
//!      8      8  ticket of the batch                     2      2  results, 1 to 256
//!     16      8  key of the region                       4      4  reserved, 0
//!     24      -  operations                              8      8  ticket of the batch
//!                                                       16      -  results
//! operation                                         result
//!      0      1  1 read, 2 write, 3 compare-             0      1  0 read, 1 written, 2 found (of
//!                and-swap, 4 fetch-and-add                         an atomic), 16 stale key,
//!      1      3  reserved, 0                                       17 refused, 18 out of bounds,
//!      4      4  words, 1 to 4,096; 1 for                          19 misaligned
//!                atomics                                 1      3  reserved, 0
//!      8      8  offset in bytes                         4      4  words that follow (read), or 0
//!     16      -  write: the words;                       8      8  found: the value; out of
//!                compare-and-swap: expected,                       bounds: the region's length in
//!                new; fetch-and-add: addend                        bytes; else 0
//!                                                       16      -  the words
//! ```

use super::channel::MESSAGE_BYTES_MAX;
use super::error::WireError;
use crate::frame;
use crate::region::{RegionDescriptor, RemoteKey, WORD_BYTES};
use crate::remote::Op;

/// Most operations of a batch: one for each record of a pool of some hundred nodes.
pub const BATCH_OPS_MAX: usize = 256;
/// Most words of one read or write: 32 KiB, the words of 500 sites, and two answers of this
/// length do not fit one record, one does.
pub const OP_WORDS_MAX: usize = 4096;
/// Most regions that one owner serves: its node's record, the pool's, and room for tables.
pub const SERVED_REGIONS_MAX: usize = 16;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const REQUEST: u8 = 3;
const REPLY: u8 = 4;
const GREETING_BYTES: usize = 8;
const REQUEST_HEAD_BYTES: usize = 24;
const REPLY_HEAD_BYTES: usize = 16;
const OP_HEAD_BYTES: usize = 16;
const RESULT_HEAD_BYTES: usize = 16;
const FLAG_LAST: u8 = 1;
const WORD: usize = WORD_BYTES as usize;

const _: () =
    assert!(RESULT_HEAD_BYTES + OP_WORDS_MAX * WORD + REPLY_HEAD_BYTES <= MESSAGE_BYTES_MAX);
const _: () =
    assert!(OP_HEAD_BYTES + OP_WORDS_MAX * WORD + REQUEST_HEAD_BYTES <= MESSAGE_BYTES_MAX);
const _: () = assert!(BATCH_OPS_MAX * (OP_HEAD_BYTES + 2 * WORD) <= MESSAGE_BYTES_MAX);
const _: () =
    assert!(GREETING_BYTES + SERVED_REGIONS_MAX * frame::FRAME_BYTES <= MESSAGE_BYTES_MAX);

/// Reads fields one after the other, never beyond the end.
struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let taken = self.left.split_at_checked(length);
        let (taken, left) = taken.ok_or(WireError::Truncated { field })?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let (taken, left) = self.left.split_first_chunk().ok_or(WireError::Truncated { field })?;
        self.left = left;
        Ok(*taken)
    }

    fn byte(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A number within its limits.
    fn count(&mut self, field: &'static str, max: usize) -> Result<usize, WireError> {
        let found = u16::from_le_bytes(self.array(field)?).into();
        within(field, found, 1, max)
    }

    fn words(&mut self, field: &'static str, min: usize, max: usize) -> Result<usize, WireError> {
        let found = u32::from_le_bytes(self.array(field)?);
        within(field, usize::try_from(found).unwrap_or(usize::MAX), min, max)
    }

    fn reserved<const N: usize>(&mut self) -> Result<(), WireError> {
        let bytes = self.array::<N>("reserved")?;
        let found = bytes.iter().fold(0, |all, byte| all | byte);
        must("reserved", found.into(), found == 0, "must be 0")
    }

    fn end(self) -> Result<(), WireError> {
        let left_bytes = self.left.len();
        if left_bytes == 0 { Ok(()) } else { Err(WireError::Trailing { left_bytes }) }
    }
}

fn must(field: &'static str, found: u64, holds: bool, rule: &'static str) -> Result<(), WireError> {
    if holds { Ok(()) } else { Err(WireError::Field { field, found, rule }) }
}

fn within(field: &'static str, found: usize, min: usize, max: usize) -> Result<usize, WireError> {
    let rule = "is outside its limits";
    must(field, found as u64, (min..=max).contains(&found), rule)?;
    Ok(found)
}

/// One operation as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireOp<'a> {
    /// Read words.
    Read {
        /// Where the first lies.
        offset_bytes: u64,
        /// How many.
        words: usize,
    },
    /// Write words.
    Write {
        /// Where the first goes.
        offset_bytes: u64,
        /// The words, 8 bytes each.
        words: &'a [u8],
    },
    /// Swap in `new` if the word is as expected.
    CompareAndSwap {
        /// Where the word lies.
        offset_bytes: u64,
        /// What it must hold.
        expected: u64,
        /// What it then holds.
        new: u64,
    },
    /// Add.
    FetchAndAdd {
        /// Where the word lies.
        offset_bytes: u64,
        /// What is added.
        addend: u64,
    },
}

/// Operations of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which batch.
    pub ticket: u64,
    /// Which region.
    pub key: RemoteKey,
    /// Whether no more of this batch follow.
    pub last: bool,
    /// What to do, in order.
    pub ops: Vec<WireOp<'a>>,
}

/// One result as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireResult<'a> {
    /// These words were read, 8 bytes each.
    Read(&'a [u8]),
    /// All was written.
    Written,
    /// An atomic took effect; this was there before.
    Found(u64),
    /// No region has the key.
    StaleKey,
    /// The region does not grant this.
    Refused,
    /// It reaches beyond the region of this length in bytes.
    OutOfBounds(u64),
    /// The offset is no multiple of 8.
    Misaligned,
}

/// Results of one request, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Which batch.
    pub ticket: u64,
    /// What its operations brought.
    pub results: Vec<WireResult<'a>>,
}

/// Any message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The requester's greeting.
    Hello,
    /// The responder's, with its regions.
    Welcome(Vec<RegionDescriptor>),
    /// Operations.
    Request(Request<'a>),
    /// Results.
    Reply(Reply<'a>),
}

/// Reads a message. Never panics, whatever the bytes.
///
/// # Errors
/// The bytes are no message.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, WireError> {
    let mut reader = Reader { left: bytes };
    let message = match reader.byte("kind")? {
        HELLO => {
            reader.reserved::<7>()?;
            Message::Hello
        }
        WELCOME => Message::Welcome(decode_regions(&mut reader)?),
        REQUEST => Message::Request(decode_request(&mut reader)?),
        REPLY => Message::Reply(decode_reply(&mut reader)?),
        other => {
            let (field, rule) = ("kind", "must be 1 to 4");
            return Err(WireError::Field { field, found: other.into(), rule });
        }
    };
    reader.end()?;
    Ok(message)
}

fn decode_regions(reader: &mut Reader<'_>) -> Result<Vec<RegionDescriptor>, WireError> {
    let count = reader.byte("regions")?;
    within("regions", count.into(), 0, SERVED_REGIONS_MAX)?;
    reader.reserved::<6>()?;
    let mut regions = Vec::with_capacity(count.into());
    for _ in 0..count {
        let bytes = reader.take(frame::FRAME_BYTES, "descriptor")?;
        let (field, rule) = ("descriptor", "is no descriptor frame of a region");
        match frame::decode(bytes) {
            Ok(Ok(region)) => regions.push(region),
            Ok(Err(_)) | Err(_) => return Err(WireError::Field { field, found: 0, rule }),
        }
    }
    Ok(regions)
}

fn decode_request<'a>(reader: &mut Reader<'a>) -> Result<Request<'a>, WireError> {
    let flags = reader.byte("flags")?;
    must("flags", flags.into(), flags <= FLAG_LAST, "must be 0 or 1")?;
    let count = reader.count("operations", BATCH_OPS_MAX)?;
    reader.reserved::<4>()?;
    let ticket = reader.u64("ticket")?;
    let key = RemoteKey(reader.u64("key")?);
    let mut ops = Vec::with_capacity(count);
    let mut reply_bytes = REPLY_HEAD_BYTES;
    for _ in 0..count {
        let op = decode_op(reader)?;
        reply_bytes += RESULT_HEAD_BYTES + op.answer_words() * WORD;
        ops.push(op);
    }
    let rule = "the answers must fit one record";
    must("operations", count as u64, reply_bytes <= MESSAGE_BYTES_MAX, rule)?;
    Ok(Request { ticket, key, last: flags == FLAG_LAST, ops })
}

fn decode_op<'a>(reader: &mut Reader<'a>) -> Result<WireOp<'a>, WireError> {
    let kind = reader.byte("operation")?;
    reader.reserved::<3>()?;
    let words_max = if kind <= 2 { OP_WORDS_MAX } else { 1 };
    let words = reader.words("words", 1, words_max)?;
    let offset_bytes = reader.u64("offset")?;
    match kind {
        1 => Ok(WireOp::Read { offset_bytes, words }),
        2 => {
            let words = reader.take(words * WORD, "words to write")?;
            Ok(WireOp::Write { offset_bytes, words })
        }
        3 => {
            let expected = reader.u64("expected")?;
            Ok(WireOp::CompareAndSwap { offset_bytes, expected, new: reader.u64("new")? })
        }
        4 => Ok(WireOp::FetchAndAdd { offset_bytes, addend: reader.u64("addend")? }),
        other => {
            let (field, rule) = ("operation", "must be 1 to 4");
            Err(WireError::Field { field, found: other.into(), rule })
        }
    }
}

fn decode_reply<'a>(reader: &mut Reader<'a>) -> Result<Reply<'a>, WireError> {
    reader.reserved::<1>()?;
    let count = reader.count("results", BATCH_OPS_MAX)?;
    reader.reserved::<4>()?;
    let ticket = reader.u64("ticket")?;
    let results: Result<_, _> = (0..count).map(|_| decode_result(reader)).collect();
    Ok(Reply { ticket, results: results? })
}

fn decode_result<'a>(reader: &mut Reader<'a>) -> Result<WireResult<'a>, WireError> {
    let kind = reader.byte("result")?;
    reader.reserved::<3>()?;
    let (min, max) = if kind == 0 { (1, OP_WORDS_MAX) } else { (0, 0) };
    let words = reader.words("words", min, max)?;
    let value = reader.u64("value")?;
    must("value", value, value == 0 || matches!(kind, 2 | 18), "must be 0 for this result")?;
    match kind {
        0 => Ok(WireResult::Read(reader.take(words * WORD, "words read")?)),
        1 => Ok(WireResult::Written),
        2 => Ok(WireResult::Found(value)),
        16 => Ok(WireResult::StaleKey),
        17 => Ok(WireResult::Refused),
        18 => Ok(WireResult::OutOfBounds(value)),
        19 => Ok(WireResult::Misaligned),
        other => {
            let (field, rule) = ("result", "must be 0 to 2 or 16 to 19");
            Err(WireError::Field { field, found: other.into(), rule })
        }
    }
}

/// The requester's greeting.
pub fn encode_hello() -> [u8; GREETING_BYTES] {
    let mut message = [0; GREETING_BYTES];
    message[0] = HELLO;
    message
}

/// Writes the responder's greeting into `out`. Regions beyond the limit are left out.
pub fn encode_welcome<'a>(regions: impl Iterator<Item = &'a RegionDescriptor>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[WELCOME, 0, 0, 0, 0, 0, 0, 0]);
    for region in regions.take(SERVED_REGIONS_MAX) {
        out.extend_from_slice(&frame::encode(&Ok(region.clone())));
        out[1] += 1;
    }
}

/// How many words an operation brings back besides the head of its result.
fn answer_words(op: &Op) -> usize {
    if let Op::Read { length_words, .. } = op { *length_words } else { 0 }
}

impl WireOp<'_> {
    fn answer_words(&self) -> usize {
        if let Self::Read { words, .. } = self { *words } else { 0 }
    }
}

/// Writes the next request of a batch into `out`: as many of its operations, from the first on,
/// as fit with their answers. Returns how many those were, at least one.
pub fn encode_request(ticket: u64, key: RemoteKey, ops: &[Op], out: &mut Vec<u8>) -> usize {
    out.clear();
    out.extend_from_slice(&[REQUEST, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&ticket.to_le_bytes());
    out.extend_from_slice(&key.0.to_le_bytes());
    let mut reply_bytes = REPLY_HEAD_BYTES;
    let mut count = 0;
    for op in ops.iter().take(BATCH_OPS_MAX) {
        reply_bytes += RESULT_HEAD_BYTES + answer_words(op) * WORD;
        let request_bytes = out.len() + OP_HEAD_BYTES + (op.length_words() + 1) * WORD;
        if reply_bytes.max(request_bytes) > MESSAGE_BYTES_MAX && count > 0 {
            break;
        }
        encode_op(op, out);
        count += 1;
    }
    out[1] = u8::from(count == ops.len()) * FLAG_LAST;
    out[2..4].copy_from_slice(&(count as u16).to_le_bytes());
    count
}

fn encode_op(op: &Op, out: &mut Vec<u8>) {
    let kind = match op {
        Op::Read { .. } => 1,
        Op::Write { .. } => 2,
        Op::CompareAndSwap { .. } => 3,
        Op::FetchAndAdd { .. } => 4,
    };
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&(op.length_words() as u32).to_le_bytes());
    out.extend_from_slice(&op.offset_bytes().to_le_bytes());
    match op {
        Op::Read { .. } => {}
        Op::Write { words, .. } => {
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        Op::CompareAndSwap { expected, new, .. } => {
            out.extend_from_slice(&expected.to_le_bytes());
            out.extend_from_slice(&new.to_le_bytes());
        }
        Op::FetchAndAdd { addend, .. } => out.extend_from_slice(&addend.to_le_bytes()),
    }
}

/// Begins a reply in `out`; results follow by [`push_result`] and [`push_read`].
pub fn begin_reply(ticket: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[REPLY, 0, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(&ticket.to_le_bytes());
}

/// Appends a result to a reply.
pub fn push_result(result: &WireResult<'_>, out: &mut Vec<u8>) {
    let (kind, value, words): (u8, u64, &[u8]) = match result {
        WireResult::Read(words) => (0, 0, words),
        WireResult::Written => (1, 0, &[]),
        WireResult::Found(value) => (2, *value, &[]),
        WireResult::StaleKey => (16, 0, &[]),
        WireResult::Refused => (17, 0, &[]),
        WireResult::OutOfBounds(region_bytes) => (18, *region_bytes, &[]),
        WireResult::Misaligned => (19, 0, &[]),
    };
    push_head(kind, words.len() / WORD, value, out);
    out.extend_from_slice(words);
}

/// Appends the words of a read to a reply.
pub fn push_read(words: impl ExactSizeIterator<Item = u64>, out: &mut Vec<u8>) {
    push_head(0, words.len(), 0, out);
    for word in words {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

fn push_head(kind: u8, words: usize, value: u64, out: &mut Vec<u8>) {
    let results = u16::from_le_bytes([out[2], out[3]]) + 1;
    out[2..4].copy_from_slice(&results.to_le_bytes());
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&(words as u32).to_le_bytes());
    out.extend_from_slice(&value.to_le_bytes());
}
