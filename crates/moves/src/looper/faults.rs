//! What of the shared memory cannot be used, and where it lies: for the log and for `status`.

use super::attach::Target;
use crate::protocol::{BadWord, Seen};
use std::time::Duration;

/// A bad word at one place is logged again after so long: whoever writes noise at every look does
/// not fill the log.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Records that are broken, and words that nobody writes.
#[derive(Debug, Default)]
pub(super) struct Faults {
    records: Vec<(Target, String)>,
    words: Vec<BadWord>,
    /// When each was logged; at most one entry for each word of the pool.
    told: Vec<(BadWord, Duration)>,
}

impl Faults {
    /// A record cannot be used, or cannot be used any more.
    pub(super) fn broken(&mut self, target: Target, why: String) {
        tracing::warn!(%target, why, "a record is not used until its owner has made a new one");
        self.mended(target);
        self.records.push((target, why));
    }

    /// A record is used again.
    pub(super) fn mended(&mut self, target: Target) {
        self.records.retain(|(known, _)| *known != target);
    }

    /// Takes in a look. Allocates nothing unless it finds something.
    pub(super) fn looked(&mut self, seen: &Seen, now: Duration) {
        self.words.clear();
        self.words.extend(seen.bad_words());
        for &word in &self.words {
            let known = self.told.iter_mut().find(|(told, _)| told.is_at_place_of(word));
            match known {
                Some((_, at)) if now.saturating_sub(*at) < TELL_EVERY => continue,
                Some(known) => *known = (word, now),
                None => self.told.push((word, now)),
            }
            tracing::warn!("{word}");
        }
    }

    /// All of them, in words.
    pub(super) fn texts(&self) -> Vec<String> {
        let records = self.records.iter().map(|(target, why)| format!("{target}: {why}"));
        records.chain(self.words.iter().map(ToString::to_string)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool_model::NodeId;

    #[test]
    fn records_are_told_until_they_are_mended() {
        let mut faults = Faults::default();
        let node = Target::Node(NodeId::new(3).unwrap());
        faults.broken(node, "no magic".into());
        faults.broken(node, "another version".into());
        faults.broken(Target::Home, "noise".into());
        assert_eq!(faults.texts(), ["node 3's record: another version", "the site record: noise"]);
        faults.mended(node);
        assert_eq!(faults.texts(), ["the site record: noise"]);
    }

    #[test]
    fn words_are_told_while_they_stand_there_and_logged_once_a_second() {
        let mut faults = Faults::default();
        let mut seen = Seen::new(2, 3);
        seen.sites[1].depart = u64::MAX;
        seen.nodes[2] = Some(900 << 54);
        for ms in [1, 2, 3] {
            faults.looked(&seen, Duration::from_millis(ms));
            let texts = faults.texts();
            assert_eq!(texts.len(), 2, "{texts:?}");
            assert!(texts[0].contains("site 2") && texts[1].contains("node 2"), "{texts:?}");
        }
        assert_eq!(faults.told.len(), 2);
        assert!(faults.told.iter().all(|(_, at)| *at == Duration::from_millis(1)));
        faults.looked(&Seen::new(2, 3), Duration::from_millis(4));
        assert_eq!(faults.texts(), Vec::<String>::new());
    }
}
