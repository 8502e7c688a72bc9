//! What sites are promised and want, and what nodes are: reading it, and whether it can be kept.

use super::check::Stage;
use super::fit;
use super::model::{Node, PolicyName, Reads, Settings, Site};
use super::names::{is_name, name_help};
use super::problem::{Findings, Span, one_of};
use super::read::{Marks, SiteMarks};
use super::reader::{At, Table, shown};
use pool_model::{Classes, Guarantee, NodeTraits, Objective, Priority, SiteTerms};
use std::collections::BTreeSet;

/// Places of a site's terms.
#[derive(Default)]
pub(super) struct TermsMarks {
    pub(super) hard: Span,
    pub(super) hard_value: u16,
    pub(super) soft: Option<At<u16>>,
    pub(super) max: Option<At<u16>>,
    priority: Option<Span>,
    objective: Option<Span>,
    unfit: Option<Span>,
    classes: Vec<At<String>>,
}

/// Reads a site's terms; its classes become a set when all names are known. Whether a number of
/// nodes is wrong comes second.
pub(super) fn site(table: &Table<'_>, findings: &Findings) -> (SiteTerms, TermsMarks, bool) {
    let hard_given: Option<At<u16>> = table.integer_given("hard");
    let soft: Option<At<u16>> = table.integer_given("soft");
    let max: Option<At<u16>> = table.integer_given("max");
    let is_spoilt = table.is_spoilt("hard", &hard_given)
        || table.is_spoilt("soft", &soft)
        || table.is_spoilt("max", &max);
    let hard = hard_given.unwrap_or_else(|| table.integer_default("hard"));
    let soft_value = soft.as_ref().map_or(hard.value, |soft| soft.value);
    let max_value = max.as_ref().map_or(u16::MAX, |max| max.value);
    let objective = table.integer_given::<u32>("p99_ms");
    let unfit = table.integer::<u8>("unfit_pct");
    let span = |name: &str| table.get(name).map(toml::Spanned::span);
    let terms = SiteTerms {
        // An impossible triple is reported with the checks across keys.
        guarantee: Guarantee::new(hard.value, soft_value, max_value).unwrap_or_default(),
        priority: Priority(table.integer("priority").value),
        objective: objective.map(|ms| Objective { p99_us: ms.value.saturating_mul(1_000) }),
        wants: Classes::default(),
        unfit_pct: unfit.value,
    };
    let marks = TermsMarks {
        hard: hard.span,
        hard_value: hard.value,
        soft,
        max,
        priority: span("priority"),
        objective: span("p99_ms"),
        unfit: span("unfit_pct"),
        classes: classes(table, findings),
    };
    (terms, marks, is_spoilt)
}

/// Reads what a node is; its classes become a set when all names are known.
pub(super) fn node(table: &Table<'_>, findings: &Findings) -> (NodeTraits, Vec<At<String>>) {
    let capacity_pct = table.integer("capacity_pct").value;
    (NodeTraits { capacity_pct, ..NodeTraits::default() }, classes(table, findings))
}

fn classes(table: &Table<'_>, findings: &Findings) -> Vec<At<String>> {
    let mut classes: Vec<At<String>> = Vec::new();
    for name in table.texts("classes").map(|list| list.value).unwrap_or_default() {
        if !is_name(name.value) {
            let message = format!("`{}` cannot name a class", shown(name.value));
            findings.error(&name.span, message, name_help());
        } else if classes.iter().any(|known| known.value == name.value) {
            let message = format!("class `{}` stands here twice", name.value);
            findings.error(&name.span, message, "remove one of them");
        } else {
            classes.push(At { value: name.value.to_owned(), span: name.span });
        }
    }
    classes
}

/// Makes sets of the names of classes. The bits follow the names' order, not that of the file, so
/// that a list that is written in another order is the same.
pub(super) fn number_classes(settings: &mut Settings, marks: &Marks, findings: &Findings) {
    let sites = marks.sites.iter().flat_map(|mark| &mark.terms.classes);
    let nodes = marks.nodes.iter().flat_map(|mark| &mark.classes);
    let mut names = BTreeSet::new();
    for class in sites.chain(nodes) {
        names.insert(class.value.as_str());
        if names.len() > Classes::COUNT_MAX {
            let max = Classes::COUNT_MAX;
            let message = format!("`{}` is one class more than {max}", class.value);
            findings.error(&class.span, message, "let fewer names say what differs");
            return;
        }
    }
    settings.classes = names.into_iter().map(str::to_owned).collect();
    let set = |given: &[At<String>]| {
        let bit = |class: &At<String>| settings.classes.binary_search(&class.value).ok();
        Classes(given.iter().filter_map(bit).fold(0, |bits, place| bits | 1 << place))
    };
    for (site, mark) in settings.sites.iter_mut().zip(&marks.sites) {
        site.terms.wants = set(&mark.terms.classes);
    }
    for (node, mark) in settings.nodes.iter_mut().zip(&marks.nodes) {
        node.traits.classes = set(&mark.classes);
    }
}

