//! What the demo came to: the table at its end, the notes beside it, and the same as JSON. Pure.

use super::plan::{ROUNDS, SITES, Scheme};
use super::text::{Line, count, latency, plural, rate};
use super::traffic::Outcome;
use crate::terminal::Paint;
use load::generate::Tally;
use load::stats::{Spread, quantile};
use serde_json::{Value, json};

/// Threads that waited for a CPU for a larger share of the time were disturbed; percent.
const WAIT_PCT_MAX: f64 = 5.0;
/// With fewer moves a 99th percentile is nothing but the longest.
const P99_MOVES_MIN: usize = 100;

/// Requests of a part, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) ok: u64,
    pub(super) failed: u64,
}

impl Counts {
    pub(super) fn add(&mut self, tally: &Tally) {
        self.requests += tally.requests;
        self.ok += tally.ok;
        self.failed += tally.failures.total();
    }
}

/// One run of the comparison.
#[derive(Clone, Debug, Default)]
pub(super) struct Round {
    pub(super) outcome: Outcome,
    /// How many nodes' worth of work the pool did, on average.
    pub(super) busy_nodes: f64,
    /// The share of the time that the thread which waited longest for a CPU waited; percent.
    pub(super) wait_pct: f64,
    /// Nodes of each site: seconds since the start of the round, and from then on so many.
    pub(super) nodes: Vec<(f64, [u32; SITES.len()])>,
}

/// All runs of one scheme.
#[derive(Clone, Debug)]
pub(super) struct SchemeResult {
    pub(super) scheme: Scheme,
    pub(super) nodes: usize,
    pub(super) rounds: Vec<Round>,
}

impl SchemeResult {
    pub(super) fn new(scheme: Scheme) -> Self {
        Self { scheme, nodes: scheme.rig().nodes(), rounds: Vec::new() }
    }

    /// Good responses per second: median and spread of its rounds.
    fn rate(&self) -> Option<Spread> {
        Spread::of(&self.rounds.iter().map(|round| round.outcome.rate()).collect::<Vec<f64>>())
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        self.rounds.iter().for_each(|round| tally.merge(&round.outcome.tally));
        tally
    }

    fn busy_nodes(&self) -> Option<f64> {
        let sum =
            self.rounds.iter().map(|round| round.busy_nodes).reduce(|sum, busy| sum + busy)?;
        Some(sum / self.rounds.len() as f64)
    }

    fn wait_pct(&self) -> f64 {
        self.rounds.iter().map(|round| round.wait_pct).fold(0.0, f64::max)
    }
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) seed: u64,
    /// Whether everything that was planned was done.
    pub(super) is_complete: bool,
    /// All requests of the demo: watched, warming up, compared.
    pub(super) all: Counts,
    /// Requests of the watched part, and how long it was.
    pub(super) watched: Counts,
    pub(super) watched_s: f64,
    pub(super) watched_wait_pct: f64,
    /// In the order of [`Scheme::ALL`].
    pub(super) schemes: Vec<SchemeResult>,
    /// Moves of Polder's pool, watched and compared.
    pub(super) moves: usize,
    /// Of each move that was used: from the look that decided to the first request there.
    pub(super) move_ms: Vec<f64>,
}

