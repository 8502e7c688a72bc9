//! Strict caches over many seeds: no answer is older than what was committed when its request
//! arrived. `POLDER_SEED=n` replays one; `polder simulate --cache --seed n` does the same and
//! shows what happened. `POLDER_SEEDS=n` runs so many.
#![allow(clippy::unwrap_used)]

use sim::coherence::{Counts, Flaw, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const SEEDS: u64 = 200;
/// Cores that a test may use.
const THREADS: usize = 2;
/// Seeds in which a wrong variant must be found out.
const SEEDS_OF_WRONG: u64 = 100;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    match number("POLDER_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("POLDER_SEEDS").unwrap_or(SEEDS),
    }
}

/// Lives through a seed; what happened in it.
fn counts_of(seed: u64) -> Counts {
    let outcome = run(seed, Flaw::None);
    if let Some(first) = outcome.breaches.first() {
        let tail = outcome.history_tail.join("\n");
        panic!("{tail}\nseed {seed}: {first:?}\nreplay: POLDER_SEED={seed}");
    }
    outcome.counts
}

#[test]
fn no_answer_is_older_than_what_was_committed_at_its_arrival() {
    let (seeds, sum) = (seeds(), Mutex::new(Counts::default()));
    let next = AtomicU64::new(*seeds.start());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > *seeds.end() {
                        return;
                    }
                    let counts = counts_of(seed);
                    sum.lock().unwrap().add(&counts);
                }
            });
        }
    });
    let counts = sum.into_inner().unwrap();
    println!("{} operations: {counts:?}, {:.1} % hits", counts.operations(), counts.hits_pct());
    if seeds.count() > 1 {
        assert!(counts.hits_pct() >= 50.0, "{:.1} % hits", counts.hits_pct());
        let never: Vec<_> = counts.named().into_iter().filter(|(_, count)| *count == 0).collect();
        assert_eq!(never, [], "all of it must happen");
    }
}

#[test]
fn a_seed_is_a_history() {
    let (first, again, other) = (run(7, Flaw::None), run(7, Flaw::None), run(8, Flaw::None));
    assert_eq!(first.history_hash, again.history_hash);
    assert_eq!((first.counts, first.history_tail), (again.counts, again.history_tail));
    assert_ne!(first.history_hash, other.history_hash);
}

#[test]
fn wrong_variants_are_found_out() {
    for flaw in Flaw::ALL {
        let is_stale = |seed: &u64| {
            run(*seed, flaw).breaches.iter().any(|breach| breach.what.contains("older than"))
        };
        let first = (1..=SEEDS_OF_WRONG).find(is_stale);
        println!("{flaw:?}: first found by seed {first:?}");
        assert!(first.is_some(), "{flaw:?}: nothing is stale in {SEEDS_OF_WRONG} seeds");
    }
}
