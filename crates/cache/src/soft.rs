//! Soft purges: what was stored before one is stale from then on, instead of gone.
//!
//! A soft purge raises its word like any other, so that a look-up which finds nothing purged costs
//! what it did. Only where a word is above a response's stamp is it asked here by what:
//!
//! ```text
//! purge x:        forget the run of x
//! soft purge x:   the run of x goes on, or begins: floor = word[x], first = now;
//!                 before = word[x], last = now
//! response:       gone if a word above its stamp has no run, or the stamp is below its floor;
//!                 else stale since the first purge of it, or earlier:
//!                 last if the stamp is not below `before`, else first
//! ```
//!
//! A run has the time of two purges, not of all: who was stored between them is taken as stale for
//! longer than it is, never for less. Names on one word share a run, and a floor.

use std::collections::HashMap;

use crate::cache::Cache;
use crate::entry::Entry;
use crate::moment::UnixMs;
use crate::options::{Mode, Rules};
use crate::purge::Purge;
use crate::stats::Event;

/// Soft purges of one word since the last one that was not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// The word before the first one.
    floor: u64,
    /// The word before the last one.
    before: u64,
    first_at: UnixMs,
    last_at: UnixMs,
}

/// All runs: at most one for each word of the table, 48 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Runs(HashMap<u32, Run>);

impl Runs {
    /// A word is raised by a purge that is not soft.
    pub(crate) fn end(&mut self, slot: u32) {
        self.0.remove(&slot);
    }

    /// A word that had this value is raised by a soft purge.
    pub(crate) fn go_on(&mut self, slot: u32, word: u64, now: UnixMs) {
        let new = Run { floor: word, before: word, first_at: now, last_at: now };
        let run = self.0.entry(slot).or_insert(new);
        (run.before, run.last_at) = (word, now);
    }

    /// Since when what has this stamp is stale by purges that have raised a word above it; `None`:
    /// it is gone. It was stored at `stored_at`, and no purge of it was before that.
    pub(crate) fn since(&self, slot: u32, stamp: u64, stored_at: UnixMs) -> Option<UnixMs> {
        let run = self.0.get(&slot).filter(|run| stamp >= run.floor)?;
        let is_last = stamp >= run.before;
        Some(if is_last { run.last_at } else { run.first_at.max(stored_at) })
    }
}

/// What purges have made of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// None concerns it.
    Valid,
    /// It is stale since then, whatever its freshness says.
    Stale(UnixMs),
    Gone,
}

impl<P> Cache<P> {
    /// Makes what was stored, or asked for, before now stale, so that it may be used as far as
    /// sites allow it for what is stale. In mode `strict` it is gone, as after [`Cache::purge`].
    pub fn purge_softly(&self, what: Purge<'_>, now: UnixMs) {
        self.counters.count(Event::Purged);
        self.purges.purge_softly(what, now);
    }

    /// What purges have made of a response under these rules.
    pub(crate) fn standing(&self, rules: &Rules, entry: &Entry<P>) -> Standing {
        let received_at = entry.freshness.received_at;
        match self.purges.standing(entry.stamp, &entry.slots, received_at) {
            Standing::Stale(_) if rules.mode == Mode::Strict => Standing::Gone,
            standing => standing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRef;
    use crate::purge::Purges;
    use crate::tags::Tags;
    use pool_model::SiteId;
    use proptest::prelude::*;

    /// A purge of the only tag, and whether it is soft; or a response that is stored.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Purge { is_soft: bool },
        Store,
    }

    struct Response {
        stamp: u64,
        stored_at: UnixMs,
        /// Those that concern it: whether they were soft, and when.
        purges: Vec<(bool, UnixMs)>,
    }

    /// Each response is judged as one is that remembers all purges, but that it may be taken as
    /// stale for longer, since its own storing at the most.
    fn check(steps: &[Step]) {
        let site = SiteId::new(1).unwrap();
        let key = KeyRef::of_url(site, "http://a/").unwrap();
        let tags = Tags::from_tags([b"t".as_slice()]).unwrap();
        let purges = Purges::new();
        let slots = purges.slots(&key, Some(&tags));
        let mut responses = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let now = UnixMs(1_000 + at as u64);
            match *step {
                Step::Store => {
                    let (stamp, stored_at) = (purges.stamp(), now);
                    responses.push(Response { stamp, stored_at, purges: Vec::new() });
                }
                Step::Purge { is_soft } => {
                    let what = Purge::Tag(site, b"t");
                    if is_soft {
                        purges.purge_softly(what, now);
                    } else {
                        purges.purge(what);
                    }
                    for response in &mut responses {
                        response.purges.push((is_soft, now));
                    }
                }
            }
            for Response { stamp, stored_at, purges: all } in &responses {
                let standing = purges.standing(*stamp, &slots, *stored_at);
                match all.first() {
                    None => assert_eq!(standing, Standing::Valid, "{steps:?}"),
                    _ if all.iter().any(|(is_soft, _)| !is_soft) => {
                        assert_eq!(standing, Standing::Gone, "{steps:?}");
                    }
                    Some((_, first)) => {
                        let Standing::Stale(since) = standing else { panic!("{steps:?}") };
                        assert!((*stored_at..=*first).contains(&since), "{steps:?} {since:?}");
                        assert!(all.len() > 1 || since == *first, "{steps:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_response_is_as_stale_as_its_purges_make_it(
            kinds in prop::collection::vec(0..3_u8, 1..24),
        ) {
            let step = |kind: &u8| match kind {
                0 => Step::Store,
                kind => Step::Purge { is_soft: *kind == 1 },
            };
            check(&kinds.iter().map(step).collect::<Vec<_>>());
        }
    }

    #[test]
    fn of_several_purges_each_word_counts() {
        let site = SiteId::new(1).unwrap();
        let key = KeyRef::of_url(site, "http://a/").unwrap();
        let tags = Tags::from_tags([b"t".as_slice(), b"u"]).unwrap();
        let purges = Purges::new();
        let slots = purges.slots(&key, Some(&tags));
        let stamp = purges.stamp();
        purges.purge_softly(Purge::Tag(site, b"t"), UnixMs(5));
        purges.purge_softly(Purge::Site(site), UnixMs(6));
        assert_eq!(purges.standing(stamp, &slots, UnixMs(1)), Standing::Stale(UnixMs(5)));
        purges.purge(Purge::Tag(site, b"u"));
        assert_eq!(purges.standing(stamp, &slots, UnixMs(1)), Standing::Gone);
        let later = purges.stamp();
        assert_eq!(purges.standing(later, &slots, UnixMs(7)), Standing::Valid);
        purges.purge_softly(Purge::Tag(site, b"u"), UnixMs(8));
        assert_eq!(purges.standing(later, &slots, UnixMs(7)), Standing::Stale(UnixMs(8)));
        assert_eq!(purges.standing(stamp, &slots, UnixMs(1)), Standing::Gone);
    }
}
