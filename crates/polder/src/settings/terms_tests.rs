//! Settings: what sites are promised and what nodes are.

use super::tests::{GOOD, good, one_problem, wrong};
use super::*;
use pool_model::{Classes, Priority, SiteId};
use proptest::prelude::*;

/// The good file with lines for its second site and its nodes.
fn with(site: &str, nodes: &str) -> String {
    GOOD.replace("name = \"blog\"\n", &format!("name = \"blog\"\n{site}\n"))
        .replace("name = \"n\"\n", &format!("name = \"n\"\n{nodes}\n"))
}

/// Two groups of nodes, `plain` without classes and `gpu` with them.
fn grouped(sites: &[&str], groups: &[(usize, &str)]) -> String {
    let mut text = String::new();
    for (number, lines) in sites.iter().enumerate() {
        let name = format!("s{number}");
        text += &format!("[[sites]]\nname = '{name}'\nhosts = ['{name}']\n{lines}\n");
        text += "command = ['serve', '{port}']\n";
    }
    for (number, (count, classes)) in groups.iter().enumerate() {
        text += &format!("[[nodes]]\nname = 'g{number}-'\ncount = {count}\n");
        if !classes.is_empty() {
            text += &format!("classes = [{classes}]\n");
        }
    }
    text
}

fn settings(text: &str) -> Settings {
    parse("x", text, &[]).unwrap_or_else(|problems| panic!("{problems}\n{text}")).settings
}

#[test]
fn terms_and_traits_are_read_with_their_defaults() {
    let plain = good();
    let terms = plain.sites[1].terms;
    assert_eq!(terms, pool_model::SiteTerms::default());
    assert_eq!(plain.nodes[0].traits, pool_model::NodeTraits::default());
    let site = "priority = 7\nhard = 2\nsoft = 3\nmax = 4\np99_ms = 50\nclasses = ['ssd', 'gpu']\n\
                unfit_pct = 30";
    let full = settings(&with(site, "capacity_pct = 250\nclasses = ['gpu', 'ssd']"));
    let terms = full.sites[1].terms;
    assert_eq!((terms.guarantee.hard, terms.guarantee.soft, terms.guarantee.max), (2, 3, 4));
    assert_eq!((terms.priority, terms.unfit_pct), (Priority(7), 30));
    assert_eq!(terms.objective.unwrap().p99_us, 50_000);
    // In the order of the names, whatever that of the file.
    assert_eq!(full.classes, ["gpu", "ssd"]);
    assert_eq!((terms.wants, full.nodes[3].traits.classes), (Classes(3), Classes(3)));
    assert_eq!(full.nodes[3].traits.capacity_pct, 250);
    assert_eq!(settings(&full.to_toml()), full);
    // `soft` is as `hard` where only that is given.
    assert_eq!(settings(&with("hard = 2", "")).sites[1].terms.guarantee.soft, 2);
}

#[test]
fn bounds_are_in_order() {
    let blog = "name = \"blog\"\n";
    let bad = |lines: &str, here: &str, message: &str, help: &str| {
        one_problem(blog, &format!("{blog}{lines}\n"), here, message, help);
    };
    bad("hard = 2\nsoft = 1", "1", "`blog` has `soft` 1 below `hard` 2", "at least 2");
    bad("soft = 3\nmax = 2", "3", "`soft` 3 above `max` 2", "at most 2, or raise `max`");
    bad("hard = 2\nmax = 1", "2", "`hard` 2 above `max` 1", "at most 1");
    bad("soft = 0", "0", "`soft` 0 below `hard` 1", "hard <= soft <= max");
    bad("priority = 256", "256", "out of range", "0 to 255");
    bad("p99_ms = 0", "0", "out of range", "1 to 3_600_000");
    bad("unfit_pct = 101", "101", "out of range", "0 to 100");
    one_problem("count = 4", "count = 4\ncapacity_pct = 0", "0", "out of range", "1 to 10_000");
    // All `soft` together may be more than there are nodes.
    let over = with("soft = 4\npriority = 1", "").replace("max = 4", "max = 4\nsoft = 4");
    assert!(parse("x", &over, &[]).is_ok());
}

