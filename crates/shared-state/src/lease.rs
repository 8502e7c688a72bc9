//! Who is alive: a word that its owner keeps changing, judged by the reader's own clock.
//!
//! No time stamp of another machine is ever compared; the only question is for how long the word
//! has not changed as far as this reader saw.

use std::time::Duration;

/// Watches one word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    last: u64,
    changed_at: Duration,
    seen: bool,
}

impl Watch {
    /// Notes the word as read at `now` (the reader's monotonic clock) and tells whether its owner
    /// counts as alive: not zero, and changed within `patience`. A word that is seen for the
    /// first time gets the benefit of the doubt.
    pub fn is_alive(&mut self, word: u64, now: Duration, patience: Duration) -> bool {
        if !self.seen || word != self.last {
            *self = Self { last: word, changed_at: now, seen: true };
        }
        word != 0 && now.saturating_sub(self.changed_at) <= patience
    }

    /// For how long the word has not changed.
    #[must_use]
    pub fn unchanged_for(&self, now: Duration) -> Duration {
        now.saturating_sub(self.changed_at)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(50);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_word_that_stays_is_dead_after_the_patience() {
        let mut watch = Watch::default();
        assert!(watch.is_alive(7, ms(0), PATIENCE));
        assert!(watch.is_alive(7, ms(50), PATIENCE));
        assert!(!watch.is_alive(7, ms(51), PATIENCE));
        assert!(watch.is_alive(8, ms(52), PATIENCE));
    }

    #[test]
    fn zero_is_nobody() {
        let mut watch = Watch::default();
        assert!(!watch.is_alive(0, ms(0), PATIENCE));
    }

    #[test]
    fn the_first_sight_counts_as_alive_however_late() {
        let mut watch = Watch::default();
        assert!(watch.is_alive(7, ms(1_000_000), PATIENCE));
        assert_eq!(watch.unchanged_for(ms(1_000_010)), ms(10));
    }
}
