//! How long sites were below their hard guarantees, and why: what this edge's looks have seen.
//!
//! A look reads one word after the other. A node that comes and another that goes between two of
//! these reads can make a site look short that never was; so a shortfall counts from its first look
//! on, but only once a second look has seen it too. The history of moves is exact
//! ([`MoveLine::swapped_ns`](super::MoveLine)); this is for people and alarms.

use pool_model::{NodeId, SiteId};
use std::time::Duration;

/// Why a site is below its hard guarantee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It has not had so many nodes since this edge started, or since the guarantee was raised.
    Unmet,
    /// Nodes of it have died, were stopped, or are not reached.
    Node,
    /// Nodes that live were given to others. The protocol of moves rules that out.
    Move,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Unmet, Self::Node, Self::Move];

    /// The word in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmet => "unmet",
            Self::Node => "node",
            Self::Move => "move",
        }
    }
}

/// How long a site was below its hard guarantee since this edge started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BelowHard {
    /// Why it is now, if it is.
    pub now: Option<Cause>,
    /// By cause, in the order of [`Cause::ALL`].
    pub time: [Duration; Cause::ALL.len()],
}

impl BelowHard {
    /// How long for one cause.
    #[must_use]
    pub const fn by(&self, cause: Cause) -> Duration {
        self.time[cause as usize]
    }
}

/// What one look saw of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeAt {
    /// Its site; none if it is free, or counts for none.
    pub(super) site: Option<SiteId>,
    /// Its agent lives, and has not given it up.
    pub(super) alive: bool,
}

/// One site.
#[derive(Clone, Copy, Debug)]
struct Track {
    hard: u16,
    /// It has had its nodes since the guarantee was set.
    was_met: bool,
    /// When it was last seen short, and why.
    short: Option<(Duration, Cause)>,
    /// Its nodes in the look before.
    before: u16,
    /// Living ones of them that others have since.
    taken: u16,
    told: BelowHard,
}

impl Track {
    const NEW: Self = Self {
        hard: 0,
        was_met: false,
        short: None,
        before: 0,
        taken: 0,
        told: BelowHard { now: None, time: [Duration::ZERO; Cause::ALL.len()] },
    };

    fn looked(&mut self, now: Duration, nodes: u16, hard: u16) {
        let is_raised = hard > std::mem::replace(&mut self.hard, hard);
        let taken = std::mem::take(&mut self.taken);
        let before = std::mem::replace(&mut self.before, nodes);
        if nodes >= hard {
            (self.was_met, self.short, self.told.now) = (true, None, None);
            return;
        }
        self.was_met &= !is_raised;
        let Some((seen, cause)) = &mut self.short else {
            let cause = if !self.was_met {
                Cause::Unmet
            } else if before.saturating_sub(taken) < hard {
                Cause::Move
            } else {
                Cause::Node
            };
            self.short = Some((now, cause));
            return;
        };
        let time = &mut self.told.time[*cause as usize];
        *time = time.saturating_add(now.saturating_sub(*seen));
        *seen = now;
        self.told.now = Some(*cause);
    }
}

/// All sites.
#[derive(Debug, Default)]
pub(super) struct Shortfalls {
    sites: Vec<Track>,
    nodes: Vec<NodeAt>,
}

impl Shortfalls {
    /// Takes in a look: all nodes by their index, then nodes and hard guarantee of each site.
    pub(super) fn looked(
        &mut self,
        now: Duration,
        nodes: impl Iterator<Item = (NodeId, NodeAt)>,
        sites: impl Iterator<Item = (u16, u16)>,
    ) {
        for (node, at) in nodes {
            let place = node.index();
            if self.nodes.len() <= place {
                self.nodes.resize(place + 1, NodeAt::default());
            }
            let before = std::mem::replace(&mut self.nodes[place], at);
            let Some(site) = before.site.filter(|_| at.alive && before.site != at.site) else {
                continue;
            };
            if let Some(track) = self.sites.get_mut(site.index()) {
                track.taken = track.taken.saturating_add(1);
            }
        }
        for (place, (count, hard)) in sites.enumerate() {
            if self.sites.len() <= place {
                self.sites.push(Track::NEW);
            }
            self.sites[place].looked(now, count, hard);
        }
    }

