//! Eight edges with real looks, real cores and real machines move nodes under virtual time, one
//! operation at a time in an order drawn from a seed, over plain words in memory.
//!
//! Checked at every instant: floors. Checked over the log of all successful compare-and-swaps:
//! each continues the history of its word, and each version of a node belongs to one site.
//! `POLDER_SEED=n` replays one seed.

mod sim;

use sim::{Faults, Sim};

/// Moves in each run.
const MOVES: u64 = 10_000;

fn seeds() -> Vec<u64> {
    match std::env::var("POLDER_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => vec![1, 2],
    }
}

#[test]
fn without_stalls_every_event_makes_exactly_one_move() {
    for seed in seeds() {
        let mut sim = Sim::new(seed, Faults::NONE);
        sim.run_until_moves(MOVES);
        sim.replay();
        println!("seed {seed}: {}", sim.summary());
        assert_eq!(sim.moves_per_event(), 1.0, "seed {seed}: {}", sim.summary());
        assert_eq!(sim.surplus_events(), 0, "seed {seed}: {}", sim.summary());
    }
}

#[test]
fn crashes_zombies_and_stalls_break_no_floor() {
    for seed in seeds() {
        let faults =
            Faults { crash: 4_000, zombie: 150, stall: 4_000, unreachable: 6_000, wipe: 0 };
        let mut sim = Sim::new(seed, faults);
        sim.run_until_moves(MOVES);
        sim.replay();
        println!("seed {seed}: {}", sim.summary());
        let counters = sim.counters();
        assert!(sim.zombies_landed > 0 && sim.zombies_missed > 0, "seed {seed}: no late swaps");
        assert!(counters.helps > 0, "seed {seed}: nobody had to help");
        assert!(sim.moves_per_event() < 1.1, "seed {seed}: {}", sim.summary());
    }
}

/// The site words are wiped again and again while edges move nodes: all history but the nodes'
/// own words is lost, and rebuilt from them.
#[test]
fn loss_of_history_breaks_no_floor() {
    for seed in seeds() {
        let faults = Faults { crash: 8_000, zombie: 300, stall: 0, unreachable: 0, wipe: 50 };
        let mut sim = Sim::new(seed, faults);
        sim.run_until_moves(MOVES / 10);
        sim.replay();
        println!("seed {seed}: {}", sim.summary());
        let counters = sim.counters();
        assert!(sim.wipes >= 10, "seed {seed}: too few wipes");
        assert!(counters.bumps >= sim.wipes, "seed {seed}: {}", sim.summary());
        assert!(counters.renewed > 0 && counters.floors_set > 0, "seed {seed}");
    }
}
