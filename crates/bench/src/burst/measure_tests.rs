//! Bursts, moves and rotations made up by hand, and what they must come to.

use super::super::scenario::B;
use super::*;
use load::generate::Tally;
use polder::status::MoveRecord;

const MS: u64 = 1_000_000;

fn report(site: usize, start_ms: u64, ok_at_ms: &[u64]) -> BurstReport {
    let tally = Tally { ok: ok_at_ms.len() as u64, ..Tally::default() };
    let ok_at_ns: Vec<u64> = ok_at_ms.iter().map(|at| at * MS).collect();
    let end_ns = ok_at_ns.last().copied().unwrap_or(start_ms * MS);
    BurstReport { site, start_ns: start_ms * MS, end_ns, tally, ok_at_ns, ..BurstReport::default() }
}

fn moved(to: &str, decided_ms: u64, first_ms: Option<u64>) -> MoveRecord {
    MoveRecord {
        at_unix_ms: 0,
        node: "n1".into(),
        from: None,
        to: Some(to.into()),
        reason: "load".into(),
        load: None,
        edge: 0,
        move_ms: None,
        observed_only: false,
        decided_ns: decided_ms * MS,
        effect_ns: decided_ms * MS,
        first_dispatch_ns: first_ms.map(|at| at * MS),
        ..MoveRecord::default()
    }
}

fn rotation(kept: bool, seconds: &[f64]) -> Rotation {
    let mut start_ms = 1_000;
    let mut bursts = Vec::new();
    for (site, seconds) in seconds.iter().enumerate() {
        let end_ms = start_ms + (seconds * 1e3) as u64;
        bursts.push(Burst::of(&report(site, start_ms, &[end_ms; 100]), kept));
        start_ms = end_ms;
    }
    Rotation { bursts, full_use_pct: Some(50.0), used_nodes: vec![], cost: Cost::default() }
}

fn cell(scheme: Scheme, rotations: Vec<Rotation>) -> Cell {
    let round = Round { requests: 100, rotations: 0, sites: 0, discarded_bursts: 0 };
    Cell { rotations, ..Cell::new(scheme, &round) }
}

#[test]
fn a_burst_knows_when_it_got_how_far() {
    let at: Vec<u64> = (0..200).map(|place| 1_001 + place / 10).collect();
    let burst = Burst::of(&report(2, 1_000, &at), true);
    assert_eq!(burst.milestones_ms, [Some(7.0), Some(13.0), None, None]);
    assert_eq!((burst.beginning[0], burst.beginning[4], burst.beginning[59]), (10.0, 50.0, 200.0));
    assert!((burst.throughput() - 200.0 / 0.02).abs() < 1e-6);
}

#[test]
fn only_moves_to_its_site_within_it_count_for_a_burst() {
    let mut log = MoveLog::default();
    log.add([
        moved("red", 990, Some(1_001)),
        moved("red", 1_002, Some(1_005)),
        moved("blue", 1_003, Some(1_004)),
        moved("red", 1_006, None),
        moved("red", 1_007, Some(1_008)),
        moved("red", 1_019, Some(1_030)),
        moved("red", 1_021, Some(1_022)),
    ]);
    let mut burst = Burst::of(&report(0, 1_000, &[1_020]), true);
    burst.add_moves(&log, "red");
    assert_eq!(burst.moves, 4);
    assert_eq!(burst.move_ms, [3.0, 1.0], "the one at 1,030 came after the burst");
    assert_eq!(burst.react_ms, Some(5.0));
}

#[test]
fn discarded_bursts_count_for_failures_only() {
    let mut first = rotation(false, &[1.0, 1.0]);
    first.bursts[0].failed = 3;
    first.bursts[0].moves = 9;
    let kept = rotation(true, &[0.5, 0.5]);
    let cells = vec![cell(Scheme::Reconf, vec![first, kept.clone(), kept.clone(), kept])];
    let measured = Measured { scenario: B, cells };
    assert_eq!((measured.failed(), measured.moves(), measured.reconf_bursts()), (3, 0, 6));
    assert!(measured.cells[0].typical().unwrap().bursts[0].kept);
    let spread = measured.cells[0].throughput().unwrap();
    assert!((spread.median - 200.0).abs() < 1e-6 && spread.count == 3, "{spread:?}");
}

#[test]
fn few_rotations_give_the_spread_of_their_bursts() {
    let cell = cell(Scheme::Rigid, vec![rotation(true, &[0.5, 1.0, 2.0])]);
    let spread = cell.throughput().unwrap();
    assert_eq!(spread.count, 3);
    assert!((spread.median - 100.0).abs() < 1e-6 && (spread.low - 50.0).abs() < 1e-6);
}

#[test]
fn ratios_are_of_medians_and_missing_cells_give_none() {
    let fast = cell(Scheme::Reconf, vec![rotation(true, &[0.4, 0.4, 0.4])]);
    let slow = cell(Scheme::Rigid, vec![rotation(true, &[1.0, 1.0, 1.0])]);
    let measured = Measured { scenario: B, cells: vec![fast, slow] };
    let ratio = measured.ratio(Scheme::Reconf, Scheme::Rigid, 100).unwrap();
    assert!((ratio - 2.5).abs() < 1e-6);
    assert_eq!(measured.ratio(Scheme::Reconf, Scheme::OverProvisioned, 100), None);
    assert_eq!(measured.ratio(Scheme::Reconf, Scheme::Rigid, 512), None);
    assert_eq!(measured.sizes(), [100]);
}

#[test]
fn a_disturbed_rotation_shows_in_its_cell() {
    let mut bad = rotation(true, &[1.0]);
    bad.cost.wait_pct = 9.0;
    let mut discarded = rotation(false, &[1.0]);
    discarded.cost.wait_pct = 30.0;
    let cell = cell(Scheme::Rigid, vec![discarded, rotation(true, &[1.0]), bad]);
    assert_eq!(cell.disturbed(), 1);
    assert!((cell.wait_pct() - 9.0).abs() < 1e-9);
    assert_eq!(quantiles(&[]), [None, None, None]);
    assert_eq!(quantiles(&[3.0, 1.0, 2.0]), [Some(2.0), Some(3.0), Some(3.0)]);
}
