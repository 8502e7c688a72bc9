//! What breaks, when, and for how long.

use crate::options::Options;
use crate::random::{Random, Stream};

const MS: u64 = 1_000_000;

/// After which step of a move its edge dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The event is claimed; nothing has moved.
    Claim,
    /// The departure is announced; the node still serves the donor.
    Install,
    /// The node serves the taker; the departure still stands.
    Swap,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An edge's process dies, and starts again when the fault ends.
    EdgeCrash,
    /// The next edge that gets there dies between the steps of a move; it starts again later.
    CrashInMove(Step),
    /// An edge is stopped, and goes on as if nothing had been.
    EdgePause,
    /// A machine dies, and comes back empty.
    NodeFailure,
    /// An agent restarts, while its servers go on.
    AgentRestart,
    /// All site words are lost.
    HomeWipe,
    /// Operations take so long that many answers come after their deadline.
    SlowNetwork,
    /// Operations and answers get lost.
    Losses,
    /// One node cannot be reached by one edge, but by the others.
    Partition,
}

impl Kind {
    /// The word used in histories.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EdgeCrash => "edge crash",
            Self::CrashInMove(Step::Claim) => "crash after claim",
            Self::CrashInMove(Step::Install) => "crash after install",
            Self::CrashInMove(Step::Swap) => "crash after swap",
            Self::EdgePause => "edge pause",
            Self::NodeFailure => "node failure",
            Self::AgentRestart => "agent restart",
            Self::HomeWipe => "home wiped",
            Self::SlowNetwork => "slow network",
            Self::Losses => "losses",
            Self::Partition => "partition",
        }
    }
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// When it begins, from the start of the run.
    pub at_ns: u64,
    /// How long it lasts.
    pub for_ns: u64,
    /// Which edge, where it is about one.
    pub edge: u8,
    /// Which node, where it is about one.
    pub node: u16,
}

/// The longest that an edge is stopped: beyond it nothing new happens.
pub const PAUSE_MAX_NS: u64 = 2_000 * MS;

/// Draws so many faults between two times.
#[must_use]
pub fn plan(options: &Options, count: usize, from_ns: u64, until_ns: u64) -> Vec<Fault> {
    let mut random = Random::of(options.seed, Stream::Faults);
    let nodes = options.nodes.len() as u64;
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let (kind, least_ms, most_ms) = match random.below(12) {
                0 => (Kind::EdgeCrash, 50, 3_000),
                1 => (Kind::CrashInMove(Step::Claim), 50, 3_000),
                2 | 3 => (Kind::CrashInMove(Step::Install), 50, 3_000),
                4 => (Kind::CrashInMove(Step::Swap), 50, 3_000),
                5 => (Kind::EdgePause, 20, PAUSE_MAX_NS / MS),
                6 => (Kind::NodeFailure, 100, 5_000),
                7 => (Kind::AgentRestart, 20, 1_000),
                8 => (Kind::HomeWipe, 0, 0),
                9 => (Kind::SlowNetwork, 200, 2_000),
                10 => (Kind::Losses, 200, 2_000),
                _ => (Kind::Partition, 50, 1_000),
            };
            Fault {
                kind,
                at_ns: random.between(from_ns, until_ns),
                for_ns: random.between(least_ms, most_ms) * MS,
                edge: u8::try_from(random.below(u64::from(options.edges))).unwrap_or(0),
                node: u16::try_from(random.below(nodes)).unwrap_or(0),
            }
        })
        .collect();
    faults.sort_by_key(|fault| fault.at_ns);
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{NodeSpec, SiteSpec};
    use pool_model::{NodeTraits, SiteTerms};

    #[test]
    fn a_seed_decides_its_faults_and_all_kinds_come() {
        let site = SiteSpec { terms: SiteTerms::default(), service_ns: 1, slow_ns: 1 };
        let node = NodeSpec { traits: NodeTraits::default(), max_in_flight: 1, site: None };
        let options = |seed| Options { seed, ..Options::new(vec![site], vec![node; 8]) };
        let faults = plan(&options(5), 500, 10, 20);
        assert_eq!(faults, plan(&options(5), 500, 10, 20));
        assert_ne!(faults, plan(&options(6), 500, 10, 20));
        assert!(faults.iter().all(|fault| (10..=20).contains(&fault.at_ns) && fault.node < 8));
        let mut names: Vec<_> = faults.iter().map(|fault| fault.kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 11);
    }
}
