//! Status as tables for a person.

use super::report::{EdgeStatus, MoveRecord, NodeState, NodeStatus, SiteStatus, StatusReport};
use crate::settings::KeyChange;
use crate::terminal::{Paint, Style};
use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Names in one line; more would not fit a terminal.
const NAMES_SHOWN_MAX: usize = 8;

/// Nodes shown one by one; a larger pool is told by its sites, and by `--json`.
const NODES_SHOWN_MAX: usize = 64;
/// A load from which a site is shown as loaded.
const LOAD_HIGH: f64 = 1.0;

/// The whole report.
#[must_use]
pub fn status_text(report: &StatusReport, style: Style) -> String {
    let mut text = headline(report, style);
    text.push('\n');
    text.push_str(&sites_table(&report.sites, style));
    text.push('\n');
    if report.sites.iter().any(|site| !site.classes.is_empty()) {
        text.push_str(&classes_table(&report.sites, style));
        text.push('\n');
    }
    text.push_str(&nodes_table(&report.nodes, style));
    text.push('\n');
    text.push_str(&edges_table(&report.edges, style));
    for (edge, cache) in report.edges.iter().filter_map(|edge| Some((edge, edge.cache.as_ref()?))) {
        let _ = writeln!(text, "Cache of edge {}: {}", edge.edge, cache.line());
    }
    for warning in &report.warnings {
        let _ = write!(text, "\n{} {warning}", style.paint(Paint::Yellow, "warning:"));
    }
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    text
}

fn headline(report: &StatusReport, style: Style) -> String {
    let pool = &report.pool;
    let state = if pool.paused {
        style.paint(Paint::Yellow, "moves are paused")
    } else if pool.mode == "observe" {
        style.paint(Paint::Yellow, "observes only, moves nothing")
    } else {
        format!("policy {}", pool.policy)
    };
    let mut text = format!(
        "{} for {}: {state}, looks every {} ms, holds {} ms, settings {}\n",
        style.paint(Paint::Bold, &format!("Pool {}", pool.name)),
        duration(pool.uptime_s),
        pool.look_every_ms,
        pool.hold_ms,
        pool.settings_hash,
    );
    if let Some(metrics) = &pool.metrics {
        let _ = writeln!(text, "Metrics at http://{metrics}/metrics");
    }
    if !pool.program.is_empty() {
        let (program, pid) = (&pool.program, pool.pid);
        let _ =
            write!(text, "Version {program}, process {pid}; reloaded {}, ", times(pool.reloads));
        let _ = writeln!(text, "upgraded {}", times(pool.upgrades));
    }
    if let Some(change) = &pool.change {
        let first = change.text.lines().next().unwrap_or_default();
        let _ = match change.succeeded {
            Some(true) => writeln!(text, "Last {}: {first}", change.what),
            Some(false) => {
                let failed = style.paint(Paint::Red, &format!("Last {} failed", change.what));
                writeln!(text, "{failed}: {first}")
            }
            None => writeln!(text, "{}", style.paint(Paint::Yellow, &under_way(&change.what))),
        };
    }
    text.push_str(&differs(&pool.differs, style));
    text
}

/// What was set since the file was read.
fn differs(changes: &[KeyChange], style: Style) -> String {
    let mut text = String::new();
    for change in changes.iter().take(NAMES_SHOWN_MAX) {
        let KeyChange { site, key, from, to } = change;
        let shown = |value: &Option<String>| value.as_deref().unwrap_or("not set").to_owned();
        let (from, to) = (shown(from), shown(to));
        let _ = writeln!(
            text,
            "{} sites.{site}.{key} is {to}, the file says {from}",
            style.paint(Paint::Yellow, "Until the next reload:")
        );
    }
    let more = changes.len().saturating_sub(NAMES_SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "and {more} more (`polder site list` counts them)");
    }
    text
}

