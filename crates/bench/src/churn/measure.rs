//! What moves, waves and idle processes mean. Pure.

use crate::waits::Cost;
use load::generate::{Failures, HalfPeriod, WaveReport};
use polder::rig::MoveLog;
use serde::Serialize;
use std::collections::BTreeMap;

/// One move, as far as a figure needs it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Move {
    pub(crate) node: String,
    pub(crate) to: Option<String>,
    pub(crate) decided_ns: u64,
    pub(crate) effect_ns: u64,
    pub(crate) first_dispatch_ns: Option<u64>,
}

/// All moves of a log.
pub(crate) fn moves_of(log: &MoveLog) -> Vec<Move> {
    let one = |record: &polder::status::MoveRecord| Move {
        node: record.node.clone(),
        to: record.to.clone(),
        decided_ns: record.decided_ns,
        effect_ns: record.effect_ns,
        first_dispatch_ns: record.first_dispatch_ns,
    };
    log.iter().map(one).collect()
}

impl Move {
    /// From the look that decided to the first request at the moved node.
    pub(crate) fn move_ms(&self) -> Option<f64> {
        let first_ns = self.first_dispatch_ns?;
        Some(first_ns.saturating_sub(self.decided_ns) as f64 / 1e6)
    }
}

/// The most moves of one node within any time of length `hold_ns`.
pub(crate) fn per_node_per_hold_max(moves: &[Move], hold_ns: u64) -> usize {
    let mut times: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for one in moves {
        times.entry(&one.node).or_default().push(one.effect_ns);
    }
    let mut most = 0;
    for times in times.values_mut() {
        times.sort_unstable();
        for (place, &from_ns) in times.iter().enumerate() {
            let until = times.partition_point(|&at_ns| at_ns < from_ns.saturating_add(hold_ns));
            most = most.max(until - place);
        }
    }
    most
}

/// Whether each half period saw a move to its site. The last half period is over at `end_ns`.
pub(crate) fn followed(
    halves: &[HalfPeriod],
    end_ns: u64,
    moves: &[Move],
    site_name: impl Fn(usize) -> String,
) -> Vec<bool> {
    let until = halves.iter().skip(1).map(|half| half.start_ns).chain([end_ns]);
    let saw = |(half, until_ns): (&HalfPeriod, u64)| {
        let name = site_name(half.site);
        moves.iter().any(|one| {
            one.to.as_deref() == Some(&name) && (half.start_ns..until_ns).contains(&one.decided_ns)
        })
    };
    halves.iter().zip(until).map(saw).collect()
}

/// Requests of a run, each counted once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Requests {
    pub(crate) sent: u64,
    pub(crate) failed: u64,
    /// Failures in words, by kind.
    pub(crate) failures: String,
    /// Whether good and failed ones add up.
    pub(crate) adds_up: bool,
    pub(crate) seconds: f64,
    pub(crate) p99_ms: f64,
}

impl Requests {
    /// Of several waves, one after the other.
    pub(crate) fn of(waves: &[WaveReport]) -> Self {
        let mut total = load::generate::Tally::default();
        let mut failures = Failures::default();
        let mut adds_up = true;
        for wave in waves {
            let tally = wave.run.total();
            adds_up &= tally.adds_up();
            failures.merge(&tally.failures);
            total.merge(&tally);
        }
        Self {
            sent: total.requests,
            failed: failures.total(),
            failures: failures.to_string(),
            adds_up,
            seconds: waves.iter().map(|wave| wave.run.seconds()).sum(),
            p99_ms: total.latency.p99_us() as f64 / 1e3,
        }
    }
}

/// Moves as fast as they go.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Churn {
    pub(crate) look_every_ms: u32,
    pub(crate) hold_ms: u32,
    pub(crate) half_period_ms: u64,
    #[serde(skip)]
    pub(crate) moves: Vec<Move>,
    /// What the edges count: more than were fetched means that some were forgotten before.
    pub(crate) moves_counted: u64,
    pub(crate) requests: Requests,
    /// The look loop's share of a core, sampled while busy; percent.
    pub(crate) look_cpu_pct: Vec<f64>,
    /// The longest interval between looks in force meanwhile: above `look_every_ms` where looks
    /// are stretched.
    pub(crate) look_every_ms_longest: f64,
    pub(crate) cost: Cost,
}