/// Whether the promises to the sites can be kept, each and all together.
pub(super) fn check(settings: &Settings, pool: Stage, marks: &Marks, findings: &Findings) {
    let nodes = settings.nodes.len();
    let (mut hard_sum, mut start_sum) = (0usize, 0usize);
    let mut is_kept = true;
    for (site, mark) in settings.sites.iter().zip(&marks.sites) {
        let name = shown(&site.name);
        if bounds(site, mark, findings) {
            is_kept = false;
        } else if pool == Stage::Starts {
            starts(site, mark, nodes, findings);
        }
        let before = (hard_sum, start_sum);
        hard_sum += usize::from(mark.terms.hard_value);
        start_sum += usize::from(site.nodes);
        if before.0 <= nodes && hard_sum > nodes {
            let message = format!("up to site `{name}`, `hard` sums up to {hard_sum}");
            let help = format!("there are {nodes} nodes: promise less, or add nodes");
            findings.error(&mark.terms.hard, message, help);
        } else if pool == Stage::Starts && before.1 <= nodes && start_sum > nodes {
            let message = format!("up to site `{name}`, sites start with {start_sum} nodes");
            let help = format!("there are {nodes} nodes: start with fewer, or add nodes");
            findings.error(&mark.nodes, message, help);
        }
    }
    // The nodes of a pool that runs are where they are, whatever its sites started with.
    let fits = start_sum <= nodes || pool == Stage::Runs;
    if is_kept && hard_sum <= nodes && fits {
        classes_suffice(settings, pool, marks, findings);
    }
}

/// Reports bounds that are in no order. Whether it did.
fn bounds(site: &Site, mark: &SiteMarks, findings: &Findings) -> bool {
    let (name, terms) = (shown(&site.name), &mark.terms);
    let hard = terms.hard_value;
    if let Some(soft) = terms.soft.as_ref().filter(|soft| soft.value < hard) {
        let message = format!("site `{name}` has `soft` {} below `hard` {hard}", soft.value);
        let help = format!("hard <= soft <= max: write at least {hard}, or lower `hard`");
        findings.error(&soft.span, message, help);
        return true;
    }
    let Some(max) = &terms.max else { return false };
    if hard > max.value {
        let message = format!("site `{name}` has `hard` {hard} above `max` {}", max.value);
        findings.error(&terms.hard, message, format!("write at most {}", max.value));
        return true;
    }
    if let Some(soft) = terms.soft.as_ref().filter(|soft| soft.value > max.value) {
        let message = format!("site `{name}` has `soft` {} above `max` {}", soft.value, max.value);
        let help = format!("hard <= soft <= max: write at most {}, or raise `max`", max.value);
        findings.error(&soft.span, message, help);
        return true;
    }
    false
}

fn starts(site: &Site, mark: &SiteMarks, nodes: usize, findings: &Findings) {
    let (hard, max) = (mark.terms.hard_value, &mark.terms.max);
    if site.nodes < hard || max.as_ref().is_some_and(|max| site.nodes > max.value) {
        let max = max.as_ref().map_or(nodes, |max| usize::from(max.value));
        let message = format!("site `{}` starts with {} nodes", shown(&site.name), site.nodes);
        let help = format!("`hard` and `max` allow {hard} to {max}");
        findings.error(&mark.nodes, message, help);
    }
}

