//! Which nodes each site had, at every instant between two reports of a pool: replayed from its
//! moves.
//!
//! ```text
//! for each node: the moves from its version in the first report to that in the last, each once,
//!                each from where the one before has led: else a move is missing
//!                where its assignment was noise, edges set it free, with whatever version follows:
//!                it left its site at some moment since the move before
//! for each site: its nodes in the first report, and all arrivals and departures since
//! ```
//!
//! A move counts from one instant on, of which the log knows a moment before and one after. Edges
//! are processes of their own, so the noted moments of two moves may overlap; then nothing tells
//! which was first. So there are two answers to how long a site was below a number of nodes: in
//! what order the moves were at best (arrivals as early, departures as late as can be), and in
//! what order they were at worst. A site that was below by the first was below; one that was not
//! by the second was not.

use super::moves::MoveLog;
use crate::status::{MoveRecord, NodeStatus, StatusReport};
use std::collections::BTreeMap;

/// Why moves are no history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// A move is missing: nobody asked in time, or its edge has died.
    #[error("the move of node {node} to its version {version} is not in the log")]
    Missing {
        /// The node.
        node: String,
        /// The version.
        version: u32,
    },
    /// A move does not begin where the one before it ended.
    #[error("node {node} left {left} with version {version}, and was at {was_at}")]
    Torn {
        /// The node.
        node: String,
        /// The version.
        version: u32,
        /// Where the move says that it was.
        left: String,
        /// Where it was.
        was_at: String,
    },
    /// A node of the first report is not in the last one.
    #[error("node {node} is not in both reports")]
    NoSuchNode {
        /// The node.
        node: String,
    },
}

/// How long, and how deep, a site was below a number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Below {
    /// Nanoseconds, whatever the order of moves that overlap.
    pub certain_ns: u64,
    /// Nanoseconds by the worst order.
    pub possible_ns: u64,
    /// The fewest nodes that it had for certain.
    pub fewest: u32,
}

/// A node that changed hands within two moments.
#[derive(Clone, Debug)]
struct Change {
    from: Option<String>,
    to: Option<String>,
    within_ns: (u64, u64),
}

/// Which nodes each site had between two reports.
#[derive(Clone, Debug)]
pub struct NodeHistory {
    start: BTreeMap<String, u32>,
    changes: Vec<Change>,
}

impl NodeHistory {
    /// Replays the moves that lead from one report to another of the same pool. The log must have
    /// been fetched often enough, and once after the last report.
    ///
    /// # Errors
    /// [`HistoryError`] if moves are missing: then nothing is known.
    pub fn replay(
        before: &StatusReport,
        log: &MoveLog,
        after: &StatusReport,
    ) -> Result<Self, HistoryError> {
        let mut by_node: BTreeMap<&str, BTreeMap<u32, &MoveRecord>> = BTreeMap::new();
        for one in log.iter() {
            if let Some(version) = one.version {
                by_node.entry(&one.node).or_default().insert(version, one);
            }
        }
        let none = BTreeMap::new();
        let (mut start, mut changes) = (BTreeMap::new(), Vec::new());
        for first in &before.nodes {
            let node = &first.name;
            let last = after.nodes.iter().find(|last| last.name == *node);
            let last = last.ok_or_else(|| HistoryError::NoSuchNode { node: node.clone() })?;
            if let Some(site) = &first.site {
                *start.entry(site.clone()).or_default() += 1;
            }
            let moves = by_node.get(node.as_str()).unwrap_or(&none);
            changes.extend(lead(first, moves, last.version)?);
        }
        Ok(Self { start, changes })
    }

    /// How many nodes changed hands.
    #[must_use]
    pub fn moves(&self) -> usize {
        self.changes.len()
    }

    /// The nodes of a site over time: from each moment on so many, nanoseconds of the monotonic
    /// clock; at zero those of the first report. By the latest moment at which each move can have
    /// taken effect.
    #[must_use]
    pub fn nodes_of(&self, site: &str) -> Vec<(u64, u32)> {
        self.counts(site, |_, (_, latest)| latest)
    }

    /// How long the site had fewer than `nodes` nodes, from `from_ns` to `to_ns`.
    #[must_use]
    pub fn below(&self, site: &str, nodes: u32, (from_ns, to_ns): (u64, u64)) -> Below {
        let best = self.counts(site, |arrives, (early, late)| if arrives { early } else { late });
        let worst = self.counts(site, |arrives, (early, late)| if arrives { late } else { early });
        Below {
            certain_ns: time_below(&best, nodes, (from_ns, to_ns)),
            possible_ns: time_below(&worst, nodes, (from_ns, to_ns)),
            fewest: fewest(&best, (from_ns, to_ns)),
        }
    }