fn under_way(what: &str) -> String {
    let article = if what.starts_with('u') { "An" } else { "A" };
    format!("{article} {what} is under way")
}

fn times(number: u32) -> String {
    match number {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        many => format!("{many} times"),
    }
}

fn duration(seconds: u64) -> String {
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s} s"),
        (h, m, _) => format!("{h} h {m} min"),
    }
}

/// A table without frames: it reads well, and `awk` and `grep` work on it.
fn table(headings: &[&str], style: Style) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if style.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let heading = |text: &&str| {
        let cell = Cell::new(text);
        if style.colour { cell.add_attribute(comfy_table::Attribute::Bold) } else { cell }
    };
    table.set_header(headings.iter().map(heading).collect::<Vec<Cell>>());
    table
}

fn number(value: impl ToString) -> Cell {
    Cell::new(value).set_alignment(CellAlignment::Right)
}

fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.to_string().lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn sites_table(sites: &[SiteStatus], style: Style) -> String {
    let mut headings = vec![
        "SITE",
        "NODES",
        "HARD",
        "MAX",
        "LOAD",
        "QUEUED",
        "IN FLIGHT",
        "REQ/S",
        "FAILED",
        "REFUSED",
    ];
    let differs = sites.iter().any(|site| site.terms.priority != sites[0].terms.priority);
    if differs {
        headings.insert(1, "PRIORITY");
    }
    let has_soft = sites.iter().any(|site| site.terms.soft != site.hard);
    if has_soft {
        headings.insert(2 + usize::from(differs) + 1, "SOFT");
    }
    let limits = sites.iter().any(|site| site.traffic.limited() > 0);
    if limits {
        headings.push("LIMITED");
    }
    let mut table = table(&headings, style);
    for site in sites {
        let nodes = number(site.nodes);
        let nodes = if site.nodes < site.hard { nodes.fg(Color::Red) } else { nodes };
        let load = number(site.load.map_or("-".into(), |load| format!("{load:.2}")));
        let is_loaded = site.load.is_none_or(|load| load > LOAD_HIGH);
        let mut row = vec![
            Cell::new(&site.name),
            nodes,
            number(site.hard),
            number(site.max.map_or("-".into(), |max| max.to_string())),
            if is_loaded { load.fg(Color::Yellow) } else { load },
            number(site.queued),
            number(site.in_flight),
            number(format!("{:.0}", site.requests_per_s)),
            number(site.failed),
            number(site.refused),
        ];
        if differs {
            row.insert(1, number(site.terms.priority));
        }
        if has_soft {
            let soft = number(site.terms.soft);
            let soft = if site.terms.soft_met { soft } else { soft.fg(Color::Yellow) };
            row.insert(2 + usize::from(differs) + 1, soft);
        }
        if limits {
            row.push(number(site.traffic.limited()));
        }
        table.add_row(row);
    }
    let mut text = lines(&table);
    sites.iter().for_each(|site| kept(&mut text, site));
    text
}

/// How a site's objective and its guarantees are kept, where there is something to tell.
fn kept(text: &mut String, site: &SiteStatus) {
    let (name, terms) = (&site.name, &site.terms);
    if let Some(p99_ms) = terms.p99_ms {
        let share = 100.0 * terms.slower as f64 / site.requests.max(1) as f64;
        let _ = write!(text, "{name}: {} requests ({share:.2} %) took longer than ", terms.slower);
        let _ = match terms.service_ms {
            Some(ms) => writeln!(text, "{p99_ms} ms; servers take {ms:.1} ms each"),
            None => writeln!(text, "{p99_ms} ms"),
        };
    }
    let below = &terms.below_hard;
    if below.unmet_s + below.node_s + below.move_s > 0.0 {
        let (unmet, node, moves) = (below.unmet_s, below.node_s, below.move_s);
        let _ = writeln!(
            text,
            "{name}: below its hard guarantee for {unmet:.1} s before it had it first, {node:.1} s \
             by nodes that failed, {moves:.1} s by moves"
        );
    }
}