/// Whether there are nodes for all sites that can't do without certain classes.
fn classes_suffice(settings: &Settings, pool: Stage, marks: &Marks, findings: &Findings) {
    let (sites, nodes) = (&settings.sites, &settings.nodes);
    let hard = fit::shortage(sites, nodes, |site| site.terms.guarantee.hard);
    let is_hard = hard.is_some();
    let starts = || fit::shortage(sites, nodes, |site| site.nodes);
    let starts = || if pool == Stage::Starts { starts() } else { None };
    let Some(short) = hard.or_else(starts) else {
        return;
    };
    let Some(last) = short.sites.last().and_then(|&place| marks.sites.get(place)) else { return };
    let names = short.sites.iter().filter_map(|&place| sites.get(place));
    let names: Vec<&str> = names.map(|site| site.name.as_str()).collect();
    let who = match names[..] {
        [name] => format!("site `{}`", shown(name)),
        _ => format!("{} sites (among them {})", names.len(), some_of(&names)),
    };
    let (span, what) = if is_hard {
        (&last.terms.hard, format!("`hard` of {who} sums up to {}", short.wanted))
    } else {
        (&last.nodes, format!("{who} would start with {} nodes", short.wanted))
    };
    let message = match short.there_are {
        0 => format!("{what}, and no node has the classes for it"),
        some => format!("{what}, and only {some} nodes have the classes for it"),
    };
    let help = "promise less, give more nodes these `classes`, or set `unfit_pct` so that other \
                nodes may serve";
    findings.error(span, message, help);
}

fn some_of(names: &[&str]) -> String {
    /// More names than this do not help.
    const NAMED_MAX: usize = 4;
    one_of(names.iter().take(NAMED_MAX).copied()).replace(" or ", " and ")
}

/// What can be used, but hardly was meant.
pub(super) fn oddities(settings: &Settings, marks: &Marks, findings: &Findings) {
    for (site, mark) in settings.sites.iter().zip(&marks.sites) {
        ignored(settings, site, &mark.terms, findings);
        unfit(settings, site, &mark.terms, findings);
    }
    let has_objective = settings.sites.iter().any(|site| site.terms.objective.is_some());
    if settings.pool.policy == PolicyName::Slo && !has_objective {
        let message = "policy `slo` gives nodes by objectives, and no site has one";
        findings.warning(&marks.policy, message, "add `p99_ms` to the sites that promise one");
    }
    let capacity = |node: &Node| node.traits.capacity_pct;
    let differ = settings.nodes.iter().any(|node| capacity(node) != capacity(&settings.nodes[0]));
    if differ && !Reads::of(settings.pool.policy).fitness {
        let name = settings.pool.policy.name();
        let message =
            format!("policy `{name}` takes all nodes for alike, and `capacity_pct` differs");
        findings.warning(&marks.policy, message, "take `staged`, or leave `capacity_pct` out");
    }
}

/// Terms that the pool's policy does not read.
fn ignored(settings: &Settings, site: &Site, mark: &TermsMarks, findings: &Findings) {
    let (policy, name) = (settings.pool.policy, shown(&site.name));
    let reads = Reads::of(policy);
    let keys = [
        ("priority", &mark.priority, reads.priority),
        ("soft", &mark.soft.as_ref().map(|soft| soft.span.clone()), reads.soft),
        ("p99_ms", &mark.objective, reads.objective),
    ];
    for (key, span, is_read) in keys {
        let Some(span) = span.as_ref().filter(|_| !is_read) else { continue };
        let readers = PolicyName::ALL.iter().filter(|policy| match key {
            "priority" => Reads::of(**policy).priority,
            "soft" => Reads::of(**policy).soft,
            _ => Reads::of(**policy).objective,
        });
        let message = format!("policy `{}` does not read `{key}` of site `{name}`", policy.name());
        let readers = one_of(readers.map(|policy| policy.name()));
        findings.warning(span, message, format!("take {readers}, or leave `{key}` out"));
    }
}

/// Classes that come to nothing.
fn unfit(settings: &Settings, site: &Site, mark: &TermsMarks, findings: &Findings) {
    let name = shown(&site.name);
    if let (Some(span), true) = (&mark.unfit, mark.classes.is_empty()) {
        let message = format!("site `{name}` has `unfit_pct` and no `classes`");
        findings.warning(span, message, "every node fits it: leave `unfit_pct` out");
    }
    let has = |node: &Node, at: usize| node.traits.classes.0 >> at & 1 == 1;
    for class in &mark.classes {
        let Ok(at) = settings.classes.binary_search(&class.value) else { continue };
        if !settings.nodes.iter().any(|node| has(node, at)) {
            let message = format!("no node has class `{}` of site `{name}`", class.value);
            let help = format!("give some nodes `classes = [\"{}\"]`", class.value);
            findings.warning(&class.span, message, help);
        }
    }
    let fits = settings.nodes.iter().filter(|node| site.terms.fitness_pct(node.traits) > 0).count();
    let soft = mark.soft.as_ref().filter(|soft| usize::from(soft.value) > fits);
    if let Some(soft) = soft {
        let message =
            format!("`soft` of site `{name}` is {}, and {fits} nodes can serve it", soft.value);
        findings.warning(&soft.span, message, format!("more than {fits} it never has"));
    }
}