/// A wave of 64 in flight that alternates between two sites.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Wave {
    pub(crate) half_period_ms: u64,
    pub(crate) moves: Vec<Move>,
    pub(crate) requests: Requests,
    pub(crate) followed: Vec<bool>,
    pub(crate) start_ns: u64,
    pub(crate) wait_pct: f64,
}

impl Wave {
    /// The share of half periods with a move to the loaded site; percent.
    pub(crate) fn followed_pct(&self) -> Option<f64> {
        let count = self.followed.iter().filter(|&&saw| saw).count();
        (!self.followed.is_empty()).then(|| 100.0 * count as f64 / self.followed.len() as f64)
    }
}

/// A pool without requests.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Idle {
    pub(crate) seconds: f64,
    pub(crate) agents: usize,
    pub(crate) edges: usize,
    pub(crate) agents_cpu_pct: f64,
    pub(crate) edge_cpu_pct: f64,
}

impl Idle {
    pub(crate) fn cpu_pct(&self) -> f64 {
        self.agents_cpu_pct + self.edge_cpu_pct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(node: &str, to: &str, at_ns: u64) -> Move {
        Move {
            node: node.into(),
            to: Some(to.into()),
            decided_ns: at_ns,
            effect_ns: at_ns + 1,
            first_dispatch_ns: Some(at_ns + 2_000_000),
        }
    }

    #[test]
    fn moves_of_one_node_within_a_hold_are_counted_wherever_they_lie() {
        let moves = [
            moved("n1", "red", 90),
            moved("n1", "blue", 110),
            moved("n2", "red", 100),
            moved("n1", "red", 189),
            moved("n1", "blue", 190),
        ];
        assert_eq!(per_node_per_hold_max(&moves, 100), 3);
        assert_eq!(per_node_per_hold_max(&moves, 101), 4);
        assert_eq!(per_node_per_hold_max(&moves, 1), 1);
        assert_eq!(per_node_per_hold_max(&[], 100), 0);
        assert_eq!(moves[0].move_ms(), Some(2.0));
    }

    #[test]
    fn a_half_period_is_followed_by_a_move_to_its_site_within_it() {
        let half = |start_ns, site| HalfPeriod { start_ns, site };
        let halves = [half(0, 0), half(100, 1), half(200, 0)];
        let name = |site: usize| ["red", "blue"][site].to_owned();
        let moves = [moved("n1", "red", 50), moved("n2", "red", 150), moved("n3", "red", 250)];
        assert_eq!(followed(&halves, 300, &moves, name), [true, false, true]);
        assert_eq!(followed(&halves, 240, &moves, name), [true, false, false]);
        let wave = Wave {
            half_period_ms: 1,
            moves: vec![],
            requests: Requests::default(),
            followed: vec![true, false, true, true],
            start_ns: 0,
            wait_pct: 0.0,
        };
        assert_eq!(wave.followed_pct(), Some(75.0));
        assert_eq!(Wave { followed: vec![], ..wave }.followed_pct(), None);
    }

    #[test]
    fn requests_of_several_waves_are_added_up() {
        let mut wave = WaveReport::default();
        let mut tally = load::generate::Tally { requests: 2, ok: 1, ..Default::default() };
        tally.latency.record_ns(3_000_000);
        tally.failures.add(load::generate::Failure::Status(503));
        wave.run.sites.push(tally);
        wave.run.end_ns = 2_000_000_000;
        let requests = Requests::of(&[wave.clone(), wave.clone()]);
        assert_eq!((requests.sent, requests.failed, requests.adds_up), (4, 2, true));
        assert!(requests.failures.contains("status 503"));
        assert!((requests.seconds - 4.0).abs() < 1e-9);
        wave.run.sites[0].requests = 9;
        assert!(!Requests::of(&[wave]).adds_up);
    }
}
