//! The properties under faults, over many seeds. `POLDER_SEED=n` replays one; `polder simulate
//! --faults 10 --seed n` does the same and shows what happened.
#![allow(clippy::unwrap_used)]

use policy::{Candidate, Kind, Policy, Thresholds};
use pool_model::{PoolView, Reason, SiteId};
use sim::scenario::{equal, faults, stall};
use sim::{FaultCounts, Outcome};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 200;
/// Cores that a test may use.
const THREADS: usize = 2;

fn policy() -> Box<dyn Policy> {
    Kind::ReconfPq.build(Thresholds::default())
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    match std::env::var("POLDER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..=seed,
        None => 1..=SEEDS,
    }
}

/// Runs all seeds on some threads.
fn all(each: impl Fn(u64) -> Outcome + Sync) -> Vec<(u64, Outcome)> {
    let (seeds, done) = (seeds(), Mutex::new(Vec::new()));
    let next = AtomicU64::new(*seeds.start());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > *seeds.end() {
                        return;
                    }
                    let outcome = each(seed);
                    done.lock().unwrap().push((seed, outcome));
                }
            });
        }
    });
    done.into_inner().unwrap()
}

#[test]
fn no_fault_breaks_a_property() {
    let (mut counts, mut helps, mut moves) = (FaultCounts::default(), 0, 0);
    for (seed, outcome) in all(|seed| faults::run(seed, faults::FAULTS, policy()).unwrap()) {
        if let Some(first) = outcome.violations.first() {
            let tail = outcome.history_tail.join("\n");
            panic!("{tail}\nseed {seed}: {first:?}\nreplay: POLDER_SEED={seed}");
        }
        counts.add(&outcome.faults);
        helps += outcome.counters.helps;
        moves += outcome.moves_total;
        let left: f64 = outcome.sites.iter().map(|site| site.left).sum();
        assert!(outcome.ended_ns >= 60_000_000_000 && left == 0.0, "seed {seed}: {left} left");
    }
    println!("{moves} moves, {helps} take-overs, {counts:?}");
    if seeds().count() > 1 {
        assert!(helps > 0 && counts.crashes_in_mid_move > 0 && counts.replies_lost > 0);
        assert!(counts.late_landed > 0 && counts.late_missed > 0 && counts.wipes > 0);
    }
}

#[test]
fn a_seed_is_a_history() {
    let run = |seed| faults::run(seed, faults::FAULTS, policy()).unwrap();
    let (first, again, other) = (run(7), run(7), run(8));
    assert_eq!(first.history_hash, again.history_hash);
    assert_eq!(first.history_tail, again.history_tail);
    assert_ne!(first.history_hash, other.history_hash);
}

#[test]
fn two_equal_sites_that_are_both_overloaded_leave_each_other_alone() {
    for kind in Kind::ALL {
        let outcome = equal::run(1, 60, kind.build(Thresholds::default())).unwrap();
        assert!(outcome.slow_share() > 0.4, "{kind}: they are overloaded");
        let late = outcome.last_move_ns.filter(|&at_ns| at_ns > 1_000_000_000);
        assert_eq!(late, None, "{kind}: {:?}", outcome.moves);
    }
}

/// A policy that counts as light who is so in a single look.
struct Hasty(Box<dyn Policy>);

impl Policy for Hasty {
    fn name(&self) -> &'static str {
        "hasty"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        self.0.need(view, site)
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, reason: Reason) -> Vec<Candidate> {
        self.0.candidates(view, taker, reason)
    }
}

#[test]
fn a_stall_takes_no_node_from_a_busy_site() {
    for kind in [Kind::Reconf, Kind::ReconfP, Kind::ReconfPq, Kind::Staged] {
        let policy = || kind.build(Thresholds::default());
        let outcome = stall::run(1, 20, policy()).unwrap();
        // Until there is load both may be light.
        let late = outcome.last_move_ns.filter(|&at_ns| at_ns > 200_000_000);
        assert_eq!(late, None, "{kind}: {:?}", outcome.moves);
        let hasty = stall::run(1, 20, Box::new(Hasty(policy()))).unwrap();
        println!("{kind}: {} moves, {} without the rule", outcome.moves_total, hasty.moves_total);
        assert!(hasty.moves_total > outcome.moves_total, "{kind}: no stall tempted it");
    }
}

/// What a wrong policy does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A loaded site takes from whom it likes, however loaded that one is.
    Greed,
    /// It names nodes, but those of donors that must not give any.
    Vanity,
}

#[derive(Clone, Copy, Debug)]
struct Wrong(Flaw);

impl Policy for Wrong {
    fn name(&self) -> &'static str {
        "wrong"
    }

    fn need(&self, view: &PoolView, site: SiteId) -> Option<Reason> {
        (view.site(site)?.load() > 1.0).then_some(Reason::Load)
    }

    fn candidates(&self, view: &PoolView, taker: SiteId, _: Reason) -> Vec<Candidate> {
        let gives = |site: SiteId| {
            let site = view.site(site).unwrap();
            (site.nodes > site.terms.guarantee.hard) == (self.0 == Flaw::Greed)
        };
        let others = view.nodes.iter().filter(|node| node.site.is_some_and(|site| site != taker));
        let given = others.filter(|node| node.site.is_some_and(gives)).take(1);
        given.map(|node| Candidate { node: node.id, donor: node.site }).collect()
    }
}

/// The monitor notices policies that no protocol can make good; floors hold all the same.
#[test]
fn wrong_policies_are_found_out() {
    for (flaw, what) in [(Flaw::Greed, "(ping-pong)"), (Flaw::Vanity, "none came")] {
        let run = |seed| faults::run(seed, 0, Box::new(Wrong(flaw))).unwrap();
        let outcomes: Vec<Outcome> = (1..=20).map(run).collect();
        let all = || outcomes.iter().flat_map(|outcome| &outcome.violations);
        assert!(all().any(|violation| violation.what.contains(what)), "{flaw:?}: nothing");
        assert!(!all().any(|violation| violation.what.contains("below hard")), "{flaw:?}");
    }
}
