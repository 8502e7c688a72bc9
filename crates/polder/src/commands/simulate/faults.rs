//! `polder simulate --faults N --seed S`: one seed of the fault simulation, and what happened.

use super::SimulateArguments;
use crate::commands::{CommandError, Output};
use policy::{Kind, Thresholds};
use serde_json::json;
use sim::scenario::faults;
use std::fmt::Write as _;

/// Lines of the history that are shown where a property did not hold.
const LINES: usize = 60;

pub(super) fn run(arguments: &SimulateArguments, count: usize) -> Result<Output, CommandError> {
    let kind = arguments.policy.first().copied().unwrap_or(Kind::ReconfPq);
    let policy = kind.build(Thresholds::default());
    let seed = arguments.seed;
    let outcome = faults::run(seed, count, policy)
        .map_err(|error| CommandError::Argument(error.to_string()))?;
    let has_failed = outcome.violations_total > 0;
    let (counts, counters) = (&outcome.faults, &outcome.counters);
    if arguments.json {
        let violations: Vec<String> =
            outcome.violations.iter().map(|violation| violation.what.clone()).collect();
        let object = json!({
            "seed": seed,
            "policy": kind.name(),
            "history": format!("{:016x}", outcome.history_hash),
            "violations": violations,
            "requests": outcome.arrived(),
            "moves": outcome.moves_total,
            "take_overs": counters.helps,
            "faults": counts.faults,
            "crashes": counts.crashes,
            "crashes_in_mid_move": counts.crashes_in_mid_move,
            "lost_requests": counts.requests_lost,
            "lost_replies": counts.replies_lost,
            "late_landed": counts.late_landed,
            "late_missed": counts.late_missed,
        });
        return Ok(Output { text: format!("{object}\n"), aside: String::new(), has_failed });
    }
    let mut text = format!(
        "seed {seed}, {kind}: {} nodes, {} edges, {} faults, {:.0} s, history {:016x}\n\
         moves {}, finished by another edge {}; edges crashed {}, in mid-move {};\n\
         lost operations {}, lost replies {}; late compare-and-swaps landed {}, missed {}\n",
        faults::NODES,
        faults::EDGES,
        counts.faults,
        outcome.ended_ns as f64 / 1e9,
        outcome.history_hash,
        outcome.moves_total,
        counters.helps,
        counts.crashes,
        counts.crashes_in_mid_move,
        counts.requests_lost,
        counts.replies_lost,
        counts.late_landed,
        counts.late_missed,
    );
    for violation in &outcome.violations {
        let at_s = violation.at_ns as f64 / 1e9;
        let _ = writeln!(text, "VIOLATED at {at_s:.6} s: {}", violation.what);
    }
    if has_failed {
        let tail = &outcome.history_tail;
        for line in &tail[tail.len().saturating_sub(LINES)..] {
            let _ = writeln!(text, "{line}");
        }
    } else {
        text.push_str("every property held\n");
    }
    Ok(Output { text, aside: String::new(), has_failed })
}
