//! Table, raw data and the summary.

use super::decision::Decision;
use super::run::{Large, Results, UNLIKE};
use super::seeds::Seeds;
use crate::output::{Text, number, plain, table};
use serde_json::{Value, json};
use sim::scenario::unlike;

/// The most that the largest pool may take for a simulated minute; seconds.
const SECONDS_MAX: f64 = 60.0;
/// The most that one decision may take; microseconds.
const DECISION_US_MAX: f64 = 100.0;
/// Seconds in which the largest pool reads so many nodes at the least: 300 million in a minute.
const READS_PER_SECOND_MIN: u64 = 5_000_000;

/// Under `staged`, of what is served in time under `reconf_pq`: in each pool, and in the median of
/// those whose lightest donor is not the fittest.
const RATIO_MIN: f64 = 0.98;
const RATIO_UNLIKE_MIN: f64 = 1.1;

/// Everything for a reader.
pub(super) fn text(results: &Results) -> String {
    let mut text = Text::default();
    large(&mut text, &results.large);
    decisions(&mut text, &results.decisions);
    text.line("\nTwo equal sites, both with twice the load that they can serve, for a minute:");
    let mut rows = table(["policy", "moves", "after the first second"]);
    for equal in &results.equal {
        rows.add_row([
            equal.policy.to_owned(),
            equal.moves.to_string(),
            equal.late_moves.to_string(),
        ]);
    }
    text.table(&rows);
    unlike_pools(&mut text, results);
    seeds(&mut text, &results.seeds);
    text.line(missed(results));
    text.finish()
}

fn large(text: &mut Text, large: &Large) {
    text.line(format!(
        "10,000 nodes, 500 sites, 50 edges that look every 100 ms, {}, {} simulated seconds:",
        large.policy, large.simulated_s
    ));
    let mut rows = table(["", ""]);
    let mut row = |name: &str, value: String| {
        rows.add_row([name.to_owned(), value]);
    };
    row("wall clock, s", format!("{:.2}", large.wall_s));
    row("CPU time, s", format!("{:.2}", large.cpu_s));
    row("for a simulated minute, s", format!("{:.2}", large.seconds_for_a_minute()));
    row("looks", large.looks.to_string());
    row("nodes read (assignment and load)", large.node_reads.to_string());
    row("moves", large.moves.to_string());
    row("requests", format!("{:.0}", large.requests));
    row("served in 50 ms, %", format!("{:.2}", 100.0 * large.in_time));
    row("violations", large.violations.to_string());
    text.table(&rows);
}

fn decisions(text: &mut Text, decisions: &[Decision]) {
    text.line("\nOne decision of the policy alone, 1,000 nodes and 100 sites; us:");
    let mut rows = table(["policy", "case", "median", "least", "most", "with a move"]);
    for one in decisions {
        let us = |us: f64| format!("{us:.1}");
        let moves = format!("{} of {}", one.with_move, one.views);
        let cells = [us(one.median_us), us(one.low_us), us(one.high_us), moves];
        rows.add_row([one.policy.to_owned(), one.case.to_owned()].into_iter().chain(cells));
    }
    text.table(&rows);
}

fn unlike_pools(text: &mut Text, results: &Results) {
    let all = unlike::summary(&results.unlike);
    text.line(format!(
        "\n{} random pools of unlike nodes, requests served within the objective, {} over {}:\n\
         least {:.3}, median {:.3}; where the lightest donor is not the fittest ({} pools): \
         median {:.3}",
        all.pools, UNLIKE.0, UNLIKE.1, all.least, all.median, all.unlike, all.median_unlike
    ));
}

fn seeds(text: &mut Text, seeds: &Seeds) {
    text.line(format!(
        "\n{} seeds of faults, {:.1} simulated hours in {:.0} s on {} threads ({}):",
        seeds.seeds,
        seeds.simulated_seconds / 3_600.0,
        seeds.wall_s,
        super::seeds::THREADS,
        super::seeds::POLICY
    ));
    let mut rows = table(["", ""]);
    let counts = [
        ("seeds that broke a property", seeds.violations),
        ("looks", seeds.looks),
        ("requests", seeds.requests as u64),
        ("claims", seeds.claims),
        ("moves", seeds.moves),
        ("take-overs: moves that another edge finished", seeds.take_overs),
        ("faults", seeds.faults),
        ("edges that crashed", seeds.crashes),
        ("of those in mid-move", seeds.crashes_in_mid_move),
        ("edges that were stopped", seeds.pauses),
        ("nodes that died", seeds.node_failures),
        ("agents that restarted", seeds.agent_restarts),
        ("homes that were wiped", seeds.wipes),
        ("operations lost", seeds.lost_requests),
        ("replies lost", seeds.lost_replies),
        ("late compare-and-swaps that landed", seeds.late_landed),
        ("late ones that missed", seeds.late_missed),
    ];
    for (name, count) in counts {
        rows.add_row([name.to_owned(), count.to_string()]);
    }
    text.table(&rows);
    text.line(format!("all histories: {}", seeds.histories_hash));
    for broken in &seeds.broken {
        text.line(format!(
            "seed {}: {}; replay: polder simulate --faults {} --policy {} --seed {}",
            broken.seed,
            broken.what,
            sim::scenario::faults::FAULTS,
            super::seeds::POLICY,
            broken.seed
        ));
    }
}