impl Results {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            is_complete: false,
            all: Counts::default(),
            watched: Counts::default(),
            watched_s: 0.0,
            watched_wait_pct: 0.0,
            schemes: Scheme::ALL.map(SchemeResult::new).to_vec(),
            moves: 0,
            move_ms: Vec::new(),
        }
    }

    pub(super) fn scheme(&self, scheme: Scheme) -> Option<&SchemeResult> {
        self.schemes.iter().find(|result| result.scheme == scheme)
    }

    pub(super) fn scheme_mut(&mut self, scheme: Scheme) -> Option<&mut SchemeResult> {
        self.schemes.iter_mut().find(|result| result.scheme == scheme)
    }

    /// Median throughput over that of another scheme.
    pub(super) fn ratio(&self, scheme: Scheme, over: Scheme) -> Option<f64> {
        let of = |scheme| Some(self.scheme(scheme)?.rate()?.median);
        let (mine, others) = (of(scheme)?, of(over)?);
        (others > 0.0).then(|| mine / others)
    }

    /// The comparison, also while it is not yet whole.
    pub(super) fn table(&self) -> Vec<Line> {
        let heading =
            "SCHEME            NODES  REQUESTS/S  TO RIGID      P50      P99   BUSY  FAILED";
        let mut lines = vec![Line::bold(heading)];
        lines.extend(self.schemes.iter().map(|result| self.row(result)));
        lines
    }

    fn row(&self, result: &SchemeResult) -> Line {
        let name = result.scheme.name();
        let Some(spread) = result.rate() else {
            return Line::of(format!("{name:<16}  {:>5}  {:>10}", result.nodes, "..."));
        };
        let tally = result.tally();
        let ratio = self.ratio(result.scheme, Scheme::Rigid);
        let failed = format!("{:>8}", count(tally.failures.total()));
        let line = Line::of(format!("{name:<16}  {:>5}  ", result.nodes))
            .paint(Paint::Bold, format!("{:>10}", rate(spread.median)))
            .add(format!("{:>10}", ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"))))
            .add(format!("{:>9}", latency(tally.latency.p50_us())))
            .add(format!("{:>9}", latency(tally.latency.p99_us())))
            .add(format!("{:>7.1}", result.busy_nodes().unwrap_or(0.0)));
        if tally.failures.total() == 0 { line.add(failed) } else { line.paint(Paint::Red, failed) }
    }

    /// What is to be known besides the table.
    pub(super) fn notes(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let spreads = || self.schemes.iter().filter_map(SchemeResult::rate);
        if let Some(widest) = spreads().map(|spread| spread.relative()).reduce(f64::max) {
            let rounds = spreads().map(|spread| spread.count).min().unwrap_or(0) as u64;
            let widest = 100.0 * widest;
            lines.push(Line::of(match rounds {
                1 => "One round each, on the same traffic.".into(),
                _ => format!(
                    "Medians of {rounds} rounds on the same traffic; rounds differ by up to \
                     {widest:.0} %."
                ),
            }));
            lines.push(Line::of("BUSY is how many nodes were at work, on average."));
        }
        lines.push(self.requests_line());
        lines.push(self.moves_line());
        lines.extend(self.short_cpu_note());
        lines
    }

    fn requests_line(&self) -> Line {
        let Counts { requests, failed, .. } = self.all;
        let line = Line::of(format!("In all {}, ", plural(requests, "request")));
        let text = format!("{} failed", count(failed));
        let paint = if failed == 0 { Paint::Green } else { Paint::Red };
        line.paint(paint, text).add(".")
    }

    fn moves_line(&self) -> Line {
        let text = plural(self.moves as u64, "move");
        let at = |share| quantile(&self.move_ms, share);
        let (Some(p50), Some(p99)) = (at(0.5), at(0.99)) else {
            return Line::of(format!("{text}."));
        };
        let high = if self.move_ms.len() < P99_MOVES_MIN { "at most" } else { "p99" };
        Line::of(format!(
            "{text}; from decision to first request there p50 {p50:.2} ms, {high} {p99:.1} ms.",
        ))
    }

    fn short_cpu_note(&self) -> Vec<Line> {
        let compared = self.schemes.iter().map(|result| (result.scheme.name(), result.wait_pct()));
        let watched = [("watched", self.watched_wait_pct)];
        let disturbed: Vec<String> = watched
            .into_iter()
            .chain(compared)
            .filter(|(_, wait_pct)| *wait_pct > WAIT_PCT_MAX)
            .map(|(what, wait_pct)| format!("{what} {wait_pct:.0} %"))
            .collect();
        if disturbed.is_empty() {
            return Vec::new();
        }
        let first = format!("threads waited for one for more than {WAIT_PCT_MAX:.0} % of the time");
        vec![
            Line::default().paint(Paint::Yellow, "CPUs were short: ").add(first),
            Line::of(format!("({}).", disturbed.join(", "))),
        ]
    }

    /// The same for programs.
    pub(super) fn json(&self, svg: Option<&str>) -> Value {
        let schemes: Vec<Value> =
            self.schemes.iter().map(|result| self.scheme_json(result)).collect();
        let sites: Vec<Value> =
            SITES.iter().map(|(name, nodes)| json!({ "name": name, "nodes": nodes })).collect();
        json!({
            "partial": !self.is_complete,
            "seed": self.seed,
            "sites": sites,
            "requests": self.all.requests,
            "ok": self.all.ok,
            "failed": self.all.failed,
            "moves": self.moves,
            "move_ms_p50": quantile(&self.move_ms, 0.5),
            "move_ms_p99": quantile(&self.move_ms, 0.99),
            "watched": {
                "seconds": self.watched_s,
                "requests": self.watched.requests,
                "ok": self.watched.ok,
                "failed": self.watched.failed,
                "cpu_wait_pct": self.watched_wait_pct,
            },
            "schemes": schemes,
            "svg": svg,
        })
    }

    fn scheme_json(&self, result: &SchemeResult) -> Value {
        let tally = result.tally();
        let spread = result.rate();
        json!({
            "scheme": result.scheme.name(),
            "nodes": result.nodes,
            "rounds": result.rounds.len(),
            "requests": tally.requests,
            "ok": tally.ok,
            "failed": tally.failures.total(),
            "requests_per_s": spread.map(|spread| spread.median),
            "requests_per_s_low": spread.map(|spread| spread.low),
            "requests_per_s_high": spread.map(|spread| spread.high),
            "to_rigid": self.ratio(result.scheme, Scheme::Rigid),
            "latency_us_p50": tally.latency.p50_us(),
            "latency_us_p99": tally.latency.p99_us(),
            "busy_nodes": result.busy_nodes(),
            "cpu_wait_pct": result.wait_pct(),
        })
    }

    /// Whether every scheme had all its rounds.
    pub(super) fn has_all_rounds(&self) -> bool {
        self.schemes.iter().all(|result| result.rounds.len() == ROUNDS as usize)
    }
}

/// Made-up results for tests.
#[cfg(test)]
pub(super) fn example() -> Results {
    let mut results = Results::new(7);
    for (result, scale) in results.schemes.iter_mut().zip([10u64, 24, 25]) {
        for round in 0..u64::from(ROUNDS) {
            let mut outcome = Outcome::default();
            (outcome.start_ns, outcome.end_ns) = (1_000_000_000, 3_000_000_000);
            outcome.tally.requests = scale * 1_000 + round * 100;
            outcome.tally.ok = outcome.tally.requests;
            (0..outcome.tally.ok).for_each(|_| outcome.tally.latency.record_ns(5_000_000));
            let nodes = vec![(0.0, [3, 3, 2]), (0.5, [6, 1, 1])];
            result.rounds.push(Round { outcome, busy_nodes: 2.5, wait_pct: 1.0, nodes });
        }
    }
    results.all = Counts { requests: 181_000, ok: 181_000, failed: 0 };
    (results.moves, results.move_ms) = (42, vec![0.5, 0.7, 1.9]);
    results.is_complete = true;
    results
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    fn plain(lines: &[Line]) -> String {
        let lines: Vec<String> =
            lines.iter().map(|line| line.render(Style::PLAIN, usize::MAX)).collect();
        lines.join("\n")
    }

    #[test]
    fn the_table_sets_each_scheme_against_rigid() {
        let expected = "\
SCHEME            NODES  REQUESTS/S  TO RIGID      P50      P99   BUSY  FAILED
rigid                 8       5,050      1.00   5.0 ms   5.0 ms    2.5       0
polder                8      12,050      2.39   5.0 ms   5.0 ms    2.5       0
over-provisioned     18      12,550      2.49   5.0 ms   5.0 ms    2.5       0";
        let text = plain(&example().table());
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.len() < 80));
        assert!(text.is_ascii());
    }

    #[test]
    fn notes_tell_spread_counts_moves_and_short_cpus() {
        let mut results = example();
        let text = plain(&results.notes());
        assert!(text.contains("Medians of 3 rounds on the same traffic"), "{text}");
        assert!(text.contains("differ by up to 2 %"), "{text}");
        assert!(text.contains("In all 181,000 requests, 0 failed."), "{text}");
        assert!(text.contains("42 moves; from") && text.contains("at most 1.9 ms"), "{text}");
        assert!(!text.contains("CPUs"), "{text}");
        results.schemes[1].rounds[0].wait_pct = 23.4;
        let text = plain(&results.notes());
        assert!(text.contains("CPUs were short") && text.contains("(polder 23 %)"));
        results.watched_wait_pct = 29.0;
        results.schemes.iter_mut().for_each(|result| result.rounds[0].wait_pct = 35.0);
        let text = plain(&results.notes());
        assert!(text.lines().all(|line| line.len() < 80), "{text}");
        results.schemes.iter_mut().for_each(|result| result.rounds.truncate(1));
        assert!(plain(&results.notes()).contains("One round each"));
        results.schemes.iter_mut().for_each(|result| result.rounds.clear());
        results.move_ms.clear();
        let text = plain(&results.notes());
        assert!(!text.contains("Medians") && text.contains("\n42 moves."), "{text}");
    }

    #[test]
    fn what_is_not_measured_yet_is_left_open() {
        let mut results = example();
        results.schemes[2].rounds.clear();
        assert!(!results.has_all_rounds());
        let text = plain(&results.table());
        assert!(text.ends_with("over-provisioned     18         ..."), "{text}");
        results.schemes[0].rounds.clear();
        let text = plain(&results.table());
        assert_eq!(text.lines().nth(2).unwrap().split_whitespace().nth(3), Some("-"));
        let json = results.json(None);
        assert!(json["schemes"][2]["busy_nodes"].is_null() && json["svg"].is_null());
    }

    #[test]
    fn json_has_the_figures() {
        let json = example().json(Some("a.svg"));
        assert_eq!(json["partial"], false);
        assert_eq!(json["requests"], 181_000);
        assert_eq!(json["schemes"][1]["scheme"], "polder");
        assert_eq!(json["schemes"][1]["requests_per_s"], 12_050.0);
        assert_eq!(json["move_ms_p99"], 1.9);
        assert_eq!(json["svg"], "a.svg");
        assert!(example().has_all_rounds());
    }
}