    /// The site's nodes over time, each change at the moment that `place` picks.
    fn counts(&self, site: &str, place: impl Fn(bool, (u64, u64)) -> u64) -> Vec<(u64, u32)> {
        let mut steps: BTreeMap<u64, i64> = BTreeMap::new();
        for change in &self.changes {
            if change.to.as_deref() == Some(site) {
                *steps.entry(place(true, change.within_ns)).or_default() += 1;
            }
            if change.from.as_deref() == Some(site) {
                *steps.entry(place(false, change.within_ns)).or_default() -= 1;
            }
        }
        let mut count = i64::from(self.start.get(site).copied().unwrap_or(0));
        // The worst order may let a node leave before it has come.
        let clipped = |count: i64| u32::try_from(count.max(0)).unwrap_or(u32::MAX);
        let mut counts = vec![(0, clipped(count))];
        for (at_ns, step) in steps {
            count += step;
            counts.push((at_ns, clipped(count)));
        }
        counts
    }
}

/// The moves of one node, by version, that lead from a report to its version in a later one.
fn lead(
    first: &NodeStatus,
    moves: &BTreeMap<u32, &MoveRecord>,
    last: u32,
) -> Result<Vec<Change>, HistoryError> {
    let node = &first.name;
    let (mut version, mut at, mut since_ns) = (first.version, &first.site, 0);
    // What came before the first report is of no concern.
    let started_ns = moves.get(&first.version).map_or(0, |one| one.effect_ns);
    let is_jump = |one: &MoveRecord| is_freed(one) && one.effect_ns > started_ns;
    let jumps = moves.iter().filter(|(_, one)| is_jump(one));
    let mut jumps: Vec<(u32, &MoveRecord)> = jumps.map(|(&to, &one)| (to, one)).collect();
    jumps.sort_by_key(|(_, one)| one.effect_ns);
    let (mut jumps, mut changes) = (jumps.into_iter(), Vec::new());
    // It ends: each jump is taken once, and between two of them the version grows.
    while version != last {
        let next = version.wrapping_add(1);
        let usual = moves.get(&next).filter(|one| !is_freed(one)).map(|&one| (next, one));
        let missing = || HistoryError::Missing { node: node.clone(), version: next };
        let (then, one) = usual.or_else(|| jumps.next()).ok_or_else(missing)?;
        let mut within_ns = one.swapped_ns.unwrap_or((one.decided_ns, one.effect_ns));
        let mut from = &one.from;
        if is_freed(one) {
            (from, within_ns.0) = (at, since_ns);
        } else if from != at {
            let name = |site: &Option<String>| site.as_deref().unwrap_or("no site").into();
            let (left, was_at) = (name(from), name(at));
            return Err(HistoryError::Torn { node: node.clone(), version: then, left, was_at });
        }
        changes.push(Change { from: from.clone(), to: one.to.clone(), within_ns });
        (version, at, since_ns) = (then, &one.to, within_ns.1);
    }
    Ok(changes)
}

/// Whether it tells of a node that was set free because its assignment was noise.
fn is_freed(one: &MoveRecord) -> bool {
    one.from.is_none() && one.to.is_none()
}

/// The stretches of a series within two moments: how long, and how many.
fn stretches(
    counts: &[(u64, u32)],
    (from_ns, to_ns): (u64, u64),
) -> impl Iterator<Item = (u64, u32)> + '_ {
    counts.iter().enumerate().filter_map(move |(place, &(since, count))| {
        let until = counts.get(place + 1).map_or(u64::MAX, |next| next.0).min(to_ns);
        let since = since.max(from_ns);
        (since < until).then(|| (until - since, count))
    })
}

fn time_below(counts: &[(u64, u32)], nodes: u32, span: (u64, u64)) -> u64 {
    stretches(counts, span).filter(|&(_, count)| count < nodes).map(|(ns, _)| ns).sum()
}

