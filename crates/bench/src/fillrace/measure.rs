//! What came of races. Pure.

use super::plan::Dialect;
use serde::Serialize;

/// One race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Race {
    /// How the cache was told; ours by the writers' socket, which has one way.
    pub(crate) dialect: Option<Dialect>,
    /// Times that it had to be run until the change fell between read and answer.
    pub(crate) attempts: usize,
    /// Of the data behind the change.
    pub(crate) version: u64,
    /// Of the three answers behind the change.
    pub(crate) answers: [u64; 3],
    /// The last answer came from the cache.
    pub(crate) is_hit: bool,
}

impl Race {
    /// An answer was older than the data.
    pub(crate) fn is_stale(&self) -> bool {
        self.answers.iter().any(|&answer| answer < self.version)
    }
}

/// The races of one cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct Races(pub(crate) Vec<Race>);

impl Races {
    pub(crate) fn stale(&self) -> usize {
        self.0.iter().filter(|race| race.is_stale()).count()
    }

    /// Races told in this way, and those of them that were lost.
    pub(crate) fn by(&self, dialect: Dialect) -> (usize, usize) {
        let races = self.0.iter().filter(|race| race.dialect == Some(dialect));
        (races.clone().count(), races.filter(|race| race.is_stale()).count())
    }

    /// Of the last answers, so many came from the cache; percent.
    pub(crate) fn hits_pct(&self) -> Option<f64> {
        let hits = self.0.iter().filter(|race| race.is_hit).count();
        (!self.0.is_empty()).then(|| 100.0 * hits as f64 / self.0.len() as f64)
    }

    /// Attempts that were no race.
    pub(crate) fn repeated(&self) -> usize {
        self.0.iter().map(|race| race.attempts - 1).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_answer_at_any_place_loses_a_race() {
        let race = |answers, is_hit| Race {
            dialect: Some(Dialect::Xkey),
            attempts: 2,
            version: 2,
            answers,
            is_hit,
        };
        let races = Races(vec![
            race([2, 2, 2], true),
            race([1, 1, 1], true),
            race([2, 2, 1], false),
            race([2, 3, 3], true),
        ]);
        assert_eq!(races.stale(), 2);
        assert_eq!(races.by(Dialect::Xkey), (4, 2));
        assert_eq!(races.by(Dialect::Ban), (0, 0));
        assert_eq!(races.hits_pct(), Some(75.0));
        assert_eq!(races.repeated(), 4);
        assert_eq!(Races::default().hits_pct(), None);
    }
}