fn classes_table(sites: &[SiteStatus], style: Style) -> String {
    let mut table = table(&["SITE", "CLASS", "QUEUED", "REQUESTS", "SHED"], style);
    for site in sites {
        for class in &site.classes {
            table.add_row(vec![
                Cell::new(&site.name),
                Cell::new(&class.name),
                number(class.queued),
                number(class.requests),
                number(class.shed),
            ]);
        }
    }
    lines(&table)
}

fn nodes_table(nodes: &[NodeStatus], style: Style) -> String {
    let mut headings = vec!["NODE", "SITE", "IN FLIGHT", "OF", "STATE", "RESTARTS"];
    let differ = nodes.iter().any(|node| !node.traits.is_usual());
    if differ {
        headings.extend(["CAPACITY", "CLASSES"]);
    }
    let mut table = table(&headings, style);
    for node in nodes.iter().take(NODES_SHOWN_MAX) {
        let colour = match node.state {
            NodeState::Serving => Some(Color::Green),
            NodeState::Free => None,
            NodeState::Waiting | NodeState::Draining => Some(Color::Yellow),
            NodeState::AgentDead | NodeState::Unreachable => Some(Color::Red),
        };
        let state = Cell::new(node.state.name());
        let mut row = vec![
            Cell::new(&node.name),
            Cell::new(node.site.as_deref().unwrap_or("-")),
            number(node.in_flight),
            number(node.max_in_flight),
            colour.map_or(state.clone(), |colour| state.fg(colour)),
            number(node.restarts),
        ];
        if differ {
            row.push(number(format!("{} %", node.traits.capacity_pct)));
            row.push(Cell::new(node.traits.classes.join(" ")));
        }
        table.add_row(row);
    }
    let mut text = lines(&table);
    let more = nodes.len().saturating_sub(NODES_SHOWN_MAX);
    if more > 0 {
        let _ = writeln!(text, "and {more} more nodes (`polder status --json` lists all)");
    }
    text.push_str(&services(nodes));
    text
}

/// How the agents' services are scheduled: a line for each way, with the nodes of it.
fn services(nodes: &[NodeStatus]) -> String {
    let mut ways: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        if let Some(scheduled) = &node.scheduled {
            ways.entry(scheduled).or_default().push(&node.name);
        }
    }
    let mut text = String::new();
    for (scheduled, names) in ways {
        let shown = names.iter().take(NAMES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
        let more = if names.len() > NAMES_SHOWN_MAX { ", ..." } else { "" };
        let _ = writeln!(text, "Answering edges, {scheduled}: {shown}{more}");
    }
    text
}

fn edges_table(edges: &[EdgeStatus], style: Style) -> String {
    let headings = [
        "EDGE",
        "LISTENS ON",
        "PID",
        "AGE",
        "CONNECTIONS",
        "REQ/S",
        "LOOK EVERY",
        "LOOK CPU",
        "MOVES",
    ];
    let mut table = table(&headings, style);
    for edge in edges {
        if !edge.alive {
            let dead = Cell::new(format!("{} (does not answer)", edge.edge)).fg(Color::Red);
            table.add_row(vec![dead, Cell::new(edge.listen.join(" "))]);
            continue;
        }
        if edge.leaving {
            let (listens, pid) = (Cell::new("- (leaves)"), number(edge.pid));
            let age = number(duration(edge.age_s));
            table.add_row(vec![Cell::new(edge.edge), listens, pid, age]);
            continue;
        }
        table.add_row(vec![
            Cell::new(edge.edge),
            Cell::new(edge.listen.join(" ")),
            number(edge.pid),
            number(duration(edge.age_s)),
            number(edge.connections),
            number(format!("{:.0}", edge.requests_per_s)),
            number(format!("{:.1} ms", edge.look_every_ms)),
            number(format!("{:.1} %", edge.look_cpu_pct)),
            number(edge.moves),
        ]);
    }
    lines(&table)
}