#[test]
fn classes_have_names_and_a_limit() {
    let blog = "name = \"blog\"\n";
    let bad = |classes: &str, here: &str, message: &str, help: &str| {
        let lines = format!("{blog}unfit_pct = 50\nclasses = [{classes}]\n");
        one_problem(blog, &lines, here, message, help);
    };
    bad("\"GPU\"", "\"GPU\"", "`GPU` cannot name a class", "a-z");
    bad("\"ssd\", \"gpu\", \"ssd\"", "\"ssd\"]", "class `ssd` stands here twice", "remove");
    bad("", "[]", "`classes` is empty", "");
    let names =
        |count: usize| -> String { (0..count).map(|n| format!("'c{n}', ")).collect::<String>() };
    let many = |count| with("", &format!("classes = [{}]", names(count)));
    assert_eq!(settings(&many(32)).classes.len(), 32);
    let [problem] = &wrong(&many(33))[..] else { panic!("{:?}", wrong(&many(33))) };
    assert!(problem.contains("`c32` is one class more than 32"), "{problem}");
}

#[test]
fn promises_that_no_node_can_keep_are_refused_at_their_place() {
    let gpu = "classes = ['gpu']";
    let refused = |sites: &[&str], groups: &[(usize, &str)]| {
        let text = grouped(sites, groups);
        let problems = wrong(&text);
        let [problem] = &problems[..] else { panic!("{problems:#?}\n{text}") };
        problem.clone()
    };
    // One site alone wants more than there are for it.
    let problem = refused(&[&format!("hard = 3\n{gpu}"), ""], &[(6, ""), (2, "'gpu'")]);
    assert!(problem.starts_with("4:8 `hard` of site `s0` sums up to 3, and only 2"), "{problem}");
    assert!(problem.contains("set `unfit_pct`"), "{problem}");
    // Two sites that are each content alone.
    let two = [&*format!("hard = 2\n{gpu}"), &*format!("hard = 1\n{gpu}")];
    let problem = refused(&two, &[(6, ""), (2, "'gpu'")]);
    assert!(problem.contains("2 sites (among them `s0` and `s1`) sums up to 3"), "{problem}");
    // Three that want different sets; the one that any node serves is not to blame.
    let three = ["hard = 1", "hard = 2\nclasses = ['a', 'b']", "hard = 1\nclasses = ['b']"];
    let problem = refused(&three, &[(3, ""), (1, "'a', 'b'"), (2, "'b'")]);
    assert!(problem.contains("site `s1` sums up to 2, and only 1"), "{problem}");
    // A promise is kept, but the start is not.
    let problem = refused(&[&format!("nodes = 3\n{gpu}")], &[(6, ""), (2, "'gpu'")]);
    assert!(problem.contains("site `s0` would start with 3 nodes, and only 2"), "{problem}");
    let problem = refused(&[gpu], &[(6, "")]);
    assert!(problem.contains("no node has the classes for it"), "{problem}");
    // Who can do with other nodes is content.
    let soft = format!("hard = 3\n{gpu}\nunfit_pct = 20");
    assert_eq!(wrong(&grouped(&[&soft, ""], &[(6, ""), (2, "'gpu'")])), Vec::<String>::new());
}

#[test]
fn where_there_are_very_many_kinds_each_site_is_checked_alone() {
    let pair =
        |number: usize| format!("'c{}', 'c{}'", number % 32, (number / 32 + number + 1) % 32);
    let groups: Vec<String> = (0..70).map(pair).collect();
    let groups: Vec<(usize, &str)> = groups.iter().map(|pair| (2, pair.as_str())).collect();
    let wrong_with = |hard: usize| {
        let first = format!("hard = {hard}\nclasses = ['c0']");
        let others = (0..69).map(|number| format!("hard = 1\nclasses = [{}]", pair(number)));
        let sites: Vec<String> = std::iter::once(first).chain(others).collect();
        wrong(&grouped(&sites.iter().map(String::as_str).collect::<Vec<_>>(), &groups))
    };
    assert_eq!(wrong_with(2), Vec::<String>::new());
    let [problem] = &wrong_with(60)[..] else { panic!("{:?}", wrong_with(60)) };
    assert!(problem.contains("`hard` of site `s0` sums up to 60, and only"), "{problem}");
}