/// The policy whose decisions cost most, in the case that costs most.
fn worst(results: &Results) -> Option<&Decision> {
    results.decisions.iter().max_by(|a, b| a.median_us.total_cmp(&b.median_us))
}

/// The same where a node moves.
fn worst_with_move(results: &Results) -> Option<&Decision> {
    let moving = results.decisions.iter().filter(|decision| decision.with_move > 0);
    moving.max_by(|a, b| a.median_us.total_cmp(&b.median_us))
}

fn missed(results: &Results) -> String {
    let mut missed = Vec::new();
    let (large, seeds) = (&results.large, &results.seeds);
    let seconds = large.seconds_for_a_minute();
    if seconds > SECONDS_MAX {
        missed.push(format!("{seconds:.1} s for the largest pool (most {SECONDS_MAX:.0})"));
    }
    if large.node_reads < large.simulated_s * READS_PER_SECOND_MIN {
        missed.push(format!("{} nodes read", large.node_reads));
    }
    if let Some(worst) = worst(results).filter(|worst| worst.median_us > DECISION_US_MAX) {
        let us = worst.median_us;
        missed.push(format!("{}, {}: {us:.0} us for a decision", worst.policy, worst.case));
    }
    if seeds.violations + large.violations > 0 {
        missed.push(format!("{} runs broke a property", seeds.violations + large.violations));
    }
    for (name, count) in [
        ("take-over", seeds.take_overs),
        ("crash in mid-move", seeds.crashes_in_mid_move),
        ("lost reply", seeds.lost_replies),
    ] {
        if count == 0 {
            missed.push(format!("not one {name}"));
        }
    }
    let pools = unlike::summary(&results.unlike);
    if pools.least < RATIO_MIN || pools.median_unlike < RATIO_UNLIKE_MIN {
        missed.push(format!("unlike nodes: {:.3}, {:.3}", pools.least, pools.median_unlike));
    }
    if results.late_moves() > 0 {
        missed.push(format!("{} moves between equal sites", results.late_moves()));
    }
    if missed.is_empty() {
        return "All that was asked of this figure is met.".to_owned();
    }
    format!("Missed: {}", missed.join("; "))
}

/// The main numbers.
pub(super) fn summary(results: &Results) -> Value {
    let (large, seeds) = (&results.large, &results.seeds);
    let pools = unlike::summary(&results.unlike);
    json!({
        "seconds_for_large_pool": number(Some(large.seconds_for_a_minute())),
        "node_reads": large.node_reads,
        "looks": large.looks,
        "moves": large.moves,
        "decision_us": number(worst_with_move(results).map(|worst| worst.median_us)),
        "decision_policy": worst_with_move(results).map(|worst| worst.policy),
        "decision_worst_us": number(worst(results).map(|worst| worst.median_us)),
        "decision_worst_policy": worst(results).map(|worst| worst.policy),
        "decision_worst_case": worst(results).map(|worst| worst.case),
        "seeds": seeds.seeds,
        "violations": seeds.violations + large.violations,
        "take_overs": seeds.take_overs,
        "crashes_in_mid_move": seeds.crashes_in_mid_move,
        "lost_replies": seeds.lost_replies,
        "equal_sites_late_moves": results.late_moves(),
        "seconds_for_seeds": number(Some(seeds.wall_s)),
        "staged_over_reconf_pq_least": number(Some(pools.least)),
        "staged_over_reconf_pq_unlike": number(Some(pools.median_unlike)),
    })
}

/// Everything that was measured, for machines.
pub(super) fn raw(results: &Results) -> Value {
    json!({
        "large": plain(&results.large),
        "decisions": plain(&results.decisions),
        "seeds": plain(&results.seeds),
        "equal": plain(&results.equal),
        "unlike": results.unlike.iter().map(pool_json).collect::<Vec<_>>(),
    })
}

fn pool_json(one: &unlike::Compared) -> Value {
    json!([one.seed, number(Some(one.ratio)), one.lightest_is_not_fittest])
}