    /// One site, by its index.
    pub(super) fn of(&self, place: usize) -> BelowHard {
        self.sites.get(place).map_or_else(BelowHard::default, |track| track.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(10);

    /// Two sites; nodes by `(site or 0, alive)`.
    struct Looks {
        shortfalls: Shortfalls,
        now: Duration,
    }

    impl Looks {
        fn new() -> Self {
            Self { shortfalls: Shortfalls::default(), now: Duration::ZERO }
        }

        fn look(&mut self, nodes: &[(u16, bool)], hard: [u16; 2]) -> [BelowHard; 2] {
            self.now += STEP;
            let count = |number| {
                let serves = nodes.iter().filter(|(site, alive)| *site == number && *alive);
                serves.count() as u16
            };
            let sites = [(count(1), hard[0]), (count(2), hard[1])];
            let all = nodes.iter().zip(0..).map(|(&(site, alive), number)| {
                let site = SiteId::new(site).ok();
                (NodeId::new(number).unwrap(), NodeAt { site, alive })
            });
            self.shortfalls.looked(self.now, all, sites.into_iter());
            [self.shortfalls.of(0), self.shortfalls.of(1)]
        }
    }

    #[test]
    fn a_dead_node_is_no_move_and_a_taken_one_is() {
        let mut looks = Looks::new();
        assert_eq!(looks.look(&[(1, true), (1, true), (2, true)], [2, 1])[0].now, None);
        // The second node dies, is set free by somebody, and comes to life elsewhere.
        for nodes in [(1, false), (1, false), (0, false), (2, true)] {
            looks.look(&[(1, true), nodes, (2, true)], [2, 1]);
        }
        let [first, second] = looks.look(&[(1, true), (2, true), (2, true)], [2, 1]);
        assert_eq!((first.now, second), (Some(Cause::Node), BelowHard::default()));
        assert_eq!((first.by(Cause::Node), first.by(Cause::Move)), (4 * STEP, Duration::ZERO));
        looks.look(&[(1, true), (1, true), (2, true)], [2, 1]);
        // Now a living one is taken.
        looks.look(&[(1, true), (2, true), (2, true)], [2, 1]);
        let [first, _] = looks.look(&[(1, true), (2, true), (2, true)], [2, 1]);
        assert_eq!((first.now, first.by(Cause::Move)), (Some(Cause::Move), STEP));
        assert_eq!(first.by(Cause::Node), 4 * STEP);
    }

    #[test]
    fn a_node_that_dies_when_another_moves_is_to_blame() {
        let mut looks = Looks::new();
        looks.look(&[(1, true), (1, true), (1, true)], [2, 0]);
        looks.look(&[(1, true), (1, false), (2, true)], [2, 0]);
        let [first, _] = looks.look(&[(1, true), (1, false), (2, true)], [2, 0]);
        assert_eq!(first.now, Some(Cause::Node));
    }

    #[test]
    fn what_only_one_look_saw_never_was() {
        let mut looks = Looks::new();
        looks.look(&[(1, true), (2, true)], [1, 1]);
        looks.look(&[(2, true), (2, true)], [1, 1]);
        let [first, _] = looks.look(&[(2, true), (1, true)], [1, 1]);
        assert_eq!(first, BelowHard::default());
    }

    #[test]
    fn a_guarantee_that_was_raised_is_not_met_yet() {
        let mut looks = Looks::new();
        looks.look(&[(0, true), (2, true)], [1, 1]);
        let [first, _] = looks.look(&[(0, true), (2, true)], [1, 1]);
        assert_eq!((first.now, first.by(Cause::Unmet)), (Some(Cause::Unmet), STEP));
        looks.look(&[(1, true), (2, true)], [1, 1]);
        looks.look(&[(1, true), (2, true)], [1, 2]);
        let [_, second] = looks.look(&[(1, true), (2, true)], [1, 2]);
        assert_eq!((second.now, second.by(Cause::Unmet)), (Some(Cause::Unmet), STEP));
        // Lowered again, it is met at once.
        let [_, second] = looks.look(&[(1, true), (2, true)], [1, 1]);
        assert_eq!(second.now, None);
    }
}
