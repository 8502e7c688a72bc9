//! The pool as it is watched: a picture for a terminal, or a line now and then. Pure.

use super::plan::NODES_USABLE;
use super::text::{Line, count, latency, plural, rate};
use crate::status::MoveRecord;
use crate::terminal::Paint;
use policy::Thresholds;
use std::time::Duration;

/// Moves shown below the table.
pub(super) const MOVES_SHOWN: usize = 5;
/// Blocks of the bar that shows how far the demo is.
const PROGRESS_BLOCKS: usize = 18;

/// How far the demo is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) elapsed: Duration,
    /// How long it takes, about.
    pub(super) total: Duration,
    /// What it is doing.
    pub(super) doing: String,
}

/// One site.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SiteView {
    pub(super) name: String,
    pub(super) nodes: u32,
    pub(super) per_second: f64,
    pub(super) p50_us: u64,
    pub(super) p99_us: u64,
    pub(super) queued: u64,
    /// Nodes that have come to it by moves.
    pub(super) moves: u64,
}

/// One move.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MoveView {
    pub(super) ago_s: f64,
    pub(super) node: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) why: String,
    pub(super) took_ms: Option<f64>,
}

impl MoveView {
    /// A move as an edge told it; `now_ns` is of the monotonic clock.
    pub(super) fn of(told: &MoveRecord, now_ns: u64) -> Self {
        let site = |name: &Option<String>| name.clone().unwrap_or_else(|| "(free)".into());
        let to = site(&told.to);
        let why = match (told.reason.as_str(), told.load) {
            ("load", Some(load)) => format!("load of {to} {load:.2}"),
            ("floor", _) => format!("{to} below its guarantee"),
            (reason, _) => reason.to_owned(),
        };
        let ago_s = now_ns.saturating_sub(told.effect_ns) as f64 / 1e9;
        let took_ms = told.move_ms;
        Self { ago_s, node: told.node.clone(), from: site(&told.from), to, why, took_ms }
    }

    fn line(&self) -> Line {
        let way = format!("{} -> {}", self.from, self.to);
        let took = self.took_ms.map_or("no request yet".into(), |ms| format!("after {ms:.1} ms"));
        Line::of(format!("{:>5.1} s ago  {:<3}", self.ago_s, self.node))
            .paint(Paint::Green, format!(" {way:<15}"))
            .add(format!("  {:<24}  {took}", self.why))
    }
}

/// Everything that is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LiveView {
    pub(super) progress: Progress,
    pub(super) sites: Vec<SiteView>,
    /// The site that has a burst.
    pub(super) burst: Option<usize>,
    /// Requests in flight in a burst.
    pub(super) clients: usize,
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// Newest first.
    pub(super) moves: Vec<MoveView>,
    /// How long a high load lasts before a node moves.
    pub(super) hold_ms: u32,
}

/// The heading of the demo and how far it is.
pub(super) fn head(progress: &Progress) -> Vec<Line> {
    let share = progress.elapsed.as_secs_f64() / progress.total.as_secs_f64().max(0.001);
    let full = ((share * PROGRESS_BLOCKS as f64) as usize).min(PROGRESS_BLOCKS);
    let (elapsed_s, total_s) = (progress.elapsed.as_secs(), progress.total.as_secs());
    vec![
        Line::bold("Polder demo: three sites share eight nodes behind two edges"),
        Line::default()
            .paint(Paint::Green, "█".repeat(full))
            .add("░".repeat(PROGRESS_BLOCKS - full))
            .add(format!("  {elapsed_s:>2} of about {total_s} s  {}", progress.doing)),
        Line::default(),
    ]
}

/// The picture for a terminal.
pub(super) fn picture(view: &LiveView) -> Vec<Line> {
    let mut lines = head(&view.progress);
    lines.push(Line::bold("SITE   NODES       REQUESTS/S       P50       P99    QUEUED  MOVES IN"));
    for (place, site) in view.sites.iter().enumerate() {
        lines.push(site_line(site, view.burst == Some(place)));
    }
    lines.push(Line::default());
    lines.push(requests_line(view));
    lines.push(Line::default());
    lines.push(Line::bold("Last moves"));
    lines.extend(view.moves.iter().take(MOVES_SHOWN).map(MoveView::line));
    lines.extend((view.moves.len()..MOVES_SHOWN).map(|_| Line::default()));
    lines.push(Line::default());
    lines.push(Line::of(format!(
        "A load above {} for {} ms moves a node; each site always keeps one node.",
        Thresholds::default().high(),
        view.hold_ms,
    )));
    lines
}

