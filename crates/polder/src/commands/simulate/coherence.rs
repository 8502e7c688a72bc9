//! `polder simulate --cache --seed S --seeds N`: strict caches under faults, and whether an answer
//! was older than what was committed when its request arrived.

use super::SimulateArguments;
use crate::commands::{CommandError, Output};
use serde_json::{Map, Value, json};
use sim::coherence::{self, Counts, Flaw, Outcome};
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines of the history that are shown where a property did not hold.
const LINES: usize = 60;
/// Seeds that are named where a property did not hold.
const NAMED_MAX: usize = 10;

/// What the seeds showed together.
#[derive(Default)]
struct Sum {
    counts: Counts,
    simulated_s: f64,
    /// A sum, which does not depend on the order in which they ended.
    hash: u64,
    broken: u64,
    /// The first of them.
    named: Vec<(u64, Outcome)>,
}

impl Sum {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.counts.add(&outcome.counts);
        self.simulated_s += outcome.ended_ns as f64 / 1e9;
        self.hash = self.hash.wrapping_add(outcome.history_hash);
        if !outcome.breaches.is_empty() {
            self.broken += 1;
            self.named.push((seed, outcome));
            self.named.sort_unstable_by_key(|(seed, _)| *seed);
            self.named.truncate(NAMED_MAX);
        }
    }
}

pub(super) fn run(arguments: &SimulateArguments) -> Result<Output, CommandError> {
    let (first, count) = (arguments.seed, arguments.seeds);
    let last = first.checked_add(count - 1);
    let last =
        last.ok_or_else(|| CommandError::Argument("--seeds: there are no more".to_owned()))?;
    let (next, sum) = (AtomicU64::new(0), Mutex::new(Sum::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(usize::try_from(count).unwrap_or(threads)) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let outcome = coherence::run(first + at, Flaw::None);
                    sum.lock().expect("no other seed has panicked").add(first + at, outcome);
                }
            });
        }
    });
    let sum = sum.into_inner().expect("no seed has panicked");
    let text =
        if arguments.json { json_of(first, count, &sum) } else { text_of(first, last, &sum) };
    Ok(Output { text, aside: String::new(), has_failed: sum.broken > 0 })
}

fn json_of(first: u64, count: u64, sum: &Sum) -> String {
    let named = sum.counts.named().into_iter();
    let mut object: Map<String, Value> =
        named.map(|(name, count)| (name.to_owned(), count.into())).collect();
    let seeds: Vec<u64> = sum.named.iter().map(|(seed, _)| *seed).collect();
    let more = json!({
        "first_seed": first,
        "seeds": count,
        "operations": sum.counts.operations(),
        "hits_pct": sum.counts.hits_pct(),
        "history": format!("{:016x}", sum.hash),
        "broken": sum.broken,
        "broken_seeds": seeds,
    });
    object.extend(more.as_object().cloned().unwrap_or_default());
    format!("{}\n", Value::Object(object))
}

fn text_of(first: u64, last: u64, sum: &Sum) -> String {
    let Counts { requests, updates, .. } = sum.counts;
    let seeds =
        if first == last { format!("seed {first}") } else { format!("seeds {first}..{last}") };
    let mut text = format!(
        "{seeds}: {} operations in {:.0} s, history {:016x}\n\
         {requests} requests, {:.1} % of the answers hits; {updates} updates\n",
        sum.counts.operations(),
        sum.simulated_s,
        sum.hash,
        sum.counts.hits_pct(),
    );
    let word = |(name, count): &(&str, u64)| format!("{count} {}", name.replace('_', " "));
    for line in sum.counts.named().chunks(6) {
        let words: Vec<String> = line.iter().map(word).collect();
        let _ = writeln!(text, "  {}", words.join(", "));
    }
    for (seed, outcome) in &sum.named {
        for breach in outcome.breaches.iter().take(1) {
            let at_s = breach.at_ns as f64 / 1e9;
            let _ = writeln!(text, "seed {seed}: VIOLATED at {at_s:.6} s: {}", breach.what);
        }
        if first == last {
            let tail = &outcome.history_tail;
            for line in &tail[tail.len().saturating_sub(LINES)..] {
                let _ = writeln!(text, "{line}");
            }
        } else {
            let _ = writeln!(text, "  to see it: polder simulate --cache --seed {seed}");
        }
    }
    if sum.broken == 0 {
        text.push_str("no answer was older than what was committed when its request arrived\n");
    }
    text
}
