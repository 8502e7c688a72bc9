//! How many races, and when what happens in one. Pure.

use serde::Serialize;
use std::time::Duration;

/// From the origin's read of its data to its answer.
pub(crate) const RENDER: Duration = Duration::from_secs(1);
/// From the origin's read to the change.
pub(crate) const CHANGE_AFTER: Duration = Duration::from_millis(400);
/// Races at a time, of each cache.
pub(crate) const AT_ONCE: usize = 10;
/// A race whose change came too late to be one is run again, with another page, so often: this
/// takes a stall of the machine of 0.6 s.
pub(crate) const ATTEMPTS_MAX: usize = 5;

/// How Varnish is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dialect {
    Purge,
    Xkey,
    Ban,
}

impl Dialect {
    pub(crate) const ALL: [Self; 3] = [Self::Purge, Self::Xkey, Self::Ban];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Purge => "PURGE of the URL",
            Self::Xkey => "xkey.purge of the tag",
            Self::Ban => "ban of the tag",
        }
    }

    /// The method of a request that asks for it, as [`super::run::VCL`] has it.
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Purge => "PURGE",
            Self::Xkey => "XKEY",
            Self::Ban => "BAN",
        }
    }

    /// They take turns.
    pub(crate) fn of_race(race: usize) -> Self {
        Self::ALL[race % Self::ALL.len()]
    }
}

/// All of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Of each cache.
    pub(crate) races: usize,
}

pub(crate) const fn plan(quick: bool) -> Plan {
    Plan { races: if quick { 30 } else { 1_000 } }
}

/// Two of each dialect.
pub(crate) const fn least() -> Plan {
    Plan { races: 6 }
}

impl Plan {
    /// Seconds: the page is rendered twice in a race that is won.
    pub(crate) fn expected_s(self) -> f64 {
        2.0 * RENDER.as_secs_f64() * self.races.div_ceil(AT_ONCE) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short_and_dialects_take_turns() {
        assert!(plan(true).expected_s() < 30.0 && plan(true).races == 30);
        assert_eq!(plan(false).races, 1_000);
        let count = |wanted| (0..30).filter(|&race| Dialect::of_race(race) == wanted).count();
        assert_eq!(Dialect::ALL.map(count), [10; 3]);
        assert!(CHANGE_AFTER < RENDER);
    }
}
