//! What proves a stored response in mode `strict`: the words of its tags in the site's version
//! table, as the table was before a server was asked.
//!
//! Each response also depends on two tags that no server sends: one for its URL and one for its
//! site. So a purge of a URL, or of everything, is an update of one tag, which all edges see at
//! once.

use super::far::{FarLinks, FarVersions};
use cache::{Key, Tags};
use remote_memory::Incarnation;
use shared_state::versions::{Filled, Slot, SlotBits, Stamp, VersionTable};
use smallvec::SmallVec;
use std::sync::Arc;

/// The tag that every response of a site has.
pub const SITE_TAG: &[u8] = b"polder:site";

/// How the tag of a URL begins.
const URL_TAG: &[u8] = b"polder:url:";

/// The tag of all responses for a URL, by whatever scheme it is asked for.
#[must_use]
pub fn url_tag(key: &Key) -> Vec<u8> {
    [URL_TAG, key.text().as_bytes()].concat()
}

/// What one stored response is proved by.
#[derive(Debug)]
pub(crate) struct Proof {
    filled: Filled,
    slots: Slots,
}

/// Of a page with few tags they lie in the entry itself: a hit waits for one piece of memory less.
type Slots = SmallVec<[Slot; 6]>;

impl Proof {
    /// For a response with these tags; `filled` was read before its server was asked.
    pub(super) fn new(bits: SlotBits, filled: Filled, key: &Key, tags: &Tags) -> Self {
        let url = url_tag(key);
        let implied = [SITE_TAG, &url];
        let mut slots: Slots = tags.iter().chain(implied).map(|tag| bits.slot(tag)).collect();
        slots.sort_unstable();
        slots.dedup();
        Self { filled, slots }
    }

    /// For the disk tier: incarnation, sequence, and each slot, little-endian.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Filled { incarnation, sequence } = self.filled;
        out.extend_from_slice(&incarnation.0.to_le_bytes());
        out.extend_from_slice(&sequence.get().to_le_bytes());
        for slot in &self.slots {
            out.extend_from_slice(&slot.0.to_le_bytes());
        }
    }

    /// What was written so; none if it is something else.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (incarnation, rest) = bytes.split_first_chunk()?;
        let (sequence, slots) = rest.split_first_chunk()?;
        let (incarnation, sequence) =
            (Incarnation(u64::from_le_bytes(*incarnation)), u64::from_le_bytes(*sequence));
        let filled = Filled { incarnation, sequence: Stamp::new(sequence)? };
        let (slots, surplus) = slots.as_chunks();
        let slots: Slots = slots.iter().map(|slot| Slot(u32::from_le_bytes(*slot))).collect();
        let within = slots.iter().all(|slot| slot.0 >> SlotBits::MAX == 0);
        (surplus.is_empty() && within).then_some(Self { filled, slots })
    }
}

/// Where a site's version table is.
#[derive(Clone, Debug)]
pub enum Versions {
    /// In memory that this process maps.
    Near(VersionTable),
    /// On another machine.
    Far(Arc<FarVersions>),
}

impl Versions {
    /// How large it is.
    pub(super) fn bits(&self) -> SlotBits {
        match self {
            Self::Near(table) => table.layout().bits(),
            Self::Far(far) => far.bits,
        }
    }

    /// What a response is to be stored with. Awaited **before** its server is asked; none: it must
    /// not be stored.
    pub(super) async fn fill(&self, links: &FarLinks) -> Option<Filled> {
        match self {
            Self::Near(table) => table.fill(),
            Self::Far(far) => links.fill(far).await,
        }
    }

    /// Whether a response holds, where that can be told at once. To be called **after** the
    /// request arrived.
    pub(super) fn holds_now(&self, proof: &Proof) -> Option<bool> {
        match self {
            Self::Near(table) => Some(table.is_valid(proof.filled, &proof.slots)),
            Self::Far(_) => None,
        }
    }

    /// Whether a response holds. To be called **after** the request arrived.
    pub(super) async fn holds(&self, links: &FarLinks, proof: &Proof) -> bool {
        match self {
            Self::Near(table) => table.is_valid(proof.filled, &proof.slots),
            Self::Far(far) => links.holds(far, proof.filled, &proof.slots).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cache::{KeyRef, Tags};
    use pool_model::SiteId;

    fn key(url: &str) -> Key {
        KeyRef::of_url(SiteId::MIN, url).unwrap().to_key()
    }

    #[test]
    fn the_tag_of_a_url_knows_neither_scheme_nor_usual_port_nor_letter_case_of_hosts() {
        let tag = url_tag(&key("http://A.example/b?C"));
        assert_eq!(tag, b"polder:url:a.example/b?C");
        assert_eq!(url_tag(&key("https://a.example:443/b?C")), tag);
        assert_ne!(url_tag(&key("http://a.example/b?c")), tag);
    }

    #[test]
    fn a_response_depends_on_its_tags_its_url_and_its_site() {
        let bits = SlotBits::of(1 << 16).unwrap();
        let filled = filled();
        let tags = Tags::from_tags([b"b".as_slice(), b"a", b"a"]).unwrap();
        let proof = Proof::new(bits, filled, &key("http://a.example/"), &tags);
        let expected: [&[u8]; 4] = [b"a", b"b", b"polder:site", b"polder:url:a.example/"];
        assert_eq!(*proof.slots, *bits.slots_of(&expected));
    }

    #[test]
    fn a_proof_survives_the_way_to_the_disk_and_back() {
        let bits = SlotBits::of(1 << 16).unwrap();
        let tags = Tags::from_tags([b"b".as_slice(), b"a"]).unwrap();
        let proof = Proof::new(bits, filled(), &key("http://a.example/"), &tags);
        let mut bytes = Vec::new();
        proof.write(&mut bytes);
        let again = Proof::read(&bytes).unwrap();
        assert_eq!((again.filled, &again.slots), (proof.filled, &proof.slots));
        assert!(Proof::read(&bytes[1..]).is_none() && Proof::read(&[]).is_none());
        *bytes.last_mut().unwrap() = 0xff;
        assert!(Proof::read(&bytes).is_none(), "no table has such a slot");
    }

    fn filled() -> Filled {
        use remote_memory::shm::OwnedRegion;
        use shared_state::versions::{Decided, TableLayout};
        use std::sync::Arc;
        let bits = SlotBits::of(1 << 10).unwrap();
        let bytes = TableLayout::new(bits).region_bytes();
        let region = Arc::new(OwnedRegion::create("tags-test", bytes).unwrap());
        let table = VersionTable::publish(region, bits).unwrap();
        table.admit_hits(Decided);
        table.fill().unwrap()
    }
}