fn fewest(counts: &[(u64, u32)], span: (u64, u64)) -> u32 {
    stretches(counts, span).map(|(_, count)| count).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    fn report(nodes: &[(&str, Option<&str>, u32)]) -> StatusReport {
        let node = |&(name, site, version): &(&str, Option<&str>, u32)| NodeStatus {
            name: name.into(),
            site: site.map(str::to_owned),
            version,
            ..NodeStatus::default()
        };
        StatusReport { nodes: nodes.iter().map(node).collect(), ..example() }
    }

    fn moved(node: &str, version: u32, from: &str, to: &str, within: (u64, u64)) -> MoveRecord {
        MoveRecord {
            node: node.into(),
            from: Some(from.into()),
            to: Some(to.into()),
            version: Some(version),
            effect_ns: within.1,
            swapped_ns: Some(within),
            ..MoveRecord::default()
        }
    }

    fn log(moves: impl IntoIterator<Item = MoveRecord>) -> MoveLog {
        let mut log = MoveLog::default();
        log.add(moves);
        log
    }

    #[test]
    fn nodes_and_the_time_below_a_number_follow_from_the_moves() {
        let before =
            report(&[("n1", Some("red"), 7), ("n2", Some("red"), 0), ("n3", Some("blue"), 0)]);
        let after =
            report(&[("n1", Some("red"), 9), ("n2", Some("blue"), 1), ("n3", Some("blue"), 0)]);
        let log = log([
            // Before the first report: of no concern.
            moved("n1", 7, "blue", "red", (1, 2)),
            moved("n1", 8, "red", "blue", (100, 102)),
            moved("n2", 1, "red", "blue", (200, 210)),
            moved("n1", 9, "blue", "red", (300, 304)),
        ]);
        let history = NodeHistory::replay(&before, &log, &after).unwrap();
        assert_eq!(history.moves(), 3);
        assert_eq!(history.nodes_of("red"), [(0, 2), (102, 1), (210, 0), (304, 1)]);
        assert_eq!(history.nodes_of("blue"), [(0, 1), (102, 2), (210, 3), (304, 2)]);
        let below = history.below("red", 1, (0, 1_000));
        // Left at 210 and back at 300 at best, from 200 to 304 at worst.
        assert_eq!(below, Below { certain_ns: 90, possible_ns: 104, fewest: 0 });
        let below = history.below("red", 2, (150, 1_000));
        assert_eq!((below.certain_ns, below.possible_ns), (850, 850));
        assert_eq!(history.below("red", 1, (400, 1_000)).certain_ns, 0);
        assert_eq!(history.below("blue", 1, (0, 1_000)).possible_ns, 0);
    }

    #[test]
    fn moves_that_overlap_are_given_the_order_that_keeps_the_number() {
        let before =
            report(&[("n1", Some("red"), 0), ("n2", Some("blue"), 0), ("n3", Some("blue"), 0)]);
        let after =
            report(&[("n1", Some("blue"), 1), ("n2", Some("red"), 1), ("n3", Some("blue"), 0)]);
        // The thread that brought n2 to red had to wait before it looked at the clock.
        let log = log([
            moved("n1", 1, "red", "blue", (150, 151)),
            moved("n2", 1, "blue", "red", (100, 900)),
        ]);
        let history = NodeHistory::replay(&before, &log, &after).unwrap();
        let below = history.below("red", 1, (0, 1_000));
        assert_eq!((below.certain_ns, below.possible_ns), (0, 750));
        assert_eq!(below.fewest, 1);
    }

    #[test]
    fn a_node_that_was_set_free_after_noise_leaves_no_gap() {
        let freed = |version, within| MoveRecord {
            from: None,
            to: None,
            ..moved("n1", version, "", "", within)
        };
        let joined =
            |version, within| MoveRecord { from: None, ..moved("n1", version, "", "blue", within) };
        let before = report(&[("n1", Some("red"), 7)]);
        // The noise held a later version, then an earlier one, then the present one.
        let log = log([
            freed(7, (1, 2)),
            moved("n1", 8, "red", "blue", (100, 110)),
            freed(900, (200, 210)),
            joined(901, (300, 310)),
            freed(3, (400, 410)),
            freed(4, (500, 510)),
            joined(5, (600, 610)),
        ]);
        let after = report(&[("n1", Some("blue"), 5)]);
        let history = NodeHistory::replay(&before, &log, &after).unwrap();
        assert_eq!(history.moves(), 6);
        let blue = [(0, 0), (110, 1), (210, 0), (310, 1), (410, 0), (610, 1)];
        assert_eq!(history.nodes_of("blue"), blue);
        // Within (100, 110) it came; nobody saw from when on the noise was there.
        let below = history.below("blue", 1, (110, 310));
        assert_eq!((below.certain_ns, below.possible_ns), (90, 200));
    }

    #[test]
    fn a_missing_move_is_told_and_not_guessed() {
        let before = report(&[("n1", Some("red"), 0)]);
        let after = report(&[("n1", Some("red"), 2)]);
        let replay = |log: MoveLog| NodeHistory::replay(&before, &log, &after).unwrap_err();
        let missing = replay(log([moved("n1", 1, "red", "blue", (1, 2))]));
        assert_eq!(missing, HistoryError::Missing { node: "n1".into(), version: 2 });
        let torn = replay(log([
            moved("n1", 1, "red", "blue", (1, 2)),
            moved("n1", 2, "green", "red", (3, 4)),
        ]));
        assert!(matches!(&torn, HistoryError::Torn { version: 2, .. }), "{torn}");
        let gone = NodeHistory::replay(&before, &MoveLog::default(), &report(&[])).unwrap_err();
        assert_eq!(gone, HistoryError::NoSuchNode { node: "n1".into() });
    }
}