#[test]
fn sites_start_with_nodes_that_can_serve_them() {
    let start = |sites: &[&str], groups: &[(usize, &str)]| -> Vec<u16> {
        let settings = settings(&grouped(sites, groups));
        let of = |site: &Option<SiteId>| site.map_or(0, SiteId::get);
        settings.first_assignment().iter().map(of).collect()
    };
    // The first site takes anything, and leaves the nodes with a class to the second.
    let sites = ["nodes = 3", "nodes = 2\nclasses = ['gpu']"];
    assert_eq!(start(&sites, &[(2, "'gpu'"), (4, "")]), [2, 2, 1, 1, 1, 0]);
    // One that prefers a class gets it where nobody needs it more.
    let sites = ["nodes = 2\nclasses = ['ssd']\nunfit_pct = 50", "nodes = 1\nclasses = ['ssd']"];
    assert_eq!(start(&sites, &[(2, ""), (2, "'ssd'")]), [1, 0, 1, 2]);
    // The choosy one makes way over the other's second choice.
    let sites = ["nodes = 1\nclasses = ['a']", "nodes = 1\nclasses = ['a', 'b']"];
    assert_eq!(start(&sites, &[(1, "'a', 'b'"), (1, "'a'")]), [2, 1]);
    assert_eq!(start(&["nodes = 2", "nodes = 1"], &[(4, "")]), [1, 1, 2, 0]);
}

#[test]
fn what_a_policy_does_not_read_is_told() {
    let warned = |policy: &str, lines: &str| -> Vec<String> {
        let text = with(lines, "").replace("hold_ms = 5", &format!("policy = \"{policy}\""));
        let checked = parse("x", &text, &[]).unwrap_or_else(|problems| panic!("{problems}"));
        checked.warnings.0.iter().map(|problem| problem.message.clone()).collect()
    };
    let told = warned("reconf", "priority = 1\nsoft = 2\np99_ms = 9");
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(
        told[0].contains("policy `reconf` does not read `priority` of site `blog`"),
        "{told:?}"
    );
    assert_eq!(warned("reconf", ""), Vec::<String>::new());
    let all = "priority = 1\nsoft = 2\np99_ms = 9";
    let counts = ["rigid", "reconf_p", "reconf_pq", "staged", "slo"]
        .map(|policy| warned(policy, all).iter().filter(|told| told.contains("not read")).count());
    assert_eq!(counts, [3, 2, 1, 1, 0]);
    let [told] = &warned("slo", "")[..] else { panic!("{:?}", warned("slo", "")) };
    assert!(told.contains("no site has one"), "{told}");
    let unlike = "[[nodes]]\nname = \"big\"\ncapacity_pct = 200\n";
    let warned = |policy: &str| {
        let text = GOOD.replace("hold_ms = 5", &format!("policy = \"{policy}\""));
        parse("x", &format!("{text}{unlike}"), &[]).unwrap().warnings.to_string()
    };
    assert!(warned("reconf_pq").contains("takes all nodes for alike"));
    assert_eq!(warned("staged"), "");
}

#[test]
fn each_policy_has_its_word() {
    let key = schema::POOL.key("policy").unwrap();
    let schema::Kind::Choice(words) = key.kind else { panic!("{key:?}") };
    assert_eq!(words.len(), PolicyName::ALL.len());
    for (word, policy) in words.iter().zip(model::POLICIES) {
        assert_eq!(PolicyName::by_name(word), Some(policy));
    }
}

#[test]
fn classes_that_come_to_nothing_are_told() {
    let warned = |lines: &str, nodes: &str| {
        let checked = parse("x", &with(lines, nodes), &[]).unwrap();
        let [one] = &checked.warnings.0[..] else { panic!("{}", checked.warnings) };
        one.to_string()
    };
    let told = warned("classes = ['gpu']\nunfit_pct = 50", "classes = ['ssd']");
    assert!(told.contains("no node has class `gpu` of site `blog`"), "{told}");
    assert!(told.contains("classes = [\"gpu\"]"), "{told}");
    let told = warned("unfit_pct = 50", "");
    assert!(told.contains("`unfit_pct` and no `classes`"), "{told}");
}