fn site_line(site: &SiteView, has_burst: bool) -> Line {
    let widest = usize::from(NODES_USABLE);
    let blocks = (site.nodes as usize).min(widest);
    let line = Line::of(format!("{:<7}", site.name))
        .paint(Paint::Green, "■".repeat(blocks))
        .add(" ".repeat(widest - blocks))
        .add(format!(" {:<2}", site.nodes))
        .add(format!("{:>13}", rate(site.per_second)))
        .add(format!("{:>10}{:>10}", latency(site.p50_us), latency(site.p99_us)))
        .add(format!("{:>10}{:>10}", count(site.queued), count(site.moves)));
    if has_burst { line.paint(Paint::Yellow, "  < burst") } else { line }
}

fn requests_line(view: &LiveView) -> Line {
    let failed = format!("{} failed", count(view.failed));
    let line = Line::of(format!("{} so far, ", plural(view.requests, "request")));
    let line = if view.failed == 0 { line.add(failed) } else { line.paint(Paint::Red, failed) };
    match view.burst.and_then(|place| view.sites.get(place)) {
        Some(site) => line.add(format!("; {} clients want {}", view.clients, site.name)),
        None => line,
    }
}

/// The heading above plain lines.
pub(super) fn plain_heading(view: &LiveView) -> Line {
    let names: Vec<&str> = view.sites.iter().map(|site| site.name.as_str()).collect();
    Line::of(format!(
        "{:>5}  {:<6}  {:<15}  {:>10}  {:>8}  {:>8}  {:>6}  {:>5}  {:>6}",
        "TIME",
        "BURST",
        names.join(":"),
        "REQUESTS/S",
        "P50",
        "P99",
        "QUEUED",
        "MOVES",
        "FAILED"
    ))
}

/// The state in one line; rates and latencies are those of the site that has a burst.
pub(super) fn plain_line(view: &LiveView) -> Line {
    let site = view.burst.and_then(|place| view.sites.get(place));
    let nodes: Vec<String> = view.sites.iter().map(|site| site.nodes.to_string()).collect();
    let name = site.map_or("-", |site| site.name.as_str());
    let of = |part: fn(&SiteView) -> String| site.map_or("-".into(), part);
    let moves: u64 = view.sites.iter().map(|site| site.moves).sum();
    let elapsed_s = view.progress.elapsed.as_secs();
    Line::of(format!(
        "{elapsed_s:>3} s  {name:<6}  {:<15}  {:>10}  {:>8}  {:>8}  {:>6}  {:>5}  {:>6}",
        nodes.join(":"),
        of(|site| rate(site.per_second)),
        of(|site| latency(site.p50_us)),
        of(|site| latency(site.p99_us)),
        of(|site| count(site.queued)),
        count(moves),
        count(view.failed),
    ))
}

