//! What is measured, how often, for how long. Pure.

use polder::rig::RigNode;
use serde::Serialize;
use std::time::Duration;

/// Nodes of the one site.
pub(crate) const NODES: u16 = 8;
/// Requests that a node serves at a time; edges send it twice as many at the most.
pub(crate) const WORKERS: u32 = 4;
/// How long each takes.
pub(crate) const SERVICE: Duration = Duration::from_millis(10);
/// Of what the servers can, so much is asked.
pub(crate) const LOAD_SHARE: f64 = 0.7;

/// Who stands before the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Tier {
    pub(crate) edges: u8,
    /// Whether they see each other's requests.
    pub(crate) shares: bool,
}

impl Tier {
    pub(crate) const ONE: Self = Self::shared(1);

    pub(crate) const fn shared(edges: u8) -> Self {
        Self { edges, shares: true }
    }

    pub(crate) const fn independent(edges: u8) -> Self {
        Self { edges, shares: false }
    }

    pub(crate) fn name(self) -> String {
        match (self.edges, self.shares) {
            (1, _) => "1 edge".to_owned(),
            (edges, true) => format!("{edges} edges"),
            (edges, false) => format!("{edges} independent"),
        }
    }
}

/// All of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) cell: Duration,
    pub(crate) tiers: Vec<Tier>,
}

pub(crate) fn plan(quick: bool) -> Plan {
    if quick {
        let tiers = vec![Tier::ONE, Tier::shared(4), Tier::independent(4)];
        return Plan { rounds: 5, cell: Duration::from_millis(2_500), tiers };
    }
    let shared = [1, 2, 4, 8].map(Tier::shared);
    let independent = [2, 4, 8].map(Tier::independent);
    let tiers = shared.into_iter().chain(independent).collect();
    Plan { rounds: 7, cell: Duration::from_secs(5), tiers }
}

/// One short round of the short form.
pub(crate) fn least() -> Plan {
    Plan { rounds: 1, cell: Duration::from_millis(500), ..plan(true) }
}

impl Plan {
    /// Seconds of load.
    pub(crate) fn expected_s(&self) -> f64 {
        self.cell.as_secs_f64() * (self.rounds * self.tiers.len()) as f64
    }
}

/// What every node can do.
pub(crate) fn node() -> RigNode {
    let max_in_flight = 2 * WORKERS;
    RigNode { workers: WORKERS, service_time: SERVICE, max_in_flight, ..RigNode::default() }
}

/// Requests per second.
pub(crate) fn rate_per_second() -> f64 {
    LOAD_SHARE * f64::from(NODES) * node().capacity_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_short_and_has_what_its_numbers_need() {
        let quick = plan(true);
        assert!(quick.expected_s() < 45.0 && quick.rounds >= 5);
        for tier in [Tier::ONE, Tier::shared(4), Tier::independent(4)] {
            assert!(quick.tiers.contains(&tier) && plan(false).tiers.contains(&tier));
        }
        assert!((rate_per_second() - 2_240.0).abs() < 1e-6);
        assert_eq!(Tier::independent(2).name(), "2 independent");
    }
}