#[test]
fn the_hash_covers_terms_and_traits() {
    let hash = |site: &str, nodes: &str| settings(&with(site, nodes)).pool_hash();
    let two = "classes = ['a', 'b']";
    let variants = [
        ("", ""),
        ("priority = 1", ""),
        ("soft = 2", ""),
        ("p99_ms = 5", ""),
        ("unfit_pct = 5", ""),
        ("", "capacity_pct = 50"),
        ("", two),
        ("classes = ['a']", two),
        ("classes = ['b']", two),
        ("classes = ['b']", "classes = ['c', 'b']"),
    ];
    let mut seen = Vec::new();
    for (site, nodes) in variants {
        let new = hash(site, nodes);
        assert!(!seen.contains(&new), "{site} {nodes}");
        seen.push(new);
    }
    assert_eq!(hash("", two), hash("", "classes = ['b', 'a']"), "a set has no order");
}

#[test]
fn changed_terms_are_typed_changes_and_told_by_key() {
    let old = settings(&with("priority = 1\nsoft = 2", "classes = ['gpu']"));
    let new = settings(&with(
        "priority = 9\nsoft = 3\nclasses = ['gpu']",
        "classes = ['gpu', 'fast']\ncapacity_pct = 80",
    ));
    let mut reached = old.clone();
    for change in changes(&old, &new).unwrap() {
        apply(&mut reached, change);
    }
    assert_eq!(reached, new);
    let told = differences(&old, &new);
    for line in [
        "sites.blog.priority: 1 -> 9",
        "sites.blog.soft: 2 -> 3",
        "nodes.n1.capacity_pct: 100 -> 80",
    ] {
        assert!(told.iter().any(|told| told == line), "{line}: {told:?}");
    }
    assert!(told.iter().any(|told| told.starts_with("nodes.n4.classes: ")), "{told:?}");
    // No agent goes by them.
    let node = pool_model::NodeId::MIN;
    assert!(!concerns_agent(&old, &new, node));
}

/// Whether each site can have the nodes that it wants, by trying everything.
fn can_be_kept(wants: &[(u16, u32)], nodes: &[u32]) -> bool {
    let Some((first, rest)) = wants.split_first() else { return true };
    let (count, classes) = *first;
    let fits: Vec<usize> = (0..nodes.len()).filter(|&n| nodes[n] & classes == classes).collect();
    // All ways to choose that many of those that fit.
    (0..1_u32 << fits.len()).filter(|chosen| chosen.count_ones() == u32::from(count)).any(
        |chosen| {
            let is_chosen = |node: usize| {
                fits.iter().position(|&fit| fit == node).is_some_and(|at| chosen >> at & 1 == 1)
            };
            let left = (0..nodes.len()).filter(|&node| !is_chosen(node));
            can_be_kept(rest, &left.map(|node| nodes[node]).collect::<Vec<_>>())
        },
    )
}

proptest! {
    #[test]
    fn a_shortage_is_found_exactly_where_there_is_one(
        wants in proptest::collection::vec((0_u16..3, 0_u32..8), 1..4),
        nodes in proptest::collection::vec(0_u32..8, 1..7),
    ) {
        let mut settings = good();
        settings.classes = ["a", "b", "c"].map(str::to_owned).to_vec();
        let (site, node) = (settings.sites[1].clone(), settings.nodes[0].clone());
        settings.sites = wants.iter().enumerate().map(|(number, &(count, classes))| {
            let guarantee = pool_model::Guarantee::hard(count);
            let mut site = site.clone();
            (site.name, site.nodes) = (format!("s{number}"), count);
            site.terms = site.terms.with_guarantee(guarantee);
            site.terms.wants = Classes(classes);
            site
        }).collect();
        settings.nodes = nodes.iter().map(|&classes| {
            let mut node = node.clone();
            node.traits.classes = Classes(classes);
            node
        }).collect();
        let short = fit::shortage(&settings.sites, &settings.nodes, |site| site.nodes);
        prop_assert_eq!(short.is_none(), can_be_kept(&wants, &nodes), "{:?}", short);
        if let Some(short) = short {
            // It is a reason, not only a claim.
            prop_assert!(short.wanted > short.there_are, "{:?}", short);
            return Ok(());
        }
        let start = settings.first_assignment();
        for (index, site) in settings.sites.iter().enumerate() {
            let id = SiteId::from_index(index).ok();
            let mine: Vec<usize> = (0..start.len()).filter(|&at| start[at] == id).collect();
            prop_assert_eq!(mine.len(), usize::from(site.nodes));
            for node in mine {
                prop_assert!(site.terms.fitness_pct(settings.nodes[node].traits) > 0);
            }
        }
    }
}
