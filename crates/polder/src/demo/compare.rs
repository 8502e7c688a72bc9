//! The second part: the same traffic, in turn, for three pools that run side by side.

use super::DemoError;
use super::plan::{BURST_COMPARED, Burst, ROUNDS, SITES, Scheme, bursts, run_length, warm_up};
use super::results::{Results, Round};
use super::stage::{Stage, wait_pct};
use super::text::{Line, rate};
use super::traffic::{Live, Outcome, Traffic};
use super::view::head;
use crate::rig::{MoveLog, Rig};
use load::clock::window_of;
use load::stub::StubRecord;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the picture is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);

/// One pool of the comparison.
pub(super) struct Contender {
    pub(super) scheme: Scheme,
    pub(super) rig: Rig,
}

/// Runs all rounds, or those until somebody asks to stop. `contenders` are in the order of
/// [`Scheme::ALL`]; `log` has the moves of Polder's pool so far. Blocks for the rest of the demo's
/// time.
pub(super) fn compare(
    stage: &mut Stage<'_>,
    contenders: &[Contender],
    log: &mut MoveLog,
    results: &mut Results,
) -> Result<(), DemoError> {
    for contender in contenders {
        let outcome = run(stage, contender, warm_up(), "2 of 2: warming up", results)?;
        results.all.add(&outcome.tally);
    }
    let traffic = bursts(results.seed, run_length(stage.left()), BURST_COMPARED);
    for number in 1..=ROUNDS {
        for contender in contenders {
            if stage.is_cancelled() {
                return Ok(());
            }
            let name = contender.scheme.name();
            let doing = format!("2 of 2: round {number} of {ROUNDS}, {name}");
            let round = one_round(stage, contender, &traffic, &doing, log, results)?;
            if !stage.draws() {
                stage.say(&[plain_line(stage, number, name, &round.outcome)]);
            }
            // A round that was cut short says nothing about its scheme.
            if !stage.is_cancelled()
                && let Some(result) = results.scheme_mut(contender.scheme)
            {
                result.rounds.push(round);
            }
        }
    }
    Ok(())
}

fn one_round(
    stage: &mut Stage<'_>,
    contender: &Contender,
    traffic: &[Burst],
    doing: &str,
    log: &mut MoveLog,
    results: &mut Results,
) -> Result<Round, DemoError> {
    let rig = &contender.rig;
    let before = rig.cpu();
    let outcome = run(stage, contender, traffic.to_vec(), doing, results)?;
    results.all.add(&outcome.tally);
    let wait_pct = wait_pct(&rig.cpu().since(&before), outcome.wait_ns);
    let windows = (window_of(outcome.start_ns), window_of(outcome.end_ns));
    let busy_nodes = busy_nodes(&rig.stub_record(windows.0)?, windows);
    let mut nodes = Vec::new();
    if contender.scheme == Scheme::Polder {
        log.add(rig.moves()?);
        nodes = nodes_over_time(log, outcome.start_ns, outcome.end_ns);
    }
    Ok(Round { outcome, busy_nodes, wait_pct, nodes })
}

/// Makes load until it is over, and shows what is known meanwhile.
fn run(
    stage: &mut Stage<'_>,
    contender: &Contender,
    bursts: Vec<Burst>,
    doing: &str,
    results: &Results,
) -> Result<Outcome, DemoError> {
    let traffic = Traffic::start(contender.rig.load(), bursts, &Live::new(SITES.len()))?;
    while !traffic.is_over() {
        let mut lines = head(&stage.progress(doing));
        lines.extend(results.table());
        stage.draw(&lines);
        stage.pause(DRAW_EVERY, || traffic.is_over());
    }
    traffic.finish()
}

fn plain_line(stage: &Stage<'_>, number: u32, name: &str, outcome: &Outcome) -> Line {
    let (elapsed_s, per_second) = (stage.elapsed().as_secs(), rate(outcome.rate()));
    Line::of(format!(
        "{elapsed_s:>3} s  round {number} of {ROUNDS}  {name:<16}  {per_second:>7} requests/s"
    ))
}

/// How many nodes' worth of work was done on average in the windows from the first to before the
/// second.
fn busy_nodes(record: &StubRecord, windows: (u64, u64)) -> f64 {
    let count = windows.1.saturating_sub(windows.0);
    let in_window = |window| -> f64 { record.nodes.iter().map(|n| n.busy_share(window)).sum() };
    let sum: f64 = (windows.0..windows.1).map(in_window).sum();
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Nodes of each site from `start_ns` to `end_ns`: seconds since the start, and from then on so
/// many.
fn nodes_over_time(log: &MoveLog, start_ns: u64, end_ns: u64) -> Vec<(f64, [u32; SITES.len()])> {
    let mut nodes = SITES.map(|(_, nodes)| u32::from(nodes));
    let mut over_time = BTreeMap::from([(start_ns, nodes)]);
    let place =
        |name: &Option<String>| SITES.iter().position(|(site, _)| Some(*site) == name.as_deref());
    for one in log.iter().take_while(|one| one.effect_ns < end_ns) {
        if let Some(from) = place(&one.from) {
            nodes[from] = nodes[from].saturating_sub(1);
        }
        if let Some(to) = place(&one.to) {
            nodes[to] += 1;
        }
        over_time.insert(one.effect_ns.max(start_ns), nodes);
    }
    let seconds = |at_ns: u64| (at_ns - start_ns) as f64 / 1e9;
    over_time.into_iter().map(|(at_ns, nodes)| (seconds(at_ns), nodes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::MoveRecord;
    use load::stub::{NodeRecord, SiteRecord};

    fn moved(effect_ns: u64, from: &str, to: &str) -> MoveRecord {
        MoveRecord {
            at_unix_ms: 0,
            node: "n1".into(),
            from: Some(from.into()),
            to: Some(to.into()),
            reason: "load".into(),
            load: None,
            edge: 0,
            move_ms: None,
            observed_only: false,
            decided_ns: effect_ns,
            effect_ns,
            first_dispatch_ns: None,
            ..MoveRecord::default()
        }
    }

    #[test]
    fn nodes_of_sites_follow_from_the_moves_before_and_within_a_round() {
        let mut log = MoveLog::default();
        log.add([
            moved(500, "news", "shop"),
            moved(1_000_000_000, "video", "shop"),
            moved(3_000_000_000, "shop", "news"),
            moved(9_000_000_000, "shop", "news"),
        ]);
        let nodes = nodes_over_time(&log, 2_000_000_000, 5_000_000_000);
        assert_eq!(nodes, [(0.0, [5, 2, 1]), (1.0, [4, 3, 1])]);
        assert_eq!(nodes_over_time(&MoveLog::default(), 7, 9), [(0.0, [3, 3, 2])]);
    }

    #[test]
    fn busy_nodes_are_an_average_over_windows() {
        let node = |busy: &[u64]| NodeRecord {
            first_window: 10,
            window_capacity_ns: 100,
            sites: vec![SiteRecord { busy_ns: busy.to_vec(), ..SiteRecord::default() }],
            ..NodeRecord::default()
        };
        let nodes = vec![node(&[100, 100, 50]), node(&[0, 100, 0])];
        let record = StubRecord { nodes, ..StubRecord::default() };
        assert!((busy_nodes(&record, (10, 12)) - 1.5).abs() < 1e-9);
        assert_eq!(busy_nodes(&record, (12, 12)), 0.0);
    }
}
