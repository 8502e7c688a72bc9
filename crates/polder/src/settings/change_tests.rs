//! Changes lead to the settings that are wanted, and are told key by key.

use super::super::difference::differences;
use super::super::parse;
use super::*;
use proptest::prelude::*;
use std::fmt::Write as _;

/// A few numbers of some settings, as they are drawn.
#[derive(Clone, Debug)]
struct Drawn {
    hold_ms: u32,
    retries: u8,
    failures: u32,
    listen: Vec<u16>,
    queue: Vec<u32>,
    nodes: Vec<u32>,
    observe: bool,
    reversed: bool,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let lists = (
        proptest::collection::vec(1024_u16..1030, 0..4),
        proptest::collection::vec(1_u32..4, 2..3),
        proptest::collection::vec(1_u32..4, 2..6),
    );
    let flags = (any::<bool>(), any::<bool>());
    (2_u32..6, 0_u8..3, 1_u32..4, lists, flags).prop_map(
        |(hold_ms, retries, failures, (listen, queue, nodes), (observe, reversed))| Drawn {
            hold_ms,
            retries,
            failures,
            listen,
            queue,
            nodes,
            observe,
            reversed,
        },
    )
}

fn settings(drawn: &Drawn) -> Settings {
    let mut text = String::new();
    let mode = if drawn.observe { "observe" } else { "move" };
    let (hold, retries, failures) = (drawn.hold_ms, drawn.retries, drawn.failures);
    write!(
        text,
        "[pool]\nhold_ms = {hold}\nmode = '{mode}'\n[http]\nretries_max = {retries}\n\
         [health]\nfailures_max = {failures}\n"
    )
    .unwrap();
    for port in &drawn.listen {
        writeln!(text, "[[edges]]\nlisten = ['127.0.0.1:{port}']\nthreads = 1").unwrap();
    }
    let mut sites: Vec<_> = drawn.queue.iter().enumerate().collect();
    if drawn.reversed {
        sites.reverse();
    }
    for (number, queue) in sites {
        writeln!(text, "[[sites]]\nname = 's{number}'\nhosts = ['s{number}']\nqueue_max = {queue}")
            .unwrap();
    }
    for (number, most) in drawn.nodes.iter().enumerate() {
        let ports = (20_000 + 2 * number, 20_001 + 2 * number);
        writeln!(
            text,
            "[[nodes]]\nname = 'n{number}'\nmax_in_flight = {most}\n\
             servers = {{ s0 = '127.0.0.1:{}', s1 = '127.0.0.1:{}' }}",
            ports.0, ports.1
        )
        .unwrap();
    }
    parse("x", &text, &[]).unwrap_or_else(|problems| panic!("{problems}\n{text}")).settings
}

proptest! {
    #[test]
    fn changes_lead_to_the_new_settings(old in drawn(), new in drawn()) {
        let (before, wanted) = (settings(&old), settings(&new));
        let after = arranged(&before, wanted.clone());
        let changes = changes(&before, &after).unwrap();
        prop_assert_eq!(changes.is_empty(), before == after);
        prop_assert_eq!(differences(&before, &after).is_empty(), before == after);
        let mut reached = before.clone();
        for change in changes {
            apply(&mut reached, change);
        }
        prop_assert_eq!(&reached, &after);
        if old.reversed == new.reversed {
            prop_assert_eq!(&after, &wanted);
        }
        // Written and read again, as the processes of the pool do, they are the same.
        let copy = parse("copy", &after.to_toml(), &[]).unwrap();
        prop_assert_eq!(copy.settings, after);
        // Nothing differs from itself.
        prop_assert!(super::changes(&before, &before).unwrap().is_empty());
    }
}

const BASE: Drawn = Drawn {
    hold_ms: 2,
    retries: 1,
    failures: 1,
    listen: Vec::new(),
    queue: Vec::new(),
    nodes: Vec::new(),
    observe: false,
    reversed: false,
};

fn base() -> Drawn {
    Drawn { queue: vec![1, 2], nodes: vec![1, 2], listen: vec![1_024], ..BASE }
}

#[test]
fn differences_are_told_by_their_keys() {
    let old = settings(&base());
    let mut new = base();
    (new.retries, new.nodes, new.queue[1]) = (2, vec![1, 2, 3], 9);
    new.listen = vec![1_025];
    let told = differences(&old, &settings(&new));
    assert_eq!(
        told,
        [
            "nodes.n2: added",
            "edges.0.listen: [\"127.0.0.1:1024\"] -> [\"127.0.0.1:1025\"]",
            "http.retries_max: 1 -> 2",
            "sites.s1.queue_max: 2 -> 9",
        ]
    );
    let back = differences(&settings(&new), &old);
    assert_eq!(back[0], "nodes.n2: removed");
}

#[test]
fn what_a_pool_has_for_life_is_refused_with_advice() {
    let old = settings(&base());
    let refusals = |change: &dyn Fn(&mut Settings)| {
        let mut new = old.clone();
        change(&mut new);
        changes(&old, &arranged(&old, new)).unwrap_err().join("\n")
    };
    assert!(refusals(&|new| new.pool.name = "other".into()).contains("`name` in [pool]"));
    assert!(refusals(&|new| new.sites[0].name = "other".into()).contains("sites can't come"));
    let missing = refusals(&|new| drop(new.nodes.remove(0)));
    assert!(missing.contains("polder drain n0"), "{missing}");
    let agent = refusals(&|new| {
        new.nodes[1].servers = Servers::Agent { host: std::net::Ipv4Addr::LOCALHOST };
    });
    assert!(agent.contains("node n1"), "{agent}");
}

#[test]
fn agents_are_concerned_by_their_own_settings_only() {
    let old = settings(&base());
    let concerned = |change: &dyn Fn(&mut Settings)| {
        let mut new = old.clone();
        change(&mut new);
        [0, 1].map(|number| concerns_agent(&old, &new, NodeId::new(number).unwrap()))
    };
    assert_eq!(concerned(&|new| new.http.retries_max = 0), [false, false]);
    assert_eq!(concerned(&|new| new.health.failures_max += 1), [false, false]);
    assert_eq!(concerned(&|new| new.health.check_every_ms += 1), [true, true]);
    assert_eq!(concerned(&|new| new.nodes[1].max_in_flight += 1), [false, true]);
    let path = || super::super::Check::Path("/up".to_owned());
    assert_eq!(concerned(&|new| new.sites[0].check = path()), [true, true]);
}
