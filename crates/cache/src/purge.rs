//! Purges, as stamps: what was stored, *or asked for*, before a purge is no longer valid.
//!
//! A purge that looks for stored responses misses those that are on their way, and these are then
//! stored and answered for as long as they are fresh: the fill race. So a purge writes down its
//! number instead, and a response carries the number of the last purge before its server was asked:
//!
//! ```text
//! purge x:   s := ++sequence;  word[hash x] := max(word[hash x], s)
//! fetch:     stamp := sequence;  only then the server is asked
//! look-up:   valid iff word[hash x] <= stamp for every x of the response: URL, site, tags
//! ```
//!
//! Two names on one word purge too much, never too little. Nothing is searched, nothing grows.
//! While `sequence <= stamp` there was no purge at all since, and no word need be read.
//! A response with a proof is judged by the proof for its tags, and by these words for the rest.
//! What is valid costs these comparisons; why something is not is asked of [`Runs`].

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use pool_model::SiteId;
use smallvec::{SmallVec, smallvec};

use crate::key::KeyRef;
use crate::moment::UnixMs;
use crate::soft::{Runs, Standing};
use crate::tags::Tags;

/// Words of the table: half a megabyte, so that a thousand purges an hour hit a stored response of
/// ten tags by mistake about once in seven.
pub(crate) const WORDS: usize = 1 << 16;

/// The words that concern one response: of few tags they lie in its entry.
pub(crate) type Slots = SmallVec<[u32; 6]>;

/// What is to be purged.
#[derive(Debug, Clone, Copy)]
pub enum Purge<'a> {
    /// All responses for one URL.
    Url(KeyRef<'a>),
    /// All of a site that carry this tag and no proof.
    Tag(SiteId, &'a [u8]),
    /// All of a site.
    Site(SiteId),
    /// Everything.
    All,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Purges {
    sequence: AtomicU64,
    words: Box<[AtomicU64]>,
    state: RandomState,
    /// Who purges has it alone, so that words and runs change at once.
    runs: RwLock<Runs>,
}

/// Everything is on the first word, which nothing else is on.
const ALL: u32 = 0;

impl Purges {
    pub(crate) fn new() -> Self {
        let words = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let (sequence, state) = (AtomicU64::new(0), RandomState::new());
        Self { sequence, words, state, runs: RwLock::default() }
    }

    /// What a fetch carries, read before its server is asked.
    pub(crate) fn stamp(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    /// Makes all invalid that was asked for before now.
    pub(crate) fn purge(&self, what: Purge<'_>) {
        let slot = self.slot_of(what);
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        runs.end(slot);
        self.raise(slot);
    }

    /// Makes all stale that was asked for before now.
    pub(crate) fn purge_softly(&self, what: Purge<'_>, now: UnixMs) {
        let slot = self.slot_of(what);
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        runs.go_on(slot, self.words[slot as usize].load(Ordering::Acquire), now);
        self.raise(slot);
    }

    fn raise(&self, slot: u32) {
        let stamp = self.sequence.fetch_add(1, Ordering::SeqCst) + 1;
        self.words[slot as usize].fetch_max(stamp, Ordering::SeqCst);
    }

    fn slot_of(&self, what: Purge<'_>) -> u32 {
        match what {
            Purge::Url(key) => self.url(&key),
            Purge::Tag(site, tag) => self.slot((site, b't', tag)),
            Purge::Site(site) => self.slot((site, b's')),
            Purge::All => ALL,
        }
    }

    /// The words that concern a response.
    pub(crate) fn slots(&self, key: &KeyRef<'_>, tags: Option<&Tags>) -> Slots {
        let site = key.site();
        let mut slots = smallvec![ALL, self.url(key), self.slot((site, b's'))];
        if let Some(tags) = tags {
            slots.extend(tags.iter().map(|tag| self.slot((site, b't', tag))));
        }
        slots
    }

    /// Whether none of them was purged since this stamp.
    pub(crate) fn is_valid(&self, stamp: u64, slots: &[u32]) -> bool {
        let is_below = |&slot: &u32| self.words[slot as usize].load(Ordering::Acquire) <= stamp;
        self.sequence.load(Ordering::Acquire) <= stamp || slots.iter().all(is_below)
    }

    /// What purges since this stamp have made of a response that was stored at `stored_at`.
    #[inline]
    pub(crate) fn standing(&self, stamp: u64, slots: &[u32], stored_at: UnixMs) -> Standing {
        match self.is_valid(stamp, slots) {
            true => Standing::Valid,
            false => self.standing_of_purged(stamp, slots, stored_at),
        }
    }

    #[cold]
    fn standing_of_purged(&self, stamp: u64, slots: &[u32], stored_at: UnixMs) -> Standing {
        let runs = self.runs.read().unwrap_or_else(PoisonError::into_inner);
        let is_above = |slot: &u32| self.words[*slot as usize].load(Ordering::Acquire) > stamp;
        let since = |&slot: &u32| runs.since(slot, stamp, stored_at);
        let first = slots.iter().filter(|slot| is_above(slot)).map(since).min();
        // None comes first: gone by one word is gone.
        first.flatten().map_or(Standing::Gone, Standing::Stale)
    }

    fn url(&self, key: &KeyRef<'_>) -> u32 {
        self.slot((b'u', key))
    }

    fn slot(&self, what: impl Hash) -> u32 {
        let others = (WORDS - 1) as u64;
        u32::try_from(1 + self.state.hash_one(what) % others).expect("less than WORDS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_a_purge_is_invalid_and_what_comes_after_is_not() {
        let site = |number| SiteId::new(number).unwrap();
        let url = |path| KeyRef::of_url(site(1), path).unwrap();
        let page = url("http://a/page");
        let tags = Tags::from_tags([b"t1".as_slice(), b"t2"]).unwrap();
        for (what, hits) in [
            (Purge::Url(page), true),
            (Purge::Url(url("http://a/other")), false),
            (Purge::Tag(site(1), b"t2"), true),
            (Purge::Tag(site(1), b"t3"), false),
            (Purge::Tag(site(2), b"t1"), false),
            (Purge::Site(site(1)), true),
            (Purge::Site(site(2)), false),
            (Purge::All, true),
        ] {
            let purges = Purges::new();
            let slots = purges.slots(&page, Some(&tags));
            let before = purges.stamp();
            purges.purge(what);
            // A collision, one in ten thousand, would make too much invalid.
            assert!(purges.is_valid(before, &slots) != hits, "{what:?}");
            assert!(purges.is_valid(purges.stamp(), &slots), "{what:?}");
        }
    }

    #[test]
    fn a_response_with_a_proof_is_not_judged_by_its_tags_here() {
        let site = SiteId::new(1).unwrap();
        let page = KeyRef::of_url(site, "http://a/page").unwrap();
        let purges = Purges::new();
        let (stamp, slots) = (purges.stamp(), purges.slots(&page, None));
        purges.purge(Purge::Tag(site, b"t1"));
        assert!(purges.is_valid(stamp, &slots));
        purges.purge(Purge::Url(page));
        assert!(!purges.is_valid(stamp, &slots));
    }
}
