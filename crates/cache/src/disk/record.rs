//! A file of the disk tier: all responses for one URL.
//!
//! ```text
//! at  0   8 bytes   "PLDRURL1"
//!     8   32 bytes  SHA-256 of all that follows
//!    40             key: site u16, scheme u8, bytes of the authority u32, text
//!                   number of responses u16; each:
//!                     status u16, head, hidden head, validators, freshness, `stale-if-error`,
//!                     what it is found by, tags, proof, stamp u64, words of purges, body
//! ```
//!
//! Little-endian; a text has its length before it, u32; what may be missing a byte, 0 or 1.
//! Written, read and removed by one process: stamps, words and proofs mean nothing to another.
//! A file that is not whole and unchanged is no file: no byte of it is believed.

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use pool_model::SiteId;
use sha2::{Digest, Sha256};

use crate::conditional::Validators;
use crate::entry::{Entry, HeadText};
use crate::freshness::Freshness;
use crate::key::{Key, Scheme};
use crate::moment::UnixMs;
use crate::purge::WORDS;
use crate::tags::Tags;
use crate::vary::{Field, Selected};

const MAGIC: &[u8; 8] = b"PLDRURL1";

/// Where what is digested begins.
const BODY_AT: usize = 40;

/// How proofs become bytes and back, for a tier that keeps them.
#[derive(Debug)]
pub struct Codec<P> {
    /// Appends it.
    pub write: fn(&P, &mut Vec<u8>),
    /// Reads it from all of what was appended; `None` if that is none.
    pub read: fn(&[u8]) -> Option<P>,
}

impl<P> Clone for Codec<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Codec<P> {}

/// The whole file.
pub(super) fn encode<'a, P: 'a>(
    codec: Codec<P>,
    key: &Key,
    entries: impl ExactSizeIterator<Item = &'a Entry<P>>,
) -> Vec<u8> {
    let mut out = Writer(vec![0; BODY_AT]);
    let (site, scheme, authority_bytes, text) = key.parts();
    out.u16(site.get());
    out.u8(u8::from(scheme == Scheme::Https));
    out.u32(authority_bytes);
    out.text(text.as_bytes());
    // VARIANTS_MAX is far below.
    out.u16(u16::try_from(entries.len()).unwrap_or(u16::MAX));
    for entry in entries {
        out.entry(codec, entry);
    }
    let Writer(mut all) = out;
    let digest = Sha256::digest(&all[BODY_AT..]);
    all[..MAGIC.len()].copy_from_slice(MAGIC);
    all[MAGIC.len()..BODY_AT].copy_from_slice(&digest);
    all
}

/// What a file holds; `None` if it is damaged.
pub(super) fn decode<P>(codec: Codec<P>, file: &Bytes) -> Option<(Key, Vec<Entry<P>>)> {
    let digest = file.get(MAGIC.len()..BODY_AT)?;
    if !file.starts_with(MAGIC) || digest != Sha256::digest(&file[BODY_AT..]).as_slice() {
        return None;
    }
    payload(codec, file.slice(BODY_AT..))
}

/// The same of what was digested.
pub(super) fn payload<P>(codec: Codec<P>, payload: Bytes) -> Option<(Key, Vec<Entry<P>>)> {
    let mut input = Reader(payload);
    let site = SiteId::new(input.u16()?).ok()?;
    let scheme = if input.flag()? { Scheme::Https } else { Scheme::Http };
    let authority_bytes = input.u32()?;
    let text = input.text()?;
    let key = Key::from_parts(site, scheme, authority_bytes, std::str::from_utf8(&text).ok()?)?;
    let count = input.u16()?;
    let entries = (0..count).map(|_| input.entry(codec)).collect::<Option<Vec<_>>>()?;
    input.0.is_empty().then_some((key, entries))
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        // What is kept is bounded far below 4 GiB (`Store::entry_bytes_max`).
        self.u32(u32::try_from(text.len()).expect("a response is smaller"));
        self.0.extend_from_slice(text);
    }

    fn maybe(&mut self, text: Option<&[u8]>) {
        self.u8(u8::from(text.is_some()));
        if let Some(text) = text {
            self.text(text);
        }
    }

    fn headers(&mut self, headers: &HeaderMap) {
        // A map has at most 32,768 fields.
        self.u32(u32::try_from(headers.len()).expect("a map holds fewer"));
        for (name, value) in headers {
            self.text(name.as_str().as_bytes());
            self.text(value.as_bytes());
        }
    }

    fn entry<P>(&mut self, codec: Codec<P>, entry: &Entry<P>) {
        self.u16(entry.status.as_u16());
        self.headers(&entry.headers);
        self.headers(&entry.hidden);
        self.maybe(entry.validators.etag.as_ref().map(HeaderValue::as_bytes));
        self.maybe(entry.validators.last_modified.as_ref().map(HeaderValue::as_bytes));
        self.freshness(&entry.freshness);
        self.u8(u8::from(entry.stale_if_error_ms.is_some()));
        self.u64(entry.stale_if_error_ms.unwrap_or(0));
        self.u32(u32::try_from(entry.selected.fields.len()).expect("a few fields"));
        for field in &entry.selected.fields {
            self.text(field.name.as_str().as_bytes());
            self.maybe(field.raw.as_deref());
            self.maybe(field.meaning.as_deref());
        }
        self.u32(u32::try_from(entry.tags.len()).expect("TAGS_MAX is less"));
        for tag in entry.tags.iter() {
            self.text(tag);
        }
        let proof = entry.proof.as_ref().map(|proof| {
            let mut bytes = Vec::new();
            (codec.write)(proof, &mut bytes);
            bytes
        });
        self.maybe(proof.as_deref());
        self.u64(entry.stamp);
        self.u32(u32::try_from(entry.slots.len()).expect("TAGS_MAX and three"));
        for &slot in &entry.slots {
            self.u32(slot);
        }
        self.text(&entry.body);
    }

    fn freshness(&mut self, freshness: &Freshness) {
        self.u64(freshness.lifetime_ms);
        self.u64(freshness.age_at_receipt_ms);
        self.u64(freshness.received_at.0);
        self.u8(u8::from(freshness.no_cache));
        self.u8(u8::from(freshness.never_stale));
        self.u64(freshness.while_revalidate_ms);
    }
}

