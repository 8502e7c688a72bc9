//! A response on its way into the store: its body passes by, and is kept if all of it came.

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use sha2::{Digest, Sha256};

use crate::draft::Draft;
use crate::key::Key;
use crate::moment::UnixMs;
use crate::rules::NotStored;

/// Bytes of the digest that becomes an entity tag: no two bodies share 128 bits by chance.
pub(crate) const DIGEST_BYTES: usize = 16;

/// Takes a copy of a body while it streams to the client. Dropped, it stores nothing.
#[derive(Debug)]
#[must_use = "what is not finished is not stored"]
pub struct Fill<P> {
    pub(crate) draft: Draft<P>,
    /// In memory of its own: a chunk may hold a much larger buffer of a socket.
    body: BytesMut,
    digest: Option<Sha256>,
    /// What the head said; `None`: nothing.
    expected: Option<u64>,
    limit: u64,
    broken: Option<NotStored>,
}

impl<P> Fill<P> {
    pub(crate) fn new(draft: Draft<P>, expected: Option<u64>, limit: u64) -> Self {
        let needs_tag = !draft.headers.contains_key(http::header::ETAG);
        let digest = (needs_tag && draft.status == StatusCode::OK).then(Sha256::new);
        let body = BytesMut::with_capacity(expected.map_or(0, |len| at_most(len, limit)));
        Self { draft, body, digest, expected, limit, broken: None }
    }

    /// What the response is found by.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.draft.key
    }

    /// Seconds of freshness that are left.
    pub(crate) fn ttl_s(&self, now: UnixMs) -> i64 {
        self.draft.freshness.ttl_s(now)
    }

    /// Takes the next chunk; whether the response may still be stored. The client gets it anyway.
    pub fn push(&mut self, chunk: &Bytes) -> bool {
        if self.broken.is_some() || chunk.is_empty() {
            return self.broken.is_none();
        }
        let len = self.body.len() as u64 + chunk.len() as u64;
        if self.expected.is_some_and(|expected| len > expected) {
            self.broken = Some(NotStored::Length);
        } else if len > self.limit {
            self.broken = Some(NotStored::TooLarge);
        }
        if self.broken.is_some() {
            // The memory is of use to others now, not when the client has it all.
            self.body = BytesMut::new();
            return false;
        }
        if let Some(digest) = &mut self.digest {
            digest.update(chunk);
        }
        self.body.extend_from_slice(chunk);
        true
    }

    /// The whole body, and a digest of it where one is wanted.
    pub(crate) fn into_parts(self) -> Result<(Draft<P>, Bytes, Vec<u8>), NotStored> {
        if let Some(why) = self.broken {
            return Err(why);
        }
        if self.expected.is_some_and(|expected| self.body.len() as u64 != expected) {
            return Err(NotStored::Length);
        }
        let mut digest = self.digest.map(|digest| digest.finalize().to_vec()).unwrap_or_default();
        digest.truncate(DIGEST_BYTES);
        Ok((self.draft, tight(self.body), digest))
    }
}

fn at_most(len: u64, limit: u64) -> usize {
    usize::try_from(len.min(limit)).unwrap_or(0)
}

/// The body in memory that is hardly larger.
fn tight(body: BytesMut) -> Bytes {
    if body.capacity() - body.len() > body.len() / 8 {
        return Bytes::copy_from_slice(&body);
    }
    body.freeze()
}