/// The newest move in one line, to stand below a plain line.
pub(super) fn plain_move(newest: &MoveView) -> Line {
    let MoveView { node, from, to, why, .. } = newest;
    Line::of(format!("       {node} moved from {from} to {to}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::Style;

    fn view() -> LiveView {
        let site = |name: &str, nodes, per_second, p50_us, queued| SiteView {
            name: name.into(),
            nodes,
            per_second,
            p50_us,
            p99_us: p50_us * 2,
            queued,
            moves: 24,
        };
        let moved = MoveView {
            ago_s: 0.31,
            node: "n4".into(),
            from: "news".into(),
            to: "shop".into(),
            why: "load of shop 2.67".into(),
            took_ms: Some(0.82),
        };
        LiveView {
            progress: Progress {
                elapsed: Duration::from_millis(15_400),
                total: Duration::from_secs(60),
                doing: "1 of 2: load moves, nodes follow".into(),
            },
            sites: vec![
                site("shop", 6, 11_842.4, 5_300, 16),
                site("news", 1, 50.2, 2_100, 0),
                site("video", 1, 0.0, 0, 0),
            ],
            burst: Some(0),
            clients: 64,
            requests: 231_234,
            failed: 0,
            moves: vec![moved.clone(), MoveView { took_ms: None, ..moved }],
            hold_ms: 2,
        }
    }

    fn plain(lines: &[Line]) -> Vec<String> {
        lines.iter().map(|line| line.render(Style::PLAIN, usize::MAX)).collect()
    }

    #[test]
    fn a_state_has_its_picture() {
        let expected = "\
Polder demo: three sites share eight nodes behind two edges
████░░░░░░░░░░░░░░  15 of about 60 s  1 of 2: load moves, nodes follow

SITE   NODES       REQUESTS/S       P50       P99    QUEUED  MOVES IN
shop   ■■■■■■ 6        11,842    5.3 ms   10.6 ms        16        24  < burst
news   ■      1            50    2.1 ms    4.2 ms         0        24
video  ■      1             0         -         -         0        24

231,234 requests so far, 0 failed; 64 clients want shop

Last moves
  0.3 s ago  n4  news -> shop     load of shop 2.67         after 0.8 ms
  0.3 s ago  n4  news -> shop     load of shop 2.67         no request yet




A load above 1 for 2 ms moves a node; each site always keeps one node.";
        let lines = plain(&picture(&view()));
        assert_eq!(lines.join("\n"), expected);
        assert!(lines.len() < 24, "a small terminal has 24 lines");
        assert!(lines.iter().all(|line| line.chars().count() < 80));
    }

    #[test]
    fn a_state_has_its_plain_line_without_any_special_character() {
        let mut view = view();
        let heading = plain_heading(&view).render(Style::PLAIN, usize::MAX);
        let line = plain_line(&view).render(Style::PLAIN, usize::MAX);
        let moved = plain_move(&view.moves[0]).render(Style::PLAIN, usize::MAX);
        let expected = "
 TIME  BURST   shop:news:video  REQUESTS/S       P50       P99  QUEUED  MOVES  FAILED
 15 s  shop    6:1:1                11,842    5.3 ms   10.6 ms      16     72       0
       n4 moved from news to shop: load of shop 2.67";
        assert_eq!(["", &heading, &line, &moved].join("\n"), expected);
        assert!([heading, line, moved].concat().is_ascii());
        view.burst = None;
        let quiet = plain_line(&view).render(Style::PLAIN, usize::MAX);
        let words: Vec<&str> = quiet.split_whitespace().collect();
        assert_eq!(words, ["15", "s", "-", "6:1:1", "-", "-", "-", "-", "72", "0"]);
    }

    #[test]
    fn failures_stand_out_and_a_full_bar_is_full() {
        let mut view = view();
        view.failed = 3;
        view.progress.elapsed = Duration::from_secs(75);
        view.sites[0].nodes = 40;
        let style = Style { colour: true, is_terminal: true };
        let lines: Vec<String> =
            picture(&view).iter().map(|line| line.render(style, usize::MAX)).collect();
        assert!(lines.iter().any(|line| line.contains("\u{1b}[31m3 failed\u{1b}[0m")));
        assert!(!lines[1].contains('░'));
        assert!(lines[4].contains("■■■■■■"), "{}", lines[4]);
    }

    #[test]
    fn reasons_are_told_in_words() {
        let mut told = MoveRecord {
            at_unix_ms: 0,
            node: "n1".into(),
            from: None,
            to: Some("shop".into()),
            reason: "load".into(),
            load: Some(1.5),
            edge: 0,
            move_ms: None,
            observed_only: false,
            decided_ns: 0,
            effect_ns: 1_000_000_000,
            first_dispatch_ns: None,
            ..MoveRecord::default()
        };
        let view = MoveView::of(&told, 3_500_000_000);
        assert_eq!((view.from.as_str(), view.why.as_str()), ("(free)", "load of shop 1.50"));
        assert!((view.ago_s - 2.5).abs() < 1e-9);
        told.reason = "floor".into();
        assert_eq!(MoveView::of(&told, 0).why, "shop below its guarantee");
        told.reason = "admin".into();
        assert_eq!(MoveView::of(&told, 0).why, "admin");
    }
}
