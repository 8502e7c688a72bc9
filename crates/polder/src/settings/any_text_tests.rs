//! Settings: no text panics, and what can be used survives a round trip.

use super::tests::{GOOD, good};
use super::*;
use proptest::prelude::*;

/// Lines from which files are put together that are nearly right.
const SCRAPS: [&str; 32] = [
    "[pool]",
    "[[pool]]",
    "hold_ms = 5",
    "hold_ms = -1",
    "[[edges]]",
    "listen = [\"127.0.0.1:0\"]",
    "listen = []",
    "[http]",
    "[[sites]]",
    "[sites]",
    "name = \"shop\"",
    "name = \"ä\"",
    "hosts = [\"a\", \"*.b\"]",
    "hosts = [3]",
    "command = [\"{port}\", \"{{x}\"]",
    "command = []",
    "max = 16382",
    "hard = 16382",
    "soft = 2",
    "priority = 7",
    "classes = [\"gpu\", \"gpu\"]",
    "unfit_pct = 50",
    "capacity_pct = 30",
    "check = { path = \"/\" }",
    "sticky = { cookie = \"S\" }",
    "sticky = { hash = \"header:\", wait_ms = 0 }",
    "rate = { client_per_s = 5, site_burst = 3 }",
    "[[nodes]]",
    "count = 16382",
    "servers = { shop = \"10.0.0.1:1\" }",
    "servers = {}",
    "pool.name = \"x\"",
];

/// Each kind of stickiness in turn.
fn sticky(number: u16, path: &str) -> Option<Sticky> {
    let key_file = (number > 6).then(|| path.into());
    let by = match number {
        0 => return None,
        1 => StickyBy::Hash(edge::HashBy::Address),
        2 => StickyBy::Hash(edge::HashBy::parse("header:x-user").unwrap()),
        3 => StickyBy::Hash(edge::HashBy::parse("cookie:S").unwrap()),
        _ => StickyBy::Cookie { name: "S".into(), key_file },
    };
    Some(Sticky { by, wait_ms: number.into() })
}

fn rate(number: u16) -> edge::RateOptions {
    let rate = |per_s: u16| edge::Rate { per_s: per_s.into(), burst: u32::from(per_s) + 1 };
    edge::RateOptions {
        client: (number % 2 == 1).then(|| rate(number)),
        site: (number % 3 == 1).then(|| rate(number * 2)),
    }
}

/// Terms of each kind.
fn terms(hard: u16, number: u16) -> pool_model::SiteTerms {
    let max = if number == 0 { u16::MAX } else { hard + number + 1 };
    pool_model::SiteTerms {
        guarantee: pool_model::Guarantee::new(hard, hard + number / 2, max).unwrap(),
        priority: pool_model::Priority(number as u8),
        objective: number
            .is_multiple_of(2)
            .then(|| pool_model::Objective { p99_us: 1_000 * (1 + u32::from(number)) }),
        wants: pool_model::Classes(u32::from(number % 4)),
        unfit_pct: number as u8,
    }
}

proptest! {
    #[test]
    fn no_text_panics(text: String) {
        if let Err(problems) = parse("x", &text, &[]) {
            prop_assert!(!problems.to_string().is_empty());
        }
    }

    #[test]
    fn no_file_of_scraps_panics(
        lines in proptest::collection::vec(proptest::sample::select(&SCRAPS[..]), 0..24),
        set in "(pool|sites|nodes|edges)?\\.?[a-z0-9.]{0,6}=?.{0,6}",
    ) {
        let text = lines.join("\n");
        for overrides in [vec![], vec![set]] {
            match parse("x", &text, &overrides) {
                Ok(checked) => prop_assert!(!checked.warnings.any_error()),
                Err(problems) => prop_assert!(problems.any_error()),
            }
        }
    }

    #[test]
    fn no_change_of_one_character_panics(at in 0usize..420, new: char) {
        let mut text: Vec<char> = GOOD.chars().collect();
        let at = at % text.len();
        text[at] = new;
        let _ = parse("x", &text.into_iter().collect::<String>(), &[]);
    }

    #[test]
    fn settings_survive_a_round_trip(
        look in 1u32..1_000, hold in 0u32..1_000, high in 0.02f64..900.0, hard in 0u16..4,
        sites in 1usize..6, extra in 0u16..9, threads in proptest::option::of(1u16..256),
        is_observer: bool, path in "(/[a-z~%.]{0,5}){1,3}",
    ) {
        let mut settings = good();
        let mode = if is_observer { Mode::Observe } else { Mode::Move };
        settings.pool.mode = mode;
        settings.pool.look_every_ms = look;
        settings.pool.idle_look_every_ms = look + extra as u32;
        settings.pool.slot_lease_ms = 10 + 2 * (look + extra as u32);
        settings.pool.hold_ms = look + hold;
        settings.pool.high_load = high;
        settings.pool.light_load = high / 2.0;
        settings.edges[0].threads = threads;
        let model = settings.sites.remove(1);
        settings.sites = (0..sites)
            .map(|number| Site {
                name: format!("s{number}"),
                hosts: vec![format!("s{number}.x"), format!("*.s{number}.x")],
                terms: terms(hard, extra),
                nodes: hard,
                check: Check::Path(path.clone()),
                slow_start_ms: u32::from(extra),
                sticky: sticky(extra, &path),
                rate: rate(extra),
                ..model.clone()
            })
            .collect();
        let mut node = settings.nodes[0].clone();
        node.traits = pool_model::NodeTraits {
            capacity_pct: 100 + extra,
            classes: pool_model::Classes(3),
        };
        settings.classes = vec!["gpu".into(), "ssd".into()];
        settings.nodes = (0..hard as usize * sites + extra as usize + 1)
            .map(|number| Node { name: format!("x{number}"), ..node.clone() })
            .collect();
        let text = settings.to_toml();
        let again = parse("x", &text, &[]).map_err(|problems| {
            TestCaseError::fail(format!("{problems}\n{text}"))
        })?;
        prop_assert_eq!(again.settings.pool_hash(), settings.pool_hash());
        prop_assert_eq!(again.settings, settings);
    }
}