struct Reader(Bytes);

impl Reader {
    fn take(&mut self, count: usize) -> Option<Bytes> {
        (count <= self.0.len()).then(|| self.0.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.as_ref().try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array::<1>()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<Bytes> {
        let count = usize::try_from(self.u32()?).ok()?;
        self.take(count)
    }

    fn maybe(&mut self) -> Option<Option<Bytes>> {
        if self.flag()? { self.text().map(Some) } else { Some(None) }
    }

    fn name(&mut self) -> Option<HeaderName> {
        HeaderName::from_bytes(&self.text()?).ok()
    }

    fn value(text: &[u8]) -> Option<HeaderValue> {
        // With memory of its own: a head outlives no file's buffer this way.
        HeaderValue::from_bytes(text).ok()
    }

    /// A list whose length stands before it; each item takes a byte of the input at least.
    fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| item(self)).collect()
    }

    fn headers(&mut self) -> Option<HeaderMap> {
        let fields = self.list(|input| {
            let name = input.name()?;
            Some((name, Self::value(&input.text()?)?))
        })?;
        let mut headers = HeaderMap::try_with_capacity(fields.len()).ok()?;
        for (name, value) in fields {
            headers.try_append(name, value).ok()?;
        }
        Some(headers)
    }

    fn freshness(&mut self) -> Option<Freshness> {
        Some(Freshness {
            lifetime_ms: self.u64()?,
            age_at_receipt_ms: self.u64()?,
            received_at: UnixMs(self.u64()?),
            no_cache: self.flag()?,
            never_stale: self.flag()?,
            while_revalidate_ms: self.u64()?,
        })
    }

    fn validator(&mut self) -> Option<Option<HeaderValue>> {
        match self.maybe()? {
            Some(text) => Self::value(&text).map(Some),
            None => Some(None),
        }
    }

    fn selected(&mut self) -> Option<Selected> {
        let text = |text: Option<Bytes>| text.map(|text| text.as_ref().into());
        let fields = self.list(|input| {
            let name = input.name()?;
            Some(Field { name, raw: text(input.maybe()?), meaning: text(input.maybe()?) })
        })?;
        Some(Selected { fields: fields.into() })
    }

    fn entry<P>(&mut self, codec: Codec<P>) -> Option<Entry<P>> {
        let status = StatusCode::from_u16(self.u16()?).ok()?;
        let (headers, hidden) = (self.headers()?, self.headers()?);
        let validators = Validators { etag: self.validator()?, last_modified: self.validator()? };
        let freshness = self.freshness()?;
        let (may_stand_in, stale_if_error_ms) = (self.flag()?, self.u64()?);
        let selected = self.selected()?;
        let tags = self.list(Self::text)?;
        let tags = Tags::from_tags(tags.iter().map(AsRef::as_ref)).ok()?;
        let proof = match self.maybe()? {
            Some(bytes) => Some((codec.read)(&bytes)?),
            None => None,
        };
        let stamp = self.u64()?;
        let slots = self.list(|input| input.u32().filter(|&slot| (slot as usize) < WORDS))?.into();
        let body = self.text()?;
        let stale_if_error_ms = may_stand_in.then_some(stale_if_error_ms);
        Some(Entry {
            status,
            headers,
            text: HeadText::default(),
            hidden,
            body,
            validators,
            freshness,
            stale_if_error_ms,
            selected,
            tags,
            proof,
            stamp,
            slots,
        })
    }
}
