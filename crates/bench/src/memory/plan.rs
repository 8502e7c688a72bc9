//! What is measured, how often, for how long. Pure.

use serde::Serialize;
use std::time::Duration;

/// How the record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// The checked read over shared memory.
    Shm,
    /// No read: bytes there and back over TCP, the least that a two-sided read can cost.
    PingPong,
    /// A word over `tcp` in plain text.
    TcpPlain,
    /// A word over `tcp`, encrypted and authenticated.
    TcpSealed,
    /// The checked read over the same: one batch of three operations.
    TcpRecord,
}

impl Way {
    pub(crate) const ALL: [Self; 5] =
        [Self::Shm, Self::PingPong, Self::TcpPlain, Self::TcpSealed, Self::TcpRecord];
    /// Those that the owner must answer.
    pub(crate) const TWO_SIDED: [Self; 4] =
        [Self::PingPong, Self::TcpPlain, Self::TcpSealed, Self::TcpRecord];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Shm => "shm, checked read",
            Self::PingPong => "plain TCP ping-pong",
            Self::TcpPlain => "tcp, a word, plain",
            Self::TcpSealed => "tcp, a word, encrypted",
            Self::TcpRecord => "tcp, checked read, encrypted",
        }
    }
}

/// What else the owner's core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Busy {
    Idle,
    Compute20,
    Compute200,
    Talk20,
    Talk200,
}

impl Busy {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Compute20 => "20 compute",
            Self::Compute200 => "200 compute",
            Self::Talk20 => "20 talk",
            Self::Talk200 => "200 talk",
        }
    }

    /// What the owner is told.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::Idle => "compute 0",
            Self::Compute20 => "compute 20",
            Self::Compute200 => "compute 200",
            Self::Talk20 => "talk 20",
            Self::Talk200 => "talk 200",
        }
    }
}

/// All of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    /// Of these, so many ask a busy owner: with 200 threads on its core an answer takes a second.
    pub(crate) two_sided_rounds: usize,
    pub(crate) busy: Vec<Busy>,
    /// How long reads are made that cost little.
    pub(crate) short: Duration,
    /// How long those are made that a busy owner must answer: each may take many milliseconds.
    pub(crate) long: Duration,
    /// Lengths of reads, for figure 5; words.
    pub(crate) sizes_words: Vec<usize>,
}

pub(crate) fn plan(quick: bool) -> Plan {
    if quick {
        return Plan {
            rounds: 5,
            two_sided_rounds: 3,
            busy: vec![Busy::Idle, Busy::Compute20, Busy::Compute200, Busy::Talk20],
            short: Duration::from_millis(150),
            long: Duration::from_millis(400),
            sizes_words: Vec::new(),
        };
    }
    Plan {
        rounds: 11,
        two_sided_rounds: 11,
        busy: vec![Busy::Idle, Busy::Compute20, Busy::Compute200, Busy::Talk20, Busy::Talk200],
        short: Duration::from_millis(300),
        long: Duration::from_secs(1),
        sizes_words: vec![1, 8, 64, 256, 512, 1_024],
    }
}

/// One short round of the short form.
pub(crate) fn least() -> Plan {
    let (short, long) = (Duration::from_millis(20), Duration::from_millis(50));
    Plan { rounds: 1, two_sided_rounds: 1, short, long, sizes_words: vec![1, 64], ..plan(true) }
}

impl Plan {
    /// How long one way is measured in one round.
    pub(crate) fn lasts(&self, way: Way, busy: Busy) -> Duration {
        if way == Way::Shm || busy == Busy::Idle { self.short } else { self.long }
    }

    /// What is measured in a round, in its order, which changes from round to round.
    pub(crate) fn ways(&self, busy: Busy, round: usize) -> Vec<Way> {
        if busy != Busy::Idle && round >= self.two_sided_rounds {
            return vec![Way::Shm];
        }
        let mut ways = Way::ALL.to_vec();
        ways.rotate_left(round % Way::ALL.len());
        ways
    }

    /// Seconds of all.
    pub(crate) fn expected_s(&self) -> f64 {
        let of = |busy: &Busy| {
            let ways = (0..self.rounds).flat_map(|round| self.ways(*busy, round));
            ways.map(|way| self.lasts(way, *busy).as_secs_f64()).sum::<f64>()
        };
        let sizes = self.rounds as f64 * self.sizes_words.len() as f64 * 3.0;
        self.busy.iter().map(of).sum::<f64>() + sizes * self.short.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short_and_has_what_its_numbers_need() {
        let quick = plan(true);
        assert!(quick.expected_s() < 40.0, "{}", quick.expected_s());
        for busy in [Busy::Idle, Busy::Compute20, Busy::Compute200] {
            assert!(quick.busy.contains(&busy));
        }
        assert!(plan(false).rounds > quick.rounds);
        assert_eq!(quick.ways(Busy::Idle, 4).len(), Way::ALL.len());
        assert_eq!(quick.ways(Busy::Talk20, 4), [Way::Shm]);
        assert_ne!(quick.ways(Busy::Talk20, 0), quick.ways(Busy::Talk20, 1));
    }
}