/// The log of moves, newest last.
#[must_use]
pub fn moves_table(moves: &[MoveRecord], now_unix_ms: u64, style: Style) -> String {
    if moves.is_empty() {
        return "No node has moved yet.\n".into();
    }
    let headings = ["AGO", "NODE", "FROM", "TO", "REASON", "LOAD", "TOOK", "EDGE"];
    let mut table = table(&headings, style);
    for one in moves {
        let ago_ms = now_unix_ms.saturating_sub(one.at_unix_ms);
        let took = match (one.observed_only, one.move_ms) {
            (true, _) => "observed only".into(),
            (false, Some(move_ms)) => format!("{move_ms:.2} ms"),
            (false, None) => "-".into(),
        };
        table.add_row(vec![
            number(ago(ago_ms)),
            Cell::new(&one.node),
            Cell::new(one.from.as_deref().unwrap_or("(free)")),
            Cell::new(one.to.as_deref().unwrap_or("(free)")),
            Cell::new(&one.reason),
            number(one.load.map_or("-".into(), |load| format!("{load:.2}"))),
            number(took),
            number(one.edge),
        ]);
    }
    lines(&table)
}

fn ago(ms: u64) -> String {
    if ms < 10_000 { format!("{:.1} s", ms as f64 / 1_000.0) } else { duration(ms / 1_000) }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;
    use crate::status::{ClassStatus, Warning};

    #[test]
    fn the_tables_say_who_serves_what() {
        let text = status_text(&example(), Style::PLAIN);
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("shop"), ["shop", "1", "1", "4", "0.75", "3", "9", "1234", "1", "2"]);
        assert_eq!(words("blog")[3], "-");
        assert_eq!(words("n2"), ["n2", "blog", "4", "8", "draining", "1"]);
        assert_eq!(words("n3"), ["n3", "-", "4", "8", "free", "1"]);
        assert!(text.starts_with("Pool pool for 1 h 1 min: policy reconf, looks every 1 ms"));
        assert!(text.contains("http://127.0.0.1:9100/metrics"));
        assert!(text.contains("warning: the agent of node n3 is dead"), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn colours_come_when_asked_for() {
        let text = status_text(&example(), Style { colour: true, is_terminal: true });
        assert!(text.contains("\u{1b}["));
    }

    #[test]
    fn limits_and_failing_servers_are_told_where_there_are_any() {
        let mut report = example();
        assert!(!status_text(&report, Style::PLAIN).contains("LIMITED"));
        let traffic = &mut report.sites[0].traffic;
        (traffic.client_limited, traffic.site_limited) = (30, 4);
        let site = "shop".to_owned();
        let fails =
            |ejected| Warning::RequestsFail { site: site.clone(), edge: 0, failing: 2, ejected };
        report.warnings = vec![fails(2), fails(0)];
        let text = status_text(&report, Style::PLAIN);
        let shop = text.lines().find(|line| line.trim_start().starts_with("shop")).unwrap();
        assert!(text.contains("LIMITED") && shop.ends_with(" 34"), "{text}");
        assert!(text.contains("2 servers of shop fail requests at edge 0, which leaves"), "{text}");
        assert!(text.contains("too many to leave out"), "{text}");
        assert!(text.lines().next().is_some_and(|line| line.len() <= 100));
    }

    #[test]
    fn classes_are_told_where_there_are_any() {
        let mut report = example();
        assert!(!status_text(&report, Style::PLAIN).contains("CLASS"));
        let class =
            |name: &str, shed| ClassStatus { name: name.to_owned(), requests: 70, shed, queued: 2 };
        report.sites[0].classes = vec![class("gold", 0), class("other", 9)];
        let text = status_text(&report, Style::PLAIN);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .skip_while(|line| !line.contains("CLASS"))
            .take(3)
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[1], ["shop", "gold", "2", "70", "0"]);
        assert_eq!(rows[2], ["shop", "other", "2", "70", "9"]);
    }

    #[test]
    fn what_differs_from_the_file_is_told() {
        let mut report = example();
        let change = |key: &str, from: Option<&str>| KeyChange {
            site: "shop".into(),
            key: key.into(),
            from: from.map(str::to_owned),
            to: Some("3".into()),
        };
        report.pool.differs = vec![change("hard", Some("1")), change("max", None)];
        let text = status_text(&report, Style::PLAIN);
        let line = "Until the next reload: sites.shop.hard is 3, the file says 1\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("sites.shop.max is 3, the file says not set"), "{text}");
        report.pool.differs = vec![change("hard", None); NAMES_SHOWN_MAX + 2];
        assert!(status_text(&report, Style::PLAIN).contains("and 2 more"));
    }

    #[test]
    fn terms_are_told_where_they_differ() {
        let mut report = example();
        let plain = status_text(&report, Style::PLAIN);
        assert!(
            !plain.contains("PRIORITY") && !plain.contains("SOFT") && !plain.contains("CLASSES")
        );
        let terms = &mut report.sites[0].terms;
        (terms.priority, terms.soft, terms.soft_met) = (7, 3, false);
        (terms.p99_ms, terms.slower, terms.service_ms) = (Some(50), 25, Some(4.25));
        terms.below_hard.node_s = 1.5;
        report.nodes[1].traits.classes = vec!["gpu".into(), "ssd".into()];
        let text = status_text(&report, Style::PLAIN);
        let words = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().collect()
        };
        let headings = ["SITE", "PRIORITY", "NODES", "HARD", "SOFT", "MAX", "LOAD"];
        assert_eq!(words("SITE")[..7], headings);
        assert_eq!(words("shop")[..6], ["shop", "7", "1", "1", "3", "4"]);
        assert_eq!(words("n2")[6..], ["100", "%", "gpu", "ssd"]);
        let objective =
            "shop: 25 requests (0.50 %) took longer than 50 ms; servers take 4.2 ms each";
        assert!(text.contains(objective), "{text}");
        assert!(text.contains("shop: below its hard guarantee for 0.0 s before"), "{text}");
        assert!(text.contains("1.5 s by nodes that failed, 0.0 s by moves"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn a_dead_edge_a_pause_and_a_large_pool_are_told() {
        let mut report = example();
        report.edges[0].alive = false;
        report.pool.paused = true;
        let node = report.nodes[0].clone();
        report.nodes = vec![node; NODES_SHOWN_MAX + 3];
        let text = status_text(&report, Style::PLAIN);
        assert!(text.contains("0 (does not answer)"), "{text}");
        assert!(text.contains("moves are paused"), "{text}");
        assert!(text.contains("and 3 more nodes"), "{text}");
    }

    #[test]
    fn moves_have_a_reason_and_a_time() {
        let one = MoveRecord {
            at_unix_ms: 1_000,
            node: "n1".into(),
            from: Some("blog".into()),
            to: None,
            reason: "load".into(),
            load: Some(1.5),
            edge: 1,
            move_ms: Some(0.42),
            observed_only: false,
            decided_ns: 0,
            effect_ns: 0,
            first_dispatch_ns: None,
            ..MoveRecord::default()
        };
        let observed = MoveRecord { observed_only: true, ..one.clone() };
        let text = moves_table(&[one, observed], 3_500, Style::PLAIN);
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = ["2.5", "s", "n1", "blog", "(free)", "load", "1.50", "0.42", "ms", "1"];
        assert_eq!(lines[1], expected);
        assert!(text.contains("observed only"));
        assert_eq!(moves_table(&[], 0, Style::PLAIN), "No node has moved yet.\n");
    }
}
